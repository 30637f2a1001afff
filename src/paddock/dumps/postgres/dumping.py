"""SQL and PostgreSQL's own format: what pg_dump writes on the snapshot, as it is."""

import asyncio
import codecs
from collections import Counter
from collections.abc import Mapping, Sequence

from paddock.dumps.model import CHUNK_BYTES, RENDERER, DumpOptions, Format
from paddock.dumps.postgres.counting import Counting
from paddock.dumps.postgres.errors import PROBLEMS, lost, said
from paddock.dumps.postgres.freezing import Snapshot
from paddock.dumps.postgres.pg_dump import Running
from paddock.dumps.postgres.programs import PgDump
from paddock.dumps.postgres.relations import counted_as
from paddock.dumps.source import Place, Rows, Section, Table
from paddock.jobs.errors import PermanentRunnerError

# What stands for all tables: pg_dump writes them as one.
STREAM = Table("pg_dump")


class Dumped:
    """Frozen, for SQL and custom. A place is the number of the chunk: only the next one can be had."""

    def __init__(
        self, snapshot: Snapshot, program: PgDump, running: Running, format: Format, options: DumpOptions
    ) -> None:
        self.identity = f"pg_dump {program.version}, renderer {RENDERER}"
        self.point_in_time = snapshot.point_in_time
        self.size = sum(relation.bytes for relation in snapshot.chosen) + snapshot.large_objects
        self._counted_as = counted_as(snapshot.relations, snapshot.chosen)
        self.tables = [
            Table(relation.name, snapshot.rows(relation))
            for relation in {relation.oid: relation for relation in self._counted_as.values()}.values()
        ]
        self._names = {
            relation.name: self._counted_as[relation.oid].name
            for relation in snapshot.chosen
            if relation.oid in self._counted_as
        }
        self._snapshot = snapshot
        self._running = running
        self._counting = Counting(_codec(snapshot.encoding)) if format == "sql" else None
        self._counted: asyncio.Task[Mapping[str, int]] | None = None
        if format == "custom" and not options.schema_only:
            self._counted = asyncio.create_task(self._count())
        self._place = 0

    def sections(self) -> Sequence[Section]:
        return (Section(table=STREAM),)

    async def rows(self, table: Table, format: Format, place: Place | None) -> Rows:
        if (place or 0) != self._place:
            raise lost(f"it is read once and in order, and place {place} is not the next.")
        data = await self._running.read(self._look)
        self._place += 1
        if len(data) == CHUNK_BYTES:
            return Rows(data, self._place, self._counts())
        return Rows(data, None, await self._last_counts())

    async def close(self) -> None:
        try:
            if self._counted is not None:
                self._counted.cancel()
                await asyncio.wait([self._counted])
            await self._running.close()
        finally:
            await self._snapshot.close()

    def _look(self, piece: bytes) -> None:
        if self._counting is not None:
            self._counting.feed(piece)

    def _counts(self) -> Mapping[str, int]:
        """An older pg_dump writes each partition for itself."""
        counts: Counter[str] = Counter()
        for name, rows in (self._counting.taken() if self._counting is not None else {}).items():
            counts[self._names.get(name, name)] += rows
        return counts

    async def _last_counts(self) -> Mapping[str, int]:
        if self._counting is not None and self._counting.inside is not None:
            raise PermanentRunnerError(
                f"The rows of '{self._counting.inside}' have no end in what pg_dump wrote.", code="pg_dump_unknown"
            )
        if self._counted is None:
            return self._counts()
        try:
            return await self._counted
        except PROBLEMS as problem:
            raise said(problem) from problem

    async def _count(self) -> Mapping[str, int]:
        """Compressed rows cannot be counted as they pass: the server counts them, on the same snapshot."""
        connection = self._snapshot.connection
        counts: dict[str, int] = {}
        for relation in self._snapshot.chosen:
            if relation.oid in self._counted_as:
                rows = await connection.fetchval(f"SELECT pg_catalog.count(*) FROM ONLY {relation.full}")  # noqa: S608  quoted
                name = self._counted_as[relation.oid].name
                counts[name] = counts.get(name, 0) + rows
        return counts


def _codec(encoding: str) -> str:
    """Of the names of tables; a name in an encoding that Python does not know looks odd, and no more than that."""
    try:
        return codecs.lookup(encoding.replace("WIN", "cp")).name
    except LookupError:
        return "utf-8"
