"""Claims: one statement, a cursor for each (kind, lane), and waiters that hold no connection.

A waiting worker is woken by whatever makes a job of its kinds due: this process directly, other replicas by
notification, a timer for what is due later, and as the safety net a sweep that looks without cursors.
"""

import asyncio
import contextlib
import secrets
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING
from uuid import UUID

import asyncpg
import msgspec
import structlog

from paddock.db.pool import DEADLOCKS, UNAVAILABLE, statements
from paddock.jobs import fencing, wire
from paddock.jobs.errors import InfrastructureError, PermanentRunnerError
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
# Jobs that become due within so many seconds of each other share a timer.
TIMER_SLICE = 0.005
MOST_WORKERS = 10_000
BEGINNING = datetime(1970, 1, 1, tzinfo=UTC)
EVERY_TENTH = 10
# What a statement of a resolver may get wrong, at every try: the database is not away.
ITS_OWN_FAULT = (
    asyncpg.DataError,
    asyncpg.IntegrityConstraintViolationError,
    asyncpg.SyntaxOrAccessError,
    asyncpg.RaiseError,
)
log = structlog.get_logger()


Pair = tuple[str, int]


@dataclass(eq=False)
class Waiter:
    session: UUID
    claim_id: UUID
    # The kinds of which it may take jobs in lanes 1 to 4, and in lane 0.
    kinds: frozenset[str]
    submitted_kinds: frozenset[str]
    # It waits for certain jobs only: woken by all of their kinds, but no wake-up is spent on it.
    choosy: bool = False
    woken: asyncio.Event = field(default_factory=asyncio.Event)
    # What it was woken for and has not looked for since.
    wakes: set[Pair] = field(default_factory=set)
    lost: list[UUID] = field(default_factory=list)
    superseded: bool = False

    @property
    def key(self) -> tuple[UUID, UUID]:
        return (self.session, self.claim_id)

    def takes(self, pair: Pair) -> bool:
        return pair[0] in (self.kinds if pair[1] else self.submitted_kinds)

    def heed(self) -> set[Pair]:
        """Called before it looks: what becomes due while it looks wakes it again."""
        self.woken.clear()
        wakes, self.wakes = self.wakes, set()
        return wakes


@dataclass(eq=False)
class Flight:
    """A claim statement under way. It may not see what commits meanwhile, so what became due meanwhile bounds how far
    its answer may move the cursors: a job that commits late, far behind its due time, would be passed for good."""

    behind: dict[Pair, datetime] = field(default_factory=dict)
    forgotten: bool = False

    def note(self, pair: Pair, due_at: datetime) -> None:
        self.behind[pair] = min(due_at, self.behind.get(pair, due_at))


@dataclass(slots=True)
class _Worker:
    name: str
    # Claims that brought something: every tenth looks for the oldest. Counted for each worker, or two that take
    # turns could always meet the same numbers.
    claims: int = 0


