"""The fence: every write names (id, attempt_id) and changes nothing when the job has moved on.

Each primitive takes a list and answers a verdict per item. A batch is one transaction; one that fails on data is
replayed item by item, one that deadlocks is repeated: a bad item never holds up the others. Whoever is turned away
learns why: its own write repeated (`already_yours`), a cancel, or another attempt (`stale_attempt`).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID

import asyncpg
import orjson
import structlog

from paddock.db.pool import DEADLOCKS, Transaction, column, statements
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
MAX_EVENT_BYTES = 64 * 1024
MAX_NAME = 500
INVALID_RESULT = "invalid_result"
# What the database refuses because of what is to be written, now and at every other try.
BAD_DATA = (asyncpg.DataError, asyncpg.IntegrityConstraintViolationError, asyncpg.ProgramLimitExceededError)
# Who writes: (id, attempt_id).
# Which attempt at which job, as numbers: these hash and sort in C, UUIDs do not, and a batch asks hundreds of times.
Key = tuple[int, int]
log = structlog.get_logger()


# These two are made for every finish, and freezing a dataclass doubles what making it costs.
@dataclass(slots=True)
class Ending:
    """One job to be ended: by its attempt, or (attempt_id None) whoever holds it."""

    id: UUID
    attempt_id: UUID | None
    status: str
    result: str | None = None
    code: str | None = None
    message: str | None = None
    error: str | None = None


@dataclass(slots=True)
class _Item:
    """A finish as it goes to SQL: checked, with everything in storable form."""

    source: wire.FinishItem
    outcome: str
    result: str | None = None
    saved: str | None = None
    error: Mapping[str, Any] | None = None
    # What was wrong with the worker's item.
    invalid: str | None = None
    # Not what the worker asked for: it became this because that could not be done.
    instead: bool = False


class _ItemFailed(Exception):
    """One item cannot be finished as asked; `outcome` is what becomes of it instead."""

    def __init__(self, outcome: str, code: str, message: str) -> None:
        super().__init__(message)
        self.outcome = outcome
        self.error = {"code": code, "message": clean_text(message, MAX_ERROR_MESSAGE)}


async def save(core: "Core", items: Sequence[wire.SaveItem]) -> list[wire.Verdict]:
    good: dict[Key, tuple[str, bool]] = {}
    invalid: dict[int, str] = {}
    for place, item in enumerate(items):
        try:
            # Of several for one attempt the last holds, and what one of them forgave stays forgiven.
            _, progress = good.get(_key(item), ("", False))
            good[_key(item)] = (_checked_saved(item.saved) or "{}", progress or item.progress)
        except InvalidValue as problem:
            invalid[place] = str(problem)
    accepted, unstorable = await _save_together(core, sorted(good.items()))
    core.changed(UUID(int=id) for id, _ in accepted)
    turned_away = [
        item
        for place, item in enumerate(items)
        if place not in invalid and _key(item) not in accepted and _key(item) not in unstorable
    ]
    verdicts = await _resolved(core, [(item, "save") for item in turned_away])
    answers = []
    for place, item in enumerate(items):
        wrong = invalid.get(place) or unstorable.get(_key(item))
        if wrong is not None:
            answers.append(_verdict(item, Verdict.INVALID, wrong))
        else:
            answers.append(verdicts.get((_key(item), "save")) or _verdict(item, Verdict.ACCEPTED))
    return core.judged("save", answers)


async def _save_together(
    core: "Core", items: Sequence[tuple[Key, tuple[str, bool]]]
) -> tuple[set[Key], dict[Key, str]]:
    """The attempts whose save was accepted, and those whose state the database would not take."""
    if not items:
        return set(), {}

    async def write(tx: Transaction) -> list[asyncpg.Record]:
        return await tx.fetch(
            SQL["save_jobs"],
            *_columns([key for key, _ in items]),
            [text for _, (text, _) in items],
            [progress for _, (_, progress) in items],
        )

    try:
        return {_key_of(row) for row in await core.db.repeated(write)}, {}
    except BAD_DATA as problem:
        if len(items) == 1:
            return set(), {items[0][0]: f"The saved state cannot be stored: {problem}"}
    accepted: set[Key] = set()
    unstorable: dict[Key, str] = {}
    for item in items:
        taken, refused = await _save_together(core, [item])
        accepted |= taken
        unstorable |= refused
    return accepted, unstorable


async def release(core: "Core", items: Sequence[wire.ReleaseItem]) -> list[wire.Verdict]:
    """Gives jobs back, or says of lost ones that their attempt has stopped."""
    ordered = sorted(items, key=_key)

    async def write(tx: Transaction) -> set[Key]:
        rows = await tx.fetch(
            SQL["release_jobs"],
            [item.id for item in ordered],
            [item.attempt_id for item in ordered],
            [_delay(item.delay_seconds) for item in ordered],
            [clean_text(item.reason, 200) for item in ordered],
        )
        released = {_key_of(row) for row in rows}
        stopped = [item.attempt_id for item in ordered if _key(item) not in released]
        freed = await tx.fetch(SQL["attempts_stopped"], stopped) if stopped else []
        core.tell(tx, [*rows, *freed])
        return released

    accepted = await core.db.repeated(write)
    verdicts = await _resolved(core, [(item, "release") for item in items if _key(item) not in accepted])
    return core.judged(
        "release", [verdicts.get((_key(item), "release")) or _verdict(item, Verdict.ACCEPTED) for item in items]
    )


async def finish(core: "Core", items: Sequence[wire.FinishItem], *, by_worker: bool = True) -> list[wire.Verdict]:
    """Ends turns: result, status, lock, group, events, follow-ups and the move to history in one transaction.

    `by_worker` False: somebody else ends the turn of an attempt that may still be running. What it leaves is cleaned up
    only when it has stopped, and it is not remembered as the one who ended it."""
    # Of several for one attempt the first holds; another outcome beside it is judged like a later write.
    keys = [_key(item) for item in items]
    unique: dict[Key, _Item] = {}
    for key, source in zip(keys, items, strict=True):
        if key not in unique:
            unique[key] = _checked(source)
    ended = await _finish_together(core, [unique[key] for key in sorted(unique)], by_worker=by_worker)
    turned_away = [
        (item, item.outcome)
        for key, item in zip(keys, items, strict=True)
        if key not in ended or item.outcome != unique[key].source.outcome
    ]
    verdicts = await _resolved(core, turned_away) if turned_away else {}
    answers = []
    for key, item in zip(keys, items, strict=True):
        answer = verdicts.get((key, item.outcome)) if verdicts else None
        if answer is None:
            invalid = ended[key]
            answer = _verdict(item, Verdict.ACCEPTED if invalid is None else Verdict.INVALID, invalid)
        answers.append(answer)
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
    """Ends jobs and does all that belongs to an end. Returns the rows of those that were ended.

    `event` is the row of the timeline, with its `reason` or the code of each one's error."""
    ordered = sorted(endings, key=lambda ending: ending.id.int)
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


