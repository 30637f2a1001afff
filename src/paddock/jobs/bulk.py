"""Cancel or retry all jobs that match a filter, as a job of its own.

The filter is frozen when it is asked for, the asker's scope, rights and `until` included: jobs made later, by its
own retries too, are not touched, and a retry under a role or with an engine the asker may not use is refused. Whoever
asks for it again must have those rights still. It walks oldest first in chunks and saves its place after each, so that a
crash repeats at most one chunk; an item done before the crash is then counted as skipped. One refused item stops nothing.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, Literal
from uuid import UUID

from pydantic import BaseModel, ConfigDict, ValidationError

from paddock.capability import grants
from paddock.db.pool import Transaction
from paddock.jobs import reading
from paddock.jobs.acting import audit
from paddock.jobs.core import Core
from paddock.jobs.errors import Draining, Refused
from paddock.jobs.filtering import Filter
from paddock.jobs.kinds import Kind
from paddock.jobs.model import LIVE, Job, JobId, JsonObject
from paddock.jobs.outcomes import Outcome, again, done
from paddock.jobs.turn import Turn

CHUNK = 200
# Nobody waits for this count: it is for the bar.
MOST_COUNTED, COUNTING = 1_000_000, timedelta(seconds=5)
DRAIN_PAUSE = timedelta(seconds=30)
NOT_REPEATED = "bulk_not_allowed"
RETRIABLE = ("failed", "cancelled")

Action = Literal["cancel", "retry"]


class Rights(BaseModel):
    """What the asker may do, for as long as the job takes: a field for each grant that a token may hold, `engines` and the
    like, with the names that they may retry under, and with; null, or no such field: any."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, list[str] | None]  # type: ignore[mutable-override]  # pydantic's way to type them

    # Whose parts they may not touch singly, see `Kind.part_of`.
    no_parts_of: list[str] = []

    @property
    def granted(self) -> dict[str, list[str] | None]:
        """By the word that `Kind.uses` has for one of them."""
        return {grant.what: self.__pydantic_extra__.get(grant.name) for grant in grants()}

    def include(self, other: "Rights") -> bool:
        for what, names in self.granted.items():
            others = other.granted[what]
            if names is not None and (others is None or not set(others) <= set(names)):
                return False
        return set(self.no_parts_of) <= set(other.no_parts_of)


class BulkPayload(Rights):
    action: Action
    filter: dict[str, Any]
    until: datetime
    actor: str
    reason: str | None = None
    all: bool = False


class Progress(BaseModel):
    """What is saved after each chunk, and in the end the result."""

    after: str | None = None
    counted: bool = False
    # None: too many to count.
    total: int | None = None
    matched: int = 0
    done: int = 0
    skipped: int = 0
    refused: dict[str, int] = {}

    def refuse(self, code: str) -> None:
        self.refused[code] = self.refused.get(code, 0) + 1


def payload(
    action: Action,
    asked: Filter,
    *,
    until: datetime,
    actor: str,
    reason: str | None,
    all_jobs: bool,
    rights: Rights,
) -> JsonObject:
    """The payload of the job to submit; an empty filter is refused unless all jobs are meant."""
    if asked.empty and not all_jobs:
        raise Refused(
            "empty_filter",
            f"The filter is empty: this would {action} every job.",
            hint="Send a filter, or `all: true` if you mean it.",
            status=422,
        )
    narrowed = narrow(action, asked)
    return BulkPayload(
        action=action,
        filter=narrowed.to_json(),
        until=until.astimezone(UTC),
        actor=actor,
        reason=reason,
        all=all_jobs,
        **rights.model_dump(),
    ).model_dump(mode="json")


def may_repeat(job: Job, rights: Rights, owner: str | None) -> bool:
    """Whether somebody with these rights, over the jobs of this owner (None: of all), may ask for a bulk job again."""
    try:
        frozen = BulkPayload.model_validate(job.payload)
    except ValidationError:
        return True  # a payload that fits its kind no longer is the retry's to refuse
    return owner in (None, frozen.filter.get("owner")) and rights.include(frozen)


def narrow(action: Action, asked: Filter) -> Filter:
    """What the action can do something to, and what a dry run counts. Cleanups are nobody's to cancel in bulk:
    each is what keeps a cancelled job from leaking."""
    possible = LIVE if action == "cancel" else RETRIABLE
    statuses = tuple(status for status in asked.statuses if status in possible)
    if not statuses:
        # Only statuses that the action cannot touch were asked for: nothing matches.
        return replace(asked, status=possible, ids=(), include_cleanups=False)
    return replace(asked, status=statuses, include_cleanups=False)


