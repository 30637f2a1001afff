"""DuckDB in its child: what arrives, and that nothing stays when it ends in the middle."""

import asyncio
import contextlib
import datetime
import decimal
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import duckdb
import psutil
import pyarrow as pa
import pytest

from paddock.engines.children.duckdb import DuckdbEngine
from paddock.engines.engine import Query, QueryRefused
from paddock.engines.settings import DuckdbSettings
from paddock.exports.arrow_types import conformer, declared_name
from paddock.exports.model import DeclaredColumn
from paddock.jobs.errors import PermanentRunnerError, TransientResourceError
from paddock.jobs.model import JsonObject

# One batch of it is more than the pipe holds, so the child is still there when the first has arrived.
LONG = "SELECT x, repeat('x', 100) AS text FROM range(1000000000) t(x)"

# Computes and says nothing: neither a full pipe nor a closed one stops it.
BUSY = "SELECT count(*) FROM range(100000000000) t(x) WHERE hash(x) = 1"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("duckdb")
    root, other = place / "root", place / "other"
    (root / "sub").mkdir(parents=True)
    other.mkdir()
    (root / "flights.csv").write_text("id,delay\n1,10\n2,70\n")
    (root / "sub" / "it's.json").write_text('{"a": 1}\n{"a": 2}\n')
    (root / ".hidden.csv").write_text("x\n1\n")
    duckdb.execute(f"COPY (SELECT 42 AS n) TO '{other}/more.parquet'")
    with duckdb.connect(str(place / "shop.duckdb")) as shop:
        shop.execute("CREATE TABLE orders (id INTEGER, price DECIMAL(10, 2)); INSERT INTO orders VALUES (1, 9.99)")
        shop.execute("CREATE SCHEMA other; CREATE VIEW other.dear AS SELECT * FROM orders WHERE price > 5")
    return place


@pytest.fixture(scope="module")
def engine(place: Path) -> Iterator[DuckdbEngine]:
    settings = DuckdbSettings(
        roots=(place / "root", place / "other"), database=place / "shop.duckdb", spill_folder=place / "spill"
    )
    engine = DuckdbEngine("duckdb", settings)
    yield engine
    asyncio.run(engine.close())


async def read(engine: DuckdbEngine, sql: str, **parameters: Any) -> pa.Table:
    async with engine.open(Query(sql, parameters)) as stream:
        batches = [batch async for batch in stream.batches()]
        schema = pa.schema([pa.field(column.name, column.type) for column in stream.columns])
    return pa.Table.from_batches(batches, schema=schema)


async def refused(engine: DuckdbEngine, sql: str, **parameters: Any) -> PermanentRunnerError:
    with pytest.raises(PermanentRunnerError) as caught:
        await read(engine, sql, **parameters)
    return caught.value


def spills(place: Path) -> list[Path]:
    return list((place / "spill").glob("*/*"))


async def test_it_tells_how_far_it_is_before_the_first_row(engine: DuckdbEngine, place: Path) -> None:
    many = place / "root" / "many.parquet"
    duckdb.execute(f"COPY (SELECT hash(x)::VARCHAR AS text FROM range(3000000) t(x)) TO '{many}'")
    async with engine.open(Query("SELECT text, text || 'x' AS more FROM 'many.parquet' ORDER BY more")) as stream:
        seen = [stream.progress.percent async for _ in stream.batches()]
    many.unlink()

    assert seen[0] is not None, "a sort reads all before its first row"
    told = [percent for percent in seen if percent is not None]
    assert 0 < told[0] <= told[-1] <= 100


async def test_a_million_rows_arrive_in_order(engine: DuckdbEngine) -> None:
    sql = "SELECT x, x::HUGEINT AS y, 'row ' || x AS text FROM range(1000000) t(x) ORDER BY x DESC"
    expected = 999_999
    async with engine.open(Query(sql)) as stream:
        async for batch in stream.batches():
            found = batch.column(0).to_pylist()
            assert found == list(range(expected, expected - batch.num_rows, -1))
            assert batch.column(2)[0].as_py() == f"row {expected}"
            expected -= batch.num_rows
    assert expected == -1


