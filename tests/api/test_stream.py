"""GET /api/stream: current states, resumed where they broke off, and nobody else's."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import httpx2
import orjson
import pytest

from paddock.api import hub as hubs
from paddock.api import stream as streams
from paddock.api.app import create_app
from paddock.api.job_json import BriefJob
from paddock.api.places import Places
from paddock.config import Config
from paddock.jobs.core import Core
from paddock.jobs.model import JobId
from tests.api.conftest import Clients, serving
from tests.playing import until
from tests.playing import worker as play_worker


@dataclass
class Heard:
    """What a watcher has been told so far."""

    messages: list[tuple[str, Any]] = field(default_factory=list)
    last_id: str | None = None
    comments: int = 0
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    stirred: asyncio.Condition = field(default_factory=asyncio.Condition)

    def states(self, job: str) -> list[str]:
        return [data["status"] for event, data in self.messages if event == "job" and data["id"] == job]

    async def until(self, true: Any) -> None:
        async with asyncio.timeout(60), self.stirred:
            await self.stirred.wait_for(true)

    async def read(self, response: httpx2.Response) -> None:
        event, data = "", ""
        try:
            async for line in response.aiter_lines():
                if line.startswith("event: "):
                    event = line[7:]
                elif line.startswith("data: "):
                    data = line[6:]
                elif line.startswith("id: "):
                    self.last_id = line[4:]
                elif line.startswith(":"):
                    self.comments += 1
                elif not line and event:
                    self.messages.append((event, orjson.loads(data)))
                    event = ""
                async with self.stirred:
                    self.stirred.notify_all()
        finally:
            self.ended.set()
            async with self.stirred:
                self.stirred.notify_all()


@asynccontextmanager
async def watching(
    served: str, clients: Clients, name: str, query: str = "", last_id: str | None = None
) -> AsyncIterator[Heard]:
    headers = {"Authorization": f"Bearer {clients.secrets[name]}"} | ({"Last-Event-ID": last_id} if last_id else {})
    async with (
        httpx2.AsyncClient(base_url=served, headers=headers, timeout=60) as client,
        client.stream("GET", f"/api/stream{query}") as response,
    ):
        assert response.status_code == 200, (await response.aread()).decode()
        assert response.headers["content-type"].startswith("text/event-stream")
        assert response.headers["x-accel-buffering"] == "no"
        assert "content-encoding" not in response.headers
        heard = Heard()
        reading = asyncio.create_task(heard.read(response))
        try:
            await heard.until(lambda: heard.last_id is not None)
            yield heard
        finally:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)


async def submit(client: httpx2.AsyncClient, **body: Any) -> str:
    return str((await client.post("/api/jobs", json={"kind": "plain", **body})).json()["data"]["id"])


async def test_each_message_is_a_jobs_current_state(
    served: str, clients: Clients, ada: httpx2.AsyncClient, core: Core
) -> None:
    async with watching(served, clients, "ada") as heard:
        job = await submit(ada)
        await heard.until(lambda: heard.states(job) == ["pending"])
        [attempt] = await (await play_worker(core)).claim()
        await heard.until(lambda: heard.states(job)[-1] == "claimed")
        await attempt.finish()
        await heard.until(lambda: heard.states(job)[-1] == "completed")


async def test_secrets_in_a_report_are_masked(
    served: str, clients: Clients, ada: httpx2.AsyncClient, core: Core
) -> None:
    job = await submit(ada)
    played = await play_worker(core)
    attempt = await played.claim_one()
    async with watching(served, clients, "ada", f"?job={job}") as heard:
        await played.report(attempt, phase="reading s3://key:hunter2@bucket", password="hunter2")
        await heard.until(lambda: heard.messages)
        assert heard.messages[-1][1]["report"] == {"phase": "reading s3://***@bucket", "password": "***"}


async def test_a_watcher_hears_of_its_own_only_and_ops_of_all(
    served: str, clients: Clients, ada: httpx2.AsyncClient, bob: httpx2.AsyncClient
) -> None:
    hers = await submit(ada)
    async with (
        watching(served, clients, "bob") as his,
        watching(served, clients, "bob", f"?job={hers}") as aimed,
        watching(served, clients, "bob", "?kind=plain&batch=1") as batched,
        watching(served, clients, "grace") as everybodys,
    ):
        await ada.post(f"/api/jobs/{hers}/cancel")
        own = await submit(bob)
        await his.until(lambda: his.states(own))
        await batched.until(lambda: batched.messages)
        await everybodys.until(lambda: everybodys.states(own) and everybodys.states(hers))

        assert {data["id"] for _, data in his.messages} == {own}
        assert [job["id"] for _, data in batched.messages for job in data["jobs"]] == [own]
        assert aimed.messages == []


async def test_filters_narrow_a_stream(served: str, clients: Clients, ada: httpx2.AsyncClient) -> None:
    named = await submit(ada)
    async with (
        watching(served, clients, "ada", "?kind=other") as others,
        watching(served, clients, "ada", f"?job={named}") as one,
    ):
        await submit(ada)
        other = await submit(ada, kind="other")
        await ada.post(f"/api/jobs/{named}/cancel")
        await others.until(lambda: others.messages)
        await one.until(lambda: one.messages)
        assert {data["id"] for _, data in others.messages} == {other}
        assert {data["id"] for _, data in one.messages} == {named}


async def test_a_stream_goes_on_where_it_broke_off(served: str, clients: Clients, ada: httpx2.AsyncClient) -> None:
    async with watching(served, clients, "ada") as heard:
        before = await submit(ada)
        await heard.until(lambda: heard.states(before))
    missed = await submit(ada)
    await submit(await clients("bob"))
    await asyncio.sleep(0.1)

    async with watching(served, clients, "ada", last_id=heard.last_id) as again:
        await again.until(lambda: again.states(missed))
        assert {data["id"] for _, data in again.messages} == {missed}
    async with watching(served, clients, "ada", f"?last_event_id={heard.last_id}") as by_query:
        await by_query.until(lambda: by_query.states(missed))


async def test_what_cannot_be_told_is_said(served: str, clients: Clients, ada: httpx2.AsyncClient, core: Core) -> None:
    elsewhere = Places(core.changes).now()
    for unknown in ("nonesuch", "0", "00" * 24, elsewhere, "éé"):
        async with watching(served, clients, "ada", f"?last_event_id={unknown}") as heard:
            await heard.until(lambda heard=heard: heard.messages)
            assert heard.messages[0] == ("reset", {})
        async with watching(served, clients, "ada", last_id=heard.last_id) as again:
            assert again.messages == [], "the place it came with is one to go on from"
    async with watching(served, clients, "ada") as watcher:
        core.changes.forget()
        await watcher.until(lambda: watcher.messages)
        assert watcher.messages == [("reset", {})]
        job = await submit(ada)
        await watcher.until(lambda: watcher.states(job))


async def test_a_place_tells_nobody_how_much_others_do(
    served: str, clients: Clients, ada: httpx2.AsyncClient, bob: httpx2.AsyncClient, core: Core
) -> None:
    """Ada looks at her places before and after bob's work, alike in form, and turns each digit of one to try where
    the stream is: whatever she makes up says only `reset`."""
    places = []
    for _ in range(2):
        async with watching(served, clients, "ada") as heard:
            places.append(str(heard.last_id))
    own = await submit(ada)
    for _ in range(30):
        await submit(bob)
    async with watching(served, clients, "ada") as heard:
        places.append(str(heard.last_id))

    assert len(set(places)) == 3, "not even whether anything happened"
    assert {len(place) for place in places} == {48}
    known = clients.app.state.plane.hub.places
    assert [str(id) for id in known.since(places[0]) & {JobId(UUID(own))}] == [own]
    tampered = [f"{places[0][:n]}{int(places[0][n], 16) ^ 1:x}{places[0][n + 1 :]}" for n in range(48)]
    assert [known.since(place) for place in tampered] == [None] * 48
    core.changes.forget()
    assert known.since(places[2]) is None


async def test_a_batch_holds_all_changed_jobs_once_a_second(
    served: str, clients: Clients, ada: httpx2.AsyncClient
) -> None:
    async with watching(served, clients, "ada", "?batch=1") as heard:
        first = await submit(ada)
        await heard.until(lambda: heard.messages)
        rest = {await submit(ada) for _ in range(5)}
        await heard.until(lambda: {job["id"] for _, data in heard.messages[1:] for job in data["jobs"]} == rest)
        assert [event for event, _ in heard.messages] == ["jobs"] * len(heard.messages)
        assert [job["id"] for job in heard.messages[0][1]["jobs"]] == [first]


async def test_a_watcher_is_told_the_fields_it_asks_for(
    served: str, clients: Clients, ada: httpx2.AsyncClient, bob: httpx2.AsyncClient
) -> None:
    async with (
        watching(served, clients, "ada", "?batch=1&fields=status,links") as some,
        watching(served, clients, "ada", "?fields=kind") as one_by_one,
        watching(served, clients, "ada", "?batch=1") as all_of_it,
    ):
        before = some.last_id
        id = await submit(ada)
        for heard in (some, one_by_one, all_of_it):
            await heard.until(lambda heard=heard: heard.messages)
        [job] = some.messages[0][1]["jobs"]
        assert (job.keys(), job["id"], job["status"]) == ({"id", "status", "links"}, id, "pending")
        assert one_by_one.messages == [("job", {"id": id, "kind": "plain"})]
        assert all_of_it.messages[0][1]["jobs"][0].keys() == BriefJob.model_fields.keys()
    async with watching(served, clients, "ada", "?batch=1&fields=id", last_id=before) as again:
        await again.until(lambda: again.messages)
        assert again.messages == [("jobs", {"jobs": [{"id": id}]})]
    async with (
        watching(served, clients, "ada", f"?batch=1&fields=id,status&job={id}") as little,
        watching(served, clients, "ada", "?batch=1&fields=kind") as as_little,
    ):
        await submit(bob)
        await ada.post(f"/api/jobs/{id}/cancel")
        for heard in (little, as_little):
            await heard.until(lambda heard=heard: heard.messages)
        assert little.messages == [("jobs", {"jobs": [{"id": id, "status": "cancelled"}]})]
        assert as_little.messages == [("jobs", {"jobs": [{"id": id, "kind": "plain"}]})]
    for unknown in ("payload", "id,nonesuch", ""):
        refused = await ada.get(f"/api/stream?fields={unknown}")
        assert (refused.status_code, refused.json()["error"]["code"]) == (422, "invalid"), unknown


async def test_over_five_hundred_changes_a_batch_says_reset(
    served: str, clients: Clients, ada: httpx2.AsyncClient, bob: httpx2.AsyncClient
) -> None:
    async with (
        watching(served, clients, "ada", "?batch=1") as hers,
        watching(served, clients, "bob", "?batch=1") as his,
    ):
        await ada.post("/api/jobs/batch", json={"jobs": [{"kind": "plain"}] * 501})
        own = await submit(bob)
        await hers.until(lambda: hers.messages)
        await his.until(lambda: his.messages)
        assert hers.messages[0] == ("reset", {})
        assert [job["id"] for job in his.messages[0][1]["jobs"]] == [own], "her storm is not his"


async def test_a_storm_of_others_is_no_reset_for_those_who_watch_their_own(
    served: str,
    clients: Clients,
    ada: httpx2.AsyncClient,
    bob: httpx2.AsyncClient,
    core: Core,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """More changes at once than are read, nearly all of them ada's: only whoever watches those loads again."""
    monkeypatch.setattr(hubs, "MOST_READ", 20)
    made = await ada.post("/api/jobs/batch", json={"jobs": [{"kind": "plain"}] * 30})
    own = await submit(bob, kind="other")
    storm = [JobId(UUID(id)) for id in (*(job["id"] for job in made.json()["data"]), own)]
    async with (
        watching(served, clients, "ada", "?batch=1") as hers,
        watching(served, clients, "bob", "?batch=1") as his,
        watching(served, clients, "bob") as one_by_one,
        watching(served, clients, "grace", "?batch=1&kind=other") as of_a_kind,
        watching(served, clients, "grace", "?batch=1") as everybodys,
    ):
        before = his.last_id
        core.changes.record(storm)
        for heard in (hers, his, one_by_one, of_a_kind, everybodys):
            await heard.until(lambda heard=heard: heard.messages)

        assert hers.messages == everybodys.messages == [("reset", {})]
        for heard in (his, of_a_kind):
            assert [[job["id"] for job in data["jobs"]] for _, data in heard.messages] == [[own]]
        assert one_by_one.states(own) == ["pending"]
    for name, told in (("bob", [own]), ("ada", None)):
        async with watching(served, clients, name, "?batch=1", last_id=before) as again:
            await again.until(lambda again=again: again.messages)
            assert again.messages[0][0] == ("reset" if told is None else "jobs"), "nor when coming back"
            assert [job["id"] for job in again.messages[0][1].get("jobs", ())] == (told or [])


