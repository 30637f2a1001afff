"""The core, assembled: what the API, the background passes and the worker inside `serve` call."""

import asyncio
from collections import Counter as Tally
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TypeVar, cast
from uuid import UUID

import asyncpg

from paddock import metrics as metrics_module
from paddock.db.pool import Database, Transaction, open_database, statements
from paddock.jobs import (
    acting,
    enqueueing,
    events,
    fencing,
    finishing,
    grouping,
    logs,
    reading,
    rescuing,
    schedules,
    sessions,
    wire,
)
from paddock.jobs.beating import Beats
from paddock.jobs.changes import Changes
from paddock.jobs.claiming import Claims
from paddock.jobs.enqueueing import IdempotencyKey, Submitted
from paddock.jobs.events import OwnedEvent
from paddock.jobs.fencing import verdict_on
from paddock.jobs.kinds import Kind, Kinds
from paddock.jobs.link import Link, SessionUnknown
from paddock.jobs.model import Job, JobId, NewEvent, NewJob, SessionId, Verdict
from paddock.jobs.reach import JobKinds, SessionKinds
from paddock.jobs.wakeups import Listener, Message, Notifier, Wake
from paddock.stopping import end

ACTING = statements("paddock.jobs.sql", "acting.sql")
# Lowers no cursor.
FAR = datetime(9999, 1, 1, tzinfo=UTC)
Write = TypeVar("Write", wire.SaveItem, wire.FinishItem, wire.ReleaseItem)


@dataclass(frozen=True, slots=True)
class CoreSettings:
    beat: timedelta = timedelta(seconds=10)
    lease: timedelta = timedelta(seconds=60)
    # A claim older than this that beats do not list is given back.
    claim_grace: timedelta = timedelta(seconds=30)
    timeouts_every: timedelta = timedelta(seconds=10)
    history_kept: timedelta = timedelta(days=30)
    audit_kept: timedelta = timedelta(days=365)
    logs_kept: timedelta = timedelta(days=7)
    webhook_allow_private: bool = False