async def _finish_together(core: "Core", items: Sequence[_Item], *, by_worker: bool) -> dict[Key, str | None]:
    """The attempts whose turn was ended, each with what was wrong with its item, if anything was."""

    async def write(tx: Transaction) -> set[Key]:
        return await _write_finishes(core, tx, items, by_worker=by_worker)

    if not items:
        return {}
    try:
        accepted = await core.db.repeated(write)
        return {_key(item.source): item.invalid for item in items if _key(item.source) in accepted}
    except (_ItemFailed, *BAD_DATA) as problem:
        if len(items) > 1:
            ended: dict[Key, str | None] = {}
            for item in items:
                ended |= await _finish_together(core, [item], by_worker=by_worker)
            return ended
        [item] = items
        if item.instead:
            # Not what the worker sent but what we made of it: another try would end the same way.
            raise
        return await _finish_together(core, [_instead(item, problem)], by_worker=by_worker)


def _instead(item: _Item, problem: Exception) -> _Item:
    if isinstance(problem, _ItemFailed):
        log.warning("finish_turned_into_failure", job=str(item.source.id), code=problem.error["code"])
        return _Item(item.source, problem.outcome, error=problem.error, instead=True)
    message = clean_text(f"The result cannot be stored: {problem}", MAX_ERROR_MESSAGE)
    log.warning("finish_turned_into_failure", job=str(item.source.id), code=INVALID_RESULT)
    error = {"code": INVALID_RESULT, "message": message}
    return _Item(item.source, "permanent", error=error, invalid=message, instead=True)


