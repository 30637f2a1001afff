"""Claims: one statement, a cursor for each (kind, lane), and waiters that hold no connection.

A waiting worker is woken by whatever makes a job of its kinds due: this process directly, other replicas by
notification, a timer for what is due later, and as the safety net a sweep that looks without cursors.
"""

import asyncio
import contextlib
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING
from uuid import UUID

import asyncpg
import msgspec

from paddock.db.pool import statements
from paddock.jobs import wire
from paddock.jobs.link import SessionUnknown
from paddock.jobs.wakeups import Wake

if TYPE_CHECKING:
    from paddock.jobs.core import Core

SQL = statements("paddock.jobs.sql", "claiming.sql")
SESSIONS = statements("paddock.jobs.sql", "sessions.sql")
LANES = range(5)
MOST_PER_CLAIM = 1_000
LONGEST_WAIT = 30.0
SWEEP_SECONDS = 5.0
# A row that commits this much after its due time was taken is still seen by a bounded claim, even if its wake-up is lost.
SLACK = timedelta(milliseconds=100)
BEGINNING = datetime(1970, 1, 1, tzinfo=UTC)
EVERY_TENTH = 10


@dataclass(eq=False)
class Waiter:
    session: UUID
    claim_id: UUID
    kinds: frozenset[str]
    woken: asyncio.Event = field(default_factory=asyncio.Event)
    lost: list[UUID] = field(default_factory=list)
    superseded: bool = False

    @property
    def key(self) -> tuple[UUID, UUID]:
        return (self.session, self.claim_id)


