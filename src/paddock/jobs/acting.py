"""What people do to jobs and kinds: cancel, retry, run now, pause, drain, quiet a worker. All of it is audited: by one
line each, or, with `audited=False`, by the one line of the action on many that it is part of."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import orjson

from paddock.db.pool import Transaction, statements
from paddock.jobs import ending, enqueueing, grouping, reading
from paddock.jobs.ending import Ending
from paddock.jobs.enqueueing import IdempotencyKey
from paddock.jobs.errors import Refused
from paddock.jobs.model import Job, JobId, JsonObject, NewJob, SessionId
from paddock.jobs.values import clean_text

if TYPE_CHECKING:
    from paddock.jobs.core import Core

SQL = statements("paddock.jobs.sql", "acting.sql")
EVENTS = statements("paddock.jobs.sql", "events.sql")
SESSIONS = statements("paddock.jobs.sql", "sessions.sql")


async def audit(
    tx: Transaction, actor: str, action: str, subject: str, reason: str | None = None, details: JsonObject | None = None
) -> None:
    reason = None if reason is None else clean_text(reason, 1_000)
    await tx.execute(SQL["audit"], actor, action, subject, reason, orjson.dumps(details or {}).decode())


async def audit_many(tx: Transaction, actor: str, action: str, ids: Sequence[JobId], reason: str | None) -> None:
    """One line for what somebody did to several jobs at once."""
    if len(ids) == 1:
        await audit(tx, actor, action, f"job:{ids[0]}", reason)
    elif ids:
        details: JsonObject = {"done": len(ids), "jobs": [str(id) for id in ids]}
        await audit(tx, actor, f"bulk_{action}", "jobs", reason, details)


async def cancel(
    core: "Core", ids: Sequence[JobId], *, actor: str, reason: str | None, audited: bool = True
) -> Mapping[JobId, str]:
    """State and token change at once; a cleanup of what was ever claimed becomes due when its attempt has stopped.

    Answers for each id `cancelled`, `finished`, `unknown`, or `cleanup`: those are not cancelled, they end by themselves.
    """
    message = f"Cancelled by {actor}" + (f": {clean_text(reason, 500)}" if reason else ".")
    endings = [Ending(id, None, "cancelled", code="cancelled", message=message) for id in dict.fromkeys(ids)]

    async def write(tx: Transaction) -> set[JobId]:
        rows = await ending.end(
            core,
            tx,
            endings,
            anyone=True,
            still_running=True,
            event="cancelled",
            actor=actor,
            reason=clean_text(reason, 500) if reason else None,
        )
        ended = [JobId(row["id"]) for row in rows]
        if audited:
            await audit_many(tx, actor, "cancel", ended, reason)
        return set(ended)

    cancelled = await core.db.repeated(write)
    rest = [id for id in ids if id not in cancelled]
    known = (
        {job.id: "finished" if job.ended else "cleanup" for job in await reading.jobs(core.db, rest)} if rest else {}
    )
    return {id: "cancelled" if id in cancelled else known.get(id, "unknown") for id in ids}


async def retry(
    core: "Core",
    id: JobId,
    *,
    actor: str,
    reason: str | None,
    public: bool = True,
    audited: bool = True,
    idempotency: IdempotencyKey | None = None,
) -> Job:
    """A new job in the old one's place: history stays as it was."""

    # Repeated: it takes the group and then the lock, an end under way frees the lock and then takes the group.
    async def write(tx: Transaction) -> JobId:
        before = await enqueueing.earlier(tx, idempotency)
        if before is not None:
            return before[0]
        row = await tx.fetchrow(SQL["ended_job"], id)
        if row is None:
            if await tx.fetchval(SQL["is_live"], id):
                raise Refused("not_finished", "The job has not ended yet.", hint="Cancel it first, or wait.")
            raise Refused("not_found", "There is no such job.", status=404)
        if row["cleanup_of"] is not None:
            raise Refused("not_retriable", "A cleanup is retried by its own policy, not by hand.")
        kind = core.kinds.get(row["kind"])
        if kind is not None and kind.trigger is not None:
            raise Refused(
                "not_retriable",
                f"'{row['kind']}' comes again by its schedule; by hand it is run where it is asked why.",
                hint=f"`{kind.trigger.command}`, or {kind.trigger.page} in the dashboard.",
            )
        again = await tx.fetchval(SQL["retried_by"], id)
        if again is not None:
            raise Refused("already_retried", f"The job was retried already, as {again}.", details={"retry": str(again)})
        if row["group_id"] is not None:
            await grouping.reopen(tx, row["group_id"], row["status"])
        job = NewJob(
            row["kind"],
            orjson.loads(row["payload"]),
            owner=row["owner"],
            role=row["role"],
            priority=row["priority"],
            tags=row["tags"],
            group_id=row["group_id"],
            retry_of=id,
            traceparent=row["traceparent"],
        )
        [made] = await enqueueing.enqueue(core, tx, [job], public=public)
        if core.kinds[job.kind].hears:
            await tx.execute(EVENTS["delivery_retried"], id, made)
        if audited:
            await audit(tx, actor, "retry", f"job:{id}", reason, {"retry": str(made)})
        await enqueueing.remember(tx, idempotency, [made])
        return made

    [job] = await enqueueing.made(core, [await core.db.repeated(write)])
    return job


async def run_now(core: "Core", id: JobId, *, actor: str, audited: bool = True) -> Job:
    async with core.db.transaction() as tx:
        row = await tx.fetchrow(SQL["run_now"], id)
        if row is not None:
            core.tell(tx, [row])
            await tx.execute(SQL["note_timeline"], id, "run_now", None, None, actor, None)
            if audited:
                await audit(tx, actor, "run_now", f"job:{id}")
    job = await reading.job(core.db, id)
    if job is None:
        raise Refused("not_found", "There is no such job.", status=404)
    if row is None:
        raise Refused("not_waiting", f"The job does not wait for its time: it is {job.status}.")
    return job


async def pause(core: "Core", kind: str, paused: bool, *, actor: str, reason: str | None) -> None:
    async with core.db.transaction() as tx:
        if await tx.fetchval(SQL["pause_kind"], kind, paused, actor, reason) is None:
            raise Refused("unknown_kind", f"There is no kind '{kind[:100]}'.", status=404)
        await audit(tx, actor, "pause" if paused else "resume", f"kind:{kind}", reason)
        if not paused:
            tx.after_commit.append(core.look_again)


async def drain(core: "Core", enabled: bool, *, actor: str, reason: str | None) -> None:
    """When this returns no replica takes new work: submissions under way were waited for."""
    async with core.db.transaction() as tx:
        await tx.execute(SQL["lock_submissions"])
        await tx.execute(SQL["set_drain"], enabled, None if reason is None else clean_text(reason, 500))
        await audit(tx, actor, "drain_on" if enabled else "drain_off", "service", reason)


async def quiet(core: "Core", session: SessionId, *, actor: str, quiet: bool) -> bool:
    async with core.db.transaction() as tx:
        worker = await tx.fetchval(SESSIONS["quiet_session"], session, quiet)
        if worker is None:
            return False
        await audit(tx, actor, "quiet" if quiet else "unquiet", f"worker:{worker}")
        return True
