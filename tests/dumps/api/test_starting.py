"""`POST /export/dump` as StarbaseDB's clients send it, and what is wrong with a request in words."""

import re
from pathlib import Path
from typing import Any
from uuid import UUID

import asyncpg
import httpx2
import pytest

from paddock.api.app import create_app
from paddock.config import Config
from paddock.dumps.settings import DumpSettings
from paddock.jobs.core import Core
from paddock.jobs.model import JobId
from tests.api.conftest import Clients
from tests.dumps.api.conftest import Played, Start, error, status

KEYS = {
    *("jobId", "status", "format", "completedTables", "totalTables", "currentTable", "rowsWritten", "bytesWritten"),
    *("percent", "etaSeconds", "pointInTime", "restarts", "createdAt", "completedAt", "errorMessage"),
}
TIME = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\Z")


async def refusal(client: httpx2.AsyncClient, **body: Any) -> tuple[int, str, str]:
    return error(await client.post("/export/dump", json={"async": True, "database": "shop", **body}))


async def test_a_request_is_accepted_and_tells_where_to_ask(ada: httpx2.AsyncClient, core: Core) -> None:
    answered = await ada.post("/export/dump", json={"async": True, "format": "json", "database": "shop"})

    assert answered.status_code == 202
    result = answered.json()["result"]
    assert re.fullmatch(r"export_\d{8}-\d{6}_[0-9a-z]{6}", result["jobId"])
    assert result == {
        "jobId": result["jobId"],
        "status": "pending",
        "statusUrl": f"/export/jobs/{result['jobId']}",
        "estimatedTables": None,
    }
    found = (await ada.get(result["statusUrl"])).json()["result"]
    assert found.keys() >= KEYS
    assert (found["status"], found["format"], found["createdAt"][:4]) == (
        "pending",
        "json",
        "20" + found["jobId"][9:11],
    )
    assert TIME.match(found["createdAt"])
    job = await core.job(JobId(UUID(found["job"])))
    assert job is not None
    assert (job.kind, job.owner) == ("dump:shop", "ada")
    assert job.payload == {"dump_id": result["jobId"], "database": "shop", "format": "json"}


async def test_options_reach_the_job_and_are_shown(ada: httpx2.AsyncClient, core: Core, start: Start) -> None:
    id = await start(table="orders", compress="zstd", preserveRowids=True, dataOnly=True)

    found = await status(ada, id)
    job = await core.job(JobId(UUID(found["job"])))
    assert job is not None
    assert job.payload["single"] is True
    assert job.payload["options"] == {
        "tables": ["orders"],
        "data_only": True,
        "preserve_rowids": True,
        "compress": "zstd",
    }
    assert found["request"] == {
        "format": "sql",
        "database": "shop",
        "table": "orders",
        "compress": "zstd",
        "preserveRowids": True,
        "dataOnly": True,
    }


async def test_as_many_tables_as_were_named_or_the_last_dump_had(
    ada: httpx2.AsyncClient, played: Played, start: Start
) -> None:
    async def estimate(**body: Any) -> Any:
        answered = await ada.post("/export/dump", json={"async": True, "database": "shop", **body})
        return answered.json()["result"]["estimatedTables"]

    assert await estimate(table="orders") == 1
    await played.complete(tables={"orders": 1})
    assert await estimate() is None, "a dump of one table says nothing of the others"
    await played.complete()
    assert await estimate() == 2
    assert await estimate(excludeTables=["people"]) == 1


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ({"async": False}, "async"),
        ({"async": "true"}, "async"),
        ({"async": None}, "async"),
        ({"format": "xml"}, "sql, json, csv or sqlite"),
        ({"format": "custom"}, "not exported as 'custom'"),
        ({"format": "sqlite", "table": "t"}, "whole database"),
        ({"format": "json", "schemaOnly": True}, "schemaOnly"),
        ({"schemaOnly": True, "dataOnly": True}, "choose one"),
        ({"table": "a", "tables": ["b"]}, "`table` or `tables`"),
        ({"tables": ["a"], "excludeTables": ["b"]}, "leave out"),
        ({"noOwner": True}, "PostgreSQL"),
        ({"format": "csv", "preserveRowids": True}, "preserveRowids"),
        ({"csvSafe": True}, "csvSafe"),
        ({"callbackUrl": "http://example.com/hook"}, "PADDOCK_DUMPS_CALLBACK_ALLOW_HTTP"),
        ({"callbackUrl": "ftp://example.com/hook"}, "callbackUrl"),
        ({"callbackUrl": "https://ann:hunter2@example.com/"}, "password"),
        ({"callbackUrl": "nonsense"}, "callbackUrl"),
    ],
)
async def test_bad_input_is_a_400_that_says_what_is_wrong(
    ada: httpx2.AsyncClient, body: dict[str, Any], text: str
) -> None:
    code, _, message = await refusal(ada, **body)

    assert code == 400
    assert text in message
    assert "hunter2" not in message


