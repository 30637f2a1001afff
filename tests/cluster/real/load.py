"""People who ask while something else happens: whether the control plane is ready, and an instance through it."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator

import aiohttp

from tests.cluster.real.overlay import CONTROL_PLANE
from tests.cluster.real.scene import Scene

PAUSE_SECONDS = 0.05
QUERY = {"query": "MATCH (p:Person) RETURN count(*)"}

Answers = Counter[int]


@contextlib.asynccontextmanager
async def load(scene: Scene) -> AsyncIterator[dict[str, Answers]]:
    """How often what was answered, by its status code; 0 where nothing was."""
    server = f"http://{CONTROL_PLANE}:8080"
    asked = {
        "readiness": ("GET", f"{server}/ready", None),
        "queries": ("POST", f"{server}/api/instances/{scene.instance}/query", QUERY),
    }
    answers = {what: Counter[int]() for what in asked}
    asking = [asyncio.create_task(_ask(*one, scene.token, answers[what])) for what, one in asked.items()]
    try:
        yield answers
    finally:
        for task in asking:
            task.cancel()
        await asyncio.gather(*asking, return_exceptions=True)


async def _ask(method: str, url: str, body: dict[str, str] | None, token: str, answers: Answers) -> None:
    """One request after the other, each with a line of its own."""
    line = aiohttp.TCPConnector(force_close=True)
    async with aiohttp.ClientSession(connector=line, headers={"Authorization": f"Bearer {token}"}) as session:
        while True:
            try:
                async with session.request(method, url, json=body) as answer:
                    await answer.read()
                    answers[answer.status] += 1
            except aiohttp.ClientError:
                answers[0] += 1
            await asyncio.sleep(PAUSE_SECONDS)
