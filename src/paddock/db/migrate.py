"""Plain SQL migrations: `NNNN_name.sql` files, applied once each, in order.

Any number of processes may call `migrate` at the same time; one applies, the others wait and find nothing to do.
Each file and its record commit together, so a kill leaves a migration either applied or not begun. The exception is
a file whose first line is `-- no-transaction` (CREATE INDEX CONCURRENTLY and the like): it holds one statement, which
must be safe to run twice, because a kill can fall between the statement and its record.

A database with migrations that this code does not know is left as it is: during a rolling upgrade the old release runs
beside the new schema.
"""

import asyncio
import hashlib
import re
from dataclasses import dataclass
from importlib.resources import files
from importlib.resources.abc import Traversable

import asyncpg
import structlog

log = structlog.get_logger()

OLDEST_SERVER = 15
_LOCK = 0x70616464_6D696772  # any constant that nothing else locks: "paddmigr"
_TABLE = """
CREATE TABLE IF NOT EXISTS schema_migrations (
    version    int PRIMARY KEY,
    name       text NOT NULL,
    checksum   text NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT now()
)
"""


class MigrationError(Exception):
    code = "migration"


class ChecksumChanged(MigrationError):
    code = "migration_checksum_changed"


class ServerTooOld(MigrationError):
    code = "postgres_too_old"


@dataclass(frozen=True)
class Migration:
    version: int
    name: str
    sql: str

    @property
    def checksum(self) -> str:
        return hashlib.sha256(self.sql.encode()).hexdigest()

    @property
    def in_transaction(self) -> bool:
        return self.sql.partition("\n")[0].strip() != "-- no-transaction"


async def migrate(dsn: str, folder: Traversable | None = None) -> list[str]:
    """Brings the database up to the migrations in the folder (ours by default); returns the names of those applied."""
    migrations = read_migrations(folder or files("paddock.db") / "migrations")
    connection = await asyncpg.connect(dsn)
    try:
        server = connection.get_server_version()
        if server.major < OLDEST_SERVER:
            raise ServerTooOld(f"The database is PostgreSQL {server.major}; Paddock needs {OLDEST_SERVER} or newer.")
        # Polled, not waited for in the server: a session that waits inside a statement holds a snapshot, for which
        # CREATE INDEX CONCURRENTLY in the session with the lock would wait in turn: a deadlock.
        while not await connection.fetchval("SELECT pg_try_advisory_lock($1)", _LOCK):  # noqa: ASYNC110  the event is in the server
            await asyncio.sleep(0.05)
        return await _apply(connection, migrations)
    finally:
        await connection.close()  # which gives the lock back


def read_migrations(folder: Traversable) -> list[Migration]:
    found: dict[int, Migration] = {}
    for file in folder.iterdir():
        if not file.name.endswith(".sql"):
            continue
        match = re.fullmatch(r"(\d{4})_(\w+)\.sql", file.name)
        if match is None:
            raise MigrationError(f"The migration {file.name} is not named like 0001_name.sql.")
        migration = Migration(int(match[1]), file.name.removesuffix(".sql"), file.read_text(encoding="utf-8"))
        if migration.version in found:
            raise MigrationError(
                f"The migrations {found[migration.version].name} and {migration.name} have one number."
            )
        found[migration.version] = migration
    return [found[version] for version in sorted(found)]


async def _apply(connection: asyncpg.Connection, migrations: list[Migration]) -> list[str]:
    await connection.execute(_TABLE)
    rows = await connection.fetch("SELECT version, name, checksum FROM schema_migrations ORDER BY version")
    recorded = {row["version"]: row for row in rows}
    unknown = [row["name"] for version, row in recorded.items() if version not in {m.version for m in migrations}]
    if unknown:
        log.warning("the database has migrations that this release does not know", migrations=unknown)
    applied = []
    for migration in migrations:
        record = recorded.get(migration.version)
        if record is None:
            await _apply_one(connection, migration)
            applied.append(migration.name)
        elif record["checksum"] != migration.checksum:
            raise ChecksumChanged(
                f"The migration {migration.name} has changed since it was applied to this database (as {record['name']}). "
                f"Restore the file and put the change into a new migration."
            )
    return applied


async def _apply_one(connection: asyncpg.Connection, migration: Migration) -> None:
    record = "INSERT INTO schema_migrations (version, name, checksum) VALUES ($1, $2, $3)"
    values = (migration.version, migration.name, migration.checksum)
    try:
        if migration.in_transaction:
            async with connection.transaction():
                await connection.execute(migration.sql)
                await connection.execute(record, *values)
        else:
            await connection.execute(migration.sql)
            await connection.execute(record, *values)
    except asyncpg.PostgresError as error:
        raise MigrationError(f"The migration {migration.name} failed and was not recorded: {error}") from error
    log.info("migration applied", migration=migration.name)