async def test_a_token_has_so_many_streams_at_once(core: Core, clients: Clients) -> None:
    app = create_app(core, Config(streams_per_token=2))
    headers = {"Authorization": f"Bearer {clients.secrets['ada']}"}
    async with serving(app) as (_, address):
        async with watching(address, clients, "ada"), watching(address, clients, "ada", "?batch=1"):
            async with httpx2.AsyncClient(base_url=address, headers=headers) as client:
                refused = await client.get("/api/stream")
            assert (refused.status_code, refused.json()["error"]["code"]) == (429, "too_many_streams")
            assert int(refused.headers["retry-after"]) > 0
            async with watching(address, clients, "bob"):
                pass
        await until(lambda: not app.state.plane.hub._open)  # the server learns of a hang-up a moment later
        async with watching(address, clients, "ada"):
            pass
    assert core.metrics.streams._value.get() == 0


async def test_silence_is_broken_by_comments(served: str, clients: Clients, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "COMMENT_SECONDS", 0.05)
    async with watching(served, clients, "ada") as heard:
        await heard.until(lambda: heard.comments >= 3)


async def test_a_stream_ends_when_its_token_is_revoked(
    served: str, clients: Clients, root: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "COMMENT_SECONDS", 0.05)
    monkeypatch.setattr(streams, "TOKEN_CHECK_SECONDS", 0.1)
    caller = await clients.tokens.by_secret(clients.secrets["ada"])
    assert caller is not None
    async with watching(served, clients, "ada") as heard:
        await asyncio.sleep(0.3)
        assert not heard.ended.is_set()
        await root.delete(f"/api/tokens/{caller.token_id}")
        await asyncio.wait_for(heard.ended.wait(), 60)


