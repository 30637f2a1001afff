"""`callbackUrl`: who asked is told of the end, once signed, and never at the cost of the dump."""

import hashlib
import hmac
from collections.abc import Mapping
from functools import partial
from ipaddress import ip_address
from typing import Any

import asyncpg
import httpx2
import orjson
import pytest
from fastapi import FastAPI

from paddock.config import Config
from paddock.dumps.callbacks import CALLBACK
from paddock.dumps.settings import DumpSettings
from paddock.jobs.core import Core, CoreSettings
from paddock.jobs.model import Job
from paddock.jobs.webhooks import outbound
from tests.api.conftest import Clients
from tests.dumps.api.conftest import Played, Start, status
from tests.dumps.api.inside import run_inside
from tests.webhook.receiver import FakeResolver, answering, receiving

SECRET_PART = "T0KEN-in-the-path?key=hunter2"


@pytest.fixture
def config(config: Config) -> Config:
    return config.with_settings(config.of(DumpSettings).model_copy(update={"callback_allow_http": True}))


@pytest.fixture
def settings() -> CoreSettings:
    """Receivers on the loopback are allowed, but where a test says otherwise."""
    return CoreSettings(webhook_allow_private=True)


async def called(core: Core, config: Config) -> Job:
    [job] = await run_inside(core, config, CALLBACK)
    return job


async def key_of(client: httpx2.AsyncClient) -> str:
    secret: str = (await client.get("/api/webhooks/key")).json()["data"]["secret"]
    return secret


def verified(headers: Mapping[str, str], body: bytes, secret: str) -> Any:
    """As the documentation tells a receiver to do it."""
    signed = f"{headers['Paddock-Timestamp']}.".encode() + body
    expected = hmac.new(secret.encode(), signed, hashlib.sha256).hexdigest()
    assert hmac.compare_digest(headers["Paddock-Signature"], f"v1={expected}")
    return orjson.loads(body)


async def test_the_end_is_told_signed_with_the_owners_key(
    ada: httpx2.AsyncClient, core: Core, config: Config, played: Played, start: Start
) -> None:
    async with receiving(answering(204)) as receiver:
        id = await start(callbackUrl=receiver.url(path=f"/{SECRET_PART}"))
        await played.complete()
        job = await called(core, config)

    assert (job.status, job.owner, job.payload) == (
        "completed",
        "ada",
        {"dump_id": id, "receiver": "127.0.0.1"},
    )
    [(headers, body)] = receiver.requests
    assert verified(headers, body, await key_of(ada)) == {
        "jobId": id,
        "status": "completed",
        "downloadUrl": f"/export/jobs/{id}/download",
    }
    assert headers["Paddock-Event-Type"] == "dump.completed"
    assert headers["Paddock-Event-Id"] == str(job.id)


async def test_the_link_is_whole_where_the_address_outside_is_known(
    core: Core, config: Config, played: Played, start: Start
) -> None:
    known = config.model_copy(update={"public_url": "https://tools.example/paddock"})
    async with receiving(answering(204)) as receiver:
        id = await start(callbackUrl=receiver.url())
        await played.complete()
        await called(core, known)

    [(_, body)] = receiver.requests
    assert orjson.loads(body)["downloadUrl"] == f"https://tools.example/paddock/export/jobs/{id}/download"


async def test_where_private_addresses_are_allowed_so_is_plain_http(
    app: FastAPI, core: Core, config: Config, played: Played, start: Start
) -> None:
    """As of webhooks: the network of those who may register one is trusted."""
    trusting = config.model_copy(update={"webhook_allow_private": True}).with_settings(
        config.of(DumpSettings).model_copy(update={"callback_allow_http": False})
    )
    app.state.plane.config = trusting
    async with receiving(answering(204)) as receiver:
        await start(callbackUrl=receiver.url())
        await played.complete()
        assert (await called(core, trusting)).status == "completed"
    assert len(receiver.requests) == 1


