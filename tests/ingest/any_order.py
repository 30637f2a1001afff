"""Random schedules of everything that can happen to runs of one source, as a state machine of hypothesis.

Workers are played: no command runs. A fetch gives batches of some bytes, and a small bound holds the run now and then.
"""

import asyncio
from collections import Counter
from collections.abc import Coroutine
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar
from uuid import UUID, uuid4

import asyncpg
import orjson
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule
from prometheus_client import CollectorRegistry

from paddock.config import Config
from paddock.db.pool import open_database
from paddock.ingest import kinds as ingest_kinds
from paddock.ingest import runs
from paddock.ingest.model import Run
from paddock.ingest.runs import NewRun
from paddock.ingest.settings import IngestSettings
from paddock.jobs import bulk, events, grouping, wire
from paddock.jobs.claiming import Claims
from paddock.jobs.core import Core, CoreSettings, declare_kinds
from paddock.jobs.errors import Refused
from paddock.jobs.kinds import Kind, Kinds
from paddock.jobs.model import AttemptId, Event, JobId
from paddock.jobs.outcomes import Done
from paddock.jobs.turn import Turn
from paddock.metrics import Metrics
from tests.conftest import DatabaseClock, Server, take_clock
from tests.ingest.checking import Checking
from tests.playing import Attempt, PlayedWorker, served
from tests.properties.world import REPEATABLE

T = TypeVar("T")
DATABASE = "ingest_properties"
SOURCE = "numbers"
STEPS = ("run_ingester", "run_hooks", "publish_batch")
MIB = 1 << 20
WAITING_BYTES = 16 * MIB
SWEEP = """
DELETE FROM jobs; DELETE FROM job_history; DELETE FROM job_timeline; DELETE FROM groups; DELETE FROM sessions;
DELETE FROM events; DELETE FROM deliveries; DELETE FROM audit_log;
DELETE FROM ingest_files; DELETE FROM ingest_runs; DELETE FROM ingest_sessions;
UPDATE service SET served_at = paddock_now(), resumed_at = paddock_now() - interval '1 day';
"""


class Switches:
    end_raises = False
    group_end_raises = False


def may_raise(kind: Kind) -> Kind:
    """The same kind, whose hooks fail while the switches say so."""
    on_end, on_group_end = kind.on_end, kind.on_group_end

    async def ended(tx: Any, job: Any) -> Any:
        made = None if on_end is None else await on_end(tx, job)
        if Switches.end_raises:
            raise RuntimeError("the end was told to fail")
        return made

    async def group_ended(tx: Any, group: Any) -> Any:
        made = None if on_group_end is None else await on_group_end(tx, group)
        if Switches.group_end_raises:
            raise RuntimeError("the group's end was told to fail")
        return made

    return replace(kind, on_end=ended, on_group_end=None if on_group_end is None else group_ended)


class World:
    """One database with its clock and a core, swept clean before every run of the machine."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._loop = asyncio.new_event_loop()
        self._opened = AsyncExitStack()
        self.seen: Counter[str] = Counter()
        self.core: Core
        self.clock: DatabaseClock
        self.connection: asyncpg.Connection[asyncpg.Record]

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self._loop.run_until_complete(work)

    async def open(self) -> None:
        dsn = await self._server.create_database(DATABASE, "paddock_template")
        self.connection = await asyncpg.connect(dsn)
        self._opened.push_async_callback(self.connection.close)
        await self.connection.execute(REPEATABLE)
        await self.connection.execute(f"ALTER DATABASE {DATABASE} SET search_path = public, pg_catalog")
        self.clock = await take_clock(self.connection)
        db = await self._opened.enter_async_context(open_database(dsn, durable=4, relaxed=2))
        config = Config().with_settings(IngestSettings(waiting_bytes=WAITING_BYTES))
        internal = ingest_kinds.internal_kinds(config)
        kinds = Kinds([*map(may_raise, ingest_kinds.step_kinds(config)), *internal, bulk.BULK])
        await declare_kinds(db, kinds)
        self.core = Core(db, kinds, CoreSettings(), Metrics(CollectorRegistry()))

    async def start(self) -> None:
        Switches.end_raises = Switches.group_end_raises = False
        self.core.claims = Claims(self.core)
        await self.clock.advance(minutes=1)
        await self.connection.execute(SWEEP)

    async def close(self) -> None:
        await self._opened.aclose()
        await self._server.drop_database(DATABASE)

    def __enter__(self) -> "World":
        self.run(self.open())
        return self

    def __exit__(self, *_: object) -> None:
        self.run(self.close())
        self._loop.close()


class Silent:
    """A turn of the control plane's own worker says nothing here."""

    async def save(self, state: Any, *, progress: bool) -> None:
        pass

    def save_blocking(self, state: Any, *, progress: bool) -> None:
        pass

    def report(self, progress: Any) -> None:
        pass

    def log(self, level: str, message: str, fields: Any) -> None:
        pass


