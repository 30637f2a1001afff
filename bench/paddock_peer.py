"""Ours, put to the same questions. Everything a benchmark needs of the product is in this file and its processes.

All of them start from an empty database and run ours as its users do: auth, history, metrics and timeline on, workers
over HTTP, no database credentials in the worker.
"""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import asyncpg
import msgspec

import paddock
from bench.contenders import Churn, Drained, Load, Trickle, payload, trickled, waits
from bench.environment import Database, Env
from bench.kinds import NOTE, NOTES
from bench.paddock_processes import Serve, serving, working
from bench.stale_observation import Observation
from paddock.jobs import wire

ENQUEUE_AT_ONCE = 1_000
# Through all processes before the clock starts: interpreters, connections and plans are then as in life.
WARM_UP = 300
DONE_WITHIN = 900.0


async def drain(env: Env, database: Database, load: Load) -> Drained:
    """One `paddock serve` and one worker. The clock runs from the resume of the kind to the last accepted finish,
    which history tells to the microsecond."""
    async with (
        serving(database) as serve,
        database.connect() as connection,
        working(serve, batch=load.batch, in_flight=load.in_flight) as worker,
    ):
        await enqueue(serve, WARM_UP, load.payload_bytes)
        await _finished(serve, WARM_UP)
        await serve.ask("POST", "/api/kinds/noop/pause", {"reason": "bench"})
        await enqueue(serve, load.jobs, load.payload_bytes)
        await connection.execute("VACUUM ANALYZE jobs")
        async with env.measure([serve.pid, worker]) as measurement:
            began = await connection.fetchval("SELECT clock_timestamp()")
            await serve.ask("POST", "/api/kinds/noop/resume", {})
            await _finished(serve, WARM_UP + load.jobs)
        row = await connection.fetchrow(
            "SELECT max(completed_at), count(*), count(DISTINCT id) FROM job_history"
            " WHERE kind = 'noop' AND status = 'completed' AND completed_at > $1",
            began,
        )
    assert row is not None
    last, completed, distinct = row
    if completed != load.jobs or distinct != load.jobs:
        raise RuntimeError(f"{completed} finishes of {distinct} jobs, where {load.jobs} jobs were to end once each.")
    return Drained(load.jobs, (last - began).total_seconds(), measurement.usage)


async def latency(env: Env, database: Database, trickle: Trickle) -> list[float]:
    async with serving(database) as serve:
        notes = serve.folder / "notes"
        notes.touch()
        filler = "x" * trickle.payload_bytes
        async with working(serve, batch=10, in_flight=1, **{NOTES: str(notes)}):

            async def enqueue(sequence: int) -> None:
                body = {"kind": "noted", "payload": {"sequence": sequence, "filler": filler}}
                await serve.ask("POST", "/api/jobs", body)

            await enqueue(-1)
            await _until(lambda: notes.stat().st_size == NOTE.size)
            sent = await trickled(trickle, enqueue)
            await _until(lambda: notes.stat().st_size == NOTE.size * (trickle.samples + 1))
        started = dict(NOTE.iter_unpack(notes.read_bytes()))
        del started[-1]
        return waits(sent, started)


@dataclass
class PaddockChurn:
    serve: Serve
    load: Load
    worker: int
    done: int = 0

    @property
    def control_pids(self) -> tuple[int, ...]:
        return (self.serve.pid,)

    @property
    def worker_pids(self) -> tuple[int, ...]:
        return (self.worker,)

    async def run(self, jobs: int) -> None:
        await enqueue(self.serve, jobs, self.load.payload_bytes)
        self.done += jobs
        await _finished(self.serve, self.done)


@contextlib.asynccontextmanager
async def churn(env: Env, database: Database, load: Load) -> AsyncIterator[Churn]:
    async with (
        serving(database) as serve,
        working(serve, batch=load.batch, in_flight=load.in_flight) as worker,
    ):
        yield PaddockChurn(serve, load, worker)


SEED = """
INSERT INTO job_history (id, kind, status, priority, owner, tags, payload, result, turn_count, failure_count,
    cluster_count, lost_count, error_code, error_message, created_at, started_at, claimed_at, completed_at, run_seconds,
    wait_seconds, claimed_by)
SELECT paddock_id(at, n), (ARRAY['noop','noted','probe','probe_blocking'])[1 + n % 4], status, 3, 'owner-' || n % 50,
    ARRAY['team-' || n % 20], '{"filler": "seeded"}', CASE WHEN status = 'completed' THEN '{"rows": 1}'::jsonb END, 1, 0, 0, 0,
    CASE WHEN status = 'failed' THEN 'broken_' || n % 7 END, CASE WHEN status = 'failed' THEN 'It broke, variant ' || n % 7 END,
    at, at + interval '1 second', at + interval '1 second', at + interval '3 seconds', 2, 1, 'worker-' || n % 10
FROM (SELECT n, now() - (($1 - n) * interval '7 days' / $1) - interval '10 seconds' AS at,
             CASE WHEN n % 50 = 0 THEN 'failed' WHEN n % 100 = 1 THEN 'cancelled' ELSE 'completed' END AS status
      FROM generate_series(1, $1) AS n) rows
"""


