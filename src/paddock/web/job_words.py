"""What a page says about one job: where it stands, what went wrong and what to do, what happened, in that order.

The words are those of `paddock why`. What a terminal is told to type, the page offers as a button: it says that instead.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import Any

import orjson
from markupsafe import Markup
from starlette.requests import Request

from paddock.api.around import around
from paddock.api.job_json import job_json
from paddock.api.pagination import encode
from paddock.api.plane import ControlPlane
from paddock.api.tokens import Caller
from paddock.jobs import reading
from paddock.jobs.figures.overviews import KindSeen
from paddock.jobs.model import Job
from paddock.jobs.schedule_runs import ordered_job, runs_of
from paddock.jobs.timelines import TimelineEntry
from paddock.log import masked
from paddock.web import timeline
from paddock.web.faults import Fault, fault_of_job
from paddock.web.frame import plane_of
from paddock.web.standing import standing_of
from paddock.web.words import duration, prose
from paddock.why import SILENT, Explanation, Place, Quote, Since, Until, Words, explain
from paddock.why import steps as told_steps

LONG, SHORTENED = 420, 260
# How soon a page looks again although nothing was told: what it says about a wait or a silent worker grows old.
LOOK_AGAIN = timedelta(seconds=15)
LIVE_TIME = Markup('<time datetime="{}" data-time="{}">{}</time>')


def job_as_json(plane: ControlPlane, job: Job) -> dict[str, Any]:
    """The job as the API shows it."""
    found: dict[str, Any] = _plain(job_json(job, plane.core.kinds))
    return found


async def ordered_by(plane: ControlPlane, caller: Caller, job: Job) -> Job | None:
    """The job that does what this one ordered, or that job's last retry."""
    if ordered_job(plane.core.kinds, job) is None:
        return None
    run = (await runs_of(plane.core.db, plane.core.kinds, [job.id])).get(job.id)
    return None if run is None or run.last is None or not caller.sees(run.last.owner) else run.last


async def explained(
    request: Request, caller: Caller, job: Job, entries: Sequence[TimelineEntry], now: datetime
) -> Explanation:
    plane = plane_of(request)
    kinds: list[Mapping[str, Any]] | None = None
    workers: list[Mapping[str, Any]] | None = None
    if job.status in ("pending", "submitted"):
        seen = await reading.kinds(plane.core.db)
        kinds = [_kind_facts(kind, caller) for kind in seen if kind.name == job.kind]
        if caller.operator:
            workers = _plain(await reading.workers(plane.core.db))
    elif (beat := _last_beat(plane, job)) is not None and now - beat > SILENT:
        workers = [{"session": str(job.session_id), "beat_at": beat, "kinds": []}]
    # Its report has a place of its own on the page.
    facts = {**job_as_json(plane, job), "report": None}
    state = {"drain": {"enabled": (await standing_of(request)).drained}}
    ordered = await ordered_by(plane, caller, job)
    ordered_facts = None if ordered is None else job_as_json(plane, ordered)
    beside = [asdict(one) for one in await around(plane, caller, job)]
    return explain(
        facts, _entries_as_json(entries), kinds, workers, state, ordered=ordered_facts, around=beside, now=now
    )


def _entries_as_json(entries: Sequence[TimelineEntry]) -> list[Mapping[str, Any]]:
    told: list[Mapping[str, Any]] = _plain([entry.to_json() for entry in entries])
    return told


def _plain(value: Any) -> Any:
    return orjson.loads(encode(value))


def _kind_facts(kind: KindSeen, caller: Caller) -> dict[str, Any]:
    """What `why` asks about a kind; who paused it and how much of it waits tells of others, so not to everybody."""
    facts: dict[str, Any] = {
        "name": kind.name,
        "paused": kind.paused,
        "offered": kind.offered,
        "scaled": kind.scaled,
        "unoffered": kind.unoffered,
        "internal": kind.internal,
        "retry": {"limit": kind.failure_limit},
    }
    if caller.operator:
        facts |= {
            "paused_by": kind.paused_by,
            "pause_reason": kind.pause_reason,
            "serial": kind.serial,
            "pending": kind.pending,
            "claimed": kind.claimed,
        }
    return facts


def _last_beat(plane: ControlPlane, job: Job) -> datetime | None:
    """Each beat renews the lease by its whole length, so the end of the lease tells when the last one was."""
    if job.attempt_id is None or job.visible_at is None:
        return None
    return job.visible_at - plane.core.settings.lease