@dataclass(frozen=True)
class Fetch:
    """What a played ingester gives."""

    bytes: tuple[int, ...]
    moves: bool
    has_more: bool
    cut: bool


FETCHES = st.builds(
    Fetch,
    st.lists(st.sampled_from([MIB, 10 * MIB, 20 * MIB]), max_size=3).map(tuple),
    st.sampled_from([True, True, True, False]),
    st.sampled_from([True, True, True, False]),
    st.sampled_from([False, False, False, True]),
)
PICK = st.integers(0, 1_000)
ENDS = st.sampled_from(["done", "done", "done", "done", "transient", "permanent", "again", "foreign"])


@dataclass
class Play:
    world: World
    checking: Checking
    attempts: list[Attempt] = field(default_factory=list)
    workers: list[PlayedWorker] = field(default_factory=list)
    sessions: int = 0

    @property
    def core(self) -> Core:
        return self.world.core

    async def worker(self) -> PlayedWorker:
        if not self.workers:
            registered = await self.core.link().register(
                wire.Register(worker_id="w", version="test", kinds=list(STEPS), slots=100)
            )
            self.workers.append(PlayedWorker(self.core.link(), registered.session))
        return self.workers[-1]

    async def start(self, **asked: Any) -> None:
        new = NewRun(source=SOURCE, owner="ann", batch_size=10, max_failed_batches=2, **asked)
        try:
            await runs.start(self.core, new, actor="ann")
            self.saw("started")
        except runs.RunActive:
            self.saw("run_active")

    def saw(self, what: str) -> None:
        self.world.seen[what] += 1

    async def claim(self, limit: int) -> None:
        claimed = await (await self.worker()).claim(*STEPS, limit=limit)
        self.attempts += [attempt for attempt in claimed if attempt.job.cleanup_of is None]
        for attempt in claimed:
            if attempt.job.cleanup_of is not None:
                await attempt.finish()

    async def finish(self, attempt: Attempt, end: str, fetch: Fetch) -> None:
        if end == "done" or end == "foreign":
            verdict = await attempt.finish(result=self._result(attempt, fetch, foreign=end == "foreign"))
        elif end == "again":
            verdict = await attempt.finish("again", delay_seconds=10)
        else:
            verdict = await attempt.finish(end)
        self.saw(f"{attempt.job.kind} {end}: {verdict}")

    def _result(self, attempt: Attempt, fetch: Fetch, *, foreign: bool) -> dict[str, Any]:
        payload = orjson.loads(bytes(attempt.job.payload))
        run = uuid4() if foreign else payload["run_id"]
        place = f"ingest/{SOURCE}/{run}/{payload['batch']}/{attempt.job.kind}/{attempt.job.attempt_id}/_manifest.json"
        made: dict[str, Any] = {"manifest": place, "sha256": "0" * 64}
        if attempt.job.kind == "run_hooks":
            return made | {"passed": 1, "rejected": 1, "errors": 1, "hooks": []}
        if attempt.job.kind == "publish_batch":
            return made | {"rows": 1, "rejected": 2, "bytes": 10}
        batches = [made | {"records": 3, "duplicates": 0, "bytes": size} for size in fetch.bytes]
        self.sessions += fetch.moves
        return {
            "batches": batches,
            "secret_session": str(self.sessions),
            "has_more": fetch.has_more,
            "fetched_at": "2026-11-16T09:30:00Z",
            "cut": fetch.cut and bool(batches),
        }

    async def all_runs(self) -> list[Run]:
        return await runs.page(self.core.db, [SOURCE], statuses=None)

    async def batch_of(self, run: Run, pick: int, *statuses: str) -> int | None:
        found = await runs.batches(self.core.db, run, statuses=statuses or None)
        return found[pick % len(found)].n if found else None

    async def redeliver(self, pick: int) -> None:
        rows = await self.world.connection.fetch("SELECT * FROM events ORDER BY id")
        heard = [row for row in rows if self.core.kinds.hearing(row["type"])]
        if not heard:
            return
        row = heard[pick % len(heard)]
        event = Event(**{**row, "data": orjson.loads(row["data"])})
        for kind in self.core.kinds.hearing(event.type):
            try:
                async with self.core.db.transaction() as tx:
                    made = await events.deliver_to_kind(self.core, tx, kind, event)
                self.saw(f"redelivered: {'made' if made else 'nothing'}")
            except Refused as refused:
                self.saw(f"redelivered: {refused.code}")

    async def work_inside(self) -> None:
        """The control plane's own jobs: bulk cancels, and files that go."""
        link = self.core.link(internal=True)
        registered = await link.register(
            wire.Register(worker_id="inside", version="test", kinds=["bulk", "remove_ingest_files"], slots=50)
        )
        inside = PlayedWorker(link, registered.session)
        for attempt in await inside.claim("bulk", "remove_ingest_files", limit=50):
            payload = orjson.loads(bytes(attempt.job.payload))
            if attempt.job.kind == "bulk":
                turn = Turn(
                    id=JobId(attempt.job.id),
                    attempt_id=AttemptId(attempt.job.attempt_id),
                    kind="bulk",
                    payload=bulk.BulkPayload.model_validate(payload),
                    saved=None,
                    owner="system",
                    link=Silent(),
                )
                outcome = await bulk.run_bulk(turn, self.core)
                assert isinstance(outcome, Done)
                self.saw("bulk")
            elif payload.get("run_id") is not None:
                async with self.core.db.transaction() as tx:
                    await runs.dropped(tx, UUID(payload["run_id"]))
                self.saw("deleted")
            await attempt.finish()


