"""What rounds of looks, ends of maintenance and the pass leave in the tables that are known."""

import asyncio
from datetime import timedelta
from typing import Any

import httpx2
import orjson
import pytest

from paddock.config import Config, ConfigError
from paddock.doctor import asking_workers
from paddock.doctor.findings import Finding
from paddock.engines.registry import settings_from
from paddock.jobs.core import Core
from paddock.maintenance import examining, passes
from paddock.maintenance.catalog_settings import CatalogSettings, catalogs_from
from paddock.maintenance.settings import MaintenanceSettings
from tests.api.conftest import Clients
from tests.conftest import DatabaseClock
from tests.maintenance.api.conftest import Played, line
from tests.reading.rows import run as run_sql

PATH = "/tables/sales/orders/maintenance?catalog=lake"


async def names(client: httpx2.AsyncClient) -> list[str]:
    return [table["name"] for table in (await client.get("/api/tables")).json()["data"]]


async def test_what_a_whole_round_did_not_see_is_gone(
    grace: httpx2.AsyncClient, played: Played, clock: DatabaseClock
) -> None:
    await played.seen(line("a"), line("b"))
    await clock.advance(minutes=60)
    await played.seen(line("b"), last=False)
    assert await names(grace) == ["a", "b"]
    await clock.advance(minutes=60)
    await played.seen(line("c"))
    assert await names(grace) == ["c"]


async def test_what_could_not_be_loaded_keeps_its_row_and_says_why(grace: httpx2.AsyncClient, played: Played) -> None:
    await played.seen(line())
    await played.seen(
        {"namespace": "sales", "name": "orders", "problem": "The store is away.", "code": "catalog_unavailable"}
    )
    found = (await grace.get("/api/tables/lake/sales/orders")).json()["data"]
    assert found["health"] == "unknown"
    assert found["problem"] == "The store is away."
    assert found["figures"]["data_files"] == 50


async def test_a_table_is_found_by_its_name_with_the_job_that_maintained_it(clients: Clients, played: Played) -> None:
    await played.seen(line("orders"), line("others"))
    grace = await clients("grace")
    job = (await grace.post(PATH, json={"actions": ["expire_snapshots"]})).json()["data"]
    for name, asked in (("grace", "lake.sales.orders"), ("grace", "sales.orders"), ("carol", "Lake.sales.ORDERS")):
        client = await clients(name)
        [one] = (await client.get("/api/search", params={"q": asked, "exactly": True})).json()["data"]
        assert one["id"] == "lake.sales.orders"
        assert one["job_id"] == (job["id"] if name == "grace" else None), "the job is somebody else's"
    for part in ("sales.o", "lake.o"):
        two = (await grace.get("/api/search", params={"q": part})).json()["data"]
        assert [one["name"] for one in two] == ["lake.sales.orders", "lake.sales.others"]
    assert (await (await clients("bob")).get("/api/search", params={"q": "orders"})).json()["data"] == []


async def test_a_round_that_failed_is_told_and_takes_nothing_away(
    grace: httpx2.AsyncClient, played: Played, core: Core
) -> None:
    await played.seen(line())
    await core.submit([passes.look_job("lake")], public=False)
    await (await played.claim("tables:lake")).finish("permanent")
    assert await names(grace) == ["orders"]
    [lake] = [each for each in (await grace.get("/api/catalogs")).json()["data"] if each["name"] == "lake"]
    assert lake["problem"] == "It broke."


OUTCOMES: list[dict[str, Any]] = [
    {
        "action": "rewrite_data_files",
        "outcome": "success",
        "message": "Done.",
        "files_before": 50,
        "files_after": 1,
        "details": {"rewritten_bytes": 10},
    },
    {"action": "expire_snapshots", "outcome": "success", "message": "Done.", "bytes_freed": 7, "alarms": ["ref_lost"]},
]


async def test_an_end_leaves_history_events_and_a_new_look(grace: httpx2.AsyncClient, played: Played) -> None:
    await played.seen(line())
    job = (await grace.post(PATH, json={"actions": ["rewrite_data_files", "expire_snapshots"]})).json()["data"]
    await (await played.claim("maintenance:lake")).finish(result={"outcomes": OUTCOMES})
    history = (await grace.get("/api/tables/lake/sales/orders/history")).json()["data"]
    assert [(each["action"], each["job_id"]) for each in history] == [
        ("expire_snapshots", job["id"]),
        ("rewrite_data_files", job["id"]),
    ]
    assert history[1]["files_before"] == 50
    events = [
        each for each in (await grace.get("/api/events")).json()["data"] if each["type"].startswith("maintenance.")
    ]
    assert {(each["type"], each["subject"]) for each in events} == {
        ("maintenance.completed", "table:lake.sales.orders"),
        ("maintenance.alarm", "table:lake.sales.orders"),
    }
    found = (await grace.get("/api/tables/lake/sales/orders")).json()["data"]
    assert found["maintained_at"] is not None
    await played.claim("tables:lake")


