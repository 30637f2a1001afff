"""`finish`: the four outcomes of a turn, each with all that belongs to it in one transaction.

A finish is checked first (`checked`). The usual one, a job that is done and whose end brings nothing else about, is one
statement (`_complete`); every other takes the way through `ending`.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import asyncpg
import orjson
import structlog

from paddock.db.pool import Transaction, column
from paddock.jobs import enqueueing, events, wire
from paddock.jobs.durations import bounded_delay
from paddock.jobs.ending import Ending, ItemFailed, end
from paddock.jobs.errors import LockHeld, Refused
from paddock.jobs.fencing import (
    BAD_DATA,
    EXHAUSTED,
    INVALID_RESULT,
    SQL,
    Key,
    checked_saved,
    resolved,
    verdict_on,
    writer,
    writer_of,
)
from paddock.jobs.model import (
    MAX_ERROR_MESSAGE,
    MAX_RESULT_BYTES,
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

MAX_EVENT_BYTES = 64 * 1024
MAX_NAME = 500
# No query is as long as this.
MOST_PLACE = 10_000_000
log = structlog.get_logger()


# Made for every finish, and freezing a dataclass doubles what making it costs.
@dataclass(slots=True)
class Item:
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

    @property
    def plain(self) -> bool:
        """Whether it ends its job and asks for nothing beside it."""
        return self.outcome == "done" and not (self.source.events or self.source.follow_ups)


def checked(source: wire.FinishItem) -> Item:
    if source.outcome == "done" and source.result is None and source.saved is None and not source.events:
        return Item(source, "done")
    try:
        _check_events(source.events)
        return Item(
            source,
            source.outcome,
            result=checked_json(source.result, limit=MAX_RESULT_BYTES, what="result"),
            saved=checked_saved(source.saved),
            error=_error(source.error) if source.outcome in ("transient", "permanent") else None,
        )
    except InvalidValue as problem:
        error = {"code": INVALID_RESULT, "message": str(problem)}
        return Item(source, "permanent", error=error, invalid=str(problem))


def _check_events(given: Sequence[wire.Event]) -> None:
    for event in given:
        for name, text in (("type", event.type), ("subject", event.subject)):
            if not text or text != clean_text(text, MAX_NAME):
                raise InvalidValue(f"An event's {name} is text of 1 to {MAX_NAME} characters without NUL.")
        checked_json(event.data, limit=MAX_EVENT_BYTES, what="event's data")


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
    if error.mistake:
        shown["mistake"] = True
    # As the engine says it: bounded, because a page draws that far.
    places = {"line": error.line, "column": error.column}
    return shown | {name: place for name, place in places.items() if place is not None and 1 <= place <= MOST_PLACE}


def completed(item: Item) -> Ending:
    return Ending(item.source.id, item.source.attempt_id, "completed", result=item.result)


def failed(item: Item) -> Ending:
    error = item.error or {}
    return Ending(
        item.source.id,
        item.source.attempt_id,
        "failed",
        code=error.get("code"),
        message=error.get("message"),
        error=dumps(error),
    )


def exhausted(item: Item) -> Ending:
    error = item.error or {}
    message = clean_text(f"Gave up after too many failures; the last one: {error.get('message')}", MAX_ERROR_MESSAGE)
    return replace(failed(item), code=EXHAUSTED, message=message)


def dumps(value: Any) -> str:
    return orjson.dumps(value).decode()


async def _complete(core: "Core", items: Mapping[Key, Item]) -> dict[Key, str | None]:
    """One statement, a transaction by itself: the attempts whose job was ended. Whatever is not among them is as it was, and for the long way to look at: jobs
    with a group or an end hook, an end that somebody listens for, writes that the fence turns away."""
    plain = [key for key in sorted(items) if items[key].plain]
    if not plain:
        return {}
    sources = [items[key].source for key in plain]

    async def write(tx: Transaction) -> list[asyncpg.Record]:
        rows = await tx.fetch(
            SQL["complete_jobs"],
            [source.id for source in sources],
            [source.attempt_id for source in sources],
            column(items[key].result for key in plain),
        )
        core.tell_completed(tx, rows)
        return rows

    try:
        rows = await core.db.repeated(write, alone=True)
    except BAD_DATA:
        return {}  # nothing of the batch was written; one by one it shows whose data it was
    return dict.fromkeys(plain if len(rows) == len(plain) else map(writer_of, rows))


async def finish(
    core: "Core", items: Sequence[wire.FinishItem], *, by_worker: bool = True, declared_only: bool = False
) -> list[wire.ItemVerdict]:
    """Ends turns: result, status, lock, group, events, follow-ups and the move to history in one transaction.

    `declared_only`: they come from outside, and bring the events and follow-ups that their kinds declare or none.

    `by_worker` False: somebody else ends the turn of an attempt that may still be running. What it leaves is cleaned up
    only when it has stopped, and it is not remembered as the one who ended it."""
    # Of several for one attempt the first holds; another outcome beside it is judged like a later write.
    keys = [writer(item) for item in items]
    unique: dict[Key, Item] = {}
    for key, source in zip(keys, items, strict=True):
        if key not in unique:
            unique[key] = checked(source)
    # `_complete` tells nobody of what it ends.
    ended = await _complete(core, unique) if by_worker and not core.kinds.hearing("job.completed") else {}
    rest = [unique[key] for key in sorted(unique) if key not in ended]
    ended |= await _finish_together(core, rest, by_worker, declared_only)
    turned_away = [
        (item, item.outcome)
        for key, item in zip(keys, items, strict=True)
        if key not in ended or item.outcome != unique[key].source.outcome
    ]
    verdicts = await resolved(core, turned_away) if turned_away else {}
    answers = []
    for key, item in zip(keys, items, strict=True):
        answer = verdicts.get((key, item.outcome)) if verdicts else None
        if answer is None:
            invalid = ended[key]
            answer = verdict_on(item, Verdict.ACCEPTED if invalid is None else Verdict.INVALID, invalid)
        answers.append(answer)
    return core.judged("finish", answers)


async def _finish_together(
    core: "Core", items: Sequence[Item], by_worker: bool, declared_only: bool
) -> dict[Key, str | None]:
    """The attempts whose turn was ended, each with what was wrong with its item, if anything was."""

    async def write(tx: Transaction) -> set[Key]:
        return await _write_finishes(core, tx, items, by_worker, declared_only)

    if not items:
        return {}
    try:
        accepted = await core.db.repeated(write)
        return {writer(item.source): item.invalid for item in items if writer(item.source) in accepted}
    except (ItemFailed, *BAD_DATA) as problem:
        if len(items) > 1:
            ended: dict[Key, str | None] = {}
            for item in items:
                ended |= await _finish_together(core, [item], by_worker, declared_only)
            return ended
        [item] = items
        if item.instead:
            # Not what the worker sent but what we made of it: another try would end the same way.
            raise
        return await _finish_together(core, [_instead(item, problem)], by_worker, declared_only)


def _instead(item: Item, problem: Exception) -> Item:
    if isinstance(problem, ItemFailed):
        log.warning("finish_turned_into_failure", job=str(item.source.id), code=problem.error["code"])
        return Item(item.source, problem.outcome, error=problem.error, instead=True)
    message = clean_text(f"The result cannot be stored: {problem}", MAX_ERROR_MESSAGE)
    log.warning("finish_turned_into_failure", job=str(item.source.id), code=INVALID_RESULT)
    error = {"code": INVALID_RESULT, "message": message}
    return Item(item.source, "permanent", error=error, invalid=message, instead=True)


async def _write_finishes(
    core: "Core", tx: Transaction, items: Sequence[Item], by_worker: bool, declared_only: bool
) -> set[Key]:
    by_outcome: dict[str, list[Item]] = {}
    for item in items:
        by_outcome.setdefault(item.outcome, []).append(item)
    waiting: list[asyncpg.Record] = []
    if again := by_outcome.get("again"):
        waiting += await _yield(tx, again)
    spent: list[Item] = []
    if transient := by_outcome.get("transient"):
        back = await _retry(tx, transient, by_worker)
        waiting += back
        retried = {writer_of(row) for row in back}
        spent = [item for item in transient if writer(item.source) not in retried]
    core.tell(tx, waiting)
    endings = [completed(item) for item in by_outcome.get("done", ())]
    endings += [failed(item) for item in by_outcome.get("permanent", ())]
    endings += [exhausted(item) for item in spent]
    # An end that the attempt did not bring about is a row of its own: its columns cannot tell it.
    event = None if by_worker else "timed_out"
    ended = await end(core, tx, endings, own=by_worker, still_running=not by_worker, event=event) if endings else []
    sources = {writer(item.source): item.source for item in by_outcome.get("done", ())}
    await _follow(core, tx, ended, sources, declared_only)
    accepted = {writer_of(row) for row in [*waiting, *ended]}
    core.count_finished(tx, [*waiting, *ended], [item.source for item in items if writer(item.source) in accepted])
    return accepted


async def _yield(tx: Transaction, items: Sequence[Item]) -> list[asyncpg.Record]:
    return await tx.fetch(
        SQL["yield_jobs"],
        [item.source.id for item in items],
        [item.source.attempt_id for item in items],
        [bounded_delay(item.source.delay_seconds or 0) for item in items],
        column(item.source.waiting_on and clean_text(item.source.waiting_on, MAX_NAME) for item in items),
        column(item.saved for item in items),
        [item.saved is not None and item.source.progress for item in items],
    )


async def _retry(tx: Transaction, items: Sequence[Item], by_worker: bool) -> list[asyncpg.Record]:
    return await tx.fetch(
        SQL["retry_jobs"],
        [item.source.id for item in items],
        [item.source.attempt_id for item in items],
        [None if item.source.delay_seconds is None else bounded_delay(item.source.delay_seconds) for item in items],
        [item.source.budget for item in items],
        [item.source.unclassified for item in items],
        [dumps(item.error) for item in items],
        by_worker,
    )


async def _follow(
    core: "Core",
    tx: Transaction,
    ended: Iterable[asyncpg.Record],
    sources: Mapping[Key, wire.FinishItem],
    declared_only: bool,
) -> None:
    """Domain events and follow-up jobs of the finishes that were accepted."""
    for row in ended:
        source = sources.get(writer_of(row))
        if source is None or not (source.events or source.follow_ups):
            continue
        if declared_only:
            _check_declared(core, row["kind"], source)
        await events.emit(
            core,
            tx,
            [events.OwnedEvent(NewEvent(e.type, e.subject, e.data), row["owner"]) for e in source.events],
        )
        try:
            await enqueueing.enqueue(core, tx, [_new_job(row, follow_up) for follow_up in source.follow_ups])
        except LockHeld as held:
            raise ItemFailed("transient", "follow_up_lock_held", held.message) from None
        except Refused as refused:
            raise ItemFailed("permanent", "invalid_follow_up", refused.message) from None


def _check_declared(core: "Core", name: str, source: wire.FinishItem) -> None:
    """A worker's token is for its kinds: what a finish makes beside them is for the kind to say, not for the worker."""
    kind = core.kinds.get(name)
    if kind is None:
        # Another replica may know it, or its package can be imported again tomorrow.
        raise ItemFailed("transient", "unknown_kind", f"What kind '{name}' may make is not known here at the moment.")
    for event in source.events:
        if event.type not in kind.emits:
            message = f"Kind '{name}' does not declare events of type '{event.type}'. Name it in `emits` of the kind."
            raise ItemFailed("permanent", "invalid_event", message)
    for follow_up in source.follow_ups:
        made = core.kinds.get(follow_up.kind)
        if made is not None and made.internal:
            message = f"Kind '{follow_up.kind}' runs inside the control plane, and no worker may make one."
            raise ItemFailed("permanent", "invalid_follow_up", message)
        if follow_up.kind not in kind.follow_ups:
            message = f"Kind '{name}' does not declare '{follow_up.kind}'. Name it in `follow_ups` of the kind."
            raise ItemFailed("permanent", "invalid_follow_up", message)


def _new_job(row: asyncpg.Record, follow_up: wire.FollowUp) -> NewJob:
    return NewJob(
        follow_up.kind,
        follow_up.payload,
        owner=row["owner"],
        priority=follow_up.priority or NORMAL,
        delay=bounded_delay(follow_up.delay_seconds) if follow_up.delay_seconds else None,
        tags=follow_up.tags,
        parent_id=JobId(row["id"]),
    )
