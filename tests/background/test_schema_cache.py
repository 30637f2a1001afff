"""`schema_cache`: what engines have, read by a worker, merged, found again; and who learns of it."""

import asyncio
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from uuid import UUID, uuid4

import asyncpg
import httpx2
import orjson
import pytest
from structlog.testing import capture_logs

from paddock.background import gauges, schema_cache
from paddock.background.ticks import Budget, GiveBack
from paddock.config import Config
from paddock.config.values import NO_STORE
from paddock.engines.registry import settings_from
from paddock.exports.model import MetadataPayload
from paddock.exports.resources import ExportResources
from paddock.exports.schema import merging, reading, service
from paddock.jobs import wire
from paddock.jobs.core import Core
from paddock.jobs.errors import StaleAttempt
from paddock.jobs.model import AttemptId, JobId, NewJob
from paddock.jobs.turn import Turn
from paddock.pass_metrics import pass_metrics
from paddock.storage.store import open_store
from paddock.web.frame import REGIONS_HEADER
from tests.api.conftest import Clients
from tests.background.refreshing import refreshed
from tests.background.ticking import tick_of
from tests.conftest import DatabaseClock
from tests.engines.postgres.conftest import PASSWORD, Shop

ODD = '<b onclick="x">%_\'"\\ שלום'


@pytest.fixture(scope="session")
def shops() -> Iterator[Shop]:
    server = Shop()
    yield server
    server.close()


@pytest.fixture
async def shop(shops: Shop, monkeypatch: pytest.MonkeyPatch) -> str:
    name = f"shop_{uuid4().hex[:8]}"
    monkeypatch.setenv("SHOP_PASSWORD", PASSWORD)
    dsn = await shops.create_database(name)
    connection = await asyncpg.connect(dsn)
    try:
        await connection.execute(
            f"""
            CREATE TABLE orders (order_id bigint, placed timestamptz);
            CREATE TABLE "Orders" (x int);
            CREATE TABLE old_orders (order_id bigint);
            CREATE SCHEMA "it's";
            CREATE TABLE "it's"."{ODD.replace('"', '""')}" ("{"n" * 60}" numeric(10, 2));
            """
        )
        await connection.execute(
            """
            GRANT USAGE ON SCHEMA "it's", public TO reader;
            GRANT SELECT ON ALL TABLES IN SCHEMA "it's", public TO reader;
            ALTER DEFAULT PRIVILEGES GRANT SELECT ON TABLES TO reader;
            """
        )
    finally:
        await connection.close()
    return dsn


@pytest.fixture
def config(tmp_path: Path, shops: Shop, shop: str) -> Config:
    (tmp_path / "roots").mkdir()
    tables: dict[str, dict[str, Any]] = {
        "shop": {
            "type": "postgres",
            "url": f"postgresql://reader@127.0.0.1:{shops.port}/{urlsplit(shop).path[1:]}",
            "password_env": "SHOP_PASSWORD",
        },
        "warehouse": {"type": "trino", "url": "https://trino.example", "catalog": "hive"},
        "duckdb": {"type": "duckdb", "roots": [str(tmp_path / "roots")]},
    }
    return Config(object_store=str(tmp_path / "store"), data=tmp_path, engines=tables)


async def search(client: httpx2.AsyncClient, q: str, **more: str) -> list[str]:
    answer = await client.get("/api/schema/search", params={"q": q, **more})
    assert answer.status_code == 200, answer.text
    return [match["table"] for match in answer.json()["data"]]


