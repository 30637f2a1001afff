"""A signed-in browser without a screen, on a Paddock with exports: reads pages, and sends their forms."""

import asyncio
import re
from collections.abc import Awaitable, Callable
from html import unescape
from typing import Any

import httpx2

from paddock.jobs import wire
from paddock.jobs.core import Core
from tests.playing import Attempt, PlayedWorker
from tests.snapshots.making import payload_of

BASE = "http://paddock.test"
ODD = "</script><b>&amp;\"' \u202eרע 🐎 " + "long" * 40


class Browser:
    def __init__(self, client: httpx2.AsyncClient) -> None:
        self.client = client

    async def read(self, path: str, status: int = 200, **headers: str) -> str:
        answer = await self.client.get(path, headers=headers)
        assert answer.status_code == status, answer.text[-3000:]
        assert ODD[:12] not in answer.text, "markup of somebody's text"
        return answer.text

    async def send(self, path: str, page: str, headers: dict[str, str] | None = None, **fields: Any) -> httpx2.Response:
        token = re.search(r'name="csrf" value="([^"]+)"', await self.read(page))
        assert token is not None
        sent = {"origin": BASE, **(headers or {})}
        answer = await self.client.post(path, data={"csrf": token[1], **fields}, headers=sent)
        assert ODD[:12] not in answer.text, "markup of somebody's text"
        return answer

    async def done(self, path: str, page: str, **fields: Any) -> str:
        """Where the form leads."""
        answer = await self.send(path, page, **fields)
        assert answer.status_code == 303, answer.text[-3000:]
        return str(answer.headers["location"])

    async def refused(self, path: str, page: str, status: int, **fields: Any) -> str:
        answer = await self.send(path, page, **fields)
        assert answer.status_code == status, answer.text[-3000:]
        return words_of(answer.text)


Open = Callable[..., Awaitable[Browser]]


def words_of(page: str) -> str:
    """What a person reads, without the frame around it."""
    main = page.partition("<main")[2].partition("</main>")[0] or page
    return re.sub(r"\s+", " ", unescape(re.sub(r"<[^>]*>", " ", main)))


def row_of(page: str, id: str) -> str:
    found = re.search(rf'<tr id="{re.escape(id)}".*?</tr>', page, re.DOTALL)
    assert found is not None, f"no row {id}"
    return words_of(found[0])


Answer = Callable[[dict[str, Any]], dict[str, Any]]


async def answering(core: Core, answer: Answer, asking: Awaitable[Any]) -> Any:
    """The test is the worker that has the engines: whatever is asked until `asking` ends is answered by `answer`."""
    link = core.link()
    offered = wire.Register(worker_id="engines", version="test", kinds=["describe"], slots=20)
    played = PlayedWorker(link, (await link.register(offered)).session)

    async def play() -> None:
        while True:
            for attempt in await played.claim("describe", limit=20, wait=5):
                await attempt.finish("done", result=answer(_payload(attempt)))

    playing = asyncio.create_task(play())
    try:
        return await asking
    finally:
        playing.cancel()
        await asyncio.wait([playing])


def _payload(attempt: Attempt) -> dict[str, Any]:
    return {**payload_of(attempt), "role": attempt.job.role}


async def schedule(browser: Browser, page: str, **fields: Any) -> httpx2.Response:
    """Presses “Schedule…” on a page and sends the form as it is filled in, but for these fields."""
    link = re.search(r'href="(/schedules/-/new\?of=[^"]+)"', await browser.read(page))
    assert link is not None, f"no button on {page}"
    path = unescape(link[1])
    form = unescape(await browser.read(path))
    given = dict(re.findall(r'<input type="hidden" name="(of|kind)" value="([^"]*)"', form))
    named = re.search(r'name="name"[^>]* value="([^"]*)"', form)
    payload = re.search(r"<textarea[^>]*>(.*?)</textarea>", form, re.DOTALL)
    assert named is not None
    assert payload is not None
    usual = {"name": named[1], "payload": payload[1], "timing": "days", "on": "* 1-5", "at": "02:05"}
    sent = {**usual, **given, "priority": "3", "timezone": "UTC", "enabled": "on", **fields}
    return await browser.send("/schedules", path, **sent)
