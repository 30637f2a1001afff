"""The course of one job as a drawing: bands of waiting and running, marks for what happened, all to one scale.

A drawing is percentages, so that it fits every width without a script. Its promises:
- Bands follow one another without a gap from the job's making to its end or now, each at least as wide as a finger sees.
- Running is drawn to scale, a wait much longer than all the running is shortened (`scaling`).
- However often a job was tried there are few bands: turns that went on later are one, attempts of long ago another.

Stories carry their times as RFC 3339; whoever shows one turns them into words (`words.with_plain_times`, job.js).
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from paddock.jobs.model import Job
from paddock.jobs.timelines import Relative, TimelineEntry
from paddock.web.scaling import Band, Drawing, Mark, place_of, placed_on, to_scale
from paddock.web.words import duration, machine, number, plural

MOST_ATTEMPTS = 24
# Closer together than this, marks are drawn small: they would lie upon each other on a phone.
CLOSE = 4.5
LONGEST_MESSAGE = 300


@dataclass(frozen=True, slots=True)
class _Attempt:
    """A turn whose beginning and end are known. `ended`: the entry that tells how; None while it runs."""

    start: datetime
    end: datetime
    worker: str | None
    ended: TimelineEntry | None
    folded: Sequence["_Attempt"] = ()


def draw(job: Job, entries: Sequence[TimelineEntry], now: datetime, cleanup: Relative | None = None) -> Drawing:
    attempts = _folded(_attempts(job, entries, now))
    bands = _bands(job, entries, attempts, now)
    cleaned = _cleanup(cleanup, now)
    if cleaned and cleaned[-1].end > bands[-1].end:
        bands.append(Band("after", bands[-1].end, cleaned[-1].end, "Its cleanup goes on after the job has ended."))
    placed, growth = to_scale(bands)
    marks = _marks(entries, placed, attempts)
    lane = [placed_on(placed, band) for band in cleaned]
    return Drawing(placed, marks, placed[0].start, placed[-1].end, lane, growth)


# What is known of the turns


def _attempts(job: Job, entries: Sequence[TimelineEntry], now: datetime) -> list[_Attempt]:
    found = [
        _Attempt(entry.claimed_at, max(entry.claimed_at, entry.at), entry.worker or job.claimed_by, entry)
        for entry in entries
        if entry.from_status == "claimed" and entry.claimed_at is not None and entry.event not in ("claimed", "yielded")
    ]
    if job.attempt_id is not None and job.claimed_at is not None:
        found.append(_Attempt(job.claimed_at, max(job.claimed_at, now), job.claimed_by, None))
    return sorted(found, key=lambda attempt: attempt.start)


def _folded(attempts: list[_Attempt]) -> list[_Attempt]:
    if len(attempts) <= MOST_ATTEMPTS:
        return attempts
    early, late = attempts[: 1 - MOST_ATTEMPTS], attempts[1 - MOST_ATTEMPTS :]
    return [_Attempt(early[0].start, early[-1].end, None, early[-1].ended, folded=early), *late]


# Bands


def _bands(job: Job, entries: Sequence[TimelineEntry], attempts: Sequence[_Attempt], now: datetime) -> list[Band]:
    end = job.completed_at or max(now, job.created_at)
    turns = _Turns(job, entries, attempts, end)
    bands: list[Band] = []
    place, before = job.created_at, None
    for attempt in attempts:
        bands += turns.between(place, attempt.start, _wait(job, before))
        bands.append(_run(attempt))
        place, before = max(place, attempt.end), attempt
    bands += turns.between(place, end, _wait(job, before, last=not job.ended))
    if not bands:  # ended in the moment it was made
        bands = [Band("wait", job.created_at, end, f"Created at {machine(job.created_at)}.")]
    if job.ended:
        return bands
    return [*bands[:-1], replace(bands[-1], open=True)]


class _Turns:
    """Turns that went on later leave no times of their own: only how many there were, and from when to when."""

    def __init__(self, job: Job, entries: Sequence[TimelineEntry], attempts: Sequence[_Attempt], end: datetime) -> None:
        told = next((entry for entry in entries if entry.event == "yielded"), None)
        self.count = 0
        if told is None or job.claimed_at is None:
            return
        self.count = told.count
        self.start, self.end = told.at, job.claimed_at
        if all(attempt.start != job.claimed_at for attempt in attempts):
            # The last turn was one of them; how long it took is not known, how long one takes on the average is.
            self.end = min(end, job.claimed_at + timedelta(seconds=job.run_seconds / max(1, job.turn_count)))
        begins = [job.created_at, *(attempt.end for attempt in attempts)]
        ends = [*(attempt.start for attempt in attempts), end]
        gaps = [
            (min(b, self.end) - max(a, self.start), a)
            for a, b in zip(begins, ends, strict=True)
            if b > self.start and a < self.end
        ]
        # Not more bands than there were turns: the longest gaps are the likeliest.
        self.gaps = {a for _, a in sorted(gaps, reverse=True)[: self.count]}

    def between(self, start: datetime, end: datetime, wait: Band) -> list[Band]:
        if end <= start:
            return []
        wait = replace(wait, start=start, end=end)
        if not self.count or start not in self.gaps:
            return [_describe_wait(wait)]
        first, last = max(start, self.start), min(end, self.end)
        story = (
            f"{plural(self.count, 'turn')} in all between {machine(self.start)} and {machine(self.end)}, "
            "each of which ended by itself and went on later."
        )
        bands = [Band("turns", first, last, story, plural(self.count, "turn"), "busy")]
        if first > start:
            bands.insert(0, _describe_wait(replace(wait, kind="wait", end=first)))
        if end > last:
            bands.append(_describe_wait(replace(wait, start=last)))
        return bands


def _wait(job: Job, before: _Attempt | None, last: bool = False) -> Band:
    """A wait after `before`, without its times yet."""
    outside = job.status == "submitted" if last else before is not None and _to(before) == "submitted"
    again = before is not None and before.ended is not None and before.ended.event == "retry"
    what = f"for {job.waiting_on or 'work outside'}" if outside else "to be tried again" if again else "for a worker"
    if last and job.due_at is not None and not outside:
        what += f"; due at {machine(job.due_at)}"
    label = f"waiting {'outside' if outside else ''}".strip()
    return Band("outside" if outside else "wait", job.created_at, job.created_at, what, label, "wait", open=last)


def _to(attempt: _Attempt) -> str | None:
    return None if attempt.ended is None else attempt.ended.to_status


def _describe_wait(wait: Band) -> Band:
    if wait.open:
        return replace(wait, story=f"Waits since {machine(wait.start)} {wait.story}.")
    story = f"Waited {wait.length} {wait.story}, from {machine(wait.start)} to {machine(wait.end)}."
    return replace(wait, story=story)


def _run(attempt: _Attempt) -> Band:
    if attempt.folded:
        return _many(attempt)
    where = f" on {attempt.worker}" if attempt.worker else ""
    if attempt.ended is None:
        story = f"Running{where} since {machine(attempt.start)}."
        return Band("run", attempt.start, attempt.end, story, attempt.worker or "", "busy", open=True)
    took = duration((attempt.end - attempt.start).total_seconds())
    story = f"Ran {took}{where}, from {machine(attempt.start)} to {machine(attempt.end)}; {_ending(attempt.ended)}"
    tone = ENDINGS.get(attempt.ended.event, ("", "quiet", ""))[1]
    return Band("run", attempt.start, attempt.end, story, attempt.worker or "", tone)


def _many(attempt: _Attempt) -> Band:
    counts = Counter(one.ended.event if one.ended is not None else "" for one in attempt.folded)
    words = {"retry": "failed", "rescued": "lost their worker", "released": "were given back"}
    told = ", ".join(f"{number(n)} {words.get(event, event.replace('_', ' '))}" for event, n in counts.most_common())
    story = (
        f"{plural(len(attempt.folded), 'earlier attempt')} from {machine(attempt.start)} to {machine(attempt.end)}: "
        f"{told}. The list below has each."
    )
    return Band("many", attempt.start, attempt.end, story, plural(len(attempt.folded), "attempt"), "bad")


# What happened: symbol, tone and words of each event that ends a turn or is worth a mark.
ENDINGS: dict[str, tuple[str, str, str]] = {
    "retry": ("failed", "bad", "then it failed"),
    "rescued": ("events", "bad", "then its worker was lost, and the job was given to another"),
    "worker_lost": ("events", "bad", "then its worker was lost, and it was not given to another"),
    "released": ("quiet", "quiet", "then it was given back"),
    "cancelled": ("cancelled", "quiet", "then it was cancelled"),
    "timed_out": ("schedules", "bad", "then it was ended for taking too long"),
    "completed": ("completed", "good", "then it completed"),
    "failed": ("failed", "bad", "then it failed for good"),
}
POINTS: dict[str, tuple[str, str, str]] = {
    "run_now": ("fold", "accent", "It was made due at once"),
    "stale_write": ("warning", "quiet", "A late write was refused"),
}


def _ending(entry: TimelineEntry) -> str:
    words = ENDINGS[entry.event][2] if entry.event in ENDINGS else f"then: {entry.event.replace('_', ' ')}"
    return f"{words}{_details(entry)}"


def _details(entry: TimelineEntry) -> str:
    """Who, and why, as the end of a sentence."""
    by = f" by {entry.actor}" if entry.actor else ""
    error = entry.error or {}
    reason = str(error.get("message") or (entry.reason if entry.event not in ("rescued", "worker_lost") else "") or "")
    if len(reason) > LONGEST_MESSAGE:
        reason = f"{reason[:LONGEST_MESSAGE].rstrip()}…"
    code = f" [{error['code']}]" if error.get("code") else ""
    end = "" if reason.endswith((".", "!", "?", "…")) else "."
    return f"{by}: {reason}{end}{code}" if reason else f"{by}{code}."


# Marks


def _marks(entries: Sequence[TimelineEntry], bands: Sequence[Band], attempts: Sequence[_Attempt]) -> list[Mark]:
    folded = {id(one.ended) for attempt in attempts for one in attempt.folded}
    made = [_mark(entry) for entry in entries if id(entry) not in folded and entry.event in ENDINGS | POINTS]
    placed: list[Mark] = []
    for mark in made:
        x = place_of(bands, mark.at)
        small = bool(placed) and x - placed[-1].x < CLOSE
        if small:
            placed[-1] = replace(placed[-1], small=True)
        placed.append(replace(mark, x=x, small=small))
    return placed


def _mark(entry: TimelineEntry) -> Mark:
    symbol, tone, words = (ENDINGS | POINTS)[entry.event]
    words = words.removeprefix("then ").replace(
        "its worker", f"its worker {entry.worker}" if entry.worker else "its worker"
    )
    story = f"{words[0].upper()}{words[1:]} at {machine(entry.at)}{_details(entry)}"
    return Mark(entry.at, entry.event, symbol, tone, story)


# The cleanup, on a lane of its own


def _cleanup(cleanup: Relative | None, now: datetime) -> list[Band]:
    if cleanup is None:
        return []
    end = cleanup.completed_at or max(now, cleanup.created_at)
    started = cleanup.started_at or end
    tone = {"completed": "good", "failed": "bad"}.get(cleanup.status, "busy")
    waited = f"Its cleanup waited from {machine(cleanup.created_at)} until the old attempt had stopped."
    ran = f"Its cleanup ran from {machine(started)}" + (f" to {machine(end)}." if cleanup.ended else "; it still runs.")
    bands = []
    if started > cleanup.created_at:
        bands.append(Band("wait", cleanup.created_at, started, waited, tone="wait"))
    if cleanup.started_at is not None:
        bands.append(Band("run", started, max(started, end), ran, "cleanup", tone))
    return bands


def totals(job: Job, now: datetime) -> str:
    """All of it in one line: what was waited and run."""
    if not job.turn_count:
        return "It has not run yet."
    running = job.attempt_id is not None and job.claimed_at is not None
    ran = job.run_seconds + ((now - job.claimed_at).total_seconds() if running and job.claimed_at else 0.0)
    return f"Waited {duration(job.wait_seconds)} when due, ran {duration(ran)} in {plural(job.turn_count, 'turn')}."
