"""Tables nobody would think of: what comes back is what was there."""

import asyncio
import csv
import io
import json
import re
import struct
from dataclasses import dataclass
from datetime import UTC, timedelta
from decimal import Decimal
from typing import Any

import asyncpg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from paddock.dumps.postgres.copying import with_crlf
from paddock.dumps.postgres.names import name_of
from paddock.engines.children.quoting import quoted
from tests.dumps.postgres.conftest import Connection, Place, Places
from tests.dumps.postgres.dumping import dumped
from tests.examples import examples

# What PostgreSQL's text can hold: no NUL, no lone surrogates.
TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=12) | st.sampled_from(
    [
        "",
        "\\N",
        "\\.",
        '"',
        '""',
        "\r\n",
        "\n",
        ",",
        "'",
        "=1+1",
        "\\x00",
        "\n\\.\n\n\n--\n-- ",
        "COPY public.t (a) FROM stdin;\n",
    ]
)
NAME = st.text(
    st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1, max_size=10
) | st.sampled_from(["r", "select", "a.b", '"', "a\nb", "$$", "--", "%s", "\\", "*", "A", "a", "pg_temp", "tableoid_"])
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "text": TEXT,
    "bytea": st.binary(max_size=12),
    "int8": st.integers(-(2**63), 2**63 - 1),
    "float8": st.floats(),
    "bool": st.booleans(),
    "numeric": st.decimals(-(10**20), 10**20, allow_nan=False, places=5) | st.just(Decimal("NaN")),
    "json": st.sampled_from(['{"a":\n 1}', "[]", '"x\\n"', "null", " 1.0\r\n"]),
    "text[]": st.lists(TEXT | st.none(), max_size=3),
    "int2[]": st.lists(st.integers(-(2**15), 2**15 - 1) | st.none(), max_size=3),
    "jsonb": st.sampled_from(['{"a": [1.50, null]}', "[]", '"x\\n"', "null", "1e5"]),
    "float4": st.floats(width=32),
    "date": st.dates(),
    "time": st.times(),
    "timestamp": st.datetimes(),
    "timestamptz": st.datetimes(timezones=st.just(UTC)),
    "interval": st.timedeltas(min_value=timedelta(days=-100_000), max_value=timedelta(days=100_000)),
    "uuid": st.uuids(),
    "inet": st.ip_addresses(),
    "varbit": st.text("01", max_size=12).map(lambda bits: asyncpg.BitString(bits)),  # type: ignore[arg-type]  # the stubs say bytes
    "int4range": st.builds(
        lambda low, length: asyncpg.Range(low, low + length), st.integers(-100, 100), st.integers(0, 9)
    ),
}
# JSON has them as text, which is read back by the server.
AS_TEXT = ("date", "time", "timestamp", "timestamptz", "interval", "uuid", "inet", "varbit", "int4range")


@dataclass(frozen=True)
class Made:
    schema: str
    table: str
    types: dict[str, str]
    rows: list[list[Any]]

    @property
    def name(self) -> str:
        return name_of(self.schema, self.table)

    @property
    def full(self) -> str:
        return f"{quoted(self.schema)}.{quoted(self.table)}"


@st.composite
def made(draw: st.DrawFn) -> Made:
    names = draw(st.lists(NAME, min_size=1, max_size=4, unique=True))
    types = {name: draw(st.sampled_from(sorted(VALUES))) for name in names}
    row = st.tuples(*(st.none() | VALUES[type] for type in types.values())).map(list)
    schema = draw(NAME.map(lambda name: "x" + name) | st.just("public"))
    return Made(schema, draw(NAME), types, draw(st.lists(row, max_size=5)))


TABLES = st.lists(made(), min_size=1, max_size=8, unique_by=lambda table: (table.schema, table.table))


async def check(source: Place, target: Place, tables: list[Made]) -> None:
    original, loaded = await asyncpg.connect(source.dsn), await asyncpg.connect(target.dsn)
    try:
        for connection in (original, loaded):
            await empty(connection, tables)
        for table in tables:
            columns = ", ".join(f"{quoted(column)} {type}" for column, type in table.types.items())
            await original.execute(f"CREATE TABLE {table.full} ({columns})")
            await original.copy_records_to_table(table.table, schema_name=table.schema, records=table.rows)
        await check_sql(source, target, tables)
        await compare(original, loaded, tables)
        await check_json(source, original, tables)
        await check_csv(source, loaded, tables)
        await compare(original, loaded, tables)
    finally:
        await original.close()
        await loaded.close()