async def run_bulk(turn: Turn[BulkPayload], core: Core) -> Outcome:
    asked = Filter.from_json(turn.payload.filter | {"until": turn.payload.until.isoformat()})
    progress = Progress.model_validate(turn.saved)
    if not progress.counted:
        found = await reading.count(core.db, asked, at_most=MOST_COUNTED, budget=COUNTING)
        progress.counted, progress.total = True, None if found.more else found.n
    while True:
        place = None if progress.after is None else JobId(UUID(progress.after))
        next_ones = await reading.ids(core.db, asked, after=place, limit=CHUNK)
        # A bulk job may match its own filter.
        targets = [job for job in next_ones.ids if job != turn.id]
        try:
            await (_cancel if turn.payload.action == "cancel" else _retry)(core, turn.payload, targets, progress)
        except Draining:
            return again(DRAIN_PAUSE)
        progress.matched += len(targets)
        total = None if progress.total is None else max(progress.total, progress.matched)
        turn.report(done=progress.done, total=total, phase=turn.payload.action)
        if next_ones.after is None:
            return done(progress.model_dump(include={"matched", "done", "skipped", "refused"}))
        progress.after = str(next_ones.after)
        await turn.save(progress.model_dump())


async def _cancel(core: Core, asked: BulkPayload, targets: list[JobId], progress: Progress) -> None:
    barred = await _barred_parts(core, asked, targets)
    for code in barred.values():
        progress.refuse(code)
    free = [job for job in targets if job not in barred]
    if not free:
        return
    verdicts = await core.cancel(free, actor=asked.actor, reason=asked.reason, audited=False)
    cancelled = sum(verdict == "cancelled" for verdict in verdicts.values())
    progress.done += cancelled
    progress.skipped += len(free) - cancelled


async def _retry(core: Core, asked: BulkPayload, targets: list[JobId], progress: Progress) -> None:
    barred = await _barred(core, asked, targets) | await _barred_parts(core, asked, targets)
    for job in targets:
        if job in barred:
            progress.refuse(barred[job])
            continue
        try:
            await core.retry(job, actor=asked.actor, reason=asked.reason, audited=False)
            progress.done += 1
        except Draining:
            # Nothing of this chunk is saved: after the drain it is done again, and what was retried is skipped.
            raise
        except Refused as problem:
            if problem.code in ("already_retried", "not_found"):
                progress.skipped += 1
            else:
                progress.refuse(problem.code)


async def _barred_parts(core: Core, asked: BulkPayload, targets: list[JobId]) -> dict[JobId, str]:
    if not asked.no_parts_of:
        return {}
    found = ((job.id, core.kinds.part_of(job)) for job in await reading.jobs(core.db, targets))
    return {id: f"part_of_{whole}" for id, whole in found if whole in asked.no_parts_of}


async def _barred(core: Core, asked: BulkPayload, targets: list[JobId]) -> dict[JobId, str]:
    """Those that ran under or with something which the asker may not use, or no longer."""
    limits = {what: names for what, names in asked.granted.items() if names is not None}
    owner = asked.filter.get("owner")
    if not limits and owner is None:
        return {}
    barred = {}
    for job in await reading.jobs(core.db, targets):
        if job.kind == BULK.name and not may_repeat(job, asked, owner):
            barred[job.id] = NOT_REPEATED
        for what, name in _uses(core, job):
            if name not in limits.get(what, (name,)):
                barred[job.id] = f"{what.replace(' ', '_')}_not_allowed"
                break
    return barred


def _uses(core: Core, job: Job) -> Sequence[tuple[str, str]]:
    kind = core.kinds.get(job.kind)
    found = [] if job.role is None else [("engine role", job.role)]
    if kind is not None and kind.uses is not None:
        # A payload that fits its kind no longer is the retry's to refuse.
        with suppress(ValidationError):
            found += kind.uses(kind.payload.model_validate(job.payload))
    return found


async def _ended(tx: Transaction, job: Job) -> None:
    """The one line of the audit log for all that it did; one that did not end well has done what it saved."""
    try:
        asked = BulkPayload.model_validate(job.payload)
    except ValidationError:
        return  # it ran nothing
    did = job.result if job.status == "completed" else job.saved
    counts = Progress.model_validate(did or {}).model_dump(include={"matched", "done", "skipped", "refused"})
    details: JsonObject = {"status": job.status, **counts, "filter": asked.filter}
    await audit(tx, asked.actor, f"bulk_{asked.action}", f"job:{job.id}", asked.reason, details)


BULK = Kind(
    name="bulk",
    payload=BulkPayload,
    handler=run_bulk,
    about="action",
    internal=True,
    on_end=_ended,
)
