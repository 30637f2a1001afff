"""A worker's lease is its session: one row, renewed by one beat whatever the worker runs."""

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING
from uuid import UUID

import asyncpg

from paddock.db.pool import DEADLOCKS, statements
from paddock.jobs import fencing, wire
from paddock.jobs.link import SessionUnknown
from paddock.jobs.model import MAX_REPORT_BYTES, Verdict
from paddock.jobs.values import InvalidValue, checked_json, clean_text
from paddock.log import masked

if TYPE_CHECKING:
    from paddock.jobs.core import Core

SQL = statements("paddock.jobs.sql", "sessions.sql")
FENCE = statements("paddock.jobs.sql", "fencing.sql")
# Beats that must fail to list a job before its claim's answer counts as lost.
UNLISTED_BEATS = 2


async def register(core: "Core", message: wire.Register, allowed: Collection[str]) -> wire.Registered:
    offered = [kind for kind in dict.fromkeys(message.kinds) if kind in allowed]
    session = await core.db.fetchval(
        SQL["open_session"],
        clean_text(message.worker_id, 200),
        clean_text(message.version, 100),
        offered,
        max(0, min(message.slots, 100_000)),
        core.settings.lease,
    )
    return wire.Registered(
        session=session,
        beat_seconds=core.settings.beat.total_seconds(),
        lease_seconds=core.settings.lease.total_seconds(),
        unknown_kinds=[kind for kind in message.kinds if kind not in allowed],
    )


async def beat(core: "Core", session: UUID, message: wire.Beat) -> wire.Verdicts:
    """Renews the lease and says of each attempt listed whether it still holds its job."""
    if not message.renew:
        return wire.Verdicts(verdicts=await _report(core, message.holding))
    row = await core.beats.renew(session, dying=message.dying)
    if row is None:
        raise SessionUnknown(str(session))
    held = set(row["attempts"] or ())
    listed = {item.attempt_id for item in message.holding}
    if row["overlooked"] or not held <= listed:
        await _compare(core, session, listed)
    stopped = [attempt for attempt in row["awaited"] if attempt not in listed]
    if stopped:
        async with core.db.transaction() as tx:
            core.tell(tx, await tx.fetch(FENCE["attempts_stopped"], stopped, None))
    await _report(core, [item for item in message.holding if item.attempt_id in held])
    lost = [item for item in message.holding if item.attempt_id not in held]
    told = {verdict.attempt_id: verdict for verdict in await fencing.resolve_held(core, lost)}
    verdicts = [
        told.get(item.attempt_id)
        or wire.ItemVerdict(id=item.id, attempt_id=item.attempt_id, verdict=str(Verdict.ACCEPTED))
        for item in message.holding
    ]
    if message.dying and not message.holding and not held:
        await core.db.execute(SQL["end_session"], session)
    return wire.Verdicts(verdicts=verdicts, quiet=row["quiet"])


async def _compare(core: "Core", session: UUID, listed: Collection[UUID]) -> None:
    """Counts the beats in a row that did not list a job, and gives it back after the second."""
    unlisted, listed_again = [], []
    for row in await core.db.fetch(SQL["held_jobs"], session, core.settings.claim_grace):
        if row["attempt_id"] not in listed and row["settled"]:
            unlisted.append((row["id"], row["attempt_id"]))
        elif row["attempt_id"] in listed and row["unlisted"]:
            listed_again.append((row["id"], row["attempt_id"]))
    if listed_again:
        await _note(core, listed_again, listed=True)
    if unlisted:
        await _give_back_unlisted(core, unlisted)


async def _report(core: "Core", items: Sequence[wire.Held]) -> list[wire.ItemVerdict]:
    reports: list[tuple[UUID, UUID, str]] = []
    for item in items:
        if item.report is None:
            continue
        try:
            # It is for people, and nothing works with it: so it is masked here once, and not wherever it is shown.
            text = checked_json(masked(item.report), limit=MAX_REPORT_BYTES, what="report")
        except (InvalidValue, RecursionError):
            continue
        reports.append((item.id, item.attempt_id, text or "{}"))
    if not reports:
        return []
    reports.sort()
    try:
        rows = await core.db.fetch(FENCE["report_jobs"], *(list(column) for column in zip(*reports, strict=True)))
    except (*DEADLOCKS, *fencing.BAD_DATA):
        # A report may be lost; the beat it came with may not.
        rows = []
    accepted = {row["id"] for row in rows}
    core.changed(accepted)
    return await fencing.resolve_held(
        core, [item for item in items if item.report is not None and item.id not in accepted]
    )


async def _give_back_unlisted(core: "Core", unlisted: Sequence[tuple[UUID, UUID]]) -> None:
    """The claim's answer never reached the worker: it cannot run what it does not know. Uncounted."""
    gone = [row for row in await _note(core, unlisted, listed=False) if row["unlisted"] >= UNLISTED_BEATS]
    if gone:
        items = [
            wire.ReleaseItem(id=row["id"], attempt_id=row["attempt_id"], reason="claim_answer_lost") for row in gone
        ]
        await fencing.release(core, items)
        core.count_rescued("claim_answer_lost", (row["kind"] for row in gone))


async def _note(core: "Core", attempts: Sequence[tuple[UUID, UUID]], *, listed: bool) -> Sequence[asyncpg.Record]:
    ordered = sorted(attempts)
    return await core.db.fetch(
        SQL["note_unlisted"], [id for id, _ in ordered], [attempt for _, attempt in ordered], listed
    )
