"""Row for row what Trino itself writes: the same query by our export and by CREATE TABLE AS, compared value by value.

Iceberg keeps most types. Hive keeps those that it widens: tinyint, smallint, char. What neither keeps is compared with
Trino's own cast to text, which Iceberg wrote.
"""

import math
import re
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from paddock.engines.engine import Query
from paddock.engines.trino.engine import TrinoEngine
from paddock.engines.trino.types import TYPES
from tests.trino.asking import make_schema
from tests.trino.export_scene import TrinoScene, trino_scene
from tests.trino.server import TrinoServer

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

ROWS = 600
NEVER = "timestamp '1901-01-01 00:00:00"


@dataclass(frozen=True)
class Case:
    type: str
    # Of `n`, from 1 on; every seventh value is NULL.
    sql: str
    writer: str = "iceberg"
    # Text as Trino casts it, and how our value reads so.
    cast: str | None = None
    text: Callable[[Any], str] = str
    # Parquet holds a char without the spaces that belong to it.
    width: int = 0


def at(n: int, digits: int) -> str:
    """A time of day or a point in time in units of its precision, as Trino writes it."""
    seconds, part = divmod(n, 10**digits)
    minutes, second = divmod(seconds, 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours:02}:{minute:02}:{second:02}.{part:0{digits}}"


def point(value: int) -> str:
    day, rest = divmod(value, 86_400 * 10**9)
    date = pa.scalar(day, pa.int32()).cast(pa.date32()).as_py()
    return f"{date} {at(rest, 9)}"


def days(milliseconds: int) -> str:
    sign = "-" if milliseconds < 0 else ""
    day, rest = divmod(abs(milliseconds), 86_400_000)
    return f"{sign}{day} {at(rest, 3)}"


def years(months: int) -> str:
    sign = "-" if months < 0 else ""
    return f"{sign}{abs(months) // 12}-{abs(months) % 12}"


FLOATS = "CASE n WHEN 1 THEN {nan} WHEN 2 THEN {infinity} WHEN 3 THEN -{infinity} WHEN 4 THEN {zero} ELSE {other} END"
CASES = (
    Case("boolean", "n % 2 = 0"),
    Case("integer", "CAST(n * 7158278 - 2147483648 AS integer)"),
    Case("bigint", "9223372036854775807 - n * 9223372036854775"),
    Case(
        "real",
        FLOATS.format(
            nan="CAST(nan() AS real)",
            infinity="CAST(infinity() AS real)",
            zero="real '-0.0'",
            other="CAST(n AS real) / 3",
        ),
    ),
    Case("double", FLOATS.format(nan="nan()", infinity="infinity()", zero="double '-0.0'", other="1E300 / n / 7")),
    Case("decimal(9,2)", "CAST(n * -12345.67 AS decimal(9, 2))"),
    Case("decimal(38,9)", "n + decimal '12345678901234567890123456789.123456789'"),
    Case("varchar", "U&'näme \"\\005C\\0000\\+01F600 ' || CAST(n AS varchar)"),
    Case("varbinary", "sha256(to_utf8(CAST(n AS varchar)))"),
    Case("date", "date_add('day', n * 5000, date '0001-01-01')"),
    Case("time(6)", "CAST(date_add('millisecond', n * 143999, timestamp '1970-01-01 00:00:00.000001') AS time(6))"),
    Case("timestamp(3)", f"date_add('minute', n * 166667, {NEVER}.123')"),
    Case("timestamp(6)", f"date_add('minute', n * 166667, {NEVER}.123456')"),
    Case(
        "timestamp(6) with time zone", f"with_timezone(date_add('minute', n * 166667, {NEVER}.123456'), 'Asia/Tokyo')"
    ),
    Case("uuid", "CAST(md5(to_utf8(CAST(n AS varchar))) AS uuid)"),
    Case("array(integer)", "ARRAY[CAST(n AS integer), NULL]"),
    Case("map(varchar,double)", "MAP(ARRAY['a', CAST(n AS varchar)], ARRAY[1E0 / n, NULL])"),
    Case("row", "CAST(ROW(n, 'x', NULL) AS row(a bigint, b varchar, c date))"),
    Case(
        "array(row)",
        "ARRAY[CAST(ROW(date_add('day', n, date '2000-02-28'), ARRAY[decimal '1.50', NULL])"
        " AS row(x date, y array(decimal(5, 2)))), NULL]",
    ),
    Case("tinyint", "CAST(n % 256 - 128 AS tinyint)", "hive"),
    Case("smallint", "CAST(n * 100 - 32768 AS smallint)", "hive"),
    Case("char(7)", "CAST('c' || CAST(n AS varchar) AS char(7))", "hive", width=7),
    Case("json", "CAST(MAP(ARRAY['b', 'a'], ARRAY[n, NULL]) AS json)", cast="json_format({})"),
    Case("ipaddress", "CAST('2001:db8::' || to_base(n, 16) AS ipaddress)", cast="CAST({} AS varchar)"),
    Case("time(9)", "CAST(time '23:59:59.123456789' AS time(9))", cast="CAST({} AS varchar)", text=lambda v: at(v, 9)),
    Case("time(3) with time zone", "time '01:02:03.456 +05:30'", cast="CAST({} AS varchar)"),
    Case("timestamp(9)", f"date_add('minute', n * 166667, {NEVER}.123456789')", cast="CAST({} AS varchar)", text=point),
    Case(
        "timestamp(9) with time zone",
        f"with_timezone(date_add('minute', n * 166667, {NEVER}.123456789'), 'Asia/Tokyo')",
        cast="CAST(CAST(at_timezone({}, 'UTC') AS timestamp(9)) AS varchar)",
        text=point,
    ),
    Case("interval year to month", "n * interval '1' month", cast="CAST({} AS varchar)", text=years),
    Case("interval day to second", "n * interval '-86399' second", cast="CAST({} AS varchar)", text=days),
)