@pytest.mark.parametrize("body", [{"tables": "orders"}, {"compress": "lz4"}, {"table": ""}])
async def test_a_body_of_another_shape_names_its_field(ada: httpx2.AsyncClient, body: dict[str, Any]) -> None:
    code, _, message = await refusal(ada, **body)

    assert code == 422
    assert next(iter(body)) in message


async def test_what_nobody_knows_is_ignored_and_no_format_is_sql(ada: httpx2.AsyncClient, start: Start) -> None:
    id = await start(format=None, somethingElse={"of": "a newer client"}, tables=[])

    assert (await status(ada, id))["format"] == "sql"


@pytest.mark.parametrize("headers", [{}, {"Content-Type": "text/plain;charset=UTF-8"}])
async def test_a_body_is_json_whatever_it_is_called(ada: httpx2.AsyncClient, headers: dict[str, str]) -> None:
    answered = await ada.post("/export/dump", content=b'{"async": true, "database": "shop"}', headers=headers)

    assert answered.status_code == 202, answered.text


async def test_it_is_pending_though_a_worker_is_faster(ada: httpx2.AsyncClient, played: Played) -> None:
    body, key = {"async": True, "database": "shop"}, {"Idempotency-Key": "one"}
    id = (await ada.post("/export/dump", json=body, headers=key)).json()["result"]["jobId"]
    await played.claim()
    again = (await ada.post("/export/dump", json=body, headers=key)).json()["result"]

    assert (again["jobId"], again["status"]) == (id, "pending")
    assert (await status(ada, id))["status"] == "in_progress"


async def test_how_many_tables_there_are_is_a_number_from_the_start(ada: httpx2.AsyncClient, start: Start) -> None:
    assert (await status(ada, await start()))["totalTables"] == 0
    assert (await status(ada, await start(table="orders")))["totalTables"] == 1
    assert (await status(ada, await start(tables=["orders", "people"])))["totalTables"] == 2


async def test_a_body_that_is_no_json_is_refused_in_the_same_words(ada: httpx2.AsyncClient) -> None:
    answered = await ada.post("/export/dump", content=b"{nope", headers={"Content-Type": "application/json"})
    assert error(answered)[:2] == (400, "malformed_body")


async def test_a_database_that_is_not_theirs_does_not_exist(
    ada: httpx2.AsyncClient, bob: httpx2.AsyncClient, carol: httpx2.AsyncClient, grace: httpx2.AsyncClient
) -> None:
    for name in ("books", "nonesuch"):
        assert await refusal(ada, database=name) == (404, "not_found", f"Database '{name}' does not exist.")
    assert (await refusal(bob))[0] == 404
    assert (await carol.post("/export/dump", json={"async": True, "database": "shop"})).status_code == 202
    for name in ("shop", "books"):
        assert (await grace.post("/export/dump", json={"async": True, "database": name})).status_code == 202


async def test_without_a_name_it_is_the_only_one_the_asker_has(
    ada: httpx2.AsyncClient, bob: httpx2.AsyncClient, grace: httpx2.AsyncClient
) -> None:
    assert (await ada.post("/export/dump", json={"async": True})).status_code == 202
    asked = error(await grace.post("/export/dump", json={"async": True}))
    assert asked[0] == 400
    assert "books, shop" in asked[2]
    assert error(await bob.post("/export/dump", json={"async": True}))[0] == 404