async def empty(connection: Connection, tables: list[Made]) -> None:
    for row in await connection.fetch("SELECT nspname FROM pg_namespace WHERE nspname LIKE 'x%' OR nspname = 'public'"):
        await connection.execute(f"DROP SCHEMA {quoted(row['nspname'])} CASCADE")
    for schema in {"public", *(table.schema for table in tables)}:
        await connection.execute(f"CREATE SCHEMA {quoted(schema)}")


async def compare(original: Connection, loaded: Connection, tables: list[Made]) -> None:
    for table in tables:
        query = f"SELECT (t.*)::text FROM {table.full} AS t"
        assert await loaded.fetch(query) == await original.fetch(query)


async def check_sql(source: Place, target: Place, tables: list[Made]) -> None:
    """Each table is named, so that its name has to survive that too."""
    whole = await dumped(source.settings(), tables=[table.name for table in tables])
    await target.load(whole.data)
    assert whole.counts == {table.name: len(table.rows) for table in tables if table.rows}


async def check_json(source: Place, original: Connection, tables: list[Made]) -> None:
    whole = await dumped(source.settings(), "json")
    for table in tables:
        found = json.loads(b"[" + whole.tables[table.name] + b"]")
        assert all(list(row) == list(table.types) for row in found)
        same(table.types, table.rows, [list(row.values()) for row in found])
        for column, type in table.types.items():
            if type in AS_TEXT:
                read = f"SELECT array_agg(t::text::{type} ORDER BY n) FROM unnest($1::text[]) WITH ORDINALITY u(t, n)"
                stored = await original.fetchval(f"SELECT array_agg({quoted(column)}) FROM {table.full}")
                assert await original.fetchval(read, [row[column] for row in found]) == stored


async def check_csv(source: Place, loaded: Connection, tables: list[Made]) -> None:
    whole = await dumped(source.settings(), "csv")
    for table in tables:
        data = whole.tables[table.name]
        assert len(list(csv.reader(io.StringIO(data.decode(), newline="")))) == len(table.rows)
        await loaded.execute(f"TRUNCATE {table.full}")
        await loaded.copy_to_table(
            table.table,
            schema_name=table.schema,
            source=io.BytesIO(data),
            format="csv",
            null=r"\N" if len(table.types) == 1 else "",
        )


def same(types: dict[str, str], rows: list[list[Any]], found: list[list[Any]]) -> None:
    assert len(rows) == len(found)
    for given_row, found_row in zip(rows, found, strict=True):
        for type, value, read in zip(types.values(), given_row, found_row, strict=True):
            if value is None:
                assert read is None
            elif type == "bytea":
                assert read == {"$hex": value.hex()}
            elif type == "float8":
                assert read == value if isinstance(read, float | int) else float(read) == value or value != value
            elif type == "numeric":
                assert value.is_nan() or float(read) == float(value)
            elif type in ("json", "jsonb"):
                assert read == json.loads(value)
            elif type == "float4":
                (nearest,) = struct.unpack("f", struct.pack("f", float(read)))
                assert value != value or nearest == value
            elif type in AS_TEXT:
                assert isinstance(read, str)
            else:
                assert read == value


@pytest.mark.slow
@pytest.mark.examples
def test_any_table(places_outside: tuple[Place, Place]) -> None:
    source, target = places_outside

    @settings(max_examples=examples(25), deadline=None, suppress_health_check=list(HealthCheck))
    @given(TABLES)
    def checked(tables: list[Made]) -> None:
        asyncio.run(check(source, target, tables))

    checked()


@pytest.fixture
def places_outside(dumped_server: Any, tmp_path: Any) -> Any:
    """For hypothesis, which brings no loop of its own."""
    places = Places(dumped_server, tmp_path)
    yield asyncio.run(places.make()), asyncio.run(places.make())
    asyncio.run(places.drop())


@given(st.lists(st.lists(TEXT, min_size=2, max_size=3), max_size=6))
def test_line_ends_of_rows_and_no_others(rows: list[list[str]]) -> None:
    def cell(text: str) -> str:
        return '"' + text.replace('"', '""') + '"' if re.search(r'[",\n\r]', text) else text

    written = "".join(",".join(map(cell, row)) + "\n" for row in rows)

    read = csv.reader(io.StringIO(with_crlf(written.encode()).decode(), newline=""))

    assert list(read) == rows
    assert len(with_crlf(written.encode())) - len(written.encode()) == len(rows)
