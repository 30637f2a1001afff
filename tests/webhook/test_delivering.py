"""From an event in a transaction to a signed request, through the core."""

import asyncio
import hashlib
import hmac
import logging
from collections.abc import AsyncIterator, Mapping
from typing import Any
from uuid import UUID, uuid4

import orjson
import pytest
from structlog.testing import capture_logs

from paddock.jobs import events, wire
from paddock.jobs.core import Core, CoreSettings, open_core
from paddock.jobs.events import OwnedEvent
from paddock.jobs.kinds import Kinds
from paddock.jobs.model import Job, JobId, NewEvent
from paddock.jobs.webhooks.delivering import WEBHOOK, WebhookPayload
from paddock.worker.ending import failure_of, item_for
from paddock.worker.resources import Resources
from paddock.worker.turns import TurnPort, build_turn
from tests.webhook.receiver import answering, receiving

SECRET = "whsec-3f1c-not-to-be-seen"
FACT = NewEvent("table.compacted", "tables/7", {"files": 12})


class Nobody:
    """The owner of a turn that neither saves nor reports."""

    def ended(self, item: wire.FinishItem) -> None: ...
    def stopped(self, attempt_id: UUID) -> None: ...
    def save(self, item: wire.SaveItem) -> None: ...
    def report(self, attempt_id: UUID, progress: dict[str, Any]) -> None: ...
    def log(self, attempt_id: UUID, lines: str, dropped_bytes: int = 0) -> None: ...


@pytest.fixture
async def telling(dsn: str) -> AsyncIterator[Core]:
    async with open_core(dsn, Kinds([WEBHOOK]), CoreSettings(webhook_allow_private=True)) as core:
        yield core


async def subscribe(core: Core, url: str, *types: str) -> UUID:
    async with core.db.transaction() as tx:
        webhook = await tx.fetchval(
            "INSERT INTO webhooks (owner, url, types, secret) VALUES ('ann', $1, $2, $3) RETURNING id",
            url,
            list(types) or ["*"],
            SECRET,
        )
    assert isinstance(webhook, UUID)
    return webhook


async def emit(core: Core, event: NewEvent = FACT) -> None:
    async with core.db.transaction() as tx:
        await events.emit(core, tx, [OwnedEvent(event, "ann")])


async def deliver_next(core: Core) -> Job | None:
    """One turn of the next due delivery, as the worker inside `serve` runs it."""
    link = core.link(internal=True)
    registered = await link.register(wire.Register(worker_id="inside", version="1", kinds=[WEBHOOK.name]))
    claimed = await link.claim(wire.Claim(session=registered.session, claim_id=uuid4(), kinds=[WEBHOOK.name], limit=1))
    if not claimed.jobs:
        return None
    [job] = claimed.jobs
    turn = build_turn(WEBHOOK, job, TurnPort(job, Nobody(), asyncio.get_running_loop()))
    try:
        given = Resources({Core: core}).for_handler(WEBHOOK.handler)
        item = item_for(job, await WEBHOOK.handler(turn, **given))
    except Exception as error:
        item = failure_of(WEBHOOK, job, error)
    await link.finish(wire.Finish(items=[item]))
    return await core.job(JobId(job.id))


async def is_active(core: Core, webhook: UUID) -> bool:
    async with core.db.transaction() as tx:
        return bool(await tx.fetchval("SELECT active FROM webhooks WHERE id = $1", webhook))


def verified(headers: Mapping[str, str], body: bytes) -> Any:
    """As the documentation tells a receiver to do it."""
    signed = f"{headers['Paddock-Timestamp']}.".encode() + body
    expected = hmac.new(SECRET.encode(), signed, hashlib.sha256).hexdigest()
    assert hmac.compare_digest(headers["Paddock-Signature"], f"v1={expected}")
    return orjson.loads(body)


async def test_a_subscriber_gets_the_event_signed(telling: Core) -> None:
    async with receiving(answering(204)) as receiver:
        await subscribe(telling, receiver.url())
        await emit(telling)
        job = await deliver_next(telling)

    assert job is not None
    assert (job.status, job.result) == ("completed", {"status": 204})
    [(headers, body)] = receiver.requests
    event = verified(headers, body)
    assert event["id"] == headers["Paddock-Event-Id"]
    assert event["type"] == headers["Paddock-Event-Type"] == "table.compacted"
    assert (event["subject"], event["data"]) == ("tables/7", {"files": 12})
    assert event["version"] > 0
    assert event["at"].endswith("Z")
    assert headers["User-Agent"].startswith("Paddock/")