async def test_a_relative_path_starts_at_the_first_root(engine: DuckdbEngine, place: Path) -> None:
    assert (await read(engine, "FROM 'flights.csv' WHERE delay > $least", least=60)).to_pylist() == [
        {"id": 2, "delay": 70}
    ]
    assert (await read(engine, f"FROM '{place}/other/*.parquet'")).to_pylist() == [{"n": 42}]


async def test_the_database_is_read_and_let_go(engine: DuckdbEngine, place: Path) -> None:
    assert (await read(engine, "SELECT * FROM orders")).to_pylist() == [{"id": 1, "price": decimal.Decimal("9.99")}]
    # A child waits for the next query, but it does not hold the file.
    with duckdb.connect(str(place / "shop.duckdb")) as writer:
        writer.execute("INSERT INTO orders SELECT 2, 1 WHERE false")
        with pytest.raises(TransientResourceError) as caught:
            await read(engine, "SELECT * FROM orders")
        assert caught.value.code == "database_busy"


async def test_repeated_names_and_an_empty_result_keep_their_types(engine: DuckdbEngine) -> None:
    async with engine.open(
        Query("SELECT 1 AS a, 2::HUGEINT AS a, DATE '2024-01-01' AS d WHERE false; -- end")
    ) as stream:
        assert [batch async for batch in stream.batches()] == []
        assert [(column.name, str(column.type), column.native) for column in stream.columns] == [
            ("a", "int32", "INTEGER"),
            ("a", "decimal128(38, 0)", "HUGEINT"),
            ("d", "date32[day]", "DATE"),
        ]


async def test_what_each_type_becomes(engine: DuckdbEngine) -> None:
    sql = """
    SELECT 170141183460469231731687303715884105::HUGEINT AS huge, 5::UHUGEINT AS uhuge, 12::BIGNUM AS big,
           1.5::DECIMAL(38, 10) AS dec, 'NaN'::DOUBLE AS nan, '101'::BIT AS bits, 'b'::ENUM('a', 'b') AS e,
           '0a0a0a0a-0a0a-0a0a-0a0a-0a0a0a0a0a0a'::UUID AS u, '12:00:00+02'::TIMETZ AS tz, INTERVAL '1 day 2 h' AS i,
           '{"a": 1}'::JSON AS j, 'x'::BLOB AS b, TIME '23:59:59.999999' AS t,
           '2024-01-01 00:00:01'::TIMESTAMP_S AS s, '2024-01-01 00:00:00.001'::TIMESTAMP_MS AS ms,
           '2024-01-01 00:00:00.000000001'::TIMESTAMP_NS AS ns, '2024-06-01 12:00:00+02'::TIMESTAMPTZ AS at,
           [1, NULL, 3] AS l, [1, 2]::INTEGER[2] AS fixed, MAP {'k': [INTERVAL '1 day']} AS m,
           {'a': 1, 'b c': {'d': 2::HUGEINT, 'e': ['x'::ENUM('x')]}} AS st, NULL AS nothing, 255::UTINYINT AS small
    """
    found = await read(engine, sql)
    types = {field.name: str(field.type) for field in found.schema}
    assert types == {
        "huge": "decimal128(38, 0)",
        "uhuge": "decimal128(38, 0)",
        "big": "string",
        "dec": "decimal128(38, 10)",
        "nan": "double",
        "bits": "string",
        "e": "string",
        "u": "string",
        "tz": "string",
        "i": "string",
        "j": "string",
        "b": "binary",
        "t": "time64[us]",
        "s": "timestamp[us]",
        "ms": "timestamp[us]",
        "ns": "timestamp[ns]",
        "at": "timestamp[us, tz=UTC]",
        "l": "list<item: int32>",
        "fixed": "list<item: int32>",
        "m": "map<string, list<item: string>>",
        "st": "struct<a: int32, b c: struct<d: decimal128(38, 0), e: list<item: string>>>",
        "nothing": "int32",
        "small": "uint8",
    }
    (row,) = found.drop_columns(["nan", "ns"]).to_pylist()
    assert row["huge"] == decimal.Decimal(170141183460469231731687303715884105)
    assert (row["big"], row["bits"], row["e"], row["tz"], row["i"]) == (
        "12",
        "101",
        "b",
        "12:00:00+02",
        "1 day 02:00:00",
    )
    assert row["at"] == datetime.datetime(2024, 6, 1, 10, tzinfo=datetime.UTC)
    assert (row["l"], row["fixed"], row["m"]) == ([1, None, 3], [1, 2], [("k", ["1 day"])])
    assert row["st"] == {"a": 1, "b c": {"d": decimal.Decimal(2), "e": ["x"]}}
    assert found.column("ns").cast(pa.int64())[0].as_py() == 1704067200000000001


