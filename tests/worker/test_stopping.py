"""Handlers that must end: lost jobs, time-outs, dead and killed runners."""

import os
from pathlib import Path

import psutil
import pytest

from paddock.worker.attempts import Stop
from paddock.worker.processes import ProcessRunners
from tests.processes.running import alive
from tests.worker.conftest import OPTIONS, Start, is_running
from tests.worker.plane import Plane, until

SLOW = pytest.mark.slow


async def _started(plane: Plane) -> None:
    """The runner has started, and the time of the next turn is its handler's own."""
    first = plane.add("noop")
    await until(lambda: first.status == "completed")


@pytest.mark.slow
async def test_beats_go_on_while_a_handler_holds_the_interpreter(plane: Plane, start: Start) -> None:
    plane.beat_seconds = 0.1
    stuck = plane.add("stuck", seconds=3)
    blocking = plane.add("stuck_blocking", seconds=3)
    running = start()
    await until(lambda: is_running(stuck) and is_running(blocking))
    beats = plane.calls["beat"]
    await until(lambda: stuck.status == blocking.status == "completed")

    assert plane.calls["beat"] - beats >= 15
    assert running.worker.healthy
    listed = {held.id for held in plane.sent("beat")[beats + 5].holding}
    assert listed == {stuck.id, blocking.id}


@pytest.mark.parametrize("kind", [pytest.param("forever", marks=SLOW), "sleeper"])
async def test_a_cancelled_job_is_stopped_at_once_and_acknowledged(plane: Plane, start: Start, kind: str) -> None:
    plane.beat_seconds = 60
    job = plane.add(kind)
    running = start()
    await until(lambda: is_running(job))
    plane.cancel(job)
    await until(lambda: job.releases)

    assert [item.reason for item in job.releases] == ["stopped"]
    assert not job.outcomes
    await until(lambda: len(running.worker.holding) == 0)


async def test_a_worker_without_room_still_hears_of_a_cancel_at_once(plane: Plane, start: Start) -> None:
    plane.beat_seconds = 60
    jobs = [plane.add("forever"), plane.add("forever", submitted=True)]
    start(concurrency=1, submitted_concurrency=1)
    await until(lambda: all(is_running(job) for job in jobs))
    await until(lambda: plane.sent("claim")[-1].limit == 0)
    plane.cancel(jobs[0])

    await until(lambda: jobs[0].releases)


async def test_a_beats_verdict_stops_a_handler(plane: Plane, start: Start) -> None:
    job = plane.add("forever")
    running = start()
    await until(lambda: is_running(job))
    plane.take_away(job)
    await until(lambda: job.releases)

    assert job.releases[0].reason == "stopped"
    assert running.worker.metrics.stale_writes("forever")._value.get() == 1


async def test_the_cleanup_of_a_cancelled_job_runs_after_its_handler_has_stopped(plane: Plane, start: Start) -> None:
    plane.cleanups.add("forever")
    job = plane.add("forever")
    job.saved = {"query": "q1"}
    start()
    await until(lambda: is_running(job))
    plane.cancel(job)
    cleanup = next(other for other in plane.jobs.values() if other.cleanup_of == job.id)
    await until(lambda: cleanup.status == "completed")

    assert job.releases, "the cleanup was due only then"
    assert cleanup.result == {"removed": {"query": "q1"}}


async def test_a_blocking_handler_may_clean_up_when_it_is_stopped(plane: Plane, start: Start, tmp_path: Path) -> None:
    job = plane.add("sleeper", path=str(tmp_path / "note"))
    start()
    await until(lambda: is_running(job))
    plane.cancel(job)
    await until(lambda: job.releases)

    assert (tmp_path / "note").read_text() == "cleaned up"


async def test_a_save_after_the_job_moved_on_raises_in_the_handler(plane: Plane, start: Start, tmp_path: Path) -> None:
    plane.beat_seconds = 60
    job = plane.add("saver", path=str(tmp_path / "note"))
    start()
    await until(lambda: job.saved)
    plane.take_away(job)
    await until(lambda: job.releases)

    assert (tmp_path / "note").read_text() == "stale"
    assert not job.outcomes


async def test_a_handler_that_catches_stale_attempt_is_cancelled(plane: Plane, start: Start) -> None:
    plane.beat_seconds = 60
    job = plane.add("saver", ignore=True)
    neighbour = plane.add("forever")
    start()
    await until(lambda: job.saved and is_running(neighbour))
    plane.take_away(job)
    await until(lambda: job.releases)

    assert neighbour.attempt_id, "nobody else had to die for it"