async def _write_finishes(core: "Core", tx: Transaction, items: Sequence[_Item], *, by_worker: bool) -> set[Key]:
    by_outcome: dict[str, list[_Item]] = {}
    for item in items:
        by_outcome.setdefault(item.outcome, []).append(item)
    waiting: list[asyncpg.Record] = []
    if again := by_outcome.get("again"):
        waiting += await _yield(tx, again)
    exhausted: list[_Item] = []
    if transient := by_outcome.get("transient"):
        back = await _retry(tx, transient, by_worker)
        waiting += back
        retried = {_key_of(row) for row in back}
        exhausted = [item for item in transient if _key(item.source) not in retried]
    core.tell(tx, waiting)
    endings = [_completed(item) for item in by_outcome.get("done", ())]
    endings += [_failed(item) for item in by_outcome.get("permanent", ())]
    endings += [_exhausted(item) for item in exhausted]
    # An end that the attempt did not bring about is a row of its own: its columns cannot tell it.
    event = None if by_worker else "timed_out"
    ended = await end(core, tx, endings, own=by_worker, still_running=not by_worker, event=event) if endings else []
    await _follow(core, tx, ended, {_key(item.source): item.source for item in by_outcome.get("done", ())})
    accepted = {_key_of(row) for row in [*waiting, *ended]}
    core.count_finished(tx, [*waiting, *ended], [item.source for item in items if _key(item.source) in accepted])
    return accepted


async def _yield(tx: Transaction, items: Sequence[_Item]) -> list[asyncpg.Record]:
    return await tx.fetch(
        SQL["yield_jobs"],
        [item.source.id for item in items],
        [item.source.attempt_id for item in items],
        [_delay(item.source.delay_seconds or 0) for item in items],
        column(item.source.waiting_on and clean_text(item.source.waiting_on, MAX_NAME) for item in items),
        column(item.saved for item in items),
        [item.saved is not None and item.source.progress for item in items],
    )


async def _retry(tx: Transaction, items: Sequence[_Item], by_worker: bool) -> list[asyncpg.Record]:
    return await tx.fetch(
        SQL["retry_jobs"],
        [item.source.id for item in items],
        [item.source.attempt_id for item in items],
        [None if item.source.delay_seconds is None else _delay(item.source.delay_seconds) for item in items],
        [item.source.budget for item in items],
        [item.source.unclassified for item in items],
        [_dumps(item.error) for item in items],
        by_worker,
    )


async def _follow(
    core: "Core", tx: Transaction, ended: Iterable[asyncpg.Record], sources: Mapping[Key, wire.FinishItem]
) -> None:
    """Domain events and follow-up jobs of the finishes that were accepted."""
    for row in ended:
        source = sources.get(_key_of(row))
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
            raise _ItemFailed("transient", "follow_up_lock_held", held.message) from None
        except Refused as refused:
            raise _ItemFailed("permanent", "invalid_follow_up", refused.message) from None


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
                made = await kind.on_end(tx, job) or ()
                await events.emit(core, tx, [events.OwnedEvent(e, job.owner) for e in made if isinstance(e, NewEvent)])
                await enqueueing.enqueue(core, tx, [new for new in made if isinstance(new, NewJob)])
        except DEADLOCKS:
            raise
        except Refused as refused:
            # Said on purpose, and no other try would be taken.
            if row["end_status"] == "completed":
                raise _ItemFailed("permanent", "end_hook_failed", refused.message) from None
        except Exception as problem:
            log.exception("end_hook_failed", job=str(row["id"]), kind=row["kind"])
            if row["end_status"] == "completed":
                raise _ItemFailed("transient", "end_hook_failed", f"{type(problem).__name__}: {problem}") from None


async def _resolved(core: "Core", writes: Sequence[tuple[Any, str]]) -> dict[tuple[Key, str], wire.Verdict]:
    """What the writes that changed nothing are told, by who wrote and what."""
    rows = await _states(core, [item for item, _ in writes])
    verdicts = {(_key(item), operation): _judged(item, rows[_key(item)], operation) for item, operation in writes}
    stale: dict[str, set[Key]] = {}
    for (key, operation), verdict in verdicts.items():
        if verdict.verdict == Verdict.STALE_ATTEMPT:
            stale.setdefault(operation, set()).add(key)
    for operation, keys in stale.items():
        await core.db.execute(SQL["note_stale_writes"], *_columns(sorted(keys)), operation)
    return verdicts


