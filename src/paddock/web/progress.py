"""What a job reports about its progress, as far as it makes sense: reports are whatever a handler says, and lossy.

Says nothing rather than nonsense: a rate and a time left are worked out only where one turn did all of it. Where they
cannot be, job.js works them out of the reports that come while the page is open.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from paddock.jobs.model import Job
from paddock.web.words import duration, number, size

# Sooner than this a first report says little about the next.
SETTLED_SECONDS = 3.0
LEAST_PERCENT = 1.0
LONGEST_LEFT_SECONDS = 30 * 86_400
MOST_FIELDS = 12
SHOWN_ELSEWHERE = frozenset({"percent", "phase", "eta_seconds"})


@dataclass(frozen=True, slots=True)
class Progress:
    """`counted`: what a rate can be told of, by name. `rest`: the other fields, as texts."""

    percent: float | None
    phase: str | None
    rate: str | None
    left: str | None
    counted: Mapping[str, float]
    rest: Mapping[str, str]
    unshown: bool

    @property
    def percent_text(self) -> str:
        return "" if self.percent is None else f"{math.floor(self.percent * 10) / 10:g} %"


def progress_of(job: Job, now: datetime) -> Progress | None:
    report = job.report
    if not report:
        return None
    percent = _percent(report)
    counted = {name: n for name in ("rows", "bytes") if (n := _number(report.get(name))) is not None and n >= 0}
    elapsed = _elapsed(job, now)
    rest = {str(name): _text(str(name), value) for name, value in report.items() if name not in SHOWN_ELSEWHERE}
    fields = [(name, text) for name, text in rest.items() if text is not None][:MOST_FIELDS]
    return Progress(
        percent=percent,
        phase=str(report["phase"]) if report.get("phase") not in (None, "") else None,
        rate=_rate(counted, elapsed),
        left=_left(job, percent, elapsed),
        counted=counted,
        rest=dict(fields),
        unshown=len(fields) < len(rest),
    )


def _percent(report: Mapping[str, Any]) -> float | None:
    told = _number(report.get("percent"))
    if told is None:
        step, steps = _number(report.get("step")), _number(report.get("steps"))
        told = None if step is None or not steps else 100 * step / steps
    return None if told is None else min(100.0, max(0.0, told))


def _elapsed(job: Job, now: datetime) -> float | None:
    """How long the work took that the report tells of; None when turns before had a part in it."""
    if job.attempt_id is None or job.turn_count != 1 or job.claimed_at is None:
        return None
    seconds = (now - job.claimed_at).total_seconds()
    return seconds if seconds >= SETTLED_SECONDS else None


def _rate(counted: Mapping[str, float], elapsed: float | None) -> str | None:
    if elapsed is None:
        return None
    told = []
    if counted.get("rows"):
        told.append(f"{number(_rounded(counted['rows'] / elapsed))} rows/s")
    if counted.get("bytes"):
        told.append(f"{size(counted['bytes'] / elapsed)}/s")
    return ", ".join(told) or None


def _rounded(value: float) -> float:
    return float(round(value)) if value >= 10 else round(value, 2)


def _left(job: Job, percent: float | None, elapsed: float | None) -> str | None:
    if job.attempt_id is None:
        return None
    told = _number((job.report or {}).get("eta_seconds"))
    if told is None and percent is not None and elapsed is not None and LEAST_PERCENT <= percent < 100:
        told = elapsed * (100 - percent) / percent
    if told is None or not 0 <= told <= LONGEST_LEFT_SECONDS:
        return None
    return f"about {duration(max(1.0, told))} left"


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(value)


def _text(name: str, value: object) -> str | None:
    """A field as a word; None for what is no word (the report as JSON has it)."""
    if isinstance(value, bool) or value is None:
        return str(value).lower() if value is not None else "–"
    found = _number(value)
    if found is not None:
        return size(found) if name == "bytes" or name.endswith("_bytes") else number(found)
    return value if isinstance(value, str) else None