class Claims:
    def __init__(self, core: "Core") -> None:
        self._core = core
        self._cursors: dict[tuple[str, int], datetime] = {}
        self._waiters: dict[tuple[UUID, UUID], Waiter] = {}
        self._workers: dict[UUID, str] = {}
        self._claims = 0
        self._sweep_due = 0.0
        self._closing = False

    async def claim(self, message: wire.Claim, allowed: Collection[str]) -> wire.Claimed:
        """Up to `limit` due jobs; waits up to `wait_seconds` for the first. A lost answer is asked for again
        with the same claim_id and gets the same attempts."""
        kinds = [kind for kind in dict.fromkeys(message.kinds) if kind in allowed]
        worker = self._workers.get(message.session) or await self._worker(message.session)
        deadline = time.monotonic() + min(max(message.wait_seconds, 0.0), LONGEST_WAIT)
        waiter = self._enter(message, kinds)
        try:
            while True:
                # Cleared before looking: what becomes due while we look wakes us again.
                waiter.woken.clear()
                claimed = await self._look(message, kinds, worker)
                claimed.lost = waiter.lost
                left = deadline - time.monotonic()
                through = bool(message.only) and not claimed.open
                if claimed.jobs or through or waiter.lost or waiter.superseded or self._closing or left <= 0:
                    return claimed
                await self._sleep(waiter, kinds, left)
        finally:
            if self._waiters.get(waiter.key) is waiter:
                del self._waiters[waiter.key]

    async def _look(self, message: wire.Claim, kinds: Sequence[str], worker: str) -> wire.Claimed:
        if message.only:
            return await self._take_only(message, kinds, worker)
        return wire.Claimed(jobs=await self._take(message, kinds, worker))

    def wake(self, wakes: Iterable[Wake]) -> None:
        """Lowers the cursors to what became due and wakes as many waiters as there are jobs."""
        for wake in wakes:
            key = (wake.kind, wake.lane)
            cursor = self._cursors.get(key)
            if cursor is not None and wake.due_at < cursor:
                self._cursors[key] = wake.due_at
            if wake.due_in <= 0:
                self._rouse(wake.kind, wake.n)
            elif wake.due_in <= LONGEST_WAIT:
                asyncio.get_running_loop().call_later(wake.due_in, self._rouse, wake.kind, wake.n)

    def cancelled(self, sessions: Mapping[UUID, Sequence[UUID]]) -> None:
        """Tells waiting workers at once which of their attempts are over."""
        for waiter in self._waiters.values():
            if waiter.session in sessions:
                waiter.lost.extend(sessions[waiter.session])
                waiter.woken.set()

    def forget_cursors(self) -> None:
        """Wake-ups may have been missed: the next claims look from the beginning."""
        self._cursors.clear()
        for waiter in self._waiters.values():
            waiter.woken.set()

    def close(self) -> None:
        self._closing = True
        for waiter in self._waiters.values():
            waiter.woken.set()

    async def sweep(self) -> None:
        """Looks without cursors, rarely enough to cost at most one percent of a core."""
        if not self._waiters or time.monotonic() < self._sweep_due:
            return
        began = time.monotonic()
        kinds = sorted({kind for waiter in self._waiters.values() for kind in waiter.kinds})
        due = await self._core.db.fetch(SQL["due_kinds"], kinds)
        took = time.monotonic() - began
        self._sweep_due = time.monotonic() + max(SWEEP_SECONDS, 100 * took)
        for row in due:
            self._cursors.pop((row["kind"], row["lane"]), None)
            self._rouse(row["kind"], 1)

    def _enter(self, message: wire.Claim, kinds: Collection[str]) -> Waiter:
        waiter = Waiter(message.session, message.claim_id, frozenset(kinds))
        earlier = self._waiters.get(waiter.key)
        if earlier is not None:
            # The same question again: whoever asked first has hung up.
            earlier.superseded = True
            earlier.woken.set()
        self._waiters[waiter.key] = waiter
        return waiter

    async def _sleep(self, waiter: Waiter, kinds: Sequence[str], left: float) -> None:
        await self._worker(waiter.session)
        due_in = await self._core.db.fetchval(SQL["next_due"], list(kinds)) if kinds else None
        seconds = left if due_in is None else min(left, max(due_in, 0.001))
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(waiter.woken.wait(), seconds)

    def _rouse(self, kind: str, n: int) -> None:
        for waiter in self._waiters.values():
            if n <= 0:
                return
            if kind in waiter.kinds and not waiter.woken.is_set():
                waiter.woken.set()
                n -= 1

    async def _take(self, message: wire.Claim, kinds: Sequence[str], worker: str) -> list[wire.ClaimedJob]:
        limit = min(max(message.limit, 0), MOST_PER_CLAIM)
        submitted = None if message.submitted_limit is None else min(max(message.submitted_limit, 0), MOST_PER_CLAIM)
        if not kinds or (limit == 0 and not submitted):
            return []
        self._claims += 1
        rows = await self._run(message, kinds, worker, limit, submitted)
        if not rows:
            rows = await self._core.db.fetch(SQL["claimed_before"], message.session, message.claim_id)
            return await self._wire(rows)
        self._advance(rows)
        if len(rows) >= limit:
            for kind in {row["kind"] for row in rows}:
                self._rouse(kind, 1)
        self._core.count_claimed(rows)
        return await self._wire(rows)

    async def _run(
        self, message: wire.Claim, kinds: Sequence[str], worker: str, limit: int, submitted: int | None
    ) -> Sequence[asyncpg.Record]:
        pairs = [(kind, lane) for kind in kinds for lane in LANES]
        arguments = (
            message.session,
            message.claim_id,
            [kind for kind, _ in pairs],
            [lane for _, lane in pairs],
            [self._cursors.get(pair, BEGINNING) for pair in pairs],
            [message.limits.get(kind, MOST_PER_CLAIM) for kind, _ in pairs],
            limit,
            submitted,
            self._claims % EVERY_TENTH == 0,
            worker,
        )
        for _ in range(3):
            with contextlib.suppress(asyncpg.UniqueViolationError):
                return await self._core.db.fetch(SQL["claim_jobs"], *arguments)
        return []

    def _advance(self, rows: Sequence[asyncpg.Record]) -> None:
        """The oldest row taken was the oldest there was: nothing before it is worth walking again."""
        oldest: dict[tuple[str, int], datetime] = {}
        for row in rows:
            key = (row["kind"], row["lane"])
            if key not in oldest or row["due_at"] < oldest[key]:
                oldest[key] = row["due_at"]
        for key, due_at in oldest.items():
            self._cursors[key] = max(due_at - SLACK, self._cursors.get(key, BEGINNING))

    async def _take_only(self, message: wire.Claim, kinds: Sequence[str], worker: str) -> wire.Claimed:
        rows = await self._core.db.fetch(
            SQL["claim_only"], message.session, message.claim_id, message.only, list(kinds), message.limit, worker
        )
        related = bool(rows) or bool(await self._core.db.fetchval(SQL["any_related"], message.only))
        return wire.Claimed(jobs=await self._wire(rows), open=related)

    async def _worker(self, session: UUID) -> str:
        row = await self._core.db.fetchrow(SESSIONS["session"], session)
        if row is None:
            self._workers.pop(session, None)
            raise SessionUnknown(str(session))
        if len(self._workers) > 10_000:
            self._workers.clear()
        self._workers[session] = row["worker_id"]
        return str(row["worker_id"])

    async def _wire(self, rows: Sequence[asyncpg.Record]) -> list[wire.ClaimedJob]:
        jobs = [self._claimed_job(row) for row in sorted(rows, key=lambda row: (row["lane"], row["due_at"], row["id"]))]
        for job in jobs:
            kind = self._core.kinds.get(job.kind)
            if kind is not None and kind.secrets is not None:
                payload = kind.payload.model_validate_json(bytes(job.payload))
                async with self._core.db.transaction() as tx:
                    job.secrets = dict(await kind.secrets(tx, payload))
        return jobs

    def _claimed_job(self, row: asyncpg.Record) -> wire.ClaimedJob:
        kind = self._core.kinds.get(row["kind"])
        job = wire.ClaimedJob(
            id=row["id"],
            attempt_id=row["attempt_id"],
            kind=row["kind"],
            payload=msgspec.Raw(row["payload"].encode()),
            saved=msgspec.Raw(row["saved"].encode()) if row["saved"] is not None else msgspec.Raw(b"null"),
            owner=row["owner"],
            turn_count=row["turn_count"],
            failure_count=row["failure_count"],
            lost_count=row["lost_count"],
            role=row["role"],
            tags=row["tags"],
            waiting_on=row["waiting_on"],
            cleanup_of=row["cleanup_of"],
            parent_id=row["parent_id"],
            submitted=row["lane"] == 0,
            traceparent=row["traceparent"],
        )
        if kind is not None:
            job.turn_timeout = _seconds(kind.turn_timeout)
            job.stall_timeout = _seconds(kind.stall_timeout)
            if kind.total_timeout is not None:
                job.total_left = kind.total_timeout.total_seconds() - row["age_seconds"]
            if kind.stall_timeout is not None:
                job.stall_left = kind.stall_timeout.total_seconds() - row["unsaved_seconds"]
        return job


def _seconds(duration: timedelta | None) -> float | None:
    return None if duration is None else duration.total_seconds()
