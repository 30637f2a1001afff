"""Unload on a real Trino: polled from turn to turn, and what remains when an answer, an address or a query is lost."""

import asyncio
import uuid
from collections.abc import AsyncIterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from aiohttp import web

from paddock.engines.engine import Query, QueryRefused
from paddock.engines.trino.engine import Lost, TrinoEngine, Unloaded, Unloading
from paddock.engines.trino.unloading import NOTHING_WRITTEN
from paddock.jobs.errors import PermanentRunnerError, StaleAttempt
from paddock.jobs.model import JsonObject
from tests.trino.asking import Noting, make_schema, query_info, query_status
from tests.trino.conftest import MakeEngine
from tests.trino.misbehaving import QUERY, Misbehaving, status
from tests.trino.server import TrinoServer

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

SELECT = "SELECT orderkey, comment, ARRAY[1, 2] AS numbers FROM orders ORDER BY orderkey"
SLOW = "SELECT count(*) AS n FROM tpch.sf100.lineitem a, tpch.sf100.lineitem b WHERE a.partkey + b.partkey = -1"


@pytest.fixture
async def engine(engine_of: MakeEngine) -> TrinoEngine:
    engine = engine_of(unload_catalog="hive", unload_schema="unloads")
    await make_schema(engine, "hive.unloads")
    return engine


@pytest.fixture
async def table(engine: TrinoEngine) -> AsyncIterator[str]:
    name = f"paddock_{uuid.uuid4().hex}"
    yield name
    await engine.drop_unload(Query(""), name)


async def begin(engine: TrinoEngine, sql: str, table: str, **parameters: object) -> JsonObject:
    return await engine.begin_unload(Query(sql, parameters=parameters), table, f"local:///{table}", Noting())


async def finish(engine: TrinoEngine, handle: JsonObject) -> Unloaded | Lost:
    async with asyncio.timeout(120):
        while True:
            polled = await engine.poll_unload(handle)
            if not isinstance(polled, Unloading):
                return polled
            handle = handle | {"next_uri": polled.next_uri}


def files(trino: TrinoServer, table: str) -> list[Path]:
    folder = trino.warehouse / table
    return [path for path in folder.iterdir() if not path.name.startswith(".")] if folder.exists() else []


async def test_trino_writes_and_the_files_outlive_the_table(
    trino: TrinoServer, engine: TrinoEngine, table: str
) -> None:
    handle = await begin(engine, SELECT, table)
    assert handle["table"] == table

    assert await finish(engine, handle) == Unloaded(15000)
    await engine.drop_unload(Query(""), table)
    await engine.drop_unload(Query(""), table)

    footers = [pq.read_metadata(path) for path in files(trino, table)]
    assert sum(footer.num_rows for footer in footers) == 15000
    assert {footer.row_group(0).column(0).compression for footer in footers} == {"ZSTD"}
    assert pq.read_schema(files(trino, table)[0]).names == ["orderkey", "comment", "numbers"]


async def test_nothing_runs_before_the_first_poll(trino: TrinoServer, engine: TrinoEngine, table: str) -> None:
    handle = await begin(engine, SELECT, table)

    assert await query_status(trino, handle["query_id"]) == 410
    assert files(trino, table) == []


async def test_what_could_not_be_saved_is_stopped(trino: TrinoServer, engine: TrinoEngine, table: str) -> None:
    async def stale(handle: JsonObject) -> None:
        raise RuntimeError("another holds the job")

    with pytest.raises(RuntimeError):
        await engine.begin_unload(Query(SELECT), table, f"local:///{table}", stale)

    assert files(trino, table) == []


async def test_values_and_names_of_the_callers_own(trino: TrinoServer, engine: TrinoEngine, table: str) -> None:
    query = Query("SELECT name, :x FROM nation WHERE name <> :x", parameters={"x": "PERU"})
    # A column without a name has one all the same, `_col1`.
    handle = await engine.begin_unload(query, table, f"local:///{table}", Noting(), ["label", "other"])

    assert await finish(engine, handle) == Unloaded(24)
    assert pq.read_schema(files(trino, table)[0]).names == ["label", "other"]


async def test_a_worker_that_lost_the_last_answer_learns_of_the_commit(engine: TrinoEngine, table: str) -> None:
    """It polled to the end and died before it could save that: the address it has is an old one."""
    handle = await begin(engine, SELECT, table)
    await finish(engine, handle)

    assert await engine.poll_unload(handle) == Unloaded(15000)


async def test_without_query_and_table_there_is_nothing(engine: TrinoEngine, table: str) -> None:
    handle = await begin(engine, SELECT, table)
    await finish(engine, handle)
    await engine.drop_unload(Query(""), table)

    assert await engine.poll_unload(handle) == Lost()


async def test_a_query_whose_address_was_lost_is_stopped_and_then_lost(
    trino: TrinoServer, engine: TrinoEngine, table: str
) -> None:
    """Two answers were fetched and not saved. Trino would wait for somebody to read the rest; nobody can."""
    first = await begin(engine, SLOW, table)
    handle = first
    for _ in range(3):
        polled = await engine.poll_unload(handle, 1.0)
        assert isinstance(polled, Unloading)
        handle = handle | {"next_uri": polled.next_uri}

    assert await finish(engine, first) == Lost()
    info = await query_info(trino, first["query_id"])
    assert info["errorCode"]["name"] == "USER_CANCELED"
    assert files(trino, table) == []