async def test_nobody_is_told_what_they_did_not_ask_for(telling: Core) -> None:
    await subscribe(telling, "https://example.com/", "job.*")
    await emit(telling)
    assert await deliver_next(telling) is None


async def test_a_receiver_that_is_down_is_tried_again_when_it_says(telling: Core) -> None:
    async with receiving(answering(503, {"Retry-After": "120"})) as receiver:
        await subscribe(telling, receiver.url())
        await emit(telling)
        job = await deliver_next(telling)

    assert job is not None
    assert (job.status, job.error_code, job.failure_count) == ("pending", "webhook_unavailable", 1)
    assert job.due_at is not None
    assert 110 < (job.due_at - job.created_at).total_seconds() < 130


async def test_a_receiver_that_is_gone_is_not_told_again(telling: Core) -> None:
    async with receiving(answering(410)) as receiver:
        webhook = await subscribe(telling, receiver.url())
        await emit(telling)
        job = await deliver_next(telling)

        assert job is not None
        assert (job.status, job.error_code) == ("failed", "webhook_gone")
        assert not await is_active(telling, webhook)

        await emit(telling)
        assert await deliver_next(telling) is None
    assert len(receiver.requests) == 1


async def test_a_refusal_fails_the_delivery_and_keeps_the_subscription(telling: Core) -> None:
    async with receiving(answering(404)) as receiver:
        webhook = await subscribe(telling, receiver.url())
        await emit(telling)
        job = await deliver_next(telling)

    assert job is not None
    assert (job.status, job.error_code) == ("failed", "webhook_refused")
    assert await is_active(telling, webhook)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ("DELETE FROM webhooks", "deleted"),
        ("UPDATE webhooks SET active = false", "not active"),
        ("DELETE FROM events", "no longer kept"),
    ],
)
async def test_a_delivery_that_lost_its_reason_is_skipped(telling: Core, change: str, why: str) -> None:
    async with receiving(answering(200)) as receiver:
        await subscribe(telling, receiver.url())
        await emit(telling)
        async with telling.db.transaction() as tx:
            await tx.execute(change)
        job = await deliver_next(telling)

    assert job is not None
    assert job.status == "completed"
    assert why in job.result["skipped"]
    assert receiver.requests == []


async def test_private_receivers_are_refused_unless_allowed(dsn: str) -> None:
    async with open_core(dsn, Kinds([WEBHOOK])) as core, receiving(answering(200)) as receiver:
        await subscribe(core, f"https://127.0.0.1:{receiver.port}/")
        await emit(core)
        job = await deliver_next(core)

    assert job is not None
    assert (job.status, job.error_code) == ("failed", "address_refused")
    assert receiver.requests == []


async def test_neither_secret_nor_url_is_kept_with_the_job_or_logged(
    telling: Core, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    jobs = []
    with capture_logs() as lines:
        async with receiving(answering(500)) as receiver:
            await subscribe(telling, receiver.url(path="/T0KEN"))
            await emit(telling)
            jobs.append(await deliver_next(telling))
        async with telling.db.transaction() as tx:
            await tx.execute("UPDATE jobs SET due_at = paddock_now()")
        telling.look_again()
        jobs.append(await deliver_next(telling))  # nobody listens there any more

    assert [job.error_code for job in jobs if job] == ["webhook_unavailable", "receiver_unreachable"]
    ours = [record.getMessage() for record in caplog.records if not record.name.startswith("aiohttp.access")]
    for text in (*map(repr, jobs), *map(str, lines), *ours):
        assert SECRET not in text
        assert "T0KEN" not in text
    [payload] = {orjson.dumps(job.payload) for job in jobs if job}
    assert orjson.loads(payload)["receiver"] == "127.0.0.1"
    assert WebhookPayload.model_fields.keys() == {"event_id", "webhook_id", "receiver"}
