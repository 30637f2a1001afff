"""A command of the kubeconfig that says who we are: it learns nothing of ours, and is gone when it is not needed."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from paddock.runtimes.kubernetes import access
from paddock.runtimes.kubernetes.access import Access, CredentialMissing, find_access

OURS = {
    "PADDOCK_DATABASE_URL": "postgresql://paddock:hunter2@db/paddock",
    "PADDOCK_TOKEN": "pdk_hunter2",
    "GRAPH_OLAP_STARBURST_PASSWORD": "hunter2",
    "STARBURST_PASSWORD": "hunter2",
    "PGPASSWORD": "hunter2",
}
CREDENTIAL = json.dumps({"kind": "ExecCredential", "status": {"token": "the-token"}})


def access_by(folder: Path, script: str, **more: Any) -> Access:
    plugin = folder / "plugin"
    plugin.write_text(f"#!/bin/sh\n{script}\n")
    plugin.chmod(0o700)
    return find_access({"KUBECONFIG": str(kubeconfig(folder, {"command": "./plugin", **more}))})


def kubeconfig(folder: Path, plugin: Mapping[str, Any]) -> Path:
    path = folder / "config"
    told = {
        "current-context": "it",
        "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it"}}],
        "clusters": [{"name": "it", "cluster": {"server": "http://nowhere.invalid"}}],
        "users": [{"name": "it", "user": {"exec": dict(plugin)}}],
    }
    path.write_text(yaml.safe_dump(told))
    return path


async def test_it_sees_what_its_cloud_needs_and_no_setting_of_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {**OURS, "AWS_PROFILE": "mine"}.items():
        monkeypatch.setenv(name, value)
    script = f"/usr/bin/env > {tmp_path}/seen\necho '{CREDENTIAL}'"
    asked = access_by(tmp_path, script, env=[{"name": "REGION", "value": "north"}])

    assert await asked.headers() == {"Authorization": "Bearer the-token"}

    seen = (tmp_path / "seen").read_text()
    assert {"AWS_PROFILE=mine", "REGION=north", f"HOME={os.environ['HOME']}"} <= {*seen.splitlines()}
    assert "KUBERNETES_EXEC_INFO=" in seen
    assert "hunter2" not in seen


async def test_one_that_hangs_gives_no_credential(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access, "EXEC_SECONDS", 0.0)

    with pytest.raises(CredentialMissing, match="gave no credential"):
        await access_by(tmp_path, "sleep 1000").headers()


async def test_one_that_is_not_there_is_named(tmp_path: Path) -> None:
    asked = find_access({"KUBECONFIG": str(kubeconfig(tmp_path, {"command": "no-such-plugin"}))})

    with pytest.raises(CredentialMissing, match="'no-such-plugin' of the kubeconfig cannot be started"):
        await asked.headers()


PARENT = """
import asyncio, os
from paddock.runtimes.kubernetes.access import find_access

asyncio.run(find_access(os.environ).headers())
"""


async def test_it_dies_with_a_killed_parent(tmp_path: Path) -> None:
    access_by(tmp_path, f"echo $$ > {tmp_path}/started\nmv {tmp_path}/started {tmp_path}/pid\nexec sleep 1000")
    environment = {**os.environ, "KUBECONFIG": str(tmp_path / "config")}
    with subprocess.Popen([sys.executable, "-c", PARENT], env=environment) as parent:
        try:
            await until((tmp_path / "pid").exists)
        finally:
            parent.kill()
    pid = int((tmp_path / "pid").read_text())

    await until(lambda: gone(pid))


async def until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(50):
        while not true():  # noqa: ASYNC110  nobody tells us when somebody else's child is gone
            await asyncio.sleep(0.01)


def gone(pid: int) -> bool:
    """Also when it ended and whoever inherited it has not reaped it yet."""
    try:
        return ") Z " in Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return True