# What no table of this server holds: `test_types_by_server.py` looks at their values.
NOT_WRITTEN = {"number", "variant", "Geometry", "SphericalGeography", "unknown"} | {
    "HyperLogLog",
    "P4HyperLogLog",
    "SetDigest",
    "tdigest",
    "qdigest",
}


def test_no_type_is_forgotten() -> None:
    compared = {re.sub(r"\([^)]*\)", "", case.type) for case in CASES}
    assert compared == {known.raw for known in TYPES} - NOT_WRITTEN


def query(cases: Sequence[Case], *, written: bool) -> str:
    columns = []
    for number, case in enumerate(cases):
        sql = case.cast.format(f"({case.sql})") if written and case.cast else case.sql
        columns.append(f"CASE WHEN n % 7 <> 0 THEN {sql} END AS c{number}")
    return f"SELECT n, {', '.join(columns)} FROM UNNEST(sequence(1, {ROWS})) AS s(n)"


async def written_by_trino(engine: TrinoEngine, warehouse: Path, catalog: str, sql: str) -> pa.Table:
    """What its own files hold, read without it."""
    name = f"{catalog}.written.t{uuid4().hex}"
    await make_schema(engine, f"{catalog}.written")
    await engine.rows(f"CREATE TABLE {name} WITH (format = 'PARQUET') AS {sql}", Query(""))
    paths = [str(row[0]) for row in await engine.rows(f'SELECT DISTINCT "$path" FROM {name}', Query(""))]
    tables = [pq.read_table(warehouse / path.removeprefix("local:///")) for path in paths]
    await engine.rows(f"DROP TABLE {name}", Query(""))
    return pa.concat_tables(tables)


def plain(value: Any) -> Any:
    """Equal for equal values: NaN too, and -0 is not 0."""
    match value:
        case float():
            return repr(math.copysign(0, value)) if value == 0 else repr(value)
        case bytes() if len(value) == 16:
            return UUID(bytes=value)
        case dict():
            return {name: plain(one) for name, one in value.items()}
        case list() | tuple():
            return [plain(one) for one in value]
    return value


def values(table: pa.Table, name: str) -> list[Any]:
    column = table.sort_by("n")[name]
    kind = column.type
    if pa.types.is_map(kind):
        return [None if one is None else sorted(map(repr, plain(one))) for one in column.to_pylist()]
    if (pa.types.is_timestamp(kind) or pa.types.is_time(kind)) and kind.unit == "ns":
        column = column.cast(pa.int64())
    return [plain(one) for one in column.to_pylist()]


def compare(cases: Sequence[Case], ours: pa.Table, theirs: pa.Table) -> list[str]:
    assert ours.num_rows == theirs.num_rows == ROWS
    wrong = []
    for number, case in enumerate(cases):
        found, wanted = values(ours, f"c{number}"), values(theirs, f"c{number}")
        if case.cast is not None:
            found = [None if one is None else case.text(one) for one in found]
        if case.width:
            wanted = [None if one is None else one.ljust(case.width) for one in wanted]
        if found != wanted:
            at = next(n for n in range(ROWS) if found[n] != wanted[n])
            wrong.append(f"{case.type}: row {at + 1} is {found[at]!r} here and {wanted[at]!r} in Trino's file")
        assert sum(one is None for one in wanted) == ROWS // 7, case.type
    return wrong


@pytest.fixture
async def scene(trino: TrinoServer, tmp_path: Path, dsn: str) -> AsyncIterator[TrinoScene]:
    async with trino_scene(trino, tmp_path, dsn) as opened, opened.working():
        yield opened


@pytest.mark.parametrize("engine", ["warehouse", "paged"])
async def test_every_type_has_the_values_that_trino_writes(scene: TrinoScene, engine: str) -> None:
    wrong = []
    async with scene.admin() as admin:
        for writer in ("iceberg", "hive"):
            cases = [case for case in CASES if case.writer == writer]
            ours = await scene.rows(await scene.completed(await scene.ask(query(cases, written=False), engine=engine)))
            theirs = await written_by_trino(admin, scene.trino.warehouse, writer, query(cases, written=True))
            wrong += compare(cases, ours, theirs)

    assert wrong == []
