"""The server itself, from its start until it has ended."""

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from urllib.parse import quote

import structlog

from paddock.db.embedded.access import access_files, socket_folder
from paddock.db.embedded.children import Child, failure
from paddock.db.embedded.cluster import prepare_cluster
from paddock.db.embedded.errors import EmbeddedPostgresError
from paddock.db.embedded.locks import ownership, previous_server_gone, until
from paddock.db.embedded.place import DATABASE, USER, Place, make_folder, server_account
from paddock.db.embedded.programs import wheel_programs

log = structlog.get_logger()

# Given as -c flags, not written into postgresql.conf, so that a new release of Paddock can change them.
SETTINGS: Mapping[str, str] = {
    "listen_addresses": "",
    "port": "5432",
    "unix_socket_permissions": "0700",
    "shared_buffers": "128MB",
    "max_connections": "100",
    "fsync": "on",
    "autovacuum": "on",
    "autovacuum_naptime": "5s",
    "wal_compression": "on",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "logging_collector": "off",
    "log_checkpoints": "off",
}

_STOP_GRACE = timedelta(seconds=30)


@dataclass(frozen=True)
class EmbeddedPostgres:
    data_dir: Path
    dsn: str
    pid: int
    died: asyncio.Event
    """Set when postgres ends although nobody asked it to; leaving the context does not set it."""
    programs: Path
    """Where its programs are: psql and the like, of its own version."""


@contextlib.asynccontextmanager
async def embedded_postgres(
    data_dir: Path, *, pg_bin: Path | None = None, settings: Mapping[str, str] | None = None
) -> AsyncIterator[EmbeddedPostgres]:
    if sys.platform != "linux":
        raise EmbeddedPostgresError("The embedded PostgreSQL runs on Linux only: use a PostgreSQL server of your own.")
    data_dir = data_dir.resolve()  # noqa: ASYNC240  once, before anything else runs on this loop
    pg_bin = (pg_bin or wheel_programs()).resolve()
    account = server_account(data_dir / "pg")
    make_folder(data_dir)
    with ownership(data_dir), contextlib.ExitStack() as stack:
        server_lock = await previous_server_gone(data_dir)
        try:
            place = Place(data_dir, pg_bin, account, server_lock)
            await prepare_cluster(place)
            socket_dir = stack.enter_context(socket_folder(place))
            flags = {**SETTINGS, **access_files(place), "unix_socket_directories": str(socket_dir), **(settings or {})}
            options = [word for name, value in flags.items() for word in ("-c", f"{name}={value}")]
            server = Child(place, "postgres", "-D", str(place.cluster), *options)
        finally:
            # Ours is one of several descriptors of the same lock: postgres and its children keep it locked.
            os.close(server_lock)
        try:
            await until(lambda: _is_ready(place, server), "postgres accepts connections", data_dir)
            host = quote(str(socket_dir), safe="/")
            dsn = f"postgresql://{USER}@/{DATABASE}?host={host}&port={flags['port']}"
            yield EmbeddedPostgres(data_dir, dsn, server.pid, server.died, pg_bin)
        finally:
            await _stop(server)


def _is_ready(place: Place, server: Child) -> bool:
    if server.exited.is_set():
        raise failure(place, server)
    try:
        lines = (place.cluster / "postmaster.pid").read_text().splitlines()
    except FileNotFoundError:
        return False
    return len(lines) >= 8 and lines[0] == str(server.pid) and lines[7].strip() == "ready"


async def _stop(server: Child) -> None:
    server.stopping = True
    try:
        server.signal(signal.SIGINT)
        async with asyncio.timeout(_STOP_GRACE.total_seconds()):
            await server.exited.wait()
    except TimeoutError:
        log.warning("postgres_stop_timed_out", doing="ending it at once; it recovers at the next start")
        server.signal(signal.SIGQUIT)
        await server.exited.wait()
    finally:
        server.close()