@pytest.mark.parametrize(("end", "message"), [("failed", "It broke."), ("cancelled", "Cancelled")])
async def test_whatever_is_no_completion_is_told_as_failed(
    ada: httpx2.AsyncClient, core: Core, config: Config, played: Played, start: Start, end: str, message: str
) -> None:
    async with receiving(answering(200)) as receiver:
        id = await start(callbackUrl=receiver.url())
        attempt = await played.claim()
        if end == "failed":
            await attempt.finish("permanent")
        else:
            await ada.delete(f"/export/jobs/{id}")
        await called(core, config)

    [(headers, body)] = receiver.requests
    assert orjson.loads(body) == {"jobId": id, "status": "failed", "error_message": message}
    assert headers["Paddock-Event-Type"] == "dump.failed"
    # StarbaseDB's words are for the callback only.
    [event] = (await ada.get("/api/events")).json()["data"]
    assert event["type"] == f"dump.{end}"
    known = {item["type"] for item in (await ada.get("/api/events/types")).json()["data"]}
    assert known >= {"dump.completed", "dump.failed", "dump.cancelled", "job.cancelled"}


async def test_who_did_not_ask_is_not_told(core: Core, config: Config, played: Played, start: Start) -> None:
    await start()
    await played.complete()
    assert await run_inside(core, config, CALLBACK) == []


async def test_a_repetition_that_fails_tells_nobody(
    ada: httpx2.AsyncClient, core: Core, config: Config, played: Played, start: Start
) -> None:
    async with receiving(answering(200)) as receiver:
        await start(callbackUrl=receiver.url())
        attempt = await played.claim()
        await played.complete(attempt)
        await called(core, config)
        await ada.post(f"/api/jobs/{attempt.id}/retry")
        await (await played.claim()).finish("permanent")
        assert await run_inside(core, config, CALLBACK) == []


@pytest.mark.parametrize(
    ("answer", "ended", "code"),
    [(500, "pending", "webhook_unavailable"), (404, "failed", "webhook_refused"), (410, "failed", "webhook_gone")],
)
async def test_its_failure_changes_nothing_of_the_dump(
    ada: httpx2.AsyncClient,
    core: Core,
    config: Config,
    played: Played,
    start: Start,
    answer: int,
    ended: str,
    code: str,
) -> None:
    async with receiving(answering(answer)) as receiver:
        id = await start(callbackUrl=receiver.url())
        await played.complete()
        before = await status(ada, id)
        job = await called(core, config)

    assert (job.status, job.error_code) == (ended, code)
    assert await status(ada, id) == before
    assert (await ada.get(f"/export/jobs/{id}/download")).status_code == 200


async def test_a_redirect_is_not_followed(core: Core, config: Config, played: Played, start: Start) -> None:
    async with receiving(answering(200)) as elsewhere:
        async with receiving(answering(307, {"Location": elsewhere.url()})) as receiver:
            await start(callbackUrl=receiver.url())
            await played.complete()
            job = await called(core, config)
        assert elsewhere.requests == []
    assert (job.status, job.error_code) == ("failed", "webhook_redirected")


