"""SIGTERM: graces, kills, give-backs, and always an end."""

import asyncio
import signal

import psutil
import pytest

from paddock.jobs.kinds import Kinds
from paddock.worker.local import LocalRunner
from tests.worker.conftest import Start, is_running
from tests.worker.kinds import KINDS
from tests.worker.plane import Plane, PlaneJob, until

SLOW = pytest.mark.slow
# Graces here are 0.2 s, what follows takes 2 s, and a machine that is busy with other things some more. What did not end
# by then would not for minutes: a handler that is stuck, a long poll, a longer grace.
SOON = 15.0


async def test_an_idle_worker_stops_at_once_and_says_goodbye(plane: Plane, start: Start) -> None:
    running = start()
    await until(lambda: plane.calls["claim"])

    async with asyncio.timeout(SOON):
        assert await running.stop() == 0
    assert plane.sent("beat")[-1].dying
    assert plane.closed


async def test_a_worker_that_never_reached_its_control_plane_stops_too(plane: Plane, start: Start) -> None:
    plane.outage()
    running = start()
    await until(lambda: plane.calls["register"])

    assert await running.stop() == 0


async def test_a_job_may_end_within_its_grace(plane: Plane, start: Start) -> None:
    job = plane.add("late", seconds=1)
    running = start()
    await until(lambda: is_running(job))

    assert await running.stop() == 0
    assert job.status == "completed"


async def test_nothing_is_claimed_after_the_signal_and_beats_go_on(plane: Plane, start: Start) -> None:
    job = plane.add("patient", seconds=3)
    running = start()
    await until(lambda: is_running(job))
    running.worker.stop()
    await until(lambda: plane.sent("claim")[-1].wait_seconds == 0)  # its last question
    beats = plane.calls["beat"]
    later = plane.add("noop")

    assert await running.task == 0
    assert (job.status, later.status) == ("completed", "pending")
    assert plane.calls["beat"] > beats + 3


@pytest.mark.parametrize(
    "kind", ["deaf", "stuck", *(pytest.param(kind, marks=SLOW) for kind in ("forever", "sleeper", "stuck_blocking"))]
)
async def test_what_does_not_end_is_killed_and_given_back(plane: Plane, start: Start, kind: str) -> None:
    job = plane.add(kind)
    running = start()
    await until(lambda: is_running(job))

    async with asyncio.timeout(SOON):
        assert await running.stop() == 0
    assert [item.reason for item in job.releases] == ["shutdown"]
    assert not job.outcomes
    assert not _runners()


@pytest.mark.slow
async def test_a_stuck_neighbour_does_not_cost_a_job_its_longer_grace(plane: Plane, start: Start) -> None:
    deaf, patient = plane.add("deaf"), plane.add("patient", seconds=2)
    running = start()
    await until(lambda: is_running(deaf) and is_running(patient))

    assert await running.stop() == 0
    assert patient.status == "completed"
    assert deaf.releases[0].reason == "shutdown"


@pytest.mark.slow
async def test_a_kind_may_fail_instead(plane: Plane, start: Start) -> None:
    job = plane.add("fails_on_shutdown")
    running = start()
    await until(lambda: is_running(job))
    await running.stop()

    assert job.status == "failed"
    assert job.error is not None
    assert (job.error.code, job.error.message) == ("worker_shutdown", "Worker received SIGTERM")


@pytest.mark.parametrize("trouble", [pytest.param("hanging", marks=SLOW), "away"])
async def test_a_control_plane_that_does_not_answer_cannot_hold_it_up(plane: Plane, start: Start, trouble: str) -> None:
    jobs = [plane.add("forever"), plane.add("sleeper"), plane.add("stuck")]
    running = start()
    await until(lambda: all(is_running(job) for job in jobs))
    if trouble == "away":
        plane.outage()
    else:
        never = asyncio.Event()
        plane.hanging = dict.fromkeys(("claim", "beat", "finish", "release", "logs", "save"), never)

    async with asyncio.timeout(SOON):
        assert await running.stop() == 1
    assert not _runners()


@pytest.mark.slow
async def test_a_second_signal_ends_it_at_once(plane: Plane, start: Start) -> None:
    job = plane.add("patient", seconds=600)
    running = start()
    await until(lambda: is_running(job))
    running.worker.stop()
    await until(lambda: not running.worker.ready)
    running.worker.stop()

    async with asyncio.timeout(SOON):
        assert await asyncio.shield(running.task) == 0
    assert job.releases[0].reason == "shutdown"


async def test_jobs_that_a_cut_off_claim_brought_are_given_back(plane: Plane, start: Start) -> None:
    """The claim was done, its answer was on its way when the signal came."""
    running = start()
    await until(lambda: plane.calls["claim"])
    plane.lose_answers["claim"] = 1
    job = plane.add("noop")
    await until(lambda: job.attempt_id)
    await running.stop()

    assert not plane.sent("finish")
    assert [item.reason for item in job.releases] == ["shutdown"]


async def test_what_cannot_be_killed_is_given_back_late(plane: Plane, start: Start) -> None:
    kinds = Kinds([KINDS["deaf"], KINDS["noop"]])
    release = asyncio.Event()
    running = start(kinds=kinds, runners=LocalRunner(kinds))
    job = plane.add("deaf")
    await until(lambda: is_running(job))
    try:
        assert await running.stop() == 0
        assert (job.releases[0].reason, job.releases[0].delay_seconds) == ("shutdown", 5)
    finally:
        release.set()
        for task in asyncio.all_tasks():
            if "Turns._run" in repr(task):
                task.get_coro().close()


@pytest.mark.slow
async def test_a_terminals_interrupt_does_not_reach_the_runners(plane: Plane, start: Start) -> None:
    job, blocking = plane.add("late", seconds=3), plane.add("probe_blocking", sleep_seconds=3, progress=10)
    start()
    await until(lambda: job.report and blocking.report)
    for child in _runners():
        child.send_signal(signal.SIGINT)
        child.send_signal(signal.SIGTERM)
    await until(lambda: job.status == blocking.status == "completed")

    assert not _released(job, blocking)


def _runners() -> list[psutil.Process]:
    """Not every child: this process may keep a database for other tests."""
    return [child for child in psutil.Process().children() if "paddock.worker.runner" in _command(child)]


def _command(child: psutil.Process) -> list[str]:
    try:
        return child.cmdline()
    except (psutil.NoSuchProcess, psutil.ZombieProcess):
        return []


def _released(*jobs: PlaneJob) -> bool:
    return any(job.releases for job in jobs)
