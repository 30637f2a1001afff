"""Workers and control planes of neighbouring versions work together: the older message is enough, a newer one is not
too much. tests/worker/test_versions.py has the same from the worker's side."""

import inspect
from collections.abc import Callable
from typing import Any, TypeAlias
from uuid import uuid4

import httpx2
import msgspec
import pytest

from paddock.jobs import wire
from paddock.jobs.core import Core

# What each message has had from the beginning. Whoever adds a field gives it a default, so no line here ever changes:
# one field more and an older sender is refused, one less and a default is left out that an older reader needs.
FIRST = {
    "Register": "worker_id version kinds",
    "Registered": "session beat_seconds lease_seconds",
    "Claim": "session claim_id kinds",
    "ClaimedJob": "id attempt_id kind payload owner turn_count",
    "Claimed": "jobs",
    "Held": "id attempt_id",
    "Beat": "holding",
    "ItemVerdict": "id verdict",
    "Verdicts": "verdicts",
    "SaveItem": "id attempt_id saved",
    "Save": "items",
    "Error": "code message",
    "FollowUp": "kind payload",
    "Event": "type subject",
    "FinishItem": "id attempt_id outcome",
    "Finish": "items",
    "ReleaseItem": "id attempt_id",
    "Release": "items",
    "LogItem": "id attempt_id seq lines",
    "Logs": "items",
    "Jobs": "ids",
}
Dress: TypeAlias = Callable[[Any], Any]


def bare(message: Any) -> Any:
    return message


def padded(message: Any) -> Any:
    """With a field in every object that this version knows nothing of."""
    if isinstance(message, list):
        return [padded(item) for item in message]
    if isinstance(message, dict):
        return {name: padded(value) for name, value in message.items()} | {"of_a_later_version": {"n": [1]}}
    return message


def test_no_message_asks_for_more_than_in_its_first_version_nor_leaves_any_of_that_out() -> None:
    messages = {
        name: struct
        for name, struct in inspect.getmembers(wire, inspect.isclass)
        if issubclass(struct, wire.Struct) and struct is not wire.Struct
    }
    required = {
        name: " ".join(field.name for field in msgspec.structs.fields(struct) if field.required)
        for name, struct in messages.items()
    }
    assert required == FIRST


class OlderWorker:
    """Sends the least, reads the least; `dress` is what a newer one adds."""

    def __init__(self, client: httpx2.AsyncClient, dress: Dress) -> None:
        self._client = client
        self._dress = dress

    async def send(self, path: str, reads: str | None, **message: Any) -> Any:
        answer = await self._client.post(f"/internal/{path}", json=self._dress(message))
        assert answer.status_code == 200, (path, answer.text)
        if reads is None:
            return None
        return msgspec.json.decode(answer.content, type=msgspec.defstruct(reads, FIRST[reads].split()))

    async def start(self) -> Any:
        registered = await self.send("sessions", "Registered", worker_id="old", version="0.0.1", kinds=["plain"])
        return registered.session

    async def claim(self, session: str) -> list[dict[str, Any]]:
        claimed = await self.send("jobs/claim", "Claimed", session=session, claim_id=str(uuid4()), kinds=["plain"])
        for job in claimed.jobs:
            assert set(FIRST["ClaimedJob"].split()) <= set(job)
        return [{"id": job["id"], "attempt_id": job["attempt_id"]} for job in claimed.jobs]

    async def verdicts(self, path: str, **message: Any) -> list[str]:
        answered = await self.send(path, "Verdicts", **message)
        return [verdict["verdict"] for verdict in answered.verdicts if verdict["id"]]


@pytest.fixture(params=[bare, padded])
def old(request: pytest.FixtureRequest, worker: httpx2.AsyncClient) -> OlderWorker:
    return OlderWorker(worker, request.param)


async def status(ada: httpx2.AsyncClient, job: dict[str, Any]) -> str:
    return str((await ada.get(f"/api/jobs/{job['id']}")).json()["data"]["status"])


async def test_a_job_runs_with_the_messages_of_the_first_version(old: OlderWorker, ada: httpx2.AsyncClient) -> None:
    await ada.post("/api/jobs", json={"kind": "plain"})
    session = await old.start()
    [held] = await old.claim(session)
    assert await old.verdicts(f"sessions/{session}/beat", holding=[held]) == ["accepted"]
    assert await old.verdicts("jobs/save", items=[{**held, "saved": {"page": 2}}]) == ["accepted"]
    await old.send("jobs/logs", None, items=[{**held, "seq": 1, "lines": "half\n"}])
    done = {**held, "outcome": "done"}
    assert await old.verdicts("jobs/finish", items=[done]) == ["accepted"]
    assert await old.verdicts("jobs/finish", items=[done]) == ["already_yours"]
    assert await status(ada, held) == "completed"


@pytest.mark.parametrize(
    ("path", "fields", "expected"),
    [
        ("jobs/finish", {"outcome": "again"}, "pending"),
        ("jobs/finish", {"outcome": "transient"}, "pending"),
        ("jobs/finish", {"outcome": "permanent"}, "failed"),
        ("jobs/finish", {"outcome": "permanent", "error": {"code": "broken", "message": "It broke."}}, "failed"),
        ("jobs/release", {}, "pending"),
    ],
)
async def test_every_end_of_a_turn_needs_no_more_than_in_the_first_version(
    old: OlderWorker, ada: httpx2.AsyncClient, path: str, fields: dict[str, Any], expected: str
) -> None:
    await ada.post("/api/jobs", json={"kind": "plain"})
    [held] = await old.claim(await old.start())
    assert await old.verdicts(path, items=[{**held, **fields}]) == ["accepted"]
    assert await status(ada, held) == expected


async def test_events_and_follow_ups_of_the_first_version_are_taken(
    old: OlderWorker, ada: httpx2.AsyncClient, core: Core
) -> None:
    await ada.post("/api/jobs", json={"kind": "plain"})
    [held] = await old.claim(await old.start())
    after = {"events": [{"type": "x.y", "subject": "x:1"}], "follow_ups": [{"kind": "other", "payload": {}}]}
    assert await old.verdicts("jobs/finish", items=[{**held, "outcome": "done", **after}]) == ["accepted"]
    assert "x.y" in [event["type"] for event in (await ada.get("/api/events")).json()["data"]]
    assert [job["kind"] for job in (await ada.get("/api/jobs?status=pending")).json()["data"]] == ["other"]
