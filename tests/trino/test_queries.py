"""Queries on a real Trino: rows as pages and as segments, places of errors, limits, cancelling."""

import asyncio
from typing import Any
from urllib.parse import urlsplit

import obstore
import pyarrow as pa
import pytest

from paddock.engines.engine import Query, QueryRefused
from paddock.engines.trino.engine import TrinoEngine
from paddock.jobs.errors import PermanentRunnerError, TransientResourceError
from tests.trino.asking import Noting, query_ended, query_status, read
from tests.trino.configuring import BUCKET, S3_KEY, S3_SECRET
from tests.trino.conftest import MakeEngine
from tests.trino.server import TrinoServer

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

FOR_EVER = "SELECT count(*) FROM tpch.sf100.lineitem a, tpch.sf100.lineitem b WHERE a.partkey + b.partkey = -1"
# Both: what fits one segment is sent inline, whatever the first says.
STORED = {
    "spooling_inlining_enabled": "false",
    "spooling_initial_segment_size": "16kB",
    "spooling_max_segment_size": "16kB",
}


@pytest.mark.parametrize(
    "settings",
    [
        {"encodings": []},
        {"encodings": ["json"], "session": STORED},
        {"encodings": ["json+lz4"], "session": STORED},
        {"encodings": ["json+zstd"], "session": STORED},
        {},
    ],
)
async def test_the_same_rows_by_every_way(engine_of: MakeEngine, settings: dict[str, Any]) -> None:
    engine = engine_of(**settings)
    sql = "SELECT orderkey, custkey, totalprice, orderdate, comment FROM orders ORDER BY orderkey"

    table = await read(engine, sql)

    assert table.num_rows == 15000
    assert table["orderkey"].to_pylist() == sorted(table["orderkey"].to_pylist())
    assert table["orderkey"][-1].as_py() == 60000
    [[keys, price, last]] = await engine.rows(
        "SELECT sum(orderkey), sum(CAST(totalprice AS decimal(18, 2))), max(comment) FROM orders", Query("")
    )
    assert sum(table["orderkey"].to_pylist()) == keys
    assert str(sum(round(price * 100) for price in table["totalprice"].to_pylist())) == str(price).replace(".", "")
    assert max(table["comment"].to_pylist()) == last


@pytest.mark.parametrize(("encodings", "spooled"), [([], False), (["json+zstd"], True)])
async def test_the_protocol_is_the_one_that_was_offered(
    engine_of: MakeEngine, encodings: list[str], spooled: bool
) -> None:
    engine = engine_of(encodings=encodings)
    async with engine.open(Query("SELECT * FROM nation")) as stream:
        rows = sum([batch.num_rows async for batch in stream.batches()])

    assert rows == 25
    assert getattr(stream, "spooled", None) == spooled
    assert stream.progress.query_id


async def stored(trino: TrinoServer) -> str:
    """The names of all that lies in the store."""
    store = obstore.store.S3Store(
        BUCKET,
        endpoint=f"http://127.0.0.1:{trino.ports.s3}",
        access_key_id=S3_KEY,
        secret_access_key=S3_SECRET,
        region="us-east-1",
        client_options={"allow_http": True},
    )
    return " ".join([entry["path"] for page in obstore.list(store, "spooling") for entry in page])


async def test_acknowledged_segments_are_gone(trino: TrinoServer, engine_of: MakeEngine) -> None:
    engine = engine_of(session=STORED)
    seen: list[str] = []
    fetch = engine.client.sessions.storage.get

    def watching(url: Any, **given: Any) -> Any:
        seen.append(str(url))
        return fetch(url, **given)

    engine.client.sessions.storage.get = watching  # type: ignore[method-assign]
    await read(engine, "SELECT * FROM orders")
    await engine.close()

    segments = [url for url in seen if str(trino.ports.s3) in url]
    assert len(segments) == len([url for url in seen if "/ack/" in url]) >= 2
    names = [urlsplit(url).path.rsplit("/", 1)[1] for url in segments]
    async with asyncio.timeout(60):
        while any(name in listed for listed in [await stored(trino)] for name in names):  # noqa: ASYNC110
            await asyncio.sleep(0.05)


