"""What a job reports about its progress, as far as it makes sense: reports are whatever a handler says, and lossy.

One value serves every page: a tile and a line of a list take its percentage and its few words, the job's page all of it.
It says nothing rather than nonsense: a rate and a time left are worked out only where one turn did all of it. Where they
cannot be, job.js works them out of the reports that come while the page is open.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from paddock.jobs.model import Job
from paddock.jobs.reports import LONGEST_LEFT_SECONDS, how_far, number_of, share
from paddock.web.words import duration, number, plural, size

# Sooner than this a first report says little about the next.
SETTLED_SECONDS = 3.0
LEAST_PERCENT = 1.0
MOST_FIELDS = 12


@dataclass(frozen=True, slots=True)
class Progress:
    """`percent` is between 0 and 100. `amounts` are texts ("1,200 rows", "1.5 MB"), `rest` the other fields as texts.
    `counted` is what a rate can be told of, by name. `rate` and `left` are told of a job that runs."""

    percent: float | None = None
    phase: str | None = None
    amounts: Sequence[str] = ()
    counted: Mapping[str, float] = field(default_factory=dict)
    rest: Mapping[str, str] = field(default_factory=dict)
    unshown: bool = False
    rate: str | None = None
    left: str | None = None

    @property
    def percent_text(self) -> str:
        return "" if self.percent is None else f"{math.floor(self.percent * 10) / 10:g} %"

    @property
    def share(self) -> str:
        return share(self.percent)

    @property
    def brief(self) -> str:
        """Without the percentage, which stands beside it."""
        return " · ".join((*self.amounts, *([self.phase] if self.phase else [])))

    @property
    def text(self) -> str:
        return " · ".join(part for part in (self.share, self.brief) if part)

    @property
    def filled(self) -> float:
        """Between 0 and 1; half for a job that does not say how far it is."""
        return 0.5 if self.percent is None else self.percent / 100


def reported(report: Mapping[str, Any] | None) -> Progress:
    """What a report says by itself; empty of what says nothing."""
    report, found = report or {}, how_far(report)
    counted = found.amounts
    pairs = [found.of_all(pair, number, size) for pair in found.pairs]
    shown = {"percent", "eta_seconds", *counted, *(name for pair in found.pairs for name in pair)}
    shown |= {"phase"} if isinstance(report.get("phase"), str) else set()
    rest = {str(name): _text(str(name), value) for name, value in report.items() if name not in shown}
    fields = [(name, text) for name, text in rest.items() if text is not None][:MOST_FIELDS]
    return Progress(
        percent=found.percent,
        phase=found.phase,
        amounts=[*pairs, *_amounts(counted)],
        counted=counted,
        rest=dict(fields),
        unshown=len(fields) < len(rest),
    )


def progress_of(job: Job) -> Progress | None:
    """In few words, what it waits for included; None when there is nothing to say."""
    found = reported(job.report)
    if found.phase is None and job.waiting_on is not None and job.status == "submitted":
        found = replace(found, phase=f"waits for {job.waiting_on}")
    return found if found.text else None


def progress_now(job: Job, now: datetime) -> Progress | None:
    """All of it, with rate and time left; None without a report."""
    if not job.report:
        return None
    found, elapsed = reported(job.report), _elapsed(job, now)
    return replace(found, rate=_rate(found.counted, elapsed), left=_left(job, found.percent, elapsed))


def _amounts(counted: Mapping[str, float]) -> list[str]:
    words = {"rows": lambda n: plural(n, "row"), "bytes": size}
    return [words[name](n) for name, n in counted.items()]


def _elapsed(job: Job, now: datetime) -> float | None:
    """How long the work took that the report tells of; None when turns before had a part in it."""
    if job.attempt_id is None or job.turn_count != 1 or job.claimed_at is None:
        return None
    seconds = (now - job.claimed_at).total_seconds()
    return seconds if seconds >= SETTLED_SECONDS else None


def _rate(counted: Mapping[str, float], elapsed: float | None) -> str | None:
    if elapsed is None:
        return None
    rates = []
    if counted.get("rows"):
        rates.append(f"{number(_rounded(counted['rows'] / elapsed))} rows/s")
    if counted.get("bytes"):
        rates.append(f"{size(counted['bytes'] / elapsed)}/s")
    return ", ".join(rates) or None


def _rounded(value: float) -> float:
    return float(round(value)) if value >= 10 else round(value, 2)


def _left(job: Job, percent: float | None, elapsed: float | None) -> str | None:
    if job.attempt_id is None:
        return None
    known = how_far(job.report)
    left, told = known.left_seconds, "eta_seconds" in known.numbers
    if not told and percent is not None and elapsed is not None and LEAST_PERCENT <= percent < 100:
        left = elapsed * (100 - percent) / percent
    if left is None or left > LONGEST_LEFT_SECONDS:
        return None
    return f"about {duration(max(1.0, left))} left"


def _text(name: str, value: object) -> str | None:
    """A field as a word; None for what is no word (the report as JSON has it)."""
    if isinstance(value, bool) or value is None:
        return str(value).lower() if value is not None else "–"
    found = number_of(value)
    if found is not None:
        return size(found) if name == "bytes" or name.endswith("_bytes") else number(found)
    return value if isinstance(value, str) else None
