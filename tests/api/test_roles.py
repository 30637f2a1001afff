"""Every route says its roles, which makes a table role x route. These tests walk every route of the app against it."""

from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from fastapi import APIRouter, FastAPI
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Mount, Route

from paddock.api.access import NOBODY, OPEN, OPERATORS, PEOPLE, ROLES, Role, Roles, allowed, table_of
from paddock.api.app import create_app
from paddock.api.guard import GuardedRoute, guarded_router
from paddock.api.tokens import Caller
from paddock.config import Config
from paddock.jobs.core import Core
from paddock.jobs.filtering import Filter
from paddock.web.frame import page
from tests.api.conftest import Clients
from tests.conftest import DatabaseClock
from tests.upkeep.test_bulk import Line, turn

ID = "019a8b1e-4c00-7000-8f6e-2f9d3c0a51e7"
NAMES = {"worker": "worker", "analyst": "ada", "ops": "grace", "admin": "root"}


def every_route(app: FastAPI) -> Iterator[str]:
    for route in app.routes:
        assert isinstance(route, Route), f"{route} is no plain route: does the walk see what is inside?"
        for method in sorted((route.methods or set()) - {"HEAD"}):
            # The guard's routes are named without what a part may hold.
            yield f"{method} {route.path_format if isinstance(route, GuardedRoute) else route.path}"


def test_every_route_is_in_the_table_and_every_line_of_the_table_has_a_route(app: FastAPI) -> None:
    assert sorted(every_route(app)) == sorted(app.state.access)


def test_every_route_says_its_roles(app: FastAPI) -> None:
    assert [route for route, roles in app.state.access.items() if not roles or not roles <= {*ROLES, *OPEN}] == []


def test_the_table_of_two_routes_with_one_path_is_that_of_the_first() -> None:
    """It is the one that answers."""
    table = table_of([page("/things", answer_page, OPERATORS), page("/things", answer_page, PEOPLE)])
    assert table == {"GET /things": OPERATORS}


def test_admins_may_do_everything_but_what_workers_do_and_workers_nothing_else(app: FastAPI) -> None:
    for route, roles in app.state.access.items():
        internal = route.startswith("POST /internal/")
        assert (roles == {"worker"}) == internal, route
        assert roles == OPEN or ("admin" in roles) != internal, route


async def test_the_table_decides(app: FastAPI, clients: Clients) -> None:
    access = app.state.access
    wrong = [problem for route in sorted(access) async for problem in against(access[route], route, clients)]
    assert wrong == []


async def test_who_may_not_read_may_not_ask_for_the_headers_either(app: FastAPI, clients: Clients) -> None:
    assert allowed(app.state.access, "HEAD", "/audit") == OPERATORS
    assert (await (await clients("grace")).head("/audit")).status_code == 200
    assert (await (await clients("ada")).head("/audit")).status_code == 403


async def test_a_route_without_roles_answers_nobody(core: Core, config: Config, clients: Clients) -> None:
    """Whatever way it is declared: by FastAPI alone or by Starlette alone. What is no plain route is not even there: a
    mount, or a router inside another one."""
    plain, guarded, around = APIRouter(), guarded_router("things", PEOPLE), APIRouter()
    plain.add_api_route("/api/plain/{thing}", answer_api, methods=["GET", "POST"])
    guarded.add_api_route("/api/guarded", answer_api)
    guarded.for_roles(NOBODY).add_api_route("/api/nobody", answer_api)
    around.include_router(guarded, prefix="/around")
    routes = [
        Route("/starlette", answer),
        Route("/asgi", PlainTextResponse("secret")),
        page("/page", answer_page, NOBODY),
        Mount("/mount", app=PlainTextResponse("secret")),
    ]
    clients.app = create_app(core, config, routers=[plain, guarded, around], routes=routes)

    async def statuses(method: str, path: str) -> list[int]:
        callers = [await clients(name) for name in ("stranger", *NAMES.values())]
        return [(await caller.request(method, path)).status_code for caller in callers]

    refused = [401, 403, 403, 403, 403]
    for path in ("/api/plain/1", "/api/nobody", "/starlette", "/asgi", "/page"):
        assert await statuses("GET", path) == refused, path
    assert await statuses("POST", "/api/plain/1") == refused
    assert await statuses("PUT", "/asgi") == refused
    assert await statuses("HEAD", "/starlette") == refused
    for path in ("/mount/it", "/around/api/guarded"):
        assert set(await statuses("GET", path)) == {404}, path
    assert await statuses("GET", "/api/guarded") == [401, 403, 200, 200, 200]
    assert clients.app.state.access["GET /api/plain/{thing}"] == NOBODY


