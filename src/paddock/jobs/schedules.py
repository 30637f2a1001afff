"""Schedules: jobs that make themselves due. One tick in every replica; each due run inserts its job once.

Guarantees: the job and the schedule's next time commit together, so a run is neither lost nor doubled whichever replica
looks first and wherever it dies. Missed runs are made up by one. A run whose predecessor still lives is skipped and
counted; of one of Paddock's own a run that somebody asked for is no predecessor: the due one is made and waits. A run that is refused (lock held, payload no longer valid) is noted and stops no other schedule.
The database's clock alone decides.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, cast

import asyncpg
import orjson
import structlog
from pydantic import ValidationError

from paddock.db.pool import DEADLOCKS, Database, Statement, Transaction, statements
from paddock.field_errors import field_errors
from paddock.jobs import enqueueing
from paddock.jobs.acting import audit
from paddock.jobs.enqueueing import IdempotencyKey
from paddock.jobs.errors import Draining, Refused
from paddock.jobs.kinds import Kind
from paddock.jobs.model import MAX_PAYLOAD_BYTES, MAX_TAG_LENGTH, MAX_TAGS, NORMAL, Job, JobId, JsonObject, NewJob
from paddock.jobs.timing import checked, invalid, next_time
from paddock.jobs.values import InvalidValue, checked_json, clean_text

if TYPE_CHECKING:
    from paddock.jobs.core import Core

SQL = statements("paddock.jobs.sql", "schedules.sql")
log = structlog.get_logger()
AT_ONCE = 20
NAME = re.compile(r"[a-z0-9][a-z0-9_.:-]{0,99}\Z")
CHANGEABLE = frozenset({"kind", "payload", "every", "cron", "timezone", "priority", "tags", "enabled"})


@dataclass(frozen=True, slots=True, kw_only=True)
class NewSchedule:
    name: str
    kind: str
    owner: str
    payload: JsonObject = field(default_factory=dict)
    every: timedelta | None = None
    cron: str | None = None
    timezone: str = "UTC"
    priority: int = NORMAL
    tags: Sequence[str] = ()
    enabled: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule(NewSchedule):
    """`skipped`: runs left out because the one before still lived. `last_problem`: why the last run made no job."""

    internal: bool
    next_at: datetime | None
    last_at: datetime | None
    last_job_id: JobId | None
    skipped: int
    last_problem: str | None
    created_at: datetime


async def check(core: "Core", new: NewSchedule) -> None:
    """Refuses what `create` would refuse, but for a name that is taken: before anything slow is asked about it."""
    problems = list(_problems(core, new))
    try:
        now = await core.db.fetchval(SQL["clock"])
        checked(every=new.every, cron=new.cron, timezone=new.timezone, now=now)
    except Refused as refused:
        problems.append(refused)
    refuse(problems)


async def create(core: "Core", new: NewSchedule, *, actor: str, most: int | None = None) -> Schedule:
    """Refused where its owner has `most` schedules already; None: they may have as many as they like."""
    payload = _checked(core, new)
    async with core.db.transaction() as tx:
        if most is not None:
            # One at a time for each owner: two that counted at once would both find room.
            await tx.execute(SQL["lock_owner"], new.owner)
            if await tx.fetchval(SQL["count_of_owner"], new.owner) >= most:
                raise _too_many(most)
        first = checked(every=new.every, cron=new.cron, timezone=new.timezone, now=await tx.fetchval(SQL["clock"]))
        row = await tx.fetchrow(
            SQL["insert_schedule"],
            *(new.name, new.kind, payload, new.every, new.cron, new.timezone, new.priority, list(new.tags), new.owner),
            *(new.enabled, first),
        )
        if row is None:
            raise Refused(
                "schedule_exists",
                f"There is a schedule '{new.name}' already.",
                hint="Change it instead if it is yours, or choose another name.",
            )
        await audit(tx, actor, "schedule.create", f"schedule:{new.name}", details={"kind": new.kind})
    return _schedule(row)


def _too_many(most: int) -> Refused:
    return Refused(
        "too_many_schedules",
        f"You have {most:,} schedules, as many as one person may have here.",
        hint="Delete one, or ask an operator to raise PADDOCK_MAX_SCHEDULES_PER_OWNER.",
    )


async def update(
    core: "Core", name: str, changes: Mapping[str, Any], *, actor: str, scope: str | None = None
) -> Schedule:
    """Changes the named fields. Its next time moves only when its times do, or when it is switched on again.

    `scope`, here and below: whoever asks knows of no schedules but this owner's. None: of all."""
    for key in changes:
        if key not in CHANGEABLE:
            raise invalid(key, f"`{key}` of a schedule cannot be changed.")
    async with core.db.transaction() as tx:
        old = await _existing(tx, name, SQL["schedule_for_update"], scope)
        if old.internal and set(changes) - {"enabled"}:
            raise Refused("schedule_internal", f"'{name}' belongs to Paddock; it can only be switched off and on.")
        new = replace(old, **changes)
        payload = _checked(core, new, internal=old.internal)
        timing = (new.every, new.cron, new.timezone)
        next_at = old.next_at
        if timing != (old.every, old.cron, old.timezone) or (new.enabled and not old.enabled):
            now = await tx.fetchval(SQL["clock"])
            next_at = checked(every=new.every, cron=new.cron, timezone=new.timezone, now=now)
        row = await tx.fetchrow(
            SQL["update_schedule"], name, new.kind, payload, *timing, new.priority, list(new.tags), new.enabled, next_at
        )
        assert row is not None
        await audit(tx, actor, "schedule.update", f"schedule:{name}", details={"changed": sorted(changes)})
    return _schedule(row)


