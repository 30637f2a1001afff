"""Results as an Arrow stream. Its last batch has no rows and carries row_count, execution_time_ms and truncated.

Columns of plain values come from the engine as Arrow, which is fast but always takes the whole result, so only where
that is within the limits. Everything else goes by Python's values: lists, maps and structs too, because one of the
engines gives wrong arrays for nested ones. What Arrow has no type for (nodes, relationships, paths) is JSON text, and its
field says so: {"paddock": "json"}. Integers of 128 bits, which every sum of integers has, are decimals without places, and
their field says {"paddock": "integer"}.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa

from paddock.declared_types import Type
from paddock.graphs.children.result_types import read_type
from paddock.graphs.children.values import Converters, encode

MEDIA_TYPE = "application/vnd.apache.arrow.stream"
BATCH_ROWS = 65_536
# By Python's values: fewer at a time, because they take more memory.
SLOW_ROWS = 4_096
JSON_MARK = {"paddock": "json"}
INTEGER_MARK = {"paddock": "integer"}

SCALARS: dict[str, pa.DataType] = {
    "STRING": pa.string(),
    "BOOL": pa.bool_(),
    "INT8": pa.int8(),
    "INT16": pa.int16(),
    "INT32": pa.int32(),
    "INT64": pa.int64(),
    "SERIAL": pa.int64(),
    "UINT8": pa.uint8(),
    "UINT16": pa.uint16(),
    "UINT32": pa.uint32(),
    "UINT64": pa.uint64(),
    "INT128": pa.decimal128(38, 0),
    "FLOAT": pa.float32(),
    "DOUBLE": pa.float64(),
    "DATE": pa.date32(),
    "TIMESTAMP": pa.timestamp("us"),
    "TIMESTAMP_TZ": pa.timestamp("us", "UTC"),
    "UUID": pa.uuid(),
    "BLOB": pa.binary(),
    "INTERVAL": pa.duration("us"),
}
# Those that the engines' own Arrow gives as the types above, and right: their negative decimals are not.
DIRECT = frozenset(SCALARS) - {"INT128", "INTERVAL", "SERIAL", "TIMESTAMP_TZ"}


class ArrowPieces:
    media_type = MEDIA_TYPE

    def __init__(
        self,
        result: Any,
        converters: Converters,
        rows: int,
        size: int,
        check: Callable[[], None],
        milliseconds: float,
    ) -> None:
        self._result = result
        self._converters = converters
        self._rows = rows
        self._size = size
        self._check = check
        self._milliseconds = milliseconds
        self.rows_found = int(result.get_num_tuples())
        self.row_count = 0
        self.truncated = False

    def __iter__(self) -> Iterator[bytes]:
        types = list(map(read_type, self._result.get_column_data_types()))
        schema = pa.schema(map(field_of, self._result.get_column_names(), types))
        whole = self.rows_found <= self._rows and all(type.name in DIRECT for type in types)
        stream, size = _Stream(schema), 0
        for batch in self._whole(schema) if whole else self._by_values(schema, types):
            self._check()
            size += batch.nbytes
            if size > self._size:
                self.truncated = True
                break
            self.row_count += batch.num_rows
            yield stream.written(batch)
        counted = {
            "row_count": str(self.row_count),
            "execution_time_ms": str(self._milliseconds),
            "truncated": json.dumps(self.truncated),
        }
        # Arrow makes no empty array with an extension type inside of another; from our parts it does.
        empty = [array_of([], type, self._converters) for type in types]
        yield stream.ended(pa.RecordBatch.from_arrays(empty, schema=schema), counted)

    def _whole(self, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        for batch in self._result.get_as_arrow(BATCH_ROWS).to_batches():
            yield pa.RecordBatch.from_arrays(batch.columns, schema=schema)

    def _by_values(self, schema: pa.Schema, types: Sequence[Type]) -> Iterator[pa.RecordBatch]:
        left = self._rows
        while self._result.has_next():
            if left == 0:
                self.truncated = True
                return
            rows = self._result.get_n(min(SLOW_ROWS, left))
            left -= len(rows)
            columns = [
                array_of([row[place] for row in rows], type, self._converters) for place, type in enumerate(types)
            ]
            yield pa.RecordBatch.from_arrays(columns, schema=schema)


class _Stream:
    """Arrow's stream, taken away as it is written."""

    def __init__(self, schema: pa.Schema) -> None:
        self._sink = _Sink()
        self._writer = pa.ipc.new_stream(pa.PythonFile(self._sink, mode="w"), schema)

    def written(self, batch: pa.RecordBatch) -> bytes:
        self._writer.write_batch(batch)
        return self._sink.taken()

    def ended(self, empty: pa.RecordBatch, metadata: dict[str, str]) -> bytes:
        self._writer.write_batch(empty, custom_metadata=metadata)
        self._writer.close()
        return self._sink.taken()


