"""The drawing of a job's course: to scale where it can be, readable where it cannot."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from uuid import uuid4

import pytest

from paddock.jobs.model import AttemptId, Job, JobId
from paddock.jobs.timelines import Relative, TimelineEntry, _from_columns
from paddock.web import words
from paddock.web.scaling import LEAST_SHARE, Band, Drawing
from paddock.web.timeline import MOST_ATTEMPTS, draw

T = datetime(2026, 11, 16, 9, 0, tzinfo=UTC)


def after(seconds: float) -> datetime:
    return T + timedelta(seconds=seconds)


def job(status: str = "pending", **fields: object) -> Job:
    made = Job(JobId(uuid4()), "probe", status, 3, "ada", None, [], {}, T)
    return replace(made, **fields)  # type: ignore[arg-type]


def drawn(job: Job, rows: list[TimelineEntry], now: datetime, cleanup: Relative | None = None) -> Drawing:
    told = sorted([*_from_columns(job, rows), *rows], key=lambda entry: entry.at)
    found = draw(job, told, now, cleanup)
    assert found.bands[0].x == 0
    for one, other in pairwise(found.bands):
        assert one.end == other.start, "no gap in time"
        assert other.x == pytest.approx(one.x + one.width), "nor on the page"
    whole = found.bands[-1].x + (found.growth.most if found.growth else found.bands[-1].width)
    assert whole == pytest.approx(100)
    return found


def retried(start: float, end: float, worker: str = "w", event: str = "retry") -> TimelineEntry:
    error = {"code": "broken", "message": "It broke"} if event == "retry" else None
    return TimelineEntry(after(end), event, "claimed", "pending", uuid4(), worker, claimed_at=after(start), error=error)


def completed(start: float, end: float, turns: int = 1, **fields: object) -> Job:
    return job(
        "completed",
        started_at=fields.pop("started_at", after(start)),
        claimed_at=after(start),
        claimed_by="w",
        completed_at=after(end),
        ended_by=AttemptId(uuid4()),
        turn_count=turns,
        **fields,
    )


def kinds(drawing: Drawing) -> list[str]:
    return [band.kind for band in drawing.bands]


def test_waiting_and_running_are_to_scale() -> None:
    found = drawn(completed(30, 120), [], after(500))
    wait, run = found.bands
    assert (wait.kind, run.kind, run.label, run.tone) == ("wait", "run", "w", "good")
    assert wait.width == pytest.approx(25)
    assert not found.shortened
    assert [mark.event for mark in found.marks] == ["completed"]
    assert found.marks[0].x == pytest.approx(100)


def test_three_days_of_waiting_leave_room_for_two_seconds_of_running_and_say_so() -> None:
    days = timedelta(days=3).total_seconds()
    wait, run = drawn(completed(days, days + 2), [], after(days + 9)).bands
    assert (wait.broken, run.broken) == (True, False)
    assert run.width > 40
    assert "Waited 3 d for a worker, from 2026-11-16 09:00:00 UTC" in words.with_plain_times(wait.story)
    assert "Ran 2.0 s on w" in run.story


def test_three_days_of_running_leave_the_wait_visible() -> None:
    wait, run = drawn(completed(2, timedelta(days=3).total_seconds()), [], after(0)).bands
    assert wait.width == pytest.approx(LEAST_SHARE)
    assert not run.broken


def test_each_retry_is_a_band_with_its_error() -> None:
    rows = [retried(100 * n, 100 * n + 1) for n in range(10)]
    found = drawn(completed(1000, 1002, turns=11, started_at=T), rows, after(2000))
    runs = [band for band in found.bands if band.kind == "run"]
    assert len(runs) == 11
    assert [band.tone for band in runs] == ["bad"] * 10 + ["good"]
    assert "then it failed: It broke. [broken]" in runs[0].story
    assert min(band.width for band in found.bands) > 1
    assert [mark.event for mark in found.marks] == ["retry"] * 10 + ["completed"]
    assert all("to be tried again" in band.story for band in found.bands if band.kind == "wait")


def test_five_hundred_turns_are_one_band() -> None:
    found = drawn(completed(1000, 1001, turns=501, started_at=after(1), run_seconds=60.0), [], after(2000))
    assert kinds(found) == ["wait", "turns", "run"]
    assert found.bands[1].label == "500 turns"
    assert found.bands[1].start == after(1)


def test_turns_that_wait_outside_and_one_that_failed_between() -> None:
    polling = job(
        "submitted", turn_count=40, started_at=after(1), claimed_at=after(600), claimed_by="w",
        ended_by=AttemptId(uuid4()), run_seconds=40.0, waiting_on="query 7", submitted_at=after(2),
    )  # fmt: skip
    rows = [replace(retried(300, 301), to_status="submitted")]
    found = drawn(polling, rows, after(660))
    assert kinds(found) == ["wait", "turns", "run", "turns", "outside"]
    assert "for query 7" in found.bands[-1].story
    assert found.bands[-1].open


def test_a_hundred_attempts_stay_readable() -> None:
    rows = [retried(100 * n, 100 * n + 5, event="rescued" if n % 10 == 0 else "retry") for n in range(100)]
    waits = job(
        turn_count=100, failure_count=9, started_at=T, claimed_at=after(9900), claimed_by="w", due_at=after(10_100)
    )
    found = drawn(waits, rows, after(10_000))
    assert sum(band.kind == "run" for band in found.bands) == MOST_ATTEMPTS - 1
    many = next(band for band in found.bands if band.kind == "many")
    assert "77 earlier attempts" in many.story
    assert "69 failed, 8 lost their worker" in many.story
    assert len(found.marks) == MOST_ATTEMPTS - 1
    assert min(band.width for band in found.bands) > 0.7


def test_a_lost_worker_and_its_heir() -> None:
    rows = [retried(1, 61, "dead", "rescued")]
    running = job(
        "claimed", turn_count=2, started_at=after(1), claimed_at=after(63), claimed_by="heir",
        attempt_id=AttemptId(uuid4()), lost_count=1,
    )  # fmt: skip
    found = drawn(running, rows, after(100))
    assert [(band.kind, band.label) for band in found.bands if band.kind == "run"] == [("run", "dead"), ("run", "heir")]
    assert [mark.event for mark in found.marks] == ["rescued"]
    assert found.marks[0].story.startswith("Its worker dead was lost, and the job was given to another at ")
    assert found.bands[-1].open


def test_what_runs_grows_into_room_that_is_kept_for_it() -> None:
    running = job(
        "claimed",
        turn_count=1,
        started_at=after(10),
        claimed_at=after(10),
        claimed_by="w",
        attempt_id=AttemptId(uuid4()),
    )
    found = drawn(running, [], after(110))
    assert found.growth is not None
    run = found.bands[-1]
    room = (found.growth.most - run.width) / found.growth.per_second
    assert room == pytest.approx(20)
    # As it is drawn after ten more seconds, so it has grown: to the same scale.
    assert run.width / 100 == pytest.approx(found.growth.per_second)


def test_a_cancelled_job_and_the_cleanup_after_it() -> None:
    ended = job(
        "cancelled", turn_count=1, started_at=after(1), claimed_at=after(1), claimed_by="w", completed_at=after(50),
        error_code="cancelled",
    )  # fmt: skip
    row = TimelineEntry(after(50), "cancelled", "claimed", "cancelled", uuid4(), "w", "olga", "wrong table", after(1))
    cleanup = Relative(JobId(uuid4()), "probe", "completed", "ada", after(50), after(60), after(70))
    found = drawn(ended, [row], after(500), cleanup)
    assert kinds(found) == ["wait", "run", "after"]
    assert "then it was cancelled by olga: wrong table." in found.bands[1].story
    waits, cleans = found.cleanup
    assert waits.x == pytest.approx(found.bands[1].x + found.bands[1].width)
    assert cleans.x + cleans.width == pytest.approx(100)


@pytest.mark.parametrize(
    "odd",
    [
        job(),
        job(created_at=after(5)),
        job("cancelled", completed_at=T),
        job("completed", started_at=T, claimed_at=T, completed_at=T, turn_count=1, ended_by=AttemptId(uuid4())),
        job("claimed", started_at=after(9), claimed_at=after(9), turn_count=1, attempt_id=AttemptId(uuid4())),
        job(
            "failed", started_at=T, claimed_at=T, completed_at=after(1), turn_count=7, error_code="x", error_message="x"
        ),
    ],
    ids=["new", "clocks apart", "ended at once", "no time at all", "claimed later than now", "turns unknown"],
)
def test_odd_times_are_drawn_all_the_same(odd: Job) -> None:
    found = drawn(odd, [], T)
    assert all(0 <= band.x <= 100 and band.width >= 0 for band in found.bands)


def test_a_label_is_shown_where_it_has_room() -> None:
    band = Band("run", T, after(1), "", width=20)
    assert band.fits("w") == "always"
    assert band.fits("worker-berlin-1") == "wide"
    assert band.fits("worker-berlin-7f9c-with-a-long-name") == ""


def test_a_long_error_is_cut_in_a_story() -> None:
    row = replace(retried(0, 1), error={"code": "x", "message": "long " * 500})
    waits = job(turn_count=1, started_at=T, claimed_at=T, due_at=after(60), ended_by=AttemptId(uuid4()))
    assert all(len(band.story) < 500 for band in drawn(waits, [row], after(10)).bands)


def test_turns_whose_times_nobody_knows_are_drawn_as_a_wait() -> None:
    """A row from elsewhere, without the time of its last claim."""
    lost = job("failed", started_at=after(1), completed_at=after(3), turn_count=1, claimed_by="w")
    assert kinds(drawn(lost, [], after(9))) == ["wait"]
