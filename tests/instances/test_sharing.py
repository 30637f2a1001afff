"""Whoever an owner shares with reads and queries, and changes nothing."""

from typing import Any

import httpx2
import pytest
from aiohttp import web

from paddock.config import Config
from paddock.jobs.core import Core
from tests.api.conftest import Clients
from tests.instances.fake_runtime import FakeRuntime
from tests.instances.world import code_of, events_of, make_mapping, ready_snapshot, running

pytestmark = pytest.mark.usefixtures("at_work")


async def _rows(request: web.Request) -> web.Response:
    return web.json_response({"data": {"rows": []}})


READING = [
    ("GET", ""),
    ("GET", "/events"),
    ("GET", "/logs"),
    ("GET", "/grants"),
    ("GET", "/schema"),
    ("GET", "/status"),
    ("GET", "/queries"),
    ("GET", "/algo"),
    ("GET", "/lock"),
    ("GET", "/algo/executions"),
    ("POST", "/query"),
    ("POST", "/algo/shortest_path"),
]
CHANGING = [
    ("PATCH", ""),
    ("POST", "/reopen"),
    ("PUT", "/grants/eve"),
    ("DELETE", "/grants/bob"),
    ("POST", "/algo/pagerank"),
    ("POST", "/algo/executions/019a8b1e-4c50-7000-9d6e-6f1d3c0a51e7/cancel"),
    ("DELETE", ""),
]
BODIES: dict[str, Any] = {"/query": {"query": "RETURN 1"}, "": {"name": "theirs"}}


async def ask(client: httpx2.AsyncClient, id: str, method: str, path: str) -> httpx2.Response:
    body = BODIES.get(path) if method in ("POST", "PATCH") else None
    return await client.request(method, f"/api/instances/{id}{path}", json=body)


async def test_each_role_reaches_what_it_may(
    core: Core, config: Config, runtime: FakeRuntime, clients: Clients
) -> None:
    ada, bob, eve = await clients("ada"), await clients("bob"), None
    await clients.token("eve", "analyst")
    eve = await clients("eve")
    made = await running(core, ada, await ready_snapshot(core, config))
    routes = runtime.of(made["id"]).behaviour.routes
    for path in ("GET /schema", "GET /queries", "GET /algo", "POST /query", "POST /algo/shortest_path"):
        routes[path] = _rows
    assert (await ada.put(f"/api/instances/{made['id']}/grants/bob")).status_code == 200
    for method, path in READING:
        for client in (ada, bob, await clients("grace"), await clients("root")):
            answer = await ask(client, made["id"], method, path)
            assert answer.status_code == 200, (method, path, answer.text)
    for method, path in [*READING, *CHANGING]:
        assert code_of(await ask(eve, made["id"], method, path)) == (404, "not_found"), (method, path)
        assert (await ask(await clients("stranger"), made["id"], method, path)).status_code == 401
        assert (await ask(await clients("worker"), made["id"], method, path)).status_code == 403
    for method, path in CHANGING:
        assert code_of(await ask(bob, made["id"], method, path)) == (403, "not_yours"), (method, path)
    assert [one["id"] for one in (await bob.get("/api/instances")).json()["data"]] == [made["id"]]
    assert (await eve.get("/api/instances")).json()["data"] == []
    bulk = await bob.post("/api/instances/delete", json={"ids": [made["id"]], "reason": "x"})
    assert [one["verdict"] for one in bulk.json()["data"]] == ["refused"]
    assert (await ada.delete(f"/api/instances/{made['id']}/grants/bob")).json()["data"] == []
    assert code_of(await bob.get(f"/api/instances/{made['id']}")) == (404, "not_found")
    assert (await events_of(core, made["id"])).count("shared") == 2
    assert (await ask(await clients("grace"), made["id"], "DELETE", "")).status_code == 200


async def test_what_cannot_be_shared_is_said(core: Core, config: Config, ada: httpx2.AsyncClient) -> None:
    made = await running(core, ada, await ready_snapshot(core, config))
    for owner in ("ada", "x" * 256, "%07"):
        assert (await ada.put(f"/api/instances/{made['id']}/grants/{owner}")).status_code == 422


async def test_queries_are_kept_with_the_mapping(core: Core, ada: httpx2.AsyncClient, bob: httpx2.AsyncClient) -> None:
    path = f"/api/mappings/{(await make_mapping(core)).id}/queries"
    body = {"name": "hubs", "query": "MATCH (a:Airport) RETURN a"}
    kept = await ada.post(path, json=body)
    assert kept.status_code == 201
    assert code_of(await ada.post(path, json={**body, "name": "HUBS"})) == (409, "name_taken")
    assert (await ada.post(path, json={**body, "query": "x" * 70_000})).status_code == 422
    assert [one["name"] for one in (await ada.get(path)).json()["data"]] == ["hubs"]
    assert code_of(await bob.get(path)) == (404, "not_found")
    gone = await ada.delete(f"{path}/{kept.json()['data']['id']}")
    assert gone.status_code == 200
    assert (await ada.get(path)).json()["data"] == []
    assert code_of(await ada.delete(f"{path}/{kept.json()['data']['id']}")) == (404, "not_found")


async def test_whom_it_is_shared_with_cancels_their_own_queries_only(
    core: Core, config: Config, runtime: FakeRuntime, clients: Clients
) -> None:
    ada, bob, grace = await clients("ada"), await clients("bob"), await clients("grace")
    made = await running(core, ada, await ready_snapshot(core, config))
    assert (await ada.put(f"/api/instances/{made['id']}/grants/bob")).status_code in (200, 201, 204)
    theirs, his = "019a8b1e-4c50-7000-9d6e-6f1d3c0a51e7", "019a8b1e-4c51-7000-9d6e-6f1d3c0a51e7"

    async def asked(request: web.Request) -> web.Response:
        queries = [{"query_id": theirs, "owner": "ada"}, {"query_id": his, "owner": "bob"}]
        return web.json_response({"data": queries})

    async def cancelled(request: web.Request) -> web.Response:
        return web.json_response({"data": {"cancelled": True}})

    routes = runtime.of(made["id"]).behaviour.routes
    routes["GET /queries"] = asked
    for id in (theirs, his):
        routes[f"POST /queries/{id}/cancel"] = cancelled

    async def cancel(client: httpx2.AsyncClient, id: str) -> httpx2.Response:
        return await client.post(f"/api/instances/{made['id']}/queries/{id}/cancel")

    assert code_of(await cancel(bob, theirs)) == (403, "not_yours")
    assert (await cancel(bob, his)).status_code == 200
    assert (await cancel(ada, his)).status_code == 200
    assert (await cancel(grace, theirs)).status_code == 200
