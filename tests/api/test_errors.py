"""Every error has one shape, whoever raised it."""

import asyncio
import html
from datetime import timedelta
from typing import Any

import asyncpg
import httpx2
import pytest
from fastapi import FastAPI

from paddock.api.app import create_app
from paddock.background.looping import Loop
from paddock.config import Config
from paddock.jobs.core import Core
from paddock.jobs.model import NewJob
from paddock.web import pages
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
    assert await told_everywhere(problem) == (
        "database_unavailable",
        "Paddock cannot reach its database at the moment.",
    )


@pytest.mark.parametrize(
    ("problem", "said"),
    [
        (asyncpg.DiskFullError("could not extend file: No space left on device"), "no disk space left"),
        (asyncpg.QueryCanceledError("canceling statement due to statement timeout"), "ended a statement"),
        (asyncpg.LockNotAvailableError("canceling statement due to lock timeout"), "ended a statement"),
        (asyncpg.InvalidPasswordError('password authentication failed for user "paddock"'), "user or password"),
        (asyncpg.InvalidAuthorizationSpecificationError("no pg_hba.conf entry"), "user or password"),
        (asyncpg.InsufficientPrivilegeError('permission denied for database "paddock"'), "denies its role"),
        (asyncpg.ReadOnlySQLTransactionError("cannot execute UPDATE in a read-only transaction"), "read-only"),
        (asyncpg.OutOfMemoryError("out of memory"), "out of memory"),
        (asyncpg.InvalidCatalogNameError('database "paddock" does not exist'), "not there any more"),
        (asyncpg.PostgresIOError("could not read block 7"), "cannot read or write its files"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
async def test_a_database_that_refuses_is_a_503_that_says_so(problem: Exception, said: str) -> None:
    code, message = await told_everywhere(problem)
    assert code == "database_refused"
    assert said in message


async def told_everywhere(problem: Exception) -> tuple[str, str]:
    """The code and sentence that the API, the workers' routes, /ready and the pages answer with, all the same."""

    async def refuse(*_: object, **__: object) -> None:
        raise problem

    app = create_app(FakeCore(refuse), Config(), routes=pages.routes())  # type: ignore[arg-type]
    transport = httpx2.ASGITransport(app)
    answers = set()
    async with httpx2.AsyncClient(transport=transport, base_url=BASE, headers={"Authorization": "Bearer x"}) as client:
        for method, path in (("GET", "/api/jobs"), ("POST", "/internal/jobs/claim"), ("GET", "/ready")):
            answer = await client.request(method, path)
            error = assert_shape(answer)
            answers.add((error["code"], error["message"]))
            assert answer.status_code == 503, path
            assert int(answer.headers["retry-after"]) > 0
        assert (await client.get("/health")).status_code == 200
        page = await client.get("/jobs")
    [told] = answers
    assert page.status_code == 503
    assert int(page.headers["retry-after"]) > 0
    assert told[1] in html.unescape(page.text)
    return told


async def test_a_disk_that_is_full_lets_read_but_is_not_ready(
    app: FastAPI, ada: httpx2.AsyncClient, core: Core, connection: "asyncpg.Connection[asyncpg.Record]"
) -> None:
    """PostgreSQL's own error, raised where it would come from: a table that has to grow."""
    await connection.execute(
        "CREATE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql AS"
        " $$BEGIN RAISE 'could not extend file' USING ERRCODE = 'disk_full'; END$$;"
        "CREATE TRIGGER full_disk BEFORE INSERT ON jobs EXECUTE FUNCTION full_disk()"
    )
    submitted = await ada.post("/api/jobs", json={"kind": "plain"})
    assert (submitted.status_code, assert_shape(submitted)["code"]) == (503, "database_refused")
    assert "disk space" in submitted.json()["error"]["message"]
    assert (await ada.get("/ready")).status_code == 200, "nothing of its own was refused yet"

    loop = Loop("submitting", lambda: core.submit([NewJob("plain", {})]), timedelta(seconds=1))
    app.state.plane.pass_problems = lambda: [loop.problem] if loop.problem else []
    await loop.once()
    ready = await ada.get("/ready")
    assert (ready.status_code, assert_shape(ready)["code"]) == (503, "database_refused")

    await connection.execute("DROP TRIGGER full_disk ON jobs; DROP FUNCTION full_disk")
    await loop.once()
    assert (await ada.get("/ready")).status_code == 200


async def test_a_database_that_became_read_only_says_so_to_who_writes(
    ada: httpx2.AsyncClient, connection: "asyncpg.Connection[asyncpg.Record]"
) -> None:
    name = await connection.fetchval("SELECT quote_ident(current_database())")
    await connection.execute(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
    try:
        await connection.execute(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
        said: dict[str, str] = {}
        async with asyncio.timeout(60):
            while "database_refused" not in said:
                answer = await ada.post("/api/jobs", json={"kind": "plain"})
                assert answer.status_code == 503
                error = assert_shape(answer)
                said[error["code"]] = error["message"]
        assert said.keys() <= {"database_unavailable", "database_refused"}, "the old connections died first"
        assert "read-only" in said["database_refused"]
    finally:
        await connection.execute(f"ALTER DATABASE {name} RESET default_transaction_read_only")


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
    from paddock.api.database_problems import database_problem

    assert (
        database_problem(asyncpg.InterfaceError("the server expects 1 argument for this query, 0 were passed")) is None
    )
    assert database_problem(asyncpg.UndefinedTableError('relation "jobs" does not exist')) is None


async def test_every_wrong_field_is_told_at_once_in_our_words(ada: httpx2.AsyncClient) -> None:
    answer = await ada.post("/api/jobs", json={"kind": 1, "priority": 9, "run_at": "soon", "owner": "bob"})
    assert {field["field"]: field["message"] for field in answer.json()["error"]["details"]["fields"]} == {
        "kind": "It should be text.",
        "priority": "It should be at most 4.",
        "run_at": "It should be a date and time like 2026-01-31T08:30:00Z.",
        "owner": "There is no such field.",
    }


async def test_a_parameter_that_a_list_does_not_have_is_refused(
    ada: httpx2.AsyncClient, grace: httpx2.AsyncClient
) -> None:
    """It would answer with everything, and look as if it had filtered."""
    for address in (
        "/api/exports?state=failed",
        "/api/jobs?stauts=failed",
        "/api/kinds?name=probe",
        "/api/mappings?x=",
    ):
        answer = await ada.get(address)
        assert (answer.status_code, answer.json()["error"]["code"]) == (422, "invalid"), address
    told = (await ada.get("/api/mappings?state=failed")).json()["error"]["details"]["fields"]
    message = "There is no such parameter here; there are cursor, limit, name, owner, q."
    assert told == [{"field": "state", "message": message}]
    assert (await ada.get("/api/jobs?status=nonsense")).status_code == 422
    assert (await ada.get("/api/jobs?status=failed&limit=5")).status_code == 200
    assert (await ada.get("/api/kinds?limit=5")).status_code == 200, "as clients ask for pages"
    assert (await grace.get("/api/events?typ=job.failed")).status_code == 422