async def test_no_rows_have_columns_all_the_same(engine: TrinoEngine) -> None:
    table = await read(engine, "SELECT name, nationkey, NULL AS nothing FROM nation WHERE nationkey < 0")

    assert table.num_rows == 0
    assert table.schema == pa.schema({"name": pa.string(), "nationkey": pa.int64(), "nothing": pa.string()})


async def test_microseconds_arrive_and_zones_are_converted_at_the_server(engine: TrinoEngine) -> None:
    """Both sides of the hour that repeats when summer time ends."""
    table = await read(
        engine,
        "SELECT TIMESTAMP '2024-01-01 00:00:00.123456' AS t, x FROM (VALUES"
        " at_timezone(TIMESTAMP '2024-10-27 00:30:00 UTC', 'Europe/Berlin'),"
        " at_timezone(TIMESTAMP '2024-10-27 01:30:00 UTC', 'Europe/Berlin')) AS v (x)",
    )

    assert str(table["t"][0].as_py()) == "2024-01-01 00:00:00.123456"
    assert sorted(f"{moment.as_py():%H:%M}" for moment in table["x"]) == ["00:30", "01:30"]


@pytest.mark.parametrize("around", ["{}", "({})"])
async def test_an_order_and_a_cast_cannot_both_be_had(engine: TrinoEngine, around: str) -> None:
    sql = around.format("SELECT current_timestamp AS now FROM nation ORDER BY name")
    for asked in (engine.describe(Query(sql)), read(engine, sql)):
        with pytest.raises(QueryRefused) as told:
            await asked

        assert told.value.code == "cast_needed"
        assert "AT TIME ZONE 'UTC'" in str(told.value.hint)


async def test_parameters_are_values_and_never_text(engine: TrinoEngine) -> None:
    evil = "x' OR '1'='1"
    sql = "SELECT name, :evil AS e FROM nation WHERE name = :name OR name = :evil OR contains(:keys, nationkey)"

    table = await read(engine, sql, parameters={"evil": evil, "name": "PERU", "keys": [24]})

    assert sorted(table["name"].to_pylist()) == ["PERU", "UNITED STATES"]
    assert table["e"][0].as_py() == evil


@pytest.mark.parametrize(
    ("sql", "line", "column"),
    [
        ("SELECT name,\n  nam\nFROM nation WHERE name <> :p", 2, 3),
        ("\n\n  SELECT nope FROM nation WHERE name <> :p", 3, 10),
        ("SELECT name\nFROM nation WHERE :p = name AND nope = 1", 2, 33),
        ("SELECT name,\nFROM nation", 2, 1),
        ("SELECT name\nFROM (nation", 2, 13),
    ],
)
@pytest.mark.parametrize("bound", [True, False])
async def test_errors_name_the_authors_line_and_column(
    engine: TrinoEngine, sql: str, line: int, column: int, bound: bool
) -> None:
    if not bound:
        sql = sql.replace(":p", "''")
    if bound and ":p" not in sql:
        sql = sql.replace("name", "name||:p", 1)
        column = column if line != 1 else column + 4
    with pytest.raises(QueryRefused) as told:
        await engine.describe(Query(sql, parameters={"p": "it's"} if bound else {}))

    assert (told.value.line, told.value.column) == (line, column)
    assert f"line {line}:{column}: " in str(told.value)


async def test_a_preview_is_the_first_rows_in_the_querys_order(engine: TrinoEngine) -> None:
    sorted_sql = "SELECT name FROM nation ORDER BY name DESC"

    async def names(sql: str, rows: int) -> list[str]:
        columns, table = await engine.preview(Query(sql), rows)
        assert [column.name for column in columns] == table.column_names
        return [str(name) for name in table[0].to_pylist()]

    assert await names(sorted_sql, 2) == ["VIETNAM", "UNITED STATES"]
    assert await names(f"({sorted_sql})", 2) == ["VIETNAM", "UNITED STATES"]
    assert (await read(engine, f"({sorted_sql})"))["name"].to_pylist() == await names(sorted_sql, 25)
    assert await names(f"{sorted_sql} LIMIT 3", 2) == ["VIETNAM", "UNITED STATES"]
    assert len(await names("SELECT * FROM lineitem", 7)) == 7
    assert await names("SELECT current_timestamp AS now WHERE false", 7) == []


