"""SQLite as a source of dumps."""

from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import apsw

from paddock.dumps.database_settings import SqliteDatabase
from paddock.dumps.model import CHUNK_BYTES, CHUNK_ROWS, RENDERER, DumpOptions, Format
from paddock.dumps.source import Place, Progress, Rows, Section, Table
from paddock.dumps.sqlite.asking import ask
from paddock.dumps.sqlite.chunks import Limits, Renderer
from paddock.dumps.sqlite.copying import Copying
from paddock.dumps.sqlite.expressions import Writing
from paddock.dumps.sqlite.failures import translated
from paddock.dumps.sqlite.opening import opened
from paddock.dumps.sqlite.quoting import fold
from paddock.dumps.sqlite.rendering import renderer
from paddock.dumps.sqlite.schema import TablePlan
from paddock.dumps.sqlite.script import Choice, Script, choose
from paddock.engines.children.quoting import quoted as name
from paddock.storage.threads import change_on_io, on_cpu

LIMITS = Limits(CHUNK_ROWS, CHUNK_BYTES)
# To count reads the file in one go, and nothing is saved meanwhile: a larger one would take it for too long.
MOST_COUNTED = 20 << 30


class SqliteSource:
    def __init__(self, settings: SqliteDatabase) -> None:
        self._settings = settings

    async def copy(self, target: Path, progress: Progress) -> datetime:
        with translated(self._settings.path):
            copying = await change_on_io(self._begin, target)
            try:
                done = False
                while not done:
                    done = await change_on_io(copying.step)
                    await progress(copying.copied, copying.total)
                await change_on_io(copying.finish)
            finally:
                await change_on_io(copying.close)
        return copying.point_in_time

    def _begin(self, target: Path) -> Copying:
        settings = self._settings
        may_block = None if settings.allow_blocking_copy else settings.blocking_copy_seconds
        return Copying.begin(settings.path, target, may_block=may_block)

    async def look(self, options: DumpOptions) -> None:
        with translated(self._settings.path):
            await on_cpu(_look, self._settings.path, options)

    async def open(self, copy: Path, point_in_time: datetime, options: DumpOptions) -> "FrozenSqlite":
        with translated(self._settings.path):
            return await on_cpu(partial(FrozenSqlite, origin=self._settings.path), copy, point_in_time, options)


class FrozenSqlite:
    """A copy, opened; also what the format `sqlite` is made of: its file."""

    def __init__(
        self,
        copy: Path,
        point_in_time: datetime,
        options: DumpOptions,
        limits: Limits = LIMITS,
        origin: Path | None = None,
    ) -> None:
        self.file = copy
        # What people know it by.
        self._origin = origin or copy
        self.size = copy.stat().st_size
        self.point_in_time = point_in_time
        self.identity = f"sqlite {apsw.sqlite_lib_version()} renderer {RENDERER}"
        self._options = options
        self._limits = limits
        self._renderers: dict[tuple[str, str], Renderer] = {}
        self._connection, self._schema = opened(copy)
        try:
            self._parts(options)
        except BaseException:
            self._connection.close(True)
            raise

    def _parts(self, options: DumpOptions) -> None:
        choice = _choice(options)
        chosen = choose(self._schema, choice)
        parts = Script(self._connection, self._schema, choice, chosen).parts()
        self.unreadable = [each for each in self._schema.unreadable if fold(each) in chosen.names]
        self.tables: Sequence[Table] = [self._table(plan) for plan in chosen.shown]
        self._sections = [Section(part.head, None if part.table is None else self._table(part.table)) for part in parts]
        carried = [part.table for part in parts if part.table is not None]
        self._plans = {plan.name: plan for plan in (*chosen.shown, *carried)}

    def _table(self, plan: TablePlan) -> Table:
        return Table(plan.name, _estimate(self._connection, plan, self.size), [each.name for each in plan.columns])

    def sections(self) -> Sequence[Section]:
        return self._sections

    async def rows(self, table: Table, format: Format, place: Place | None) -> Rows:
        if self._options.schema_only:
            return Rows(b"", None, {table.name: 0})
        with translated(self._origin, table.name):
            return await on_cpu(self._rows, table.name, format, place)

    def _rows(self, table: str, format: Format, place: Any) -> Rows:
        if format == "sqlite":
            return Rows(b"", None, self._counts(table))
        if format == "sql" and self._plans[table].kind == "virtual":
            return Rows(b"", None, {table: self._count(table)})
        chunk = self._renderer(table, format).render(place)
        return Rows(chunk.data, chunk.next, {table: chunk.rows}, chunk.begins)

    def _counts(self, table: str) -> dict[str, int]:
        """Nothing for a table that cannot be counted: a file with a damaged one is copied all the same."""
        with suppress(apsw.Error):
            return {table: self._count(table)} if self.size <= MOST_COUNTED else {}
        return {}

    def _count(self, table: str) -> int:
        """Where none are written: those of a virtual table are rows of the tables behind it, and a file is copied."""
        return int(ask(self._connection, "count(*)", f"main.{name(table)}").get)

    def _renderer(self, table: str, format: Format) -> Renderer:
        key = table, format
        if key not in self._renderers:
            # One at a time is enough, and each may hold a cursor or a value.
            self._close_renderers()
            self._renderers[key] = renderer(self._connection, self._schema, self._writing(table, format), self._limits)
        return self._renderers[key]

    def _writing(self, table: str, format: Format) -> Writing:
        return Writing(
            self._plans[table],
            format,
            wide=self._schema.codec != "utf-8",
            preserve_rowids=self._options.preserve_rowids,
            csv_safe=self._options.csv_safe,
        )

    def _close_renderers(self) -> None:
        for each in self._renderers.values():
            each.close()
        self._renderers.clear()

    async def close(self) -> None:
        await on_cpu(self._close)

    def _close(self) -> None:
        self._close_renderers()
        self._connection.close(True)


def _look(path: Path, options: DumpOptions) -> None:
    connection, schema = opened(path, "mode=ro")
    try:
        choose(schema, _choice(options))
    finally:
        connection.close(True)


def _choice(options: DumpOptions) -> Choice:
    return Choice(options.tables, options.exclude_tables, options.schema_only, options.data_only)


def _estimate(connection: apsw.Connection, plan: TablePlan, size: int) -> int | None:
    """By the rowids, which may have gaps: never more than the file has room for."""
    if plan.rowid is None:
        return None
    with suppress(apsw.Error):
        # Two statements: SQLite looks up the end of a table only for one at a time.
        least = ask(connection, f"min({plan.rowid})", f"main.{name(plan.name)}").get
        most = ask(connection, f"max({plan.rowid})", f"main.{name(plan.name)}").get
        return 0 if most is None else int(min(most - least + 1, size // 4))
    return None
