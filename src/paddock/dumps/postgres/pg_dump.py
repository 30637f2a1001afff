"""One run of pg_dump on a snapshot, read as it is asked for: when nobody reads, the pipe fills and pg_dump waits."""

import asyncio
import hashlib
import io
import os
import select
import signal
import time
from collections.abc import Callable, Sequence
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode, urlsplit, urlunsplit

from paddock.child_processes.spawning import ChildProcess, inherited, large_pipe, launched
from paddock.dumps.database_settings import PostgresDatabase
from paddock.dumps.model import CHUNK_BYTES, DumpOptions, Format
from paddock.dumps.postgres.errors import pg_dump_said
from paddock.dumps.postgres.freezing import Snapshot
from paddock.dumps.postgres.programs import PgDump
from paddock.jobs.errors import PermanentRunnerError
from paddock.storage.threads import IO, ended

# pg_dump writes 4 KiB at a time, and waking up for each would cost more than pg_dump itself. In so long a time it fills
# much of the pipe; if all of it, it waits, and then has more to read at once from the server.
_PAUSE_SECONDS = 0.005
# How often somebody who waits for a pg_dump that is silent looks whether to go on with that.
_LOOK_MILLISECONDS = 100
_END_SECONDS = 3.0
# What would change the bytes, or is said otherwise.
_NOT_INHERITED = {"PGCLIENTENCODING", "PGOPTIONS", "PGDATESTYLE", "PGTZ", "PGGEQO", "PGAPPNAME", "PGDATABASE", "PGHOST"}


class Running:
    """Start it with `start`, end it with `close`, always."""

    def __init__(self, process: ChildProcess, pipe: int, secret: str | None) -> None:
        self._process = process
        self._pipe = _Pipe(pipe)
        # Its read goes straight into the bytes that it answers with: nothing is put together.
        self._file = io.BufferedReader(self._pipe, 1)
        self._secret = secret

    @property
    def pid(self) -> int:
        return self._process.pid

    async def read(self, look: Callable[[bytes], None]) -> bytes:
        """CHUNK_BYTES, less at the end; `look` is shown them on a thread. Raises what pg_dump died of."""
        filling = IO.submit(self._fill, look)
        try:
            data = await asyncio.shield(asyncio.wrap_future(filling))
        except asyncio.CancelledError:
            self._pipe.stopping = True
            await ended(filling)
            raise
        if len(data) < CHUNK_BYTES:
            await self._ended()
        return data

    def _fill(self, look: Callable[[bytes], None]) -> bytes:
        """On a thread: a turn of the loop for each pause would cost more than the reading."""
        data = self._file.read(CHUNK_BYTES)
        look(data)
        return data

    async def close(self) -> None:
        """It is asked first: it then cancels at the server what the server would go on with."""
        try:
            await self._process.end(ask=signal.SIGTERM, grace=_END_SECONDS)
        finally:
            self._file.close()

    async def _ended(self) -> None:
        status = await self._process.wait()
        if status != 0:
            raise pg_dump_said(status, self._scrubbed())

    def _scrubbed(self) -> str:
        words = self._process.last_words
        return words.replace(self._secret, "***") if self._secret else words


class _Pipe(io.RawIOBase):
    """Our end of it, read when there is much in it."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self.stopping = False
        self._filling = select.poll()
        self._filling.register(descriptor, select.POLLIN)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        """Nothing at the end, or when somebody wants it to stop."""
        while not self.stopping:
            try:
                return os.readv(self._descriptor, [buffer])
            except BlockingIOError:
                if self._filling.poll(_LOOK_MILLISECONDS):
                    time.sleep(_PAUSE_SECONDS)
        return 0

    def close(self) -> None:
        if not self.closed:
            os.close(self._descriptor)
        super().close()


def start(
    program: PgDump,
    settings: PostgresDatabase,
    snapshot: Snapshot,
    format: Format,
    options: DumpOptions,
    draft: str,
) -> Running:
    secret = settings.password.read("The password of the database")
    command = [str(program.path), *arguments(program, settings, snapshot, format, options, draft)]
    ours, theirs = large_pipe()
    try:
        process = ChildProcess(
            launched(command),
            environment=environment(settings, secret, draft),
            stdout=theirs,
            own_group=False,  # whoever kills the group of the runner or of the stream means this one too
        )
    except OSError as problem:
        os.close(ours)
        raise PermanentRunnerError(
            f"{program.path} could not be started: {problem.strerror}.", code="pg_dump_missing"
        ) from None
    except BaseException:
        os.close(ours)
        raise
    finally:
        os.close(theirs)
    return Running(process, ours, secret)


def arguments(
    program: PgDump,
    settings: PostgresDatabase,
    snapshot: Snapshot,
    format: Format,
    options: DumpOptions,
    draft: str,
) -> Sequence[str]:
    given = [
        f"--dbname={address(settings)}",
        f"--snapshot={snapshot.id}",
        # Behind somebody who waits for us to let go, it would wait forever.
        f"--lock-wait-timeout={max(1, round(settings.lock_timeout_seconds * 1000))}",
        "--no-password",
        "--no-sync",
        f"--format={'custom' if format == 'custom' else 'plain'}",
    ]
    if format == "custom" and options.compress == "zstd":
        # Compressed by pg_dump, whose own choice is gzip.
        given.append("--compress=zstd")
    if format == "sql" and program.restrict_key:
        given.append(f"--restrict-key={hashlib.sha256(draft.encode()).hexdigest()}")
    if options.schema_only:
        given.append("--schema-only")
    if options.data_only:
        given.append("--data-only")
    if options.no_owner:
        given.append("--no-owner")
    return [*given, *_tables(snapshot, options)]


def _tables(snapshot: Snapshot, options: DumpOptions) -> Sequence[str]:
    if options.tables:
        return ["--strict-names", *(f"--table={relation.full}" for relation in snapshot.chosen)]
    picked = {relation.oid for relation in snapshot.chosen}
    return [f"--exclude-table={relation.full}" for relation in snapshot.relations if relation.oid not in picked]


def address(settings: PostgresDatabase) -> str:
    """The url as libpq takes it. What the settings say stands above what the url says, as it does for our connection."""
    parts = urlsplit(settings.url)
    query = dict(parse_qsl(parts.query, keep_blank_values=True))
    if "ssl" in query:
        query["sslmode"] = query.pop("ssl")
    if settings.ca_file is not None:
        query |= {"sslmode": "verify-full", "sslrootcert": str(settings.ca_file)}
    elif settings.ssl is not None:
        query["sslmode"] = settings.ssl
    query |= {
        "connect_timeout": str(max(2, round(settings.connect_timeout_seconds))),
        "keepalives_idle": "30",
        "keepalives_interval": "10",
        "keepalives_count": "6",
    }
    return urlunsplit(parts._replace(query=urlencode(query, quote_via=quote)))


def environment(settings: PostgresDatabase, secret: str | None, draft: str) -> dict[str, str]:
    """The password is here and not among the arguments, which everybody on the machine can read."""
    libpq = [name for name in os.environ if name.startswith("PG") and name not in _NOT_INHERITED]
    given = {"LC_ALL": "C", "PGAPPNAME": f"paddock dump {draft}"[:63]}
    if secret is not None:
        given["PGPASSWORD"] = secret
    return inherited("PATH", "HOME", "LD_LIBRARY_PATH", *libpq) | given