async def test_the_default_database_is_meant_where_none_is_named(core: Core, config: Config) -> None:
    usual = config.with_settings(config.of(DumpSettings).model_copy(update={"default_database": "books"}))
    clients = Clients(create_app(core, usual))
    async with clients.stack:
        await clients.token("gwen", "ops")
        gwen = await clients("gwen")
        made = (await gwen.post("/export/dump", json={"async": True})).json()["result"]["jobId"]
        assert (await status(gwen, made))["database"] == "books"


async def test_without_an_object_store_there_is_nowhere_to_keep_it(core: Core, config: Config) -> None:
    bare = config.model_copy(update={"object_store": "none"})
    clients = Clients(create_app(core, bare))
    async with clients.stack:
        await clients.token("gwen", "ops")
        answered = await (await clients("gwen")).post("/export/dump", json={"async": True, "database": "shop"})
    assert error(answered) == (
        400,
        "no_object_store",
        "Async exports require the EXPORT_BUCKET R2 binding to be configured",
    )
    assert "PADDOCK_OBJECT_STORE" in answered.json()["hint"]


async def test_without_databases_it_says_how_to_name_one(core: Core, tmp_path: Path) -> None:
    clients = Clients(create_app(core, Config(data=tmp_path)))
    async with clients.stack:
        await clients.token("gwen", "ops")
        code, _, message = error(await (await clients("gwen")).post("/export/dump", json={"async": True}))
    assert code == 400
    assert "[dumps.databases.NAME]" in message


async def test_the_same_key_makes_one_dump(ada: httpx2.AsyncClient) -> None:
    key = {"Idempotency-Key": "once"}
    body = {"async": True, "database": "shop"}
    first = await ada.post("/export/dump", json=body, headers=key)
    second = await ada.post("/export/dump", json=body, headers=key)
    other = await ada.post("/export/dump", json={**body, "format": "csv"}, headers=key)

    assert first.json() == second.json()
    assert error(other)[:2] == (422, "idempotency_key_reused")
    assert len((await ada.get("/export/jobs")).json()["result"]) == 1


async def test_drain_mode_takes_no_new_ones(ada: httpx2.AsyncClient, core: Core) -> None:
    await core.drain(True, actor="ops", reason="moving")
    answered = await ada.post("/export/dump", json={"async": True, "database": "shop"})

    assert error(answered)[:2] == (503, "draining")
    assert int(answered.headers["retry-after"]) > 0
    assert (await ada.get("/export/jobs")).json()["result"] == []


async def test_a_job_that_is_refused_leaves_no_row(
    ada: httpx2.AsyncClient, core: Core, connection: "asyncpg.Connection[asyncpg.Record]"
) -> None:
    await core.drain(True, actor="ops")
    await ada.post("/export/dump", json={"async": True, "database": "shop"})
    assert await connection.fetchval("SELECT count(*) FROM dumps") == 0


async def test_a_dump_job_is_made_by_nobody_else(grace: httpx2.AsyncClient) -> None:
    payload = {"dump_id": "export_20260101-000000_aaaaaa", "database": "shop"}
    answered = await grace.post("/api/jobs", json={"kind": "dump:shop", "payload": payload})
    assert (answered.status_code, answered.json()["error"]["code"]) == (403, "kind_internal")


@pytest.mark.parametrize(
    ("method", "path", "code"),
    [
        ("GET", "/export/jobs/export_20260101-000000_aaaaaa", 404),
        ("GET", "/export/jobs/export_20260101-000000_aaaaaa/download", 404),
        ("DELETE", "/export/jobs/export_20260101-000000_aaaaaa", 404),
        ("GET", "/export/nothing", 404),
        ("PUT", "/export/jobs", 405),
        ("GET", "/export/jobs?limit=0", 422),
        ("GET", "/export/jobs?cursor=nonsense", 422),
    ],
)
async def test_every_error_below_export_is_a_sentence(
    ada: httpx2.AsyncClient, method: str, path: str, code: int
) -> None:
    assert error(await ada.request(method, path, headers={"Accept": "text/html"}))[0] == code


async def test_strangers_and_workers_are_told_in_the_same_envelope(clients: Clients) -> None:
    for name, code in (("stranger", 401), ("worker", 403)):
        client = await clients(name)
        for method, path in (("POST", "/export/dump"), ("GET", "/export/jobs")):
            assert (
                error(await client.request(method, path, json={"async": True} if method == "POST" else None))[0] == code
            )