async def test_what_an_engine_has_is_read_merged_and_found(
    core: Core, config: Config, shop: str, ada: httpx2.AsyncClient
) -> None:
    before = pass_metrics().schema_refreshes("success")._value.get()
    found = await refreshed(core, config)
    assert (found["engines_refreshed"], found["engines_skipped"]) == (2, 1), "no role for the warehouse"
    assert found["tables_written"] == 4
    assert pass_metrics().schema_refreshes("success")._value.get() == before + 2

    assert await search(ada, "ord") == ["Orders", "orders", "old_orders"], "those that begin so first"
    assert await search(ada, "order_id", **{"in": "columns"}) == ["old_orders", "orders"]
    for part in ("%_", "שלום", "onclick", "'\""):
        assert await search(ada, part) == [ODD], part
    assert await search(ada, "zz") == []
    assert (await ada.get("/api/schema/search", params={"q": "o"})).status_code == 422

    await gauges.sample(core)
    entries = pass_metrics().schema_entries
    assert [entries(kind)._value.get() for kind in ("table", "column")] == [4, 5]
    stats = {one["engine"]: one for one in (await ada.get("/api/schema/stats")).json()["data"]}
    assert "warehouse" not in stats
    assert (stats["shop"]["stale"], stats["shop"]["catalogs"][0]["tables"]) == (False, 4)


async def test_the_same_refresh_again_writes_nothing_and_changes_are_followed(
    core: Core, config: Config, shop: str, ada: httpx2.AsyncClient
) -> None:
    await refreshed(core, config)
    again = await refreshed(core, config, by_hand=True)
    assert (again["tables_written"], again["tables_deleted"]) == (0, 0)
    connection = await asyncpg.connect(shop)
    try:
        await connection.execute(
            """DROP TABLE old_orders; ALTER TABLE orders ADD total numeric; CREATE TABLE customers (); DROP SCHEMA "it's" CASCADE"""
        )
    finally:
        await connection.close()
    changed = await refreshed(core, config, by_hand=True, engine="shop")
    assert (changed["tables_written"], changed["tables_deleted"]) == (2, 2)
    assert await search(ada, "ord") == ["Orders", "orders"]
    assert await search(ada, "cust") == ["customers"], "it has no columns, and is there"
    assert await search(ada, "total", **{"in": "columns"}) == ["orders"]


async def test_what_is_fresh_is_not_read_again_by_the_clock(core: Core, config: Config, clock: DatabaseClock) -> None:
    assert (await refreshed(core, config))["engines_refreshed"] == 2
    assert (await refreshed(core, config))["engines_refreshed"] == 0
    await clock.advance(minutes=24 * 60)
    assert (await refreshed(core, config))["engines_refreshed"] == 2


async def test_the_pass_of_the_next_day_reads_again_however_long_the_last_reading_took(
    core: Core, config: Config, clock: DatabaseClock
) -> None:
    await refreshed(core, config)
    async with core.db.transaction() as tx:
        await tx.execute("UPDATE schema_engines SET refreshed_at = refreshed_at + interval '5 hours'")
    await clock.advance(
        minutes=24 * 60, seconds=-1
    )  # a pass begins some moments after it was due, one more than the other
    assert (await refreshed(core, config))["engines_refreshed"] == 2


