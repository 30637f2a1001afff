"""Schedules of analysts: their own and nobody else's, within limits, and with what their tokens say at each run."""

import asyncio
from datetime import timedelta
from typing import Any
from uuid import UUID

import httpx2
import pytest
from fastapi import FastAPI

from paddock.api.app import create_app
from paddock.config import Config
from paddock.dumps import dumps
from paddock.dumps.expiring import expired
from paddock.dumps.scheduled import SCHEDULED
from paddock.exports.scheduled import SCHEDULED as SCHEDULED_EXPORT
from paddock.jobs import schedules
from paddock.jobs.core import Core
from paddock.jobs.model import Job, JobId
from paddock.jobs.schedules import NewSchedule
from tests.api.conftest import Clients
from tests.conftest import DatabaseClock
from tests.dumps.api.conftest import Played
from tests.dumps.api.inside import run_inside

PAYLOAD = {"database": "shop", "format": "csv"}


async def make(caller: httpx2.AsyncClient, name: str, **fields: Any) -> httpx2.Response:
    body = {"name": name, "kind": "scheduled_dump", "cron": "30 2 * * *", "payload": PAYLOAD, **fields}
    return await caller.post("/api/schedules", json=body)


async def due(core: Core, config: Config, clock: DatabaseClock) -> Job:
    """What the schedule makes by itself a day later, with nobody there to ask."""
    await clock.advance(timedelta(days=1))
    assert await schedules.run_due(core) == 1
    [job] = await run_inside(core, config, SCHEDULED)
    return job


