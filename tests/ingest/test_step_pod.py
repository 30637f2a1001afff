"""What the Job of a step is made of: a pure function, so the whole of it is here."""

import re
import subprocess
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from paddock.ingest.source_settings import Hook, SecretSource, Source
from paddock.ingest.step_pod import StepFacts, job_spec
from paddock.runtimes.kubernetes.job_manifest import Container, JobSpec, job_of
from paddock.runtimes.kubernetes.pod_settings import PodSettings
from tests.processes.running import wait_for

DIGEST = f"registry.example/orders@sha256:{'a' * 64}"
MIB = 1 << 20
FETCH = StepFacts(
    job="0198c0de",
    namespace="ingest-jobs",
    image="paddock:1",
    transfer_url="http://control-plane:8080",
    token="the-token-of-this-step",
    draft="d1",
    source="orders",
    run="r1",
    batch=3,
    step="fetch",
    limit=100,
    pods=PodSettings(),
)
HOOK = replace(FETCH, step="hooks", hook="check_amount", limit=None)


def source(**more: Any) -> Source:
    return Source.model_validate({"image": DIGEST, **more})


def by_name(spec: JobSpec) -> dict[str, Container]:
    return {one.name: one for one in spec.all}


def test_only_our_containers_have_the_token_and_theirs_the_secrets() -> None:
    """`fetch` has the values too, to tell what they look like."""
    secret = {"API_TOKEN": SecretSource(secret="shop", key="token")}
    spec = job_spec(FETCH, source(command=("fetch",), secrets=secret, memory=64 * MIB, cpu=0.5))
    found = by_name(spec)
    assert [one.name for one in spec.init] == ["fetch", "step"]
    assert [one.name for one in spec.containers] == ["ship"]
    assert spec.main == "step"
    assert spec.ours == {"fetch", "ship"}
    for name in spec.ours:
        assert found[name].environment["PADDOCK_TRANSFER_TOKEN"] == FETCH.token
    assert FETCH.token not in str(found["step"])
    assert found["step"].secrets == {"API_TOKEN": ("shop", "token")}
    assert found["fetch"].secrets == {"PADDOCK_HIDDEN_0": ("shop", "token")}
    assert found["fetch"].environment["PADDOCK_HIDES"] == "1"
    assert found["ship"].secrets == {}
    assert (found["step"].memory_bytes, found["step"].cpu, spec.memory_most) == (64 * MIB, 0.5, 256 * MIB)


def test_a_step_knows_what_the_contract_says() -> None:
    told = by_name(job_spec(FETCH, source()))["step"].environment
    wanted = ("IN", "OUT", "SOURCE", "RUN", "BATCH", "SESSION", "LIMIT")
    assert [name for name in told if name.startswith("PADDOCK_")] == [f"PADDOCK_{name}" for name in wanted]
    assert (told["PADDOCK_BATCH"], told["PADDOCK_LIMIT"]) == ("3", "100")
    hook = by_name(job_spec(HOOK, Hook(image=DIGEST)))["step"].environment
    assert hook["PADDOCK_HOOK"] == "check_amount"
    assert "PADDOCK_LIMIT" not in hook


def test_only_who_may_reaches_the_network() -> None:
    label = "paddock.io/egress"
    assert job_spec(FETCH, source()).labels[label] == "any"
    assert job_spec(HOOK, Hook(image=DIGEST)).labels[label] == "none"
    assert job_spec(HOOK, Hook(image=DIGEST, network=True)).labels[label] == "any"


@pytest.mark.parametrize(
    ("protocol", "session", "arguments"),
    [
        ("singer", False, ["--config", "/paddock/in/config.json", "--catalog", "/paddock/in/catalog.json"]),
        (
            "airbyte",
            True,
            [
                *("read", "--config", "/paddock/in/config.json", "--catalog", "/paddock/in/catalog.json"),
                *("--state", "/paddock/in/session.json"),
            ],
        ),
    ],
)
def test_a_tap_is_started_through_the_shell_with_its_output_in_a_file(
    protocol: str, session: bool, arguments: list[str]
) -> None:
    tap = source(command=("tap", "--quiet"), protocol=protocol, catalog=Path("catalog.json"))
    step = by_name(job_spec(replace(FETCH, has_session=session), tap))["step"]
    assert step.command[:2] == ["sh", "-c"]
    assert step.command[4:] == ["tap", "--quiet", *arguments]


