"""Dumps of PostgreSQL, loaded into a server of their own that is gone afterwards.

What a dump holds is run, so it is run with little power: by psql with its own commands shut off (`\\restrict`, under a
key that the file cannot know), as a role that is no superuser. Whatever fails for want of a role, an owner or a privilege
changes no rows, and what does shows in the count.
"""

import asyncio
import contextlib
import os
import pwd
import re
import secrets
import shutil
import subprocess
import tempfile
import threading
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO
from urllib.parse import quote, urlsplit, urlunsplit

import asyncpg

from paddock.child_processes.spawning import launched
from paddock.db import embedded
from paddock.dumps.postgres.counting import Counting
from paddock.dumps.postgres.names import full, name_of
from paddock.dumps.verifying.findings import NotWhole, Told
from paddock.dumps.verifying.reading import CUT, PIECE, DumpFile
from paddock.engines.children.quoting import quoted

MAGIC = b"PGDMP"
LOADER, SCRATCH = "paddock_scratch", "scratch"
SETTINGS = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off", "max_wal_size": "4GB"}
MOST_NOTES = 5
# Of no consequence for rows: whose things are, and our shutting off of psql's commands.
_EXPECTED = re.compile(
    r'role ".*" does not exist|must be able to SET ROLE|must be owner of|must be member of role'
    r"|backslash commands are restricted|\\unrestrict: wrong key|warning: errors ignored on restore"
)
_NO_ROLE = re.compile(r'role "(.+)" does not exist')
_POWER = re.compile(r"superuser|permission denied|must be owner")
TRUST = "Some of it needs a superuser: if you trust where the file comes from, --trusted loads it as one."
# What this server cannot do because of how it was built, or of the machine that it runs on; no fault of the file.
_LACKING = re.compile(
    r"ICU is not supported in this build|unsupported XML feature|collation \".*\" for encoding .* does not exist"
)
NOT_LOADED = (
    "The scratch PostgreSQL lacks what some tables need ({why}): the rows of {tables} are not loaded but counted in the "
    "file. --pg-bin names a PostgreSQL that has it."
)
_ERROR = re.compile(r"(?:ERROR|FATAL|error|fatal): +(.+)")
_CUT = re.compile(
    r"could not read from input file|unexpected end of file|corrupt|not a valid archive|invalid compression"
)
# With all tables above each: where rows are written for one of those, its partitions are not told one by one.
_TABLES = """
SELECT n.nspname::text AS schema, c.relname::text AS "table", c.relkind = 'p' AS partitioned,
       ARRAY(SELECT a.relid::pg_catalog.oid FROM pg_catalog.pg_partition_ancestors(c.oid) a WHERE a.relid <> c.oid) AS above,
       c.oid
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p') AND n.nspname !~ '^pg_' AND n.nspname <> 'information_schema'
"""


@dataclass(frozen=True, slots=True)
class Loaded:
    """`told`: the rows of each table as they stand in the file itself."""

    counts: Mapping[str, int | None]
    told: Mapping[str, int]
    notes: Sequence[str]


@dataclass(frozen=True, slots=True)
class _Server:
    dsn: str
    admin: str
    loader: str
    programs: Path


def load(
    file: DumpFile, expected: Collection[str], told: Told, *, custom: bool, trusted: bool, pg_bin: Path | None
) -> Loaded:
    """`expected`: tables that the file is said to hold; those with rows are found in it anyhow."""
    with _folder() as folder:
        return asyncio.run(_load(file, expected, told, folder, custom=custom, trusted=trusted, pg_bin=pg_bin))


async def _load(
    file: DumpFile,
    expected: Collection[str],
    told: Told,
    folder: Path,
    *,
    custom: bool,
    trusted: bool,
    pg_bin: Path | None,
) -> Loaded:
    encoding = _encoding(file) if not custom else "UTF8"
    async with _server(folder, encoding, trusted=trusted, pg_bin=pg_bin) as server:
        run = _restored if custom else _run
        rows, said = await asyncio.to_thread(run, file, server, told)
        counts = await _counted(server, {*expected, *rows})
        roles = {found[1] for line in said if (found := _NO_ROLE.search(line))}
        if roles and _lacks(counts, rows):
            # Some values are roles. They are no part of a database, so who is named is made up.
            await _make_anew(server, encoding, roles)
            rows, said = await asyncio.to_thread(run, file, server, told)
            counts = await _counted(server, {*expected, *rows})
        notes = _notes(said)
        if not trusted and _lacks(counts, rows) and any(_POWER.search(note) for note in notes):
            notes.append(TRUST)
        return _with_rows_of_the_file(Loaded(counts, rows, notes), expected)