class _Sink:
    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self.closed = False

    def write(self, data: Any) -> int:
        self._parts.append(bytes(data))
        return len(self._parts[-1])

    def flush(self) -> None: ...

    def close(self) -> None:
        self.closed = True

    def taken(self) -> bytes:
        parts, self._parts = self._parts, []
        return b"".join(parts)


def field_of(name: str, type: Type) -> pa.Field:
    arrow = arrow_of(type)
    if arrow is None:
        return pa.field(name, pa.string(), metadata=JSON_MARK)
    return pa.field(name, arrow, metadata=INTEGER_MARK if type.name == "INT128" else None)


def arrow_of(type: Type) -> pa.DataType | None:
    """None: there is no such type in Arrow."""
    if type.name == "DECIMAL":
        return pa.decimal128(type.precision, type.scale)
    inner = [arrow_of(one) for one in type.inner]
    if any(one is None for one in inner):
        return None
    if type.name == "LIST":
        return pa.list_(inner[0])
    if type.name == "MAP":
        return pa.map_(inner[0], inner[1])
    if type.name == "STRUCT" and type.fields:
        return pa.struct([pa.field(name, one) for name, one in zip(type.fields, inner, strict=True)])
    return SCALARS.get(type.name)


def array_of(values: Sequence[Any], type: Type, converters: Converters) -> pa.Array:
    if arrow_of(type) is None:
        convert = converters.of(type) or converters.by_value
        return pa.array([None if value is None else encode(convert(value)).decode() for value in values], pa.string())
    return _array(values, type)


def _array(values: Sequence[Any], type: Type) -> pa.Array:
    """Built from its parts, because Arrow makes no UUIDs inside of other types by itself."""
    if type.name == "LIST":
        offsets = _offsets(values)
        flat = [one for value in values if value is not None for one in value]
        return pa.ListArray.from_arrays(offsets, _array(flat, type.inner[0]), mask=_mask(values))
    if type.name == "MAP":
        present = [value for value in values if value is not None]
        keys = _array([key for value in present for key in value], type.inner[0])
        items = _array([item for value in present for item in value.values()], type.inner[1])
        return pa.MapArray.from_arrays(_offsets(values), keys, items, mask=_mask(values))
    if type.name == "STRUCT":
        columns = [
            _array([None if value is None else value.get(name) for value in values], inner)
            for name, inner in zip(type.fields, type.inner, strict=True)
        ]
        fields = [pa.field(name, column.type) for name, column in zip(type.fields, columns, strict=True)]
        return pa.StructArray.from_arrays(columns, fields=fields, mask=_mask(values))
    if type.name == "UUID":
        storage = pa.array([None if value is None else value.bytes for value in values], pa.binary(16))
        return pa.ExtensionArray.from_storage(pa.uuid(), storage)
    return pa.array(values, arrow_of(type))


def _offsets(values: Sequence[Any]) -> pa.Array:
    offsets, end = [0], 0
    for value in values:
        end += 0 if value is None else len(value)
        offsets.append(end)
    return pa.array(offsets, pa.int32())


def _mask(values: Sequence[Any]) -> pa.Array:
    return pa.array([value is None for value in values], pa.bool_())