async def test_a_failed_end_keeps_what_was_done_before_it(grace: httpx2.AsyncClient, played: Played) -> None:
    await played.seen(line())
    await grace.post(PATH, json={"actions": ["rewrite_data_files", "expire_snapshots"]})
    attempt = await played.claim("maintenance:lake")
    await attempt.save({"outcomes": OUTCOMES[:1], "step": None})
    await attempt.finish("permanent")
    history = (await grace.get("/api/tables/lake/sales/orders/history")).json()["data"]
    assert [each["action"] for each in history] == ["rewrite_data_files"]
    assert (await grace.get("/api/tables/lake/sales/orders")).json()["data"]["failures"] == 1


async def test_what_a_cleanup_finds_comes_into_the_history_and_its_alarms_are_told(
    grace: httpx2.AsyncClient, played: Played
) -> None:
    """Of the action that was cut short: the job's own end could not know it."""
    await played.seen(line())
    job = (await grace.post(PATH, json={"actions": ["rewrite_data_files", "expire_snapshots"]})).json()["data"]
    attempt = await played.claim("maintenance:lake")
    await attempt.save({"outcomes": OUTCOMES[:1], "step": {"action": "expire_snapshots"}})
    await grace.post(f"/api/jobs/{job['id']}/cancel", json={})
    assert await attempt.release() == "cancelled"
    cut = {
        "action": "expire_snapshots",
        "outcome": "failed",
        "error": "cut_short",
        "message": "Cut.",
        "alarms": ["ref_lost"],
        "details": {"lost_refs": ["audit"]},
    }
    cleanup = await played.claim("maintenance:lake")
    assert await cleanup.finish(result={"outcomes": OUTCOMES[:1], "cut_short": [cut]}) == "accepted"

    history = (await grace.get("/api/tables/lake/sales/orders/history")).json()["data"]
    assert [(each["action"], each["outcome"], each["job_id"]) for each in history] == [
        ("expire_snapshots", "failed", job["id"]),
        ("rewrite_data_files", "success", job["id"]),
    ]
    alarms = [each for each in (await grace.get("/api/events")).json()["data"] if each["type"] == "maintenance.alarm"]
    assert [(each["subject"], each["data"]["alarm"], each["data"]["job_id"]) for each in alarms] == [
        ("table:lake.sales.orders", "ref_lost", job["id"])
    ]


async def test_what_an_engine_rewrote_because_we_told_it_to_is_nobody_elses(
    grace: httpx2.AsyncClient, played: Played
) -> None:
    await played.seen(line())
    await grace.post(PATH, json={"actions": ["rewrite_data_files"]})
    ended = {"action": "rewrite_data_files", "outcome": "success", "message": "", "details": {"snapshots": [2**62, 5]}}
    await (await played.claim("maintenance:lake")).finish(result={"outcomes": [ended]})
    await played.claim("tables:lake")

    async def note(*rewrites: list[object]) -> tuple[object, bool]:
        told = "Rewritten by others on 2 of the last 7 days."
        issue = {"code": "other_maintainer", "severity": "info", "evidence": told, "action": None}
        figures = {"other_maintainer": told, "foreign_rewrites": list(rewrites)}
        await played.seen(line(figures=figures, issues=[issue]))
        found = (await grace.get("/api/tables/lake/sales/orders")).json()["data"]
        assert "foreign_rewrites" not in found["figures"]
        return found["figures"].get("other_maintainer"), bool(found["issues"])

    assert await note([2**62, "2026-01-01"], [7, "2026-01-02"]) == (None, False)
    assert await note([6, "2026-01-01"], [5, "2026-01-02"], [7, "2026-01-03"]) == (
        "Rewritten by others on 2 of the last 7 days.",
        True,
    )