class TestWhatIsPrivate:
    """Refused when it is connected to, whatever it was called before."""

    @pytest.fixture
    def settings(self) -> CoreSettings:
        return CoreSettings(webhook_allow_private=False)

    @staticmethod
    def resolving(monkeypatch: pytest.MonkeyPatch, *answers: str) -> FakeResolver:
        resolver = FakeResolver(*answers)
        monkeypatch.setattr(outbound, "post", partial(outbound.post, resolver=resolver))
        return resolver

    @pytest.mark.parametrize("host", ["127.0.0.1", "[::1]", "169.254.169.254", "10.0.0.1"])
    async def test_an_address(
        self, ada: httpx2.AsyncClient, core: Core, config: Config, played: Played, start: Start, host: str
    ) -> None:
        async with receiving(answering(200)) as receiver:
            id = await start(callbackUrl=f"http://{host}:{receiver.port}/{SECRET_PART}")
            await played.complete()
            job = await called(core, config)
        assert (job.status, job.error_code) == ("failed", "address_refused")
        assert receiver.requests == []
        assert (await status(ada, id))["status"] == "completed"

    async def test_a_name_that_leads_there(
        self, core: Core, config: Config, played: Played, start: Start, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        self.resolving(monkeypatch, "127.0.0.1")
        async with receiving(answering(200)) as receiver:
            await start(callbackUrl=receiver.url("hooks.example.com"))
            await played.complete()
            job = await called(core, config)
        assert (job.status, job.error_code) == ("failed", "address_refused")
        assert receiver.requests == []

    async def test_a_name_that_leads_elsewhere_the_second_time(
        self, core: Core, config: Config, played: Played, start: Start, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """127.0.0.1 plays a public address here, 127.0.0.2 a private one."""
        monkeypatch.setattr(outbound, "is_public", lambda address: address == ip_address("127.0.0.1"))
        resolver = self.resolving(monkeypatch, "127.0.0.1", "127.0.0.2")
        async with receiving(answering(503, {"Retry-After": "0"}), host="0.0.0.0") as receiver:
            await start(callbackUrl=receiver.url("hooks.example.com"))
            await played.complete()
            first = await called(core, config)
            second = await called(core, config)
        assert (first.status, first.error_code) == ("pending", "webhook_unavailable")
        assert (second.status, second.error_code) == ("failed", "address_refused")
        assert len(receiver.requests) == 1
        assert resolver.asked == 2

    async def test_http_is_refused_again_when_it_is_no_longer_allowed(
        self, core: Core, config: Config, played: Played, start: Start
    ) -> None:
        async with receiving(answering(200)) as receiver:
            await start(callbackUrl=receiver.url("hooks.example.com"))
            await played.complete()
            job = await called(
                core, config.with_settings(config.of(DumpSettings).model_copy(update={"callback_allow_http": False}))
            )
        assert (job.status, job.error_code) == ("failed", "url_refused")


async def test_the_url_is_shown_nowhere(
    ada: httpx2.AsyncClient,
    core: Core,
    config: Config,
    played: Played,
    start: Start,
    connection: "asyncpg.Connection[asyncpg.Record]",
) -> None:
    id = await start(callbackUrl=f"http://127.0.0.1:1/{SECRET_PART}")
    await played.complete()
    job = await called(core, config)

    assert job.error_code == "receiver_unreachable"
    found = await status(ada, id, v=2)
    for path in (
        f"/export/jobs/{id}?v=2",
        "/export/jobs",
        f"/api/jobs/{found['job']}",
        f"/api/jobs/{job.id}",
        f"/api/jobs/{job.id}/timeline",
        "/api/jobs",
        "/api/events",
    ):
        text = (await ada.get(path)).text
        assert "T0KEN" not in text, path
        assert "hunter2" not in text, path
    for table in ("jobs", "job_history", "job_timeline", "events", "audit_log", "idempotency_keys"):
        rows = await connection.fetch(f"SELECT t::text AS row FROM {table} t")
        assert not any("T0KEN" in row["row"] for row in rows), table


async def test_a_dump_that_was_deleted_is_not_told_of(
    ada: httpx2.AsyncClient, core: Core, config: Config, played: Played, start: Start
) -> None:
    async with receiving(answering(200)) as receiver:
        id = await start(callbackUrl=receiver.url())
        await played.complete()
        await ada.delete(f"/export/jobs/{id}")
        job = await called(core, config)
    assert job.status == "completed"
    assert job.result == {"skipped": "The dump is being deleted."}
    assert receiver.requests == []


class TestKeys:
    async def test_an_owner_has_one_and_it_stays(self, ada: httpx2.AsyncClient, bob: httpx2.AsyncClient) -> None:
        first = (await ada.get("/api/webhooks/key")).json()["data"]
        assert first["owner"] == "ada"
        assert first["secret"].startswith("whsec_")
        assert len(first["secret"]) > 40
        assert (await ada.get("/api/webhooks/key")).json()["data"] == first
        assert await key_of(bob) != first["secret"]

    async def test_a_new_one_takes_its_place(
        self,
        ada: httpx2.AsyncClient,
        core: Core,
        config: Config,
        played: Played,
        start: Start,
        connection: "asyncpg.Connection[asyncpg.Record]",
    ) -> None:
        before = await key_of(ada)
        after = (await ada.post("/api/webhooks/key/rotate")).json()["data"]["secret"]
        assert before != after == await key_of(ada)

        async with receiving(answering(200)) as receiver:
            await start(callbackUrl=receiver.url())
            await played.complete()
            await called(core, config)
        [(headers, body)] = receiver.requests
        verified(headers, body, after)
        noted = await connection.fetch("SELECT t::text AS row FROM audit_log t WHERE action = 'webhook_key_rotated'")
        assert len(noted) == 1
        assert after not in noted[0]["row"]

    async def test_it_is_the_owners_alone(self, clients: Clients, ada: httpx2.AsyncClient) -> None:
        mine = await key_of(ada)
        for name in ("grace", "root"):
            assert await key_of(await clients(name)) != mine
        assert (await (await clients("stranger")).get("/api/webhooks/key")).status_code == 401
        assert (await (await clients("worker")).post("/api/webhooks/key/rotate")).status_code == 403
