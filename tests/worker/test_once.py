"""`paddock worker --once`: one job, all of it, and an exit code."""

import asyncio
from datetime import timedelta
from math import inf
from uuid import UUID, uuid4

import msgspec
import pytest

from paddock.clock import ManualClock
from paddock.jobs import wire
from paddock.worker.claiming import Claims
from paddock.worker.holding import Holding
from paddock.worker.once import Once
from tests.worker.conftest import Start, is_running
from tests.worker.plane import Plane, until


async def test_it_runs_all_turns_and_follow_ups_of_one_job_and_no_other(plane: Plane, start: Start) -> None:
    job, other = plane.add("parent"), plane.add("noop")
    running = start(once=True)
    async with asyncio.timeout(60):
        assert await running.task == 0

    assert [item.outcome for item in job.outcomes] == ["again", "again", "done"]
    child = next(child for child in plane.jobs.values() if child.parent_id == job.id)
    assert child.status == "completed"
    assert other.status == "pending"


@pytest.mark.slow
async def test_it_waits_for_a_job(plane: Plane, start: Start) -> None:
    running = start(once=True)
    await until(lambda: plane.calls["claim"])
    job = plane.add("noop")
    async with asyncio.timeout(60):
        assert await running.task == 0

    assert job.status == "completed"


async def test_a_failed_job_is_exit_code_1(plane: Plane, start: Start) -> None:
    plane.add("fails")
    running = start(once=True)
    async with asyncio.timeout(60):
        assert await running.task == 1


@pytest.mark.slow
async def test_a_failure_that_is_retried_is_waited_for(plane: Plane, start: Start) -> None:
    plane.retries = True
    job = plane.add("probe", fail_transiently=2, result="third time")
    running = start(once=True)
    async with asyncio.timeout(60):
        assert await running.task == 0

    assert job.result == "third time"


@pytest.mark.slow
async def test_a_cancelled_job_is_exit_code_1_after_its_cleanup(plane: Plane, start: Start) -> None:
    plane.cleanups.add("forever")
    job = plane.add("forever")
    running = start(once=True)
    await until(lambda: is_running(job))
    plane.cancel(job)
    async with asyncio.timeout(60):
        assert await running.task == 1

    cleanup = next(other for other in plane.jobs.values() if other.cleanup_of == job.id)
    assert cleanup.status == "completed"


async def test_a_signal_gives_the_job_back(plane: Plane, start: Start) -> None:
    job = plane.add("forever")
    running = start(once=True)
    await until(lambda: is_running(job))

    assert await running.stop() == 1
    assert job.releases[0].reason == "shutdown"


class TestWaitingForSoLong:
    async def test_nothing_came_is_exit_code_0(self, plane: Plane, start: Start) -> None:
        running = start(once=True, wait=timedelta(0))
        async with asyncio.timeout(60):
            assert await running.task == 0
        assert plane.calls["claim"]

    async def test_what_is_there_already_is_run(self, plane: Plane, start: Start) -> None:
        job = plane.add("fails")
        running = start(once=True, wait=timedelta(0))
        async with asyncio.timeout(60):
            assert await running.task == 1
        assert job.status == "failed"

    async def test_it_asks_until_then_and_no_longer(self) -> None:
        clock = ManualClock()
        claims = Empty(clock)
        assert await Once(claims, Nobody(), clock).run(timedelta(seconds=70)) == 0
        assert claims.waits == [70, 45, 20, 0], (
            "each poll is answered after 25 s; the last one takes what came meanwhile"
        )

    async def test_a_job_that_came_has_all_the_time_it_needs(self) -> None:
        clock = ManualClock()
        claims = Empty(clock, brings=3)
        once = Once(claims, Nobody(), clock)
        assert await once.run(timedelta(seconds=70)) == 1, "it came, and did not end as done"
        assert len(claims.waits) == 5


class Empty(Claims):
    """Polls that are answered after 25 s: nothing, but one job with the poll of that number."""

    def __init__(self, clock: ManualClock, brings: int | None = None) -> None:
        self._manual = clock
        self._brings = brings
        self.waits: list[float] = []

    async def bring_one(self, only: list[UUID], wait_seconds: float = inf) -> wire.Claimed:
        self.waits.append(wait_seconds)
        await self._manual.advance(min(wait_seconds, 25.0))
        n = len(self.waits)
        job = wire.ClaimedJob(
            id=uuid4(), attempt_id=uuid4(), kind="noop", payload=msgspec.Raw(b"{}"), owner="ann", turn_count=1
        )
        jobs = [job] if n == self._brings else []
        return wire.Claimed(jobs=jobs, open=self._brings is not None and n <= self._brings + 1)


class Nobody(Holding):
    """Holds nothing: what comes has ended at once."""

    def __init__(self) -> None:
        pass

    def __len__(self) -> int:
        return 0
