"""`paddock worker --once`: one job, all of it, and an exit code."""

import asyncio

import pytest

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
