"""Running jobs that hang, as far as rows and figures tell it.

Two signs: a time-out has passed and nobody stopped the job, so its worker cannot or does not; or the job has run far
longer than those of its kind do. A handler that hangs in a kind without time-outs shows only by the second.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from paddock.db.pool import Database, statements
from paddock.jobs.figures.histograms import percentile, spelled_out
from paddock.jobs.model import JobId

SQL = statements("paddock.jobs.sql", "running.sql")
# A worker stops what is over its time within its grace; by then it should have.
STOPPED_WITHIN = timedelta(minutes=1)
LEAST_LONG = timedelta(minutes=10)
TIMES_USUAL = 5
# Fewer say nothing about what is usual.
LEAST_ENDED = 20
MOST_LOOKED_AT = 200


@dataclass(frozen=True, slots=True)
class Hanging:
    """`overdue`: its time-out has passed. Otherwise it runs far longer than usual."""

    id: JobId
    kind: str
    since: datetime
    overdue: bool


async def hanging(db: Database) -> list[Hanging]:
    """The longest-running first, from among the longest-running few hundred."""
    rows = await db.fetch(SQL["running_long"], STOPPED_WITHIN, MOST_LOOKED_AT)
    long = {row["kind"] for row in rows if row["ran"] >= LEAST_LONG and not row["overdue"]}
    usual = await _usual(db, sorted(long)) if long else {}
    return [
        Hanging(JobId(row["id"]), row["kind"], row["claimed_at"], row["overdue"])
        for row in rows
        if row["overdue"] or _unusual(row["ran"], usual.get(row["kind"]))
    ]


def _unusual(ran: timedelta, usual: timedelta | None) -> bool:
    return usual is not None and ran >= max(LEAST_LONG, TIMES_USUAL * usual)


async def _usual(db: Database, kinds: Sequence[str]) -> Mapping[str, timedelta]:
    """What nineteen of twenty completed jobs of a kind took at most, in the last week."""
    found = {}
    for row in await db.fetch(spelled_out(SQL["usual_run"]), kinds):
        seconds = percentile(row["run_histogram"], 0.95)
        if seconds is not None and sum(row["run_histogram"]) >= LEAST_ENDED:
            found[row["kind"]] = timedelta(seconds=seconds)
    return found
