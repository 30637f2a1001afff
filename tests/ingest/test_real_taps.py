"""The reader against real taps: `tap-postgres` on a PostgreSQL, and Airbyte's `source-faker`.

What they never do on demand (a torn line, a state of 2 MiB, death between two messages) a script plays in `test_taps.py`.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import parse_qs, urlsplit

import asyncpg
import pytest

from paddock.db.pool import Statement
from paddock.ingest import runs, tapping
from paddock.ingest.model import Run
from tests import components
from tests.ingest.conftest import Bench

# The first run on a machine installs the tap.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

# More than the 10,000 records after which this tap says where it is.
ROWS = 12_000
FAILED = Statement(
    "test_failed_job",
    "SELECT error_code, errors FROM jobs WHERE group_id = $1 AND error_code IS NOT NULL",
    "relaxed",
)
SCHEMA = {"type": "object", "properties": {"id": {"type": "integer"}, "name": {"type": ["string", "null"]}}}


@pytest.fixture(scope="module")
def tap() -> list[str]:
    return components.tap_postgres()


@pytest.fixture
async def shop(connection: "asyncpg.Connection[asyncpg.Record]") -> AsyncIterator["asyncpg.Connection[asyncpg.Record]"]:
    """A table beside Paddock's own, in a schema that the tap is told of."""
    await connection.execute("CREATE SCHEMA shop; CREATE TABLE shop.orders (id int PRIMARY KEY, name text)")
    await connection.execute("INSERT INTO shop.orders SELECT i, 'order ' || i FROM generate_series(1, $1::int) i", ROWS)
    yield connection
    await connection.execute("DROP SCHEMA shop CASCADE")


def source(bench: Bench, tap: list[str], dsn: str, *, method: str, database: str | None = None, **more: Any) -> None:
    parts = urlsplit(dsn)
    query = {name: values[0] for name, values in parse_qs(parts.query).items()}
    key = {"replication-key": "id"} if method == "INCREMENTAL" else {}
    metadata = {"inclusion": "available", "selected": True, "replication-method": method, **key}
    metadata |= {"schema-name": "shop", "table-key-properties": ["id"]}
    stream = {
        "tap_stream_id": "shop-orders",
        "stream": "shop-orders",
        "table_name": "orders",
        "key_properties": ["id"],
        "replication_method": method,
        **({"replication_key": "id"} if key else {}),
        "schema": SCHEMA,
        "metadata": [
            {"breadcrumb": [], "metadata": metadata},
            *(
                {"breadcrumb": ["properties", name], "metadata": {"inclusion": "available", "selected": True}}
                for name in ("id", "name")
            ),
        ],
    }
    catalog = bench.folder / "catalog.json"
    catalog.write_text(json.dumps({"streams": [stream]}))
    at = f"host={query.get('host', parts.hostname)}&port={query.get('port', parts.port or 5432)}"
    # The tap wants a host and a password to be named; where the server really is stands behind the question mark.
    url = f"postgresql+psycopg2://{parts.username}:none@localhost/{database or parts.path[1:]}?{at}"
    bench.sources["shop"] = {
        "command": tap,
        "protocol": "singer",
        "catalog": str(catalog),
        "config": {"sqlalchemy_url": url, "filter_schemas": ["shop"]},
        **more,
    }
    bench._configure()


async def ids(bench: Bench) -> list[int]:
    return [json.loads(row["data"])["id"] for row in await bench.rows("shop")]


def code_of(run: Run) -> str:
    assert run.error is not None
    return str(run.error["code"])


