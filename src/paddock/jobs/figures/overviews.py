"""What a person sees at a glance: counts, workers, kinds. Cheap at any number of jobs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from uuid import UUID

import asyncpg

from paddock.db.pool import Database, statements
from paddock.jobs.model import SessionId

SQL = statements("paddock.jobs.sql", "overviews.sql")
COUNTED = timedelta(days=1)
# The ended ones are of each kind and status.
MOST_OWN_ENDED, MOST_LIVE = 1_000, 20_000
MOST_WORKERS = 1_000
MOST_VERSION_CHANGES = 100
MOST_RETRIED = 1_000
# A scaler has brought a worker by then, or it does not work.
SCALING_TAKES = timedelta(minutes=2)


@dataclass(frozen=True, slots=True)
class Counts:
    """Live jobs as last sampled; ended ones of the time since `ended_since`. Not `complete`: there are more."""

    by_kind: Mapping[str, Mapping[str, int]]
    ended_since: datetime
    sampled_at: datetime | None
    complete: bool = True


@dataclass(frozen=True, slots=True)
class WorkerSeen:
    session: SessionId
    worker_id: str
    version: str
    kinds: Sequence[str]
    slots: int
    running: int
    live: bool
    quiet: bool
    dying: bool
    started_at: datetime
    beat_at: datetime
    expires_at: datetime

    @property
    def place(self) -> tuple[bool, datetime, UUID]:
        return self.live, self.started_at, self.session


@dataclass(frozen=True, slots=True)
class VersionChange:
    """The versions of those of a role (`worker`, `control plane`) that were at work before and after a time."""

    role: str
    at: datetime
    before: Sequence[str]
    after: Sequence[str]

    @property
    def came(self) -> list[str]:
        return [version for version in self.after if version not in self.before]

    @property
    def went(self) -> list[str]:
        return [version for version in self.before if version not in self.after]


@dataclass(frozen=True, slots=True)
class KindSeen:
    """`offered`: a live worker runs it; `scaled`: a scaler brings one when there is work, and `kept_waiting` says that none
    came. The counts are those of the newest sample."""

    name: str
    submit: Sequence[str] | None
    internal: bool
    housekeeping: bool
    serial: bool
    may_repeat: bool
    has_cleanup: bool
    backoff_first: timedelta
    backoff_cap: timedelta
    failure_limit: int
    cluster_limit: int
    loss_limit: int
    turn_timeout: timedelta | None
    total_timeout: timedelta | None
    stall_timeout: timedelta | None
    patience: timedelta
    paused: bool
    paused_at: datetime | None
    paused_by: str | None
    pause_reason: str | None
    offered: bool
    scaled: bool = False
    kept_waiting: bool = False
    pending: int = 0
    claimed: int = 0
    submitted: int = 0
    oldest_due: timedelta = timedelta(0)

    @property
    def unoffered(self) -> bool:
        """Nobody runs it, and nobody will come by himself."""
        return not self.offered and (not self.scaled or self.kept_waiting)


async def counts(db: Database, owner: str | None = None) -> Counts:
    now = await db.fetchval(SQL["clock"])
    found: dict[str, dict[str, int]] = {}
    if owner is not None:
        rows = await db.fetch(SQL["owner_counts"], owner, COUNTED, MOST_OWN_ENDED, MOST_LIVE)
        for row in rows:
            found.setdefault(row["kind"], {})[row["status"]] = row["n"]
        return Counts(found, now - COUNTED, now, all(row["complete"] for row in rows))
    sample = await db.fetch(SQL["newest_sample"])
    for row in sample:
        live = {status: row[status] for status in ("pending", "claimed", "submitted") if row[status]}
        if live:
            found[row["kind"]] = live
    for row in await db.fetch(SQL["ended_counts"], COUNTED):
        found.setdefault(row["kind"], {})[row["status"]] = row["n"]
    return Counts(found, now - COUNTED, sample[0]["bucket"] if sample else None)


async def workers(
    db: Database, *, after: tuple[bool, datetime, UUID] | None = None, limit: int = MOST_WORKERS
) -> list[WorkerSeen]:
    """The live ones first, newest first; `after` is the `place` of one of them."""
    return [
        WorkerSeen(
            session=SessionId(row["id"]),
            worker_id=row["worker_id"],
            version=row["version"],
            kinds=row["kinds"],
            slots=row["slots"],
            running=row["running"],
            live=row["live"],
            quiet=row["quiet"],
            dying=row["dying"],
            started_at=row["started_at"],
            beat_at=row["beat_at"],
            expires_at=row["expires_at"],
        )
        for row in await db.fetch(SQL["sessions_seen"], limit, *(after or (None, None, None)))
    ]


async def version_changes(db: Database, since: datetime) -> list[VersionChange]:
    """Newest first."""
    return [VersionChange(**row) for row in await db.fetch(SQL["version_changes"], since, MOST_VERSION_CHANGES)]


async def kinds(db: Database) -> list[KindSeen]:
    sample = {row["kind"]: row for row in await db.fetch(SQL["newest_sample"])}
    return [_kind(row, sample.get(row["name"])) for row in await db.fetch(SQL["kinds_seen"], SCALING_TAKES)]


async def declare_scaled(db: Database, names: Sequence[str]) -> None:
    """Those for which a scaler brings workers; of several control planes the one that starts last says it."""
    await db.execute(SQL["declare_scaled"], list(names))


async def retried(db: Database, kind: str) -> tuple[int, datetime | None]:
    """How many of a kind failed for the moment and wait for another try, and when the first of them began."""
    row = await db.fetchrow(SQL["retried"], kind, MOST_RETRIED)
    assert row is not None
    return row["n"], row["since"]


def _kind(row: asyncpg.Record, sample: asyncpg.Record | None) -> KindSeen:
    seen = KindSeen(
        name=row["name"],
        submit=row["submit"],
        internal=row["internal"],
        housekeeping=row["housekeeping"],
        serial=row["serial"],
        may_repeat=row["may_repeat"],
        has_cleanup=row["has_cleanup"],
        backoff_first=row["backoff_first"],
        backoff_cap=row["backoff_cap"],
        failure_limit=row["failure_limit"],
        cluster_limit=row["cluster_limit"],
        loss_limit=row["loss_limit"],
        turn_timeout=row["turn_timeout"],
        total_timeout=row["total_timeout"],
        stall_timeout=row["stall_timeout"],
        patience=row["patience"],
        paused=row["paused"],
        paused_at=row["paused_at"],
        paused_by=row["paused_by"],
        pause_reason=row["pause_reason"],
        offered=row["offered"],
        scaled=row["scaled"],
        kept_waiting=row["kept_waiting"],
    )
    if sample is None:
        return seen
    return replace(
        seen,
        pending=sample["pending"],
        claimed=sample["claimed"],
        submitted=sample["submitted"],
        oldest_due=timedelta(seconds=sample["oldest_due_seconds"]),
    )
