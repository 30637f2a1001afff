"""Real processes of the local runtime: killed, left by a row that is gone, left in the middle of a stop, and past their TTL."""

import asyncio
import hashlib
import json
import os
import signal
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import psutil
import pytest

from paddock.background import lifecycle, reconciliation
from paddock.config import Config
from paddock.instances import running_on, stopping, talking
from paddock.instances.stopping import StopPayload
from paddock.jobs import wire
from paddock.jobs.core import Core
from paddock.jobs.model import AttemptId
from paddock.jobs.outcomes import Again
from paddock.jobs.turn import Turn
from paddock.runtimes.local import LocalRuntime
from paddock.runtimes.runtime import Start
from tests.background.ticking import passed
from tests.background.world import add_instance, row_of
from tests.conftest import DatabaseClock
from tests.playing import PlayedWorker

GB = 1024**3
KIND = "instance_stop"
# A stop saves nothing and says nothing.
NO_LINK: Any = None


@pytest.fixture
async def runtime(config: Config, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[LocalRuntime]:
    found = LocalRuntime(config.data / "instances")
    monkeypatch.setitem(running_on.OPENED, ("local", config.data), found)
    yield found
    for left in await found.list():
        await gone(found, left.name)
    await talking.close_session()


async def gone(runtime: LocalRuntime, name: str) -> None:
    async with asyncio.timeout(60):
        while not await runtime.delete(name, grace=timedelta(0)):  # noqa: ASYNC110  the event is in another process
            await asyncio.sleep(0.05)


async def until_state(runtime: LocalRuntime, name: str, state: str) -> None:
    """Its exit is for the loop to see: whoever else waits for it takes that away."""
    async with asyncio.timeout(60):
        while (found := await runtime.get(name)) is None or found.state != state:  # noqa: ASYNC110  in another process
            await asyncio.sleep(0.05)


async def started(runtime: LocalRuntime, name: str, instance: UUID, generation: UUID) -> psutil.Process:
    start = Start(
        name=name,
        instance=instance,
        generation=generation,
        wrapper_type="ladybug",
        memory_bytes=GB,
        cpu=1,
        disk_bytes=GB // 100,
        token_sha256=hashlib.sha256(b"token").hexdigest(),
        owner="ada",
    )
    assert await runtime.start(start)
    await until_state(runtime, name, "up")
    pid = int(json.loads((runtime.root / str(instance) / "run.json").read_text())["pid"])
    return psutil.Process(pid)


def made_long_ago(folder: Path) -> None:
    os.utime(folder / "meant.json", (1_000_000_000, 1_000_000_000))


async def test_a_process_that_was_killed_fails_its_instance(core: Core, config: Config, runtime: LocalRuntime) -> None:
    made = await add_instance(core)
    process = await started(runtime, made.pod_name, made.id, made.generation)
    assert not await passed(reconciliation.run, core, config=config), "it runs"
    process.send_signal(signal.SIGKILL)
    await until_state(runtime, made.pod_name, "ended")
    found = await passed(reconciliation.run, core, config=config)
    assert found["missing_pods_handled"] + found["status_drift_fixed"] == 1
    row = await row_of(core, made.id)
    assert row is not None
    assert (row["status"], row["code"]) == ("failed", "UNEXPECTED_TERMINATION")
    assert row["message"] == f"Process {made.pod_name} disappeared from this machine"


async def test_a_process_without_an_instance_goes_with_its_folder(
    core: Core, config: Config, runtime: LocalRuntime
) -> None:
    id = uuid4()
    process = await started(runtime, f"ladybug-wrapper-{id}-1", id, uuid4())
    assert await passed(reconciliation.run, core, config=config) == {"skipped_young": 1}
    assert process.is_running()
    made_long_ago(runtime.root / str(id))
    found = await passed(reconciliation.run, core, config=config)
    assert (found["orphaned_pods_detected"], found["orphaned_pods_cleaned"]) == (1, 1)
    assert not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    assert not (runtime.root / str(id)).exists()
    assert not await passed(reconciliation.run, core, config=config)


async def stop_job_ran(core: Core, config: Config) -> None:
    """All turns of the stop that a pass made. They are played: the pause between two is by the database's clock, which stands."""
    line = core.link(internal=True)
    session = (await line.register(wire.Register(worker_id="inside", version="test", kinds=[KIND]))).session
    attempt = await PlayedWorker(line, session).claim_one(KIND)
    turn = Turn(
        id=attempt.id,
        attempt_id=AttemptId(attempt.job.attempt_id),
        kind=KIND,
        payload=StopPayload.model_validate_json(bytes(attempt.job.payload)),
        saved=None,
        owner="ada",
        link=NO_LINK,
    )
    async with asyncio.timeout(60):
        while isinstance(await stopping.run_stop(turn, core, config), Again):  # noqa: ASYNC110  until a process is gone
            await asyncio.sleep(0.05)
    assert await attempt.finish() == "accepted"


def has_ended(process: psutil.Process) -> bool:
    return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE


async def test_one_that_is_stuck_in_stopping_is_stopped_with_its_process_and_folder(
    core: Core, config: Config, runtime: LocalRuntime, clock: DatabaseClock
) -> None:
    made = await add_instance(core)
    process = await started(runtime, made.pod_name, made.id, made.generation)
    async with core.db.transaction() as tx:  # as if its stop job had been lost
        await tx.execute("UPDATE instances SET status = 'stopping', deleted_by = 'ada' WHERE id = $1", made.id)
    assert await passed(reconciliation.run, core, config=config) == {"stops_begun_again": 1}
    await stop_job_ran(core, config)
    assert has_ended(process)
    assert not (runtime.root / str(made.id)).exists()
    assert await row_of(core, made.id) is None
    assert not await passed(reconciliation.run, core, config=config)


async def test_one_past_its_ttl_is_ended_with_its_process_and_folder(
    core: Core, config: Config, runtime: LocalRuntime, clock: DatabaseClock
) -> None:
    made = await add_instance(core)
    process = await started(runtime, made.pod_name, made.id, made.generation)
    assert not (await passed(lifecycle.run, core, config=config))["instances_ended"], "it has a day"
    assert process.is_running()
    await clock.advance(timedelta(days=1))
    assert (await passed(lifecycle.run, core, config=config))["instances_ended"] == 1
    await stop_job_ran(core, config)
    assert has_ended(process)
    assert not (runtime.root / str(made.id)).exists()
    assert await row_of(core, made.id) is None
