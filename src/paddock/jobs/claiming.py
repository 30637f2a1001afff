"""Claims: one statement, a cursor for each (kind, lane), and waiters that hold no connection.

A waiting worker is woken by whatever makes a job of its kinds due: this process directly, other replicas by
notification, a timer for what is due later, and as the safety net a sweep that looks without cursors.
"""

import asyncio
import contextlib
import secrets
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from operator import itemgetter
from typing import TYPE_CHECKING
from uuid import UUID

import asyncpg

from paddock.db.pool import DEADLOCKS, statements
from paddock.jobs import wire
from paddock.jobs.cursors import Cursors, Pair
from paddock.jobs.handing_out import handed_out
from paddock.jobs.kinds import Shares
from paddock.jobs.link import SessionUnknown
from paddock.jobs.model import NORMAL
from paddock.jobs.waiters import Waiter, Waiters
from paddock.jobs.wakeups import Wake

if TYPE_CHECKING:
    from paddock.jobs.core import Core

SQL = statements("paddock.jobs.sql", "claiming.sql")
SESSIONS = statements("paddock.jobs.sql", "sessions.sql")
LANES = range(5)
MOST_PER_CLAIM = 1_000
LONGEST_WAIT = 30.0
SWEEP_SECONDS = 5.0
# How often a session that may take nothing, because it is quiet or its lease is over, looks whether it may again.
BARRED_SECONDS = 1.0
MOST_WORKERS = 10_000
EVERY_TENTH = 10
# The order in which a worker gets them.
ORDER = itemgetter("lane", "due_at", "id")


@dataclass(slots=True)
class _Worker:
    name: str
    # Claims that brought something: every tenth looks for the oldest. Counted for each worker, or two that take
    # turns could always meet the same numbers.
    claims: int = 0


