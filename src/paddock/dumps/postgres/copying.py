"""JSON and CSV: COPY on the connection that holds the snapshot, one table after the other."""

from collections.abc import Mapping, Sequence
from functools import partial

from paddock.dumps.model import RENDERER, DumpOptions, Format
from paddock.dumps.postgres.errors import PROBLEMS, lost, said
from paddock.dumps.postgres.freezing import Snapshot
from paddock.dumps.postgres.relations import Relation, RelationColumn
from paddock.dumps.postgres.rendering import copy
from paddock.dumps.postgres.streaming import Stream
from paddock.dumps.source import Place, Rows, Section, Table
from paddock.jobs.errors import PermanentRunnerError
from paddock.storage.threads import on_cpu


class Copied:
    """Frozen, for JSON and CSV. A place is the number of the block: only the next one can be had."""

    def __init__(
        self,
        snapshot: Snapshot,
        tables: Sequence[Relation],
        columns: Mapping[int, Sequence[RelationColumn]],
        options: DumpOptions,
    ) -> None:
        self.identity = f"PostgreSQL {snapshot.server_major}, renderer {RENDERER}"
        self.point_in_time = snapshot.point_in_time
        self.tables = [
            Table(relation.name, snapshot.rows(relation), [column.name for column in columns[relation.oid]])
            for relation in tables
        ]
        self.size = max(sum(relation.bytes for relation in snapshot.chosen), sum(map(_least, self.tables)))
        self._snapshot = snapshot
        self._relations = {relation.name: relation for relation in tables}
        self._columns = columns
        self._options = options
        self._stream: Stream | None = None
        self._counted = 0

    def sections(self) -> Sequence[Section]:
        return ()

    async def rows(self, table: Table, format: Format, place: Place | None) -> Rows:
        if self._options.schema_only:
            return Rows(b"", None)
        if place is None:
            self._begin(table, format)
        stream = self._stream
        if stream is None or (stream.table, stream.place) != (table.name, place or 0):
            raise lost(f"it is read once and in order, and place {place} of '{table.name}' is not the next.")
        try:
            data, last = await stream.next()
        except PROBLEMS as problem:
            raise said(problem, table.name) from problem
        rendered, rows = await on_cpu(_rendered, data, format, self._snapshot.encoding, table.name)
        self._counted += rows
        if last:
            self._end(stream)
        return Rows(rendered, None if last else stream.place, {table.name: rows})

    async def close(self) -> None:
        try:
            if self._stream is not None:
                await self._stream.close()
        finally:
            await self._snapshot.close()

    def _begin(self, table: Table, format: Format) -> None:
        if self._stream is not None:
            raise lost(f"'{self._stream.table}' was left before its end.")
        relation = self._relations[table.name]
        columns = self._columns[relation.oid]
        copying = partial(copy, self._snapshot.connection, relation, columns, format, csv_safe=self._options.csv_safe)
        self._stream, self._counted = Stream(table.name, copying), 0

    def _end(self, stream: Stream) -> None:
        self._stream = None
        if stream.rows != self._counted:
            raise lost(f"PostgreSQL sent {stream.rows} rows of '{stream.table}', {self._counted} were read.")


def _least(table: Table) -> int:
    """Of its JSON, though all were NULL: the server keeps those as bits."""
    return (table.rows or 0) * sum(len(name) + len('"":null,') for name in table.columns)


def _rendered(data: bytes, format: Format, encoding: str, table: str) -> tuple[bytes, int]:
    if encoding == "SQL_ASCII":
        _check(data, table)
    if format == "json":
        rendered = data.replace(b"\n", b",\n")
        return rendered[:-2], len(rendered) - len(data)
    rendered = with_crlf(data)
    return rendered, len(rendered) - len(data)


def _check(data: bytes, table: str) -> None:
    try:
        data.decode()
    except UnicodeDecodeError:
        raise PermanentRunnerError(
            f"The database's encoding is SQL_ASCII, and text in table '{table}' is not UTF-8.",
            code="not_utf8",
            hint="Dump it as SQL, which keeps the bytes as they are.",
        ) from None


def with_crlf(data: bytes) -> bytes:
    """RFC 4180's line ends, where a row ends; one inside a cell stays as it is. Cells with line ends are in quotes, and a
    quote inside them is doubled: every other piece between quotes is inside."""
    if b'"' not in data:
        return data.replace(b"\n", b"\r\n")
    pieces = data.split(b'"')
    if b"\n" not in b"".join(pieces[1::2]):
        return data.replace(b"\n", b"\r\n")
    pieces[::2] = [piece.replace(b"\n", b"\r\n") for piece in pieces[::2]]
    return b'"'.join(pieces)
