"""What a person sees while a dump is made: what, how much, how fast, and how long still."""

import io
import re
import sys

import pytest

from paddock.dumps.commands.dump_progress import Rate, downloading, progress_bar, words

REPORT = {
    "phase": "dumping",
    "table": "orders",
    "tables_done": 2,
    "tables_total": 12,
    "rows": 120_000,
    "bytes": 8_400_000,
    "percent": 31.5,
    "eta_seconds": 12,
}


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_report_in_words() -> None:
    assert words(REPORT, 3_100_000) == "orders (3 of 12), 120,000 rows, 8.4 MB, 3.1 MB/s, 12 s left"
    assert words({"phase": "copying", "percent": 3}, None) == ""
    assert words({"phase": "waiting", "reason": "No room for a copy."}, None) == "No room for a copy."
    assert words({**REPORT, "tables_done": 12}, None).startswith("orders (12 of 12)")


def test_a_rate_is_that_of_the_last_seconds() -> None:
    rate = Rate()
    assert rate(0, 0.0) is None
    assert rate(1_000, 1.0) == 1_000
    later = [rate(1_000 + 10 * (second - 1), float(second)) for second in range(2, 40)]
    assert later[-1] == 10
    # Begun anew, it is not negative.
    assert rate(5, 41.0) is None
    assert rate(25, 42.0) == 20


def test_in_a_pipe_there_are_few_lines(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr("paddock.dumps.commands.dump_progress.time.monotonic", lambda: now)
    with progress_bar() as show:
        for done in range(1001):
            now += 0.01
            show(done / 10, "dumping", f"{done} rows")
        show(100.0, "done", "")
    with downloading(quiet=False) as told:
        for size in range(0, 1001, 10):
            told(size, 1000)

    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "dumping        0 %  0 rows"
    assert 4 <= len([line for line in lines if line.startswith("dumping")]) <= 6
    assert [line for line in lines if line.startswith("downloading")] == ["downloading    0 %  0 B of 1.0 kB"]


def test_on_a_terminal_there_is_a_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "160")
    with progress_bar() as show:
        show(31.5, "dumping", words({**REPORT, "table": "[odd] name"}, 3_100_000))

    drawn = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", terminal.getvalue())
    assert re.search(
        r"dumping\s+━+.*\s32%\s+\[odd\] name \(3 of 12\), 120,000 rows, 8\.4 MB, 3\.1 MB/s, 12 s left", drawn
    )


def test_who_wants_an_answer_for_programs_is_shown_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with downloading(quiet=True) as told:
        told(5, 10)

    assert capsys.readouterr() == ("", "")