async def test_a_started_query_is_not_running_yet(trino: TrinoServer, engine: TrinoEngine) -> None:
    """Whoever dies between the saving and the first GET leaves nothing behind."""
    statuses: list[int] = []

    async def started(handle: dict[str, Any]) -> None:
        statuses.append(await query_status(trino, handle["query_id"]))

    await read(engine, "SELECT 1", started)

    assert statuses == [410]


async def test_a_sign_of_life_takes_nothing_away(trino: TrinoServer, engine_of: MakeEngine) -> None:
    engine = engine_of(encodings=[], heartbeat_seconds=0.05)
    beats: list[bool] = []
    beat = engine.client.beat

    async def counted(uri: str, call: Any) -> bool:
        beats.append(await beat(uri, call))
        return beats[-1]

    engine.client.beat = counted  # type: ignore[method-assign]
    rows = 0
    async with engine.open(Query("SELECT * FROM lineitem")) as stream, asyncio.timeout(60):
        async for batch in stream.batches():
            rows += batch.num_rows
            while len(beats) < 3 and rows < 50_000:  # noqa: ASYNC110
                await asyncio.sleep(0.01)

    assert rows == 60175
    assert all(beats)
    assert len(beats) >= 3


async def test_leaving_early_cancels_at_the_server(trino: TrinoServer, engine_of: MakeEngine) -> None:
    engine = engine_of(encodings=[])
    noting = Noting()
    async with engine.open(Query("SELECT * FROM tpch.sf1.lineitem"), noting) as stream:
        async for _ in stream.batches():
            break

    info = await query_ended(trino, noting.handle["query_id"])
    assert (info["state"], info["errorCode"]["name"]) == ("FAILED", "USER_CANCELED")


async def test_cancelled_by_its_saved_handle(trino: TrinoServer, engine: TrinoEngine, engine_of: MakeEngine) -> None:
    """By another process than the one that runs it."""
    noting = Noting()
    running = asyncio.create_task(read(engine, FOR_EVER, noting))
    async with asyncio.timeout(60):
        while not noting.handle or await query_status(trino, noting.handle["query_id"]) != 200:  # noqa: ASYNC110
            await asyncio.sleep(0.05)

    await engine_of().cancel(noting.handle)

    with pytest.raises(PermanentRunnerError) as told:
        await running
    assert told.value.code == "user_canceled"


async def test_a_time_limit_of_the_cluster_is_for_good(engine_of: MakeEngine) -> None:
    engine = engine_of(session={"query_max_run_time": "1s"})

    with pytest.raises(PermanentRunnerError) as told:
        await read(engine, FOR_EVER)

    assert told.value.code == "exceeded_time_limit"
    assert told.value.hint


async def test_a_value_that_fails_late_fails_the_export(engine: TrinoEngine) -> None:
    with pytest.raises(QueryRefused) as told:
        await read(engine, "SELECT 1 / (orderkey - 60000) FROM orders")

    assert told.value.code == "division_by_zero"


async def test_a_full_queue_is_waited_for_by_the_job(trino: TrinoServer, engine_of: MakeEngine) -> None:
    """The group runs one and keeps one waiting. Our client tries to run all and does not count them itself."""
    engine = engine_of(source="full")
    rest = engine_of()
    notings = [Noting() for _ in range(2)]
    # Straight to the server: the gate is a query too, and would not pass here.
    statements = []
    from paddock.engines.trino.statement import submit

    for _ in notings:
        statement = await submit(engine.client, FOR_EVER, engine.call(Query("")))
        await statement.advance()
        statements.append(statement)
    try:
        async with asyncio.timeout(60):
            while not any(row == ["QUEUED"] for row in await rest.rows(WAITING, Query(""))):
                await statements[1].advance()
        with pytest.raises(TransientResourceError) as told:
            await read(engine, "SELECT 1")
    finally:
        for statement in statements:
            await statement.stop()

    assert (told.value.code, told.value.budget) == ("query_queue_full", "cluster")


WAITING = "SELECT state FROM system.runtime.queries WHERE source = 'full'"


async def test_resource_groups_throttle_and_nothing_is_lost(trino: TrinoServer, engine_of: MakeEngine) -> None:
    engine = engine_of(source="one-at-a-time")

    tables = await asyncio.gather(*(read(engine, f"SELECT {number} AS n") for number in range(6)))

    assert [table["n"].to_pylist() for table in tables] == [[number] for number in range(6)]