async def answer_api() -> str:
    return "secret"


async def answer(request: Request) -> Response:
    return PlainTextResponse("secret")


async def answer_page(request: Request, caller: Caller) -> Response:
    return PlainTextResponse("secret")


async def against(roles: Roles, route: str, clients: Clients) -> AsyncIterator[str]:
    method, path = route.split(" ")
    for name in (
        "job_id",
        "group_id",
        "event_id",
        "webhook_id",
        "token_id",
        "session",
        "export_id",
        "mapping_id",
        "snapshot_id",
        "dump_id",
    ):
        path = path.replace(f"{{{name}}}", ID)
    path = (
        path.replace("{kind}", "nonesuch")
        .replace("{engine}", "nonesuch")
        .replace("{version}", "1")
        .replace("{table}", "orders")
        .replace("{name}", "style.css")
        .replace("{name:path}", "style.css")
    )
    if path == "/api/stream":
        path += "?group=no-id"  # allowed, and yet no stream that never ends

    async def status(name: str) -> int:
        client = await clients(name)
        # A body no route takes: whoever may not come in must be told so and not what is wrong with it.
        return (await client.request(method, path, json=None if method == "GET" else {"?": 0})).status_code

    if roles == OPEN:
        if (answered := await status("stranger")) not in (200, 401, 403, 422):
            yield f"{route}: a stranger got {answered}"
        return
    api = path.startswith(("/api/", "/export/", "/internal/")) or path.endswith("/maintenance")
    page = not api  # a browser is shown the way to sign in
    if (answered := await status("stranger")) != (303 if page else 401):
        yield f"{route}: a stranger got {answered}"
    for role in ROLES:
        answered = await status(NAMES[role])
        if page and method == "POST" and role in roles:
            right = answered == 403  # it lacks the CSRF token of a form
        else:
            right = (answered == 403) == (role not in roles) and answered != 401 and answered < 500
        if not right:
            yield f"{route}: {role} got {answered}"


async def test_a_worker_claims_only_the_kinds_of_its_token(clients: Clients) -> None:
    await clients.token("limited", "worker", kinds=["plain"])
    ada, limited = await clients("ada"), await clients("limited")
    for kind in ("plain", "other"):
        assert (await ada.post("/api/jobs", json={"kind": kind})).status_code == 202

    registered = await limited.post(
        "/internal/sessions", json={"worker_id": "w", "version": "1", "kinds": ["plain", "other"]}
    )
    claimed = await limited.post(
        "/internal/jobs/claim",
        json={"session": registered.json()["session"], "claim_id": ID, "kinds": ["plain", "other"], "limit": 10},
    )

    assert [job["kind"] for job in claimed.json()["jobs"]] == ["plain"]


async def test_priority_above_normal_needs_ops(clients: Clients) -> None:
    ada, grace = await clients("ada"), await clients("grace")
    for priority in (1, 2):
        body = {"kind": "plain", "priority": priority}
        refused = await ada.post("/api/jobs", json=body)
        assert (refused.status_code, refused.json()["error"]["code"]) == (403, "priority_not_allowed")
        assert (await ada.post("/api/jobs/batch", json={"jobs": [body]})).status_code == 403
        assert (await grace.post("/api/jobs", json=body)).status_code == 202
    assert (await ada.post("/api/jobs", json={"kind": "plain", "priority": 4})).status_code == 202


async def test_a_kind_says_who_may_submit_it(clients: Clients) -> None:
    ada, root = await clients("ada"), await clients("root")

    for_ops = await ada.post("/api/jobs", json={"kind": "probe"})
    assert (for_ops.status_code, for_ops.json()["error"]["code"]) == (403, "kind_not_allowed")
    for client in (ada, root):
        internal = await client.post("/api/jobs", json={"kind": "internal_only"})
        assert (internal.status_code, internal.json()["error"]["code"]) == (403, "kind_internal")
    unknown = await root.post("/api/jobs", json={"kind": "nonesuch"})
    assert (unknown.status_code, unknown.json()["error"]["code"]) == (422, "unknown_kind")


