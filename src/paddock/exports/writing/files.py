"""One file while it is written. Everything here runs on a thread of `paddock.storage.threads.CPU`.

A Parquet file gets its footer by `finish` and by nothing else: a writer that is dropped must not make a cut file
readable. What was written is read back before anybody may upload it.
"""

import zlib
from collections.abc import Iterator
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from paddock.exports.writing.dictionaries import dictionary_columns
from paddock.exports.writing.encodings import encodings, fits
from paddock.exports.writing.levels import FAST, zstd_levels
from paddock.exports.writing.lines import Lines, lines_of
from paddock.exports.writing.options import Compression, Format, OutputOptions, compression_of
from paddock.exports.writing.samples import PAGE_BYTES, PAGE_ROWS
from paddock.jobs.errors import TransientResourceError
from paddock.storage.scratch import ScratchFile

GZIP_LEVEL = 6
# Text is made of so many rows at a time: it is several times larger than its Arrow.
LINES_AT_ONCE = 4096
READ_AT_ONCE = 1 << 20


class File(Protocol):
    def takes(self, table: pa.Table) -> bool:
        """Whether these rows can stand in this file; if not, in the next."""

    def write(self, table: pa.Table) -> None: ...

    def finish(self) -> None:
        """Writes the end, closes, and reads back: TransientResourceError `output_damaged` if it is not what was
        written."""

    def drop(self) -> None:
        """Nothing more is written; never fails."""


class Parquet:
    """Every `write` is one row group."""

    def __init__(self, file: ScratchFile, schema: pa.Schema, options: OutputOptions, first: pa.Table | None) -> None:
        """`first` is what will be written first: it tells which columns repeat, and how large numbers are."""
        compression = compression_of("parquet", options)
        first = pa.Table.from_batches([], schema) if first is None else first
        dictionary = dictionary_columns(first)
        self._encodings = encodings(first, dictionary, options)
        level: int | dict[str, int] | None = None
        if compression == "zstd":
            level = options.level or zstd_levels(first, dictionary, self._encodings) or FAST
        self._file = file
        self._schema = schema
        self._gate = _Gate(file)
        self._writer = pq.ParquetWriter(
            pa.PythonFile(self._gate, mode="w"),
            schema,
            version="2.6",
            data_page_version="1.0",
            compression=compression,
            compression_level=level,
            max_rows_per_page=PAGE_ROWS,
            data_page_size=PAGE_BYTES,
            use_dictionary=dictionary or False,
            column_encoding=self._encodings or None,
            write_statistics=True,
            store_decimal_as_integer=True,
        )

    def takes(self, table: pa.Table) -> bool:
        return fits(table, self._encodings)

    def write(self, table: pa.Table) -> None:
        self._writer.write_table(table, row_group_size=table.num_rows)
        self._file.rows += table.num_rows

    def finish(self) -> None:
        self._writer.close()
        self._file.close()
        _check_parquet(self._file, self._schema, self._writer.writer.metadata)

    def drop(self) -> None:
        self._gate.shut = True
        self._writer.is_open = False


class Text:
    def __init__(self, file: ScratchFile, schema: pa.Schema, options: OutputOptions, file_format: Format) -> None:
        self._file = file
        self._compression = compression_of(file_format, options)
        self._lines: Lines = lines_of(file_format, options)
        self._gate = _Gate(file)
        self._sink = _SINKS[self._compression](self._gate)
        self._written = _Sum()
        self._put(self._lines.header(schema.names))

    def takes(self, table: pa.Table) -> bool:
        return True

    def write(self, table: pa.Table) -> None:
        for batch in table.to_batches(max_chunksize=LINES_AT_ONCE):
            self._put(_data(self._lines.of(batch)))
        self._file.rows += table.num_rows

    def finish(self) -> None:
        self._sink.end()
        self._file.close()
        _check_text(self._file, self._compression, self._written)

    def drop(self) -> None:
        self._gate.shut = True

    def _put(self, data: bytes | pa.Buffer) -> None:
        self._written.add(data)
        self._sink.write(data)


def open_file(
    file: ScratchFile, schema: pa.Schema, file_format: Format, options: OutputOptions, first: pa.Table | None
) -> File:
    if file_format == "parquet":
        return Parquet(file, schema, options, first)
    return Text(file, schema, options, file_format)


