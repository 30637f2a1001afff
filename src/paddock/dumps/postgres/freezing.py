"""One state of a database, held by one transaction.

Tables are locked before the snapshot is taken. The other way round, as pg_dump does it, a TRUNCATE or a rewrite that
commits in between leaves tables that look empty to the snapshot. Which tables there are is known only from a snapshot,
so they are listed before; should others have come meanwhile, it is done again.
"""

import asyncio
import contextlib
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

import asyncpg

from paddock.config import ConfigError
from paddock.dumps.database_settings import PostgresDatabase
from paddock.dumps.model import DumpOptions
from paddock.dumps.postgres.errors import PROBLEMS, said, unreachable
from paddock.dumps.postgres.relations import Relation, chosen, relations
from paddock.engines.postgres.session import Connection, leave
from paddock.jobs.errors import TransientResourceError

# How pg_dump sets a session up. UTC besides: pg_dump leaves the zone to the login, we write no `SET timezone`.
_SETTINGS = {
    "client_encoding": "UTF8",
    "datestyle": "ISO, YMD",
    "intervalstyle": "postgres",
    "extra_float_digits": "3",
    "bytea_output": "hex",
    "xmloption": "content",
    "timezone": "UTC",
    "search_path": "",
    "standard_conforming_strings": "on",
    "synchronize_seqscans": "off",
    "row_security": "off",
    "statement_timeout": "0",
    "idle_in_transaction_session_timeout": "0",
    # A dump may be idle for as long as pg_dump takes: nobody in between shall forget the connection.
    "tcp_keepalives_idle": "30",
    "tcp_keepalives_interval": "10",
    "tcp_keepalives_count": "6",
}
# In one message of the simple protocol: the time is read first, then the snapshot is taken. Everything committed by that
# time is in it.
_SNAPSHOT = """
SELECT pg_catalog.set_config('paddock.point_in_time', pg_catalog.statement_timestamp()::text, true),
       pg_catalog.set_config('paddock.snapshot', pg_catalog.pg_export_snapshot(), true)
"""
_FACTS = """
SELECT pg_catalog.current_setting('paddock.snapshot') AS snapshot,
       pg_catalog.current_setting('paddock.point_in_time')::timestamptz AS point_in_time,
       pg_catalog.current_setting('server_encoding') AS encoding,
       pg_catalog.pg_table_size('pg_catalog.pg_largeobject') AS large_objects
"""
_TRIES = 5
_LOOK_MILLISECONDS = 5_000


@dataclass(frozen=True, slots=True)
class Snapshot:
    connection: Connection
    id: str
    point_in_time: datetime
    server_major: int
    encoding: str
    large_objects: int
    # All, and those that the dump is about.
    relations: Sequence[Relation]
    chosen: Sequence[Relation]

    def rows(self, relation: Relation) -> int | None:
        """An estimate; of a partitioned table that was never analyzed, what its partitions have together."""
        if not relation.partitioned:
            return relation.rows
        return sum(self.rows(child) or 0 for child in self.relations if child.parent == relation.oid)

    async def close(self) -> None:
        await leave(self.connection)


async def freeze(settings: PostgresDatabase, options: DumpOptions, draft: str) -> Snapshot:
    connection = await _connect(settings, draft)
    try:
        for _ in range(_TRIES):
            if (snapshot := await _try(connection, settings, options)) is not None:
                return snapshot
            await connection.execute("ROLLBACK")
        raise TransientResourceError("Tables are made and dropped faster than they can be locked.", code="lock_timeout")
    except PROBLEMS as problem:
        await leave(connection)
        raise said(problem) from problem
    except BaseException:
        await leave(connection)
        raise


async def look(settings: PostgresDatabase, options: DumpOptions) -> None:
    """Without a snapshot, and without waiting for anybody's lock."""
    connection = await _connect(settings, "look")
    try:
        await connection.execute(f"SET statement_timeout = {_LOOK_MILLISECONDS}")
        chosen(await relations(connection), options)
    except PROBLEMS as problem:
        raise said(problem) from problem
    finally:
        await leave(connection)


async def _try(connection: Connection, settings: PostgresDatabase, options: DumpOptions) -> Snapshot | None:
    major = connection.get_server_version().major
    await connection.execute(_begin(settings, major))
    known = chosen(await relations(connection), options)
    await connection.execute("ROLLBACK;" + _begin(settings, major))
    try:
        await _lock(connection, known)
    except asyncpg.UndefinedTableError:
        return None
    await connection.execute(_SNAPSHOT)
    facts = await connection.fetchrow(_FACTS)
    assert facts is not None
    there_are = await relations(connection)
    picked = chosen(there_are, options)
    if not {relation.oid for relation in picked} <= {relation.oid for relation in known}:
        return None
    return Snapshot(
        connection,
        facts["snapshot"],
        facts["point_in_time"],
        major,
        facts["encoding"],
        facts["large_objects"] or 0,
        there_are,
        picked,
    )


async def _lock(connection: Connection, tables: Sequence[Relation]) -> None:
    names = [f"ONLY {relation.full}" for relation in tables if not relation.foreign]
    if names:
        await connection.execute(f"LOCK TABLE {', '.join(names)} IN ACCESS SHARE MODE")
    await connection.execute("SET LOCAL lock_timeout = 0")


def _begin(settings: PostgresDatabase, major: int) -> str:
    values = {**_SETTINGS, "lock_timeout": f"{max(1, round(settings.lock_timeout_seconds * 1000))}ms"}
    if major >= 17:
        values["transaction_timeout"] = "0"
    local = "".join(f"SET LOCAL {setting} = '{value}';" for setting, value in values.items())
    return "BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY;" + local


async def _connect(settings: PostgresDatabase, draft: str) -> Connection:
    try:
        connection = await asyncpg.connect(
            settings.url,
            password=settings.password.read("The password of the database"),
            ssl=settings.tls(),
            timeout=settings.connect_timeout_seconds,
            # Nothing here is prepared twice, and a pooler forgets names.
            statement_cache_size=0,
            server_settings={"application_name": f"paddock dump {draft}".strip()[:63]},
        )
    except (ConfigError, asyncpg.ClientConfigurationError, *PROBLEMS) as problem:
        raise unreachable(problem) from None
    _keep_alive(connection)
    return connection


def _keep_alive(connection: Connection) -> None:
    """A server that is gone without a word is noticed after a minute and a half."""
    # The driver has no option for it, and keeps its transport to itself.
    transport: asyncio.Transport | None = getattr(connection, "_transport", None)
    taken = transport.get_extra_info("socket") if transport is not None else None
    if taken is None or taken.family == socket.AF_UNIX:
        return
    with contextlib.suppress(OSError):
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 6)):
            if hasattr(socket, option):
                taken.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
