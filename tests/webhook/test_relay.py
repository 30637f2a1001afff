"""The relay of `examples/notifications`: it passes on what Paddock signed, in the words of Slack and PagerDuty."""

import asyncio
import http.client
import importlib.util
import json
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from http.server import ThreadingHTTPServer
from pathlib import Path
from types import ModuleType
from typing import Any
from uuid import UUID

import pytest

from paddock.jobs.webhooks import delivering
from tests.webhook.receiver import answering, receiving

RELAY = Path(__file__).parents[2] / "examples" / "notifications" / "relay.py"
SECRET = "whsec_x"
FAILED = {"job_id": "7", "kind": "export", "status": "failed", "error_code": "disk_full"}


@pytest.fixture(scope="module")
def relay() -> Iterator[ModuleType]:
    spec = importlib.util.spec_from_file_location("notifications_relay", RELAY)
    assert spec is not None
    assert spec.loader is not None
    sys.modules[spec.name] = found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    yield found
    del sys.modules[spec.name]


def event(type: str = "job.failed", **data: Any) -> dict[str, Any]:
    return {"id": str(UUID(int=7)), "type": type, "subject": "7", "version": 1, "at": datetime(2026, 11, 18, tzinfo=UTC),
            "data": json.dumps({**FAILED, **data})}  # fmt: skip


@contextmanager
def serving(server: ThreadingHTTPServer) -> Iterator[int]:
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def send(port: int, body: bytes, headers: dict[str, str]) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        connection.request("POST", "/", body, headers)
        return connection.getresponse().status
    finally:
        connection.close()


async def told(relay: ModuleType, status: int, secret: str = SECRET, **fields: Any) -> tuple[int, list[Any]]:
    """What the relay answers to a delivery, and what it posted to receivers that answer with this status."""
    async with receiving(answering(status)) as receiver:
        places = relay.Places(
            SECRET, receiver.url(path="/slack"), "key", receiver.url(path="/pagerduty"), "https://paddock.example/"
        )
        body = delivering.event_body(event(**fields))
        headers = delivering.headers(UUID(int=7), "job.failed", int(datetime.now(UTC).timestamp()), body, secret)
        with serving(relay.serve(places, "127.0.0.1", 0)) as port:
            answer = await asyncio.to_thread(send, port, body, headers)
        return answer, [json.loads(content) for _, content in receiver.requests]


async def test_a_failure_is_an_alert_and_a_message(relay: ModuleType) -> None:
    answer, [alert, message] = await told(relay, 200)
    assert answer == 204
    assert (alert["event_action"], alert["dedup_key"], alert["routing_key"]) == ("trigger", "7", "key")
    assert alert["payload"]["summary"] == "job.failed: export 7 (disk_full)"
    assert message == {"text": f"job.failed: export 7 (disk_full) <https://paddock.example/events/{UUID(int=7)}|Open>"}


async def test_a_sample_wakes_nobody(relay: ModuleType) -> None:
    answer, [message] = await told(relay, 200, sample=True)
    assert answer == 204
    assert message["text"].startswith("Sample of job.failed")


async def test_what_completes_after_all_ends_the_alert(relay: ModuleType) -> None:
    _, [alert, _] = await told(relay, 200, type="job.completed", error_code=None)
    assert (alert["event_action"], "payload" in alert) == ("resolve", False)


async def test_what_is_not_signed_is_passed_to_nobody(relay: ModuleType) -> None:
    assert await told(relay, 200, secret="other") == (401, [])


async def test_what_cannot_be_passed_on_is_sent_again(relay: ModuleType) -> None:
    answer, _ = await told(relay, 503)
    assert answer == 502