class _Gate:
    """Arrow's writers end what they have whenever they are destroyed, a footer under half a file too. Once shut,
    nothing gets through."""

    closed = False

    def __init__(self, file: ScratchFile) -> None:
        self._file = file
        self.shut = False

    def write(self, data: Any) -> int:
        return len(data) if self.shut else self._file.write(data)

    def tell(self) -> int:
        return self._file.tell()

    def flush(self) -> None:
        pass

    def close(self) -> None:
        pass


class _Sum:
    """Length and checksum of a text, whatever pieces it comes in."""

    def __init__(self) -> None:
        self.size = 0
        self.crc = 0

    def add(self, data: bytes | pa.Buffer) -> None:
        self.size += len(data)
        self.crc = zlib.crc32(data, self.crc)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Sum) and (self.size, self.crc) == (other.size, other.crc)

    __hash__ = None  # type: ignore[assignment]  # it changes


class _Sink(Protocol):
    def write(self, data: bytes | pa.Buffer) -> object: ...
    def end(self) -> None: ...


class _Plain:
    def __init__(self, file: _Gate) -> None:
        self.write = file.write

    def end(self) -> None:
        pass


class _Gzip:
    def __init__(self, file: _Gate) -> None:
        self._file = file
        # 16 + 15: gzip's own header and trailer. One member, which every reader understands.
        self._encoder = zlib.compressobj(GZIP_LEVEL, zlib.DEFLATED, 16 + zlib.MAX_WBITS)

    def write(self, data: bytes | pa.Buffer) -> None:
        self._file.write(self._encoder.compress(data))

    def end(self) -> None:
        self._file.write(self._encoder.flush())


class _Zstd:
    def __init__(self, file: _Gate) -> None:
        self._stream = pa.CompressedOutputStream(pa.PythonFile(file, mode="w"), "zstd")
        self.write = self._stream.write

    def end(self) -> None:
        self._stream.close()


_SINKS: dict[Compression, type[_Plain] | type[_Gzip] | type[_Zstd]] = {"none": _Plain, "gzip": _Gzip, "zstd": _Zstd}


def _data(lines: pa.Array) -> pa.Buffer:
    """The bytes of all texts, one after another: an array of texts already is that."""
    _, offsets, data = lines.buffers()
    ends = memoryview(offsets).cast("q")
    start, end = ends[lines.offset], ends[lines.offset + len(lines)]
    return data.slice(start, end - start)


def _check_parquet(file: ScratchFile, schema: pa.Schema, written: pq.FileMetaData) -> None:
    try:
        with pq.ParquetFile(file.path, memory_map=False) as read:
            footer, found = read.metadata, read.schema_arrow
    except (pa.ArrowException, OSError) as problem:
        raise _damaged(f"cannot be read back: {problem}") from None
    if footer.num_rows != file.rows:
        raise _damaged(f"has {footer.num_rows:,} rows instead of {file.rows:,}")
    if not found.equals(schema, check_metadata=False):
        raise _damaged(f"has other columns than were written: {found} instead of {schema}")
    if not footer.equals(written):
        raise _damaged("has another footer than was written")


def _check_text(file: ScratchFile, compression: Compression, written: _Sum) -> None:
    found = _Sum()
    try:
        for piece in _read_back(file, compression):
            found.add(piece)
    except (pa.ArrowException, OSError, EOFError, zlib.error) as problem:
        raise _damaged(f"cannot be read back: {problem}") from None
    if found != written:
        raise _damaged(f"holds another text than was written: {found.size:,} bytes instead of {written.size:,}")


def _read_back(file: ScratchFile, compression: Compression) -> Iterator[bytes]:
    codec = None if compression == "none" else compression
    with pa.input_stream(str(file.path), compression=codec) as stream:
        while piece := stream.read(READ_AT_ONCE):
            yield piece


def _damaged(what: str) -> TransientResourceError:
    return TransientResourceError(
        f"A finished file {what}.",
        code="output_damaged",
        hint="Nothing of it was uploaded; Paddock exports again. If it stays so, check the disk of the scratch space.",
    )