async def test_an_incremental_stream_is_published_and_the_next_run_goes_on(
    bench: Bench, tap: list[str], dsn: str, shop: "asyncpg.Connection[asyncpg.Record]", monkeypatch: pytest.MonkeyPatch
) -> None:
    """Past the bound the tap is stopped by SIGTERM at its first STATE, which it answers with exit 0: not the end."""
    monkeypatch.setattr(tapping, "MOST_BATCHES", 2)
    source(bench, tap, dsn, method="INCREMENTAL", batch_size=5_000)
    run = await bench.run("shop")
    assert (run.status, run.error) == ("completed", None)
    fetches = await shop.fetchval(
        "SELECT count(*) FROM job_history WHERE kind = 'run_ingester' AND status = 'completed' AND group_id = $1",
        run.group_id,
    )
    assert fetches > 1, "it was stopped at a state, and went on from there"
    found = await ids(bench)
    assert sorted(set(found)) == list(range(1, ROWS + 1)), "nothing is missing"
    assert len(found) - len(set(found)) <= fetches, "the record at each bookmark comes again, as a newer version"
    session = json.loads(await runs.committed_session(bench.core.db, "shop") or "null")
    assert session["bookmarks"]["shop-orders"]["replication_key_value"] == ROWS

    await shop.execute("INSERT INTO shop.orders VALUES ($1, NULL)", ROWS + 1)
    again = await bench.run("shop")
    assert again.status == "completed"
    assert (await ids(bench))[len(found) :] == [ROWS, ROWS + 1]


async def test_a_full_table_is_fetched_whole_though_its_state_is_no_position(
    bench: Bench, tap: list[str], dsn: str, shop: "asyncpg.Connection[asyncpg.Record]", monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its one STATE says nothing: stopped there once, the tap begins anew, and is not stopped at the same STATE again."""
    monkeypatch.setattr(tapping, "MOST_BATCHES", 2)
    source(bench, tap, dsn, method="FULL_TABLE", batch_size=5_000)
    run = await bench.run("shop")
    assert (run.status, run.next_batch, run.error) == ("completed", 2 + 3, None)
    found = await ids(bench)
    assert found[-ROWS:] == list(range(1, ROWS + 1)), "what is newest is the whole table"


async def test_a_wrong_database_fails_and_publishes_nothing(bench: Bench, tap: list[str], dsn: str) -> None:
    source(bench, tap, dsn, method="INCREMENTAL", database="no_such_database")
    run = await bench.start("shop")
    async with bench.worker():
        job = await _failed_once(bench, run)
    assert job["error_code"] == "command_failed"
    assert "no_such_database" in job["errors"], "the last lines of its log stay with the failure"
    assert await bench.rows("shop") == []


async def _failed_once(bench: Bench, run: Run) -> dict[str, Any]:
    """Another code of an ingester is tried again, three times at most: here the first is enough."""
    async with asyncio.timeout(60):
        while True:
            row = await bench.core.db.fetchrow(FAILED, run.group_id)
            if row is not None:
                return dict(row)
            await asyncio.sleep(0.05)  # it is a row of the database that comes


@pytest.mark.long
async def test_airbytes_faker_is_read_to_its_end(bench: Bench) -> None:
    faker = components.airbyte_source_faker()
    streams = [
        {
            "stream": {"name": name, "json_schema": {}, "supported_sync_modes": ["full_refresh", "incremental"]},
            "sync_mode": "incremental",
            "destination_sync_mode": "append",
            "primary_key": [["id"]],
        }
        for name in ("users", "products")
    ]
    catalog = bench.folder / "catalog.json"
    catalog.write_text(json.dumps({"streams": streams}))
    settings = {"command": faker, "protocol": "airbyte", "catalog": str(catalog)}
    bench.sources["fake"] = {**settings, "config": {"count": 200, "seed": 1, "parallelism": 1}}
    bench._configure()
    run = await bench.run("fake")
    assert (run.status, run.error) == ("completed", None)
    rows = await bench.rows("fake")
    assert sum(row["stream"] == "users" for row in rows) == 200
    session = json.loads(await runs.committed_session(bench.core.db, "fake") or "null")
    assert {one["stream"]["stream_descriptor"]["name"] for one in session} >= {"users"}
    bench.sources["fake"] = {**settings, "config": {"count": "many"}}
    bench._configure()
    failed = await bench.run("fake", begin="start")
    assert (failed.status, code_of(failed)) == ("failed", "config_error")
