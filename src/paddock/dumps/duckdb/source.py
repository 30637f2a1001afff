"""DuckDB databases for dumps: a copy made under DuckDB's own lock, then read as often as it takes."""

from datetime import datetime
from pathlib import Path

from paddock.dumps.database_settings import DuckdbDatabase
from paddock.dumps.duckdb import copying
from paddock.dumps.duckdb.frozen import DuckdbFrozen, look, opened
from paddock.dumps.model import DumpOptions
from paddock.dumps.source import Progress
from paddock.storage.threads import on_cpu


class DuckdbSource:
    def __init__(self, settings: DuckdbDatabase) -> None:
        self._path = settings.path

    async def copy(self, target: Path, progress: Progress) -> datetime:
        return await copying.copy(self._path, target, progress)

    async def look(self, options: DumpOptions) -> None:
        await on_cpu(look, self._path, options)

    async def open(self, copy: Path, point_in_time: datetime, options: DumpOptions) -> DuckdbFrozen:
        return await on_cpu(opened, copy, self._path, point_in_time, options)
