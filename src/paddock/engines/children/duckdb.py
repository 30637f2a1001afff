"""DuckDB: local files (CSV, Parquet, JSON), files of remote sources, and one database file, read in a locked-in child.

`memory_bytes` is what the system lets the child have; DuckDB is told less, because what it counts is not all that it
takes. A relative path in a query starts at the first root.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pyarrow as pa

from paddock.engines.children.fetching import Fetched, Remotes
from paddock.engines.children.local import LocalEngine, sandbox_finding
from paddock.engines.children.quoting import literal, quoted
from paddock.engines.children.unwritable import refuse_unwritable
from paddock.engines.engine import Column, Finding, Query
from paddock.engines.settings import DuckdbSettings
from paddock.jobs.errors import PermanentRunnerError
from paddock.jobs.model import JsonObject

# Files are shown as tables of a catalog and a schema that DuckDB itself does not know.
FILES_CATALOG, FILES_SCHEMA = "local", "files"
# And those of remote sources, each of them a schema.
REMOTE_CATALOG = "remote"
SUFFIXES = (".csv", ".tsv", ".parquet", ".json", ".jsonl", ".ndjson", ".csv.gz", ".tsv.gz", ".json.gz", ".jsonl.gz")
MAX_FILES, MAX_DEPTH = 10_000, 8


class DuckdbEngine(LocalEngine):
    def __init__(self, name: str, settings: DuckdbSettings) -> None:
        super().__init__(name, "duckdb", "paddock.engines.children.duckdb_child", settings.spill_folder)
        self.settings = settings
        self._remotes = Remotes(settings.remote, settings.fetch_bytes)

    @asynccontextmanager
    async def fetching(self, parent: Path) -> AsyncIterator[Fetched | None]:
        if not self.settings.remote:
            yield None
            return
        async with self._remotes.folder(parent) as fetched:
            yield fetched

    def request(self) -> JsonObject:
        settings = self.settings
        return {
            "roots": [str(self._root(root)) for root in settings.roots],
            "hidden": [str(path.resolve()) for path in settings.hidden],
            "database": self._database(),
            "memory": settings.memory_bytes,
            "spill_bytes": settings.spill_bytes,
            "threads": settings.threads,
            "needs_landlock": settings.require_landlock,
            "remotes": self._remote_names(),
        }

    def _root(self, root: Path) -> Path:
        if not root.is_dir():
            raise PermanentRunnerError(
                f"The engine '{self.name}' is to read {root}, which is no folder.",
                code="engine_root_missing",
                hint="Create it, or change `roots` of the engine.",
            )
        return root.resolve()

    def _remote_names(self) -> list[str]:
        """What stands in the first root under such a name would be read instead of it, or with it."""
        for name in self.settings.remote:
            if self.settings.roots and (self.settings.roots[0] / name).exists():
                raise PermanentRunnerError(
                    f"The engine '{self.name}' has a remote source '{name}', and its first root a folder of that name.",
                    code="engine_remote_hidden",
                    hint="Give the remote source another name.",
                )
        return list(self.settings.remote)

    def _database(self) -> str | None:
        database = self.settings.database
        if database is None:
            return None
        if not database.is_file():
            raise PermanentRunnerError(
                f"The engine '{self.name}' is to open {database}, which is no file.",
                code="engine_database_missing",
                hint="Create it, or change `database` of the engine.",
            )
        return str(database.resolve())

    def look_at(self, batch: pa.RecordBatch) -> None:
        refuse_unwritable(batch)

    async def catalogs(self, query: Query) -> Sequence[str]:
        database = self.settings.database
        return [
            *([database.stem] if database else []),
            *([FILES_CATALOG] if self.settings.roots else []),
            *([REMOTE_CATALOG] if self.settings.remote else []),
        ]

    async def schemas(self, query: Query, catalog: str) -> Sequence[str]:
        if catalog == FILES_CATALOG:
            return [FILES_SCHEMA]
        if catalog == REMOTE_CATALOG:
            return list(self.settings.remote)
        found = await self.ask(
            "rows",
            "SELECT schema_name FROM duckdb_schemas() WHERE database_name = ?"
            " AND schema_name NOT IN ('information_schema', 'pg_catalog') ORDER BY 1",
            catalog,
        )
        return [row[0] for row in found]

    async def tables(self, query: Query, catalog: str, schema: str) -> Sequence[str]:
        if catalog == FILES_CATALOG:
            return await asyncio.to_thread(lambda: list(self._files())) if schema == FILES_SCHEMA else []
        if catalog == REMOTE_CATALOG and schema in self.settings.remote:
            return await self._remotes.files(schema, SUFFIXES, MAX_FILES)
        found = await self.ask(
            "rows",
            "SELECT table_name FROM duckdb_tables() WHERE database_name = $1 AND schema_name = $2 UNION ALL "
            "SELECT view_name FROM duckdb_views() WHERE database_name = $1 AND schema_name = $2 AND NOT internal "
            "ORDER BY 1",
            catalog,
            schema,
        )
        return [row[0] for row in found]

    async def table_columns(self, query: Query, catalog: str, schema: str, table: str) -> Sequence[Column]:
        return (await self.describe(Query(self.table_query(catalog, schema, table)))).columns

    def table_query(self, catalog: str | None, schema: str | None, table: str) -> str:
        if (catalog, schema) == (FILES_CATALOG, FILES_SCHEMA) or (
            catalog == REMOTE_CATALOG and schema in self.settings.remote
        ):
            return f"SELECT * FROM {literal(table)}"  # noqa: S608  quoted
        parts = [part for part in (catalog, schema, table) if part is not None]
        return f"SELECT * FROM {'.'.join(quoted(part) for part in parts)}"  # noqa: S608  quoted

    def _files(self) -> Iterator[str]:
        """The first root's by the path a query would use, those of the others in full."""
        count = 0
        hidden = {path.resolve() for path in self.settings.hidden}
        for number, root in enumerate(self._root(root) for root in self.settings.roots):
            for path in _data_files(root, hidden):
                if count == MAX_FILES:
                    return
                count += 1
                yield str(path.relative_to(root) if number == 0 else path)

    async def check(self, query: Query) -> Sequence[Finding]:
        findings = [await self._runs(), sandbox_finding()]
        findings += [
            Finding(f"root {root}", ok, "can be read" if ok else "cannot be read", None if ok else "Check its rights.")
            for root in self.settings.roots
            for ok in [root.is_dir() and os.access(root, os.R_OK | os.X_OK)]
        ]
        return [*findings, *await self._remotes.check()]

    async def _runs(self) -> Finding:
        try:
            found = await self.ask(
                "rows",
                "SELECT version(), string_agg(extension_name, ', ' ORDER BY 1) FROM duckdb_extensions() WHERE loaded",
            )
        except PermanentRunnerError as problem:
            return Finding("query", False, problem.message, problem.hint)
        return Finding("query", True, f"DuckDB {found[0][0]} with {found[0][1]}; others are not loaded")


def _data_files(root: Path, hidden: set[Path]) -> Iterator[Path]:
    waiting = [(root, 0)]
    while waiting:
        folder, depth = waiting.pop(0)
        try:
            entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
        except OSError:
            continue
        for entry in entries:
            path = Path(entry.path)
            if entry.name.startswith(".") or path in hidden:
                continue
            if entry.is_file() and entry.name.lower().endswith(SUFFIXES) and path.resolve().is_relative_to(root):
                yield path
            elif entry.is_dir(follow_symlinks=False) and depth < MAX_DEPTH:
                waiting.append((path, depth + 1))
