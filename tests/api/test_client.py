"""The Python client against a real server, from threads: it is synchronous."""

import asyncio
from collections.abc import Iterator
from itertools import islice

import httpx2
import pytest

from paddock.client import Client, Message, NotFinished, PaddockError, Unreachable, read_events
from paddock.jobs.core import Core
from tests.api.conftest import Clients
from tests.playing import worker as play_worker


@pytest.fixture
def client(served: str, clients: Clients) -> Iterator[Client]:
    with Client(served, clients.secrets["ada"]) as opened:
        yield opened


async def test_submit_wait_and_read(client: Client, core: Core) -> None:
    job = await asyncio.to_thread(client.submit, "plain", {"n": 1}, tags=["demo"])
    with pytest.raises(NotFinished):
        await asyncio.to_thread(client.wait, job["id"], 0.1)
    waiting = asyncio.create_task(asyncio.to_thread(client.wait, job["id"]))
    [attempt] = await (await play_worker(core)).claim()
    await attempt.finish(result={"rows": 3})

    assert (await waiting)["result"] == {"rows": 3}
    assert (await asyncio.to_thread(client.get, job["id"]))["status"] == "completed"
    timeline = await asyncio.to_thread(client.timeline, job["id"])
    assert timeline[-1]["to"] == "completed"
    assert (await asyncio.to_thread(client.logs, job["id"]))["chunks"] == []


async def test_lists_cancels_and_retries(client: Client) -> None:
    made = await asyncio.to_thread(client.submit_many, [{"kind": "plain", "payload": {"n": n}} for n in range(5)])
    listed = await asyncio.to_thread(lambda: list(client.list(kind="plain", limit=2)))
    assert [job["id"] for job in listed] == [job["id"] for job in made][::-1]
    assert len(await asyncio.to_thread(lambda: list(client.list(most=3)))) == 3

    cancelled = await asyncio.to_thread(client.cancel, made[0]["id"], "wrong")
    retried = await asyncio.to_thread(client.retry, made[0]["id"])
    assert (cancelled["status"], retried["retry_of"]) == ("cancelled", made[0]["id"])


async def test_a_refusal_is_an_exception_with_the_servers_words(client: Client) -> None:
    with pytest.raises(PaddockError) as refused:
        await asyncio.to_thread(client.submit, "nonesuch")
    assert (refused.value.status, refused.value.code) == (422, "unknown_kind")
    assert "nonesuch" in refused.value.message
    assert refused.value.hint
    assert refused.value.request_id
    assert "[unknown_kind]" in str(refused.value)
    with pytest.raises(PaddockError) as missing:
        await asyncio.to_thread(client.get, "019a8b1e-4c00-7000-8f6e-2f9d3c0a51e7")
    assert missing.value.status == 404


def test_who_waits_waits_across_a_restart_of_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("paddock.client.waiting.RECONNECT_SECONDS", 0.0)
    away = {"error": {"code": "database_unavailable", "message": "Paddock cannot reach its database at the moment."}}
    answers = iter(
        [
            httpx2.Response(503, json=away),
            httpx2.Response(502),
            httpx2.Response(200, json={"data": {"completed_at": 1}}),
        ]
    )
    with Client("http://server", "x", transport=httpx2.MockTransport(lambda _: next(answers))) as client:
        assert client.wait("some-id") == {"completed_at": 1}


def test_who_waits_is_told_of_a_server_that_stays_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("paddock.client.waiting.RECONNECT_SECONDS", 0.0)
    away = httpx2.MockTransport(lambda _: httpx2.Response(503))
    with Client("http://server", "x", transport=away) as client, pytest.raises(PaddockError):
        client.wait("some-id", timeout=0.01)


def test_a_path_keeps_what_it_asks_for_itself() -> None:
    asked: list[str] = []

    def serve(request: httpx2.Request) -> httpx2.Response:
        asked.append(str(request.url))
        return httpx2.Response(200, json={"data": None})

    with Client("http://server", "x", transport=httpx2.MockTransport(serve)) as client:
        client.request("POST", "/tables/sales/orders/maintenance?catalog=lake", body={})
    assert asked == ["http://server/tables/sales/orders/maintenance?catalog=lake"]


async def test_a_server_that_does_not_answer_is_said_to_be_unreachable() -> None:
    with Client("http://127.0.0.1:1", "x") as client, pytest.raises(Unreachable):
        await asyncio.to_thread(client.run_now, "x")


async def test_a_stream_yields_states(client: Client) -> None:
    def watch() -> list[Message]:
        return list(islice(client.stream(kind="other"), 1))

    watching = asyncio.create_task(asyncio.to_thread(watch))
    while not watching.done():
        await asyncio.to_thread(client.submit, "other")
        await asyncio.sleep(0.2)
    [message] = await watching
    assert (message.event, message.data["kind"]) == ("job", "other")
    assert message.id is not None


def test_events_are_read_as_the_standard_says() -> None:
    lines = ["retry: 2000", "", "id: e:1", "", ": comment", "", "id: e:2", "event: job", 'data: {"a":', "data: 1}", ""]
    alive = Message("", None, None)
    assert list(read_events(iter(lines))) == [Message("", None, "e:1"), alive, Message("job", {"a": 1}, "e:2")]


@pytest.mark.parametrize("headers", [{"Content-Range": "bytes 0-9/10"}, {"Content-Range": "bytes 40-49/50"}, {}])
def test_another_part_than_was_asked_for_is_not_taken(headers: dict[str, str]) -> None:
    wrong = httpx2.MockTransport(lambda _: httpx2.Response(206, headers=headers, content=b"0123456789"))
    with Client("http://server", "x", transport=wrong) as client, pytest.raises(PaddockError, match="another part"):
        list(client.download("/file", start=4))


@pytest.mark.parametrize("start", [0, 3, 4, 9, 12])
def test_who_sends_the_whole_file_is_taken_from_where_it_was_asked(start: int) -> None:
    def whole(_: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(200, content=iter([b"0123", b"4567", b"89"]))

    with Client("http://server", "x", transport=httpx2.MockTransport(whole)) as client:
        assert b"".join(client.download("/file", start=start)) == b"0123456789"[start:]
