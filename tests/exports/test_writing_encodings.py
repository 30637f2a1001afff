"""Which encodings stand in a file: those that the readers of our files were seen to read exactly."""

from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Literal

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from paddock.exports.writing.options import OutputOptions
from paddock.storage.drafts import DraftFile
from tests.exports.writing_support import Place, place, read_parquet, write

ROWS = 5_000
PLAIN, DELTA, SPLIT, LENGTHS = "PLAIN", "DELTA_BINARY_PACKED", "BYTE_STREAM_SPLIT", "DELTA_LENGTH_BYTE_ARRAY"
AS_DELTA = OutputOptions(encoding="delta")
SMALL = OutputOptions(encoding="delta", row_group_rows=1_000)
SAFE = 1 << 62

# No value twice: nothing gets a dictionary.
TABLE = pa.table(
    {
        "long": pa.array(range(ROWS), pa.int64()),
        "integer": pa.array(range(ROWS), pa.int32()),
        "day": pa.array(range(ROWS), pa.int32()).view(pa.date32()),
        "moment": pa.array(range(ROWS), pa.int64()).view(pa.timestamp("us", "UTC")),
        "price": pa.array([Decimal(n) for n in range(ROWS)], pa.decimal128(18, 2)),
        "exact": pa.array([Decimal(n) for n in range(ROWS)], pa.decimal128(38, 2)),
        "short": pa.array(range(ROWS), pa.int16()),
        "unsigned": pa.array(range(ROWS), pa.uint64()),
        "real": pa.array([n / 7 for n in range(ROWS)], pa.float64()),
        "text": [f"text {n}" for n in range(ROWS)],
        "list": pa.array([[n] for n in range(ROWS)], pa.list_(pa.int64())),
    }
)


def _encodings(at: Place, part: DraftFile) -> dict[str, str]:
    group = pq.ParquetFile(at.path(part)).metadata.row_group(0)
    found = {}
    for number in range(group.num_columns):
        column = group.column(number)
        (found[column.path_in_schema.partition(".")[0]],) = set(column.encodings) - {"RLE"}
    return found


@pytest.mark.parametrize("encoding", ["plain", "delta", "compact"])
async def test_each_encoding_is_used_where_it_was_seen_to_be_read(
    tmp_path: Path, encoding: Literal["plain", "delta", "compact"]
) -> None:
    delta = PLAIN if encoding == "plain" else DELTA
    compact = encoding == "compact"
    with place(tmp_path) as at:
        (part,) = await write(at, TABLE.schema, TABLE.to_batches(), "parquet", OutputOptions(encoding=encoding))
        found = _encodings(at, part)
        assert read_parquet(at, [part]).equals(TABLE)
        assert duckdb.sql(f"FROM '{at.path(part)}'").to_arrow_table().column("exact").equals(TABLE["exact"])

    assert found == {
        **dict.fromkeys(("long", "integer", "day", "moment", "price"), delta),
        **dict.fromkeys(("exact", "short", "unsigned", "list"), PLAIN),
        "real": SPLIT if compact else PLAIN,
        "text": LENGTHS if compact else PLAIN,
    }


async def test_the_default_is_plain_and_one_file_whatever_the_numbers_are(tmp_path: Path) -> None:
    table = pa.table({"n": pa.array([*range(2_500), (1 << 63) - 1], pa.int64())})
    with place(tmp_path) as at:
        (part,) = await write(at, table.schema, table.to_batches(), "parquet", OutputOptions(row_group_rows=1_000))
        assert _encodings(at, part) == {"n": PLAIN}
        assert read_parquet(at, [part]).equals(table)


@pytest.mark.parametrize("type", [pa.int64(), pa.timestamp("us"), pa.duration("us")])
@pytest.mark.parametrize(("value", "encoding"), [(SAFE - 1, DELTA), (SAFE, PLAIN), (-SAFE, DELTA), (-SAFE - 1, PLAIN)])
async def test_numbers_that_graph_engines_would_misread_are_written_plain(
    tmp_path: Path, type: pa.DataType, value: int, encoding: str
) -> None:
    table = pa.table({"n": pa.array([None, 1, value], pa.int64()).view(type)})
    with place(tmp_path) as at:
        (part,) = await write(at, table.schema, table.to_batches(), "parquet", AS_DELTA)
        assert _encodings(at, part)["n"] == encoding
        assert read_parquet(at, [part]).equals(table)


async def test_a_number_too_large_for_the_open_file_begins_another(tmp_path: Path) -> None:
    numbers = [*range(2_500), SAFE, *range(2_500, 4_000)]
    table = pa.table({"n": pa.array(numbers, pa.int64())})
    with place(tmp_path) as at:
        parts = await write(at, table.schema, table.to_batches(), "parquet", SMALL)
        assert [(part.rows, _encodings(at, part)["n"]) for part in parts] == [(2_000, DELTA), (2_001, PLAIN)]
        assert read_parquet(at, parts).equals(table)


async def test_a_column_named_as_a_field_of_another_leaves_that_one_alone(tmp_path: Path) -> None:
    table = pa.table({"a.b": pa.array(range(ROWS), pa.int64()), "a": [{"b": f"text {n}"} for n in range(ROWS)]})
    with place(tmp_path) as at:
        (part,) = await write(at, table.schema, table.to_batches(), "parquet", AS_DELTA)
        assert read_parquet(at, [part]).equals(table)


async def test_days_and_times_far_away_are_exact(tmp_path: Path) -> None:
    days = [date.min, date(1582, 10, 4), None, date(1970, 1, 1), date.max]
    moments = [datetime.min, None, datetime(1969, 12, 31, 23, 59, 59, 999_999), datetime.max, datetime(2026, 1, 1)]  # noqa: DTZ001, DTZ901  without a zone, as the column is
    table = pa.table({"day": pa.array(days, pa.date32()), "moment": pa.array(moments, pa.timestamp("us"))})
    with place(tmp_path) as at:
        (part,) = await write(at, table.schema, table.to_batches(), "parquet", AS_DELTA)
        assert set(_encodings(at, part).values()) == {DELTA}
        assert duckdb.sql(f"FROM '{at.path(part)}'").fetchall() == list(zip(days, moments, strict=True))