def marked_up(words: Words) -> Markup:
    """With times that go on counting, and an error's own words kept apart: they may be long, or right to left."""
    return Markup("").join(_part(part) for part in words)


def _part(part: str | Since | Until | Quote | Place) -> Markup:
    match part:
        case Since(at, text):
            return LIVE_TIME.format(at.isoformat(), "since", text)
        case Until(at, text):
            return LIVE_TIME.format(at.isoformat(), "ago", text)
        case Quote(text):
            return clamped(text)
        case Place(name, _):
            return Markup("{}").format(HERE[name])
    return prose(part)


def clamped(message: str) -> Markup:
    if len(message) <= LONG:
        return Markup("<bdi>{}</bdi>").format(prose(message))
    return Markup(
        '<details class="clamp"><summary><bdi class="short">{}…</bdi><span class="more"></span></summary>'
        "<bdi>{}</bdi></details>"
    ).format(prose(message[:SHORTENED].rstrip()), prose(message))


def looks_again(job: Job, now: datetime) -> int | None:
    """After so many seconds the page asks, though nothing may have been told of."""
    if job.ended:
        return None
    if job.attempt_id is not None:
        quiet_at = (job.visible_at or now) - SILENT
        wait = max(LOOK_AGAIN, quiet_at - now)
    elif job.due_at is not None and job.due_at > now:
        wait = job.due_at - now + timedelta(seconds=1)
    else:
        wait = max(LOOK_AGAIN, (now - job.created_at) / 10)
    return int(min(wait, timedelta(hours=1)).total_seconds())


# What went wrong


@dataclass(frozen=True, slots=True)
class Trouble:
    """The last failure with its evidence, what to do, and those before. `message` only if the sentence lacks it."""

    last: Mapping[str, Any] | None
    message: Markup | None
    code: str | None
    attempt: int
    what_to_do: Sequence[Markup]
    earlier: Sequence[Mapping[str, Any]]
    serious: bool
    # Where in its query.
    fault: Fault | None = None


def trouble(job: Job, why: Explanation) -> Trouble | None:
    errors = list(job.errors)
    failing = job.status == "failed" or (job.status in ("pending", "submitted") and bool(job.error_code))
    last = errors.pop() if failing and errors else None
    advice = [marked_up(words) for words in why.advice if not _elsewhere(words)]
    if not (last or errors or advice or failing):
        return None
    message = str(job.error_message or "").strip()
    quoted = any(isinstance(part, Quote) for part in why.told)
    return Trouble(
        last,
        clamped(message) if failing and message and not quoted else None,
        job.error_code if failing else None,
        job.attempt_count - (0 if job.status == "failed" else 1),
        advice,
        errors[::-1],
        failing,
        fault_of_job(last, masked(job.payload)),
    )


# Where on this page is what `why` tells a terminal to type.
HERE: Mapping[str, str] = {
    "run_now": "“Run now”",
    "cancel": "“Cancel job”",
    "log": "The log below",
    "traceback": "below",
}


def _elsewhere(words: Words) -> bool:
    """The heading says whether it can be retried, with the button, and the page follows it by itself."""
    return any(isinstance(part, Place) and part.name not in HERE for part in words)


# What happened


@dataclass(frozen=True, slots=True)
class Step:
    at: datetime
    event: str
    text: Markup
    ran: str | None
    until: datetime | None
    symbol: str
    tone: str


def steps(entries: Sequence[TimelineEntry], job: Job) -> list[Step]:
    begun = {entry.claimed_at: entry.worker for entry in entries if entry.from_status == "claimed" and entry.worker}
    told = told_steps(_entries_as_json(entries))
    return [_step(entry, step.text, job, begun.get(entry.at)) for entry, step in zip(entries, told, strict=True)]


def _step(entry: TimelineEntry, text: str, job: Job, worker: str | None) -> Step:
    symbol, tone, _ = {**timeline.ENDINGS, **timeline.POINTS}.get(entry.event, ("dot", "quiet", ""))
    ran = None
    if entry.from_status == "claimed" and entry.claimed_at is not None:
        ran = duration(entry.at - entry.claimed_at)
    if entry.event == "claimed" and entry.worker is None and worker is not None:
        text = f"taken by {worker}"  # a first turn's row tells of it only at its end
    if entry.event == "failed":  # its message is the page's first sentence
        text = f"failed on {entry.worker or 'a worker'} [{job.error_code}]"
    return Step(entry.at, entry.event, clamped(text), ran, entry.until, symbol, tone)
