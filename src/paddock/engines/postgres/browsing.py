"""What the login may see: its database, the schemas it may use, the tables and columns it may read."""

from collections.abc import Sequence

import asyncpg

from paddock.engines.engine import Column, Finding, QueryRefused
from paddock.engines.postgres.proving import Field, typed
from paddock.engines.postgres.session import Connection
from paddock.engines.settings import PostgresSettings

_SCHEMAS = """
SELECT nspname::text FROM pg_catalog.pg_namespace
WHERE nspname NOT LIKE 'pg\\_%' AND nspname <> 'information_schema'
  AND pg_catalog.has_schema_privilege(oid, 'USAGE')
ORDER BY nspname
"""
_TABLES = """
SELECT c.relname::text FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = $1 AND c.relkind IN ('r', 'p', 'v', 'm', 'f')
  AND pg_catalog.has_schema_privilege(n.oid, 'USAGE')
  AND pg_catalog.has_any_column_privilege(c.oid, 'SELECT')
ORDER BY c.relname
"""
_COLUMNS = """
SELECT a.attname::text AS name, a.atttypid AS type, a.atttypmod AS modifier
FROM pg_catalog.pg_attribute a
JOIN pg_catalog.pg_class c ON c.oid = a.attrelid
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = $1 AND c.relname = $2 AND a.attnum > 0 AND NOT a.attisdropped
  AND pg_catalog.has_schema_privilege(n.oid, 'USAGE')
  AND pg_catalog.has_column_privilege(c.oid, a.attnum, 'SELECT')
ORDER BY a.attnum
"""
# A table without columns has one row, whose column is null.
_METADATA = """
SELECT c.relname::text AS table_name, a.attname::text AS column_name, pg_catalog.format_type(a.atttypid, a.atttypmod) AS data_type
FROM pg_catalog.pg_class c
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
LEFT JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
  AND pg_catalog.has_column_privilege(c.oid, a.attnum, 'SELECT')
WHERE n.nspname = {schema} AND c.relkind IN ('r', 'p', 'v', 'm', 'f')
  AND pg_catalog.has_schema_privilege(n.oid, 'USAGE')
  AND pg_catalog.has_any_column_privilege(c.oid, 'SELECT')
ORDER BY c.relname COLLATE "C", a.attnum
"""
_FACTS = """
SELECT pg_catalog.current_setting('server_version') AS version,
       session_user::text AS login,
       pg_catalog.current_database()::text AS database,
       pg_catalog.current_setting('server_encoding') AS encoding,
       pg_catalog.pg_is_in_recovery() AS standby,
       COALESCE((SELECT s.ssl FROM pg_catalog.pg_stat_ssl s WHERE s.pid = pg_catalog.pg_backend_pid()), false) AS tls,
       pg_catalog.inet_server_addr() IS NULL AS local,
       EXISTS (SELECT FROM pg_catalog.pg_proc p WHERE p.proname IN ('dblink', 'dblink_connect', 'dblink_exec')
               AND pg_catalog.has_function_privilege(p.oid, 'EXECUTE')) AS dblink
"""


def metadata_query(schema: str) -> str:
    """Table, column and type of one schema, in the order of their names; a table without columns too. A backslash in the name is only itself."""
    escaped = schema.replace("\\", "\\\\").replace("'", "\\'")
    return _METADATA.format(schema=f"E'{escaped}'").strip()


async def catalogs(connection: Connection) -> Sequence[str]:
    return [str(await connection.fetchval("SELECT pg_catalog.current_database()::text"))]


async def schemas(connection: Connection, catalog: str) -> Sequence[str]:
    await _only_own(connection, catalog)
    return [row[0] for row in await connection.fetch(_SCHEMAS)]


async def tables(connection: Connection, catalog: str, schema: str) -> Sequence[str]:
    await _only_own(connection, catalog)
    return [row[0] for row in await connection.fetch(_TABLES, schema)]


async def columns(connection: Connection, catalog: str, schema: str, table: str) -> Sequence[Column]:
    await _only_own(connection, catalog)
    found = await connection.fetch(_COLUMNS, schema, table)
    return await typed(connection, [Field(**row) for row in found])


async def _only_own(connection: Connection, catalog: str) -> None:
    (own,) = await catalogs(connection)
    if catalog != own:
        raise QueryRefused(
            f"This engine's database is '{own}', not '{catalog}'.",
            code="no_such_catalog",
            hint="A connection to PostgreSQL sees one database: configure an engine for each.",
        )


async def findings(connection: Connection, settings: PostgresSettings) -> Sequence[Finding]:
    facts = await connection.fetchrow(_FACTS)
    assert facts is not None
    return [
        Finding("connection", True, f"PostgreSQL {facts['version']}, database {facts['database']}{_standby(facts)}"),
        Finding("login", True, f"'{facts['login']}' cannot reach files, programs or other sessions of the server"),
        _transport(facts),
        _encoding(facts),
        _dblink(facts),
        Finding(
            "row security",
            True,
            "policies choose the rows" if settings.row_security else "a policy that would hide rows fails the query",
        ),
    ]


def _standby(facts: asyncpg.Record) -> str:
    return ", a standby" if facts["standby"] else ""


def _transport(facts: asyncpg.Record) -> Finding:
    if facts["tls"] or facts["local"]:
        return Finding("transport", True, "TLS" if facts["tls"] else "local socket")
    return Finding("transport", False, "the connection is not encrypted", "Set ssl = 'verify-full' and ca_file.")


def _encoding(facts: asyncpg.Record) -> Finding:
    if facts["encoding"] != "SQL_ASCII":
        return Finding("encoding", True, str(facts["encoding"]))
    return Finding("encoding", False, "SQL_ASCII: text that is not UTF-8 fails the export", "Cast it to bytea.")


def _dblink(facts: asyncpg.Record) -> Finding:
    if not facts["dblink"]:
        return Finding("outside", True, "no connections from inside the database")
    return Finding(
        "outside",
        False,
        "the login may run dblink: a query could reach other servers",
        "REVOKE EXECUTE ON FUNCTION dblink_connect(text), ... FROM PUBLIC.",
    )
