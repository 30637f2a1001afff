"""The floor: the least that a fenced queue on PostgreSQL can do, written by hand on asyncpg and uvloop.

What it promises is what ours promises of a no-op job: a claim takes each job once (SKIP LOCKED) and gives it a random
token; a finish changes a row only if the token is still its own; both commit synchronously. It has no HTTP, no auth,
no history, no metrics, no retries.

It is tuned as far as that contract allows, so that a ratio to it means something:
- prepared statements, one connection per batch in flight, arrays in and rows out: one round trip per statement;
- the claim walks a partial index in order and locks exactly what it takes; ids are fed back as an array, because a
  join would be planned as a hash join over the whole table;
- a finish touches no column of any index or index predicate (`pending` is the claim's, `status` the finish's), so it
  is a HOT update where its page has room; the fill factor leaves room for all three versions of a row (at 45 about
  80 % of the finishes are HOT and a job writes about 510 bytes of WAL; at 100, 4 % and 780);
- statistics are there before the clock starts, and join methods that only a misled planner would pick are off.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass

import asyncpg
import uvloop

from bench.contenders import Drained, Load, Trickle, payload, trickled, waits
from bench.environment import Database, Env
from bench.process import ContenderProcess, contender, say, words

SCHEMA = """
CREATE TABLE floor_jobs (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    pending boolean NOT NULL DEFAULT true,
    status smallint NOT NULL DEFAULT 0,
    attempt_id uuid,
    due_at timestamptz NOT NULL DEFAULT now(),
    claimed_at timestamptz,
    completed_at timestamptz,
    payload jsonb NOT NULL,
    result jsonb
) WITH (fillfactor = 45, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX floor_jobs_due ON floor_jobs (due_at, id) WHERE pending;
"""

FILL = "INSERT INTO floor_jobs (payload) SELECT $2::jsonb FROM generate_series(1, $1)"

CLAIM = """
UPDATE floor_jobs SET pending = false, attempt_id = gen_random_uuid(), claimed_at = now()
WHERE id = ANY (ARRAY (
    SELECT id FROM floor_jobs WHERE pending AND due_at <= now()
    ORDER BY due_at, id LIMIT $1 FOR UPDATE SKIP LOCKED
))
RETURNING id, attempt_id, payload
"""

FINISH = """
UPDATE floor_jobs AS job SET status = 2, attempt_id = NULL, completed_at = now(), result = done.result
FROM unnest($1::bigint[], $2::uuid[], $3::jsonb[]) AS done (id, attempt_id, result)
WHERE job.id = done.id AND job.attempt_id = done.attempt_id
RETURNING job.id
"""

# One statement and one commit: NOTIFY in the enqueueing transaction is the quickest wake-up there is at low load.
ENQUEUE = """
WITH job AS (INSERT INTO floor_jobs (payload) VALUES ($1::jsonb) RETURNING id)
SELECT pg_notify('floor_jobs', '') FROM job
"""

PLANNER = {"enable_hashjoin": "off", "enable_mergejoin": "off", "enable_seqscan": "off", "jit": "off"}


async def install(database: Database) -> None:
    async with database.connect() as connection:
        await connection.execute(SCHEMA)


async def fill(database: Database, jobs: int, payload_bytes: int) -> None:
    async with database.connect() as connection:
        await connection.execute(FILL, jobs, payload(payload_bytes))
        await connection.execute("VACUUM ANALYZE floor_jobs")


async def drain(env: Env, database: Database, load: Load) -> Drained:
    await install(database)
    await fill(database, load.jobs, load.payload_bytes)
    async with _worker(database, load.batch, load.in_flight) as worker, env.measure([worker.pid]) as measurement:
        await worker.tell("drain")
        done = await worker.expect("drained", within=600)
    if done["jobs"] != load.jobs:
        raise RuntimeError(f"The floor finished {done['jobs']} of {load.jobs} jobs.")
    return Drained(load.jobs, done["seconds"], measurement.usage)


async def latency(env: Env, database: Database, trickle: Trickle) -> list[float]:
    await install(database)
    async with contender("bench.floor", "listen", database.dsn, str(trickle.samples)) as worker:
        await worker.expect("ready")
        async with database.connect() as connection:
            statement = await connection.prepare(ENQUEUE)
            filler = payload(trickle.payload_bytes)

            async def enqueue(sequence: int) -> None:
                await statement.fetchval(f'{{"sequence": {sequence}, {filler[1:]}')

            sent = await trickled(trickle, enqueue)
        started = await worker.expect("started")
    return waits(sent, {int(sequence): at for sequence, at in started["at"]})


@dataclass(frozen=True)
class FloorChurn:
    """The floor has no control plane: its only process is the worker."""

    database: Database
    load: Load
    worker: ContenderProcess
    control_pids: tuple[int, ...] = ()

    @property
    def worker_pids(self) -> tuple[int, ...]:
        return (self.worker.pid,)

    async def run(self, jobs: int) -> None:
        async with self.database.connect() as connection:
            await connection.execute(FILL, jobs, payload(self.load.payload_bytes))
        await self.worker.tell("drain")
        done = await self.worker.expect("drained", within=600)
        if done["jobs"] != jobs:
            raise RuntimeError(f"The floor finished {done['jobs']} of {jobs} jobs.")


@contextlib.asynccontextmanager
async def churn(env: Env, database: Database, load: Load) -> AsyncIterator[FloorChurn]:
    await install(database)
    async with database.connect() as connection:
        await connection.execute("ANALYZE floor_jobs")
    async with _worker(database, load.batch, load.in_flight) as worker:
        yield FloorChurn(database, load, worker)


@contextlib.asynccontextmanager
async def _worker(database: Database, batch: int, in_flight: int) -> AsyncIterator[ContenderProcess]:
    async with contender("bench.floor", "drain", database.dsn, str(batch), str(in_flight)) as worker:
        await worker.expect("ready")
        yield worker


async def _no_op(payload_text: str) -> str:
    return "{}"


class _Loop:
    """One batch in flight: claim, run, finish, on a connection of its own."""

    def __init__(self, connection: asyncpg.Connection) -> None:
        self.connection = connection

    async def prepare(self) -> None:
        self.claim = await self.connection.prepare(CLAIM)
        self.finish = await self.connection.prepare(FINISH)

    async def until_empty(self, batch: int) -> int:
        finished = 0
        while jobs := await self.claim.fetch(batch):
            results = [await _no_op(job[2]) for job in jobs]
            accepted = await self.finish.fetch([job[0] for job in jobs], [job[1] for job in jobs], results)
            finished += len(accepted)
        return finished


async def _drain_worker(dsn: str, batch: int, in_flight: int) -> None:
    loops = [_Loop(await asyncpg.connect(dsn, server_settings=PLANNER)) for _ in range(in_flight)]
    for loop in loops:
        await loop.prepare()
    say("ready")
    async for _ in words():
        started = time.perf_counter()
        finished = sum(await asyncio.gather(*(loop.until_empty(batch) for loop in loops)))
        say("drained", jobs=finished, seconds=time.perf_counter() - started)


async def _listening_worker(dsn: str, samples: int) -> None:
    connection = await asyncpg.connect(dsn, server_settings=PLANNER)
    listener = await asyncpg.connect(dsn)
    loop = _Loop(connection)
    await loop.prepare()
    woken = asyncio.Event()
    await listener.add_listener("floor_jobs", lambda *_: woken.set())
    say("ready")
    started: list[tuple[int, int]] = []
    while len(started) < samples:
        await woken.wait()
        woken.clear()
        while jobs := await loop.claim.fetch(10):
            now = time.monotonic_ns()
            started += [(json.loads(job[2])["sequence"], now) for job in jobs]
            await loop.finish.fetch([job[0] for job in jobs], [job[1] for job in jobs], ["{}"] * len(jobs))
    say("started", at=started)
    async for _ in words():
        pass


def main() -> None:
    parser = argparse.ArgumentParser()
    modes = parser.add_subparsers(dest="mode", required=True)
    drain_mode = modes.add_parser("drain")
    drain_mode.add_argument("dsn")
    drain_mode.add_argument("batch", type=int)
    drain_mode.add_argument("in_flight", type=int)
    listen_mode = modes.add_parser("listen")
    listen_mode.add_argument("dsn")
    listen_mode.add_argument("samples", type=int)
    options = parser.parse_args()
    if options.mode == "drain":
        uvloop.run(_drain_worker(options.dsn, options.batch, options.in_flight))
    else:
        uvloop.run(_listening_worker(options.dsn, options.samples))


if __name__ == "__main__":
    main()
