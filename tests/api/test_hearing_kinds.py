"""Deliveries to kinds are listed, shown and made again like those to webhooks."""

from collections.abc import AsyncIterator
from uuid import UUID

import httpx2
import pytest
from fastapi import FastAPI
from prometheus_client import CollectorRegistry

from paddock.db.pool import Transaction
from paddock.jobs import events
from paddock.jobs.core import Core, open_core
from paddock.jobs.kinds import Kind, Kinds
from paddock.jobs.model import Event, NewEvent, NewJob
from paddock.metrics import Metrics
from tests.api.conftest import BASE, Clients
from tests.kinds import TEST_KINDS, Anything, nothing
from tests.playing import worker as played_worker
from tests.web.signed_in import Browser, words_of


async def listen(tx: Transaction, event: Event) -> NewJob | None:
    return None if event.data.get("deaf") else NewJob("listener", {"event": str(event.id)}, owner=event.owner)


async def overhear(tx: Transaction, event: Event) -> NewJob | None:
    return NewJob("operators", {})


KINDS = (
    Kind(name="listener", payload=Anything, handler=nothing, hears={"thing.made": listen}),
    Kind(name="operators", payload=Anything, handler=nothing, hears={"thing.made": overhear}),
)


@pytest.fixture
async def core(dsn: str) -> AsyncIterator[Core]:
    async with open_core(dsn, Kinds([*TEST_KINDS, *KINDS]), metrics=Metrics(CollectorRegistry())) as opened:
        yield opened


async def tell(core: Core, owner: str = "ada", **data: object) -> UUID:
    async with core.db.transaction() as tx:
        await events.emit(core, tx, [events.OwnedEvent(NewEvent("thing.made", "thing:1", dict(data)), owner)])
        id: UUID = await tx.fetchval("SELECT id FROM events ORDER BY id DESC LIMIT 1")
    return id


async def listed(client: httpx2.AsyncClient, event: UUID) -> list[tuple[str | None, str, str]]:
    answer = await client.get(f"/api/events/{event}/deliveries")
    assert answer.status_code == 200
    for delivery in answer.json()["data"]:
        assert (delivery["webhook_id"], delivery["url"], delivery["active"]) == (None, None, True)
    return sorted((each["kind"], each["owner"], each["status"]) for each in answer.json()["data"])


async def test_who_sees_them(
    core: Core, ada: httpx2.AsyncClient, bob: httpx2.AsyncClient, grace: httpx2.AsyncClient
) -> None:
    event = await tell(core)
    assert await listed(ada, event) == [("listener", "ada", "pending")], "what runs for others is not hers to know"
    assert await listed(grace, event) == [("listener", "ada", "pending"), ("operators", "system", "pending")]
    assert (await bob.get(f"/api/events/{event}/deliveries")).status_code == 404


async def test_they_are_made_again(core: Core, ada: httpx2.AsyncClient, grace: httpx2.AsyncClient) -> None:
    event = await tell(core)
    path = f"/api/events/{event}/redeliver"

    async def kinds(client: httpx2.AsyncClient, body: dict[str, str], key: str) -> list[str]:
        answer = await client.post(path, json=body, headers={"Idempotency-Key": key})
        return (
            [job["kind"] for job in answer.json()["data"]]
            if answer.status_code == 202
            else [answer.json()["error"]["code"]]
        )

    assert await kinds(ada, {}, "1") == ["listener"]
    assert await kinds(ada, {"kind": "listener"}, "2") == ["listener"]
    assert await kinds(ada, {"kind": "operators"}, "3") == ["no_subscriber"], "she was told of none"
    assert await kinds(ada, {"kind": "plain"}, "4") == ["no_subscriber"], "it does not hear"
    assert await kinds(grace, {}, "5") == ["listener", "operators"]
    assert await kinds(grace, {"kind": "operators"}, "6") == ["operators"]
    assert await kinds(grace, {"kind": "operators"}, "6") == ["operators"], "the same answer"
    assert await kinds(grace, {"kind": "listener"}, "6") == ["idempotency_key_reused"]
    assert [kind for kind, _, _ in await listed(grace, event)] == ["listener"] * 4 + ["operators"] * 3


async def test_an_operator_may_name_one_that_was_not_told(
    core: Core, ada: httpx2.AsyncClient, grace: httpx2.AsyncClient
) -> None:
    """Its package came after the event, or could make no delivery then."""
    event = await tell(core)
    await core.db.pool("durable").execute("DELETE FROM deliveries")
    for client, status in ((ada, 409), (grace, 202)):
        answer = await client.post(f"/api/events/{event}/redeliver", json={"kind": "listener"})
        assert answer.status_code == status
    deaf = await tell(core, deaf=True)
    assert (await grace.post(f"/api/events/{deaf}/redeliver", json={"kind": "listener"})).status_code == 409


async def test_the_page_of_the_event(core: Core, app: FastAPI, clients: Clients) -> None:
    event = await tell(core)
    [attempt] = await (await played_worker(core)).claim("listener")
    await attempt.finish("permanent")
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url=BASE) as client:
        await client.post("/sign-in", data={"token": clients.secrets["ada"]}, headers={"origin": BASE})
        ada = Browser(client)
        page = f"/events/{event}"
        words = words_of(await ada.read(page))
        assert "kind listener" in words
        assert "It broke." in words
        assert "Redeliver the failed one" in words
        assert "1 failed" in words_of(await ada.read("/events"))
        assert await ada.done(f"{page}/redeliver", page) == page
        assert await listed(await clients("ada"), event) == [
            ("listener", "ada", "failed"),
            ("listener", "ada", "pending"),
        ]
        assert await ada.refused(f"{page}/redeliver", page, 409)
        assert await ada.done(f"{page}/redeliver", page, kind="listener") == page
        assert len(await listed(await clients("ada"), event)) == 3
