"""The schema cache of a real Trino: what a role sees, a schema that fails, one that hangs; the rest goes on."""

import asyncio
import shutil
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from prometheus_client import CollectorRegistry

from paddock.background import declared
from paddock.config import Config
from paddock.engines.engine import Query
from paddock.engines.trino.engine import TrinoEngine
from paddock.exports.schema import reading
from paddock.jobs.core import Core, CoreSettings, open_core
from paddock.jobs.kinds import Kinds
from paddock.known_kinds import all_kinds
from paddock.metrics import Metrics
from tests.background.refreshing import refreshed
from tests.trino.asking import alone, make_roles, make_schema
from tests.trino.conftest import MakeEngine
from tests.trino.server import TrinoServer

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

OTHERS = ["blackhole", "iceberg", "hive_s3", "system", "jmx"]
LARGE_TPCH = [f"tpch.sf{n}" for n in (1, 100, 300, 1000, 3000, 10000, 30000, 100000)]
ENDLESS = "SELECT 'a', 'b', 'c' FROM tpch.sf100.lineitem a, tpch.sf100.lineitem b WHERE a.partkey + b.partkey = -1"


def config_of(trino: TrinoServer, folder: Path, **changes: Any) -> Config:
    warehouse = {
        "type": "trino",
        "url": trino.url,
        "user": "lab",
        "requires_role": False,
        "catalog": "tpch",
        "metadata_skip": [*OTHERS, *LARGE_TPCH],
        **changes,
    }
    return Config(object_store=str(folder / "store"), data=folder, engines={"warehouse": warehouse})


@pytest.fixture
async def core(dsn: str, settings: CoreSettings) -> AsyncIterator[Core]:
    kinds = Kinds(all_kinds(Config()))
    async with open_core(dsn, kinds, settings, metrics=Metrics(CollectorRegistry())) as opened:
        await declared.at_start(opened, Config())
        yield opened


async def refresh(core: Core, config: Config) -> Counter[str]:
    """Of Trino alone: an engine for local files is always there."""
    return await refreshed(core, config, engine="warehouse", by_hand=True)


async def cached(core: Core, catalog: str, schema: str) -> dict[str, dict[str, str]]:
    """Table by table, its columns with their types."""
    async with core.db.transaction() as tx:
        rows = await tx.fetch(
            "SELECT name, columns, types FROM schema_tables WHERE catalog = $1 AND schema = $2", catalog, schema
        )
    return {row["name"]: dict(zip(row["columns"], row["types"], strict=True)) for row in rows}


async def errors(core: Core) -> dict[str, str]:
    async with core.db.transaction() as tx:
        rows = await tx.fetch("SELECT catalog, schema, error FROM schema_schemas WHERE error IS NOT NULL")
    return {f"{row['catalog']}.{row['schema']}": row["error"] for row in rows}


async def test_tables_that_come_change_and_go_are_followed(
    core: Core, trino: TrinoServer, engine: TrinoEngine, tmp_path: Path
) -> None:
    config = config_of(trino, tmp_path, metadata_skip=[*OTHERS, *LARGE_TPCH, "hive", "hivesec"])
    schema = f"cached_{uuid4().hex[:8]}"
    await make_schema(engine, f"memory.{schema}")
    for sql in ("orders (id bigint, placed timestamp(3))", '"odd %_ name" ("x\'y" varchar)', "gone (n integer)"):
        await engine.rows(f"CREATE TABLE memory.{schema}.{sql}", Query(""))

    found = await refresh(core, config)

    assert found["engines_refreshed"] == 1
    assert await cached(core, "memory", schema) == {
        "orders": {"id": "bigint", "placed": "timestamp(3)"},
        "odd %_ name": {"x'y": "varchar"},
        "gone": {"n": "integer"},
    }
    tiny = await cached(core, "tpch", "tiny")
    assert tiny.keys() == {"customer", "lineitem", "nation", "orders", "part", "partsupp", "region", "supplier"}
    assert list(tiny["region"].items()) == [
        ("regionkey", "bigint"),
        ("name", "varchar(25)"),
        ("comment", "varchar(152)"),
    ]
    assert await cached(core, "tpch", "sf1") == {}, "left out"

    await engine.rows(f"DROP TABLE memory.{schema}.gone", Query(""))
    await engine.rows(f"ALTER TABLE memory.{schema}.orders ADD COLUMN total double", Query(""))
    await refresh(core, config)

    again = await cached(core, "memory", schema)
    assert again.keys() == {"orders", "odd %_ name"}
    assert again["orders"]["total"] == "double"


