"""Dumps of SQLite: SQL loaded into a scratch file, or the database file itself."""

import re
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO
from urllib.parse import quote

import apsw

from paddock.dumps.sqlite.collations import BUILT_IN, stand_in
from paddock.dumps.sqlite.quoting import fold
from paddock.dumps.verifying.findings import NotWhole, Told
from paddock.dumps.verifying.reading import CUT, PIECE, DumpFile
from paddock.dumps.verifying.statements import SQLITE, stretches
from paddock.engines.children.quoting import quoted as name

MAGIC = b"SQLite format 3\0"
_LITERAL = re.compile(rb"'(?:[^']|'')*+'")


class OnlyRows(Exception):
    """The file makes no tables: it can be loaded only where they are."""


def load(file: DumpFile, tables: Mapping[str, int], told: Told) -> dict[str, int | None]:
    with tempfile.TemporaryDirectory(prefix="paddock-verify-") as folder:
        path = Path(folder) / "scratch.db"
        with _scratch(path) as connection, file.plain(told) as stream:
            _run(file, connection, stream)
        # Opened again: what was written into the schema is not known to who wrote it.
        with _opened(path) as connection:
            return _counted(connection, tables)


def _run(file: DumpFile, connection: apsw.Connection, stream: BinaryIO) -> None:
    done = 0
    for stretch in stretches(stream, SQLITE, lambda text: apsw.complete(_text(text))):
        try:
            # To its end: what answers rows would stop it there.
            for _ in connection.execute(_text(stretch), can_cache=False):
                pass
        except apsw.Error as problem:
            if "no such table" in str(problem) and not _has_tables(connection):
                raise OnlyRows from None
            raise NotWhole(f"{file.path} does not load: {problem} (after byte {done:,} of its text).") from None
        except UnicodeDecodeError:
            raise NotWhole(
                f"{file.path} cannot be loaded here: it has text that is no Unicode in a collation that only its"
                f" application knows (after byte {done:,} of its text)."
            ) from None
        done += len(stretch)
    if connection.in_transaction:
        raise NotWhole(f"{file.path} does not end its transaction.", hint=CUT)


def check_file(file: DumpFile, told: Told) -> dict[str, int | None]:
    """The rows of each of its tables, in a database that SQLite finds nothing wrong with."""
    with _unpacked(file, told) as path, _opened(path) as connection:
        try:
            found = _problems(connection)
            if found:
                raise NotWhole(f"{file.path} is damaged: {'; '.join(found)}.", hint=CUT)
            rows = connection.execute(
                "SELECT name, type = 'virtual' FROM pragma_table_list WHERE schema = 'main'"
                " AND type IN ('table', 'virtual') AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\' ORDER BY name"
            )
            virtual = {str(table): bool(is_virtual) for table, is_virtual in rows}
            counts = _counted(connection, list(virtual))
            # A virtual one may have rows that nobody can read; the tables that it keeps them in were checked.
            return {table: count for table, count in counts.items() if count is not None or not virtual[table]}
        except apsw.Error as problem:
            raise NotWhole(f"{file.path} cannot be read: {problem}.", hint=CUT) from None


def _problems(connection: apsw.Connection) -> list[str]:
    """Tables that are sorted by a collation of their application are left out: nobody here knows their order."""
    sorted_by = connection.execute(
        "SELECT DISTINCT t.name, x.coll FROM sqlite_schema t, pragma_index_list(t.name) i, pragma_index_xinfo(i.name) x"
        " WHERE t.type = 'table' AND x.key"
    )
    unknown = {str(table) for table, collation in sorted_by if fold(str(collation)) not in BUILT_IN}
    if not unknown:
        checks = ["PRAGMA integrity_check(10)"]
    else:
        tables = connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table' AND rootpage")
        checks = [f"PRAGMA integrity_check({name(str(row[0]))})" for row in tables if row[0] not in unknown]
    answers = [str(row[0]) for check in checks for row in connection.execute(check)]
    return [answer for answer in answers if answer != "ok"][:10]


@contextmanager
def _scratch(path: Path) -> Iterator[apsw.Connection]:
    connection = apsw.Connection(str(path), statementcachesize=0)
    try:
        connection.execute("PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF").fetchall()
        # A file that names other files reaches none of them.
        connection.limit(apsw.SQLITE_LIMIT_ATTACHED, 0)
        connection.collation_needed(stand_in)
        yield connection
    finally:
        connection.close()


@contextmanager
def _opened(path: Path) -> Iterator[apsw.Connection]:
    flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
    connection = apsw.Connection(f"file:{quote(str(path.absolute()))}?immutable=1", flags=flags)
    try:
        connection.collation_needed(stand_in)
        yield connection
    finally:
        connection.close()


@contextmanager
def _unpacked(file: DumpFile, told: Told) -> Iterator[Path]:
    if file.packing == "none":
        yield file.path
        return
    with tempfile.NamedTemporaryFile(prefix="paddock-verify-", suffix=".db") as target:
        with file.plain(told) as stream:
            while piece := stream.read(PIECE):
                target.write(piece)
        target.flush()
        yield Path(target.name)


def _has_tables(connection: apsw.Connection) -> bool:
    return bool(connection.execute("SELECT count(*) FROM sqlite_schema").get)


def _counted(connection: apsw.Connection, tables: Mapping[str, int] | list[str]) -> dict[str, int | None]:
    there = {fold(str(row[0])) for row in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
    counts: dict[str, int | None] = {}
    for table in tables:
        try:
            counted = connection.execute(f"SELECT count(*) FROM {name(table)}").get if fold(table) in there else None  # noqa: S608  quoted
        except apsw.SQLError:
            counted = None  # a virtual table whose module is not here
        counts[table] = counted if isinstance(counted, int) else None
    return counts


def _text(statement: bytes) -> str:
    """Text that is not UTF-8 may stand in a value; SQLite takes it, its interface for Python only as hexadecimals."""
    try:
        return statement.decode()
    except UnicodeDecodeError:
        return _LITERAL.sub(_safe, statement).decode("utf-8", "replace")


def _safe(literal: re.Match[bytes]) -> bytes:
    try:
        literal[0].decode()
    except UnicodeDecodeError:
        return b"CAST(X'" + literal[0][1:-1].replace(b"''", b"'").hex().encode() + b"' AS TEXT)"
    return literal[0]