@pytest.mark.parametrize(
    ("sql", "code"),
    [
        ("SELECT union_value(a := 1) AS u", "type_not_exportable"),
        ("SELECT 1::VARIANT AS v", "type_not_exportable"),
        ("SELECT row(1, 2) AS r", "type_not_exportable"),
        ("SELECT 'infinity'::DATE AS d", "value_not_exportable"),
        ("SELECT [{'a': '-infinity'::TIMESTAMP}] AS d", "value_not_exportable"),
        ("SELECT 'infinity'::TIMESTAMP_S AS d", "value_not_exportable"),
        ("SELECT 170141183460469231731687303715884105727 AS huge", "value_not_exportable"),
        ("SELECT TIME '24:00:00' AS t", "value_not_exportable"),
        ("SELECT [{'a': TIME '24:00:00'}] AS t", "value_not_exportable"),
        ("SELECT TIME_NS '24:00:00' AS t", "value_not_exportable"),
        ("SELECT CAST(x || 'x' AS INTEGER) FROM range(3) t(x)", "query_failed"),
        ("SELECT * FROM 'none.csv'", "query_failed"),
        ("SELECT $missing", "query_refused"),
    ],
)
async def test_what_no_file_can_hold_is_said(engine: DuckdbEngine, sql: str, code: str) -> None:
    assert (await refused(engine, sql)).code == code


@pytest.mark.parametrize("rows", [1, 200_000])
async def test_a_value_that_our_cast_cannot_keep_names_its_column(engine: DuckdbEngine, rows: int) -> None:
    most = "170141183460469231731687303715884105727::HUGEINT"
    sql = f"""SELECT x::HUGEINT AS one, {{'ü': x::HUGEINT}} AS two,
        CASE WHEN x = {rows - 1} THEN {most} END AS "the third", x::HUGEINT AS four FROM range({rows}) t(x)"""
    problem = await refused(engine, sql)

    assert problem.code == "value_not_exportable"
    assert problem.message.startswith(
        "A value of column 'the third' (HUGEINT) cannot be written: Could not cast value 170"
    )
    nested = await refused(engine, f"SELECT 1::HUGEINT AS a, {{'ü': uuid(), 'v': [{most}]}} AS b")
    assert "column 'b' (STRUCT(" in nested.message


async def test_an_error_says_where(engine: DuckdbEngine) -> None:
    for sql in ("SELECT 'é',\n  nope FROM range(1)", "SELECT 'é' AS\n  1"):
        problem = await refused(engine, sql)
        assert isinstance(problem, QueryRefused)
        assert (problem.line, problem.column) == (2, 3)


async def test_parameters_are_values_not_text(engine: DuckdbEngine) -> None:
    hostile = "x'; COPY (SELECT 1) TO 'out.csv'; --"
    found = await read(engine, "SELECT $a AS a, $b::DATE AS b, $c AS c", a=hostile, b="2024-01-01", c=2**70)
    assert found.to_pylist() == [{"a": hostile, "b": datetime.date(2024, 1, 1), "c": decimal.Decimal(2**70)}]
    kinds = await read(engine, "SELECT $a AS a, $b AS b, $c AS c, $d AS d", a=1.5, b=True, c=None, d=-1)
    assert kinds.to_pylist() == [{"a": 1.5, "b": True, "c": None, "d": -1}]
    assert (await refused(engine, "SELECT 1", extra=1)).code == "query_refused"
    assert (await refused(engine, "SELECT $a", a=object())).code == "parameter_refused"


