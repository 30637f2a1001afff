"""SQLite: one database file, opened read-only by a locked-in child. An export is one read transaction."""

import os
from collections.abc import Sequence

from paddock.engines.children.local import LocalEngine, sandbox_finding
from paddock.engines.children.quoting import quoted
from paddock.engines.engine import Column, Finding, Query
from paddock.engines.settings import SqliteSettings
from paddock.jobs.errors import InfrastructureError, PermanentRunnerError
from paddock.jobs.model import JsonObject

CATALOG, SCHEMA = "sqlite", "main"


class SqliteEngine(LocalEngine):
    def __init__(self, name: str, settings: SqliteSettings) -> None:
        super().__init__(name, "sqlite", "paddock.engines.children.sqlite_child", settings.spill_folder)
        self.settings = settings

    def request(self) -> JsonObject:
        settings = self.settings
        if not settings.path.is_file():
            raise PermanentRunnerError(
                f"The engine '{self.name}' is to open {settings.path.name}, which is no file.",
                code="engine_database_missing",
                hint="Create it, or change `path` of the engine.",
            )
        return {
            "path": str(settings.path.resolve()),
            "memory": settings.memory_bytes,
            "spill_bytes": settings.spill_bytes,
            "needs_landlock": settings.require_landlock,
        }

    async def catalogs(self, query: Query) -> Sequence[str]:
        return [CATALOG]

    async def schemas(self, query: Query, catalog: str) -> Sequence[str]:
        return [SCHEMA] if catalog == CATALOG else []

    async def tables(self, query: Query, catalog: str, schema: str) -> Sequence[str]:
        if (catalog, schema) != (CATALOG, SCHEMA):
            return []
        found: list[str] = await self.ask("tables")
        return found

    async def table_columns(self, query: Query, catalog: str, schema: str, table: str) -> Sequence[Column]:
        return (await self.describe(Query(self.table_query(catalog, schema, table)))).columns

    def table_query(self, catalog: str | None, schema: str | None, table: str) -> str:
        return f"SELECT * FROM {quoted(SCHEMA)}.{quoted(table)}"  # noqa: S608  quoted

    async def check(self, query: Query) -> Sequence[Finding]:
        # Whoever may use the engine sees this: where the file lies stands in its settings, for those who have them.
        path = self.settings.path
        readable = path.is_file() and os.access(path, os.R_OK)
        hint = None if readable else "Check `path` of the engine, and the file's rights."
        return [
            Finding(f"database {path.name}", readable, "can be read" if readable else "cannot be read", hint),
            await self._runs(),
            sandbox_finding(),
        ]

    async def _runs(self) -> Finding:
        try:
            return Finding("query", True, f"SQLite {await self.ask('version')}")
        except InfrastructureError as problem:
            return Finding("query", False, problem.message, problem.hint)