async def seed_finished(database: Database, jobs: int) -> None:
    """Spread over kinds, statuses, owners and the last seven days."""
    async with database.connect() as connection:
        await connection.execute(SEED, jobs, timeout=600)
        await connection.execute("VACUUM ANALYZE job_history", timeout=600)


class EnqueueTarget(Protocol):
    @property
    def control_pids(self) -> tuple[int, ...]: ...

    async def enqueue(self, client: int) -> None:
        """One POST of one job, on the connection of that client; raises unless it was accepted."""
        ...


@dataclass
class PaddockEnqueue:
    serve: Serve
    bare: bool

    @property
    def control_pids(self) -> tuple[int, ...]:
        return (self.serve.pid,)

    async def enqueue(self, client: int) -> None:
        headers = {} if self.bare else {"Idempotency-Key": uuid.uuid4().hex}
        await self.serve.ask("POST", "/api/jobs", {"kind": "noop", "payload": {"filler": "x" * 100}}, **headers)


# What it gathers is never sent.
NO_NOTIFIER = """
import asyncio
from paddock.jobs.wakeups import Notifier
Notifier.run = lambda self: asyncio.Event().wait()
"""


@contextlib.asynccontextmanager
async def enqueue_target(env: Env, database: Database, *, clients: int, bare: bool) -> AsyncIterator[EnqueueTarget]:
    """serve without a worker. `bare` runs the same routes, auth and validation with the notifier off and no
    idempotency key; otherwise each request carries a fresh key."""
    async with serving(database, first=NO_NOTIFIER if bare else "") as serve:
        yield PaddockEnqueue(serve, bare)


class Beating(Protocol):
    @property
    def control_pids(self) -> tuple[int, ...]: ...

    async def cycle(self) -> None:
        """One beat of every worker's session, each listing all the attempts it holds; checks that all are its own."""
        ...

    async def session_table_bytes(self) -> int:
        """`pg_total_relation_size` of the table of sessions."""
        ...


@dataclass
class PlayedWorker:
    """A worker's side of the internal API, spoken from here."""

    serve: Serve
    session: uuid.UUID
    holding: list[wire.Held] = field(default_factory=list)

    @classmethod
    async def open(cls, serve: Serve, name: str) -> PlayedWorker:
        message = wire.Register(worker_id=name, version="bench", kinds=["noop"], slots=1000)
        told = await serve.ask("POST", "/internal/sessions", message, token=serve.tokens.worker)
        return cls(serve, uuid.UUID(told["session"]))

    async def claim(self, limit: int) -> None:
        message = wire.Claim(session=self.session, claim_id=uuid.uuid4(), kinds=["noop"], limit=limit, wait_seconds=5)
        told = await self.serve.ask("POST", "/internal/jobs/claim", message, token=self.serve.tokens.worker)
        self.holding += [wire.Held(id=job["id"], attempt_id=job["attempt_id"]) for job in told["jobs"]]

    async def beat(self) -> list[str]:
        path = f"/internal/sessions/{self.session}/beat"
        told = await self.serve.ask("POST", path, wire.Beat(holding=self.holding), token=self.serve.tokens.worker)
        return [verdict["verdict"] for verdict in told["verdicts"]]

    async def finish(self, outcome: str) -> str:
        [held] = self.holding
        item: dict[str, Any] = {"id": held.id, "attempt_id": held.attempt_id, "outcome": outcome}
        if outcome == "permanent":
            item["error"] = {"code": "late", "message": "A late failure."}
        body = {"items": [item]}
        told = await self.serve.ask("POST", "/internal/jobs/finish", body, token=self.serve.tokens.worker)
        return str(told["verdicts"][0]["verdict"])


@dataclass
class PaddockBeating:
    serve: Serve
    connection: asyncpg.Connection
    workers: list[PlayedWorker]

    @property
    def control_pids(self) -> tuple[int, ...]:
        return (self.serve.pid,)

    async def cycle(self) -> None:
        for verdicts in await asyncio.gather(*(worker.beat() for worker in self.workers)):
            if set(verdicts) != {"accepted"}:
                raise RuntimeError(f"A beat was answered with {set(verdicts)}.")

    async def session_table_bytes(self) -> int:
        return int(await self.connection.fetchval("SELECT pg_total_relation_size('sessions')"))