@pytest.mark.parametrize("kind", ["deaf", pytest.param("stuck", marks=SLOW)])
async def test_a_handler_that_ignores_its_cancellation_is_killed_and_its_neighbours_are_given_back(
    plane: Plane, start: Start, kind: str
) -> None:
    job = plane.add(kind)
    neighbour = plane.add("forever")
    start()
    await until(lambda: is_running(job) and is_running(neighbour))
    plane.cancel(job)
    await until(lambda: job.releases and neighbour.releases)

    assert job.releases[0].reason == "stopped"
    assert neighbour.releases[0].reason == "runner_killed"
    assert not neighbour.outcomes, "given back uncounted"
    another = plane.add("noop")
    await until(lambda: another.status == "completed")


@pytest.mark.slow
async def test_a_stuck_blocking_handler_is_killed_alone(plane: Plane, start: Start) -> None:
    job = plane.add("stuck_blocking")
    neighbour, async_neighbour = plane.add("sleeper"), plane.add("forever")
    start()
    await until(lambda: is_running(job) and is_running(neighbour) and is_running(async_neighbour))
    plane.cancel(job)
    await until(lambda: job.releases)

    assert neighbour.attempt_id
    assert async_neighbour.attempt_id


@pytest.mark.parametrize(
    ("how", "told"),
    [
        ("kill", "was killed by SIGKILL (9)"),
        pytest.param("segfault", "was killed by SIGSEGV (11)", marks=SLOW),
        pytest.param("exit", "exited with code 3", marks=SLOW),
    ],
)
@pytest.mark.parametrize("kind", ["probe", pytest.param("probe_blocking", marks=SLOW)])
async def test_a_runner_that_dies_fails_its_turns_and_says_how(
    plane: Plane, start: Start, kind: str, how: str, told: str
) -> None:
    job = plane.add(kind, crash=how)
    start()
    await until(lambda: job.outcomes)

    error = job.outcomes[0].error
    assert error is not None
    assert (job.outcomes[0].outcome, error.code) == ("transient", "runner_died")
    assert told in error.message
    another = plane.add("noop")
    await until(lambda: another.status == "completed")


@pytest.mark.slow
async def test_a_crash_is_retried_in_a_new_runner(plane: Plane, start: Start) -> None:
    plane.retries = True
    job = plane.add("probe", crash="kill", result="alive")
    start()
    await until(lambda: job.status == "completed")

    assert (job.result, job.turn_count) == ("alive", 2)


@pytest.mark.slow
async def test_what_a_runner_said_before_it_died_counts(plane: Plane, start: Start) -> None:
    """The outcomes that are in the socket when the runner is killed are read first."""
    jobs = [plane.add("noop") for _ in range(50)]
    deaf = plane.add("deaf")
    start(concurrency=60)
    await until(lambda: is_running(deaf))
    plane.cancel(deaf)
    await until(lambda: deaf.releases and not any(job.attempt_id for job in jobs))

    assert {job.status for job in jobs} == {"completed"}


async def test_processes_a_handler_started_do_not_outlive_its_runner(plane: Plane, start: Start) -> None:
    job = plane.add("leaves_a_child")
    start()
    await until(lambda: is_running(job))
    child = psutil.Process(job.report["child"])
    plane.cancel(job)
    await until(lambda: job.releases)

    await until(lambda: not alive(child))


@pytest.mark.parametrize(
    "kind", [pytest.param("forever", marks=SLOW), "sleeper", pytest.param("deaf", marks=SLOW), "stuck_blocking"]
)
async def test_a_turn_that_takes_too_long_is_stopped(plane: Plane, start: Start, kind: str) -> None:
    job = plane.add(kind, timeouts={"turn_timeout": 1.5})
    start()
    await until(lambda: job.outcomes)

    error = job.outcomes[0].error
    assert error is not None
    assert (job.outcomes[0].outcome, error.code) == ("transient", "turn_timeout")
    assert "1.5 s" in error.message


async def test_a_job_that_takes_too_long_in_total_fails_for_good(plane: Plane, start: Start) -> None:
    job = plane.add("forever", timeouts={"total_left": 0.2, "turn_timeout": 0.2})
    start()
    await until(lambda: job.status == "failed")

    assert job.error is not None
    assert job.error.code == "timed_out"


async def test_a_turn_that_saves_nothing_has_stalled(plane: Plane, start: Start) -> None:
    job = plane.add("forever", timeouts={"stall_timeout": 5, "stall_left": 0.2})
    start()
    await until(lambda: job.outcomes)

    assert job.outcomes[0].error is not None
    assert job.outcomes[0].error.code == "stalled"


async def test_a_kind_may_say_that_a_stall_is_the_end(plane: Plane, start: Start) -> None:
    job = plane.add("fails_on_stall", timeouts={"stall_timeout": 5, "stall_left": 0.2})
    start()
    await until(lambda: job.status == "failed")

    assert job.error is not None
    assert (job.error.code, job.error.message) == ("stalled", "Nothing came in time.")


