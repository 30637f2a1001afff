"""Every error has one shape, whoever raised it."""

from typing import Any

import asyncpg
import httpx2
import pytest
from fastapi import FastAPI

from paddock.api.app import create_app
from paddock.config import Config
from paddock.jobs.core import Core
from tests.api.conftest import BASE, Clients

ID = "019a8b1e-4c00-7000-8f6e-2f9d3c0a51e7"


def assert_shape(answer: httpx2.Response) -> dict[str, Any]:
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["x-request-id"]
    body = answer.json()
    assert set(body) == {"error"}
    error: dict[str, Any] = body["error"]
    assert {"code", "message", "details"} <= set(error) <= {"code", "message", "details", "hint"}
    assert error["code"] == error["code"].lower().replace(" ", "_")
    assert error["message"].endswith((".", ":")) or error["code"] in ("invalid", "malformed_body", "invalid_payload")
    assert isinstance(error["details"], dict)
    return error


async def test_the_frameworks_own_errors_have_our_shape(ada: httpx2.AsyncClient, stranger: httpx2.AsyncClient) -> None:
    for client, method, path, status, code in (
        (ada, "GET", "/nonesuch", 404, "not_found"),
        (ada, "GET", "/api/nonesuch", 404, "not_found"),
        (ada, "GET", "/api/jobs/", 404, "not_found"),
        (ada, "GET", f"/api/jobs/{ID}", 404, "not_found"),
        (ada, "DELETE", "/api/jobs", 405, "method_not_allowed"),
        (ada, "BREW", "/api/jobs", 405, "method_not_allowed"),
        (ada, "GET", "/internal/jobs/claim", 405, "method_not_allowed"),
        (ada, "GET", "/api/jobs?limit=many", 422, "invalid"),
        (stranger, "GET", "/api/jobs", 401, "no_token"),
        (stranger, "POST", "/internal/jobs/claim", 401, "no_token"),
        (ada, "GET", "/api/audit", 403, "not_allowed"),
    ):
        answer = await client.request(method, path)
        assert answer.status_code == status, path
        assert assert_shape(answer)["code"] == code, path
    assert (await ada.request("DELETE", "/api/jobs")).headers["allow"] == "POST"
    assert (await stranger.get("/api/jobs")).headers["www-authenticate"] == "Bearer"


async def test_a_422_lists_every_field(ada: httpx2.AsyncClient) -> None:
    body = {"kind": 1, "priority": 9, "tags": ["", "ok"], "run_at": "soon", "lock_key": "x"}
    error = assert_shape(await ada.post("/api/jobs", json=body))

    listed = {field["field"] for field in error["details"]["fields"]}
    assert listed == {"kind", "priority", "tags.0", "run_at", "lock_key"}
    assert all(field["message"] for field in error["details"]["fields"])


async def test_a_422_does_not_repeat_what_was_sent(ada: httpx2.AsyncClient) -> None:
    answer = await ada.post("/api/jobs", json={"kind": ["hunter2"], "payload": "hunter2", "priority": "hunter2"})
    assert answer.status_code == 422
    assert "hunter2" not in answer.text


async def test_a_bug_is_a_500_that_shows_nothing_but_its_request_id(
    ada: httpx2.AsyncClient, core: Core, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def broken(*_: object, **__: object) -> None:
        raise RuntimeError("the password is hunter2 in /srv/secret.py")

    monkeypatch.setattr(core, "job", broken)
    answer = await ada.get(f"/api/jobs/{ID}", headers={"X-Request-Id": "my-request"})

    error = assert_shape(answer)
    assert (answer.status_code, error["code"]) == (500, "internal_error")
    assert error["details"] == {"request_id": "my-request"}
    assert "hunter2" not in answer.text
    assert "secret.py" not in answer.text


@pytest.mark.parametrize(
    "problem",
    [
        ConnectionRefusedError("refused"),
        FileNotFoundError("no socket"),
        TimeoutError(),
        asyncpg.ConnectionDoesNotExistError("connection was closed in the middle of operation"),
        asyncpg.CannotConnectNowError("the database system is starting up"),
        asyncpg.AdminShutdownError("terminating connection due to administrator command"),
        asyncpg.TooManyConnectionsError("sorry, too many clients already"),
        asyncpg.InterfaceError("pool is closing"),
        asyncpg.InterfaceError("connection is closed"),
    ],
    ids=lambda problem: f"{type(problem).__name__}: {problem}",
)
async def test_a_database_that_is_away_is_a_503(problem: Exception) -> None:
    async def away(*_: object, **__: object) -> None:
        raise problem

    app = create_app(FakeCore(away), Config())  # type: ignore[arg-type]
    transport = httpx2.ASGITransport(app)
    async with httpx2.AsyncClient(transport=transport, base_url=BASE, headers={"Authorization": "Bearer x"}) as client:
        for method, path in (("GET", "/api/jobs"), ("POST", "/internal/jobs/claim"), ("GET", "/ready")):
            answer = await client.request(method, path)
            assert (answer.status_code, assert_shape(answer)["code"]) == (503, "database_unavailable"), path
            assert int(answer.headers["retry-after"]) > 0
        assert (await client.get("/health")).status_code == 200


class FakeCore:
    """A core whose database answers nothing."""

    def __init__(self, away: object) -> None:
        from prometheus_client import CollectorRegistry

        from paddock.jobs.changes import Changes
        from paddock.jobs.kinds import Kinds
        from paddock.metrics import Metrics

        self.kinds = Kinds()
        self.changes = Changes()
        self.metrics = Metrics(CollectorRegistry())
        self.db = self
        self.fetch = self.fetchrow = self.fetchval = self.execute = away


async def test_wrong_use_of_the_driver_is_a_bug_and_no_outage(app: FastAPI, clients: Clients) -> None:
    from paddock.api.errors import database_away

    assert not database_away(asyncpg.InterfaceError("the server expects 1 argument for this query, 0 were passed"))
    assert not database_away(asyncpg.UndefinedTableError('relation "jobs" does not exist'))