def _with_rows_of_the_file(loaded: Loaded, expected: Collection[str]) -> Loaded:
    """For tables that this server cannot hold."""
    lacking = [note for note in loaded.notes if _LACKING.search(note)]
    tables = [
        table
        for table in {**dict.fromkeys(expected), **loaded.told}
        if loaded.counts.get(table) != loaded.told.get(table, 0)
    ]
    if not lacking or not tables or not loaded.counts:
        return loaded
    counts = {**loaded.counts, **{table: loaded.told.get(table, 0) for table in tables}}
    named = ", ".join(tables[:MOST_NOTES]) + (
        f" and {len(tables) - MOST_NOTES} more" if len(tables) > MOST_NOTES else ""
    )
    return Loaded(counts, loaded.told, [NOT_LOADED.format(why=lacking[0], tables=named)])


def _lacks(counts: Mapping[str, int | None], rows: Mapping[str, int]) -> bool:
    return any(counts.get(table) != count for table, count in rows.items())


@contextlib.contextmanager
def _folder() -> Iterator[Path]:
    # Directly under the temporary folder: PostgreSQL's account must be able to enter it.
    folder = Path(tempfile.mkdtemp(prefix="paddock-verify-"))
    folder.chmod(0o711)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.asynccontextmanager
async def _server(folder: Path, encoding: str, *, trusted: bool, pg_bin: Path | None) -> AsyncIterator[_Server]:
    settings = {**SETTINGS, **_access(folder)}
    try:
        async with embedded.embedded_postgres(folder / "server", pg_bin=pg_bin, settings=settings) as running:
            await _prepare(running.dsn, encoding, trusted=trusted)
            yield _Server(running.dsn, _address(running.dsn), _address(running.dsn, LOADER), running.programs)
    except embedded.EmbeddedPostgresError as problem:
        raise NotWhole(f"No scratch PostgreSQL can be started: {problem}") from None


def _access(folder: Path) -> dict[str, str]:
    """We may log in as the loader too; it may become nobody else."""
    who = pwd.getpwuid(os.geteuid()).pw_name
    contents = {
        "hba_file": "local all all peer map=verify\n",
        "ident_file": "".join(f'verify "{who}" {role}\n' for role in (embedded.USER, LOADER)),
    }
    for setting, content in contents.items():
        path = folder / setting
        path.write_text(content)
        path.chmod(0o644)
    return {setting: str(folder / setting) for setting in contents}


async def _prepare(dsn: str, encoding: str, *, trusted: bool) -> None:
    connection = await asyncpg.connect(dsn)
    try:
        await connection.execute(f"CREATE ROLE {LOADER} LOGIN {'SUPERUSER' if trusted else 'NOSUPERUSER'}")
        await connection.execute(_create(encoding))
    finally:
        await connection.close()


def _create(encoding: str) -> str:
    locale = f"ENCODING '{encoding}' LOCALE 'C' LOCALE_PROVIDER libc"
    return f"CREATE DATABASE {SCRATCH} OWNER {LOADER} TEMPLATE template0 {locale}"


async def _make_anew(server: _Server, encoding: str, roles: Collection[str]) -> None:
    connection = await asyncpg.connect(server.dsn)
    try:
        await connection.execute(f"DROP DATABASE {SCRATCH} WITH (FORCE)")
        for role in roles:
            # Names that PostgreSQL keeps for itself, or takes for too long, are nobody's.
            with contextlib.suppress(asyncpg.PostgresError):
                await connection.execute(f"CREATE ROLE {quoted(role)} NOLOGIN")
        await connection.execute(_create(encoding))
    finally:
        await connection.close()


def _address(dsn: str, user: str = embedded.USER) -> str:
    parts = urlsplit(dsn)
    return urlunsplit(parts._replace(netloc=f"{quote(user)}@", path=f"/{SCRATCH}"))


def _encoding(file: DumpFile) -> str:
    """Bytes without an encoding go only into a database without one; all others can be converted."""
    return "SQL_ASCII" if b"SET client_encoding = 'SQL_ASCII'" in file.head()[:4096] else "UTF8"


def _run(file: DumpFile, server: _Server, told: Told) -> tuple[dict[str, int], list[str]]:
    command = [str(server.programs / "psql"), "--no-psqlrc", "--quiet", "--no-password", f"--dbname={server.loader}"]
    _check_restricts(command)
    counting = Counting()
    with _Program(command) as program, file.plain(told) as stream:
        program.feed(f"\\restrict {secrets.token_hex(16)}\n".encode())
        while piece := stream.read(PIECE):
            counting.feed(piece)
            program.feed(piece)
        return counting.taken(), program.ended()