async def test_cancelled_by_any_address_it_ever_had(trino: TrinoServer, engine: TrinoEngine, table: str) -> None:
    """Only who has an address of it can do that: it was one of us, who could not read it to its end."""
    handle = await begin(engine, SLOW, table)
    polled = await engine.poll_unload(handle, 1.0)
    assert isinstance(polled, Unloading)

    await engine.cancel(handle)

    assert await finish(engine, handle | {"next_uri": polled.next_uri}) == Lost()
    assert (await query_info(trino, handle["query_id"]))["errorCode"]["name"] == "USER_CANCELED"


async def test_no_rows_and_no_folder(engine: TrinoEngine, table: str) -> None:
    handle = await begin(engine, "SELECT name FROM nation WHERE nationkey < 0", table)

    with pytest.raises(PermanentRunnerError) as told:
        await finish(engine, handle)

    assert told.value.code == NOTHING_WRITTEN


async def test_no_rows_in_a_store(engine_of: MakeEngine) -> None:
    engine = engine_of(unload_catalog="hive_s3", unload_schema="unloads")
    await make_schema(engine, "hive_s3.unloads")
    table = f"paddock_{uuid.uuid4().hex}"
    sql = "SELECT name FROM nation WHERE nationkey < 0"
    handle = await engine.begin_unload(Query(sql), table, f"s3://trino/{table}", Noting())

    assert await finish(engine, handle) == Unloaded(0)
    await engine.drop_unload(Query(""), table)


async def test_a_place_that_holds_something_is_refused(trino: TrinoServer, engine: TrinoEngine, table: str) -> None:
    (trino.warehouse / table).mkdir()
    (trino.warehouse / table / "there").write_text("x")

    with pytest.raises(PermanentRunnerError) as told:
        await finish(engine, await begin(engine, SELECT, table))

    assert told.value.code == "hive_path_already_exists"


@pytest.mark.parametrize(
    ("sql", "why"),
    [
        ("SELECT current_timestamp AS t", "'t' (timestamp(3) with time zone)"),
        ("SELECT TIMESTAMP '2024-01-01 00:00:00' AS t", "'t' (timestamp(0))"),
        ("SELECT TIME '00:00:00' AS t", "'t'"),
        ("SELECT CAST('a' AS char(3)) AS c", "'c' (char(3))"),
        ("SELECT uuid() AS u", "'u'"),
        ("SELECT JSON '1' AS j", "'j'"),
        ("SELECT NULL AS n", "'n'"),
        ("SELECT ROW(1, 2) AS r", "'r'"),
        ("SELECT ARRAY[uuid()] AS a", "'a'"),
        ('SELECT 1 AS "Upper"', "'Upper'"),
        ("SELECT 1 AS a, 2 AS a", "'a'"),
    ],
)
async def test_what_hive_cannot_write_exactly_goes_the_direct_way(
    engine: TrinoEngine, table: str, sql: str, why: str
) -> None:
    described = await engine.describe(Query(sql))
    assert why in (described.direct_only or "")

    with pytest.raises(QueryRefused) as told:
        await begin(engine, sql, table)
    assert told.value.code == "direct_only"


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT true AS a, TINYINT '1' AS b, SMALLINT '1' AS c, 1 AS d, BIGINT '1' AS e, REAL '1' AS f, 1e0 AS g",
        "SELECT DECIMAL '1.5' AS a, 'x' AS b, X'00' AS c, DATE '2024-01-01' AS d",
        "SELECT ARRAY[1] AS a, MAP(ARRAY['a'], ARRAY[1]) AS b, CAST(ROW(1) AS ROW(x integer)) AS c",
    ],
)
async def test_what_hive_can_write(engine: TrinoEngine, table: str, sql: str) -> None:
    assert (await engine.describe(Query(sql))).direct_only is None

    assert await finish(engine, await begin(engine, sql, table)) == Unloaded(1)


async def test_never_through_a_catalog_whose_drop_deletes_the_files(engine_of: MakeEngine) -> None:
    engine = engine_of(unload_catalog="iceberg", unload_schema="unloads")

    with pytest.raises(PermanentRunnerError) as told:
        await begin(engine, "SELECT 1 AS a", "paddock_x")
    assert told.value.code == "unload_needs_hive"

    with pytest.raises(PermanentRunnerError) as told:
        await engine.drop_unload(Query(""), "paddock_x")
    assert told.value.code == "unload_needs_hive"


async def test_a_table_name_is_ours(engine: TrinoEngine) -> None:
    with pytest.raises(ValueError, match="table name"):
        await begin(engine, "SELECT 1 AS a", 'x"; DROP')


async def test_a_poller_whose_job_was_taken_over_stops_nothing(bad: Misbehaving, bad_engine: MakeEngine) -> None:
    """Its address is old because the winner polled on: the query it sees running is the winner's."""
    engine = bad_engine()
    handle: JsonObject = {"query_id": QUERY, "next_uri": f"{bad.url}/page/0", "table": "paddock_x"}

    async def running(request: web.Request) -> web.StreamResponse:
        return web.json_response({"queryId": QUERY, "state": "RUNNING"})

    async def taken_over(next_uri: str) -> None:
        raise StaleAttempt

    async def still_ours(next_uri: str) -> None:
        pass

    bad.trouble = {"/page/0": [status(410)] * 2, f"/v1/query/{QUERY}": [running] * 2}
    with pytest.raises(StaleAttempt):
        await engine.poll_unload(handle, moved=taken_over)
    assert bad.count("DELETE", "/page/0") == 0

    assert isinstance(await engine.poll_unload(handle, moved=still_ours), Unloading)
    assert bad.count("DELETE", "/page/0") == 1
