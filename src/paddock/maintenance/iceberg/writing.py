"""Writing a bin: the rows of its sources, in their order, into one new file.

A source whose footer has exactly the table's field ids, names and types is copied batch by batch; every other one goes through
PyIceberg's scan, one file at a time, which finds columns by their ids. In memory are at most one source's row group and 32 MiB
of output. The rows that were written are counted against the footers of the sources, and nothing is committed that differs.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.io.fileformat import FileFormatFactory, FileFormatWriter
from pyiceberg.io.pyarrow import ArrowScan, pyarrow_to_schema, schema_to_pyarrow
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.schema import Schema
from pyiceberg.table import FileScanTask, Table
from pyiceberg.typedef import Record

from paddock.jobs.errors import PermanentRunnerError
from paddock.maintenance.iceberg.planning import Bin, Source

OUTPUT_BYTES = 32 << 20


@dataclass(frozen=True, slots=True)
class Written:
    bin: Bin
    file: DataFile | None  # None: every row of its sources was deleted
    rows: int


def write_bin(table: Table, packed: Bin, name: str) -> Written:
    """`name` is the file's, without its ending. What a kill leaves of it is an orphan that no snapshot names."""
    schema = table.metadata.schema()
    wanted = schema_to_pyarrow(schema)
    path = _location(table, packed, name)
    output = table.io.new_output(path)
    writer = FileFormatFactory.get(FileFormat.PARQUET).create_writer(output, schema, table.metadata.properties)
    expected = rows = 0
    buffer = _Buffer(writer, wanted)
    for source in packed.sources:
        expected += rows_of(table, source)
        for batch in _batches(table, schema, source):
            rows += batch.num_rows
            buffer.add(batch)
    buffer.flush()
    if rows == 0 and expected == 0:
        return Written(packed, None, 0)
    statistics = writer.close()
    if not rows == expected == statistics.record_count:
        raise PermanentRunnerError(
            f"{expected:,} rows were read of {len(packed.sources)} files of {'.'.join(table.name())}, and {rows:,} written. "
            "Nothing was committed.",
            code="rows_differ",
            hint="Are its files changed in place by somebody? Look at the job's log, and tell us.",
        )
    spec_id, values = packed.group
    file = DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=path,
        file_format=FileFormat.PARQUET,
        partition=Record(*values),
        file_size_in_bytes=len(output),
        sort_order_id=None,
        equality_ids=None,
        key_metadata=None,
        **statistics.to_serialized_dict(),
    )
    file.spec_id = spec_id
    return Written(packed, file, rows)


def _location(table: Table, packed: Bin, name: str) -> str:
    """Where the table's location provider puts a file of this partition."""
    spec_id, values = packed.group
    spec, folder = table.metadata.specs()[spec_id], ""
    if spec.fields:
        try:
            folder = spec.partition_to_path(Record(*values), table.metadata.schema()) + "/"
        except (ValueError, AttributeError, IndexError):
            folder = ""  # a column of an older spec was dropped since: the folder is only for people
    return table.location_provider().new_data_location(f"{folder}{name}.parquet")


class _Buffer:
    """Collects batches until they make a row group worth writing: each write makes one."""

    def __init__(self, writer: FileFormatWriter, schema: pa.Schema) -> None:
        self._writer = writer
        self._schema = schema
        self._held: list[pa.Table] = []
        self._bytes = 0

    def add(self, batch: pa.RecordBatch) -> None:
        if batch.num_rows == 0:
            return
        rows = pa.Table.from_batches([batch]).rename_columns(self._schema.names).cast(self._schema)
        self._held.append(rows)
        self._bytes += rows.nbytes
        if self._bytes >= OUTPUT_BYTES:
            self.flush()

    def flush(self) -> None:
        if self._held:
            self._writer.write(pa.concat_tables(self._held).combine_chunks())
            self._held, self._bytes = [], 0


def rows_of(table: Table, source: Source) -> int:
    """By its footer, less the positions that were deleted: what the copy must have."""
    with table.io.new_input(source.file.file_path).open() as stream:
        rows = pq.read_metadata(stream).num_rows
    return int(rows) - len(deleted_positions(table, source, rows))


def deleted_positions(table: Table, source: Source, rows: int) -> set[int]:
    """Read by ourselves, and so a second opinion on what PyIceberg's scan leaves out."""
    found: set[int] = set()
    for delete in source.deletes:
        with table.io.new_input(delete.file_path).open() as stream:
            read = pq.read_table(stream, columns=["file_path", "pos"])
        mine = read.filter(pc.equal(read["file_path"], source.file.file_path))
        found.update(at for at in mine["pos"].to_pylist() if 0 <= at < rows)
    return found


def _batches(table: Table, schema: Schema, source: Source) -> Iterator[pa.RecordBatch]:
    if source.deletes or not _is_plain(table, schema, source):
        yield from _scanned(table, schema, source)
        return
    with table.io.new_input(source.file.file_path).open() as stream:
        yield from pq.ParquetFile(stream).iter_batches()


def _is_plain(table: Table, schema: Schema, source: Source) -> bool:
    with table.io.new_input(source.file.file_path).open() as stream:
        physical = pq.read_schema(stream)
    try:
        held = pyarrow_to_schema(physical)
    except (ValueError, TypeError, pa.ArrowException):
        return False  # without ids, or of a type that PyIceberg has to convert
    # A type holds the ids of what is inside it.
    return [(each.field_id, each.name, each.field_type) for each in held.fields] == [
        (each.field_id, each.name, each.field_type) for each in schema.fields
    ]


def _scanned(table: Table, schema: Schema, source: Source) -> Iterator[pa.RecordBatch]:
    scan = ArrowScan(table.metadata, table.io, schema, AlwaysTrue())
    yield from scan.to_record_batches([FileScanTask(source.file, delete_files=set(source.deletes))])
