"""PgQueuer in the stale-writer probe: its own worker, whose dequeue takes over jobs with an old heartbeat."""

from __future__ import annotations

import argparse
import logging
from datetime import timedelta

import asyncpg
import uvloop
from pgqueuer import PgQueuer
from pgqueuer.adapters.drivers.asyncpg import AsyncpgPoolDriver
from pgqueuer.adapters.persistence.queries import Queries
from pgqueuer.domain.models import Job

from bench.environment import Database
from bench.stale_library import LEASE_SECONDS, LEDGER, Library, Seen, body, reporting


async def install(database: Database) -> None:
    async with database.connect() as connection:
        queries = Queries.from_asyncpg_connection(connection)
        await queries.install()
        await connection.execute(LEDGER)
        await queries.enqueue("probe", b"{}")


async def rescue(database: Database) -> None:
    """None needed: worker B's dequeue picks it up."""


async def look(database: Database) -> Seen:
    async with database.connect() as connection:
        row = await connection.fetchrow("SELECT heartbeat, queue_manager_id FROM pgqueuer")
        ends = await connection.fetch(
            "SELECT status FROM pgqueuer_log WHERE status IN ('successful', 'exception', 'failed') ORDER BY id"
        )
    record = ", ".join(end["status"] for end in ends) or "no end"
    if row is None:
        return Seen(False, record, None, None)
    return Seen(True, record, str(row["queue_manager_id"]), row["heartbeat"])


LIBRARY = Library("pgqueuer", "bench.stale_pgqueuer", install, rescue, look)


async def _worker(dsn: str, name: str) -> None:
    logging.getLogger("pgqueuer").setLevel(logging.CRITICAL)
    async with asyncpg.create_pool(dsn, min_size=2, max_size=5) as pool:
        driver = AsyncpgPoolDriver(pool)
        queries = Queries(driver)
        queries.log_jobs = reporting(queries.log_jobs)
        peer = PgQueuer(driver, queries=queries)

        async def probe(job: Job) -> None:
            await body(dsn, name)

        peer.entrypoint("probe")(probe)
        await peer.run(heartbeat_timeout=timedelta(seconds=LEASE_SECONDS))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("dsn")
    parser.add_argument("name")
    options = parser.parse_args()
    uvloop.run(_worker(options.dsn, options.name))


if __name__ == "__main__":
    main()