async def delete(core: "Core", name: str, *, actor: str, scope: str | None = None) -> None:
    """Jobs it made stay as they are."""
    async with core.db.transaction() as tx:
        if (await _existing(tx, name, SQL["schedule_for_update"], scope)).internal:
            raise Refused(
                "schedule_internal", f"'{name}' belongs to Paddock and cannot be deleted; switch it off instead."
            )
        await tx.execute(SQL["delete_schedule"], name)
        await audit(tx, actor, "schedule.delete", f"schedule:{name}")


async def get(db: Database, name: str, scope: str | None = None) -> Schedule | None:
    row = await db.fetchrow(SQL["schedule"], name) if NAME.match(name) else None
    found = None if row is None else _schedule(row)
    return found if found is not None and _within(found, scope) else None


def _within(schedule: Schedule, scope: str | None) -> bool:
    return scope is None or (schedule.owner == scope and not schedule.internal)


async def page(
    db: Database, *, after: str | None = None, limit: int = 100, owner: str | None = None, include_internal: bool = True
) -> list[Schedule]:
    """By name, those after `after`."""
    rows = await db.fetch(SQL["schedules_page"], after, owner, include_internal, limit)
    return [_schedule(row) for row in rows]


async def run(
    core: "Core",
    name: str,
    *,
    actor: str,
    payload: JsonObject | None = None,
    reason: str | None = None,
    idempotency: IdempotencyKey | None = None,
    scope: str | None = None,
) -> Job:
    """Makes a job of it now, beside whatever runs; its own times stay as they are. `payload` takes the place of the
    schedule's, `reason` is for the audit log."""

    # Repeated: others take the kind's lock before the row of a schedule.
    async def write(tx: Transaction) -> JobId:
        before = await enqueueing.earlier(tx, idempotency)
        if before is not None:
            return before[0]
        _refuse_triggered(core, await _existing(tx, name, SQL["schedule_for_update"], scope))
        job = await run_within(core, tx, name, actor=actor, payload=payload, reason=reason)
        await enqueueing.remember(tx, idempotency, [job])
        return job

    [job] = await enqueueing.made(core, [await core.db.repeated(write)])
    return job


