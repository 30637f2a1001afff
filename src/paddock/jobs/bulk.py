"""Cancel or retry all jobs that match a filter, as a job of its own.

The filter is frozen when it is asked for, the asker's scope, engine roles and `until` included: jobs made later, by its
own retries too, are not touched, and a retry under a role the asker may not use is refused. It walks oldest first in chunks and saves its place after each, so that a crash repeats at most one
chunk; an item done before the crash is then counted as skipped. One refused item stops nothing.
"""

from collections.abc import Collection
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, Literal
from uuid import UUID

from pydantic import BaseModel, ConfigDict

from paddock.jobs import reading
from paddock.jobs.core import Core
from paddock.jobs.errors import Draining, Refused
from paddock.jobs.filtering import Filter
from paddock.jobs.kinds import Kind
from paddock.jobs.model import LIVE, JobId, JsonObject
from paddock.jobs.outcomes import Outcome, again, done
from paddock.jobs.turn import Turn

CHUNK = 200
DRAIN_PAUSE = timedelta(seconds=30)
RETRIABLE = ("failed", "cancelled")

Action = Literal["cancel", "retry"]


class BulkPayload(BaseModel):
    model_config = ConfigDict(extra="forbid")

    action: Action
    filter: dict[str, Any]
    until: datetime
    actor: str
    reason: str | None = None
    all: bool = False
    # Those the asker may retry under; None: any.
    engine_roles: list[str] | None


class Progress(BaseModel):
    """What is saved after each chunk, and in the end the result."""

    after: str | None = None
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
    engine_roles: Collection[str] | None,
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
        engine_roles=None if engine_roles is None else sorted(engine_roles),
    ).model_dump(mode="json")


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
    if progress.total is None:
        progress.total = await reading.count(core.db, asked)
    while True:
        place = None if progress.after is None else JobId(UUID(progress.after))
        found = await reading.ids(core.db, asked, after=place, limit=CHUNK)
        # A bulk job may match its own filter.
        targets = [job for job in found.ids if job != turn.id]
        try:
            await (_cancel if turn.payload.action == "cancel" else _retry)(core, turn.payload, targets, progress)
        except Draining:
            return again(DRAIN_PAUSE)
        progress.matched += len(targets)
        turn.report(done=progress.done, total=max(progress.total, progress.matched), phase=turn.payload.action)
        if found.after is None:
            return done(progress.model_dump(include={"matched", "done", "skipped", "refused"}))
        progress.after = str(found.after)
        await turn.save(progress.model_dump())


async def _cancel(core: Core, asked: BulkPayload, targets: list[JobId], progress: Progress) -> None:
    if not targets:
        return
    verdicts = await core.cancel(targets, actor=asked.actor, reason=asked.reason)
    cancelled = sum(verdict == "cancelled" for verdict in verdicts.values())
    progress.done += cancelled
    progress.skipped += len(targets) - cancelled


async def _retry(core: Core, asked: BulkPayload, targets: list[JobId], progress: Progress) -> None:
    barred = await _barred(core, asked, targets)
    for job in targets:
        if job in barred:
            progress.refuse("engine_role_not_allowed")
            continue
        try:
            await core.retry(job, actor=asked.actor, reason=asked.reason)
            progress.done += 1
        except Draining:
            # Nothing of this chunk is saved: after the drain it is done again, and what was retried is skipped.
            raise
        except Refused as problem:
            if problem.code in ("already_retried", "not_found"):
                progress.skipped += 1
            else:
                progress.refuse(problem.code)


async def _barred(core: Core, asked: BulkPayload, targets: list[JobId]) -> set[JobId]:
    """Those that ran under a role which the asker may not use, or no longer."""
    if asked.engine_roles is None:
        return set()
    jobs = await reading.jobs(core.db, targets)
    return {job.id for job in jobs if job.role is not None and job.role not in asked.engine_roles}


BULK = Kind(
    name="bulk",
    payload=BulkPayload,
    handler=run_bulk,
    internal=True,
)