def shell_of_tap(folder: Path, script: str) -> list[str]:
    """What `step` runs, with a folder of the test in place of its volume and a script for the tap."""
    step = by_name(job_spec(FETCH, source(command=("tap",), protocol="singer")))["step"]
    told = step.command[2].replace("/paddock/out", str(folder))
    return ["sh", "-c", told, "sh", "sh", "-c", script]


@pytest.mark.parametrize(
    ("script", "code", "told"),
    [
        ("echo said", 0, "0"),
        ("echo said; exit 64", 0, "64"),
        ("echo said; no-such-tap", 127, None),
        ("echo said; kill -KILL $$", 137, None),
    ],
)
def test_what_a_tap_said_is_shipped_also_when_it_failed_by_itself(
    script: str, code: int, told: str | None, tmp_path: Path
) -> None:
    """One that is not there or was killed failed its pod: the cluster's own words tell why."""
    ended = subprocess.run(shell_of_tap(tmp_path, script), check=False, capture_output=True, timeout=60)
    assert ended.returncode == code
    assert (tmp_path / "messages.jsonl").read_text() == "said\n"
    exit_code = tmp_path / "exit-code"
    assert (exit_code.read_text().strip() if exit_code.exists() else None) == told


def test_a_tap_that_is_told_to_stop_did_not_come_to_its_end(tmp_path: Path) -> None:
    """Most taps answer SIGTERM with exit 0. The shell passes it on, waits for the tap and says that the pod was stopped."""
    script = f"trap 'echo stopped; exit 0' TERM; echo $$ > {tmp_path}/here; while :; do sleep 0.01; done"
    with subprocess.Popen(shell_of_tap(tmp_path, script)) as shell:
        wait_for("the tap runs", lambda: (tmp_path / "here").exists() and (tmp_path / "here").read_text())
        shell.terminate()
        assert shell.wait(60) == 143
    assert (tmp_path / "messages.jsonl").read_text() == "stopped\n"
    assert not (tmp_path / "exit-code").exists()


def test_a_step_cannot_change_its_inputs() -> None:
    job = job_of(
        job_spec(FETCH, source()),
        job="j",
        number=1,
        installation="i",
        memory_bytes=MIB,
        net=timedelta(minutes=1),
    )
    pod = job["spec"]["template"]["spec"]
    found = {
        one["name"]: {mount["name"] for mount in one["volumeMounts"] if mount.get("readOnly")}
        for one in (*pod["initContainers"], *pod["containers"])
    }
    assert found == {"fetch": set(), "step": {"in"}, "ship": set()}


def test_of_a_secret_that_is_not_there_only_theirs_fails() -> None:
    """The failure of a container of ours would be the platform's, and be tried again without end."""
    secret = {"API_TOKEN": SecretSource(secret="shop", key="token")}
    asked: Any = {"job": "j", "number": 1, "installation": "i", "memory_bytes": MIB, "net": timedelta(minutes=1)}
    pod = job_of(job_spec(FETCH, source(secrets=secret)), **asked)["spec"]["template"]["spec"]
    fetch, step = ([one for one in container["env"] if "valueFrom" in one] for container in pod["initContainers"])
    place = {"name": "shop", "key": "token"}
    assert fetch == [{"name": "PADDOCK_HIDDEN_0", "valueFrom": {"secretKeyRef": {**place, "optional": True}}}]
    assert step == [{"name": "API_TOKEN", "valueFrom": {"secretKeyRef": place}}]


def test_the_same_step_has_the_same_content_and_another_hook_another_name() -> None:
    assert job_spec(FETCH, source()) == job_spec(FETCH, source())
    hooks = ["add-region", "check_amount_eu", "check_amount_us", "check-amount-eu", "check_amount_", "h" * 63]
    job = "019a8b1e-4c41-7001-8f6e-2f9d3c0a51e7"
    names = {job_spec(replace(HOOK, job=job, hook=hook), Hook(image=DIGEST)).name for hook in hooks}
    assert len(names) == len(hooks)
    assert all(re.fullmatch(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?", name) and len(f"{name}-999") <= 63 for name in names)


def test_a_step_has_the_cpu_and_memory_that_it_asked_for_and_no_more() -> None:
    asked: Any = {"job": "j", "number": 1, "installation": "i", "memory_bytes": 64 * MIB, "net": timedelta(minutes=1)}
    pod = job_of(job_spec(FETCH, source(cpu=0.5)), **asked)["spec"]["template"]["spec"]
    fetch, step = pod["initContainers"]
    assert step["resources"]["requests"] == step["resources"]["limits"]
    assert step["resources"]["limits"]["cpu"] == "0.5"
    assert "cpu" not in fetch["resources"]["limits"], "what is ours may use what others leave"
