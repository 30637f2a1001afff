"""Plain SQL migrations: `NNNN_name.sql` files, applied once each, in one order.

The core's migrations come first, then those of each capability, in the order of `capabilities()`; within one owner the
number decides. Numbers and records are an owner's own: `schema_migrations` names the owner of each.

A database that is upgraded has had the older files of all owners before the newer files of any; a new one gets all of the
core's before the first of a capability. So that both end alike, a migration changes only tables of its owner. It may
mention the core's tables and those of capabilities before its own, and the core takes nothing away that a capability's
file mentions, the oldest included.

Any number of processes may call `migrate` at the same time; one applies, the others wait and find nothing to do.
Each file and its record commit together, so a kill leaves a migration either applied or not begun. The exception is
a file whose first line is `-- no-transaction` (CREATE INDEX CONCURRENTLY and the like): it holds one statement, which
must be safe to run twice, because a kill can fall between the statement and its record.

A schema newer than this code is refused and left as it is: nobody knows what the statements here would do to it. What
runs already goes on beside it during a rolling upgrade; only a start is refused. Newer means that an owner who is here has
a record which its files do not have. Records of an owner who is not here are left alone: its package was uninstalled,
cannot be loaded, or came with a newer release. No statement of the others reads its tables, and they wait for it: when it
comes back, it goes on after the last of its files that was applied. One whose migration fails stops the start of everybody,
because its other parts would meet tables that are not there.
"""

import asyncio
import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from importlib.resources.abc import Traversable

import asyncpg
import structlog

import paddock
from paddock.capability import CORE, capabilities

log = structlog.get_logger()

OLDEST_SERVER = 15
_LOCK = 0x70616464_6D696772  # any constant that nothing else locks: "paddmigr"
_TABLE = """
CREATE TABLE IF NOT EXISTS schema_migrations (
    capability text NOT NULL DEFAULT 'core',
    version    int NOT NULL,
    name       text NOT NULL,
    checksum   text NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (capability, version)
)
"""
_HAS_OWNERS = """
SELECT EXISTS (SELECT FROM pg_attribute WHERE attrelid = 'schema_migrations'::regclass AND attname = 'capability')
"""
# Records named no owner once, and the migrations of exports and dumps were numbered among the core's.
_ADD_OWNERS = """
ALTER TABLE schema_migrations ADD COLUMN capability text NOT NULL DEFAULT 'core';
ALTER TABLE schema_migrations DROP CONSTRAINT schema_migrations_pkey, ADD PRIMARY KEY (capability, version);
UPDATE schema_migrations SET capability = 'exports' WHERE version = 2 AND name = '0002_exports';
UPDATE schema_migrations SET capability = 'dumps' WHERE version = 3 AND name = '0003_dumps';
"""


class MigrationError(Exception):
    code = "migration"


class ChecksumChanged(MigrationError):
    code = "migration_checksum_changed"


class SchemaTooNew(MigrationError):
    code = "schema_too_new"


class ServerTooOld(MigrationError):
    code = "postgres_too_old"


@dataclass(frozen=True)
class Migration:
    owner: str
    version: int
    name: str
    sql: str

    @property
    def checksum(self) -> str:
        return hashlib.sha256(self.sql.encode()).hexdigest()

    @property
    def in_transaction(self) -> bool:
        return self.sql.partition("\n")[0].strip() != "-- no-transaction"

    def __str__(self) -> str:
        return migration_title(self.owner, self.name)


def migration_title(owner: str, name: str) -> str:
    """How people are told of one: `0001_core`, and `exports/0002_exports` of a capability."""
    return name if owner == CORE else f"{owner}/{name}"


def migration_folders() -> dict[str, Traversable]:
    """The folder of each owner, in the order in which they are applied. It need not exist."""
    packages = {CORE: "paddock.db"} | {capability.name: capability.package for capability in capabilities()}
    return {owner: files(package) / "migrations" for owner, package in packages.items()}