class Claims:
    def __init__(self, core: "Core") -> None:
        self._core = core
        self._workers: dict[UUID, _Worker] = {}
        self.cursors = Cursors()
        self.waiters = Waiters()
        self._sweep_due = 0.0
        # Set once whoever waits for something in this process should be answered now.
        self.closing = asyncio.Event()

    async def claim(self, message: wire.Claim, allowed: Collection[str]) -> wire.Claimed:
        """Up to `limit` due jobs; waits up to `wait_seconds` for the first. A lost answer is asked for again
        with the same claim_id and gets the same attempts."""
        kinds = [kind for kind in dict.fromkeys(message.kinds) if kind in allowed]
        worker = self._workers.get(message.session) or await self._worker(message.session)
        deadline = time.monotonic() + min(max(message.wait_seconds, 0.0), LONGEST_WAIT)
        waiter = self.waiters.enter(message, kinds)
        waited = False
        try:
            while True:
                wakes, everything = waiter.take_wakes()
                # Of the other kinds nothing has become due since it last looked.
                sought = kinds if everything else [kind for kind in kinds if any(kind == woken for woken, _ in wakes)]
                try:
                    claimed = await self._look(message, sought, allowed, worker, waited)
                except BaseException:
                    waiter.wakes |= wakes
                    raise
                claimed.lost = waiter.lost
                left = deadline - time.monotonic()
                through = bool(message.only) and not claimed.open
                if claimed.jobs or through or waiter.lost or waiter.superseded or self.closing.is_set() or left <= 0:
                    return claimed
                await self._sleep(waiter, kinds, wakes, left)
                waited = True
        finally:
            self.waiters.leave(waiter)

    async def _look(
        self, message: wire.Claim, kinds: Sequence[str], allowed: Collection[str], worker: _Worker, waited: bool
    ) -> wire.Claimed:
        if message.only:
            return await self._take_only(message, kinds, allowed, worker)
        return wire.Claimed(jobs=await self._take(message, kinds, allowed, worker, waited))

    def wake(self, wakes: Iterable[Wake]) -> None:
        """Lowers the cursors to what became due and wakes as many waiters as there are jobs."""
        for wake in wakes:
            pair = (wake.kind, wake.lane)
            self.cursors.lower(pair, wake.due_at)
            if wake.due_in <= 0:
                self.waiters.rouse(pair, wake.n)
            elif wake.due_in <= LONGEST_WAIT:
                self.waiters.rouse_later(pair, wake.due_in, wake.n)

    def cancelled(self, sessions: Mapping[UUID, Sequence[UUID]]) -> None:
        self.waiters.cancelled(sessions)

    def forget_cursors(self) -> None:
        """Wake-ups may have been missed: the next claims look from the beginning."""
        self.cursors.forget_all()
        self.waiters.rouse_all()

    def close(self) -> None:
        self.closing.set()
        self.waiters.rouse_all()

    async def sweep(self) -> None:
        """Looks without cursors, rarely enough to cost at most one percent of a core. Also when nobody waits: workers
        that never wait would never see what the cursors have passed."""
        kinds = {kind for waiter in self.waiters for kind in waiter.kinds | waiter.submitted_kinds}
        kinds |= {kind for kind, _ in self.cursors.reached}
        if not kinds or time.monotonic() < self._sweep_due:
            return
        began = time.monotonic()
        due = await self._core.db.fetch(SQL["due_kinds"], sorted(kinds))
        took = time.monotonic() - began
        self._sweep_due = time.monotonic() + max(SWEEP_SECONDS, 100 * took)
        for row in due:
            pair = (row["kind"], row["lane"])
            self.cursors.forget(pair)
            self.waiters.rouse(pair, 1)

    async def _sleep(self, waiter: Waiter, kinds: Sequence[str], wakes: Collection[Pair], left: float) -> None:
        session = await self._session(waiter.session)
        waiter.barred = bool(session["quiet"] or not session["live"])
        if waiter.barred:
            # A frozen worker's call stays open, and would swallow the wake-ups of those who can work.
            self.waiters.pass_on(wakes)
            left = min(left, BARRED_SECONDS)
        due_in = await self._core.db.fetchval(SQL["next_due"], list(kinds)) if kinds else None
        now = time.monotonic()
        if due_in is not None:
            waiter.look_by = min(waiter.look_by, now + max(due_in, 0.001))
        seconds = min(left, max(waiter.look_by - now, 0.0))
        with contextlib.suppress(TimeoutError):
            # Not wait_for: before Python 3.12 it swallows a cancel that comes with the wake-up, and the claim would
            # take a job for somebody who has hung up.
            async with asyncio.timeout(seconds):
                await waiter.woken.wait()

    async def _take(
        self, message: wire.Claim, kinds: Sequence[str], allowed: Collection[str], worker: _Worker, waited: bool
    ) -> list[wire.ClaimedJob]:
        limit = _bounded(message.limit)
        submitted = None if message.submitted_limit is None else _bounded(message.submitted_limit)
        if not kinds:
            return []
        rows = await self._run(message, kinds, worker, limit, submitted) if limit or submitted else ()
        if not rows:
            # While it waits too: the same claim may have come a second time and been faster. And without room: a worker
            # that stops asks so for what an answer it did not wait for may have brought.
            return await self._taken_before(message, allowed)
        worker.claims += 1
        self._core.count_claimed(rows)
        if waited:
            self._core.measure_wakeups(rows)
        return await handed_out(self._core, rows)

    async def _taken_before(self, message: wire.Claim, allowed: Collection[str]) -> list[wire.ClaimedJob]:
        """A session and a claim are anybody's who names them: what another token took is not handed out to this one."""
        taken = await self._core.db.fetch(SQL["claimed_before"], message.session, message.claim_id)
        rows = [row for row in taken if row["kind"] in allowed]
        return await handed_out(self._core, sorted(rows, key=ORDER)) if rows else []

    async def _run(
        self, message: wire.Claim, kinds: Sequence[str], worker: _Worker, limit: int, submitted: int | None
    ) -> Sequence[asyncpg.Record]:
        shared = [kind for kind in kinds if self._shares(kind) is not None]
        if not shared:
            return await self._run_plain(message, kinds, worker, limit, submitted)
        plain = [kind for kind in kinds if kind not in shared]
        runs = [
            partial(self._run_shared, message, shared, worker, limit),
            partial(self._run_plain, message, plain, worker, limit, submitted),
        ]
        # By turns, so that neither keeps the other waiting.
        for run in runs if worker.claims % 2 == 0 else reversed(runs):
            if rows := await run():
                return rows
        return ()

    async def _run_shared(
        self, message: wire.Claim, kinds: Sequence[str], worker: _Worker, limit: int
    ) -> Sequence[asyncpg.Record]:
        if not limit:
            return ()
        shares = [shares for kind in kinds if (shares := self._shares(kind)) is not None]
        rows = await self._claimed_rows(
            "claim_shared",
            message.session,
            message.claim_id,
            list(kinds),
            [_most(message, kind, NORMAL) for kind in kinds],
            [share.of_owner for share in shares],
            [share.of_key for share in shares],
            secrets.token_hex(16),
            limit,
            worker.name,
        )
        if len(rows) >= limit:
            for pair in {(row["kind"], row["lane"]) for row in rows}:
                self.waiters.rouse(pair, 1)
        return rows

    def _shares(self, kind: str) -> Shares | None:
        known = self._core.kinds.get(kind)
        return None if known is None else known.shares

    async def _run_plain(
        self, message: wire.Claim, kinds: Sequence[str], worker: _Worker, limit: int, submitted: int | None
    ) -> Sequence[asyncpg.Record]:
        if not kinds:
            return ()
        pairs = [(kind, lane) for kind in kinds for lane in LANES]
        arguments = (
            message.session,
            message.claim_id,
            [kind for kind, _ in pairs],
            [lane for _, lane in pairs],
            [self.cursors.get(pair) for pair in pairs],
            [_most(message, kind, lane) for kind, lane in pairs],
            limit,
            submitted,
            worker.claims % EVERY_TENTH == EVERY_TENTH - 1,
            worker.name,
            secrets.token_hex(16),
        )
        with self.cursors.flight() as flight:
            rows = await self._claimed_rows("claim_jobs", *arguments)
        oldest = {(row["kind"], row["lane"]): row["due_at"] for row in reversed(rows)}
        self.cursors.advance(oldest, flight)
        if len(rows) >= limit:
            for pair in oldest:
                self.waiters.rouse(pair, 1)
        return rows

    async def _claimed_rows(self, name: str, *arguments: object) -> Sequence[asyncpg.Record]:
        """What a claim took. Two claims of a serial kind at once: the loser violates jobs_serial, or with two such kinds
        they lock each other out, and looks again. Then it sees the winner's. So does a claim that a pull-back of the
        clock locks out."""
        for _ in range(3):
            with contextlib.suppress(asyncpg.UniqueViolationError, *DEADLOCKS):
                return sorted(await self._core.db.fetch(SQL[name], *arguments), key=ORDER)
        return []

    async def _take_only(
        self, message: wire.Claim, kinds: Sequence[str], allowed: Collection[str], worker: _Worker
    ) -> wire.Claimed:
        rows = await self._claimed_rows(
            "claim_only",
            message.session,
            message.claim_id,
            message.only,
            list(kinds),
            _bounded(message.limit),
            worker.name,
            secrets.token_hex(16),
        )
        jobs = await handed_out(self._core, rows) if rows else await self._taken_before(message, allowed)
        related = bool(jobs) or bool(await self._core.db.fetchval(SQL["any_related"], message.only))
        return wire.Claimed(jobs=jobs, open=related)

    async def _worker(self, session: UUID) -> _Worker:
        row = await self._session(session)
        if len(self._workers) > MOST_WORKERS:
            self._workers.clear()
        return self._workers.setdefault(session, _Worker(str(row["worker_id"])))

    async def _session(self, session: UUID) -> asyncpg.Record:
        row = await self._core.db.fetchrow(SESSIONS["session"], session)
        if row is None:
            self._workers.pop(session, None)
            raise SessionUnknown(str(session))
        return row


def _bounded(limit: int) -> int:
    return min(max(limit, 0), MOST_PER_CLAIM)


def _most(message: wire.Claim, kind: str, lane: int) -> int:
    """`limits` bound a kind's own slots: where submitted jobs have others, they do not count for them."""
    if lane == 0 and message.submitted_limit is not None:
        return MOST_PER_CLAIM
    return _bounded(message.limits.get(kind, MOST_PER_CLAIM))