@pytest.mark.slow
async def test_each_accepted_save_starts_the_stall_time_anew(plane: Plane, start: Start) -> None:
    start()
    await _started(plane)
    job = plane.add("saver", timeouts={"stall_timeout": 2.5, "stall_left": 2.5}, most=150)
    await until(lambda: job.saved == {"number": 149})
    assert not job.outcomes, "far longer than the stall timeout"
    await until(lambda: job.outcomes)

    assert job.outcomes[0].error is not None
    assert job.outcomes[0].error.code == "stalled"


async def test_a_save_that_nobody_could_take_yet_is_no_stall(plane: Plane, start: Start) -> None:
    """The control plane is away: whether the attempt made progress is for the fence to say, when it is back."""
    job = plane.add("saver", timeouts={"stall_timeout": 1.5, "stall_left": 30})
    running = start()
    await until(lambda: job.saved)
    plane.outage("save")
    [attempt] = running.worker.holding
    await until(lambda: running.worker._watch.ticked_at > attempt.stall_at)
    assert attempt.stop is None
    before = job.saved["number"]
    plane.back()
    await until(lambda: job.saved["number"] > before + 5)

    assert not job.outcomes
    assert attempt.saves_unanswered <= 1, "and the stall time runs again"


@pytest.mark.slow
async def test_what_is_saved_without_progress_leaves_the_stall_time_alone(plane: Plane, start: Start) -> None:
    start()
    await _started(plane)
    job = plane.add("saver", timeouts={"stall_timeout": 600, "stall_left": 2.5}, progress=False)
    await until(lambda: job.outcomes)

    assert job.saved
    assert job.outcomes[0].error is not None
    assert job.outcomes[0].error.code == "stalled"


@pytest.mark.slow
async def test_effects_outside_the_fence_stop_before_the_lease_ends_and_others_go_on(
    plane: Plane, start: Start
) -> None:
    plane.beat_seconds, plane.lease_seconds = 1.5, 4.5
    outside, inside = plane.add("outside"), plane.add("late", seconds=5)
    running = start()
    await until(lambda: is_running(outside) and is_running(inside))
    plane.outage()
    await until(lambda: next(a for a in running.worker.holding if a.kind.name == "outside").over)
    assert running.worker._session.alive(), "it stopped while the lease still ran"
    plane.back()
    await until(lambda: outside.releases and inside.status == "completed")

    assert [item.reason for item in outside.releases] == ["lease_ending"]
    assert not outside.outcomes


@pytest.mark.slow
async def test_effects_outside_the_fence_have_no_longer_grace_than_their_lease(plane: Plane, start: Start) -> None:
    plane.beat_seconds, plane.lease_seconds = 2.0, 6.0
    running = start()
    await _started(plane)
    job = plane.add("outside_deaf", timeouts={"turn_timeout": 1.0})
    await until(lambda: is_running(job))
    [attempt] = running.worker.holding
    await until(lambda: attempt.stop is Stop.TURN_TIMEOUT)
    plane.outage()
    await until(lambda: attempt.over)
    assert running.worker._session.alive(), "it stopped while the lease still ran"
    assert attempt.runner.killed, "its supervisor saw to it, and did not leave it to the runner"
    plane.back()
    await until(lambda: job.outcomes)

    assert job.outcomes[0].error is not None
    assert job.outcomes[0].error.code == "turn_timeout"


async def test_effects_outside_the_fence_stop_when_the_session_is_gone(plane: Plane, start: Start) -> None:
    outside = plane.add("outside")
    start()
    await until(lambda: is_running(outside))
    plane.sessions.clear()
    await until(lambda: outside.releases)

    assert outside.releases[0].reason == "lease_ending"


@pytest.mark.slow
async def test_a_handler_that_keeps_its_runner_busy_is_not_taken_for_one_without_a_supervisor(
    plane: Plane, start: Start
) -> None:
    plane.beat_seconds, plane.lease_seconds = 0.3, 2.5
    stuck = plane.add("outside_stuck", seconds=4.5)
    start()
    await until(lambda: stuck.status == "completed")

    assert (stuck.turn_count, stuck.failure_count) == (1, 0)


@pytest.mark.slow
async def test_idle_spare_runners_are_let_go(plane: Plane, start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("paddock.worker.processes.IDLE_SECONDS", 0.2)
    runners = ProcessRunners(OPTIONS)
    start(runners=runners)
    jobs = [plane.add("probe_blocking", sleep_seconds=0.5) for _ in range(3)]
    await until(lambda: all(job.status == "completed" for job in jobs))
    await until(lambda: len([runner for runner in runners._all if not runner.shared]) == 1)

    assert len(psutil.Process(os.getpid()).children()) >= 2
