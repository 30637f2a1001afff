"""What the control plane counts of ingest, after the commit that made it true."""

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import asyncpg
from prometheus_client import Counter, Gauge, Histogram

from paddock.db.pool import Transaction, statements
from paddock.ingest.model import Published

if TYPE_CHECKING:
    from paddock.jobs.core import Core

SQL = statements("paddock.ingest.sql", "ingest.sql")

BATCHES = Counter("paddock_ingest_batches", "Batches that ended", ["source", "outcome"])
RECORDS = Counter("paddock_ingest_records", "Records of batches that were published", ["source", "outcome"])
STEP_FAILURES = Counter("paddock_ingest_step_failures", "Steps that failed for good", ["step", "category"])
RUN_SECONDS = Histogram(
    "paddock_ingest_run_seconds",
    "From start to end of a run",
    ["outcome"],
    buckets=(1, 5, 15, 60, 300, 900, 3600, 14400, 86400),
)
UNSCHEDULED = Gauge("paddock_ingest_unscheduled", "Jobs of steps that find no place on the cluster", ["namespace"])
WAITING = Gauge("paddock_ingest_waiting_bytes", "Fetched and not yet published", ["source"])


def published(tx: Transaction, source: str, batch: asyncpg.Record, found: Published) -> None:
    ended(tx, source, "published")
    errors = batch["errors"] or 0
    for outcome, n in (
        ("published", found.rows),
        ("rejected", found.rejected - errors),
        ("error", errors),
        ("duplicate", batch["duplicates"]),
    ):
        tx.count(RECORDS.labels(source, outcome), n)


def ended(tx: Transaction, source: str, outcome: str) -> None:
    tx.count(BATCHES.labels(source, outcome))


def step_failed(tx: Transaction, step: str, code: str | None) -> None:
    tx.count(STEP_FAILURES.labels(step, code or "unknown"))


def run_ended(tx: Transaction, source: str, status: str, began: datetime) -> None:
    tx.observe(RUN_SECONDS.labels(status), max(0.0, (datetime.now(UTC) - began).total_seconds()))


async def sample(core: "Core") -> None:
    """What waits of each source with a live run, and what has no place on a cluster as workers that wait for it see it; what
    is not there has no series."""
    rows = await core.db.fetch(SQL["waiting_bytes"])
    WAITING.clear()
    for row in rows:
        WAITING.labels(row["source"]).set(row["bytes"])
    seen = await core.db.fetch(SQL["unscheduled"])
    UNSCHEDULED.clear()
    for row in seen:
        UNSCHEDULED.labels(row["namespace"]).set(row["unscheduled"])