def _restored(file: DumpFile, server: _Server, told: Told) -> tuple[dict[str, int], list[str]]:
    restore = [str(server.programs / "pg_restore")]
    owners = ["--no-owner", "--no-privileges"]
    with _Program([*restore, *owners, f"--dbname={server.loader}"]) as program, file.plain(told) as stream:
        _pass_on(stream, program)
        said = program.ended()
    for line in said:
        if _CUT.search(line):
            raise NotWhole(f"{file.path} is cut short or changed: {line}", hint=CUT)
    return _rows_in(file, restore), said


def _rows_in(file: DumpFile, restore: Sequence[str]) -> dict[str, int]:
    counting = Counting()

    def count(output: BinaryIO) -> None:
        while piece := output.read(PIECE):
            counting.feed(piece)

    with _Program([*restore, "--data-only", "--file=-"], count) as program, file.plain() as stream:
        _pass_on(stream, program)
        program.ended()
    return counting.taken()


def _pass_on(stream: BinaryIO, program: "_Program") -> None:
    while piece := stream.read(PIECE):
        program.feed(piece)


def _check_restricts(command: Sequence[str]) -> None:
    """One that is too old to know the word would run whatever the file says."""
    script = b"\\restrict a\n\\echo free\n"
    answer = subprocess.run(launched(command), input=script, capture_output=True, env=_environment(), check=False)
    if b"free" in answer.stdout or answer.returncode == 2:
        said = answer.stderr.decode("utf-8", "replace").strip()
        raise NotWhole(
            f"{command[0]} cannot be used: " + (said or "it does not know of \\restrict."),
            hint="Use a psql of 13.22, 14.19, 15.14, 16.10, 17.6, 18 or newer (--pg-bin), or the embedded one.",
        )


class _Program:
    """Fed by us, while threads listen to it."""

    def __init__(self, command: Sequence[str], output: "Callable[[BinaryIO], None] | None" = None) -> None:
        self._process = subprocess.Popen(
            launched(command),
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL if output is None else subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=_environment(),
        )
        self._said: list[str] = []
        self._threads = [threading.Thread(target=self._listen, daemon=True)]
        if output is not None and self._process.stdout is not None:
            self._threads.append(threading.Thread(target=output, args=(self._process.stdout,), daemon=True))
        for thread in self._threads:
            thread.start()

    def __enter__(self) -> "_Program":
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._end()

    def feed(self, data: bytes) -> None:
        assert self._process.stdin is not None
        # One that has ended says why on its way out.
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(data)

    def ended(self) -> list[str]:
        """What it complained of."""
        self._end()
        return self._said

    def _end(self) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        for thread in self._threads:
            thread.join()
        self._process.wait()
        for pipe in (self._process.stdout, self._process.stderr):
            if pipe is not None:
                pipe.close()

    def _listen(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            if len(self._said) < 1000:
                self._said.append(line.decode("utf-8", "replace").rstrip())


def _environment() -> dict[str, str]:
    """Nothing of ours: whom to connect to is said in the address."""
    return {"PATH": os.defpath, "LC_ALL": "C", "PGCLIENTENCODING": "UTF8"}


def _notes(said: Sequence[str]) -> list[str]:
    errors = [found[1] for line in said if (found := _ERROR.search(line)) and not _EXPECTED.search(line)]
    known = list(dict.fromkeys(errors))
    more = [f"and {len(known) - MOST_NOTES} more"] if len(known) > MOST_NOTES else []
    return [*known[:MOST_NOTES], *more]


async def _counted(server: _Server, told: Collection[str]) -> dict[str, int | None]:
    """Of each table, and of a partitioned one instead of its partitions if the file tells of it."""
    # By the superuser, whom no row security keeps from seeing; with no name looked up but in the catalog.
    connection = await asyncpg.connect(server.admin, server_settings={"search_path": "pg_catalog"})
    try:
        tables = {row["oid"]: row for row in await connection.fetch(_TABLES)}
        names = {oid: name_of(row["schema"], row["table"]) for oid, row in tables.items()}
        whole = {oid for oid, row in tables.items() if row["partitioned"] and names[oid] in told}
        return {
            names[oid]: await connection.fetchval(_count(row))
            for oid, row in tables.items()
            if oid in whole or not (row["partitioned"] or whole.intersection(row["above"]))
        }
    finally:
        await connection.close()


def _count(table: asyncpg.Record) -> str:
    only = "" if table["partitioned"] else "ONLY "
    return f"SELECT count(*) FROM {only}{full(table['schema'], table['table'])}"  # noqa: S608  quoted