def code_of(answer: httpx2.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["error"]["code"]


async def names(caller: httpx2.AsyncClient) -> list[str]:
    return [one["name"] for one in (await caller.get("/api/schedules")).json()["data"]]


async def revoke(clients: Clients, name: str) -> None:
    """The oldest token of this name."""
    token = [one for one in await clients.tokens.page(None, 100) if one["name"] == name][-1]
    await clients.tokens.revoke(token["id"], actor="root")


async def test_an_analyst_makes_changes_runs_and_deletes_their_own(
    ada: httpx2.AsyncClient, core: Core, config: Config
) -> None:
    assert (await make(ada, "mine")).status_code == 201
    assert (await ada.patch("/api/schedules/mine", json={"payload": {**PAYLOAD, "keepLast": 2}})).status_code == 200
    assert (await ada.patch("/api/schedules/mine", json={"enabled": False})).json()["data"]["enabled"] is False
    assert (await ada.post("/api/schedules/mine/run")).status_code == 202
    [job] = await run_inside(core, config, SCHEDULED)

    made = await dumps.get(core.db, job.result["dump"])
    assert made is not None
    assert (made.owner, made.database, made.keep_last) == ("ada", "shop", 2)
    runs = (await ada.get("/api/schedules/mine")).json()["data"]["last_runs"]
    assert {"dump": made.id} in [run["made"] for run in runs]
    assert (await ada.delete("/api/schedules/mine")).status_code == 200
    assert await names(ada) == []


async def test_of_others_and_of_paddocks_own_an_analyst_learns_nothing(
    ada: httpx2.AsyncClient, carol: httpx2.AsyncClient, grace: httpx2.AsyncClient, core: Core
) -> None:
    await make(ada, "adas")
    await make(carol, "carols")
    await schedules.ensure(core, "own", "upkeep", timedelta(minutes=5))
    assert (await names(ada), await names(carol), await names(grace)) == (
        ["adas"],
        ["carols"],
        ["adas", "carols", "own"],
    )
    found = (await ada.get("/api/search?q=s")).json()["data"]
    assert [one["id"] for one in found if one["what"] == "schedule"] == ["adas"]

    for name in ("carols", "own", "nonesuch"):
        path = f"/api/schedules/{name}"
        answers = [
            await ada.get(path),
            await ada.patch(path, json={"enabled": False}),
            await ada.patch(path, json={"payload": PAYLOAD}),
            await ada.post(f"{path}/run"),
            await ada.delete(path),
        ]
        assert [code_of(answer) for answer in answers] == [(404, "not_found")] * 5
    assert (await grace.patch("/api/schedules/carols", json={"enabled": False})).status_code == 200
    assert (await grace.post("/api/schedules/adas/run")).status_code == 202
    assert await names(grace) == ["adas", "carols", "own"]


async def test_an_analyst_schedules_only_what_they_may_have(
    ada: httpx2.AsyncClient, bob: httpx2.AsyncClient, core: Core
) -> None:
    """A database that is not theirs looks as if there were none."""
    theirs, none = await make(bob, "n"), await make(bob, "n", payload={**PAYLOAD, "database": "nope"})
    assert code_of(theirs) == code_of(none) == (422, "not_found")
    assert "shop" not in theirs.text.replace("Database 'shop'", "")

    other = await make(ada, "n", payload={**PAYLOAD, "owner": "bob"})
    assert code_of(other) == (403, "owner_not_allowed")
    # The kinds of dumps carry the names of databases: all that is not an analyst's looks the same.
    refused = [await make(ada, "n", kind=kind) for kind in ("upkeep", "probe", "dump:books", "dump:nope", "nonesuch")]
    assert {code_of(answer) for answer in refused} == {(403, "kind_not_allowed")}
    hints = {answer.json()["error"]["hint"] for answer in refused}
    assert hints == {
        "You may schedule scheduled_dump, scheduled_export, scheduled_ingest, scheduled_maintenance, scheduled_snapshot."
    }
    submitted = await ada.post("/api/jobs", json={"kind": "scheduled_dump", "payload": PAYLOAD})
    assert code_of(submitted) == (403, "kind_not_allowed")
    assert await schedules.get(core.db, "n") is None


async def test_an_analysts_schedule_is_due_at_most_once_a_minute_and_not_before_others(
    ada: httpx2.AsyncClient, grace: httpx2.AsyncClient
) -> None:
    often, urgent = {"every": "PT59S", "cron": None}, {"priority": 2}
    await make(ada, "n")
    for changed, told in ((often, (422, "invalid")), (urgent, (403, "priority_not_allowed"))):
        assert code_of(await make(ada, "m", **changed)) == told
        assert code_of(await ada.patch("/api/schedules/n", json=changed)) == told
        assert (await make(grace, f"of-grace-{told[0]}", **changed)).status_code == 201


async def test_an_analyst_has_only_so_many(core: Core, config: Config, clients: Clients) -> None:
    app: FastAPI = create_app(core, config.model_copy(update={"max_schedules_per_owner": 2}))
    clients.app = app
    ada, carol, grace = await clients("ada"), await clients("carol"), await clients("grace")
    # All at once: each would find room if it counted beside the others.
    made = await asyncio.gather(*(make(ada, f"n{i}") for i in range(6)))
    assert sorted(answer.status_code for answer in made) == [201, 201, 409, 409, 409, 409]
    [refused] = {answer.json()["error"]["message"] for answer in made if answer.status_code == 409}
    assert refused == "You have 2 schedules, as many as one person may have here."

    assert (await make(carol, "carols")).status_code == 201
    assert [(await make(grace, f"g{i}")).status_code for i in range(3)] == [201, 201, 201]
    await ada.delete(f"/api/schedules/{(await names(ada))[0]}")
    assert (await make(ada, "again")).status_code == 201


@pytest.mark.parametrize(
    ("left", "code", "told"),
    [
        ("without its database", "not_found", "'carol' may not run this any more. Database 'shop' does not exist."),
        ("nothing", "owner_without_token", "'carol' has no token that is still good"),
    ],
)
async def test_who_has_lost_the_right_has_lost_it_for_their_schedules(
    carol: httpx2.AsyncClient,
    clients: Clients,
    core: Core,
    config: Config,
    clock: DatabaseClock,
    played: Played,
    left: str,
    code: str,
    told: str,
) -> None:
    await make(carol, "nightly")
    assert (await due(core, config, clock)).status == "completed"
    await played.complete()
    if left != "nothing":
        await clients.token("carol", "analyst", databases=["books"])
    await revoke(clients, "carol")

    job = await due(core, config, clock)

    assert (job.status, job.error_code) == ("failed", code)
    assert told in (job.error_message or "")
    assert len(await dumps.page(core.db, None)) == 1


async def test_one_good_token_of_the_owner_is_enough(
    carol: httpx2.AsyncClient, clients: Clients, core: Core, config: Config, clock: DatabaseClock
) -> None:
    await make(carol, "nightly")
    await clients.token("carol", "analyst", databases=["books"])
    assert (await due(core, config, clock)).status == "completed"


async def test_an_operators_schedule_outlives_their_token(
    grace: httpx2.AsyncClient, clients: Clients, core: Core, config: Config, clock: DatabaseClock, played: Played
) -> None:
    """The nightly dump of somebody who has left is still wanted; whoever may not run it any more is an analyst now."""
    await make(grace, "nightly")
    await revoke(clients, "grace")
    assert (await due(core, config, clock)).status == "completed"
    await played.complete()

    await clock.advance(timedelta(minutes=1))
    await clients.token("grace", "analyst", databases=[])
    assert (await due(core, config, clock)).status == "failed"


async def test_an_export_is_asked_again_whether_its_engine_may_be_used(
    clients: Clients, core: Core, config: Config, clock: DatabaseClock
) -> None:
    """Its payload is checked as it was read: written out with all defaults it would be none."""
    await clients.token("dora", "analyst", engines=["duckdb"])
    payload = {"engine": "duckdb", "sql": "SELECT 1", "format": "csv"}
    new = NewSchedule(name="exports", kind="scheduled_export", payload=payload, every=timedelta(days=1), owner="dora")
    await schedules.create(core, new, actor="dora")
    await clock.advance(timedelta(days=1))
    assert await schedules.run_due(core) == 1
    [job] = await run_inside(core, config, SCHEDULED_EXPORT)
    assert job.status == "completed", job.error_message

    await clients.token("dora", "analyst", engines=[])
    await revoke(clients, "dora")
    await clock.advance(timedelta(days=1))
    await core.cancel([JobId(UUID(job.result["job"]))], actor="dora")
    assert await schedules.run_due(core) == 1
    [job] = await run_inside(core, config, SCHEDULED_EXPORT)
    assert (job.status, job.error_code) == ("failed", "engine_not_allowed")


async def test_a_name_that_was_anothers_shows_and_removes_nothing_of_theirs(
    ada: httpx2.AsyncClient,
    grace: httpx2.AsyncClient,
    core: Core,
    config: Config,
    clock: DatabaseClock,
    played: Played,
) -> None:
    await make(grace, "nightly", payload={**PAYLOAD, "keepLast": 5})
    await due(core, config, clock)
    await played.complete()
    assert len((await grace.get("/api/schedules/nightly")).json()["data"]["last_runs"]) > 0
    await grace.delete("/api/schedules/nightly")

    await make(ada, "nightly", payload={**PAYLOAD, "keepLast": 1})
    assert (await ada.get("/api/schedules/nightly")).json()["data"]["last_runs"] == []
    await due(core, config, clock)
    await played.complete()
    assert await expired(core.db, None, 10) == []
    assert [dump.owner for dump in await dumps.page(core.db, None)] == ["ada", "grace"]


async def test_an_analyst_names_the_database_where_there_are_several(ada: httpx2.AsyncClient) -> None:
    """What a run would take in their name may be none of theirs."""
    answer = await make(ada, "n", payload={})
    assert code_of(answer) == (422, "database_missing")
    assert "books" not in answer.text


async def test_who_was_an_operator_may_only_end_what_an_analyst_may_not_have(
    clients: Clients, grace: httpx2.AsyncClient
) -> None:
    await make(grace, "checks", kind="probe", payload={})
    await revoke(clients, "grace")
    await clients.token("grace", "analyst", databases=[])
    clients.opened.pop("grace")
    now = await clients("grace")
    answers = [
        await now.post("/api/schedules/checks/run"),
        await now.patch("/api/schedules/checks", json={"every": "1h", "cron": None}),
    ]
    assert [code_of(answer) for answer in answers] == [(403, "kind_not_allowed")] * 2
    assert (await now.patch("/api/schedules/checks", json={"enabled": False})).status_code == 200
    assert code_of(await now.patch("/api/schedules/checks", json={"enabled": True})) == (403, "kind_not_allowed")
    assert (await now.delete("/api/schedules/checks")).status_code == 200