async def test_a_description_runs_nothing(engine: DuckdbEngine) -> None:
    described = await engine.describe(Query("SELECT sum(hash(x)) AS s FROM range(100000000000) t(x)"))
    assert [(column.name, column.native) for column in described.columns] == [("s", "HUGEINT")]
    columns, table = await engine.preview(Query("SELECT x FROM range(100000000000) t(x); "), 3)
    assert (len(columns), table.column(0).to_pylist()) == (1, [0, 1, 2])


async def test_a_uuid_inside_of_another_type_is_described_as_one(engine: DuckdbEngine) -> None:
    sql = "SELECT {'a': uuid()} AS s, [uuid()] AS l, MAP {uuid(): [{'b': uuid(), 'c': 'x'}]} AS m"
    described = await engine.describe(Query(sql))
    declared = ["STRUCT(a UUID)", "LIST(UUID)", "MAP(UUID, LIST(STRUCT(b UUID, c STRING)))"]

    assert [declared_name(column) for column in described.columns] == declared
    wanted = [DeclaredColumn(name=name, type=type) for name, type in zip("slm", declared, strict=True)]
    async with engine.open(Query(sql)) as stream:
        conform = conformer(stream.columns, wanted)
        [row] = [row async for batch in stream.batches() for row in conform(batch).to_pylist()]
    [(key, [value])] = row["m"]
    assert {type(one) for one in (row["s"]["a"], row["l"][0], key, value["b"])} == {UUID}


async def test_the_handle_is_told_before_anything_runs_and_stops_it(engine: DuckdbEngine, place: Path) -> None:
    handles: list[JsonObject] = []

    async def started(handle: JsonObject) -> None:
        handles.append(handle)

    async with engine.open(Query(LONG), started) as stream:
        batches = stream.batches()
        await anext(batches)
        await engine.cancel({"child": "another"})
        await anext(batches)
        await engine.cancel(handles[0])
        with pytest.raises(PermanentRunnerError) as caught:
            async for _ in batches:
                pass
    assert caught.value.code == "query_crashed"
    assert spills(place) == []
    await engine.cancel(handles[0])


async def test_a_started_that_fails_starts_nothing(engine: DuckdbEngine, place: Path) -> None:
    async def started(handle: JsonObject) -> None:
        raise RuntimeError("the job has moved on")

    with pytest.raises(RuntimeError):
        async with engine.open(Query(LONG), started):
            raise AssertionError
    assert spills(place) == []


def pid_of(stream: Any) -> int:
    return int(str(stream.progress.query_id).removeprefix("pid "))


async def test_leaving_early_ends_the_child(engine: DuckdbEngine, place: Path) -> None:
    async with engine.open(Query(LONG)) as stream:
        await anext(stream.batches())
        pid = pid_of(stream)
        assert psutil.pid_exists(pid)
    assert not psutil.pid_exists(pid)
    assert spills(place) == []


async def test_a_cancelled_task_ends_the_child(engine: DuckdbEngine, place: Path) -> None:
    running: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    async def export() -> None:
        async with engine.open(Query(BUSY)) as stream:
            running.set_result(pid_of(stream))
            await anext(stream.batches())

    task = asyncio.create_task(export())
    pid = await running
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not psutil.pid_exists(pid)
    assert spills(place) == []


async def test_a_child_killed_in_the_middle_is_a_crash_for_good(engine: DuckdbEngine) -> None:
    async with engine.open(Query(LONG)) as stream:
        batches = stream.batches()
        await anext(batches)
        os.kill(pid_of(stream), signal.SIGKILL)
        with pytest.raises(PermanentRunnerError) as caught:
            async for _ in batches:
                pass
    assert caught.value.code == "query_crashed"
    assert "signal 9" in caught.value.message
    assert (await read(engine, "SELECT 1 AS one")).num_rows == 1