async def test_an_engine_that_takes_long_keeps_no_other_waiting(
    core: Core, config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first of them ends only when the other one has been merged."""
    whole, merged = reading.Reading.whole, asyncio.Event()

    async def waits(self: reading.Reading) -> dict[str, Any]:
        if self.engine.name == "duckdb":
            await merged.wait()
        return await whole(self)

    async def sees(state: dict[str, Any]) -> None:
        if "shop" in state["ended"]:
            merged.set()

    monkeypatch.setattr(reading.Reading, "whole", waits)
    assert (await refreshed(core, config, save=sees))["engines_refreshed"] == 2


class Killed(BaseException):
    """The replica died here. In whichever task: a KeyboardInterrupt would end the loop."""


async def test_a_refresh_of_all_by_hand_that_is_given_back_goes_on_with_those_that_have_not_ended(
    core: Core, config: Config
) -> None:
    saved: list[dict[str, Any]] = []

    async def dies(state: dict[str, Any]) -> None:
        saved.append(state)
        if state["ended"]:
            raise Killed

    with pytest.raises(Killed):
        await refreshed(core, config, save=dies, by_hand=True)
    assert len(saved[-1]["ended"]) == 1
    assert (await refreshed(core, config, saved=saved[-1], by_hand=True))["engines_refreshed"] == 1


async def test_one_that_failed_before_a_pass_was_given_back_fails_it_still(core: Core, config: Config) -> None:
    with pytest.raises(schema_cache.RefreshFailed, match=r"^Could not be read: shop\.$"):
        await refreshed(core, config, saved={"ended": {"shop": False}}, by_hand=True)


async def test_a_reading_under_earlier_settings_is_stopped_and_never_taken_over(core: Core, config: Config) -> None:
    old = NewJob("metadata", {"engine": "shop", "skip": []}, role="people")
    [earlier] = (await core.submit([old], public=False)).jobs
    refresh = schema_cache.Refresh(await tick_of(core, config=config))
    wanted = merging.ReadAs("finance", ("shop.secret",))
    job = await refresh._begun("shop", wanted)
    assert (job.role, job.payload["skip"], job.ended) == ("finance", ["shop.secret"], False)
    again = await refresh._begun("shop", wanted)
    assert again.id == job.id
    ended = await core.job(earlier.id)
    assert ended is not None
    assert ended.status == "cancelled"


async def test_a_cleanup_that_holds_the_engines_lock_is_waited_for_and_taken_for_no_reading(
    core: Core, config: Config
) -> None:
    [cleanup] = (await core.submit([NewJob("metadata", {"engine": "shop", "skip": []})], public=False)).jobs
    async with core.db.transaction() as tx:
        await tx.execute("UPDATE jobs SET cleanup_of = $2 WHERE id = $1", cleanup.id, uuid4())
    impatient = await tick_of(core, config=config, budget=Budget(timedelta(0)))
    with pytest.raises(schema_cache.RefreshFailed, match="cleanup"):
        await schema_cache.Refresh(impatient)._begun("shop", merging.ReadAs())
    left = await core.job(cleanup.id)
    assert left is not None
    assert left.status == "pending", "it was not cancelled"
    async with core.db.transaction() as tx:
        await tx.execute("DELETE FROM jobs WHERE id = $1", cleanup.id)
    job = await schema_cache.Refresh(await tick_of(core, config=config))._begun("shop", merging.ReadAs())
    assert job.cleanup_of is None


async def test_what_a_control_plane_of_the_version_before_has_merged_is_there_with_its_catalog(
    core: Core, config: Config, ada: httpx2.AsyncClient
) -> None:
    """It knows no rows for catalogs."""

    async def told() -> tuple[Any, Any, Any]:
        counts = await core.db.fetchrow(merging.SQL["counts"])
        assert counts is not None
        stats = {one["engine"]: one for one in (await ada.get("/api/schema/stats")).json()["data"]}
        names = (await ada.get("/api/engines/shop/browse")).json()["data"]
        return dict(counts), stats["shop"], (names["names"], names["from"])

    await refreshed(core, config)
    before = await told()
    assert before[0]["catalog"] == 2, "of shop and duckdb"
    assert len(before[1]["catalogs"]) == 1
    async with core.db.transaction() as tx:
        await tx.execute("DELETE FROM schema_catalogs")
    assert await told() == before


async def test_what_was_read_as_somebody_else_goes_before_the_first_page(
    core: Core, config: Config, ada: httpx2.AsyncClient
) -> None:
    """A schema that fails under the new role would keep what the old one saw."""

    async def ours(_tx: object) -> None: ...

    await refreshed(core, config)
    assert await merging.begin(core.db, "shop", merging.ReadAs(), ours) is None
    assert len(await search(ada, "ord")) == 3
    assert await merging.begin(core.db, "shop", merging.ReadAs("finance"), ours) == 4
    assert await merging.begin(core.db, "shop", merging.ReadAs(), ours) == 0
    assert await search(ada, "ord") == []


async def test_a_catalog_that_fails_at_its_first_reading_is_seen_to_have_failed(
    core: Core, config: Config, ada: httpx2.AsyncClient, tmp_path: Path
) -> None:
    async def ours(_tx: object) -> None: ...

    await refreshed(core, config)
    store, job = open_store(str(tmp_path / "pages")), uuid4()
    page: dict[str, Any] = {
        "catalog": "hive",
        "schema": None,
        "after": "",
        "until": None,
        "tables": [],
        "error": "It is away.",
    }
    await store.put("page.json", orjson.dumps(page))
    assert (await merging.merge_page(core.db, store, "shop", job, "page.json", ours)).failed_schemas == 1
    stats = {one["engine"]: one for one in (await ada.get("/api/schema/stats")).json()["data"]}
    [hive, _] = sorted(stats["shop"]["catalogs"], key=lambda catalog: catalog["catalog"] != "hive")
    assert (hive["errors"], hive["as_of"], hive["stale"], hive["tables"]) == (["It is away."], None, True, 0)
    catalogs = (await ada.get("/api/engines/shop/browse")).json()["data"]["names"]
    assert "hive" in catalogs
    await merging.drop_gone_schemas(core.db, "shop", uuid4(), ours)
    assert (await core.db.fetch(merging.SQL["catalogs"], "shop")) == []


@pytest.mark.parametrize(
    ("changes", "store", "reason"),
    [
        ({"metadata_role": "finance"}, True, None),
        ({}, True, "no_role"),
        ({"metadata_role": "finance", "impersonate": True}, True, "impersonation"),
        ({"metadata_role": "finance"}, False, "no_store"),
        ({"requires_role": False}, True, None),
    ],
)
def test_why_an_engine_is_not_cached(changes: dict[str, Any], store: bool, reason: str | None, tmp_path: Path) -> None:
    warehouse = {"type": "trino", "url": "https://trino.example", "catalog": "hive", **changes}
    config = Config(engines={"warehouse": warehouse}, object_store=str(tmp_path) if store else NO_STORE)
    why = service.why_not_cached(config, settings_from(config)["warehouse"])
    assert (None if why is None else why[0]) == reason


async def test_operators_see_which_engines_are_left_out_and_why(
    core: Core, config: Config, ada: httpx2.AsyncClient, grace: httpx2.AsyncClient
) -> None:
    async def told(client: httpx2.AsyncClient) -> dict[str, Any]:
        return {one["engine"]: one for one in (await client.get("/api/schema/stats")).json()["data"]}

    left_out = (await told(grace))["warehouse"]
    assert (left_out["left_out"], left_out["note"], left_out["catalogs"]) == (
        "no_role",
        "The engine needs a role, and metadata_role names none.",
        [],
    )
    assert "warehouse" not in await told(ada)


async def test_a_failed_refresh_keeps_the_cache_and_fails_the_pass(
    core: Core, config: Config, ada: httpx2.AsyncClient
) -> None:
    await refreshed(core, config)
    broken = config.model_copy(
        update={
            "engines": {
                **config.engines,
                "shop": {
                    "type": "postgres",
                    "url": "postgresql://nobody@127.0.0.1/x",
                    "password_env": "NO_SUCH_VARIABLE_HERE",
                },
            }
        }
    )
    failed = pass_metrics().schema_refreshes("failed")._value.get()
    with pytest.raises(schema_cache.RefreshFailed, match="shop"):
        await refreshed(core, broken, by_hand=True, engine="shop")
    assert pass_metrics().schema_refreshes("failed")._value.get() == failed + 1
    assert "orders" in await search(ada, "ord")


async def test_a_reading_that_no_worker_takes_is_cancelled_and_the_pass_fails(
    core: Core, config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schema_cache, "CLAIMED_WITHIN", -1.0)
    takes_nothing = wire.Register(worker_id="idle", version="test", kinds=["metadata"], slots=1)
    await core.link().register(takes_nothing)
    with pytest.raises(schema_cache.RefreshFailed, match="shop"):
        await schema_cache.run(await tick_of(core, config=config, by_hand=True, engine="shop"))
    async with core.db.transaction() as tx:
        assert await tx.fetchval("SELECT status FROM job_history WHERE kind = 'metadata'") == "cancelled"
        note = await tx.fetchval("SELECT note FROM schema_engines WHERE engine = 'shop'")
    assert note == "No worker took the reading within 10 minutes."


async def test_without_a_worker_an_engine_is_skipped_and_looked_at_again_soon(core: Core, config: Config) -> None:
    skipped = pass_metrics().schema_refreshes("skipped")._value.get()
    first = await tick_of(core, config=config)
    with capture_logs() as logged:
        await schema_cache.run(first)
    assert first.found == {"engines_skipped": 3}
    told = {line["engine"]: line["reason"] for line in logged if line["event"] == "schema_cache_refresh_skipped"}
    assert told == {"shop": "no_worker", "duckdb": "no_worker", "warehouse": "no_role"}
    assert pass_metrics().schema_refreshes("skipped")._value.get() == skipped + 3
    second = await tick_of(core, config=config, notes=first.notes)
    await schema_cache.run(second)
    assert (first.again_in, second.again_in) == (timedelta(seconds=5), timedelta(seconds=10))
    async with core.db.transaction() as tx:
        assert await tx.fetchval("SELECT count(*) FROM jobs WHERE kind = 'metadata'") == 0, "nothing waits for nobody"
        note = await tx.fetchval("SELECT note FROM schema_engines WHERE engine = 'duckdb'")
    assert note == "No live worker could read it: start one (`paddock worker`)."

    assert (await refreshed(core, config, notes=first.notes))["engines_refreshed"] == 2
    assert first.notes == {}, "the next one without a worker is the first again"


async def test_names_that_hold_what_separates_them_stay_themselves(core: Core, tmp_path: Path) -> None:
    store = open_store(str(tmp_path / "pages"))
    tables = [
        ["none", [], [], "00"],
        ["empty", [""], ["integer"], "01"],
        ["odd", ["a\x01b", "\x02", "\n"], ["x", "", "y"], "02"],
    ]
    page = {"catalog": "c", "schema": "s", "after": "", "until": None, "tables": tables, "error": None}
    await store.put("page.json", orjson.dumps(page))

    async def ours(_tx: object) -> None: ...

    merged = await merging.merge_page(core.db, store, "shop", uuid4(), "page.json", ours)

    assert merged.written == 3
    for name, columns, types, _ in tables:
        row = await core.db.fetchrow(merging.SQL["table"], "shop", "c", "s", name)
        assert row is not None
        assert (row["columns"], row["types"]) == (columns, types)


class Killing:
    """The control plane of a reading whose worker is killed at its n-th save."""

    def __init__(self, survives: int) -> None:
        self.left = survives
        self.saved: dict[str, Any] = {}

    async def save(self, state: dict[str, Any], *, progress: bool) -> None:
        if not self.left:
            raise KeyboardInterrupt
        self.left -= 1
        self.saved = state

    def save_blocking(self, state: dict[str, Any], *, progress: bool) -> None:
        raise AssertionError("it does not block")

    def report(self, progress: dict[str, Any]) -> None: ...

    def log(self, level: str, message: str, fields: Any) -> None: ...


async def read_by(killing: Killing, resources: ExportResources) -> dict[str, Any]:
    turn = Turn(
        id=JobId(UUID(int=1)),
        attempt_id=AttemptId(UUID(int=2)),
        kind="metadata",
        payload=MetadataPayload(engine="shop"),
        saved=killing.saved or None,
        owner="paddock",
        link=killing,
    )
    return await reading.Reading(turn, resources, resources.engines["shop"]).whole()


async def test_a_worker_that_is_killed_anywhere_while_it_reads_repeats_one_schema_at_most(config: Config) -> None:
    resources = ExportResources(config)

    async def pages(result: dict[str, Any]) -> list[Any]:
        keys = [f"{result['prefix']}/{n:06}.json" for n in range(result["pages"])]
        return [orjson.loads(await resources.store.read(key)) for key in keys]

    try:
        whole = await pages(await read_by(Killing(100), resources))
        assert [page["schema"] for page in whole] == ["it's", "public"]
        for survives in range(3):
            first = Killing(survives)
            with pytest.raises(KeyboardInterrupt):
                await read_by(first, resources)
            heir = Killing(100)
            heir.saved = first.saved
            assert await pages(await read_by(heir, resources)) == whole, survives
    finally:
        await resources.engines.close()


async def test_a_pass_that_died_while_merging_goes_on(core: Core, config: Config, ada: httpx2.AsyncClient) -> None:
    saved: list[dict[str, Any]] = []

    async def dies(state: dict[str, Any]) -> None:
        saved.append(state)
        if state["merging"]:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        await refreshed(core, config, save=dies, by_hand=True, engine="shop")
    job = await core.job(JobId(UUID(saved[-1]["jobs"]["shop"])))
    assert job is not None
    assert job.status == "completed"
    found = await refreshed(core, config, saved=saved[-1], by_hand=True, engine="shop")
    assert found["engines_refreshed"] == 1
    assert await search(ada, "old_") == ["old_orders"]


async def test_a_replica_that_lost_its_pass_merges_nothing_and_deletes_nothing(
    core: Core, config: Config, ada: httpx2.AsyncClient
) -> None:
    """It would put an old reading over a newer one, and take away what that had seen."""
    await refreshed(core, config)

    async def lost(_tx: object) -> None:
        raise StaleAttempt

    with pytest.raises(StaleAttempt):
        await refreshed(core, config, still_ours=lost, by_hand=True, engine="shop")
    with pytest.raises(StaleAttempt):
        await merging.drop_gone_schemas(core.db, "shop", uuid4(), lost)
    assert await search(ada, "ord") == ["Orders", "orders", "old_orders"]
    assert {row["status"] for row in await core.db.fetch(merging.SQL["engines"]) if row["engine"] == "shop"} == {
        "success"
    }


async def test_a_pass_whose_process_stops_gives_its_merge_back(
    core: Core, config: Config, ada: httpx2.AsyncClient
) -> None:
    async def then_stops(state: dict[str, Any]) -> None:
        if state["merging"]:
            core.claims.closing.set()

    with pytest.raises(GiveBack):
        await refreshed(core, config, save=then_stops, by_hand=True, engine="shop")
    core.claims.closing.clear()
    found = await refreshed(core, config, by_hand=True, engine="shop")
    assert found["engines_refreshed"] == 1


async def test_browse_answers_from_the_cache_until_it_is_stale(
    core: Core, config: Config, clock: DatabaseClock, ada: httpx2.AsyncClient
) -> None:
    await refreshed(core, config)
    catalogs = (await ada.get("/api/engines/shop/browse")).json()["data"]
    assert catalogs["from"] == "cache"
    [catalog] = catalogs["names"]
    schemas = (await ada.get("/api/engines/shop/browse", params={"catalog": catalog})).json()["data"]
    assert schemas["names"] == ["it's", "public"]
    at = {"catalog": catalog, "schema": "public"}
    tables = (await ada.get("/api/engines/shop/browse", params=at)).json()["data"]
    assert (tables["names"], tables["from"]) == (["Orders", "old_orders", "orders"], "cache")
    assert "as_of" in tables
    columns = (await ada.get("/api/engines/shop/browse", params={**at, "table": "orders"})).json()["data"]
    assert columns["columns"] == [
        {"name": "order_id", "native": "bigint"},
        {"name": "placed", "native": "timestamp with time zone"},
    ]
    plane: Any = type("Plane", (), {"core": core, "config": config})
    caller: Any = type("Caller", (), {"may_use": lambda self, *_: True})()
    await clock.advance(minutes=24 * 60 + 1)
    assert await service.browse(plane, caller, "shop", None, None, None, None) is None, "stale: it is asked live"


async def test_who_may_not_use_the_engine_or_its_role_learns_nothing(
    core: Core, config: Config, clients: Clients
) -> None:
    await refreshed(core, config)
    async with core.db.transaction() as tx:
        await tx.execute("UPDATE schema_tables SET engine = 'warehouse'")
        await tx.execute("UPDATE schema_schemas SET engine = 'warehouse'")
        await tx.execute("UPDATE schema_catalogs SET engine = 'warehouse'")
        await tx.execute("UPDATE schema_engines SET refreshed_at = paddock_now() WHERE engine = 'warehouse'")
    settings = config.engines["warehouse"]
    settings["metadata_role"] = "finance"
    await clients.token("eve", "analyst", engines=["warehouse"], engine_roles=["people"])
    await clients.token("fay", "analyst", engines=["warehouse"], engine_roles=["finance"])
    await clients.token("gus", "analyst", engines=["duckdb"], engine_roles=["finance"])
    # It was read as nobody: under another role than the one that is configured now.
    fay = await clients("fay")
    assert await search(fay, "ord") == []
    assert [one["catalogs"] for one in (await fay.get("/api/schema/stats")).json()["data"]] == [[]]
    caller: Any = type("Caller", (), {"may_use": lambda self, *_: True})()
    plane: Any = type("Plane", (), {"core": core, "config": config})
    assert await service.browse(plane, caller, "warehouse", None, None, None, "finance") is None
    row = (await service.cached_engines(core.db))["warehouse"]
    tick = await tick_of(core, config=config)
    assert schema_cache._is_due(tick, row, settings_from(config)["warehouse"]), "at once"
    async with core.db.transaction() as tx:
        await tx.execute("UPDATE schema_engines SET role = 'finance' WHERE engine = 'warehouse'")
    assert await service.browse(plane, caller, "warehouse", None, None, None, "finance") is not None
    nobody: Any = type(
        "Caller", (), {"may_use": lambda self, grant, name: (grant, name) != ("engine_roles", "finance")}
    )()
    assert await service.browse(plane, nobody, "warehouse", None, None, None, None) is None, "the engine itself answers"
    for name, names in (("eve", []), ("fay", ["Orders", "orders", "old_orders"]), ("gus", [])):
        client = await clients(name)
        assert await search(client, "ord") == names, name
        stats = (await client.get("/api/schema/stats")).json()["data"]
        assert [one["engine"] for one in stats if one["catalogs"]] == (["warehouse"] if names else []), name


async def test_a_refresh_is_a_trigger_of_operators(grace: httpx2.AsyncClient, ada: httpx2.AsyncClient) -> None:
    asked = {"engine": "shop", "reason": "new tables"}
    assert (await ada.post("/api/schema/refresh", json=asked)).status_code == 403
    unknown = await grace.post("/api/schema/refresh", json={**asked, "engine": "nonesuch"})
    assert unknown.status_code == 422
    assert "shop" in unknown.json()["error"]["message"]
    made = await grace.post("/api/schema/refresh", json=asked)
    assert made.status_code == 202
    assert made.json()["data"]["job_name"] == "schema_cache"


async def test_the_page_finds_odd_names_and_runs_none_of_them(
    core: Core, config: Config, app: Any, clients: Clients
) -> None:
    from tests.web.signed_in import BASE

    await refreshed(core, config)
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url=BASE) as client:
        await client.post("/sign-in", data={"token": clients.secrets["ada"]}, headers={"origin": BASE})
        page = (await client.get("/schema", params={"q": "onclick"})).text
        assert "<b onclick" not in page
        assert "&lt;b onclick" in page
        assert "Export this table" in page
        assert "Give 2 to" in (await client.get("/schema", params={"q": "x"})).text
        at = {"catalog": (await core.db.fetch(merging.SQL["catalogs"], "shop"))[0]["name"], "schema": "public"}
        columns = (await client.get("/engines/shop", params={**at, "table": "orders"})).text
        assert "order_id" in columns
        assert "table=orders&amp;live=true" in columns, "what a type becomes is known only to who asks the engine"


async def test_how_fresh_it_is_is_live_and_tells_operators_what_is_left_out(
    core: Core, config: Config, app: Any, clients: Clients
) -> None:
    from tests.web.signed_in import BASE

    await refreshed(core, config)
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url=BASE) as client:
        await client.post("/sign-in", data={"token": clients.secrets["grace"]}, headers={"origin": BASE})
        region = (await client.get("/schema", params={"q": "ord"}, headers={REGIONS_HEADER: "freshness"})).text
    assert "Not cached." in region
    assert "metadata_role names none" in region
    assert "Refresh shop" in region
    assert "Refresh warehouse" not in region
    assert "<h1" not in region, "the region alone"