class Core:
    def __init__(
        self,
        db: Database,
        kinds: Kinds,
        settings: CoreSettings | None = None,
        metrics: metrics_module.Metrics | None = None,
    ) -> None:
        self.db = db
        self.kinds = kinds
        self.settings = settings or CoreSettings()
        self.metrics = metrics or metrics_module.default()
        self.changes = Changes()
        self.claims = Claims(self)
        self.beats = Beats(db, self.settings.lease, self.settings.claim_grace)
        self.notifier = Notifier(db)
        self.job_kinds = JobKinds(db, kinds)
        self.session_kinds = SessionKinds(db, kinds)
        self._known_names: dict[tuple[bool, int], frozenset[str]] = {}

    # What people and programs ask for.

    async def submit(
        self, jobs: Sequence[NewJob], *, public: bool = True, idempotency: IdempotencyKey | None = None
    ) -> Submitted:
        return await enqueueing.submit(self, jobs, public=public, idempotency=idempotency)

    async def enqueue(self, tx: Transaction, jobs: Sequence[NewJob]) -> list[JobId]:
        return await enqueueing.enqueue(self, tx, jobs)

    async def make(self, tx: Transaction, made: Sequence[NewJob | NewEvent] | None, *, owner: str) -> None:
        """The jobs and events that a kind's hook returned; the events are the owner's."""
        found = [OwnedEvent(each, owner) for each in made or () if isinstance(each, NewEvent)]
        await events.emit(self, tx, found)
        await enqueueing.enqueue(self, tx, [each for each in made or () if isinstance(each, NewJob)])

    async def job(self, id: JobId) -> Job | None:
        return await reading.job(self.db, id)

    async def cancel(
        self, ids: Sequence[JobId], *, actor: str, reason: str | None = None, audited: bool = True
    ) -> Mapping[JobId, str]:
        return await acting.cancel(self, ids, actor=actor, reason=reason, audited=audited)

    async def retry(
        self,
        id: JobId,
        *,
        actor: str,
        reason: str | None = None,
        public: bool = True,
        audited: bool = True,
        idempotency: IdempotencyKey | None = None,
    ) -> Job:
        return await acting.retry(
            self, id, actor=actor, reason=reason, public=public, audited=audited, idempotency=idempotency
        )

    async def run_now(self, id: JobId, *, actor: str, audited: bool = True) -> Job:
        return await acting.run_now(self, id, actor=actor, audited=audited)

    async def pause(self, kind: str, *, actor: str, reason: str | None = None) -> None:
        await acting.pause(self, kind, True, actor=actor, reason=reason)

    async def resume(self, kind: str, *, actor: str, reason: str | None = None) -> None:
        await acting.pause(self, kind, False, actor=actor, reason=reason)

    async def drain(self, enabled: bool, *, actor: str, reason: str | None = None) -> None:
        await acting.drain(self, enabled, actor=actor, reason=reason)

    async def quiet(self, session: SessionId, *, actor: str, quiet: bool = True) -> bool:
        return await acting.quiet(self, session, actor=actor, quiet=quiet)

    async def finish_group_hooks(self, kind: str | None = None) -> int:
        """Of groups that ended and were not settled; of one kind, or of all. How many succeeded now."""
        return await grouping.repeat_hooks(self, kind)

    # The passes every replica makes, each a function of one tick.

    async def tick(self) -> int:
        """The rescuer, due schedules and the sweep; once a second."""
        rescued = await rescuing.rescue(self)
        started = await schedules.run_due(self)
        await self.claims.sweep()
        return rescued.given_back + rescued.failed + started

    async def keep_timeouts(self) -> int:
        return await rescuing.keep_timeouts(self)

    # Workers.

    def link(self, *, kinds: Collection[str] | None = None, internal: bool = False) -> "DirectLink":
        """The direct line. `kinds` are those of the caller's token; internal kinds only for the worker inside."""
        allowed = self._names(internal)
        return DirectLink(self, allowed if kinds is None else allowed & frozenset(kinds), kinds, inside=internal)

    def _names(self, internal: bool) -> frozenset[str]:
        """Of the kinds inside, or of the others. Asked for with every call of a worker; a kind may be added at any time."""
        known = self._known_names.get((internal, len(self.kinds)))
        if known is None:
            known = frozenset(kind.name for kind in self.kinds if kind.internal == internal)
            self._known_names[internal, len(self.kinds)] = known
        return known

    # Telling what became true.

    def tell(self, tx: Transaction, rows: Sequence[asyncpg.Record]) -> None:
        """After the commit: wakes workers for rows that carry (id, kind, lane, due_at, due_in), here and elsewhere."""
        if not rows:
            return
        counts: dict[tuple[str, int], Wake] = {}
        for row in rows:
            key = (row["kind"], row["lane"])
            known = counts.get(key)
            n = 1 if known is None else known.n + 1
            first = row if known is None or row["due_at"] < known.due_at else None
            due_at, due_in = (first["due_at"], first["due_in"]) if first is not None else (known.due_at, known.due_in)  # type: ignore[union-attr]
            counts[key] = Wake(row["kind"], row["lane"], due_at, due_in, n)
        wakes = [*counts.values(), *self._freed(kind for kind, _ in counts)]
        ids = [JobId(row["id"]) for row in rows]

        def tell() -> None:
            self.claims.wake(wakes)
            self.notifier.wake(wakes)
            self.changed(ids)

        tx.after_commit.append(tell)

    def tell_ends(self, tx: Transaction, rows: Sequence[asyncpg.Record]) -> None:
        """After the commit: wakes workers for cleanups, tells holders that their attempt is over, and watchers."""
        if not rows:
            return
        wakes = [
            Wake(row["kind"], row["cleanup_lane"], row["cleanup_due_at"], 0.0)
            for row in rows
            if row["cleanup_id"] is not None and row["cleanup_due_at"].year < 9999
        ]
        wakes += self._freed({row["kind"] for row in rows})
        lost: dict[UUID, list[UUID]] = defaultdict(list)
        for row in rows:
            if row["attempt_id"] is not None and row["end_status"] == "cancelled":
                lost[row["session_id"]].append(row["attempt_id"])
        ids = [JobId(row["id"]) for row in rows]

        def tell() -> None:
            if wakes:
                self.claims.wake(wakes)
                self.notifier.wake(wakes)
            if lost:
                self.claims.cancelled(lost)
                self.notifier.cancelled(lost)
            self.changed(ids)

        tx.after_commit.append(tell)

    def tell_completed(self, tx: Transaction, rows: Sequence[asyncpg.Record]) -> None:
        """After the commit: the same for rows of complete_jobs, which leave no cleanup and are nobody's loss."""
        ids = [JobId(row["id"]) for row in rows]
        kinds = Tally(row["kind"] for row in rows)
        wakes = self._freed(kinds)

        def tell() -> None:
            if wakes:
                self.claims.wake(wakes)
                self.notifier.wake(wakes)
            self.changed(ids)
            for kind, n in kinds.items():
                self.metrics.finishes(kind, "done").inc(n)

        tx.after_commit.append(tell)

    def _freed(self, kinds: Iterable[str]) -> list[Wake]:
        """Whatever one of a serial kind, or of one with shares, ended or gave up its turn for, another that was due all
        along may go now."""
        bounded = {
            name
            for name in kinds
            if (kind := self.kinds.get(name)) is not None and (kind.serial or kind.shares is not None)
        }
        return [Wake(name, lane, FAR, 0.0) for name in bounded for lane in (0, 1)]

    def changed(self, ids: Iterable[JobId] | Iterable[UUID]) -> None:
        known = cast("list[JobId]", list(ids))
        self.changes.record(known)
        self.notifier.changed(known)

    def look_again(self) -> None:
        """What was due all along may be claimed now, here and elsewhere."""
        self.claims.forget_cursors()
        self.notifier.look()

    def heard(self, message: Message) -> None:
        """From another replica."""
        if message.look:
            self.claims.forget_cursors()
        self.claims.wake(message.wakes)
        for session, attempt in message.lost:
            self.claims.cancelled({session: [attempt]})
        if message.overflow:
            self.changes.forget()
        elif message.changed:
            self.changes.record(JobId(UUID(id)) for id in message.changed)

    # Counting.

    # After the commit: a transaction that deadlocks is repeated, and what it would have done was not done.

    def count_enqueued(self, tx: Transaction, kinds: Iterable[str]) -> None:
        counted = [(kind,) for kind in kinds]
        tx.after_commit.append(lambda: metrics_module.count_all(self.metrics.jobs_enqueued, counted))

    def count_claimed(self, rows: Sequence[asyncpg.Record]) -> None:
        metrics_module.count_all(self.metrics.claims, ((row["kind"],) for row in rows))
        self.metrics.claim_batch_size.observe(len(rows))
        self.changed(row["id"] for row in rows)

    def measure_wakeups(self, rows: Sequence[asyncpg.Record]) -> None:
        for row in rows:
            self.metrics.wakeup_latency.observe((row["claimed_at"] - row["due_at"]).total_seconds())

    def count_finished(
        self, tx: Transaction, rows: Sequence[asyncpg.Record], accepted: Sequence[wire.FinishItem]
    ) -> None:
        kinds = {row["id"].int: row["kind"] for row in rows}
        counted = [(kinds[item.id.int], item.outcome) for item in accepted]
        tx.after_commit.append(lambda: metrics_module.count_all(self.metrics.finishes, counted))

    def count_events(self, tx: Transaction, types: Sequence[str]) -> None:
        counted = [(type,) for type in types]
        tx.after_commit.append(lambda: metrics_module.count_all(self.metrics.events, counted))

    def count_rescued(self, reason: str, kinds: Iterable[str]) -> None:
        """`kinds` has the kind of each job."""
        named = list(kinds)
        metrics_module.count_all(self.metrics.rescued, ((kind, reason) for kind in named))
        for name in named:
            if (kind := self.kinds.get(name)) is not None and kind.on_rescued is not None:
                kind.on_rescued(reason)

    def judged(self, operation: str, verdicts: list[wire.ItemVerdict]) -> list[wire.ItemVerdict]:
        metrics_module.count_all(self.metrics.verdicts, ((operation, verdict.verdict) for verdict in verdicts))
        return verdicts