async def test_a_child_that_died_while_it_waited_is_replaced(engine: DuckdbEngine) -> None:
    await read(engine, "SELECT 1 AS one")
    for child in psutil.Process().children():
        with contextlib.suppress(psutil.NoSuchProcess):  # another child of this process, which just ended
            if "duckdb_child" in " ".join(child.cmdline()):
                child.kill()
                child.wait()
    assert (await read(engine, "SELECT 1 AS one")).num_rows == 1


PARENT = """
import asyncio, sys
from pathlib import Path
from paddock.engines.children.duckdb import DuckdbEngine
from paddock.engines.engine import Query
from paddock.engines.settings import DuckdbSettings

async def main():
    engine = DuckdbEngine("duckdb", DuckdbSettings(spill_folder=Path(sys.argv[1])))
    async with engine.open(Query(sys.argv[2])) as stream:
        print(stream.progress.query_id.removeprefix("pid "), flush=True)
        await asyncio.sleep(3600)

asyncio.run(main())
"""


@pytest.mark.slow
def test_children_die_with_their_parent_and_their_spill_is_removed_by_the_next(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PARENT, str(tmp_path / "spill"), BUSY], stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        running = psutil.Process(int(parent.stdout.readline()))
        children = psutil.Process(parent.pid).children()
        assert running in children
        assert len(children) == 2  # and the one that waits
        parent.kill()
    psutil.wait_procs(children, timeout=30)
    assert not [child for child in children if child.is_running()]
    assert spills(tmp_path) != []

    async def another() -> None:
        engine = DuckdbEngine("duckdb", DuckdbSettings(spill_folder=tmp_path / "spill"))
        await read(engine, "SELECT 1 AS one")
        await engine.close()

    asyncio.run(another())
    assert spills(tmp_path) == []


async def test_a_result_of_large_rows_comes_in_small_frames(engine: DuckdbEngine) -> None:
    async with engine.open(Query("SELECT repeat(x::VARCHAR, 1000000) AS text FROM range(60) t(x)")) as stream:
        sizes = [batch.num_rows async for batch in stream.batches()]
    assert sum(sizes) == 60
    assert max(sizes) < 20


async def test_metadata(engine: DuckdbEngine, place: Path) -> None:
    query = Query("")
    assert await engine.catalogs(query) == ["shop", "local"]
    assert await engine.schemas(query, "shop") == ["main", "other"]
    assert await engine.tables(query, "shop", "main") == ["orders"]
    assert await engine.tables(query, "shop", "other") == ["dear"]
    files = await engine.tables(query, "local", "files")
    assert list(files) == ["flights.csv", "sub/it's.json", str(place / "other" / "more.parquet")]
    columns = await engine.table_columns(query, "local", "files", "sub/it's.json")
    assert [(column.name, column.native) for column in columns] == [("a", "BIGINT")]
    columns = await engine.table_columns(query, "shop", "other", "dear")
    assert [column.native for column in columns] == ["INTEGER", "DECIMAL(10,2)"]
    assert [finding for finding in await engine.check(query) if not finding.ok] == []


async def test_a_root_that_is_missing_is_said(tmp_path: Path) -> None:
    engine = DuckdbEngine("local", DuckdbSettings(roots=(tmp_path / "none",), spill_folder=tmp_path / "spill"))
    assert (await refused(engine, "SELECT 1")).code == "engine_root_missing"
    assert [finding.ok for finding in await engine.check(Query("")) if finding.what.startswith("root")] == [False]
    await engine.close()


def test_a_child_loads_nothing_that_it_can_do_without() -> None:
    """Its start is paid by every query. Arrow's functions are the parent's, see `unwritable`."""
    needless = {"duckdb", "dataclasses", "inspect", "pyarrow.compute", "numpy"}
    code = (
        "import sys; from paddock.engines.children.duckdb_child import load_session; load_session(); "
        f"print(sorted({needless} & {{name for name, module in sys.modules.items() if module is not None}}))"
    )
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout == "[]\n"