async def migrate(dsn: str, folders: Mapping[str, Traversable] | None = None) -> list[str]:
    """Brings the database up to the migrations in the folders, by default those of `migration_folders`; returns the names
    of those applied."""
    folders = migration_folders() if folders is None else folders
    migrations = [migration for owner, folder in folders.items() for migration in read_migrations(folder, owner)]
    connection = await asyncpg.connect(dsn)
    try:
        server = connection.get_server_version()
        if server.major < OLDEST_SERVER:
            raise ServerTooOld(f"The database is PostgreSQL {server.major}; Paddock needs {OLDEST_SERVER} or newer.")
        # Polled, not waited for in the server: a session that waits inside a statement holds a snapshot, for which
        # CREATE INDEX CONCURRENTLY in the session with the lock would wait in turn: a deadlock.
        while not await connection.fetchval("SELECT pg_try_advisory_lock($1)", _LOCK):  # noqa: ASYNC110  the event is in the server
            await asyncio.sleep(0.05)
        return await _apply(connection, migrations, owners=set(folders))
    finally:
        await connection.close()  # which gives the lock back


def read_migrations(folder: Traversable, owner: str = CORE) -> list[Migration]:
    """Those of one owner, by number; none where there is no such folder."""
    found: dict[int, Migration] = {}
    for file in folder.iterdir() if folder.is_dir() else ():
        if not file.name.endswith(".sql"):
            continue
        match = re.fullmatch(r"(\d{4})_(\w+)\.sql", file.name)
        if match is None:
            raise MigrationError(f"The migration {migration_title(owner, file.name)} is not named like 0001_name.sql.")
        name, sql = file.name.removesuffix(".sql"), file.read_text(encoding="utf-8")
        migration = Migration(owner, int(match[1]), name, sql)
        if migration.version in found:
            raise MigrationError(f"The migrations {found[migration.version]} and {migration} have one number.")
        found[migration.version] = migration
    return [found[version] for version in sorted(found)]


async def _apply(connection: asyncpg.Connection, migrations: list[Migration], owners: set[str]) -> list[str]:
    await connection.execute(_TABLE)
    if not await connection.fetchval(_HAS_OWNERS):
        async with connection.transaction():
            await connection.execute(_ADD_OWNERS)
    rows = await connection.fetch(
        "SELECT capability, version, name, checksum FROM schema_migrations ORDER BY capability, version"
    )
    recorded = {(row["capability"], row["version"]): row for row in rows}
    known = {(migration.owner, migration.version) for migration in migrations}
    newer = [
        migration_title(owner, row["name"])
        for (owner, version), row in recorded.items()
        if owner in owners and (owner, version) not in known
    ]
    if newer:
        raise SchemaTooNew(
            f"The database was migrated by a newer release: this one ({paddock.__version__}) does not know "
            f"{', '.join(newer)}. Start that release or a later one, or restore a backup from before the upgrade."
        )
    applied = []
    for migration in migrations:
        record = recorded.get((migration.owner, migration.version))
        if record is None:
            await _apply_one(connection, migration)
            applied.append(str(migration))
        elif record["checksum"] != migration.checksum:
            raise ChecksumChanged(
                f"The migration {migration} has changed since it was applied to this database (as {record['name']}). "
                f"Restore the file and put the change into a new migration."
            )
    return applied


async def _apply_one(connection: asyncpg.Connection, migration: Migration) -> None:
    record = "INSERT INTO schema_migrations (capability, version, name, checksum) VALUES ($1, $2, $3, $4)"
    values = (migration.owner, migration.version, migration.name, migration.checksum)
    try:
        if migration.in_transaction:
            async with connection.transaction():
                await connection.execute(migration.sql)
                await connection.execute(record, *values)
        else:
            await connection.execute(migration.sql)
            await connection.execute(record, *values)
    except asyncpg.PostgresError as error:
        raise MigrationError(f"The migration {migration} failed and was not recorded: {error}") from error
    log.info("migration_applied", migration=str(migration))