class DirectLink(Link):
    """The same line as over HTTP, without it: for the worker inside `serve`, and behind the internal routes."""

    def __init__(
        self, core: Core, allowed: Collection[str], token_kinds: Collection[str] | None = None, *, inside: bool
    ) -> None:
        self._core = core
        # What it may claim: of its token's kinds those that this process knows. What it claimed elsewhere it may end here.
        self._allowed = allowed
        self._token_kinds = token_kinds
        self._inside = inside

    async def register(self, message: wire.Register) -> wire.Registered:
        return await sessions.register(self._core, message, self._allowed)

    async def claim(self, message: wire.Claim) -> wire.Claimed:
        await self._check_session(message.session)
        return await self._core.claims.claim(message, self._allowed)

    async def beat(self, session: UUID, message: wire.Beat) -> wire.Verdicts:
        await self._check_session(session)
        barred = await self._barred([item for item in message.holding if item.report is not None])
        for item in message.holding:
            if item.id.int in barred:
                item.report = None
        return await sessions.beat(self._core, session, message)

    async def save(self, message: wire.Save) -> wire.Verdicts:
        return await self._written(message.items, partial(fencing.save, self._core))

    async def finish(self, message: wire.Finish) -> wire.Verdicts:
        finish = partial(finishing.finish, self._core, declared_only=not self._inside)
        return await self._written(message.items, finish)

    async def release(self, message: wire.Release) -> wire.Verdicts:
        return await self._written(message.items, partial(fencing.release, self._core))

    async def logs(self, message: wire.Logs) -> None:
        barred = await self._barred(message.items)
        await logs.append(self._core.db, [item for item in message.items if item.id.int not in barred])

    def may_know(self, kind: str) -> bool:
        """Whether a job of this kind is anything to this token."""
        return self._token_kinds is None or kind in self._token_kinds

    async def _written(
        self, items: Sequence[Write], write: Callable[[Sequence[Write]], Awaitable[list[wire.ItemVerdict]]]
    ) -> wire.Verdicts:
        """A verdict for each, in their order. For this token there are no jobs but those it reaches."""
        barred = await self._barred(items)
        if not barred:
            return wire.Verdicts(verdicts=await write(items))
        verdicts = iter(await write([item for item in items if item.id.int not in barred]))
        return wire.Verdicts(
            verdicts=[verdict_on(item, Verdict.UNKNOWN) if item.id.int in barred else next(verdicts) for item in items]
        )

    async def _barred(
        self, items: Iterable[wire.Held | wire.SaveItem | wire.FinishItem | wire.ReleaseItem | wire.LogItem]
    ) -> set[int]:
        if self._inside:
            return set()
        return await self._core.job_kinds.out_of_reach([item.id for item in items], self._token_kinds)

    async def _check_session(self, session: UUID) -> None:
        """Another token's session is none to this one. A worker whose token was exchanged for a narrower one registers anew."""
        if not self._inside and not await self._core.session_kinds.within_reach(session, self._token_kinds):
            raise SessionUnknown(str(session))

    async def close(self) -> None:
        """Nothing of its own to close."""


