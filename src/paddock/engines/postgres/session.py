"""One connection, one transaction, one export: made for it, rolled back and closed after it.

Guarantees
- The login cannot leave the database: no superuser, no access to the server's files, programs, slots or other
  sessions, not even through a role it may take. Checked on every connection.
- The transaction is READ ONLY and REPEATABLE READ: everything is read from one snapshot, and a query cannot turn that
  off (PostgreSQL refuses once a snapshot is taken). It is always rolled back, so what read-only lets through (large
  objects before version 16, notifications) is not kept either.
- All settings are local to the transaction: a pooler in front of the server may hand the connection on.
"""

import contextlib
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeAlias

import asyncpg

from paddock.config import ConfigError
from paddock.engines.engine import Query
from paddock.engines.postgres.errors import translated
from paddock.engines.settings import PostgresSettings
from paddock.jobs.errors import PermanentRunnerError
from paddock.jobs.model import JsonObject

Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"

# Exact, complete, the same for every login; `lc_monetary` and `search_path` stay the login's.
_SETTINGS = {
    "timezone": "UTC",
    "datestyle": "ISO, YMD",
    "intervalstyle": "iso_8601",
    "bytea_output": "hex",
    "extra_float_digits": "3",
    "standard_conforming_strings": "on",
    "client_encoding": "UTF8",
    # The saving of the query's handle happens in between, over the network.
    "idle_in_transaction_session_timeout": "300s",
}

_POWERS = (
    "pg_read_server_files",
    "pg_write_server_files",
    "pg_execute_server_program",
    "pg_signal_backend",
)
# MEMBER, not USAGE: what the login may become by SET ROLE counts too, and a query can do that.
_CHECK = """
SELECT a.pid AS backend_pid, a.backend_start::text AS backend_start, a.xact_start::text AS xact_start,
       session_user::text AS login,
       ARRAY(SELECT r.rolname::text FROM pg_catalog.pg_roles r
             WHERE (r.rolsuper OR r.rolreplication OR r.rolname = ANY ($1::text[]))
               AND pg_catalog.pg_has_role(session_user, r.oid, 'MEMBER')
             ORDER BY r.rolname) AS powers,
       (SELECT rolsuper FROM pg_catalog.pg_roles WHERE rolname = session_user) AS superuser,
       (SELECT rolreplication FROM pg_catalog.pg_roles WHERE rolname = session_user) AS replication
FROM pg_catalog.pg_stat_activity a WHERE a.pid = pg_catalog.pg_backend_pid()
"""
_CLOSE = timedelta(seconds=5)


@dataclass(frozen=True, slots=True)
class PostgresSession:
    connection: Connection
    # What ends it from elsewhere. The start of the transaction too: a pooler's backend serves others afterwards.
    handle: JsonObject


@asynccontextmanager
async def session(
    name: str, settings: PostgresSettings, query: Query, timeout: float
) -> AsyncIterator[PostgresSession]:
    connection = await connect(name, settings, query)
    try:
        try:
            await connection.execute(_begin(settings, timeout))
            checked = await connection.fetchrow(_CHECK, list(_POWERS))
        except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError) as problem:
            raise translated(name, problem) from problem
        assert checked is not None
        refuse_power(name, checked)
        handle: JsonObject = {key: checked[key] for key in ("backend_pid", "backend_start", "xact_start")}
        yield PostgresSession(connection, handle)
    finally:
        await leave(connection)


async def connect(name: str, settings: PostgresSettings, query: Query) -> Connection:
    try:
        return await asyncpg.connect(
            settings.url,
            password=settings.password.read(f"The password of engine '{name}'"),
            ssl=settings.tls(),
            timeout=settings.connect_timeout_seconds,
            # Nothing here is prepared twice, and a pooler forgets names.
            statement_cache_size=0,
            server_settings={"application_name": f"paddock export {query.job}".strip()[:63]},
        )
    except (ConfigError, asyncpg.ClientConfigurationError) as problem:
        raise PermanentRunnerError(f"Engine '{name}': {problem}", code="engine_misconfigured") from None
    except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError) as problem:
        if (why := _tls_problem(problem)) is None:
            raise translated(name, problem) from problem
        raise PermanentRunnerError(
            f"Engine '{name}' has no TLS that can be trusted: {why}.",
            code="engine_tls",
            hint="Check ssl and ca_file of this engine, and the server's certificate.",
        ) from None


def _tls_problem(problem: Exception) -> str | None:
    if isinstance(problem, ssl.SSLCertVerificationError):
        return str(problem.verify_message)
    # A handshake that broke off may work the next time; this is the driver's word for a server without TLS.
    return "the server does not speak it" if "rejected SSL upgrade" in str(problem) else None


async def leave(connection: Connection) -> None:
    """Ends the transaction without keeping anything. A query that still runs is cancelled at the server first, which
    would notice a lost client only when it next sends something."""
    try:
        with contextlib.suppress(Exception):
            await connection.close(timeout=_CLOSE.total_seconds())
    finally:
        connection.terminate()


def refuse_power(name: str, checked: "asyncpg.Record") -> None:
    if not checked["powers"]:
        return
    login = checked["login"]
    if checked["superuser"]:
        what, remedy = "is a superuser", f'ALTER ROLE "{login}" NOSUPERUSER'
    elif checked["replication"]:
        what, remedy = "may replicate", f'ALTER ROLE "{login}" NOREPLICATION'
    else:
        what = f"is a member of {', '.join(checked['powers'])}"
        remedy = "; ".join(f'REVOKE "{power}" FROM "{login}"' for power in checked["powers"])
    raise PermanentRunnerError(
        f"The login '{login}' of engine '{name}' {what}: a query could read files or run programs on the server.",
        code="login_too_powerful",
        hint=f"Use a login that only reads: CREATE ROLE paddock_reader LOGIN; GRANT USAGE ON SCHEMA ... TO "
        f"paddock_reader; GRANT SELECT ON ... TO paddock_reader. Or: {remedy}.",
    )


def _begin(settings: PostgresSettings, timeout: float) -> str:
    values = {
        **_SETTINGS,
        "statement_timeout": f"{round(timeout * 1000)}ms",
        "lock_timeout": f"{round(settings.lock_timeout_seconds * 1000)}ms",
        "row_security": "on" if settings.row_security else "off",
    }
    local = "".join(f"SET LOCAL {setting} = '{value}';" for setting, value in values.items())
    return "BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY;" + local
