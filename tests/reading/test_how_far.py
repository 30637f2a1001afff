"""How far a job is: one reading of its report for pages, commands and `why`, whatever the handler reported."""

from typing import Any

import pytest

from paddock.cli.jobs.progress import detail, percent, progress
from paddock.exports.commands.exports import _rows, _size
from paddock.jobs.reports import final_report, how_far, share
from paddock.web.progress import reported

NONSENSE: dict[str, Any] = {
    "percent": True,
    "phase": 3,
    "rows": "many",
    "bytes": -1,
    "done": 1,
    "total": 0,
    "eta_seconds": 1e300,
}


@pytest.mark.parametrize(
    ("report", "told"),
    [
        ({"percent": 40}, "40 %"),
        ({"percent": 99.9}, "99 %"),
        ({"percent": 140}, "100 %"),
        ({"percent": -3}, "0 %"),
        ({"done": 1, "total": 3}, "33 %"),
        ({"step": 2, "steps": 4}, "50 %"),
        ({"percent": 10, "done": 1, "total": 2}, "10 %"),
        (NONSENSE, ""),
        ({"percent": 10**400}, ""),
        ({}, ""),
        (None, ""),
    ],
)
def test_pages_and_commands_say_the_same(report: dict[str, Any] | None, told: str) -> None:
    assert share(how_far(report).percent) == told
    assert reported(report).share == told
    assert progress({"status": "claimed", "report": report}) == (told or "-")
    assert share(percent({"report": report})) == told


def test_what_makes_no_sense_is_left_out_and_breaks_nothing() -> None:
    assert detail({"status": "claimed", "claimed_by": "w1", "report": NONSENSE}) == "on w1"
    unfinished = {"rows": None, "bytes": None, "report": NONSENSE}
    assert (_rows(unfinished), _size(unfinished)) == ("-", "-")


def test_amounts_phase_and_the_time_left_are_told() -> None:
    known = how_far({"rows": 1200, "bytes": 0, "phase": "writing", "eta_seconds": 90})
    assert (known.amounts, known.phase, known.left_seconds) == ({"rows": 1200, "bytes": 0}, "writing", 90)
    assert how_far({"eta_seconds": -1}).left_seconds is None


def test_what_is_fetched_is_told_of_all_that_there_is() -> None:
    report = {"phase": "fetching", "percent": 25.0, "fetched_bytes": 1_500_000, "total_bytes": 6_000_000}
    report |= {"fetched_files": 2, "total_files": 5, "eta_seconds": 30}
    words = "1.5 MB of 6.0 MB"

    assert reported(report).text == f"25 % · {words} · 2 of 5 files · fetching"
    told = detail({"status": "claimed", "claimed_by": "w1", "report": report})
    assert told == f"on w1, 25 %, fetching, {words}, 2 of 5 files, 30 s left"
    # What is fetched is not what is written.
    assert _size({"rows": None, "bytes": None, "report": report}) == "-"


@pytest.mark.parametrize(
    ("report", "result", "final"),
    [
        (None, None, None),
        (None, {"rows": ["a"], "done": 3}, None),
        (None, {"rows": 0}, {"rows": 0, "percent": 100}),
        ({"percent": 25, "phase": "x", "rows": 5}, [1], {"rows": 5, "percent": 100}),
        ({"step": 1, "steps": 4}, None, {"step": 4, "steps": 4, "percent": 100}),
        ({"done": 1, "total": 9}, {"done": 7}, {"done": 7, "total": 9, "percent": 100}),
        (
            {"tables_done": 1, "tables_total": 3, "table": "b", "counts": {"a": 1}},
            {},
            {"tables_done": 3, "tables_total": 3, "percent": 100},
        ),
    ],
)
def test_a_completed_job_is_done_and_its_result_has_the_last_word(
    report: dict[str, Any] | None, result: object, final: dict[str, Any] | None
) -> None:
    assert final_report(report, result) == final


def test_a_completed_job_tells_a_watcher_what_it_made() -> None:
    job = {"status": "completed", "run_seconds": 3, "report": {"percent": 100, "rows": 40}}
    assert detail(job).startswith("40 rows, ran 3")
    assert detail({**job, "report": {"rows": 1}}).startswith("1 row, ran 3")
