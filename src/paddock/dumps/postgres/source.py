"""A PostgreSQL database to be dumped: one snapshot for everything that is written."""

from paddock.dumps.database_settings import PostgresDatabase
from paddock.dumps.model import DumpOptions, Format
from paddock.dumps.postgres import programs
from paddock.dumps.postgres.copying import Copied
from paddock.dumps.postgres.dumping import Dumped
from paddock.dumps.postgres.errors import PROBLEMS, row_security, said
from paddock.dumps.postgres.freezing import Snapshot, freeze, look
from paddock.dumps.postgres.pg_dump import start
from paddock.dumps.postgres.relations import as_people_see_them, columns
from paddock.dumps.source import Frozen
from paddock.jobs.errors import PermanentRunnerError


class PostgresSource:
    """LiveSource."""

    def __init__(self, settings: PostgresDatabase) -> None:
        self._settings = settings

    async def look(self, options: DumpOptions) -> None:
        await look(self._settings, options)

    async def open(self, format: Format, options: DumpOptions, draft: str) -> Frozen:
        snapshot = await freeze(self._settings, options, draft)
        try:
            _refuse_row_security(snapshot, options)
            if format in ("json", "csv"):
                return await _copied(snapshot, options)
            return await self._dumped(snapshot, format, options, draft)
        except PROBLEMS as problem:
            await snapshot.close()
            raise said(problem) from problem
        except BaseException:
            await snapshot.close()
            raise

    async def _dumped(self, snapshot: Snapshot, format: Format, options: DumpOptions, draft: str) -> Dumped:
        program = await programs.find(self._settings.pg_dump, snapshot.server_major)
        running = start(program, self._settings, snapshot, format, options, draft)
        return Dumped(snapshot, program, running, format, options)


async def _copied(snapshot: Snapshot, options: DumpOptions) -> Copied:
    for relation in snapshot.chosen:
        if relation.foreign and relation.name in options.tables:
            raise PermanentRunnerError(
                f"Table '{relation.name}' is a foreign table: its rows are on another server, at no stated time.",
                code="unknown_table",
            )
    tables = as_people_see_them(snapshot.relations, snapshot.chosen)
    return Copied(snapshot, tables, await columns(snapshot.connection, tables), options)


def _refuse_row_security(snapshot: Snapshot, options: DumpOptions) -> None:
    """pg_dump and COPY refuse too, but later, and pg_dump in words only."""
    if options.schema_only:
        return
    for relation in snapshot.chosen:
        if relation.row_security and not relation.foreign:
            raise row_security(relation.name)
