"""Programs that tests need and no wheel brings: installed once by their own package client, by name and version, into
a cache outside the tree. What cannot be had is skipped, and the skip names the command that would bring it.

python -m tests.components installs all of them: scripts/test does that beside its checks, so that no test waits for it.
"""

import contextlib
import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import NoReturn

import pytest

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "paddock"
AZURITE = "3.35.0"
TAP_POSTGRES = "0.10.0"
AIRBYTE_FAKER = "7.2.1"
INSTALL_SECONDS = 600
ALL = (
    *("tests.trino.fetching:trino_home", "tests.storage.gcs:fake_gcs_server", "tests.components:azurite"),
    "tests.dumps.test_zip_by_java:zip_reader",
)


def installed(name: str, version: str, install: Callable[[Path], None]) -> Path:
    """The component's folder. It appears whole or not at all, however many ask and whoever is killed."""
    CACHE.mkdir(parents=True, exist_ok=True)
    folder = CACHE / f"{name}-{version}"
    with (CACHE / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            unfinished = CACHE / f"{name}-{version}.unfinished"
            shutil.rmtree(unfinished, ignore_errors=True)
            unfinished.mkdir()
            install(unfinished)
            unfinished.rename(folder)
    return folder


def missing(what: str, command: str, why: str) -> NoReturn:
    pytest.skip(f"SKIPPED for want of {what} ({why}). To have it: {command}")


def azurite() -> Path:
    """Azure's blob storage, as Microsoft emulates it."""
    package = f"azurite@{AZURITE}"
    if shutil.which("npm") is None or shutil.which("node") is None:
        missing("azurite", f"apt-get install nodejs npm, then npm install {package}", "npm or node is not installed")

    def install(folder: Path) -> None:
        run(["npm", "install", "--no-audit", "--no-fund", "--no-package-lock", "--prefix", str(folder), package])

    try:
        folder = installed("azurite", AZURITE, install)
    except subprocess.SubprocessError as problem:
        missing("azurite", f"npm install {package}", f"npm failed: {type(problem).__name__}")
    return folder / "node_modules" / ".bin" / "azurite-blob"


def tap_postgres() -> list[str]:
    """The command of Meltano's Singer tap, in an environment of its own: its libraries are not ours."""
    python = _python_with("meltanolabs-tap-postgres", TAP_POSTGRES)
    return [str(python), "-P", "-c", "from tap_postgres.tap import TapPostgres; TapPostgres.cli()"]


def airbyte_source_faker() -> list[str]:
    python = _python_with("airbyte-source-faker", AIRBYTE_FAKER)
    return [str(python), "-P", "-c", "from source_faker.run import run; run()"]


def _python_with(package: str, version: str) -> Path:
    """The Python of an environment that has this package. Commands of it would name the folder it was made in."""

    def install(folder: Path) -> None:
        run([sys.executable, "-m", "venv", str(folder)])
        run([str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", f"{package}=={version}"])

    try:
        folder = installed(package, version, install)
    except subprocess.SubprocessError as problem:
        missing(package, f"pip install {package}=={version}", f"pip failed: {type(problem).__name__}")
    return folder / "bin" / "python"


def run(command: list[str], cwd: Path | None = None, environ: dict[str, str] | None = None) -> None:
    subprocess.run(
        command,
        check=True,
        timeout=INSTALL_SECONDS,
        cwd=cwd,
        env={**os.environ, **(environ or {})},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
    )


if __name__ == "__main__":
    for each in ALL:
        module, _, name = each.partition(":")
        with contextlib.suppress(pytest.skip.Exception, subprocess.SubprocessError, OSError):
            getattr(import_module(module), name)()
