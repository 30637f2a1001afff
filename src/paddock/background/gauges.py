"""Gauges that the database tells, read by every replica every 10 s: the same on all of them."""

from paddock.background import records
from paddock.background.export_reconciliation import KIND
from paddock.background.records import SQL
from paddock.exports.schema.merging import SQL as SCHEMA
from paddock.instances.model import SQL as INSTANCES
from paddock.jobs.core import Core
from paddock.metrics import show_all
from paddock.pass_metrics import pass_metrics

LIVE = ("pending", "claimed", "submitted")
ENDED = ("completed", "failed", "cancelled")
# More than so many that wait are shown as this many: counting a million takes a tenth of a second.
MOST_COUNTED = 100_000


async def sample(core: Core) -> None:
    await records.show_all(core.db)
    row = await core.db.fetchrow(SQL["waiting_of_kind"], KIND, MOST_COUNTED)
    assert row is not None
    ended = {found["status"]: found["n"] for found in await core.db.fetch(SQL["ended_last_day"], KIND)}
    figures: dict[tuple[str, ...], float] = {(status,): row[status] for status in LIVE}
    figures |= {(status,): ended.get(status, 0) for status in ENDED}
    metrics = pass_metrics()
    show_all(metrics.export_jobs, figures)
    metrics.export_queue_depth.set(row["pending"])
    counts = await core.db.fetchrow(SCHEMA["counts"])
    assert counts is not None
    show_all(metrics.schema_entries, {(name,): float(n) for name, n in counts.items()})
    metrics.without_pod_name.set(await core.db.fetchval(INSTANCES["without_pod_name"]))