async def run_within(
    core: "Core",
    tx: Transaction,
    name: str,
    *,
    actor: str,
    payload: JsonObject | None = None,
    reason: str | None = None,
) -> JobId:
    """The same as a part of somebody's transaction."""
    schedule = await _existing(tx, name)
    kind = core.kinds.get(schedule.kind)
    if not (kind is not None and kind.housekeeping) and await tx.fetchval(SQL["draining"]):
        raise Draining(await tx.fetchval(SQL["drain_reason"]))
    new = _new_job(schedule)
    [job] = await core.enqueue(tx, [new if payload is None else replace(new, payload=payload)])
    await tx.execute(SQL["schedule_ran_now"], name, job)
    await audit(tx, actor, "schedule.run", f"schedule:{name}", reason, {"job_id": str(job)})
    return job


def _refuse_triggered(core: "Core", schedule: Schedule) -> None:
    kind = core.kinds.get(schedule.kind)
    if kind is not None and kind.trigger is not None:
        raise Refused(
            "schedule_has_a_trigger",
            f"'{schedule.name}' is run by hand where it is asked why, and not by its schedule.",
            hint=f"`{kind.trigger.command}`, or {kind.trigger.page} in the dashboard.",
        )


async def ensure(
    core: "Core", name: str, kind: str, every: timedelta, payload: JsonObject | None = None, priority: int = NORMAL
) -> None:
    """One of Paddock's own. Safe to call at every start of every replica; whether it is switched off stays."""
    text = orjson.dumps(payload or {}).decode()
    async with core.db.transaction() as tx:
        await tx.execute(SQL["ensure_schedule"], name, kind, text, every, priority)


async def sooner(tx: Transaction, name: str, within: timedelta) -> None:
    """One of Paddock's own is due within this time, and not only after its interval: what it came for was not there yet."""
    await tx.execute(SQL["schedule_sooner"], name, within)


async def run_due(core: "Core") -> int:
    """One tick: makes the jobs of due schedules, at most AT_ONCE; returns how many it made."""
    if not await core.db.fetchval(SQL["any_due"]):
        return 0

    async def write(tx: Transaction) -> int:
        draining = await tx.fetchval(SQL["draining"])
        due = await tx.fetch(SQL["due_schedules"], AT_ONCE, draining, [kind.name for kind in core.kinds])
        return sum([await _run_one(core, tx, row) for row in due])

    return await core.db.repeated(write)


async def pull_back(tx: Transaction) -> None:
    """The clock was ahead and came back: a next time that lies behind the one which follows now was made by it."""
    for row in await tx.fetch(SQL["schedules_to_pull_back"]):
        schedule, now = _schedule(row), row["now"]
        try:
            following = next_time(
                every=schedule.every, cron=schedule.cron, timezone=schedule.timezone, before=None, now=now
            )
        except Exception as problem:
            log.warning("schedule_without_next_time", schedule=schedule.name, error=str(problem))
            continue
        await tx.execute(SQL["schedule_pulled_back"], schedule.name, following)


async def _run_one(core: "Core", tx: Transaction, row: asyncpg.Record) -> bool:
    schedule, now = _schedule(row), row["now"]
    next_at = None
    try:
        next_at = next_time(
            every=schedule.every, cron=schedule.cron, timezone=schedule.timezone, before=schedule.next_at, now=now
        )
        if row["still_live"]:
            await tx.execute(SQL["schedule_skipped"], schedule.name, next_at)
            return False
        async with tx.savepoint():
            [job] = await core.enqueue(tx, [_new_job(schedule)])
    except DEADLOCKS:
        raise
    except Exception as problem:
        # Whatever it is, it is this schedule's own: raised here it would hold up all others at every tick.
        code = problem.code if isinstance(problem, Refused) else type(problem).__name__
        await tx.execute(SQL["schedule_failed"], schedule.name, next_at, now, clean_text(f"{problem} [{code}]", 1_000))
        # Only now: where it could not be noted the database is away, which is for the loop to say.
        if not isinstance(problem, Refused):
            log.exception("schedule_failed", schedule=schedule.name)
        return False
    await tx.execute(SQL["schedule_ran"], schedule.name, next_at, now, job)
    return True


