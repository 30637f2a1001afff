"""The fence: every write names (id, attempt_id) and changes nothing when the job has moved on.

Each primitive (`save` and `release` here, `finish` in `finishing`) takes a list and answers a verdict per item. A batch is one
transaction; one that fails on data is replayed item by item, one that deadlocks is repeated: a bad item never holds up
the others. Whoever is turned away learns here why: its own write repeated (`already_yours`), a cancel, or another
attempt (`stale_attempt`).
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any
from uuid import UUID

import asyncpg

from paddock.db.pool import Transaction, statements
from paddock.jobs import wire
from paddock.jobs.durations import bounded_delay
from paddock.jobs.model import MAX_SAVED_BYTES, Verdict
from paddock.jobs.values import InvalidValue, checked_json, clean_text

if TYPE_CHECKING:
    from paddock.jobs.core import Core

SQL = statements("paddock.jobs.sql", "fencing.sql")
INVALID_RESULT = "invalid_result"
EXHAUSTED = "attempts_exhausted"
# What the database refuses because of what is to be written, now and at every other try.
BAD_DATA = (asyncpg.DataError, asyncpg.IntegrityConstraintViolationError, asyncpg.ProgramLimitExceededError)
# Who writes: which attempt at which job, as numbers: these hash and sort in C, UUIDs do not, and a batch asks hundreds
# of times.
Key = tuple[int, int]


async def resolved(core: "Core", writes: Sequence[tuple[Any, str]]) -> dict[tuple[Key, str], wire.ItemVerdict]:
    """What the writes that changed nothing are told, by who wrote and what."""
    rows = await _states(core, [item for item, _ in writes])
    verdicts = {(writer(item), operation): _judged(item, rows[writer(item)], operation) for item, operation in writes}
    stale: dict[str, set[Key]] = {}
    for (key, operation), verdict in verdicts.items():
        if verdict.verdict == Verdict.STALE_ATTEMPT:
            stale.setdefault(operation, set()).add(key)
    for operation, keys in stale.items():
        await core.db.execute(SQL["note_stale_writes"], *columns(sorted(keys)), operation)
    return verdicts


async def resolve_held(core: "Core", items: Sequence[Any]) -> list[wire.ItemVerdict]:
    """For a beat: what became of attempts that no longer hold their job. A beat is no write, so nothing is noted."""
    rows = await _states(core, items)
    return [_judged(item, rows[writer(item)], "beat") for item in items]


async def _states(core: "Core", items: Sequence[Any]) -> dict[Key, asyncpg.Record]:
    if not items:
        return {}
    rows = await core.db.fetch(SQL["resolve_writes"], [item.id for item in items], [item.attempt_id for item in items])
    return {writer_of(row): row for row in rows}


_ENDED_AS = {"done": "completed", "permanent": "failed"}
# What a finish may have been turned into: its repetition is the attempt's own write all the same.
_TURNED_INTO = {
    INVALID_RESULT,
    "invalid_event",
    "invalid_follow_up",
    "follow_up_lock_held",
    "end_hook_failed",
    "unknown_kind",
    EXHAUSTED,
}


def _judged(item: Any, row: asyncpg.Record, operation: str) -> wire.ItemVerdict:
    verdict = _judge(row, operation)
    if verdict is Verdict.ALREADY_YOURS and operation != "beat" and row["error_code"] == INVALID_RESULT:
        return verdict_on(item, Verdict.INVALID, row["error_message"])
    return verdict_on(item, verdict)


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


def verdict_on(item: Any, verdict: Verdict, message: str | None = None) -> wire.ItemVerdict:
    return wire.ItemVerdict(id=item.id, attempt_id=item.attempt_id, verdict=str(verdict), message=message)


def writer(item: Any) -> Key:
    return item.id.int, item.attempt_id.int


def writer_of(row: asyncpg.Record) -> Key:
    return row["id"].int, row["attempt_id"].int


def columns(keys: Sequence[Key]) -> tuple[list[UUID], list[UUID]]:
    return [UUID(int=id) for id, _ in keys], [UUID(int=attempt) for _, attempt in keys]


async def save(core: "Core", items: Sequence[wire.SaveItem]) -> list[wire.ItemVerdict]:
    good: dict[Key, tuple[str, bool]] = {}
    invalid: dict[int, str] = {}
    for place, item in enumerate(items):
        try:
            # Of several for one attempt the last holds, and what one of them forgave stays forgiven.
            _, progress = good.get(writer(item), ("", False))
            good[writer(item)] = (checked_saved(item.saved) or "{}", progress or item.progress)
        except InvalidValue as problem:
            invalid[place] = str(problem)
    accepted, unstorable = await _save_together(core, sorted(good.items()))
    core.changed(UUID(int=id) for id, _ in accepted)
    turned_away = [
        item
        for place, item in enumerate(items)
        if place not in invalid and writer(item) not in accepted and writer(item) not in unstorable
    ]
    verdicts = await resolved(core, [(item, "save") for item in turned_away])
    answers = []
    for place, item in enumerate(items):
        wrong = invalid.get(place) or unstorable.get(writer(item))
        if wrong is not None:
            answers.append(verdict_on(item, Verdict.INVALID, wrong))
        else:
            answers.append(verdicts.get((writer(item), "save")) or verdict_on(item, Verdict.ACCEPTED))
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
            *columns([key for key, _ in items]),
            [text for _, (text, _) in items],
            [progress for _, (_, progress) in items],
        )

    try:
        return {writer_of(row) for row in await core.db.repeated(write)}, {}
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


def checked_saved(saved: Any) -> str | None:
    text = checked_json(saved, limit=MAX_SAVED_BYTES, what="saved state")
    if text is not None and not text.startswith("{"):
        raise InvalidValue("Saved state must be a JSON object.")
    return text


async def release(core: "Core", items: Sequence[wire.ReleaseItem]) -> list[wire.ItemVerdict]:
    """Gives jobs back, or says of lost ones that their attempt has stopped."""
    ordered = sorted(items, key=writer)

    async def write(tx: Transaction) -> set[Key]:
        rows = await tx.fetch(
            SQL["release_jobs"],
            [item.id for item in ordered],
            [item.attempt_id for item in ordered],
            [bounded_delay(item.delay_seconds) for item in ordered],
            [clean_text(item.reason, 200) for item in ordered],
        )
        released = {writer_of(row) for row in rows}
        stopped = [writer(item) for item in ordered if writer(item) not in released]
        ids, attempts = columns(stopped)
        freed = await tx.fetch(SQL["attempts_stopped"], attempts, ids) if stopped else []
        core.tell(tx, [*rows, *freed])
        return released

    accepted = await core.db.repeated(write)
    verdicts = await resolved(core, [(item, "release") for item in items if writer(item) not in accepted])
    return core.judged(
        "release", [verdicts.get((writer(item), "release")) or verdict_on(item, Verdict.ACCEPTED) for item in items]
    )