async def test_what_the_role_does_not_see_is_not_cached(
    core: Core, trino: TrinoServer, engine_of: MakeEngine, tmp_path: Path
) -> None:
    """Trino lists the names of both tables. That it tells no column is all that sets apart the one that may not be read, so a
    table without columns is not cached."""
    schema, admin = f"cached_{uuid4().hex[:8]}", engine_of(user="admin", role_catalog="hivesec")
    query = Query("", role="admin")
    with alone(trino):
        await make_roles(admin)
    await make_schema(admin, f"hivesec.{schema}", query)
    for table in ("seen", "hidden"):
        await admin.rows(f"CREATE TABLE hivesec.{schema}.{table} AS SELECT 1 AS n", query)
    await admin.rows(f"GRANT SELECT ON hivesec.{schema}.seen TO ROLE exporter0", query)
    config = config_of(
        trino,
        tmp_path,
        requires_role=True,
        role_catalog="hivesec",
        metadata_role="exporter0",
        metadata_skip=[*OTHERS, "tpch", "memory", "hive"],
    )

    await refresh(core, config)

    listed = await engine_of(user="lab", role_catalog="hivesec").tables(Query("", role="exporter0"), "hivesec", schema)
    assert set(listed) == {"seen", "hidden"}
    assert await cached(core, "hivesec", schema) == {"seen": {"n": "integer"}}


async def test_a_schema_that_fails_keeps_what_is_known_and_the_rest_goes_on(
    core: Core, trino: TrinoServer, engine: TrinoEngine, tmp_path: Path
) -> None:
    bad, good = (f"cached_{word}_{uuid4().hex[:8]}" for word in ("a_bad", "b_good"))
    for schema in (bad, good):
        await make_schema(engine, f"hive.{schema}")
        await engine.rows(f"CREATE TABLE hive.{schema}.t (n integer)", Query(""))
    config = config_of(trino, tmp_path, metadata_skip=[*OTHERS, "tpch", "memory", "hivesec"])
    await refresh(core, config)
    assert await cached(core, "hive", bad) == {"t": {"n": "integer"}}
    try:
        for file in (trino.warehouse / "hive" / bad / "t").glob(".trinoSchema"):
            file.write_text("{ this is no table")
        await engine.rows(f"CREATE TABLE hive.{good}.later (n integer)", Query(""))

        found = await refresh(core, config)

        assert found["engines_refreshed"] == 1
        assert f"hive.{bad}" in await errors(core)
        assert await cached(core, "hive", bad) == {"t": {"n": "integer"}}, "kept"
        assert (await cached(core, "hive", good)).keys() == {"t", "later"}
    finally:
        shutil.rmtree(trino.warehouse / "hive" / bad)


async def test_a_schema_that_hangs_is_given_up_and_its_query_stopped(
    core: Core, trino: TrinoServer, engine: TrinoEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its time is cut short only once the names of the schemas are known: whatever else a busy machine does takes long."""
    asked, schemas = TrinoEngine.metadata_query, TrinoEngine.schemas
    marker = uuid4().hex

    def metadata_query(self: TrinoEngine, catalog: str, schema: str) -> str:
        return f"{ENDLESS} -- {marker}" if catalog == "memory" else asked(self, catalog, schema)

    async def two(self: TrinoEngine, query: Query, catalog: str) -> Sequence[str]:
        found = await schemas(self, query, catalog)
        monkeypatch.setattr(reading, "LONGEST_SCHEMA", 2.0 if catalog == "memory" else 300.0)
        return ["default"] if catalog == "memory" else [name for name in found if name == "tiny"]

    monkeypatch.setattr(TrinoEngine, "metadata_query", metadata_query)
    monkeypatch.setattr(TrinoEngine, "schemas", two)

    found = await refresh(core, config_of(trino, tmp_path, metadata_skip=[*OTHERS, "hive", "hivesec"]))

    assert found["schemas_failed"] == 1
    assert await errors(core) == {"memory.default": "No answer within 2 s."}
    assert "lineitem" in await cached(core, "tpch", "tiny")
    running = f"SELECT query_id FROM system.runtime.queries WHERE state NOT IN ('FINISHED', 'FAILED') AND query LIKE '%{marker[:16]}' || '{marker[16:]}'"
    async with asyncio.timeout(60):
        while await engine.rows(running, Query("")):  # noqa: ASYNC110  it is for Trino to stop it
            await asyncio.sleep(0.1)
