"""History and logs in partitions by time: made ahead, dropped whole when they are too old.

A row for which there is no partition yet goes to the default partition, so a finish never fails for want of one.
Making a partition for a time that has rows there already moves them, in the same transaction, while writers wait;
that is done only for few rows. Otherwise that stretch of time stays in the default partition, and its rows expire
one by one.

Every lock that holds up writers is waited for at most half a second; the pass comes again in five minutes.
"""

from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta

import asyncpg

from paddock.db.pool import Database, Transaction, statements

SQL = statements("paddock.jobs.sql", "upkeep.sql")
MOST_MOVED = 20_000
# Rows are only ever added, and no plan depends on statistics: by default PostgreSQL would sample a young partition
# again for every tenth that it grows, at a cost of about that of the jobs. The default partitions have the same.
CALM = (
    "autovacuum_analyze_scale_factor = 1, autovacuum_analyze_threshold = 50000, "
    "autovacuum_vacuum_insert_scale_factor = 0.5, autovacuum_vacuum_insert_threshold = 50000"
)


@dataclass(frozen=True, slots=True)
class Partitioned:
    table: str
    column: str
    days: int
    ahead: int

    def beginning(self, at: datetime) -> date:
        """Of the partition that holds this time; weeks begin on Monday."""
        day = at.astimezone(UTC).date()
        return day - timedelta(days=day.toordinal() - 1) % timedelta(days=self.days)


HISTORY = Partitioned("job_history", "completed_at", days=7, ahead=2)
# The tags of the jobs in the history: what becomes of a job becomes of them.
TAGS = Partitioned("job_history_tags", "completed_at", days=7, ahead=2)
LOGS = Partitioned("job_logs", "at", days=1, ahead=3)


async def make_ahead(db: Database, what: Partitioned, now: datetime) -> int:
    """Makes those of now and of the time to come that are missing. Returns how many it made."""
    known = {row["begins"] for row in await db.fetch(SQL["partitions"], what.table)}
    made = 0
    for n in range(what.ahead + 1):
        begins = what.beginning(now) + timedelta(days=what.days * n)
        if begins not in known:
            made += await _make(db, what, begins)
    return made


async def drop_expired(db: Database, what: Partitioned, before: datetime) -> int:
    """Detaches and drops the partitions that hold nothing younger. A crash between the two leaves a table that
    belongs to nothing; the next pass drops it."""
    dropped = 0
    for row in await db.fetch(SQL["partitions"], what.table):
        if row["attached"]:
            if _midnight(row["begins"] + timedelta(days=what.days)) > before:
                continue
            async with db.transaction() as tx:
                await tx.execute(SQL["short_lock_wait"])
                await tx.execute(f"ALTER TABLE {what.table} DETACH PARTITION {row['name']}")
        async with db.transaction() as tx:
            await tx.execute(f"DROP TABLE IF EXISTS {row['name']}")
        dropped += 1
    return dropped


def kept_from(what: Partitioned, before: datetime) -> datetime:
    """Where the oldest partition begins that `drop_expired` leaves."""
    return _midnight(what.beginning(before))


async def _make(db: Database, what: Partitioned, begins: date) -> bool:
    table, column = what.table, what.column
    name = f"{table}_{begins:%Y%m%d}"
    start, end = _midnight(begins), _midnight(begins + timedelta(days=what.days))
    inside = f"{column} >= '{start.isoformat()}' AND {column} < '{end.isoformat()}'"
    async with db.transaction() as tx:
        await tx.execute(SQL["short_lock_wait"])
        if await _rows(tx, f"{table}_default", inside) > MOST_MOVED:
            return False
        await tx.execute(f"CREATE TABLE {name} (LIKE {table} INCLUDING DEFAULTS INCLUDING CONSTRAINTS) WITH ({CALM})")
        # Writers must wait before they have chosen a partition. One that waits for the default partition itself
        # would find after the commit that its row no longer belongs there, and a finish would fail.
        await tx.execute(f"LOCK TABLE ONLY {table} IN SHARE ROW EXCLUSIVE MODE")
        await tx.execute(f"LOCK TABLE {table}_default IN ACCESS EXCLUSIVE MODE")
        if await _rows(tx, f"{table}_default", inside) > MOST_MOVED:
            raise asyncpg.LockNotAvailableError("Too many rows arrived in the default partition meanwhile.")
        await tx.execute(
            f"WITH moved AS (DELETE FROM {table}_default WHERE {inside} RETURNING *) INSERT INTO {name} SELECT * FROM moved"  # noqa: S608  names and dates of our own
        )
        await tx.execute(
            f"ALTER TABLE {table} ATTACH PARTITION {name} FOR VALUES FROM ('{start.isoformat()}') TO ('{end.isoformat()}')"
        )
    return True


async def _rows(tx: Transaction, table: str, inside: str) -> int:
    counted = f"SELECT count(*) FROM (SELECT FROM {table} WHERE {inside} LIMIT {MOST_MOVED + 1}) first_rows"  # noqa: S608  as above
    return int(await tx.fetchval(counted))


def _midnight(day: date) -> datetime:
    return datetime.combine(day, time(), UTC)
