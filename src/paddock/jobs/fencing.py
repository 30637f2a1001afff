"""The fence: every write names (id, attempt_id) and changes nothing when the job has moved on.

Each primitive takes a list and answers a verdict per item. A batch is one transaction; one that fails on data is
replayed item by item, one that deadlocks is repeated: a bad item never holds up the others. Whoever is turned away
learns why: its own write repeated (`already_yours`), a cancel, or another attempt (`stale_attempt`).
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import UUID

import asyncpg
import orjson
import structlog

from paddock.db.pool import Transaction, column, statements
from paddock.jobs import enqueueing, events, grouping, reading, scanning, wire
from paddock.jobs.errors import LockHeld, Refused
from paddock.jobs.model import (
    MAX_ERROR_MESSAGE,
    MAX_RESULT_BYTES,
    MAX_SAVED_BYTES,
    MAX_TRACEBACK,
    NORMAL,
    JobId,
    NewEvent,
    NewJob,
    Verdict,
)
from paddock.jobs.values import InvalidValue, checked_json, clean_text

if TYPE_CHECKING:
    from paddock.jobs.core import Core

SQL = statements("paddock.jobs.sql", "fencing.sql")
LONGEST_DELAY = timedelta(days=366)
DEADLOCK_TRIES = 5
T = TypeVar("T")
log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Ending:
    """One job to be ended: by its attempt, or (attempt_id None) whoever holds it."""

    id: UUID
    attempt_id: UUID | None
    status: str
    result: str | None = None
    code: str | None = None
    message: str | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class _Item:
    """A finish as it goes to SQL: checked, with everything in storable form."""

    source: wire.FinishItem
    outcome: str
    result: str | None = None
    saved: str | None = None
    error: Mapping[str, Any] | None = None
    invalid: bool = False


class _ItemFailed(Exception):
    """One item cannot be finished as asked; `outcome` is what becomes of it instead."""

    def __init__(self, id: UUID, outcome: str, code: str, message: str) -> None:
        super().__init__(message)
        self.id = id
        self.outcome = outcome
        self.error = {"code": code, "message": clean_text(message, MAX_ERROR_MESSAGE)}


async def save(core: "Core", items: Sequence[wire.SaveItem]) -> list[wire.Verdict]:
    verdicts: dict[UUID, wire.Verdict] = {}
    good: list[tuple[UUID, UUID, str]] = []
    for item in items:
        try:
            text = checked_json(item.saved, limit=MAX_SAVED_BYTES, what="saved state") or "{}"
            if not text.startswith("{"):
                raise InvalidValue("Saved state must be a JSON object.")
            good.append((item.id, item.attempt_id, text))
        except InvalidValue as problem:
            verdicts[item.attempt_id] = _verdict(item, Verdict.INVALID, str(problem))
    good.sort()
    columns = [list(column) for column in zip(*good, strict=True)] or [[], [], []]

    async def write(tx: Transaction) -> list[asyncpg.Record]:
        return await tx.fetch(SQL["save_jobs"], *columns)

    rows = await repeated(core, write) if good else []
    accepted = {row["id"] for row in rows}
    core.changed(accepted)
    turned_away = [item for item in items if item.id not in accepted and item.attempt_id not in verdicts]
    verdicts |= await _resolved(core, turned_away, {item.attempt_id: "save" for item in turned_away})
    return core.judged("save", [verdicts.get(item.attempt_id) or _verdict(item, Verdict.ACCEPTED) for item in items])


async def release(core: "Core", items: Sequence[wire.ReleaseItem]) -> list[wire.Verdict]:
    """Gives jobs back, or says of lost ones that their attempt has stopped."""
    ordered = sorted(items, key=lambda item: item.id)

    async def write(tx: Transaction) -> list[asyncpg.Record]:
        rows = await tx.fetch(
            SQL["release_jobs"],
            [item.id for item in ordered],
            [item.attempt_id for item in ordered],
            [_delay(item.delay_seconds) for item in ordered],
            [clean_text(item.reason, 200) for item in ordered],
        )
        released = {row["id"] for row in rows}
        stopped = [item.attempt_id for item in ordered if item.id not in released]
        freed = await tx.fetch(SQL["attempts_stopped"], stopped) if stopped else []
        core.tell(tx, [*rows, *freed])
        return rows

    accepted = {row["id"] for row in await repeated(core, write)}
    turned_away = [item for item in items if item.id not in accepted]
    verdicts = await _resolved(core, turned_away, {item.attempt_id: "release" for item in turned_away})
    return core.judged("release", [verdicts.get(item.attempt_id) or _verdict(item, Verdict.ACCEPTED) for item in items])


async def finish(core: "Core", items: Sequence[wire.FinishItem]) -> list[wire.Verdict]:
    """Ends turns: result, status, lock, group, events, follow-ups and the move to history in one transaction."""
    checked = sorted((_checked(item) for item in items), key=lambda item: item.source.id)
    unique = {item.source.attempt_id: item for item in checked}
    accepted = await _finish_together(core, list(unique.values()))
    turned_away = [item for item in items if item.attempt_id not in accepted]
    verdicts = await _resolved(core, turned_away, {item.attempt_id: item.outcome for item in turned_away})
    invalid = {item.source.attempt_id: str((item.error or {}).get("message")) for item in checked if item.invalid}
    answers = []
    for item in items:
        answer = verdicts.get(item.attempt_id)
        if answer is None and item.attempt_id in invalid:
            answer = _verdict(item, Verdict.INVALID, invalid[item.attempt_id])
        answers.append(answer or _verdict(item, Verdict.ACCEPTED))
    return core.judged("finish", answers)


async def end(
    core: "Core",
    tx: Transaction,
    endings: Sequence[Ending],
    *,
    anyone: bool = False,
    still_running: bool = False,
    own: bool = False,
    event: str | None = None,
    actor: str | None = None,
    reason: str | None = None,
) -> list[asyncpg.Record]:
    """Ends jobs and does all that belongs to an end. Returns the rows of those that were ended."""
    ordered = sorted(endings, key=lambda ending: ending.id)
    rows = await tx.fetch(
        SQL["end_jobs"],
        [ending.id for ending in ordered],
        column(ending.attempt_id for ending in ordered),
        column(None if ending.status == "completed" else ending.status for ending in ordered),
        column(ending.result for ending in ordered),
        column(ending.code for ending in ordered),
        column(ending.message for ending in ordered),
        column(ending.error for ending in ordered),
        anyone,
        still_running,
        event,
        actor,
        reason,
        own,
    )
    await _run_end_hooks(core, tx, [row for row in rows if row["has_end_hook"] and row["cleanup_of"] is None])
    if any(row["group_id"] is not None for row in rows):
        await grouping.subtract(core, tx, rows)
    if rows and rows[0]["heard"]:
        await events.emit_ends(core, tx, rows)
    core.tell_ends(tx, rows)
    return rows


async def _finish_together(core: "Core", items: Sequence[_Item]) -> set[UUID]:
    async def write(tx: Transaction) -> set[UUID]:
        return await _write_finishes(core, tx, items)

    if not items:
        return set()
    try:
        return await repeated(core, write)
    except _ItemFailed as failed:
        bad = failed
    except (asyncpg.DataError, asyncpg.IntegrityConstraintViolationError) as problem:
        if len(items) == 1:
            bad = _ItemFailed(
                items[0].source.id, "permanent", "invalid_result", f"The result cannot be stored: {problem}"
            )
        else:
            return await _finish_singly(core, items)
    if len(items) > 1:
        return await _finish_singly(core, items)
    log.warning("finish_turned_into_failure", job=str(bad.id), code=bad.error["code"])
    instead = _Item(items[0].source, bad.outcome, error=bad.error, invalid=bad.error["code"] == "invalid_result")
    return await _finish_together(core, [instead])


async def _finish_singly(core: "Core", items: Sequence[_Item]) -> set[UUID]:
    accepted: set[UUID] = set()
    for item in items:
        accepted |= await _finish_together(core, [item])
    return accepted


async def _write_finishes(core: "Core", tx: Transaction, items: Sequence[_Item]) -> set[UUID]:
    by_outcome: dict[str, list[_Item]] = {}
    for item in items:
        by_outcome.setdefault(item.outcome, []).append(item)
    waiting: list[asyncpg.Record] = []
    if again := by_outcome.get("again"):
        waiting += await _yield(tx, again)
    exhausted: list[_Item] = []
    if transient := by_outcome.get("transient"):
        back = await _retry(tx, transient)
        waiting += back
        retried = {row["id"] for row in back}
        exhausted = [item for item in transient if item.source.id not in retried]
    core.tell(tx, waiting)
    endings = [_completed(item) for item in by_outcome.get("done", ())]
    endings += [_failed(item) for item in by_outcome.get("permanent", ())]
    endings += [_exhausted(item) for item in exhausted]
    ended = await end(core, tx, endings, own=True) if endings else []
    await _follow(core, tx, ended, {item.source.id: item.source for item in by_outcome.get("done", ())})
    accepted = {row["id"] for row in [*waiting, *ended]}
    core.count_finished(ended, [item.source for item in items if item.source.id in accepted])
    return {item.source.attempt_id for item in items if item.source.id in accepted}


async def _yield(tx: Transaction, items: Sequence[_Item]) -> list[asyncpg.Record]:
    return await tx.fetch(
        SQL["yield_jobs"],
        [item.source.id for item in items],
        [item.source.attempt_id for item in items],
        [_delay(item.source.delay_seconds or 0) for item in items],
        column(item.source.waiting_on for item in items),
        column(item.saved for item in items),
    )


async def _retry(tx: Transaction, items: Sequence[_Item]) -> list[asyncpg.Record]:
    return await tx.fetch(
        SQL["retry_jobs"],
        [item.source.id for item in items],
        [item.source.attempt_id for item in items],
        [None if item.source.delay_seconds is None else _delay(item.source.delay_seconds) for item in items],
        [item.source.budget for item in items],
        [item.source.unclassified for item in items],
        [_dumps(item.error) for item in items],
    )


async def _follow(
    core: "Core", tx: Transaction, ended: Iterable[asyncpg.Record], sources: Mapping[UUID, wire.FinishItem]
) -> None:
    """Domain events and follow-up jobs of the finishes that were accepted."""
    for row in ended:
        source = sources.get(row["id"])
        if source is None or not (source.events or source.follow_ups):
            continue
        await events.emit(
            core,
            tx,
            [events.OwnedEvent(NewEvent(e.type, e.subject, e.data), row["owner"]) for e in source.events],
        )
        try:
            await enqueueing.enqueue(core, tx, [_new_job(row, follow_up) for follow_up in source.follow_ups])
        except LockHeld as held:
            raise _ItemFailed(row["id"], "transient", "follow_up_lock_held", held.message) from None
        except Refused as refused:
            raise _ItemFailed(row["id"], "permanent", "invalid_follow_up", refused.message) from None


def _new_job(row: asyncpg.Record, follow_up: wire.FollowUp) -> NewJob:
    return NewJob(
        follow_up.kind,
        follow_up.payload,
        owner=row["owner"],
        priority=follow_up.priority or NORMAL,
        delay=_delay(follow_up.delay_seconds) if follow_up.delay_seconds else None,
        tags=follow_up.tags,
        parent_id=JobId(row["id"]),
    )


async def _run_end_hooks(core: "Core", tx: Transaction, rows: Sequence[asyncpg.Record]) -> None:
    """A hook may refuse *done* by raising: outputs become real in this transaction or not at all. Any other end stands."""
    for row in rows:
        kind = core.kinds.get(row["kind"])
        if kind is None or kind.on_end is None:
            continue
        job = reading.job_of((await tx.fetch(scanning.jobs_by_id(), [row["id"]]))[0])
        try:
            async with tx.savepoint():
                await kind.on_end(tx, job)
        except Exception as problem:
            log.exception("end_hook_failed", job=str(row["id"]), kind=row["kind"])
            if row["end_status"] == "completed":
                raise _ItemFailed(
                    row["id"], "transient", "end_hook_failed", f"{type(problem).__name__}: {problem}"
                ) from None


async def _resolved(core: "Core", items: Sequence[Any], operations: Mapping[UUID, str]) -> dict[UUID, wire.Verdict]:
    """What the writes that changed nothing are told."""
    if not items:
        return {}
    ids, attempts = [item.id for item in items], [item.attempt_id for item in items]
    rows = {row["attempt_id"]: row for row in await core.db.fetch(SQL["resolve_writes"], ids, attempts)}
    verdicts = {
        item.attempt_id: _verdict(item, _judge(rows[item.attempt_id], operations[item.attempt_id])) for item in items
    }
    stale = [item for item in items if verdicts[item.attempt_id].verdict == Verdict.STALE_ATTEMPT]
    if stale:
        operation = operations[stale[0].attempt_id]
        await core.db.execute(
            SQL["note_stale_writes"], [item.id for item in stale], [item.attempt_id for item in stale], operation
        )
    return verdicts


async def resolve_held(core: "Core", items: Sequence[Any]) -> list[wire.Verdict]:
    """For a beat: what became of attempts that no longer hold their job. A beat is no write, so nothing is noted."""
    if not items:
        return []
    ids, attempts = [item.id for item in items], [item.attempt_id for item in items]
    rows = {row["attempt_id"]: row for row in await core.db.fetch(SQL["resolve_writes"], ids, attempts)}
    return [_verdict(item, _judge(rows[item.attempt_id], "beat")) for item in items]


_ENDED_AS = {"done": "completed", "permanent": "failed", "transient": "failed"}


def _judge(row: asyncpg.Record, operation: str) -> Verdict:
    attempt = row["attempt_id"]
    if row["holder"] == attempt:
        return Verdict.ACCEPTED
    if row["live_ended_by"] == attempt and operation in (row["ended_as"], "beat"):
        return Verdict.ALREADY_YOURS
    if row["ended_by"] == attempt and (operation == "beat" or row["status"] == _ENDED_AS.get(operation)):
        return Verdict.ALREADY_YOURS
    if row["status"] == "cancelled":
        return Verdict.CANCELLED
    return Verdict.STALE_ATTEMPT if row["known"] else Verdict.UNKNOWN


async def repeated(core: "Core", write: Callable[[Transaction], Awaitable[T]]) -> T:
    """Deadlocks are nobody's fault: the database picked one of two batches, which simply goes again."""
    for tries_left in reversed(range(DEADLOCK_TRIES)):
        try:
            async with core.db.transaction() as tx:
                return await write(tx)
        except (asyncpg.DeadlockDetectedError, asyncpg.SerializationError):
            if not tries_left:
                raise
    raise AssertionError("unreachable")