async def test_an_engine_role_outside_the_token_is_refused(clients: Clients) -> None:
    await clients.token("carol", "analyst", engine_roles=["finance"])
    carol = await clients("carol")

    granted = await carol.post("/api/jobs", json={"kind": "plain"}, headers={"X-Use-Case-Id": "finance"})
    refused = await carol.post("/api/jobs", json={"kind": "plain"}, headers={"X-Use-Case-Id": "people"})

    assert granted.json()["data"]["role"] == "finance"
    assert (refused.status_code, refused.json()["error"]["code"]) == (403, "engine_role_not_allowed")


@pytest.mark.parametrize(
    ("role", "granted", "frozen"),
    [
        ("analyst", [], []),
        ("analyst", ["people", "finance"], ["finance", "people"]),
        ("analyst", ["*"], None),
        ("ops", [], None),
        ("admin", [], None),
    ],
)
async def test_a_retry_in_bulk_carries_the_engine_roles_its_asker_has(
    clients: Clients, role: Role, granted: list[str], frozen: list[str] | None
) -> None:
    await clients.token("carol", role, engine_roles=granted)
    started = await (await clients("carol")).post("/api/jobs/retry", json={"all": True})
    assert started.json()["data"]["payload"]["engine_roles"] == frozen


GRANTS = {"engine_roles": ["finance"], "engines": ["trino"], "destinations": ["lake"], "databases": ["shop"]}


@pytest.mark.parametrize("taken", [None, *GRANTS])
async def test_rights_that_were_taken_do_not_come_back_with_a_bulk_job(clients: Clients, taken: str | None) -> None:
    await clients.token("carol", "analyst", **GRANTS)
    carol = await clients("carol")
    own = (await carol.post("/api/jobs/retry", json={"all": True})).headers["location"]
    await carol.post(f"{own}/cancel")
    await clients.token("carol", "analyst", **(GRANTS if taken is None else GRANTS | {taken: ["another"]}))
    clients.opened.pop("carol")

    again = await (await clients("carol")).post(f"{own}/retry")

    if taken is None:
        assert again.status_code == 202
    else:
        assert (again.status_code, again.json()["error"]["code"]) == (403, "bulk_not_allowed")
        assert (await (await clients("grace")).post(f"{own}/retry")).status_code == 202


async def test_nor_with_a_bulk_job_that_retries_it(clients: Clients, core: Core, clock: DatabaseClock) -> None:
    await clients.token("carol", "analyst", **GRANTS)
    carol = await clients("carol")
    own = (await carol.post("/api/jobs/retry", json={"all": True})).headers["location"]
    await carol.post(f"{own}/cancel")
    await clock.advance(seconds=1)

    for engine_roles, told in ((["people"], {"bulk_not_allowed": 1}), (["finance"], {})):
        rights: dict[str, Any] = GRANTS | {"engine_roles": engine_roles}
        outcome = await turn(core, clock, "retry", Filter(owner="carol", kind="bulk"), Line(), **rights)
        assert (outcome.result["matched"], outcome.result["refused"]) == (1, told)


async def test_an_analyst_does_not_repeat_what_the_same_person_asked_for_as_ops(clients: Clients) -> None:
    """It would go through everybody's jobs."""
    await clients.token("carol", "ops")
    carol = await clients("carol")
    own = (await carol.post("/api/jobs/cancel", json={"all": True})).headers["location"]
    await carol.post(f"{own}/cancel")
    await clients.token("carol", "analyst", **{what: ["*"] for what in GRANTS})
    clients.opened.pop("carol")

    again = await (await clients("carol")).post(f"{own}/retry")

    assert (again.status_code, again.json()["error"]["code"]) == (403, "bulk_not_allowed")


async def test_a_retry_needs_the_engine_role_again(clients: Clients) -> None:
    await clients.token("dora", "analyst", engine_roles=["finance"])
    dora, grace = await clients("dora"), await clients("grace")
    made = await dora.post("/api/jobs", json={"kind": "plain"}, headers={"X-Use-Case-Id": "finance"})
    own = made.headers["location"]
    await dora.post(f"{own}/cancel")
    await clients.token("dora", "analyst", engine_roles=["people"])
    clients.opened.pop("dora")

    refused = await (await clients("dora")).post(f"{own}/retry")

    assert (refused.status_code, refused.json()["error"]["code"]) == (403, "engine_role_not_allowed")
    assert (await grace.post(f"{own}/retry")).status_code == 202
