"""No caller's searches keep the others from being answered."""

import asyncio

import httpx2
import pytest

from paddock.api.finding import Found
from paddock.api.routes import searching


async def test_a_token_has_two_searches_at_once(
    ada: httpx2.AsyncClient, bob: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: asyncio.Queue[None] = asyncio.Queue()
    answered = asyncio.Event()

    async def find(*_: object) -> list[Found]:
        begun.put_nowait(None)
        await answered.wait()
        return []

    monkeypatch.setattr(searching, "find", find)
    async with asyncio.timeout(60), asyncio.TaskGroup() as tasks:
        waiting = [tasks.create_task(client.get("/api/search?q=a")) for client in (ada, ada, bob)]
        for _ in waiting:
            await begun.get()

        refused = await ada.get("/api/search?q=a")
        assert (refused.status_code, refused.json()["error"]["code"]) == (429, "too_many_searches")
        assert refused.headers["Retry-After"] == "1"
        answered.set()

    assert [task.result().status_code for task in waiting] == [200, 200, 200]
    assert (await ada.get("/api/search?q=a")).status_code == 200
