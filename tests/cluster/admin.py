"""The API as its administrator: what tests arrange the world with and look at it by, apart from the client they test."""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import aiohttp

from tests.cluster.server import Cluster

Json = dict[str, Any]
WAIT_SECONDS = 60
PATCHES = {
    "merge": "application/merge-patch+json",
    "strategic": "application/strategic-merge-patch+json",
    "apply": "application/apply-patch+yaml",
}


class Refused(Exception):
    """An answer that is no success: its `Status` as the server gave it."""

    def __init__(self, code: int, status: Json) -> None:
        super().__init__(f"{code}: {status.get('message')}")
        self.code = code
        self.status = status


class Admin:
    """Paths are the server's own, as `/api/v1/namespaces/{namespace}/pods`; `pods` and its like shorten them."""

    def __init__(self, session: aiohttp.ClientSession, url: str) -> None:
        self._session = session
        self._url = url

    async def ask(self, method: str, path: str, body: Any = None, patch: str | None = None, **query: str) -> Json:
        content_type = PATCHES[patch] if patch else "application/json"
        async with self._session.request(
            method,
            self._url + path,
            params=query,
            data=None if body is None else json.dumps(body),
            headers={"Content-Type": content_type},
        ) as answer:
            text = await answer.text()
            if answer.content_type != "application/json":
                found: Json = {"message": text}
            else:
                found = json.loads(text)
            if answer.status >= 300:
                raise Refused(answer.status, found)
            return found

    async def get(self, path: str) -> Json | None:
        try:
            return await self.ask("GET", path)
        except Refused as refusal:
            if refusal.code == 404:
                return None
            raise

    async def list(self, path: str, **query: str) -> list[Json]:
        return list((await self.ask("GET", path, **query))["items"])

    async def create(self, path: str, body: Json) -> Json:
        return await self.ask("POST", path, body, fieldValidation="Strict")

    async def patch(self, path: str, body: Json, how: str = "merge") -> Json:
        return await self.ask("PATCH", path, body, patch=how)

    async def delete(self, path: str, grace: int | None = None, uid: str | None = None) -> None:
        """It is asked to go; what is not there any more is no error."""
        options: Json = {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Background"}
        if grace is not None:
            options["gracePeriodSeconds"] = grace
        if uid is not None:
            options["preconditions"] = {"uid": uid}
        try:
            await self.ask("DELETE", path, options)
        except Refused as refusal:
            if refusal.code != 404:
                raise

    async def until(self, path: str, holds: Callable[[Json], object]) -> Json:
        """The object, once it is there and this holds of it."""
        last: Json | None = None
        try:
            async with asyncio.timeout(WAIT_SECONDS):
                while True:
                    last = await self.get(path)
                    if last is not None and holds(last):
                        return last
                    await asyncio.sleep(0.03)
        except TimeoutError:
            raise AssertionError(f"{path} never became what was waited for; it was {json.dumps(last)}") from None

    async def until_gone(self, path: str) -> None:
        end = asyncio.get_running_loop().time() + WAIT_SECONDS
        while (found := await self.get(path)) is not None:
            if asyncio.get_running_loop().time() > end:
                raise AssertionError(f"{path} is still there: {json.dumps(found)}")
            await asyncio.sleep(0.03)

    async def watch(self, path: str, version: str) -> AsyncGenerator[Json]:
        """What changes from this version of the list on, until the server ends it."""
        query = {"watch": "1", "resourceVersion": version}
        unlimited = aiohttp.ClientTimeout(total=None)
        async with self._session.get(self._url + path, params=query, timeout=unlimited) as answer:
            if answer.status != 200:
                raise Refused(answer.status, await answer.json())
            async for line in answer.content:
                yield json.loads(line)


@asynccontextmanager
async def admin_of(cluster: Cluster, url: str = "") -> AsyncIterator[Admin]:
    """At the server itself, or at what stands in front of it."""
    async with aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(ssl=cluster.ssl_context()),
        headers={"Authorization": f"Bearer {cluster.token}"},
        timeout=aiohttp.ClientTimeout(total=WAIT_SECONDS),
        # A pod with long messages is one line of a watch.
        read_bufsize=1 << 21,
    ) as session:
        yield Admin(session, url or cluster.url)


def pods(namespace: str, name: str = "") -> str:
    return _path("/api/v1", namespace, "pods", name)


def events(namespace: str) -> str:
    return _path("/api/v1", namespace, "events", "")


def jobs(namespace: str, name: str = "") -> str:
    return _path("/apis/batch/v1", namespace, "jobs", name)


def nodes(name: str = "") -> str:
    return "/api/v1/nodes" + (f"/{name}" if name else "")


def namespaces(name: str = "") -> str:
    return "/api/v1/namespaces" + (f"/{name}" if name else "")


def _path(group: str, namespace: str, resource: str, name: str) -> str:
    return f"{group}/namespaces/{namespace}/{resource}" + (f"/{name}" if name else "")