async def test_doctor_says_what_is_wrong_with_a_catalog_and_what_to_do(
    core: Core, config: Config, played: Played, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asking_workers, "PATIENCE", 60)
    worker = await played.worker()
    asking = asyncio.create_task(found_by_doctor(core, config))
    wrong = {"what": "table", "ok": False, "message": "Its login was refused.", "hint": "Correct the secrets."}
    good = [{"what": what, "ok": True, "message": f"{what} works.", "hint": None} for what in ("load", "list")]
    for _ in range(2):
        [attempt] = await worker.claim("tables:lake", "tables:swamp", limit=1, wait=30)
        findings = good if attempt.job.kind == "tables:lake" else [*good, wrong]
        await attempt.finish(result={"findings": findings})

    lake, swamp = await asking

    assert (lake.level, lake.message) == ("ok", "lake answers w: list works.")
    assert swamp.level == "broken"
    assert swamp.message == "swamp: table: Its login was refused. (asked by w)"
    assert swamp.what_to_do == "Correct the secrets."


async def test_doctor_says_that_nobody_has_a_catalog(core: Core, config: Config) -> None:
    found = await found_by_doctor(core, config)
    assert [finding.level for finding in found] == ["warning", "warning"]
    assert "no live worker offers tables:lake" in found[0].message


async def found_by_doctor(core: Core, config: Config) -> list[Finding]:
    return [finding async for finding in examining.catalogs(core, config)]


# The pass


async def test_the_pass_maintains_what_is_enabled_due_and_recommended_two_at_a_time(
    core: Core, config: Config, played: Played, clock: DatabaseClock
) -> None:
    switched_off = {"maintenance_enabled": {"value": False, "source": "paddock.maintenance_enabled"}}
    await played.seen(
        line("a"), line("b"), line("c"),
        line("elsewhere", "hr"),
        line("off", policy=switched_off),
        line("well", recommended=[]),
        line("others", figures={"other_maintainer": "Rewritten by others."}),
    )  # fmt: skip
    first = await passes.maintain_due(core, config)
    assert len(first["submitted"]) == 2
    assert set(first["submitted"]) < {"lake.sales.a", "lake.sales.b", "lake.sales.c"}
    assert await passes.maintain_due(core, config) == {"submitted": []}
    for _ in range(2):
        await (await played.claim("maintenance:lake")).finish(result={"outcomes": []})
    second = await passes.maintain_due(core, config)
    assert {*first["submitted"], *second["submitted"]} == {"lake.sales.a", "lake.sales.b", "lake.sales.c"}
    await (await played.claim("maintenance:lake")).finish(result={"outcomes": []})
    assert await passes.maintain_due(core, config) == {"submitted": []}
    await clock.advance(timedelta(hours=7))
    assert len((await passes.maintain_due(core, config))["submitted"]) == 2


async def test_after_failures_a_table_waits_twice_as_long_each_time(
    core: Core, config: Config, played: Played, clock: DatabaseClock, grace: httpx2.AsyncClient
) -> None:
    await played.seen(line())
    assert (await passes.maintain_due(core, config))["submitted"]
    await (await played.claim("maintenance:lake")).finish("permanent")
    await (await played.claim("maintenance:lake")).finish(result={})  # its cleanup, which holds the lock until here
    await clock.advance(timedelta(hours=7))
    assert await passes.maintain_due(core, config) == {"submitted": []}
    why = (await grace.get("/api/tables/lake/sales/orders")).json()["data"]["why_not_now"]
    assert "after 1 failures" in why
    await clock.advance(timedelta(hours=6))
    assert (await passes.maintain_due(core, config))["submitted"] == ["lake.sales.orders"]


async def test_the_pass_takes_the_longest_overdue_first_by_each_tables_own_cadence(
    core: Core, config: Config, played: Played, clock: DatabaseClock
) -> None:
    def wants(hours: int) -> dict[str, Any]:
        return {"policy": {"maintenance_cadence_hours": {"value": hours, "source": "paddock"}}}

    await played.seen(line("weekly", **wants(168)), line("daily", **wants(24)), line("hourly", **wants(1)))
    await run_sql(core.db, "UPDATE lake_tables SET maintained_at = paddock_now()")
    await clock.advance(timedelta(hours=200))
    assert (await passes.maintain_due(core, config))["submitted"] == ["lake.sales.hourly", "lake.sales.daily"]