def _new_job(schedule: Schedule) -> NewJob:
    return NewJob(
        schedule.kind,
        schedule.payload,
        owner=schedule.owner,
        priority=schedule.priority,
        tags=schedule.tags,
        schedule=schedule.name,
    )


def _checked(core: "Core", new: NewSchedule, *, internal: bool = False) -> str:
    """The payload as JSON, once everything but the times is known to fit."""
    refuse(list(_problems(core, new, internal=internal)))
    return checked_json(new.payload, limit=MAX_PAYLOAD_BYTES, what="payload") or "{}"


def refuse(problems: Sequence[Refused]) -> None:
    """With all that is wrong at once, each at its field."""
    if len(problems) == 1:
        raise problems[0]
    if problems:
        fields = [field for problem in problems for field in cast(list[object], problem.details.get("fields", []))]
        message = " ".join(problem.message for problem in problems)
        raise Refused("invalid_schedule", message, status=422, details={"fields": fields})


def _problems(core: "Core", new: NewSchedule, *, internal: bool = False) -> Iterator[Refused]:
    """What is wrong with everything but the times."""
    if not NAME.match(new.name):
        yield invalid(
            "name", "A schedule's name is 1 to 100 of a-z, 0-9, '_', '.', ':', '-', and begins with a letter or digit."
        )
    kind = core.kinds.get(new.kind)
    if kind is None:
        yield invalid("kind", f"There is no kind '{new.kind[:100]}'.")
    elif kind.internal and kind.submit is None and not internal:
        yield invalid("kind", f"Kind '{new.kind}' is internal; only Paddock schedules it.")
    else:
        yield from _payload_problems(kind, new.payload)
    if not 1 <= new.priority <= 4:
        yield invalid("priority", "The priority must be 1 (urgent), 2, 3 (normal) or 4.")
    if len(new.tags) > MAX_TAGS or any(not tag or len(tag) > MAX_TAG_LENGTH or "\0" in tag for tag in new.tags):
        yield invalid("tags", f"At most {MAX_TAGS} tags of 1 to {MAX_TAG_LENGTH} characters each.")


def _payload_problems(kind: Kind, payload: JsonObject) -> Iterator[Refused]:
    try:
        kind.payload.model_validate(payload)
        checked_json(payload, limit=MAX_PAYLOAD_BYTES, what="payload")
    except ValidationError as problem:
        fields = [
            {"field": ".".join(["payload", *found.path]), "message": found.sentence} for found in field_errors(problem)
        ]
        text = " ".join(f"{field['field']}: {field['message']}" for field in fields)
        message = f"The payload does not fit kind '{kind.name}': {text}"
        yield Refused("invalid", message, status=422, details={"fields": fields})
    except InvalidValue as problem:
        yield invalid("payload", str(problem))


async def _existing(
    tx: Transaction, name: str, statement: Statement = SQL["schedule"], scope: str | None = None
) -> Schedule:
    row = await tx.fetchrow(statement, name) if NAME.match(name) else None
    if row is None or not _within(_schedule(row), scope):
        raise Refused("not_found", "There is no such schedule.", status=404)
    return _schedule(row)


def _schedule(row: asyncpg.Record) -> Schedule:
    return Schedule(
        name=row["name"],
        kind=row["kind"],
        owner=row["owner"],
        payload=orjson.loads(row["payload"]),
        every=row["every"],
        cron=row["cron"],
        timezone=row["timezone"],
        priority=row["priority"],
        tags=row["tags"],
        enabled=row["enabled"],
        internal=row["internal"],
        next_at=row["next_at"],
        last_at=row["last_at"],
        last_job_id=row["last_job_id"],
        skipped=row["skipped"],
        last_problem=row["last_problem"],
        created_at=row["created_at"],
    )
