"""Background jobs on three replicas of `paddock serve`: one is killed in the middle of a pass, one stands still in the middle of
its deletes and wakes when another has done them. Each thing is acted on and counted once."""

import asyncio
import contextlib
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import asyncpg
import pytest

from paddock.client import Client
from paddock.runtimes.folders import InstanceFolder
from paddock.runtimes.keeper import keeper, started_of
from tests.background.world import INSERT
from tests.ports import free_ports
from tests.processes.installation import Installation, body, until_ready
from tests.processes.running import Process, wait_for

pytestmark = pytest.mark.slow

# Ends when the gate is open, and not before, whoever asks.
STUBBORN = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: None)
while not os.path.exists(sys.argv[1]):
    time.sleep(0.05)
"""
BLOCKED = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%pod_name COLLATE%'"


class Replicas:
    def __init__(self, installation: Installation, count: int) -> None:
        self.data = installation.folder / "data"
        self.ports = free_ports(count)
        settings = {
            "PADDOCK_DATA": str(self.data),
            "PADDOCK_OBJECT_STORE": str(installation.folder / "store"),
            "PADDOCK_RECONCILIATION_JOB_INTERVAL_SECONDS": "1",
        }
        self.processes: list[Process] = [installation.serve(port, **settings) for port in self.ports]
        for port, process in zip(self.ports, self.processes, strict=True):
            until_ready(port, process)

    def of(self, job: dict[str, Any]) -> int:
        """The number of the replica that holds it."""
        pid = int(str(job["claimed_by"]).split("-")[-2])
        return [process.pid for process in self.processes].index(pid)

    def awake(self, *without: int) -> list[int]:
        return [port for number, port in enumerate(self.ports) if number not in without]

    def total(self, metric: str, ports: list[int]) -> float:
        found = [re.findall(rf"^{metric} (\S+)$", body(port, "/metrics"), re.MULTILINE) for port in ports]
        return sum(float(value) for values in found for value in values)


def pass_at_work(client: Client, *, of_none_of: tuple[object, ...] = ()) -> dict[str, Any] | None:
    found = client.list(kind="reconciliation", status="claimed")
    return next((job for job in found if job["claimed_by"] not in of_none_of), None)


@contextlib.contextmanager
def orphan(data: Path, gate: Path) -> Iterator[InstanceFolder]:
    """A process that no instance names, as the local runtime leaves one; its start was long ago."""
    id, generation = uuid4(), str(uuid4())
    folder = InstanceFolder(data / "instances", id)
    folder.make()
    process = subprocess.Popen([sys.executable, "-c", STUBBORN, str(gate)])
    own = keeper()
    folder.write("meant.json", {"generation": generation, "name": f"ladybug-wrapper-{id}-1"})
    folder.write(
        "spawned.json",
        {
            "generation": generation,
            "processes": [[process.pid, started_of(process.pid)]],
            "keeper": [own.pid, own.started],
        },
    )
    os.utime(folder.path / "meant.json", (1_000_000_000, 1_000_000_000))
    try:
        yield folder
    finally:
        process.kill()
        process.wait()


@pytest.mark.timeout(300)
async def test_each_thing_happens_once_whoever_dies_or_sleeps_in_the_middle(installation: Installation) -> None:
    replicas = Replicas(installation, 3)
    admin, gate = await asyncpg.connect(installation.dsn), installation.folder / "gate"
    killed = await kill_in_the_middle_of_a_pass(installation, replicas, admin)
    with (
        installation.client(replicas.awake(killed)[0]) as first,
        installation.client(replicas.awake(killed)[1]) as second,
        orphan(replicas.data, gate) as one,
        orphan(replicas.data, gate) as other,
    ):
        for folder in (one, other):
            wait_for("it is asked to end", (folder.path / "stopping").exists)
        job = wait_for("a pass is at work", lambda: pass_at_work(first))
        sleeper = replicas.of(job)
        client = second if replicas.ports[sleeper] == replicas.awake(killed)[0] else first
        os.kill(replicas.processes[sleeper].pid, signal.SIGSTOP)
        # Once the lease is over of the one that stands still.
        wait_for("another replica goes on", lambda: pass_at_work(client, of_none_of=(job["claimed_by"],)), 100)
        gate.touch()
        ended = client.wait(job["id"], timeout=60)
        assert ended["status"] == "completed"
        assert (ended["result"]["found"]["orphaned_pods_cleaned"], one.path.exists(), other.path.exists()) == (
            2,
            False,
            False,
        )
        os.kill(replicas.processes[sleeper].pid, signal.SIGCONT)
        replicas.processes[sleeper].until_said("stale")
        living = replicas.awake(killed)
        assert replicas.total("orphaned_pods_detected_total", living) == 2
        assert replicas.total("orphaned_pods_cleaned_total", living) == 2
        assert replicas.total("missing_pods_handled_total", living) == 1
    await admin.close()


async def kill_in_the_middle_of_a_pass(
    installation: Installation, replicas: Replicas, admin: "asyncpg.Connection[Any]"
) -> int:
    """The pass has begun and reads its first list, which the gate holds; an instance is there whose process is not."""
    gate = await asyncpg.connect(installation.dsn)
    id = uuid4()
    async with gate.transaction():
        await gate.execute("LOCK TABLE instances IN ACCESS EXCLUSIVE MODE")
        await gate.execute(INSERT, id, "running", uuid4(), uuid4(), f"ladybug-wrapper-{id}-1")
        await until(admin, BLOCKED)
        job = await admin.fetchrow(
            "SELECT claimed_by FROM jobs WHERE kind = 'reconciliation' AND attempt_id IS NOT NULL"
        )
        assert job is not None
        killed = replicas.of(dict(job))
        replicas.processes[killed].signal(signal.SIGKILL)
    await until(admin, "SELECT status = 'failed' FROM instances WHERE id = $1", id)
    await gate.close()
    return killed


async def until(connection: "asyncpg.Connection[Any]", sql: str, *args: object) -> None:
    async with asyncio.timeout(60):
        while not await connection.fetchval(sql, *args):  # noqa: ASYNC110  it happens in another process
            await asyncio.sleep(0.02)
