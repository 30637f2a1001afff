import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from paddock.jobs.kinds import Kinds
from paddock.metrics import Metrics
from paddock.worker.processes import ProcessRunners, RunnerOptions
from paddock.worker.running import Runners
from paddock.worker.settings import Settings
from paddock.worker.supervisor import Worker
from tests.worker.kinds import KINDS
from tests.worker.plane import Plane, PlaneJob

OPTIONS = RunnerOptions(kinds="tests.worker.kinds:KINDS", resources="tests.worker.kinds:RESOURCES")


@dataclass
class Running:
    worker: Worker
    task: asyncio.Task[int]
    runners: Runners

    async def stop(self) -> int:
        self.worker.stop()
        async with asyncio.timeout(60):
            return await asyncio.shield(self.task)


Start = Callable[..., Running]


@pytest.fixture
async def plane() -> Plane:
    return Plane()


@pytest.fixture
async def start(plane: Plane) -> AsyncIterator[Start]:
    """Starts workers on the plane, with real runner processes unless told otherwise."""
    started: list[Running] = []

    def begin(
        *,
        kinds: Kinds = KINDS,
        runners: Runners | None = None,
        once: bool = False,
        wait: timedelta | None = None,
        **settings: Any,
    ) -> Running:
        runners = runners or ProcessRunners(OPTIONS)
        quick = {"empty_backoff": timedelta(seconds=0.2), "poll_interval": timedelta(seconds=0.2)}
        worker = Worker(
            link=plane,
            kinds=kinds,
            runners=runners,
            settings=Settings(worker_id="tester", **{**quick, **settings}),
            version="0",
            metrics=Metrics(CollectorRegistry()),
        )
        running = Running(worker, asyncio.create_task(worker.run_once(wait=wait) if once else worker.run()), runners)
        started.append(running)
        return running

    yield begin
    for running in started:
        running.worker.stop()
        running.worker.stop()
    await asyncio.gather(*(running.task for running in started))


def is_running(job: PlaneJob) -> bool:
    """Its handler has said so."""
    return job.attempt_id is not None and bool(job.report)
