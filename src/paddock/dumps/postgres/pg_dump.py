"""One run of pg_dump on a snapshot, read as it is asked for: when nobody reads, the pipe fills and pg_dump waits."""

import asyncio
import contextlib
import fcntl
import hashlib
import io
import os
import select
import signal
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode, urlsplit, urlunsplit

from paddock.dumps.model import CHUNK_BYTES, DumpOptions, Format
from paddock.dumps.postgres.errors import pg_dump_said
from paddock.dumps.postgres.freezing import Snapshot
from paddock.dumps.postgres.programs import PgDump
from paddock.dumps.settings import PostgresDatabase
from paddock.jobs.errors import PermanentRunnerError
from paddock.storage.threads import IO, ended

# As much as a pipe can hold.
PIPE_BYTES = 1 << 20
# pg_dump writes 4 KiB at a time, and waking up for each would cost more than pg_dump itself. In so long a time it fills
# much of the pipe; if all of it, it waits, and then has more to read at once from the server.
_PAUSE_SECONDS = 0.005
# How often somebody who waits for a pg_dump that is silent looks whether to go on with that.
_LOOK_MILLISECONDS = 100
_WORDS_BYTES = 16_000
_END_SECONDS = 3.0
# Between us and pg_dump, as a program of its own: Python code in a forked child of a process with threads can deadlock.
# The kernel then kills it with us, also while it waits for the server and writes nothing that would fail. Too late where
# we are gone already, hence the look at the parent. It is told the number of the signal: to import `signal` takes longer
# than all else that it does.
_LAUNCHER = f"""
import ctypes, os, sys
parent, *command = sys.argv[1:]
if sys.platform == "linux":
    ctypes.CDLL(None).prctl(1, {int(signal.SIGKILL)}, 0, 0, 0)
if os.getppid() != int(parent):
    sys.exit("whoever wanted the dump is gone")
os.execv(command[0], command)
"""
# What would change the bytes, or is said otherwise.
_NOT_INHERITED = {"PGCLIENTENCODING", "PGOPTIONS", "PGDATESTYLE", "PGTZ", "PGGEQO", "PGAPPNAME", "PGDATABASE", "PGHOST"}


class Running:
    """Start it with `start`, end it with `close`, always."""

    def __init__(self, process: asyncio.subprocess.Process, pipe: int, secret: str | None) -> None:
        self._process = process
        self._pipe = _Pipe(pipe)
        # Its read goes straight into the bytes that it answers with: nothing is put together.
        self._file = io.BufferedReader(self._pipe, 1)
        self._secret = secret
        self._words = bytearray()
        self._listening = asyncio.create_task(self._listen())

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
            if self._process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    self._process.terminate()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_END_SECONDS):
                        await self._process.wait()
        finally:
            if self._process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    self._process.kill()
            self._listening.cancel()
            self._file.close()
            # Reaped by the loop's watcher, also if we are cancelled here.
            await self._process.wait()

    async def _ended(self) -> None:
        status = await self._process.wait()
        await self._listening
        if status != 0:
            raise pg_dump_said(status, self._scrubbed())

    def _scrubbed(self) -> str:
        words = self._words.decode("utf-8", "replace")
        return words.replace(self._secret, "***") if self._secret else words

    async def _listen(self) -> None:
        errors = self._process.stderr
        assert errors is not None
        while piece := await errors.read(_WORDS_BYTES):
            self._words += piece
            del self._words[:-_WORDS_BYTES]


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


async def start(
    program: PgDump,
    settings: PostgresDatabase,
    snapshot: Snapshot,
    format: Format,
    options: DumpOptions,
    draft: str,
) -> Running:
    secret = settings.password.read("The password of the database")
    ours, theirs = os.pipe()
    try:
        os.set_blocking(ours, False)
        if sys.platform == "linux":
            # Not given when this login has too many pipes already: then it is a smaller one.
            with contextlib.suppress(OSError):
                fcntl.fcntl(ours, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-I", "-S", "-c", _LAUNCHER, str(os.getpid()), str(program.path)),
            *arguments(program, settings, snapshot, format, options, draft),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=theirs,
            stderr=asyncio.subprocess.PIPE,
            env=environment(settings, secret, draft),
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
    inherited = {
        name: value
        for name, value in os.environ.items()
        if (name.startswith("PG") and name not in _NOT_INHERITED) or name in ("PATH", "HOME", "LD_LIBRARY_PATH")
    }
    given = {"LC_ALL": "C", "PGAPPNAME": f"paddock dump {draft}"[:63]}
    if secret is not None:
        given["PGPASSWORD"] = secret
    return inherited | given