def _checked(source: wire.FinishItem) -> _Item:
    try:
        return _Item(
            source,
            source.outcome,
            result=checked_json(source.result, limit=MAX_RESULT_BYTES, what="result"),
            saved=_checked_saved(source.saved),
            error=_error(source.error) if source.outcome in ("transient", "permanent") else None,
        )
    except InvalidValue as problem:
        return _Item(source, "permanent", error={"code": "invalid_result", "message": str(problem)}, invalid=True)


def _checked_saved(saved: Any) -> str | None:
    text = checked_json(saved, limit=MAX_SAVED_BYTES, what="saved state")
    if text is not None and not text.startswith("{"):
        raise InvalidValue("Saved state must be a JSON object.")
    return text


def _error(error: wire.Error | None) -> dict[str, Any]:
    if error is None:
        return {"code": "unclassified_error", "message": "The worker gave no reason."}
    shown: dict[str, Any] = {
        "code": clean_text(error.code, 100),
        "message": clean_text(error.message, MAX_ERROR_MESSAGE),
    }
    if error.hint:
        shown["hint"] = clean_text(error.hint, MAX_ERROR_MESSAGE)
    if error.traceback:
        shown["traceback"] = clean_text(error.traceback, MAX_TRACEBACK)
    return shown


def _completed(item: _Item) -> Ending:
    return Ending(item.source.id, item.source.attempt_id, "completed", result=item.result)


def _failed(item: _Item) -> Ending:
    error = item.error or {}
    return Ending(
        item.source.id,
        item.source.attempt_id,
        "failed",
        code=error.get("code"),
        message=error.get("message"),
        error=_dumps(error),
    )


def _exhausted(item: _Item) -> Ending:
    error = item.error or {}
    message = clean_text(f"Gave up after too many failures; the last one: {error.get('message')}", MAX_ERROR_MESSAGE)
    return replace(_failed(item), code="attempts_exhausted", message=message)


def _delay(seconds: float) -> timedelta:
    return timedelta(seconds=min(max(seconds, 0.0), LONGEST_DELAY.total_seconds()))


def _dumps(value: Any) -> str:
    return orjson.dumps(value).decode()


def _verdict(item: Any, verdict: Verdict, message: str | None = None) -> wire.Verdict:
    return wire.Verdict(id=item.id, attempt_id=item.attempt_id, verdict=str(verdict), message=message)
