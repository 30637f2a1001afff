"""PgQueuer, drained and timed with its own worker and the settings of its performance guide.

Batches of 100 for the drain (the guide's lever for short jobs) and of 10, its default, for latency; its autovacuum
settings; its tables durable, as installed; uvloop. The guide names both a pool and a single connection for the worker:
the pool was faster in two of three rounds here. The clock stops when PgQueuer's own statement that finishes the last
job has returned.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import time
from datetime import timedelta
from typing import Any

import asyncpg
import uvloop
from pgqueuer import PgQueuer
from pgqueuer.adapters.drivers.asyncpg import AsyncpgPoolDriver
from pgqueuer.adapters.persistence.queries import Queries
from pgqueuer.domain.models import Job

from bench.contenders import Drained, Load, Trickle, payload, trickled, waits
from bench.environment import Database, Env
from bench.process import contender, say, words

ENTRYPOINT = "no_op"


def all_finished(queries: Queries, jobs: int) -> asyncio.Event:
    """Set when its own finishing statement has returned for that many jobs."""
    finish, reached, finished = queries.log_jobs, asyncio.Event(), 0

    async def log_jobs(ended: list[Any]) -> None:
        nonlocal finished
        await finish(ended)
        finished += len(ended)
        if finished >= jobs:
            reached.set()

    queries.log_jobs = log_jobs
    return reached


async def install(database: Database) -> None:
    async with database.connect() as connection:
        queries = Queries.from_asyncpg_connection(connection)
        await queries.install()
        await queries.optimize_autovacuum()


async def fill(database: Database, jobs: int, payload_bytes: int) -> None:
    content = payload(payload_bytes).encode()
    async with database.connect() as connection:
        queries = Queries.from_asyncpg_connection(connection)
        for start in range(0, jobs, 1000):
            count = min(1000, jobs - start)
            await queries.enqueue([ENTRYPOINT] * count, [content] * count, [0] * count)
        await connection.execute("VACUUM ANALYZE pgqueuer")


async def drain(env: Env, database: Database, load: Load) -> Drained:
    await install(database)
    await fill(database, load.jobs, load.payload_bytes)
    async with contender("bench.pgqueuer_peer", "drain", database.dsn, str(load.jobs), str(load.batch)) as worker:
        await worker.expect("ready")
        async with env.measure([worker.pid]) as measurement:
            await worker.tell("go")
            done = await worker.expect("drained", within=600)
    async with database.connect() as connection:
        finished = await connection.fetchval("SELECT count(*) FROM pgqueuer_log WHERE status = 'successful'")
    if finished != load.jobs:
        raise RuntimeError(f"PgQueuer finished {finished} of {load.jobs} jobs.")
    return Drained(load.jobs, done["seconds"], measurement.usage)


async def latency(env: Env, database: Database, trickle: Trickle) -> list[float]:
    await install(database)
    async with contender("bench.pgqueuer_peer", "listen", database.dsn, str(trickle.samples), "10") as worker:
        await worker.expect("ready")
        await asyncio.sleep(1)  # it listens only once its run has begun, and does not say so
        async with database.connect() as connection:
            queries = Queries.from_asyncpg_connection(connection)
            filler = payload(trickle.payload_bytes)

            async def enqueue(sequence: int) -> None:
                await queries.enqueue(ENTRYPOINT, f'{{"sequence": {sequence}, {filler[1:]}'.encode())

            sent = await trickled(trickle, enqueue)
        started = await worker.expect("started")
    return waits(sent, {int(sequence): at for sequence, at in started["at"]})


async def _worker(mode: str, dsn: str, jobs: int, batch: int) -> None:
    logging.getLogger("pgqueuer").setLevel(logging.WARNING)
    async with asyncpg.create_pool(dsn, min_size=5, max_size=5) as pool:
        driver = AsyncpgPoolDriver(pool)
        queries = Queries(driver)
        reached = all_finished(queries, jobs)
        peer = PgQueuer(driver, queries=queries)
        started_at: list[tuple[int, int]] = []

        async def no_op(job: Job) -> None:
            if mode == "listen":
                assert job.payload is not None
                started_at.append((json.loads(job.payload)["sequence"], time.monotonic_ns()))

        peer.entrypoint(ENTRYPOINT)(no_op)
        say("ready")
        told = words()
        if mode == "drain":
            await anext(told)
        started = time.perf_counter()
        running = asyncio.create_task(peer.run(batch_size=batch, dequeue_timeout=timedelta(seconds=1)))
        finished = asyncio.create_task(reached.wait())
        await asyncio.wait((running, finished), return_when=asyncio.FIRST_COMPLETED)
        if running.done():
            running.result()
        if mode == "drain":
            say("drained", seconds=time.perf_counter() - started)
        else:
            say("started", at=started_at)
        peer.shutdown.set()
        await running
        async for _ in told:
            pass


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("mode", choices=["drain", "listen"])
    parser.add_argument("dsn")
    parser.add_argument("jobs", type=int)
    parser.add_argument("batch", type=int)
    options = parser.parse_args()
    uvloop.run(_worker(options.mode, options.dsn, options.jobs, options.batch))


if __name__ == "__main__":
    main()