async def test_orphans_are_removed_weekly_where_a_policy_wants_that_though_nothing_else_is_wrong(
    core: Core, config: Config, played: Played, clock: DatabaseClock, grace: httpx2.AsyncClient
) -> None:
    wanted: dict[str, Any] = {
        "policy": {"remove_orphans": {"value": True, "source": "paddock.remove_orphans"}},
        "recommended": [],
        "issues": [],
        "health": "healthy",
    }
    await played.seen(
        line(**wanted),
        line("kept", figures={"gc_disabled": True}, **wanted),
        line("empty", figures={"snapshots": 0}, **wanted),
    )
    found = (await grace.get("/api/tables/lake/sales/orders")).json()["data"]
    assert (found["why_not_now"], found["needs_maintenance"]) == (None, True)

    assert (await passes.maintain_due(core, config))["submitted"] == ["lake.sales.orders"]
    attempt = await played.claim("maintenance:lake")
    assert orjson.loads(bytes(attempt.job.payload))["actions"] == ["remove_orphan_files"]
    ended = {"action": "remove_orphan_files", "outcome": "success", "message": ""}
    await attempt.finish(result={"outcomes": [ended]})
    await clock.advance(timedelta(days=6))
    assert await passes.maintain_due(core, config) == {"submitted": []}
    await clock.advance(timedelta(days=1))
    assert (await passes.maintain_due(core, config))["submitted"] == ["lake.sales.orders"]


async def test_history_goes_after_ninety_days_and_tables_of_a_catalog_that_is_gone_after_seven(
    core: Core, config: Config, played: Played, clock: DatabaseClock, grace: httpx2.AsyncClient
) -> None:
    await played.seen(line())
    await grace.post(PATH, json={"actions": ["rewrite_data_files"]})
    await (await played.claim("maintenance:lake")).finish(result={"outcomes": OUTCOMES[:1]})
    await run_sql(core.db, "INSERT INTO lake_tables (catalog, namespace, name) VALUES ('pond', 'a', 'b')")
    await run_sql(core.db, "INSERT INTO lake_catalogs (catalog, seen_at) VALUES ('pond', paddock_now())")

    async def kept() -> tuple[int, ...]:
        await passes.maintain_due(core, config)
        counts = "(SELECT count(*) FROM table_actions), (SELECT count(*) FROM lake_tables)"
        [row] = await run_sql(core.db, f"SELECT {counts}, (SELECT count(*) FROM lake_catalogs WHERE catalog = 'pond')")
        return tuple(row)

    await clock.advance(timedelta(days=6))
    assert await kept() == (1, 2, 1)
    await clock.advance(timedelta(days=2))
    assert await kept() == (1, 1, 0)
    await clock.advance(timedelta(days=83))
    assert (await kept())[:2] == (0, 1)


async def test_a_round_is_begun_for_each_catalog_that_has_none(core: Core, config: Config) -> None:
    assert sorted(await passes.look_at_all(core, config)) == ["lake", "swamp"]
    assert await passes.look_at_all(core, config) == []


def test_a_secret_among_the_properties_is_refused() -> None:
    for properties in ({"s3.secret-access-key": "hush"}, {"uri": "postgresql://u:hush@db/lake"}, {"token": "hush"}):
        config = Config().with_settings(
            MaintenanceSettings(catalogs={"lake": {"type": "rest", "properties": properties}})
        )
        with pytest.raises(ConfigError) as refused:
            catalogs_from(config)
        assert "secrets" in str(refused.value)
        assert "hush" not in str(refused.value)


def test_an_engine_of_rewrites_must_be_one_that_can() -> None:
    engines: dict[str, dict[str, Any]] = {
        "warehouse": {"type": "trino", "url": "http://127.0.0.1:8080"},
        "open": {"type": "trino", "url": "http://127.0.0.1:8080", "requires_role": False},
        "spark": {"type": "spark", "url": "thrift://127.0.0.1:10009"},
        "here": {"type": "duckdb"},
    }

    def read(**lake: object) -> CatalogSettings:
        config = Config(engines=engines).with_settings(MaintenanceSettings(catalogs={"lake": {"type": "rest", **lake}}))
        return catalogs_from(config)["lake"]

    def refused(**lake: object) -> str:
        with pytest.raises(ConfigError) as refusal:
            read(**lake)
        return str(refusal.value)

    assert read(rewrites="spark", engine_catalog="lake").engine_type == "spark"
    assert read(rewrites="open", engine_catalog="lake").engine_type == "trino"
    assert read(rewrites="warehouse", engine_catalog="lake", engine_role="keeper").engine_type == "trino"
    assert read().engine_type == "embedded"
    assert "embedded, warehouse, open, spark" in refused(rewrites="here", engine_catalog="lake")
    assert "name it in engine_catalog" in refused(rewrites="spark")
    assert "wants a role" in refused(rewrites="warehouse", engine_catalog="lake")
    assert "name it in rewrites" in refused(engine_catalog="lake")
    engines["spark"] = {"type": "spark", "url": "thrift://user:hush@127.0.0.1:10009"}
    assert "hush" not in refused(rewrites="spark", engine_catalog="lake")
    assert "spark" not in settings_from(Config(engines=engines)), "it answers no queries"
