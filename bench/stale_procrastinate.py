"""Procrastinate in the stale-writer probe: its own worker, and its documented way to retry stalled jobs."""

from __future__ import annotations

import argparse
import logging

import uvloop

from bench.environment import Database
from bench.procrastinate_peer import application
from bench.stale_library import LEASE_SECONDS, LEDGER, Library, Seen, body, reporting

POOL = 3


async def install(database: Database) -> None:
    app = application(database.dsn, POOL)
    async with app.open_async():
        await app.schema_manager.apply_schema_async()
        await app.configure_task("probe").defer_async()
    async with database.connect() as connection:
        await connection.execute(LEDGER)


async def rescue(database: Database) -> None:
    """What its guide on stalled jobs has a periodic task do."""
    app = application(database.dsn, POOL)
    async with app.open_async():
        for job in await app.job_manager.get_stalled_jobs(seconds_since_heartbeat=LEASE_SECONDS):
            await app.job_manager.retry_job(job)


async def look(database: Database) -> Seen:
    async with database.connect() as connection:
        row = await connection.fetchrow(
            "SELECT job.status, job.worker_id, worker.last_heartbeat FROM procrastinate_jobs AS job"
            " LEFT JOIN procrastinate_workers AS worker ON worker.id = job.worker_id"
        )
    assert row is not None
    return Seen(row["status"] in ("todo", "doing"), row["status"], str(row["worker_id"]), row["last_heartbeat"])


LIBRARY = Library("procrastinate", "bench.stale_procrastinate", install, rescue, look)


async def _worker(dsn: str, name: str) -> None:
    logging.getLogger("procrastinate").setLevel(logging.CRITICAL)
    app = application(dsn, POOL)
    app.job_manager.finish_job = reporting(app.job_manager.finish_job)

    async def probe() -> None:
        await body(dsn, name)

    app.task(name="probe")(probe)
    async with app.open_async():
        await app.run_worker_async(
            install_signal_handlers=False,
            update_heartbeat_interval=LEASE_SECONDS / 4,
            stalled_worker_timeout=LEASE_SECONDS,
        )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("dsn")
    parser.add_argument("name")
    options = parser.parse_args()
    uvloop.run(_worker(options.dsn, options.name))


if __name__ == "__main__":
    main()
