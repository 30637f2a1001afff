"""What a namespace holds now, by one list and one watch for the whole process, for those who poll.

It may be a moment old, and after a broken line it is nothing at all until it was listed anew: whoever ends, fails or deletes
something asks the API server itself. A watch is not trusted for ever: every five minutes all is listed again.
"""

import asyncio
import contextlib
import random
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from contextlib import asynccontextmanager

import structlog

from paddock.runtimes.kubernetes.client import Kubernetes, Object
from paddock.runtimes.kubernetes.errors import ApiError
from paddock.runtimes.kubernetes.resources import Resource

# What is told of an object: as it was before and as it is now; None: it is not there.
Changed = Callable[[Object | None, Object | None], None]
MOST_GONE = 1_000
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 30.0
log = structlog.get_logger()


class Expired(Exception):
    """The server no longer knows the version that was watched from, or says so in its own way."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class NamespaceWatch:
    def __init__(self, client: Kubernetes, resource: Resource, namespace: str, labels: Mapping[str, str]) -> None:
        self._client, self._resource, self._namespace, self._labels = client, resource, namespace, dict(labels)
        self._objects: dict[str, Object] = {}
        # As they were last seen before they went, the newest last.
        self._gone: OrderedDict[str, Object] = OrderedDict()
        self._synced = False
        self.changed: Changed = lambda _before, _now: None

    @property
    def synced(self) -> bool:
        """Whether what is not here is likely not there."""
        return self._synced

    def get(self, name: str) -> Object | None:
        return self._objects.get(name) if self._synced else None

    def all(self) -> Collection[Object]:
        """As it was last known, while the line is broken too."""
        return self._objects.values()

    def note(self, found: Object) -> None:
        """What was just made or read, so that those who poll need not ask until the watch has told of it."""
        name = found["metadata"]["name"]
        if self._synced and name not in self._objects and name not in self._gone:
            self._objects[name] = _slim(found)

    def last_seen(self, name: str) -> Object | None:
        """How one was that went. It may say why: a pod that was evicted is gone in a moment."""
        return self._gone.get(name)

    def forget(self, name: str) -> None:
        """It is known to be gone."""
        self._objects.pop(name, None)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        task = asyncio.create_task(self._run())
        try:
            yield
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
            self._synced = False

    async def _run(self) -> None:
        pause = FIRST_PAUSE
        reason: str | None = None
        while True:
            try:
                version = await self._list()
                if reason is not None:
                    self._client.metrics.restarted(reason)
                pause = FIRST_PAUSE
                await self._watch(version)
                reason = "relist"
                continue
            except Expired as expired:
                reason = expired.reason
            except ApiError as problem:
                reason = "broken"
                log.warning("kubernetes_watch_broken", namespace=self._namespace, error=str(problem)[:500])
            except Exception:
                reason = "broken"
                log.exception("kubernetes_watch_failed", namespace=self._namespace)
            self._synced = False
            await self._client.clock.sleep(pause * random.uniform(0.8, 1.2))
            pause = min(2 * pause, LONGEST_PAUSE)

    async def _list(self) -> str:
        """The version it is true of. What went meanwhile is told like what the watch tells."""
        found: dict[str, Object] = {}
        after, version = "", ""
        while True:
            page = await self._client.list_page(self._resource, self._namespace, labels=self._labels, after=after)
            found.update((one["metadata"]["name"], _slim(one)) for one in page.items)
            version = page.version
            if not page.after:
                break
            after = page.after
        before, self._objects, self._synced = self._objects, found, True
        for name in before.keys() | found.keys():
            old, new = before.get(name), found.get(name)
            if old is not None and new is None:
                self._remember_gone(name, old)
            if old != new:
                self._tell(old, new)
        return version

    async def _watch(self, version: str) -> None:
        async for event in self._client.watch(self._resource, self._namespace, labels=self._labels, version=version):
            kind, found = event.get("type"), event.get("object") or {}
            if kind == "ERROR":
                raise Expired("gone" if found.get("code") == 410 else "error")
            if kind == "BOOKMARK":
                continue
            name = found["metadata"]["name"]
            before = self._objects.get(name)
            if kind == "DELETED":
                if before is None or before["metadata"]["uid"] == found["metadata"]["uid"]:
                    self._objects.pop(name, None)
                gone = _slim(found)
                self._remember_gone(name, gone)
                self._tell(gone, None)
            else:
                self._objects[name] = _slim(found)
                self._tell(before, self._objects[name])

    def _remember_gone(self, name: str, last: Object) -> None:
        self._gone[name] = last
        while len(self._gone) > MOST_GONE:
            self._gone.popitem(last=False)

    def _tell(self, before: Object | None, now: Object | None) -> None:
        try:
            self.changed(before, now)
        except Exception:
            log.exception("kubernetes_change_not_told")


def _slim(found: Object) -> Object:
    """Without what only the server's own bookkeeping needs: it is most of an object."""
    metadata = {key: value for key, value in found["metadata"].items() if key != "managedFields"}
    return {**found, "metadata": metadata}