class Claims:
    def __init__(self, core: "Core") -> None:
        self._core = core
        self._cursors: dict[Pair, datetime] = {}
        self._waiters: dict[tuple[UUID, UUID], Waiter] = {}
        self._workers: dict[UUID, _Worker] = {}
        self._flights: set[Flight] = set()
        # How many become due in each slice of time: one timer each, however many jobs.
        self._timers: dict[tuple[Pair, int], int] = {}
        self._sweep_due = 0.0
        # Set once whoever waits for something in this process should be answered now.
        self.closing = asyncio.Event()

    async def claim(self, message: wire.Claim, allowed: Collection[str]) -> wire.Claimed:
        """Up to `limit` due jobs; waits up to `wait_seconds` for the first. A lost answer is asked for again
        with the same claim_id and gets the same attempts."""
        kinds = [kind for kind in dict.fromkeys(message.kinds) if kind in allowed]
        worker = self._workers.get(message.session) or await self._worker(message.session)
        deadline = time.monotonic() + min(max(message.wait_seconds, 0.0), LONGEST_WAIT)
        waiter = self._enter(message, kinds)
        waited = False
        try:
            while True:
                wakes = waiter.heed()
                try:
                    claimed = await self._look(message, kinds, worker, waited)
                except BaseException:
                    waiter.wakes |= wakes
                    raise
                claimed.lost = waiter.lost
                left = deadline - time.monotonic()
                through = bool(message.only) and not claimed.open
                if claimed.jobs or through or waiter.lost or waiter.superseded or self.closing.is_set() or left <= 0:
                    return claimed
                await self._sleep(waiter, kinds, left)
                waited = True
        finally:
            if self._waiters.get(waiter.key) is waiter:
                del self._waiters[waiter.key]
            # Woken, and gone without looking again (full, hung up, time is up): the job is for somebody else.
            for pair in waiter.wakes:
                self._rouse(pair, 1)

    async def _look(self, message: wire.Claim, kinds: Sequence[str], worker: _Worker, waited: bool) -> wire.Claimed:
        if message.only:
            return await self._take_only(message, kinds, worker)
        return wire.Claimed(jobs=await self._take(message, kinds, worker, waited))

    def wake(self, wakes: Iterable[Wake]) -> None:
        """Lowers the cursors to what became due and wakes as many waiters as there are jobs."""
        for wake in wakes:
            pair = (wake.kind, wake.lane)
            cursor = self._cursors.get(pair)
            if cursor is not None and wake.due_at < cursor:
                self._cursors[pair] = wake.due_at
            for flight in self._flights:
                flight.note(pair, wake.due_at)
            if wake.due_in <= 0:
                self._rouse(pair, wake.n)
            elif wake.due_in <= LONGEST_WAIT:
                self._set_timer(pair, wake.due_in, wake.n)

    def _set_timer(self, pair: Pair, due_in: float, n: int) -> None:
        loop = asyncio.get_running_loop()
        slice_ = int((loop.time() + due_in) / TIMER_SLICE) + 1
        if (pair, slice_) not in self._timers:
            loop.call_at(slice_ * TIMER_SLICE, self._timer_rang, pair, slice_)
        self._timers[pair, slice_] = self._timers.get((pair, slice_), 0) + n

    def _timer_rang(self, pair: Pair, slice_: int) -> None:
        self._rouse(pair, self._timers.pop((pair, slice_)))

    def cancelled(self, sessions: Mapping[UUID, Sequence[UUID]]) -> None:
        """Tells waiting workers at once which of their attempts are over."""
        for waiter in self._waiters.values():
            if waiter.session in sessions:
                waiter.lost.extend(sessions[waiter.session])
                waiter.woken.set()

    def forget_cursors(self) -> None:
        """Wake-ups may have been missed: the next claims look from the beginning."""
        self._cursors.clear()
        for flight in self._flights:
            flight.forgotten = True
        for waiter in self._waiters.values():
            waiter.woken.set()

    def close(self) -> None:
        self.closing.set()
        for waiter in self._waiters.values():
            waiter.woken.set()

    async def sweep(self) -> None:
        """Looks without cursors, rarely enough to cost at most one percent of a core. Also when nobody waits: workers
        that never wait would never see what the cursors have passed."""
        kinds = {kind for waiter in self._waiters.values() for kind in waiter.kinds | waiter.submitted_kinds}
        kinds |= {kind for kind, _ in self._cursors}
        if not kinds or time.monotonic() < self._sweep_due:
            return
        began = time.monotonic()
        due = await self._core.db.fetch(SQL["due_kinds"], sorted(kinds))
        took = time.monotonic() - began
        self._sweep_due = time.monotonic() + max(SWEEP_SECONDS, 100 * took)
        for row in due:
            pair = (row["kind"], row["lane"])
            self._cursors.pop(pair, None)
            for flight in self._flights:
                flight.note(pair, BEGINNING)
            self._rouse(pair, 1)

    def _enter(self, message: wire.Claim, kinds: Collection[str]) -> Waiter:
        roomy = frozenset(kind for kind in kinds if message.limits.get(kind, 1) > 0)
        waiter = Waiter(
            message.session,
            message.claim_id,
            roomy if message.limit > 0 else frozenset(),
            frozenset(kinds) if message.submitted_limit else frozenset(),
            choosy=bool(message.only),
        )
        if message.submitted_limit is None:
            waiter.submitted_kinds = waiter.kinds
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
            # Not wait_for: before Python 3.12 it swallows a cancel that comes with the wake-up, and the claim would
            # take a job for somebody who has hung up.
            async with asyncio.timeout(seconds):
                await waiter.woken.wait()

    def _rouse(self, pair: Pair, n: int) -> None:
        for waiter in self._waiters.values():
            if not waiter.takes(pair):
                continue
            if waiter.choosy:
                waiter.woken.set()
            elif n > 0 and not waiter.woken.is_set():
                waiter.woken.set()
                waiter.wakes.add(pair)
                n -= 1

    async def _take(
        self, message: wire.Claim, kinds: Sequence[str], worker: _Worker, waited: bool
    ) -> list[wire.ClaimedJob]:
        limit = _bounded(message.limit)
        submitted = None if message.submitted_limit is None else _bounded(message.submitted_limit)
        if not kinds:
            return []
        rows = await self._run(message, kinds, worker, limit, submitted) if limit or submitted else ()
        if not rows:
            # Without room too: a worker that stops asks so for what an answer it did not wait for may have brought.
            rows = await self._core.db.fetch(SQL["claimed_before"], message.session, message.claim_id)
            return await self._wire(rows)
        worker.claims += 1
        if len(rows) >= limit:
            for pair in {(row["kind"], row["lane"]) for row in rows}:
                self._rouse(pair, 1)
        self._core.count_claimed(rows)
        if waited:
            self._core.measure_wakeups(rows)
        return await self._wire(rows)

    async def _run(
        self, message: wire.Claim, kinds: Sequence[str], worker: _Worker, limit: int, submitted: int | None
    ) -> Sequence[asyncpg.Record]:
        pairs = [(kind, lane) for kind in kinds for lane in LANES]
        flight = Flight()
        arguments = (
            message.session,
            message.claim_id,
            [kind for kind, _ in pairs],
            [lane for _, lane in pairs],
            [self._cursors.get(pair, BEGINNING) for pair in pairs],
            [_most(message, kind, lane) for kind, lane in pairs],
            limit,
            submitted,
            worker.claims % EVERY_TENTH == EVERY_TENTH - 1,
            worker.name,
            secrets.token_hex(16),
        )
        self._flights.add(flight)
        try:
            rows = await self._one_of_a_serial_kind("claim_jobs", *arguments)
        finally:
            self._flights.discard(flight)
        self._advance(rows, flight)
        return rows

    async def _one_of_a_serial_kind(self, name: str, *arguments: object) -> Sequence[asyncpg.Record]:
        """Two claims of a serial kind at once: the loser violates jobs_serial, or with two such kinds they lock each
        other out, and looks again. Then it sees the winner's."""
        for _ in range(3):
            with contextlib.suppress(asyncpg.UniqueViolationError, *DEADLOCKS):
                return await self._core.db.fetch(SQL[name], *arguments)
        return []

    def _advance(self, rows: Sequence[asyncpg.Record], flight: Flight) -> None:
        """The oldest row taken was the oldest there was: nothing before it is worth walking again."""
        if flight.forgotten:
            return
        oldest: dict[Pair, datetime] = {}
        for row in rows:
            pair = (row["kind"], row["lane"])
            if pair not in oldest or row["due_at"] < oldest[pair]:
                oldest[pair] = row["due_at"]
        for pair, due_at in oldest.items():
            reached = max(due_at - SLACK, self._cursors.get(pair, BEGINNING))
            self._cursors[pair] = min(reached, flight.behind.get(pair, reached))

    async def _take_only(self, message: wire.Claim, kinds: Sequence[str], worker: _Worker) -> wire.Claimed:
        rows = await self._one_of_a_serial_kind(
            "claim_only",
            message.session,
            message.claim_id,
            message.only,
            list(kinds),
            _bounded(message.limit),
            worker.name,
            secrets.token_hex(16),
        )
        if not rows:
            rows = await self._core.db.fetch(SQL["claimed_before"], message.session, message.claim_id)
        related = bool(rows) or bool(await self._core.db.fetchval(SQL["any_related"], message.only))
        return wire.Claimed(jobs=await self._wire(rows), open=related)

    async def _worker(self, session: UUID) -> _Worker:
        row = await self._core.db.fetchrow(SESSIONS["session"], session)
        if row is None:
            self._workers.pop(session, None)
            raise SessionUnknown(str(session))
        if len(self._workers) > MOST_WORKERS:
            self._workers.clear()
        return self._workers.setdefault(session, _Worker(str(row["worker_id"])))

    async def _wire(self, rows: Sequence[asyncpg.Record]) -> list[wire.ClaimedJob]:
        jobs = [self._claimed_job(row) for row in sorted(rows, key=lambda row: (row["lane"], row["due_at"], row["id"]))]
        return [job for job in jobs if await self._got_secrets(job)]

    async def _got_secrets(self, job: wire.ClaimedJob) -> bool:
        kind = self._core.kinds.get(job.kind)
        if kind is None or kind.secrets is None:
            return True
        try:
            payload = kind.payload.model_validate_json(bytes(job.payload))
            async with self._core.db.transaction() as tx:
                job.secrets = dict(await kind.secrets(tx, payload))
            return True
        except Exception as problem:
            if isinstance(problem, UNAVAILABLE) and not isinstance(problem, ITS_OWN_FAULT):
                raise
            # This attempt fails here and now. Raising would lose the answer for the other jobs too, and the repeated
            # claim would raise again: nobody would get anything until the claim is given back, and then the same.
            log.exception("secrets_not_resolved", job=str(job.id), kind=job.kind)
            await fencing.finish(self._core, [_without_secrets(job, problem)])
            return False

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
            age_seconds=row["age_seconds"],
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


def _bounded(limit: int) -> int:
    return min(max(limit, 0), MOST_PER_CLAIM)


def _most(message: wire.Claim, kind: str, lane: int) -> int:
    """`limits` bound a kind's own slots: where submitted jobs have others, they do not count for them."""
    if lane == 0 and message.submitted_limit is not None:
        return MOST_PER_CLAIM
    return _bounded(message.limits.get(kind, MOST_PER_CLAIM))


def _without_secrets(job: wire.ClaimedJob, problem: Exception) -> wire.FinishItem:
    shown = problem.message if isinstance(problem, InfrastructureError) else f"{type(problem).__name__} (see the logs)."
    return wire.FinishItem(
        id=job.id,
        attempt_id=job.attempt_id,
        outcome="permanent" if isinstance(problem, PermanentRunnerError) else "transient",
        error=wire.Error(code="secrets_not_resolved", message=f"Its secrets could not be resolved: {shown}"),
        unclassified=not isinstance(problem, InfrastructureError),
    )
