"""What a report says of how far a job is, checked once for pages, commands and `why`.

A report is whatever a handler says, and lossy: what makes no sense is left out rather than shown.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

# How much of how much: each pair is a percentage where none is told.
PAIRS = (("done", "total"), ("step", "steps"), ("fetched_bytes", "total_bytes"), ("fetched_files", "total_files"))
AMOUNTS = ("rows", "bytes")
# Of these a result has the last word.
RESULT_FIGURES = (*AMOUNTS, *(part for part, _ in PAIRS))
# What is true only while a job runs.
OF_THE_MOMENT = ("phase", "eta_seconds", "reason", "table", "counts")
LONGEST_LEFT_SECONDS = 30 * 86_400


@dataclass(frozen=True, slots=True)
class HowFar:
    """`percent` is between 0 and 100. `pairs` are those of `PAIRS` whose `numbers` make sense, `amounts` the rows and
    bytes so far."""

    percent: float | None = None
    phase: str | None = None
    left_seconds: float | None = None
    pairs: Sequence[tuple[str, str]] = ()
    amounts: Mapping[str, float] = field(default_factory=dict)
    numbers: Mapping[str, float] = field(default_factory=dict)

    def of_all(self, pair: tuple[str, str], number: Callable[[float], str], size: Callable[[float], str]) -> str:
        """`2 of 5`, `2 of 5 files`, `1.5 MB of 3.0 MB`."""
        words = size if pair[0].endswith("_bytes") else number
        what = " files" if pair[0].endswith("_files") else ""
        return f"{words(self.numbers[pair[0]])} of {words(self.numbers[pair[1]])}{what}"


def how_far(report: Mapping[str, Any] | None) -> HowFar:
    report = report or {}
    numbers = {str(name): n for name, value in report.items() if (n := number_of(value)) is not None}
    pairs = [pair for pair in PAIRS if pair[0] in numbers and numbers.get(pair[1], 0) > 0]
    phase, left = report.get("phase"), numbers.get("eta_seconds", -1)
    return HowFar(
        percent=_percent(numbers, pairs),
        phase=phase if isinstance(phase, str) and phase else None,
        left_seconds=left if 0 <= left <= LONGEST_LEFT_SECONDS else None,
        pairs=pairs,
        amounts={name: numbers[name] for name in AMOUNTS if numbers.get(name, -1) >= 0},
        numbers=numbers,
    )


def final_report(report: Mapping[str, Any] | None, result: object) -> dict[str, Any] | None:
    """What a completed job says of itself: its last report may be from long before its end. None where neither report
    nor result has figures."""
    told = result if isinstance(result, Mapping) else {}
    figures = {name: told[name] for name in RESULT_FIGURES if number_of(told.get(name)) is not None}
    made = {name: figures[name] for name in AMOUNTS if name in figures}
    if not report and not made:
        return None
    kept = {name: value for name, value in (report or {}).items() if name not in OF_THE_MOMENT}
    for part, whole in (*PAIRS, ("tables_done", "tables_total")):
        if part in kept and number_of(kept.get(whole)) is not None:
            kept[part] = figures.get(part, kept[whole])
    return {**kept, **made, "percent": 100}


def share(percent: float | None) -> str:
    """Rounded down: 100 % is said of what is done."""
    return "" if percent is None else f"{math.floor(percent)} %"


def number_of(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        found = float(value)
    except OverflowError:
        return None
    return found if math.isfinite(found) else None


def _percent(numbers: Mapping[str, float], pairs: Sequence[tuple[str, str]]) -> float | None:
    found = numbers.get("percent")
    if found is None and pairs:
        part, whole = pairs[0]
        found = 100 * numbers[part] / numbers[whole]
    return None if found is None else min(100.0, max(0.0, found))