async def resolve_held(core: "Core", items: Sequence[Any]) -> list[wire.Verdict]:
    """For a beat: what became of attempts that no longer hold their job. A beat is no write, so nothing is noted."""
    rows = await _states(core, items)
    return [_judged(item, rows[_key(item)], "beat") for item in items]


async def _states(core: "Core", items: Sequence[Any]) -> dict[Key, asyncpg.Record]:
    if not items:
        return {}
    rows = await core.db.fetch(SQL["resolve_writes"], [item.id for item in items], [item.attempt_id for item in items])
    return {_key_of(row): row for row in rows}


_ENDED_AS = {"done": "completed", "permanent": "failed"}
EXHAUSTED = "attempts_exhausted"
# What a finish may have been turned into: its repetition is the attempt's own write all the same.
_TURNED_INTO = {INVALID_RESULT, "invalid_follow_up", "follow_up_lock_held", "end_hook_failed", EXHAUSTED}


def _judged(item: Any, row: asyncpg.Record, operation: str) -> wire.Verdict:
    verdict = _judge(row, operation)
    if verdict is Verdict.ALREADY_YOURS and operation != "beat" and row["error_code"] == INVALID_RESULT:
        return _verdict(item, Verdict.INVALID, row["error_message"])
    return _verdict(item, verdict)


def _judge(row: asyncpg.Record, operation: str) -> Verdict:
    attempt = row["attempt_id"]
    if row["holder"] == attempt:
        return Verdict.ACCEPTED
    turned = operation in ("done", "again") and row["error_code"] in _TURNED_INTO
    turned |= operation == "transient" and row["error_code"] == EXHAUSTED
    if row["live_ended_by"] == attempt and (
        operation in (row["ended_as"], "beat") or (turned and row["ended_as"] == "transient")
    ):
        return Verdict.ALREADY_YOURS
    if row["ended_by"] == attempt and (
        operation == "beat" or row["status"] == _ENDED_AS.get(operation) or (turned and row["status"] == "failed")
    ):
        return Verdict.ALREADY_YOURS
    if row["status"] == "cancelled":
        return Verdict.CANCELLED
    return Verdict.STALE_ATTEMPT if row["known"] else Verdict.UNKNOWN


def _checked(source: wire.FinishItem) -> _Item:
    try:
        _check_events(source.events)
        return _Item(
            source,
            source.outcome,
            result=checked_json(source.result, limit=MAX_RESULT_BYTES, what="result"),
            saved=_checked_saved(source.saved),
            error=_error(source.error) if source.outcome in ("transient", "permanent") else None,
        )
    except InvalidValue as problem:
        error = {"code": INVALID_RESULT, "message": str(problem)}
        return _Item(source, "permanent", error=error, invalid=str(problem))


def _check_events(given: Sequence[wire.Event]) -> None:
    for event in given:
        for name, text in (("type", event.type), ("subject", event.subject)):
            if not text or text != clean_text(text, MAX_NAME):
                raise InvalidValue(f"An event's {name} is text of 1 to {MAX_NAME} characters without NUL.")
        checked_json(event.data, limit=MAX_EVENT_BYTES, what="event's data")


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
    return replace(_failed(item), code=EXHAUSTED, message=message)


def _delay(seconds: float) -> timedelta:
    return timedelta(seconds=min(max(seconds, 0.0), LONGEST_DELAY.total_seconds()))


def _dumps(value: Any) -> str:
    return orjson.dumps(value).decode()


def _verdict(item: Any, verdict: Verdict, message: str | None = None) -> wire.Verdict:
    return wire.Verdict(id=item.id, attempt_id=item.attempt_id, verdict=str(verdict), message=message)


def _key(item: Any) -> Key:
    return item.id.int, item.attempt_id.int


def _key_of(row: asyncpg.Record) -> Key:
    return row["id"].int, row["attempt_id"].int


def _columns(keys: Sequence[Key]) -> tuple[list[UUID], list[UUID]]:
    return [UUID(int=id) for id, _ in keys], [UUID(int=attempt) for _, attempt in keys]