class AnyOrder(RuleBasedStateMachine):
    world: World
    play: Play

    @initialize()
    def begin(self) -> None:
        self.world.run(self.world.start())
        self.play = Play(self.world, Checking(self.world.connection, self.world.seen))
        self.step(self.play.start())
        self.step(self.play.claim(1))

    def step(self, work: Coroutine[Any, Any, None]) -> None:
        async def checked() -> None:
            await work
            await self.play.checking.check(
                self.world.core.db, SOURCE, raised=Switches.end_raises or Switches.group_end_raises
            )

        self.world.run(checked())

    @rule(begin=st.sampled_from(["last", "start"]), limit=st.sampled_from([None, None, 3, 5]))
    def start(self, begin: Any, limit: int | None) -> None:
        self.step(self.play.start(begin=begin, limit=limit))

    @rule(limit=st.integers(1, 3))
    def claim(self, limit: int) -> None:
        self.step(self.play.claim(limit))

    @rule(pick=st.integers(0, 3), end=ENDS, fetch=FETCHES)
    def finish(self, pick: int, end: str, fetch: Fetch) -> None:
        """One of the latest attempts: live, stale, or ended already."""
        if self.play.attempts:
            attempt = self.play.attempts[-1 - pick % len(self.play.attempts)]
            self.step(self.play.finish(attempt, end, fetch))

    @rule(fetch=FETCHES, end=st.sampled_from(["done", "done", "permanent"]))
    def go_on(self, fetch: Fetch, end: str) -> None:
        """All that is due is claimed and ended, batches perhaps badly: schedules get somewhere."""
        self.step(self._go_on(fetch, end))

    async def _go_on(self, fetch: Fetch, end: str = "done") -> None:
        before = len(self.play.attempts)
        await self.play.claim(10)
        for attempt in self.play.attempts[before:]:
            await self.play.finish(attempt, "done" if attempt.job.kind == "run_ingester" else end, fetch)

    @rule(fetch=FETCHES, end=ENDS)
    def sleep_through_the_lease(self, fetch: Fetch, end: str) -> None:
        """A worker takes a job and sleeps; an heir does the work; then the sleeper wakes and writes."""

        async def work() -> None:
            before = len(self.play.attempts)
            await self.play.claim(1)
            sleepers = self.play.attempts[before:]
            self.play.workers.clear()
            await served(self.world.core, self.world.clock, seconds=75)
            await self._go_on(fetch)
            for attempt in sleepers:
                await self.play.finish(attempt, end, fetch)

        self.step(work())

    @rule(pick=PICK, end=ENDS, fetch=FETCHES)
    def finish_late(self, pick: int, end: str, fetch: Fetch) -> None:
        if self.play.attempts:
            self.step(self.play.finish(self.play.attempts[pick % len(self.play.attempts)], end, fetch))

    @rule()
    def kill_the_worker(self) -> None:
        """Its session dies, and what it held is given back."""

        async def work() -> None:
            self.play.workers.clear()
            await served(self.world.core, self.world.clock, seconds=75)
            self.play.saw("killed")

        self.step(work())

    @rule(minutes=st.integers(1, 6))
    def time_passes(self, minutes: int) -> None:
        async def work() -> None:
            for worker in self.play.workers:
                await worker.beat(*self.play.attempts[-20:])
            await self.world.clock.advance(minutes=minutes)
            await self.world.connection.execute("UPDATE service SET served_at = paddock_now()")
            for worker in self.play.workers:
                await worker.beat(*self.play.attempts[-20:])

        self.step(work())

    @rule(pick=PICK)
    def redeliver(self, pick: int) -> None:
        self.step(self.play.redeliver(pick))

    @rule(which=PICK, pick=PICK, skip=st.sampled_from([False, False, True]))
    def decide_on_a_batch(self, which: int, pick: int, skip: bool) -> None:
        async def work() -> None:
            if which % 2:
                await self.play.start()
                await self._go_on(Fetch((MIB, MIB), moves=True, has_more=True, cut=False))
                await self._go_on(Fetch((), moves=True, has_more=True, cut=False), "permanent")
            found = await self.play.all_runs()
            # The newest, whose batches were just failed, or any.
            run = found[0 if which % 2 else which % len(found)] if found else None
            n = None if run is None else await self.play.batch_of(run, pick, *(["failed"] if pick % 4 else []))
            if run is None or n is None:
                return
            act = runs.skip_batch if skip else runs.retry_batch
            try:
                await act(self.world.core, run, n, actor="ann")
                self.play.saw("skipped" if skip else f"retried, run {'live' if run.live else 'ended'}")
            except Refused as refused:
                self.play.saw(f"decided: {refused.code}")

        self.step(work())

    @rule(delete=st.booleans(), which=PICK)
    def cancel_or_delete(self, delete: bool, which: int) -> None:
        async def work() -> None:
            found = await self.play.all_runs()
            if not found:
                return
            run = found[which % len(found)] if delete else found[0]
            try:
                if delete:
                    await runs.delete(self.world.core, run, actor="ann")
                else:
                    await runs.cancel(self.world.core, run, actor="ann")
                    self.play.saw("cancelled")
            except Refused as refused:
                self.play.saw(f"cancel or delete: {refused.code}")

        self.step(work())

    @rule(pick=PICK, retry=st.booleans())
    def meddle_with_a_job(self, pick: int, retry: bool) -> None:
        """People may cancel and retry single jobs."""

        async def work() -> None:
            if not self.play.attempts:
                return
            first = pick % len(self.play.attempts)
            if not retry:
                await self.world.core.cancel([self.play.attempts[first].id], actor="ann")
                return
            # Most cannot be: of some in a row the first that can.
            for attempt in self.play.attempts[first : first + 5]:
                try:
                    await self.world.core.retry(attempt.id, actor="ann")
                    self.play.saw("job retried")
                    return
                except Refused as refused:
                    self.play.saw(f"job retry: {refused.code}")

        self.step(work())

    @rule()
    def control_plane_works(self) -> None:
        self.step(self.play.work_inside())

    @rule(end=st.booleans(), group_end=st.sampled_from([False, False, True]))
    def hooks_fail(self, end: bool, group_end: bool) -> None:
        Switches.end_raises, Switches.group_end_raises = end, group_end

    @rule()
    def hooks_are_repeated(self) -> None:
        async def work() -> None:
            Switches.end_raises = Switches.group_end_raises = False
            await grouping.repeat_hooks(self.world.core)

        self.step(work())

    def teardown(self) -> None:
        if hasattr(self, "play"):
            self.world.run(self._bring_to_an_end())

    async def _bring_to_an_end(self) -> None:
        """However it stands, every run can be brought to its end."""
        Switches.end_raises = Switches.group_end_raises = False
        self.play.workers.clear()
        await served(self.world.core, self.world.clock, seconds=75)
        live: list[Run] = []
        left = 0
        for _ in range(40):
            await self.world.clock.advance(minutes=6)
            await self.world.connection.execute("UPDATE service SET served_at = paddock_now()")
            self.play.workers.clear()
            await self.play.work_inside()
            before = len(self.play.attempts)
            await self.play.claim(100)
            for attempt in self.play.attempts[before:]:
                await self.play.finish(attempt, "done", Fetch((10,), True, False, False))
            await grouping.repeat_hooks(self.world.core)
            await self.play.checking.check(self.world.core.db, SOURCE, raised=False)
            live = [run for run in await self.play.all_runs() if run.live]
            left = await self.world.connection.fetchval("SELECT count(*) FROM jobs WHERE kind = ANY ($1)", list(STEPS))
            if not live and not left:
                return
        raise AssertionError(f"still at work: {live} {left}")
