"""The files of an export, read by Trino itself: dictionaries and differences."""

import random
import shutil
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from paddock.engines.engine import Query
from paddock.exports.writing.options import OutputOptions
from tests.exports.writing_support import place, write
from tests.trino.asking import make_schema, read
from tests.trino.conftest import MakeEngine
from tests.trino.server import TrinoServer

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

ROWS = 20_000
DICE = random.Random(62)


def _whole(bits: int) -> list[int | None]:
    """Of every size, some missing."""
    most = 1 << bits - 1
    return [None if n % 11 == 0 else DICE.randrange(-most, most) >> DICE.randrange(bits) for n in range(ROWS)]


FIRST = datetime(1, 1, 1, tzinfo=UTC).replace(tzinfo=None)
MOMENTS = [None if n % 7 == 0 else FIRST + timedelta(microseconds=DICE.randrange(3 * 10**17)) for n in range(ROWS)]
TABLE = pa.table(
    {
        "n": pa.array(range(ROWS), pa.int64()),
        "long": pa.array(_whole(63), pa.int64()),
        "wider": pa.array(_whole(64), pa.int64()),
        "integer": pa.array(_whole(32), pa.int32()),
        "price": pa.array([Decimal(n * 7919 - 10**6).scaleb(-2) for n in range(ROWS)], pa.decimal128(18, 2)),
        "day": pa.array([date.fromordinal(1 + DICE.randrange(3_000_000)) for _ in range(ROWS)], pa.date32()),
        "moment": pa.array(MOMENTS, pa.timestamp("us")),
        "text": [None if n % 5 == 0 else f"text {n}" for n in range(ROWS)],
    }
)
COLUMNS = "n bigint, long bigint, wider bigint, integer integer, price decimal(18, 2), day date, moment timestamp(6), text varchar"


async def test_trino_reads_every_value_as_it_was_written(
    trino: TrinoServer, engine_of: MakeEngine, tmp_path: Path
) -> None:
    engine = engine_of(session={"hive.timestamp_precision": "MICROSECONDS"})
    name = f"read_{uuid4().hex}"
    with place(tmp_path) as at:
        (part,) = await write(at, TABLE.schema, TABLE.to_batches(), "parquet", OutputOptions(encoding="delta"))
        group = pq.ParquetFile(at.path(part)).metadata.row_group(0)
        folder = trino.warehouse / name
        folder.mkdir(parents=True)
        shutil.copy(at.path(part), folder)
    await make_schema(engine, "hive.s")
    of_files = f"WITH (format = 'PARQUET', external_location = 'local:///{name}')"
    await engine.rows(f"CREATE TABLE hive.s.{name} ({COLUMNS}) {of_files}", Query(""))

    found = await read(engine, f"SELECT * FROM hive.s.{name}")

    delta = {column for column in range(7) if "DELTA_BINARY_PACKED" in group.column(column).encodings}
    assert delta == {0, 1, 3, 4, 5, 6}
    assert found.sort_by("n").equals(TABLE)
