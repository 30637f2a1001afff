"""Procrastinate, drained with its own worker: psycopg, uvloop, concurrency 30, jobs kept as it keeps them by default.

It claims and finishes one job at a time; concurrency is its documented lever. The worker ends by itself when the queue
is empty (`wait=False`), and the clock with it.
"""

from __future__ import annotations

import argparse
import json
import logging
import time

import procrastinate
import uvloop

from bench.contenders import Drained, Load, payload
from bench.environment import Database, Env
from bench.process import contender, say, words

CONCURRENCY = 30
POOL = 4  # psycopg's default; 10 and 31 were slower


def application(dsn: str, pool: int = POOL) -> procrastinate.App:
    connector = procrastinate.PsycopgConnector(conninfo=dsn, min_size=pool, max_size=pool)
    return procrastinate.App(connector=connector)


async def _no_op(filler: str) -> None:
    return None


async def drain(env: Env, database: Database, load: Load) -> Drained:
    app = application(database.dsn)
    task = app.task(name="no_op")(_no_op)
    async with app.open_async():
        await app.schema_manager.apply_schema_async()
        arguments = json.loads(payload(load.payload_bytes))
        for start in range(0, load.jobs, 1000):
            await task.batch_defer_async(*[arguments] * min(1000, load.jobs - start))
    async with database.connect() as connection:
        await connection.execute("VACUUM ANALYZE procrastinate_jobs")
    async with contender("bench.procrastinate_peer", database.dsn) as worker:
        await worker.expect("ready")
        async with env.measure([worker.pid]) as measurement:
            await worker.tell("go")
            done = await worker.expect("drained", within=600)
    async with database.connect() as connection:
        finished = await connection.fetchval("SELECT count(*) FROM procrastinate_jobs WHERE status = 'succeeded'")
    if finished != load.jobs:
        raise RuntimeError(f"Procrastinate finished {finished} of {load.jobs} jobs.")
    return Drained(load.jobs, done["seconds"], measurement.usage)


async def _worker(dsn: str) -> None:
    logging.getLogger("procrastinate").setLevel(logging.WARNING)
    app = application(dsn)
    app.task(name="no_op")(_no_op)
    async with app.open_async():
        say("ready")
        told = words()
        await anext(told)
        started = time.perf_counter()
        await app.run_worker_async(concurrency=CONCURRENCY, wait=False, install_signal_handlers=False)
        say("drained", seconds=time.perf_counter() - started)
        async for _ in told:
            pass


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("dsn")
    uvloop.run(_worker(parser.parse_args().dsn))


if __name__ == "__main__":
    main()
