"""`save`: what an attempt keeps for the turns after it, fenced and durable."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any
from uuid import UUID

import asyncpg

from paddock.db.pool import Transaction
from paddock.jobs import wire
from paddock.jobs.fencing import BAD_DATA, SQL, Key, columns, resolved, verdict_on, writer, writer_of
from paddock.jobs.model import MAX_SAVED_BYTES, Verdict
from paddock.jobs.values import InvalidValue, checked_json

if TYPE_CHECKING:
    from paddock.jobs.core import Core


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
