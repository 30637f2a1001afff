"""Any table that Arrow can express comes back from the files as it was: schema and values, for every split into batches."""

import base64
import csv
import io
from collections.abc import Callable, Iterator
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import orjson
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from paddock.exports.writing.options import OutputOptions
from tests.examples import examples
from tests.exports.any_table import EPOCH, any_types, in_files, same, tables
from tests.exports.writing_support import Place, place, read_parquet, text_of, write

NULL = "\\N"
MANY = settings(max_examples=examples(100), deadline=None, suppress_health_check=list(HealthCheck))
pytestmark = [pytest.mark.slow, pytest.mark.examples]


@st.composite
def splits(draw: st.DrawFn, table: pa.Table) -> list[pa.RecordBatch]:
    """The same rows in batches, slices of larger arrays and empty ones among them."""
    cuts = sorted(draw(st.lists(st.integers(0, table.num_rows), max_size=4)))
    whole = table.combine_chunks()
    bounds = zip([0, *cuts], [*cuts, table.num_rows], strict=True)
    return [
        pa.RecordBatch.from_arrays([_chunk(column) for column in whole.slice(a, b - a).columns], schema=table.schema)
        for a, b in bounds
    ]


def _chunk(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks else pa.nulls(0, column.type)


@pytest.fixture(scope="module")
def at() -> Iterator[Place]:
    with place() as made:
        yield made


def options(**fields: Any) -> OutputOptions:
    # Smaller than anybody may ask for, so that thirty rows make several row groups.
    return OutputOptions().model_copy(update={"row_group_rows": 7, **fields})


@MANY
@given(st.data(), tables(any_types), st.sampled_from(["plain", "delta", "compact"]), st.sampled_from([1, 1 << 20]))
async def test_parquet_reads_back_equal(
    at: Place, data: st.DataObject, table: pa.Table, encoding: str, file_bytes: int
) -> None:
    at.begin()
    chosen = options(encoding=encoding, file_bytes=file_bytes)
    parts = await write(at, table.schema, data.draw(splits(table)), "parquet", chosen)
    found = read_parquet(at, parts)

    assert found.schema.types == [in_files(type) for type in table.schema.types]
    assert found.schema.names == table.schema.names
    assert same(found, table)


@MANY
@given(st.data(), tables(), st.sampled_from(["none", "gzip", "zstd"]))
async def test_json_lines_read_back_equal(at: Place, data: st.DataObject, table: pa.Table, compression: str) -> None:
    at.begin()
    (part,) = await write(at, table.schema, data.draw(splits(table)), "jsonl", options(compression=compression))
    text = text_of(at, part, None if compression == "none" else compression)

    rows = [orjson.loads(line) for line in text.split("\n")[:-1]]
    assert text == "" or text.endswith("\n")
    assert [list(row) for row in rows] == [table.schema.names] * table.num_rows
    for number, column in enumerate(table.columns):
        back = from_json(column.type)
        assert_same_values([back(row[f"c{number}"]) for row in rows], column)


@MANY
@given(st.data(), tables(), st.sampled_from([",", ";", "\t", "|"]), st.sampled_from(["none", "gzip", "zstd"]))
async def test_csv_reads_back_equal(
    at: Place, data: st.DataObject, table: pa.Table, delimiter: str, compression: str
) -> None:
    # Python's reader does not tell quoted from bare, so no value may look like NULL here.
    assume(all(NULL not in column.to_pylist() for column in table.columns if column.type == pa.string()))
    at.begin()
    chosen = options(delimiter=delimiter, null=NULL, compression=compression)
    (part,) = await write(at, table.schema, data.draw(splits(table)), "csv", chosen)
    text = text_of(at, part, None if compression == "none" else compression)

    header, *rows = list(csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True))
    assert header == table.schema.names
    for number, column in enumerate(table.columns):
        back = from_csv(column.type)
        assert_same_values([None if row[number] == NULL else back(row[number]) for row in rows], column)


def from_json(type: pa.DataType) -> Callable[[Any], Any]:
    """An independent way back: from what a JSON reader gives to what Arrow's own arrays are made of."""
    read = _from_json(type)
    return lambda value: None if value is None else read(value)


def _from_json(type: pa.DataType) -> Callable[[Any], Any]:
    if pa.types.is_struct(type):
        fields = {field.name: from_json(field.type) for field in type}
        return lambda value: {name: back(value[name]) for name, back in fields.items()}
    if pa.types.is_map(type):
        key = int if pa.types.is_integer(type.key_type) else str
        item = from_json(type.item_type)
        return lambda value: [(key(name), item(of)) for name, of in value.items()]
    if pa.types.is_list(type):
        element = from_json(type.value_type)
        return lambda value: [element(of) for of in value]
    if pa.types.is_floating(type):
        return float
    if pa.types.is_timestamp(type):
        return lambda value: instant(value.replace("T", " ", 1), type)
    if pa.types.is_boolean(type) or pa.types.is_integer(type):
        return lambda value: value
    return from_csv(type)


def from_csv(type: pa.DataType) -> Callable[[str], Any]:
    if pa.types.is_nested(type):
        return lambda value: from_json(type)(orjson.loads(value))
    if pa.types.is_boolean(type):
        return {"true": True, "false": False}.__getitem__
    if pa.types.is_integer(type):
        return int
    if pa.types.is_floating(type):
        return float
    if pa.types.is_decimal(type):
        return plain_decimal
    if pa.types.is_date(type):
        return lambda value: (date.fromisoformat(value) - EPOCH).days
    if pa.types.is_timestamp(type):
        return lambda value: instant(value, type)
    if pa.types.is_time(type):
        return lambda value: micros(
            timedelta(
                hours=(t := time.fromisoformat(value)).hour,
                minutes=t.minute,
                seconds=t.second,
                microseconds=t.microsecond,
            )
        )
    if pa.types.is_binary(type) or pa.types.is_fixed_size_binary(type):
        return lambda value: base64.b64decode(value, validate=True)
    return lambda value: value


def plain_decimal(value: str) -> Decimal:
    assert "E" not in value
    return Decimal(value)


def instant(value: str, type: pa.DataType) -> int:
    """Ticks. Python's datetime has no nanoseconds: the last three digits are added by hand."""
    assert value.endswith("Z") == (type.tz is not None)
    value = value.removesuffix("Z")
    whole, fraction = value.split(".")
    assert len(fraction) == {"us": 6, "ns": 9}[type.unit]
    since = datetime.fromisoformat(whole) - datetime(1970, 1, 1)  # noqa: DTZ001 -- both without zone, as the text
    return int(micros(since) // 1_000_000 * 10 ** len(fraction)) + int(fraction)


def micros(delta: timedelta) -> int:
    return delta // timedelta(microseconds=1)


def assert_same_values(found: list[Any], column: pa.ChunkedArray) -> None:
    assert same(pa.table({"c": pa.chunked_array([pa.array(found, column.type)])}), pa.table({"c": column}))
