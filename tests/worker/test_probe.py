"""The probe kind does what its payload says."""

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from paddock.jobs.kinds import Kinds
from paddock.jobs.probe import PROBE, PROBE_BLOCKING, ProbePayload
from paddock.worker.local import LocalRunner
from tests.worker.conftest import Start
from tests.worker.kinds import KINDS
from tests.worker.plane import Plane, PlaneJob, until

BOTH = pytest.mark.parametrize("kind", ["probe", pytest.param("probe_blocking", marks=pytest.mark.slow)])


async def ran(plane: Plane, start: Start, kind: str, **payload: Any) -> PlaneJob:
    plane.retries = True
    job = plane.add(kind, **payload)
    start()
    await until(lambda: job.ended)
    return job


@BOTH
async def test_it_takes_turns_steps_and_saves(plane: Plane, start: Start, kind: str, tmp_path: Path) -> None:
    ledger = tmp_path / "chaos.ledger"
    ledger.touch()
    asked = {"turns": 3, "progress": 4, "save_each_step": True, "log_lines": 2, "leave": "marker", "allocate_mb": 1}
    job = await ran(plane, start, kind, **asked, result={"a": 1}, ledger=str(ledger), waiting_on="a query")

    assert (job.status, job.result) == ("completed", {"a": 1})
    assert [item.waiting_on for item in job.outcomes] == ["a query", "a query", None]
    assert job.saved == {"left": "marker", "turn": 2, "step": 4}
    lines = ledger.read_text().splitlines()
    assert lines == [f"{job.id} {attempt}" for attempt in job.past_attempts]
    assert len(lines) == 3
    await until(lambda: "probe line number=1" in "".join(item.lines for item in job.logs))


@BOTH
@pytest.mark.parametrize("budget", ["work", pytest.param("cluster", marks=pytest.mark.slow)])
async def test_it_fails_so_many_times(plane: Plane, start: Start, kind: str, budget: str) -> None:
    job = await ran(plane, start, kind, fail_transiently=2, budget=budget, result="fine")

    assert [item.outcome for item in job.outcomes] == ["transient", "transient", "done"]
    assert {item.budget for item in job.outcomes[:2]} == {budget}


@BOTH
async def test_it_fails_for_good(plane: Plane, start: Start, kind: str) -> None:
    job = await ran(plane, start, kind, fail="No such table.")

    assert job.error is not None
    assert (job.status, job.error.message) == ("failed", "No such table.")


async def test_it_raises_what_nobody_classified(plane: Plane, start: Start) -> None:
    job = plane.add("probe", raise_unclassified="oops")
    start()
    await until(lambda: job.outcomes)

    assert job.outcomes[0].unclassified


async def test_it_goes_on_from_the_step_it_saved(plane: Plane, start: Start) -> None:
    job = plane.add("probe", progress=3, save_each_step=True)
    job.saved = {"step": 2}
    start()
    await until(lambda: job.ended)

    assert len(plane.sent("save")) == 1


async def test_its_cleanup_says_what_it_removed(plane: Plane, start: Start) -> None:
    plane.cleanups.add("probe_blocking")
    job = plane.add("probe_blocking", leave="marker", sleep_seconds=600)
    start()
    await until(lambda: job.saved)
    plane.cancel(job)
    cleanup = next(other for other in plane.jobs.values() if other.cleanup_of == job.id)
    await until(lambda: cleanup.status == "completed")

    assert cleanup.result == {"removed": "marker"}


def test_its_payload_is_bounded() -> None:
    for wrong in (
        {"turns": 0},
        {"turns": 10_001},
        {"sleep_seconds": -1},
        {"sleep_seconds": 1e12},
        {"allocate_mb": 10**9},
        {"block_seconds": float("inf")},
        {"budget": "mine"},
        {"crash": "gently"},
        {"ledger": "/etc/passwd"},
        {"unheard_of": 1},
    ):
        with pytest.raises(ValidationError):
            ProbePayload.model_validate(wrong)


def test_its_lock_comes_from_the_payload() -> None:
    assert PROBE.lock_key is not None
    assert PROBE.lock_key(ProbePayload(lock="table")) == "table"
    assert (PROBE.blocking, PROBE_BLOCKING.blocking) == (False, True)


async def test_a_worker_inside_the_control_plane_runs_it_on_its_own_loop(plane: Plane, start: Start) -> None:
    kinds = Kinds([KINDS["probe"], KINDS["forever"]])
    start(kinds=kinds, runners=LocalRunner(kinds))
    job, cancelled = plane.add("probe", turns=2, progress=3, save_each_step=True, result=1), plane.add("forever")
    await until(lambda: job.status == "completed" and cancelled.report)
    plane.cancel(cancelled)
    await until(lambda: cancelled.releases)


def test_a_blocking_handler_cannot_run_inside_the_control_plane() -> None:
    with pytest.raises(ValueError, match="probe_blocking"):
        LocalRunner(Kinds([PROBE_BLOCKING]))
