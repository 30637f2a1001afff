"""Whether what should run for an instance does, and what follows when it does not. Each is a function of one instance, for
whoever learns of it: the proxy that is refused, a control plane that starts, a pass."""

import asyncio
import contextlib
from datetime import timedelta
from uuid import UUID

import asyncpg
import orjson

from paddock.config import Config
from paddock.db.pool import Transaction
from paddock.instances import keeping, limits, more_starts, moving, watching
from paddock.instances.ends import END_OF, OF_RUNTIME, CannotStart, error_of, reported
from paddock.instances.model import SQL
from paddock.instances.running_on import runtime_of
from paddock.jobs.core import Core
from paddock.jobs.errors import InfrastructureError, LockHeld
from paddock.jobs.model import JsonObject
from paddock.runtimes.runtime import Found, Runtime

# How long what runs for an instance that failed is waited for, and between two looks. A pass goes on where this ends.
ENDS_WITHIN = timedelta(seconds=5)
LOOK_EVERY = timedelta(milliseconds=100)


def _cause(found: Found | None, status: str, may_restart: bool) -> str:
    if found is None:
        return "exited" if status == "running" or may_restart else "never_created"
    return "unknown_for_long" if found.state == "unknown" else OF_RUNTIME[found.why or "exited"]


async def gave_up(core: Core, config: Config, id: UUID) -> CannotStart | None:
    """Why one that should run says itself that it never will again: its process is there, and its engine is not. None: it
    does not say so."""
    try:
        status = await watching.status_of(core, config, id)
    except InfrastructureError:  # whoever runs it does not say where it is
        return None
    if status is None or status.get("phase") != "failed":
        return None
    said = reported(status)
    # It was loaded and ran, whatever it calls the cause.
    return CannotStart("database_does_not_open", said.message, said.hint)


async def look_after(
    core: Core,
    config: Config,
    id: UUID,
    *,
    unknown_is_over: bool = False,
    may_restart: bool = True,
    ask: bool = True,
) -> str:
    """`there`, `busy` (a job is at work for it), `restarted`, `failed`, or `gone` (the row is not as it was). `ask`: one that is
    there is asked how it is, which takes seconds where it does not answer."""
    runtime = runtime_of(config)
    seen = await core.db.fetchrow(SQL["instance_row"], id)
    if runtime is None or seen is None or seen["status"] not in ("starting", "running"):
        return "gone"
    found, ended = await runtime.get(seen["pod_name"]), None
    there = found is not None and found.state in ("starting", "up")
    if there and ask and seen["status"] == "running":
        ended = await gave_up(core, config, id)
    if ended is None and found is not None and (there or (found.state == "unknown" and not unknown_is_over)):
        await _note_address(core, seen, found)
        return "there"
    if found is not None:
        found = await runtime.get(seen["pod_name"], "closely") or found
        await keeping.keep(core.db, runtime, id, seen["generation"], found.name, found)
    error = _error(runtime, seen, found, ended, may_restart)
    room = await runtime.memory_bytes()
    begin_anew = found is None and may_restart and seen["status"] == "starting"
    try:
        what = await core.db.repeated(lambda tx: _write_end(core, tx, seen, error, room, begin_anew))
    except LockHeld:
        return "busy"
    if what == "failed" and found is not None:
        with contextlib.suppress(InfrastructureError):  # it goes with the instance, at the latest
            await (runtime.release(found.name, found.uid) if ended is None else _take_away(runtime, found))
    return what


async def _note_address(core: Core, seen: asyncpg.Record, found: Found) -> None:
    """Where one that is there is reached by now."""
    if found.address is None or seen["address"] is None:
        return
    known = {"host": found.address.host, "port": found.address.port}
    if orjson.loads(seen["address"]) != known:
        await core.db.execute(SQL["note_address"], seen["id"], seen["generation"], orjson.dumps(known).decode())


def _error(
    runtime: Runtime, seen: asyncpg.Record, found: Found | None, ended: CannotStart | None, may_restart: bool
) -> JsonObject:
    """What its end means; `ended` is what it said of that itself."""
    cause = _cause(found, seen["status"], may_restart) if ended is None else ended.cause
    message, hint = (None, None) if ended is None else (ended.message, ended.hint)
    diagnosis, phase = (None, None) if found is None else (found.diagnosis, found.phase)
    return error_of(
        cause,
        message=message,
        hint=hint,
        words=runtime.words,
        name=seen["pod_name"],
        phase=phase,
        diagnosis=diagnosis,
    )


async def _write_end(
    core: Core, tx: Transaction, seen: asyncpg.Record, error: JsonObject, room: int | None, begin_anew: bool
) -> str:
    """Under all locks, and only if the row is as it was seen. `begin_anew`: nothing of its start was ever there."""
    id = seen["id"]
    await limits.lock(tx)
    if await tx.fetchrow(SQL["lock_job_of_instance"], id) is not None:
        return "busy"
    row = await tx.fetchrow(SQL["lock_instance"], id)
    if row is None or (row["generation"], row["status"]) != (seen["generation"], seen["status"]):
        return "gone"
    then, error = END_OF[error["cause"]].then, {**error}
    if then in ("larger", "again"):
        too_much = await more_starts.once_more(tx, row, error, room)
        if too_much is None:
            await core.make(tx, [more_starts.restarted(row, error)], owner=row["owner"])
            then = "restart"
            row = await tx.fetchrow(SQL["lock_instance"], id)
            assert row is not None
        else:
            error.update(too_much)
    if then == "restart" or begin_anew:
        job = await moving.to_starting(tx, row, memory_gb=row["memory_gb"], from_=[row["status"]])
        if job is not None:
            await core.enqueue(tx, [job])
        return "restarted"
    made = await moving.to_failed(tx, id, row["generation"], error, from_=[row["status"]])
    await core.make(tx, made, owner=row["owner"])
    return "failed"


async def _take_away(runtime: Runtime, found: Found) -> None:
    """With the database that does not open: the next start loads the snapshot again."""
    for _ in range(ENDS_WITHIN // LOOK_EVERY):
        if await runtime.delete(found.name, found.uid):
            return
        await asyncio.sleep(LOOK_EVERY.total_seconds())


async def release_failed(core: Core, runtime: Runtime, id: UUID, found: Found) -> bool:
    """Takes away what still runs under the name of a start that failed, or ended and stayed. False: a job is at work for the
    instance, or another start of it came since; what that leaves is its own business."""
    if await core.db.fetchval(SQL["lock_is_held"], id):
        return False
    row = await core.db.fetchrow(SQL["instance_row"], id)
    if row is None or (row["status"], row["pod_name"]) != ("failed", found.name):
        return False
    if found.state == "ended":  # its log was kept when it failed
        await runtime.release(found.name, found.uid)
    else:
        await keeping.keep(core.db, runtime, id, row["generation"], found.name)
        await runtime.delete(found.name, found.uid)
    return True
