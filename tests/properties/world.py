"""One database, its clock and two replicas of the core, used by every run of the machine after it was swept clean."""

import asyncio
from collections import Counter
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from datetime import timedelta
from typing import Any, TypeVar
from uuid import UUID

import asyncpg
from prometheus_client import CollectorRegistry

from paddock.db.pool import open_database
from paddock.jobs.claiming import Claims
from paddock.jobs.core import Core, CoreSettings, declare_kinds
from paddock.jobs.kinds import Kinds
from paddock.jobs.model import JobId
from paddock.jobs.wakeups import Notifier, Wake
from paddock.metrics import Metrics
from tests.conftest import DatabaseClock, Server, take_clock
from tests.properties.kinds import KINDS, Switches
from tests.properties.model import BEAT, CLAIM_GRACE, LEASE, Model
from tests.properties.rows import Snapshot, read_snapshot

T = TypeVar("T")

# Ids that are made in one instant must sort the same in every replay, and backoff must not wander.
REPEATABLE = """
CREATE SEQUENCE test_ids;
CREATE OR REPLACE FUNCTION paddock_id(at timestamptz, n bigint DEFAULT 0, random uuid DEFAULT gen_random_uuid())
    RETURNS uuid LANGUAGE sql VOLATILE
    RETURN (lpad(to_hex((extract(epoch FROM at) * 1000)::bigint), 12, '0') || '7' || lpad(to_hex(n & 4095), 3, '0')
            || '8' || lpad(to_hex(nextval('test_ids')), 15, '0'))::uuid;
CREATE FUNCTION public.random() RETURNS float8 LANGUAGE sql IMMUTABLE RETURN 0.5::float8;
CREATE TABLE test_end_hooks (job_id uuid, status text);
CREATE TABLE test_group_hooks (group_id uuid, failed int);
"""

SWEEP = """
DELETE FROM jobs; DELETE FROM job_history; DELETE FROM job_timeline; DELETE FROM groups; DELETE FROM sessions;
DELETE FROM events; DELETE FROM deliveries; DELETE FROM webhooks; DELETE FROM idempotency_keys; DELETE FROM audit_log;
DELETE FROM test_end_hooks; DELETE FROM test_group_hooks;
UPDATE kinds SET paused = false;
UPDATE service SET drained = false, served_at = paddock_now(), resumed_at = paddock_now() - interval '1 day';
"""


class Relay(Notifier):
    """Tells the other replica at once: which of two replicas a worker asks must make no difference."""

    peer: Core

    def wake(self, wakes: Iterable[Wake]) -> None:
        self.peer.claims.wake(list(wakes))

    def cancelled(self, sessions: Mapping[UUID, Sequence[UUID]]) -> None:
        self.peer.claims.cancelled(sessions)

    def changed(self, ids: Iterable[JobId]) -> None:
        pass


class World:
    def __init__(self, server: Server) -> None:
        self._server = server
        self._loop = asyncio.new_event_loop()
        self._opened = AsyncExitStack()
        self.cores: list[Core] = []
        self.steps = 0
        # What the schedules reached, by name: a test that no longer gets anywhere must not pass.
        self.seen: Counter[str] = Counter()
        self.connection: asyncpg.Connection[asyncpg.Record]
        self.clock: DatabaseClock

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self._loop.run_until_complete(work)

    async def open(self) -> None:
        dsn = await self._server.create_database("properties", "paddock_template")
        self.connection = await asyncpg.connect(dsn)
        self._opened.push_async_callback(self.connection.close)
        await self.connection.execute(REPEATABLE)
        # What is named before pg_catalog hides its namesake there.
        await self.connection.execute("ALTER DATABASE properties SET search_path = public, pg_catalog")
        self.clock = await take_clock(self.connection)
        db = await self._opened.enter_async_context(open_database(dsn, durable=5, relaxed=5))
        kinds, settings = Kinds(KINDS), CoreSettings(beat=BEAT, lease=LEASE, claim_grace=CLAIM_GRACE)
        await declare_kinds(db, kinds)
        self.cores = [Core(db, kinds, settings, Metrics(CollectorRegistry())) for _ in range(2)]
        for core, peer in zip(self.cores, reversed(self.cores), strict=True):
            core.notifier = relay = Relay(db)
            relay.peer = peer

    async def close(self) -> None:
        await self._opened.aclose()
        await self._server.drop_database("properties")

    def __enter__(self) -> "World":
        self.run(self.open())
        return self

    def __exit__(self, *_: object) -> None:
        self.run(self.close())
        self._loop.close()

    async def start(self) -> Model:
        """A clean slate for one run."""
        Switches.end_hook_raises = Switches.group_hook_raises = False
        for core in self.cores:
            core.claims = Claims(core)
        await self.clock.advance(minutes=1)
        await self.connection.execute(SWEEP)
        return Model(self.clock.at, self.clock.at, self.clock.at - timedelta(days=1))

    async def advance(self, model: Model, seconds: float) -> None:
        await self.clock.advance(seconds=seconds)
        model.now = self.clock.at

    async def look(self) -> Snapshot:
        return await read_snapshot(self.connection)
