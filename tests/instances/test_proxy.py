"""An instance is hostile: of what it says only three kinds of content go on, and only so much."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from typing import Any

import httpx2
import pytest
from aiohttp import web
from fastapi import FastAPI

from paddock.config import Config
from paddock.instances import proxy
from paddock.jobs.core import Core
from paddock.metrics import default
from tests.api.conftest import Clients, serving
from tests.instances.fake_runtime import FakeRuntime
from tests.instances.world import code_of, events_of, ready_snapshot, running, until

pytestmark = pytest.mark.usefixtures("at_work")

ROWS = {"data": {"columns": ["a"], "rows": [[1]]}}
Ask = Callable[..., Coroutine[Any, Any, httpx2.Response]]


@pytest.fixture
async def made(core: Core, config: Config, ada: httpx2.AsyncClient) -> dict[str, Any]:
    return await running(core, ada, await ready_snapshot(core, config))


@pytest.fixture
async def ask(app: FastAPI, clients: Clients, made: dict[str, Any]) -> AsyncIterator[Ask]:
    """Over a real socket: what is cut must be seen as cut."""
    headers = {"Authorization": f"Bearer {clients.secrets['ada']}"}
    async with serving(app) as (_, url), httpx2.AsyncClient(base_url=url, headers=headers, timeout=60) as client:

        async def query(text: str = "RETURN 1", **headers: str) -> httpx2.Response:
            return await client.post(f"/api/instances/{made['id']}/query", json={"query": text}, headers=headers)

        yield query


def answers(
    runtime: FakeRuntime, made: dict[str, Any], handle: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> None:
    runtime.of(made["id"]).behaviour.routes["POST /query"] = handle


async def test_an_answer_goes_on_as_it_is_with_nothing_of_the_instances_headers(
    runtime: FakeRuntime, made: dict[str, Any], ask: Ask
) -> None:
    async def handle(request: web.Request) -> web.Response:
        return web.json_response(ROWS, headers={"Set-Cookie": "session=stolen", "X-Evil": "1"})

    answers(runtime, made, handle)
    answer = await ask()
    assert (answer.status_code, answer.json()) == (200, ROWS)
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert "set-cookie" not in answer.headers
    assert "x-evil" not in answer.headers
    asked = [body for method, path, body in runtime.of(made["id"]).asked if path == "/query"]
    assert (asked[0]["query"], asked[0]["owner"]) == ("RETURN 1", "ada")


@pytest.mark.parametrize("kind", ["text/csv", "application/vnd.apache.arrow.stream"])
async def test_csv_and_arrow_go_on_too(runtime: FakeRuntime, made: dict[str, Any], ask: Ask, kind: str) -> None:
    async def handle(request: web.Request) -> web.Response:
        assert request.headers["Accept"] == kind
        return web.Response(body=b"a\n1\n", content_type=kind)

    answers(runtime, made, handle)
    answer = await ask(accept=kind)
    assert (answer.status_code, answer.content) == (200, b"a\n1\n")
    assert answer.headers["content-type"].startswith(kind)


async def test_html_never_reaches_our_origin(runtime: FakeRuntime, made: dict[str, Any], ask: Ask) -> None:
    async def handle(request: web.Request) -> web.Response:
        return web.Response(text="<script>alert(1)</script>", content_type="text/html")

    answers(runtime, made, handle)
    answer = await ask()
    assert code_of(answer) == (502, "instance_answered_badly")
    assert "script" not in answer.text


@pytest.mark.parametrize("status", [201, 301, 401, 403, 500, 599])
async def test_a_status_that_no_instance_has_is_no_answer(
    runtime: FakeRuntime, made: dict[str, Any], ask: Ask, status: int
) -> None:
    async def handle(request: web.Request) -> web.Response:
        return web.json_response(ROWS, status=status, headers={"Location": "http://evil.example/"})

    answers(runtime, made, handle)
    answer = await ask()
    assert code_of(answer) == (502, "instance_answered_badly")
    assert "location" not in answer.headers


async def test_errors_of_a_query_go_on_with_when_to_come_back(
    runtime: FakeRuntime, made: dict[str, Any], ask: Ask
) -> None:
    async def handle(request: web.Request) -> web.Response:
        error = {"error": {"code": "too_many_queries", "message": "Later.", "details": {}}}
        return web.json_response(error, status=429, headers={"Retry-After": "2"})

    answers(runtime, made, handle)
    answer = await ask()
    assert code_of(answer) == (429, "too_many_queries")
    assert answer.headers["retry-after"] == "2"


async def test_one_that_sends_without_end_is_cut_at_the_limit(
    runtime: FakeRuntime, made: dict[str, Any], ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(proxy.MOST_BYTES, proxy.JSON, 1 << 20)
    sent = 0

    async def handle(request: web.Request) -> web.StreamResponse:
        nonlocal sent
        response = web.StreamResponse(headers=runtime.of(made["id"])._all_headers())
        response.content_type = "application/json"
        await response.prepare(request)
        while True:  # ten gigabytes, if anybody took them
            await response.write(b" " * 65536)
            sent += 65536

    answers(runtime, made, handle)
    with pytest.raises(httpx2.HTTPError):
        await ask()
    assert sent < 32 << 20


async def test_one_that_stops_in_the_middle_is_an_answer_that_broke_off(
    runtime: FakeRuntime, made: dict[str, Any], ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(proxy, "STALLED", 0.2)

    async def handle(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers=runtime.of(made["id"])._all_headers())
        response.content_type = "application/json"
        await response.prepare(request)
        await response.write(b'{"data":')
        await asyncio.Event().wait()
        return response

    answers(runtime, made, handle)
    cut = default().instance_queries("cut")._value
    before = cut.get()
    with pytest.raises(httpx2.HTTPError):
        await ask()
    assert cut.get() == before + 1


async def test_one_that_never_begins_is_told_in_time(
    runtime: FakeRuntime, made: dict[str, Any], ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("paddock.instances.proxy.SLACK_SECONDS", -59.5)

    async def handle(request: web.Request) -> web.StreamResponse:
        await asyncio.Event().wait()
        raise AssertionError

    answers(runtime, made, handle)
    assert code_of(await ask()) == (504, "instance_timeout")


async def test_another_generation_behind_the_address_is_not_believed(
    core: Core, runtime: FakeRuntime, made: dict[str, Any], ask: Ask
) -> None:
    async def handle(request: web.Request) -> web.Response:
        return web.json_response(ROWS)

    answers(runtime, made, handle)
    runtime.of(made["id"])._all_headers = lambda: {"Paddock-Generation": "another"}  # type: ignore[method-assign]  # it lies
    assert code_of(await ask()) == (503, "instance_unreachable")


async def test_a_caller_who_goes_away_cancels_the_query(runtime: FakeRuntime, made: dict[str, Any], ask: Ask) -> None:
    began, ended = asyncio.Event(), asyncio.Event()

    async def handle(request: web.Request) -> web.StreamResponse:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        return web.Response()

    answers(runtime, made, handle)
    asking = asyncio.create_task(ask())
    await asyncio.wait_for(began.wait(), 60)
    asking.cancel()
    await asyncio.wait_for(ended.wait(), 60)


async def test_an_engine_that_was_started_anew_is_recorded_once(
    core: Core, runtime: FakeRuntime, made: dict[str, Any], ask: Ask
) -> None:
    async def handle(request: web.Request) -> web.Response:
        return web.json_response(ROWS)

    answers(runtime, made, handle)
    await ask()
    before = default().instance_engine_restarts("timeout")._value.get()
    runtime.of(made["id"]).headers = {"Paddock-Engine-Restarts": "2", "Paddock-Engine-Restart-Reason": "timeout"}
    await asyncio.gather(*(ask() for _ in range(8)))
    assert (await events_of(core, made["id"])).count("engine_restarted") == 1
    assert default().instance_engine_restarts("timeout")._value.get() == before + 2
    runtime.of(made["id"]).headers = {
        "Paddock-Engine-Restarts": "99999999999999",
        "Paddock-Engine-Restart-Reason": "\\",
    }
    assert (await ask()).status_code == 200


async def test_activity_is_written_at_most_once_a_minute(
    core: Core, runtime: FakeRuntime, made: dict[str, Any], ask: Ask
) -> None:
    async def handle(request: web.Request) -> web.Response:
        return web.json_response(ROWS)

    answers(runtime, made, handle)
    pool = core.db.pool("durable")
    await pool.execute("UPDATE instances SET last_activity_at = paddock_now() - interval '2 minutes'")
    await ask()
    first = await pool.fetchval("SELECT last_activity_at FROM instances")
    assert await pool.fetchval("SELECT last_activity_at > paddock_now() - interval '1 minute' FROM instances")
    await ask()
    assert await pool.fetchval("SELECT last_activity_at FROM instances") == first


async def test_what_is_accepted_is_one_of_three(made: dict[str, Any], ask: Ask) -> None:
    assert code_of(await ask(accept="text/html")) == (406, "not_acceptable")


async def test_only_the_fixed_routes_are_passed_on(
    runtime: FakeRuntime, made: dict[str, Any], ada: httpx2.AsyncClient
) -> None:
    before = len(runtime.of(made["id"]).asked)
    for path in ("load", "metrics", "health", "query/../load", "queries/../../load/cancel", "algo/../load"):
        answer = await ada.post(f"/api/instances/{made['id']}/{path}", json={})
        assert answer.status_code in (404, 405, 422), (path, answer.text)
    assert not [one for one in runtime.of(made["id"]).asked[before:] if one[1] == "/load"]
    cancelled = await ada.post(f"/api/instances/{made['id']}/queries/not-an-id/cancel")
    assert code_of(cancelled) == (404, "not_found")


async def test_a_restarted_process_is_found_again_at_its_new_address(
    core: Core, runtime: FakeRuntime, made: dict[str, Any], ada: httpx2.AsyncClient
) -> None:
    async def handle(request: web.Request) -> web.Response:
        return web.json_response({"data": {"nodes": [], "edges": []}})

    instance = runtime.of(made["id"])
    instance.behaviour.routes["GET /schema"] = handle
    assert (await ada.get(f"/api/instances/{made['id']}/schema")).status_code == 200
    await instance.close()
    await instance.serve()

    async def again() -> bool:
        return (await ada.get(f"/api/instances/{made['id']}/schema")).status_code == 200

    await until("it answers again", again)


GAVE_UP = {
    "cause": "database_does_not_open",
    "message": "The database does not open: the engine's process ended with -11.",
    "hint": "Reopen the instance from its snapshot.",
}


def gives_up(runtime: FakeRuntime, made: dict[str, Any]) -> None:
    """Its server is there, and its engine never will be again."""

    async def refuse(request: web.Request) -> web.Response:
        error = {"code": "instance_not_running", "message": "It failed.", "details": {"state": "failed"}}
        return web.json_response({"error": error}, status=409)

    async def status(request: web.Request) -> web.Response:
        return web.json_response({"data": {"phase": "failed", "error": GAVE_UP}})

    answers(runtime, made, refuse)
    runtime.of(made["id"]).behaviour.routes["GET /status"] = status


async def test_one_whose_engine_gave_up_is_failed_by_the_query_that_hears_it(
    core: Core, runtime: FakeRuntime, made: dict[str, Any], ask: Ask, ada: httpx2.AsyncClient
) -> None:
    gives_up(runtime, made)
    answer = await ask()
    assert code_of(answer) == (409, "instance_not_running")
    assert answer.json()["error"]["details"] == {"status": "failed"}
    found = (await ada.get(f"/api/instances/{made['id']}")).json()["data"]
    assert (found["status"], found["error"]["code"]) == ("failed", "DATABASE_ERROR")
    assert found["error"]["message"] == GAVE_UP["message"]
    assert (await events_of(core, made["id"])).count("failed") == 1
    assert runtime.running == {}, "what ran for it is taken away"


async def test_one_that_only_says_so_in_an_answer_is_asked_again(
    core: Core, runtime: FakeRuntime, made: dict[str, Any], ask: Ask, ada: httpx2.AsyncClient
) -> None:
    gives_up(runtime, made)
    del runtime.of(made["id"]).behaviour.routes["GET /status"]
    assert code_of(await ask()) == (503, "instance_unreachable")
    assert (await ada.get(f"/api/instances/{made['id']}")).json()["data"]["status"] == "running"


async def test_another_conflict_goes_on_as_it_is(runtime: FakeRuntime, made: dict[str, Any], ask: Ask) -> None:
    async def handle(request: web.Request) -> web.Response:
        error = {"error": {"code": "query_cancelled", "message": "The query was cancelled.", "details": {}}}
        return web.json_response(error, status=409)

    answers(runtime, made, handle)
    assert code_of(await ask()) == (409, "query_cancelled")


@pytest.mark.parametrize(
    ("told", "passed_on"),
    [("10000 of 12410", "10000 of 12410"), ("1 of 1, 2", None), ("many", None), ("1 of " + "9" * 20, None)],
)
async def test_how_many_rows_a_csv_has_is_passed_on_and_nothing_else(
    runtime: FakeRuntime, made: dict[str, Any], ask: Ask, told: str, passed_on: str | None
) -> None:
    async def handle(request: web.Request) -> web.Response:
        return web.Response(body=b"a\n1\n", content_type="text/csv")

    answers(runtime, made, handle)
    runtime.of(made["id"]).headers["Paddock-Rows"] = told
    assert (await ask(accept="text/csv")).headers.get("paddock-rows") == passed_on


async def test_one_that_drips_is_cut_however_often_it_sends_something(
    runtime: FakeRuntime, made: dict[str, Any], ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(proxy, "MOST_WAITED", 0.3)

    async def handle(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers=runtime.of(made["id"])._all_headers())
        response.content_type = "application/json"
        await response.prepare(request)
        while True:
            await response.write(b" ")
            await asyncio.sleep(0.01)

    answers(runtime, made, handle)
    cut = default().instance_queries("cut")._value
    before = cut.get()
    with pytest.raises(httpx2.HTTPError):
        await ask()
    assert cut.get() == before + 1


async def test_every_query_is_counted_with_what_became_of_it(
    runtime: FakeRuntime, made: dict[str, Any], ask: Ask, ada: httpx2.AsyncClient
) -> None:
    async def handle(request: web.Request) -> web.Response:
        return web.json_response(ROWS)

    async def refuse(request: web.Request) -> web.Response:
        error = {"error": {"code": "QUERY_TIMEOUT", "message": "Too long.", "details": {}}}
        return web.json_response(error, status=408)

    def counted() -> tuple[float, ...]:
        told = default()
        outcomes = [told.instance_queries(outcome)._value.get() for outcome in ("ok", "timeout")]
        return (*outcomes, told.instance_query_seconds._sum.get() > 0)

    answers(runtime, made, handle)
    ok, late, _ = counted()
    await ask()
    assert counted() == (ok + 1, late, True)
    runtime.of(made["id"]).behaviour.routes["POST /algo/shortest_path"] = handle
    path = f"/api/instances/{made['id']}/algo/shortest_path"
    assert (await ada.post(path, json={"source": "a", "target": "b"})).status_code == 200
    assert counted() == (ok + 2, late, True), "a shortest path is a query"
    answers(runtime, made, refuse)
    assert code_of(await ask()) == (408, "QUERY_TIMEOUT")
    assert counted() == (ok + 2, late + 1, True)


async def test_a_query_is_cancelled_by_its_id(
    runtime: FakeRuntime, made: dict[str, Any], ask: Ask, ada: httpx2.AsyncClient
) -> None:
    began, cancelled, ids = asyncio.Event(), asyncio.Event(), []

    async def handle(request: web.Request) -> web.Response:
        ids.append((await request.json())["query_id"])
        began.set()
        await cancelled.wait()
        error = {"error": {"code": "query_cancelled", "message": "The query was cancelled.", "details": {}}}
        return web.json_response(error, status=409)

    async def cancel(request: web.Request) -> web.Response:
        cancelled.set()
        return web.json_response({"data": {"query_id": ids[0], "cancelled": True}})

    answers(runtime, made, handle)
    asking = asyncio.create_task(ask())
    await asyncio.wait_for(began.wait(), 60)
    runtime.of(made["id"]).behaviour.routes[f"POST /queries/{ids[0]}/cancel"] = cancel
    assert (await ada.post(f"/api/instances/{made['id']}/queries/{ids[0]}/cancel")).status_code == 200
    assert code_of(await asyncio.wait_for(asking, 60)) == (409, "query_cancelled")