async def test_streams_end_when_the_process_stops(core: Core, clients: Clients) -> None:
    async with serving(create_app(core, Config())) as (server, address), watching(address, clients, "ada") as heard:
        server.should_exit = True
        await asyncio.wait_for(heard.ended.wait(), 60)


def test_a_slow_watcher_is_dropped_with_a_reset(monkeypatch: pytest.MonkeyPatch) -> None:
    from uuid import uuid4

    monkeypatch.setattr(hubs, "MOST_WAITING", 10)
    watcher = hubs.Watcher(hubs.Watch(), uuid4())
    for _ in range(100):
        watcher.offer(b"a message", b"reset")

    assert watcher.ended.is_set()
    assert watcher.take() == b"reset"


async def test_the_last_message_of_several_moves_the_place(
    served: str, clients: Clients, ada: httpx2.AsyncClient
) -> None:
    """Cut off between two messages of one telling, a watcher must get the second again."""
    headers = {"Authorization": f"Bearer {clients.secrets['ada']}"}
    async with (
        httpx2.AsyncClient(base_url=served, headers=headers, timeout=60) as client,
        client.stream("GET", "/api/stream") as response,
    ):
        ids: list[str] = []
        await ada.post("/api/jobs/batch", json={"jobs": [{"kind": "plain"}] * 3})
        messages = 0
        async for line in response.aiter_lines():
            if line.startswith("id: "):
                ids.append(line[4:])
            messages += line.startswith("data: ")
            if messages == 3:
                break
    known = clients.app.state.plane.hub.places
    assert [len(known.since(id)) for id in ids] == [3, 3, 3, 0]
