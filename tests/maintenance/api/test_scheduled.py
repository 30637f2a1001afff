"""The maintenance of one table by schedule: ordered for its owner, left alone while somebody is at work, and only what is theirs."""

import uuid
from typing import Any

import httpx2
import pytest
from fastapi import FastAPI

from paddock.api.app import create_app
from paddock.config import Config
from paddock.jobs import schedules
from paddock.jobs.core import Core
from paddock.jobs.model import Job, JobId
from paddock.maintenance.pages import tables
from paddock.maintenance.routes import router
from paddock.maintenance.scheduled import SCHEDULED
from paddock.maintenance.settings import MaintenanceSettings
from paddock.web import pages
from tests.api.conftest import Clients
from tests.dumps.api.inside import run_inside
from tests.maintenance.api.conftest import UUID, Played, line
from tests.web.signed_in import words_of

PAYLOAD = {"catalog": "lake", "database": "sales", "table": "orders", "actions": ["rewrite_data_files"]}


@pytest.fixture
def app(core: Core, config: Config) -> FastAPI:
    return create_app(core, config, routers=[router], routes=[*pages.routes(), *tables.routes()])


async def make(caller: httpx2.AsyncClient, **fields: Any) -> httpx2.Response:
    body = {"name": "weekly", "kind": "scheduled_maintenance", "cron": "0 3 * * 0", "payload": {**PAYLOAD, **fields}}
    return await caller.post("/api/schedules", json=body)


async def run(core: Core, config: Config) -> Job:
    await schedules.run(core, "weekly", actor="carol")
    [job] = await run_inside(core, config, SCHEDULED)
    return job


async def test_each_run_orders_the_maintenance_in_its_owners_name(
    carol: httpx2.AsyncClient, core: Core, config: Config, played: Played
) -> None:
    await played.seen(line())
    assert (await make(carol)).status_code == 201
    job = await run(core, config)

    assert job.status == "completed", job.error_message
    ordered = await core.job(JobId(uuid.UUID(job.result["job"])))
    assert ordered is not None
    assert (ordered.kind, ordered.owner, ordered.tags) == ("maintenance:lake", "carol", ["table:lake.sales.orders"])
    assert (ordered.payload["uuid"], ordered.payload["actions"]) == (UUID, ["rewrite_data_files"])
    [shown] = (await carol.get("/api/schedules/weekly")).json()["data"]["last_runs"]
    assert (shown["outcome_job_id"], shown["status"]) == (str(ordered.id), "pending")

    left = await run(core, config)
    assert left.result == {"skipped": True, "job": str(ordered.id)}


async def test_whose_job_is_at_work_is_told_to_its_owner_alone(
    ada: httpx2.AsyncClient, carol: httpx2.AsyncClient, core: Core, config: Config, played: Played
) -> None:
    await played.seen(line())
    await make(carol)
    asked = await ada.post("/tables/sales/orders/maintenance", json={"actions": ["rewrite_data_files"]})
    assert asked.status_code == 202
    assert (await run(core, config)).result == {"skipped": True, "job": None}


async def test_a_table_that_is_not_theirs_looks_as_if_there_were_none(
    bob: httpx2.AsyncClient, carol: httpx2.AsyncClient, core: Core, config: Config, played: Played
) -> None:
    await played.seen(line(), line(namespace="hr"))
    for caller, fields in (
        (bob, {}),
        (carol, {"database": "hr"}),
        (carol, {"table": "nothing"}),
        (carol, {"catalog": "swamp"}),
        (carol, {"catalog": "nope"}),
    ):
        refused = (await make(caller, **fields)).json()["error"]
        assert (refused["code"], refused["details"]["fields"][0]["field"]) == ("unknown_table", "payload.table")
    assert (await make(carol, actions=["paint"])).status_code == 422

    await make(carol)
    other = config.of(MaintenanceSettings).catalogs["swamp"]
    job = await run(core, config.with_settings(MaintenanceSettings(catalogs={"swamp": other})))
    assert (job.status, job.error_code) == ("failed", "unknown_table")


async def test_the_page_of_a_table_leads_to_a_form_with_what_is_recommended(
    carol: httpx2.AsyncClient, bob: httpx2.AsyncClient, clients: Clients, played: Played
) -> None:
    await played.seen(line(namespace="a.b\x1fc"), line())
    assert "/schedules/-/new?of=table%3Alake%2Fsales%2Forders" in (await carol.get("/tables/lake/sales/orders")).text
    form = await carol.get("/schedules/-/new", params={"of": "table:lake/sales/orders"})
    assert "Maintains the table lake.sales.orders By rewrite data files" in words_of(form.text)
    assert 'value="maintain-sales-orders"' in form.text
    assert (await bob.get("/schedules/-/new", params={"of": "table:lake/sales/orders"})).status_code == 404
    grace = await clients("grace")
    odd = await grace.get("/schedules/-/new", params={"of": "table:lake/a.b%1Fc/orders"})
    assert "By rewrite data files" in words_of(odd.text)
