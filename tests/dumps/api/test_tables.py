"""A table that is not there is told at once, where the control plane can look; else the worker tells."""

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import asyncpg
import duckdb
import httpx2
import pytest

from paddock.config import Config
from paddock.dumps import looking
from paddock.dumps.settings import DumpSettings
from tests.dumps.api.conftest import Start, error

OWN = {"owners": ["ada"]}
UNKNOWN = (404, "unknown_table", "Table 't' does not exist.")


@pytest.fixture
def config(config: Config, tmp_path: Path, dsn: str) -> Config:
    with sqlite3.connect(tmp_path / "shop.db") as shop:
        shop.execute("PRAGMA journal_mode = wal")
        shop.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY)")
    shop.close()
    with duckdb.connect(str(tmp_path / "lake.duckdb")) as lake:
        lake.execute("CREATE TABLE orders (id INTEGER)")
    databases = {
        "shop": {"type": "sqlite", "path": str(tmp_path / "shop.db"), **OWN},
        "lake": {"type": "duckdb", "path": str(tmp_path / "lake.duckdb"), **OWN},
        "books": {"type": "postgres", "url": dsn, **OWN},
        "away": {"type": "postgres", "url": "postgresql://127.0.0.1:1/away", **OWN},
    }
    return config.with_settings(config.of(DumpSettings).model_copy(update={"databases": databases}))


@pytest.fixture
async def orders(connection: "asyncpg.Connection[asyncpg.Record]") -> None:
    await connection.execute("CREATE TABLE orders (id int)")


@pytest.fixture
def written(config: Config, tmp_path: Path) -> Iterator[None]:
    """Somebody has it open for writing, in a process of their own as far as locks go."""
    with duckdb.connect(str(tmp_path / "lake.duckdb")) as lake:
        lake.execute("INSERT INTO orders VALUES (1)")
        yield


async def asked(client: httpx2.AsyncClient, **body: Any) -> httpx2.Response:
    return await client.post("/export/dump", json={"async": True, **body})


@pytest.mark.usefixtures("orders")
@pytest.mark.parametrize("database", ["shop", "lake", "books"])
async def test_an_unknown_table_is_a_404_and_makes_no_job(ada: httpx2.AsyncClient, database: str) -> None:
    for body in ({"table": "t"}, {"tables": ["orders", "t"]}, {"excludeTables": ["t"]}):
        assert error(await asked(ada, database=database, **body)) == UNKNOWN
    assert (await ada.get("/export/jobs")).json()["result"] == []

    assert (await asked(ada, database=database, table="orders")).status_code == 202


@pytest.mark.usefixtures("written")
@pytest.mark.parametrize("database", ["lake", "away"])
async def test_where_only_a_worker_can_look_it_is_accepted(ada: httpx2.AsyncClient, database: str) -> None:
    assert (await asked(ada, database=database, table="t")).status_code == 202


async def test_a_database_that_does_not_answer_in_time_is_left_to_the_worker(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(looking, "SECONDS", 0.01)
    await start(table="t")
