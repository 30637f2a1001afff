"""COPY's CSV to Arrow, one block of whole rows at a time.

The server sends each row as one message and the driver hands over whole messages, so a block always ends where a row
ends, whatever stands inside quotes. NULL is an empty field, an empty string a quoted one.
"""

import binascii
import re
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from paddock.engines.children.quoting import quoted
from paddock.engines.postgres.arrays import split
from paddock.engines.postgres.types import PostgresColumn
from paddock.jobs.errors import PermanentRunnerError, UserMistake

_BOM = b"\xef\xbb\xbf"
_COLUMN = re.compile(r"In CSV column #(\d+)")
_SHOWN = 60
_HINTS = (
    (pa.types.is_decimal, "A decimal has neither NaN nor infinity: write NULLIF({0}, 'NaN'), or {0}::text."),
    (
        pa.types.is_temporal,
        "Files hold the years 1 to 9999 and times below 24:00:00: choose the rows, or write {0}::text.",
    ),
    (pa.types.is_string, "The server's text is not UTF-8 (a database in SQL_ASCII?): convert it, or write {0}::bytea."),
    (pa.types.is_list, "A list has one dimension that starts at 1: write {0}::text, or unnest it."),
)


class Decoder:
    def __init__(self, columns: Sequence[PostgresColumn]) -> None:
        self.columns = columns
        self.schema = pa.schema([pa.field(column.name, column.type) for column in columns])
        # By position: the names of a result may repeat.
        self._names = [str(position) for position in range(len(columns))]
        self._parsing = pa.csv.ParseOptions(ignore_empty_lines=False)
        self._converting = pa.csv.ConvertOptions(
            column_types={
                name: column.type if column.wire == "csv" else pa.string()
                for name, column in zip(self._names, columns, strict=True)
            },
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
            true_values=["t"],
            false_values=["f"],
        )

    def decode(self, block: bytes) -> pa.RecordBatch:
        try:
            table = self._read(block)
        except pa.ArrowInvalid as problem:
            raise self._unreadable(problem) from None
        arrays = [
            self._finished(column, _whole(values)) for column, values in zip(self.columns, table.columns, strict=True)
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _read(self, block: bytes) -> pa.Table:
        # The reader takes a byte order mark off the front, which here is the beginning of a value.
        if block.startswith(_BOM):
            block = _BOM + block
        return pa.csv.read_csv(
            pa.py_buffer(block),
            read_options=pa.csv.ReadOptions(use_threads=False, block_size=len(block) + 1, column_names=self._names),
            parse_options=self._parsing,
            convert_options=self._converting,
        )

    def _finished(self, column: PostgresColumn, values: pa.Array) -> pa.Array:
        try:
            return _from_text(column, values)
        except (pa.ArrowInvalid, ValueError) as problem:
            raise _not_representable(column, str(problem)) from None

    def _unreadable(self, problem: pa.ArrowInvalid) -> PermanentRunnerError:
        found = _COLUMN.search(str(problem))
        if found is None:
            return PermanentRunnerError(
                f"PostgreSQL's answer could not be read: {str(problem)[:200]}", code="answer_unreadable"
            )
        return _not_representable(self.columns[int(found[1])], str(problem).rpartition(": ")[2])


def _not_representable(column: PostgresColumn, what: str) -> PermanentRunnerError:
    hint = next((hint.format(quoted(column.name)) for applies, hint in _HINTS if applies(column.type)), None)
    return UserMistake(
        f"A value of column '{column.name}' ({column.native}) cannot be written as {column.type}: {what[:_SHOWN]}",
        code="value_not_representable",
        hint=hint,
    )


def _whole(values: pa.ChunkedArray) -> pa.Array:
    return values.chunk(0) if values.num_chunks == 1 else values.combine_chunks()


def _from_text(column: PostgresColumn, values: pa.Array) -> pa.Array:
    if column.wire == "uuid":
        return _uuids(values)
    if column.wire == "bytea":
        return _unhexed(values)
    if column.wire == "array":
        return _lists(column, values)
    if column.wire == "decimal256":
        return values.cast(column.type)
    return values


def _uuids(texts: pa.Array) -> pa.Array:
    filled = texts.fill_null("0" * 32)
    raw = binascii.unhexlify(_characters(filled).translate(None, b"-"))
    storage = pa.FixedSizeBinaryArray.from_buffers(
        pa.binary(16), len(texts), [_validity(texts), pa.py_buffer(raw)], null_count=texts.null_count
    )
    return pa.ExtensionArray.from_storage(pa.uuid(), storage)


def _unhexed(texts: pa.Array) -> pa.Array:
    r"""`\x00ff`: neither a backslash nor an x is a hex digit, so both can be dropped from all values at once."""
    # Filled: behind a null there may still be characters, those of the word NULL in an array.
    filled = texts.fill_null("\\x")
    raw = binascii.unhexlify(_characters(filled).translate(None, b"\\x"))
    lengths = pc.divide(pc.subtract(pc.binary_length(filled), 2), 2)
    return pa.BinaryArray.from_buffers(
        pa.binary(), len(texts), [_validity(texts), _offsets(lengths).buffers()[1], pa.py_buffer(raw)]
    )


def _characters(texts: pa.Array) -> bytes:
    """Those of all values, one after the other."""
    if not len(texts):
        return b""
    _, offsets, data = texts.buffers()
    bounds = memoryview(offsets).cast("i")
    first, last = bounds[texts.offset], bounds[texts.offset + len(texts)]
    return b"" if data is None else bytes(memoryview(data)[first:last])


def _validity(values: pa.Array) -> pa.Buffer | None:
    if not values.null_count:
        return None
    valid = values.is_valid()
    assert valid.offset == 0
    return valid.buffers()[1]


def _offsets(lengths: pa.Array) -> pa.Array:
    return pa.concat_arrays([pa.array([0], pa.int32()), pc.cumulative_sum(lengths.cast(pa.int32()))])


def _lists(column: PostgresColumn, texts: pa.Array) -> pa.Array:
    assert column.element is not None
    elements, lengths = split(texts, _characters(texts))
    values = _element_values(column.element, elements)
    return pa.ListArray.from_arrays(_offsets(lengths), values, type=column.type, mask=texts.is_null())


def _element_values(element: PostgresColumn, texts: pa.Array) -> pa.Array:
    if element.wire != "csv":
        return _from_text(element, texts)
    if pa.types.is_boolean(element.type):
        return pc.equal(texts, "t")
    if pa.types.is_time(element.type):
        # From a text to a time there is no cast, to a timestamp there is.
        return pc.binary_join_element_wise("1970-01-01", texts, " ").cast(pa.timestamp("us")).cast(element.type)
    return texts.cast(element.type)
