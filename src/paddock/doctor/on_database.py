"""The database: what it is, whether it keeps what it accepted, and whether it has room."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import asyncpg

from paddock.config import Config
from paddock.db.migrate import OLDEST_SERVER, migration_folders, migration_title, read_migrations
from paddock.db.pool import Statement
from paddock.doctor.findings import Finding, broken, ok, warning
from paddock.jobs.core import Core

SKEW = timedelta(seconds=2)
OLD_SNAPSHOT = timedelta(minutes=10)
FULL_QUEUE = 0.1
FULL_CONNECTIONS = 0.8

VERSION = Statement(
    "doctor_version",
    "SELECT current_setting('server_version') AS version, current_setting('server_version_num')::int / 10000 AS major, "
    "pg_is_in_recovery() AS standby",
    "durable",
)
MIGRATIONS = Statement(
    "doctor_migrations",
    "SELECT capability, version, name FROM schema_migrations ORDER BY applied_at, capability, version",
    "durable",
)
DURABILITY = Statement(
    "doctor_durability",
    "SELECT current_setting('synchronous_commit') AS synchronous_commit, current_setting('fsync') AS fsync, "
    "current_setting('full_page_writes') AS full_page_writes, "
    "(SELECT count(*) FROM pg_stat_replication) AS standbys, "
    "(SELECT count(*) FROM pg_stat_replication WHERE sync_state IN ('sync', 'quorum')) AS synchronous",
    "durable",
)
CLOCK = Statement(
    "doctor_clock",
    "SELECT clock_timestamp() AS at, greatest(served_at, resumed_at) - paddock_now() AS ahead FROM service",
    "durable",
)
PRESSURE = Statement(
    "doctor_pressure",
    "SELECT pg_notification_queue_usage() AS queue, (SELECT count(*) FROM pg_stat_activity) AS connections, "
    "current_setting('max_connections')::int AS most, "
    "(SELECT max(clock_timestamp() - xact_start) FROM pg_stat_activity "
    "WHERE backend_xmin IS NOT NULL AND pid <> pg_backend_pid() AND backend_type = 'client backend') AS oldest",
    "durable",
)


async def database(core: Core, config: Config) -> AsyncIterator[Finding]:
    row = await row_of(core, VERSION)
    if row["major"] < OLDEST_SERVER:
        yield broken("database", f"PostgreSQL {row['version']} is too old.", f"Upgrade to {OLDEST_SERVER} or newer.")
    elif row["standby"]:
        yield broken("database", "This PostgreSQL is a standby: nothing can be written.", "Name the primary's address.")
    else:
        yield ok("database", f"PostgreSQL {row['version']}.")


async def migrations(core: Core, config: Config) -> AsyncIterator[Finding]:
    folders = migration_folders()
    known = {
        (owner, migration.version): str(migration)
        for owner, folder in folders.items()
        for migration in read_migrations(folder, owner)
    }
    applied = {
        (row["capability"], row["version"]): migration_title(row["capability"], row["name"])
        for row in await core.db.fetch(MIGRATIONS)
    }
    missing = [title for key, title in known.items() if key not in applied]
    newer = [title for key, title in applied.items() if key[0] in folders and key not in known]
    absent = sorted({owner for owner, _ in applied if owner not in folders})
    if missing:
        yield broken(
            "migrations", f"Not applied: {', '.join(missing)}.", "Start `paddock serve` of this release again."
        )
    elif newer:
        told = f"The database has migrations of a newer release: {', '.join(newer)}."
        yield warning("migrations", told, "Finish the upgrade: start the newer release everywhere.")
    else:
        left = f" Tables of what is not installed here are kept: {', '.join(absent)}." if absent else ""
        yield ok("migrations", f"{len(applied)} applied, none missing.{left}")


async def durability(core: Core, config: Config) -> AsyncIterator[Finding]:
    row = await row_of(core, DURABILITY)
    if row["synchronous_commit"] == "off" or row["fsync"] == "off" or row["full_page_writes"] == "off":
        settings = ", ".join(f"{name} = {row[name]}" for name in ("synchronous_commit", "fsync", "full_page_writes"))
        yield broken(
            "durability", f"A crash can lose accepted jobs ({settings}).", "Switch all three on in postgresql.conf."
        )
    elif row["standbys"] and not row["synchronous"]:
        yield warning(
            "durability",
            f"{row['standbys']} standby, none of them synchronous: after a failover accepted jobs may be gone, and jobs "
            "that were done may run again.",
            "Set synchronous_standby_names, so that a commit waits for a standby.",
        )
    else:
        standby = "with a synchronous standby" if row["synchronous"] else "no standby"
        yield ok("durability", f"Commits wait for the disk; {standby}.")


async def clock(core: Core, config: Config) -> AsyncIterator[Finding]:
    before = datetime.now(UTC)
    row = await row_of(core, CLOCK)
    at, ahead = row["at"], row["ahead"]
    after = datetime.now(UTC)
    if ahead > SKEW:
        yield broken(
            "clock",
            f"The database's clock went back by {ahead.total_seconds():.1f} s: until its times are pulled back no lease ends.",
            "The rescuer of `paddock serve` does that within seconds. If this stays, look at its log and start it again.",
        )
    skew = max(at - after, before - at, timedelta(0))
    told = f"The control plane's clock and the database's differ by {skew.total_seconds():.1f} s."
    if skew > SKEW:
        yield warning("clock", told, "Set both by NTP. Only the database's decides anything, but logs will confuse.")
    else:
        yield ok("clock", told)


async def pressure(core: Core, config: Config) -> AsyncIterator[Finding]:
    row = await row_of(core, PRESSURE)
    quiet = True
    if row["queue"] > FULL_QUEUE:
        quiet = False
        yield warning(
            "database load",
            f"PostgreSQL's notification queue is {100 * row['queue']:.0f} % full: some session listens and does not read.",
            "Find it: SELECT * FROM pg_stat_activity WHERE state = 'idle in transaction'.",
        )
    if row["connections"] > FULL_CONNECTIONS * row["most"]:
        quiet = False
        yield warning(
            "database load",
            f"{row['connections']} of {row['most']} connections are taken.",
            "Raise max_connections, or lower PADDOCK_DURABLE_POOL and PADDOCK_RELAXED_POOL.",
        )
    if row["oldest"] is not None and row["oldest"] > OLD_SNAPSHOT:
        quiet = False
        minutes = row["oldest"].total_seconds() / 60
        yield warning(
            "database load",
            f"A transaction has been open for {minutes:.0f} min: dead rows pile up behind it.",
            "Find it in pg_stat_activity (xact_start) and end it.",
        )
    if quiet:
        yield ok("database load", f"{row['connections']} of {row['most']} connections; no old transaction.")


async def row_of(core: Core, statement: Statement) -> asyncpg.Record:
    row = await core.db.fetchrow(statement)
    assert row is not None
    return row
