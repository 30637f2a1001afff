"""Every type and every kind of object: what stock psql loads into an empty database is the same database."""

import csv
import io
import json
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from paddock.dumps.model import DumpOptions
from paddock.dumps.postgres.source import PostgresSource
from paddock.jobs.errors import PermanentRunnerError
from tests.dumps.postgres.conftest import Connection, Place, Places
from tests.dumps.postgres.dumping import Whole, dumped

SCRIPT = (Path(__file__).parent / "everything.sql").read_bytes()
# Whatever has an identity in the catalogs, and how it describes itself.
OBJECTS = r"""
SELECT a.type, a.identity, pg_catalog.obj_description(d.objid, d.classid::regclass::text::name) AS comment
FROM (SELECT DISTINCT classid, objid FROM pg_depend WHERE objid >= 16384
      UNION SELECT 'pg_largeobject'::regclass, oid FROM pg_largeobject_metadata) d,
     LATERAL pg_identify_object(d.classid, d.objid, 0) a
WHERE a.identity !~ '^pg_toast\.|RI_ConstraintTrigger' AND a.type NOT IN ('toast table', 'default value')
ORDER BY 1, 2
"""
TABLES = """
SELECT c.oid::regclass::text AS name, c.relkind = 'S' AS sequence FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'm', 'S') AND c.relispopulated AND n.nspname !~ '^pg_' AND n.nspname <> 'information_schema'
ORDER BY 1
"""


async def make(place: Place) -> None:
    await place.run("psql", "-X", "-q", "-v", "ON_ERROR_STOP=1", "-v", f"role=of_{place.name}", stdin=SCRIPT)


async def contents(place: Place) -> tuple[list[Any], dict[str, list[str]]]:
    connection = await asyncpg.connect(place.dsn)
    try:
        await connection.execute("SET extra_float_digits = 3; SET search_path = ''")
        objects = [tuple(row) for row in await connection.fetch(OBJECTS.replace("name)", "pg_catalog.name)"))]
        rows = {}
        for table, sequence in await connection.fetch(TABLES):
            row = "(last_value, is_called)" if sequence else "(t.*)"
            found = await connection.fetch(f"SELECT {row}::text AS row FROM ONLY {table} AS t")
            rows[table] = sorted(row["row"] for row in found)
        large = await connection.fetch(
            "SELECT oid::text || ' ' || lo_get(oid)::text AS row FROM pg_largeobject_metadata"
        )
        rows["large objects"] = sorted(row["row"] for row in large)
        return objects, rows
    finally:
        await connection.close()


@pytest.fixture
async def full(places: Places) -> Place:
    place = await places.make()
    await make(place)
    return place


async def test_sql(full: Place, target: Place) -> None:
    whole = await dumped(full.settings())

    await target.load(whole.data)

    objects, rows = await contents(full)
    loaded_objects, loaded_rows = await contents(target)
    assert loaded_objects == objects
    assert loaded_rows == rows
    assert len(objects) > 150
    assert (await dumped(target.settings())).data == whole.data
    assert_counts(whole, rows)


async def test_custom(full: Place, target: Place) -> None:
    whole = await dumped(full.settings(), "custom")

    await target.run("pg_restore", "--dbname", target.name, "--exit-on-error", stdin=whole.data)

    assert await contents(target) == await contents(full)
    assert_counts(whole, (await contents(full))[1])


def assert_counts(whole: Whole, rows: dict[str, list[str]]) -> None:
    assert whole.counts["every_type"] == len(rows["public.every_type"]) == 4
    assert whole.counts["no_columns"] == 2
    assert whole.counts["a.b"] == 2
    assert whole.counts['"a.b"'] == 1
    assert whole.counts['Odd schema."Odd ""table"".x; DROP"'] == 2
    assert whole.counts["measured_2026_low"] == 1
    assert whole.counts["child"] == 1
    assert "fake" not in whole.counts
    assert "measured" not in whole.counts


async def test_schema_and_data_apart_are_the_whole(full: Place, target: Place) -> None:
    schema = await dumped(full.settings(), schema_only=True)
    data = await dumped(full.settings(), data_only=True)

    await target.load(schema.data)
    assert not schema.counts
    # As pg_dump has it: tables that refer to each other are loaded without their triggers.
    await target.load(b"SET session_replication_role = replica;\n" + data.data)

    objects, rows = await contents(full)
    loaded_objects, loaded_rows = await contents(target)
    assert loaded_objects == objects
    assert {name: found for name, found in loaded_rows.items() if name != "public.counted"} == {
        name: found for name, found in rows.items() if name != "public.counted"
    }