@contextlib.asynccontextmanager
async def beating(env: Env, database: Database, *, jobs: int, workers: int) -> AsyncIterator[Beating]:
    async with serving(database) as serve, database.connect() as connection:
        await enqueue(serve, jobs, 100)
        played = [await PlayedWorker.open(serve, f"played-{number}") for number in range(workers)]
        for worker in played:
            await worker.claim(jobs // workers)
        await connection.execute("ANALYZE")
        yield PaddockBeating(serve, connection, played)


Query = Callable[[], Awaitable[object]]

QUERIES = {
    "newest jobs": "/api/jobs?limit=50",
    "failed jobs": "/api/jobs?status=failed&limit=50",
    "jobs of a kind": "/api/jobs?kind=probe&limit=50",
    "failed jobs of a kind": "/api/jobs?kind=noop&status=failed&limit=50",
    "jobs of an owner": "/api/jobs?owner=owner-7&limit=50",
    "an owner's failed jobs of a kind": "/api/jobs?owner=owner-7&kind=noop&status=failed&limit=50",
    "jobs with a tag": "/api/jobs?tag=team-3&limit=50",
    "jobs with an error code": "/api/jobs?error_code=broken_3&limit=50",
    "jobs by error text": "/api/jobs?q=variant%205&limit=50",
    "running jobs": "/api/jobs?status=claimed&limit=50",
    "counts by kind and status": "/api/jobs/counts",
    "throughput of a day": "/api/stats?metric=throughput&range=24h",
}


@contextlib.asynccontextmanager
async def named_queries(env: Env, database: Database, *, jobs: int) -> AsyncIterator[Mapping[str, Query]]:
    async with serving(database) as serve:
        await seed_finished(database, jobs)
        await enqueue(serve, 500, 100)
        worker = await PlayedWorker.open(serve, "played")
        await worker.claim(100)

        def query(path: str) -> Query:
            return lambda: serve.ask("GET", path)

        yield {name: query(path) for name, path in QUERIES.items()}


async def stale_writer(env: Env, database: Database) -> Observation:
    """The story of `stale_writer.py`, told over the workers' API: A falls silent, its session dies, the rescuer gives
    the job to B; A beats and writes late; then B finishes. Twice: A succeeds late, A fails late."""
    quick = {"PADDOCK_BEAT_SECONDS": "0.5", "PADDOCK_LEASE_SECONDS": "3"}
    async with serving(database, **quick) as serve, database.connect() as connection:
        late_finish, owner_finish, _, renewed = await _stale_story(serve, connection, "done")
        late_failure, _, record, renewed_again = await _stale_story(serve, connection, "permanent")
    return Observation(
        library="paddock",
        version=paddock.__version__,
        stale_finish_accepted=late_finish == "accepted",
        owner_finish=owner_finish,
        stale_failure_accepted=late_failure == "accepted",
        state_after_stale_failure=record,
        stale_beat_renews_owner=renewed or renewed_again,
        runs=2,
    )


async def _stale_story(serve: Serve, connection: asyncpg.Connection, late: str) -> tuple[str, str, str, bool]:
    await enqueue(serve, 1, 100)
    old = await PlayedWorker.open(serve, "A")
    await old.claim(1)
    job = old.holding[0].id
    rescued = "SELECT attempt_id IS NULL FROM jobs WHERE id = $1"
    while not await connection.fetchval(rescued, job):  # noqa: ASYNC110  the event is in the server
        await asyncio.sleep(0.1)
    owner = await PlayedWorker.open(serve, "B")
    await owner.claim(1)
    lease = "SELECT expires_at FROM sessions WHERE id = $1"
    before = await connection.fetchval(lease, owner.session)
    await old.beat()
    renewed = await connection.fetchval(lease, owner.session) != before
    verdict = await old.finish(late)
    own = await owner.finish("done")
    record = await connection.fetchval("SELECT status FROM job_history WHERE id = $1", job)
    return verdict, own, str(record), renewed


async def enqueue(serve: Serve, jobs: int, payload_bytes: int) -> None:
    body = msgspec.json.decode(payload(payload_bytes))
    left = jobs
    while left > 0:
        batch = min(left, ENQUEUE_AT_ONCE)
        await serve.ask("POST", "/api/jobs/batch", {"jobs": [{"kind": "noop", "payload": body}] * batch})
        left -= batch


async def _finished(serve: Serve, jobs: int) -> None:
    """Until serve has counted so many finishes. Not a query: one that looks for live jobs would walk every dead row.
    And seldom: what serve spends on writing its metrics it does not spend on jobs. History tells when the last ended."""
    deadline = asyncio.get_running_loop().time() + DONE_WITHIN
    began, before = asyncio.get_running_loop().time(), await _finishes(serve)
    finished = before
    while finished < jobs:
        now = asyncio.get_running_loop().time()
        if now > deadline:
            raise RuntimeError("The jobs did not end.")
        # Again when most of what is left should be done.
        left = (jobs - finished) * (now - began) / (finished - before) if finished > before else 0
        await asyncio.sleep(min(max(0.9 * left, 0.5), 10))
        finished = await _finishes(serve)


async def _finishes(serve: Serve) -> float:
    async with serve.http.get(serve.url + "/metrics") as answer:
        lines = (await answer.text()).splitlines()
    counted = [line for line in lines if line.startswith('paddock_finishes_total{kind="noop"')]
    return sum(float(line.rpartition(" ")[2]) for line in counted)


async def _until(condition: Callable[[], bool]) -> None:
    deadline = asyncio.get_running_loop().time() + 60
    while not condition():
        if asyncio.get_running_loop().time() > deadline:
            raise RuntimeError("The worker did not start the jobs.")
        await asyncio.sleep(0.01)