async def declare_kinds(db: Database, kinds: Iterable[Kind]) -> None:
    """Writes what the code says about each kind where the statements need it. The last to start wins."""
    known = sorted(kinds, key=lambda kind: kind.name)
    columns: list[list[object]] = [
        [kind.name for kind in known],
        [kind.retry.first for kind in known],
        [kind.retry.cap for kind in known],
        [kind.retry.limit for kind in known],
        [kind.retry.cluster_limit for kind in known],
        [kind.retry.loss_limit for kind in known],
        [kind.turn_timeout for kind in known],
        [kind.total_timeout for kind in known],
        [kind.stall_timeout for kind in known],
        [kind.patience for kind in known],
        [kind.may_repeat for kind in known],
        [kind.serial for kind in known],
        [kind.internal for kind in known],
        [kind.housekeeping for kind in known],
        [kind.cleanup is not None for kind in known],
        [kind.on_end is not None or kind.on_cleanup_end is not None for kind in known],
        [None if kind.submit is None else ",".join(sorted(kind.submit)) for kind in known],
    ]
    await db.execute(ACTING["declare_kinds"], *columns)


@asynccontextmanager
async def open_core(
    dsn: str,
    kinds: Kinds,
    settings: CoreSettings | None = None,
    *,
    metrics: metrics_module.Metrics | None = None,
    durable: int = 10,
    relaxed: int = 10,
) -> AsyncIterator[Core]:
    """A core on a migrated database, with its notifier and listener running."""
    async with open_database(dsn, durable=durable, relaxed=relaxed) as db:
        core = Core(db, kinds, settings, metrics)
        await declare_kinds(db, kinds)

        def missed() -> None:
            core.changes.forget()
            core.claims.forget_cursors()

        listener = Listener(dsn, core.notifier.replica, core.heard, missed)
        tasks = [asyncio.create_task(core.notifier.run()), asyncio.create_task(listener.run())]
        try:
            await listener.begun.wait()
            yield core
        finally:
            core.claims.close()
            await end(*tasks)


__all__ = ["Core", "CoreSettings", "DirectLink", "IdempotencyKey", "Submitted", "Verdict", "open_core"]