async def test_no_owner(full: Place) -> None:
    assert f"OWNER TO of_{full.name}".encode() in (await dumped(full.settings())).data
    assert b"OWNER TO" not in (await dumped(full.settings(), no_owner=True)).data


async def test_json_has_every_value(full: Place) -> None:
    whole = await dumped(full.settings(), "json")

    tables = {name: json.loads(b"[" + rows + b"]", parse_float=str) for name, rows in whole.tables.items()}
    first, second, third, fourth = tables["every_type"]
    assert first["big"] == -9223372036854775808
    assert first["num"] == "123456789012345678901234567890.000000001000"
    assert (first["r"], first["d"]) == ("1e-45", "5e-324")
    assert (second["num"], second["r"], second["d"]) == ("NaN", "NaN", "-Infinity")
    assert (fourth["num"], fourth["r"], fourth["d"]) == ("-Infinity", -0, -0)
    assert first["t"] == "tab\t, newline\n, return\r, quote ', double \", back \\ \\. \\N é 漢 😀"
    assert (first["b"], first["p"]) == ({"$hex": "00ff0a0d5c"}, {"$hex": ""})
    assert first["js"] == {"a": ["1.00", "A"]}
    assert first["grid"] == [[1, 2], [3, 4]]
    assert first["texts"] == ["", None, "NULL", "a,b", '"', "{}"]
    assert first["whole"] == {"node": {"a": 1, "b": "a"}, "leaves": [{"a": 2, "b": "b"}]}
    assert first["tz"] == "2026-11-15T12:02:03.456789+00:00"
    assert (first["day"], first["span"], first["m"], first["yes"]) == (
        "0044-03-15 BC",
        "-1 years -2 days +03:04:05.678",
        "Happy day",
        True,
    )
    assert third["t"] is None
    assert tables["one_json"] == [{"j": {"a": 1}}, {"j": None}, {"j": ""}]
    assert tables["no_columns"] == [{}, {}]
    assert tables["generated"] == [{"a": 1, "twice": 2, "thrice": 3}, {"a": 2, "twice": 4, "thrice": 6}]
    assert sorted(row["value"] for row in tables["measured"]) == [1, 1, 99]
    assert tables["parent"] == [{"a": 1, "b": "parent"}]
    assert not {"measured_2025", "measured_2026_low", "far_away"} & set(tables)
    assert {name: len(rows) for name, rows in tables.items() if rows} == dict(whole.counts)


async def test_a_foreign_table_has_no_rows_to_give(full: Place) -> None:
    with pytest.raises(PermanentRunnerError, match="foreign table"):
        await dumped(full.settings(), "json", tables=["far_away"])
    assert b"CREATE FOREIGN TABLE" in (await dumped(full.settings(), tables=["far_away"])).data


async def test_csv_has_every_value(full: Place, target: Place) -> None:
    """Read by Python's reader, and by PostgreSQL, into which every table goes back."""
    whole = await dumped(full.settings(), "csv")
    await target.load((await dumped(full.settings(), schema_only=True)).data)
    frozen = await PostgresSource(full.settings()).open("csv", DumpOptions(), "columns")
    columns = {table.name: list(table.columns) for table in frozen.tables}
    await frozen.close()

    rows = list(csv.reader(io.StringIO(whole.tables["every_type"].decode(), newline="")))
    assert [len(row) for row in rows] == [len(columns["every_type"])] * 4
    assert rows[0][columns["every_type"].index("b")] == r"\x00ff0a0d5c"

    loading = await asyncpg.connect(target.dsn)
    try:
        await loading.execute("SET session_replication_role = replica")
        await load_csv(loading, whole, columns)
    finally:
        await loading.close()
    loaded, original = (await contents(target))[1], (await contents(full))[1]
    for table in ("every_type", "dropped", "one_json", "measured_2026_rest", "child", "guarded", "books", '"a.b"'):
        assert loaded[f"public.{table}"] == original[f"public.{table}"], table
    assert loaded["a.b"] == original["a.b"]


async def load_csv(loading: Connection, whole: Whole, columns: dict[str, list[str]]) -> None:
    for name, data in whole.tables.items():
        if name in ("no_columns", "generated", "only_generated"):
            continue
        schema, _, table = name.rpartition(".") if name == "a.b" else ("public", "", name)
        if name.startswith("Odd"):
            schema, table = "Odd schema", 'Odd "table".x; DROP'
        await loading.copy_to_table(
            table.strip('"') if name == '"a.b"' else table,
            schema_name=schema,
            columns=columns[name],
            source=io.BytesIO(data),
            format="csv",
            null=r"\N" if len(columns[name]) == 1 else "",
        )
