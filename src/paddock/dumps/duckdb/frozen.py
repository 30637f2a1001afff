"""A copy, opened: what it holds, and its rows in chunks."""

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import duckdb

from paddock.dumps.duckdb import connecting, large, macros, planning
from paddock.dumps.duckdb.catalog import Catalog, CreateStatement, refuse_unknown
from paddock.dumps.duckdb.rendering import Renderer, Stored
from paddock.dumps.model import RENDERER, DumpOptions, Format
from paddock.dumps.source import Place, Rows, Section, Table
from paddock.jobs.errors import PermanentRunnerError
from paddock.storage.threads import on_cpu

# Tables with fewer rows are not worth a look.
MANY = 100_000


@dataclass(frozen=True, slots=True)
class _FrozenPlan:
    """The tables asked for. The plan matters to SQL only, so what is wrong with it is told only there."""

    stored: Sequence[Stored]
    plan: planning.Plan | PermanentRunnerError
    # As JSON, which has most bytes. The file says little: DuckDB packs what repeats itself.
    likely_size: int


class DuckdbFrozen:
    def __init__(
        self,
        session: "_Session",
        source: Path,
        point_in_time: datetime,
        options: DumpOptions,
        known: "_FrozenPlan",
    ) -> None:
        self.identity = f"duckdb {duckdb.__version__}/{RENDERER}"
        self.point_in_time = point_in_time
        self.size = max(session.file.stat().st_size, known.likely_size // 2)
        self.tables = [
            Table(table.display_name, table.rows, [column.name for column in table.columns]) for table in known.stored
        ]
        self._session = session
        self._source = source
        self._options = options
        self._stored = {table.display_name: table for table in known.stored}
        self._plan = known.plan
        self._renderers: dict[tuple[str, Format], Renderer] = {}

    def sections(self) -> Sequence[Section]:
        if isinstance(self._plan, PermanentRunnerError):
            raise self._plan
        options = self._options
        begin = [f"-- DuckDB {duckdb.__version__}, database {self._session.name!a}", "BEGIN TRANSACTION;"]
        before = [] if options.data_only else list(self._plan.before)
        after = [] if options.data_only else [*self._plan.after, *_broken_comments(self._plan.broken)]
        tables = [] if options.schema_only else [Section(table=table) for table in self.tables]
        return [Section(_lines([*begin, *before])), *tables, Section(_lines([*after, "COMMIT;"]))]

    async def rows(self, table: Table, format: Format, place: Place | None) -> Rows:
        if self._options.schema_only:
            return Rows(b"", None, {table.name: 0})
        return await on_cpu(self._rows, table.name, format, place)

    async def close(self) -> None:
        await on_cpu(self._session.close)

    def _rows(self, name: str, format: Format, place: Place | None) -> Rows:
        renderer = self._renderers.get((name, format))
        if renderer is None:
            renderer = Renderer(self._session.name, self._stored[name], format, csv_safe=self._options.csv_safe)
            self._renderers[name, format] = renderer
        try:
            return renderer.rows(self._session.ask, place)
        except duckdb.Error as problem:
            raise connecting.unreadable(problem, self._source, self._session.file, name) from problem


class _Session:
    """The connection. What needs more memory than it was given gets a new one with more: bytes do not depend on it."""

    def __init__(self, file: Path, name: str) -> None:
        self.file = file
        self.name = name
        self._memory = connecting.MEMORY
        large.give_back_at_once()
        self.connection = connecting.attached(file, name, self._memory)

    def ask(self, sql: str, frugal: bool, /) -> Sequence[Any]:
        while True:
            try:
                found = self.connection.execute(sql).fetchall()
            except duckdb.OutOfMemoryException:
                if frugal or self._memory >= connecting.MEMORY_MOST:
                    raise
                self._memory *= 2
                self.connection.close()
                self.connection = connecting.attached(self.file, self.name, self._memory)
            else:
                row: Sequence[Any] = found[0]
                return row

    def close(self) -> None:
        self.connection.close()


def opened(copy: Path, source: Path, point_in_time: datetime, options: DumpOptions) -> DuckdbFrozen:
    name = connecting.name_of(source)
    try:
        session = _Session(copy, name)
    except duckdb.Error as problem:
        raise connecting.explained(problem, source, copy) from problem
    try:
        state = copy.stat()
        version = (state.st_dev, state.st_ino, state.st_size, state.st_mtime_ns)
        known = _frozen_plan(copy, name, version, tuple(options.tables), tuple(options.exclude_tables))
        return DuckdbFrozen(session, source, point_in_time, options, known)
    except duckdb.Error as problem:
        session.close()
        raise connecting.explained(problem, source, copy) from problem
    except BaseException:
        session.close()
        raise


def look(source: Path, options: DumpOptions) -> None:
    """In the database itself, read-only and only for a moment: until then nobody can open it to write."""
    name = connecting.name_of(source)
    try:
        connection = connecting.attached(source, name)
    except duckdb.Error as problem:
        raise connecting.explained(problem, source) from problem
    try:
        catalog = Catalog(connection, name)
        planning.chosen(catalog.tables(), catalog.keys, options)
    except duckdb.Error as problem:
        raise connecting.explained(problem, source) from problem
    finally:
        connection.close()


@functools.lru_cache(maxsize=16)
def _frozen_plan(
    copy: Path, name: str, _version: tuple[int, ...], tables: tuple[str, ...], excluded: tuple[str, ...]
) -> _FrozenPlan:
    """Kept, because a dump is opened for each of its slices."""
    options = DumpOptions(tables=list(tables), exclude_tables=list(excluded))
    connection = connecting.attached(copy, name)
    try:
        catalog = Catalog(connection, name)
        stored = planning.chosen(catalog.tables(), catalog.keys, options)
        for table in stored:
            refuse_unknown(table)
        likely_size = sum(_likely_size(connection, name, table) for table in stored if table.rows > MANY)
        try:
            made = catalog.made({table.display_name for table in stored}, macros.read(connection, copy, name))
            if tables:
                made = [one for one in made if one.kind != "view"]
            plan = planning.planned(made, stored, name, some=bool(tables or excluded))
            return _FrozenPlan(stored, plan, likely_size)
        except PermanentRunnerError as problem:
            return _FrozenPlan(stored, problem, likely_size)
        except duckdb.Error as problem:
            return _FrozenPlan(stored, _not_writable(problem), likely_size)
    finally:
        connection.close()


def _likely_size(connection: duckdb.DuckDBPyConnection, name: str, table: Stored) -> int:
    def ask(sql: str, _frugal: bool, /) -> Sequence[Any]:
        found: Sequence[Any] = connection.execute(sql).fetchall()[0]
        return found

    size = Renderer(name, table, "json").likely_size(ask)
    large.give_back()
    return size


def _not_writable(problem: duckdb.Error) -> PermanentRunnerError:
    return PermanentRunnerError(
        f"DuckDB cannot say how this database is made: {problem}",
        code="not_writable",
        hint="Dump it as JSON or CSV, which need only its tables.",
    )


def _lines(statements: Sequence[str]) -> bytes:
    return "".join(f"{statement}\n" for statement in statements).encode()


def _broken_comments(broken: Sequence[CreateStatement]) -> list[str]:
    """What could not be made in the database itself either: for people, as comments."""
    return [f"-- The {one.kind} {one.name!a} is broken in the database:\n-- {one.sql!a}" for one in broken]
