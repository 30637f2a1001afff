"""Access to this installation's pods, refused while the database and the cluster do not belong together.

Around a `KubernetesRuntime` for the id that our pods carry: before each call, and after it once more where something seems
missing or gone, the installation is asked. Another id, which an admin gave by adopting the cluster afresh, is another runtime.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from uuid import UUID

import structlog

from paddock.db.pool import UNAVAILABLE
from paddock.jobs.errors import InfrastructureError, PermanentRunnerError
from paddock.runtimes.kubernetes.installation import BELIEVED, BELIEVED_LIST, NOT_BELIEVED, Installation
from paddock.runtimes.kubernetes.runtime import KubernetesRuntime
from paddock.runtimes.runtime import Found, Look, RuntimeWords, Start, Usage
from paddock.stopping import end

log = structlog.get_logger()


class OwnedRuntime:
    words: RuntimeWords = KubernetesRuntime.words
    grows: bool = KubernetesRuntime.grows

    def __init__(self, installation: Installation, make: Callable[[str], KubernetesRuntime]) -> None:
        self.installation = installation
        self._make = make
        self._made: KubernetesRuntime | None = None
        self._renewed = asyncio.Event()

    async def _runtime(self, believed: timedelta = BELIEVED) -> KubernetesRuntime:
        id = await self.installation.check(believed=believed)
        if self._made is None or self._made.installation != id:
            self._made = self._make(id)
            self._renewed.set()
        return self._made

    @asynccontextmanager
    async def alongside(self, changed: Callable[[UUID], None]) -> AsyncIterator[None]:
        """At the first start of a database, what forbids its binding is raised; later it is waited for."""
        async with contextlib.AsyncExitStack() as stack:
            stack.push_async_callback(self.installation.client.close)
            await self._first_look()
            watching = asyncio.create_task(self._watch(changed))
            stack.push_async_callback(end, watching)
            yield

    async def _first_look(self) -> None:
        try:
            await self._runtime()
        except UNAVAILABLE as problem:
            log.warning("cluster_not_reached", error=type(problem).__name__)
        except InfrastructureError as problem:
            if isinstance(problem, PermanentRunnerError) and not await self.installation.is_bound():
                raise
            log.warning("cluster_not_reached", error=problem.message)

    async def _watch(self, changed: Callable[[UUID], None]) -> None:
        """For the id of the moment."""
        while True:
            try:
                runtime = await self._runtime()
            except (InfrastructureError, *UNAVAILABLE):
                await self.installation.client.clock.sleep(BELIEVED.total_seconds())
                continue
            self._renewed.clear()
            if runtime is self._made:
                async with runtime.alongside(changed):
                    await self._renewed.wait()

    async def start(self, start: Start) -> bool:
        return await (await self._runtime()).start(start)

    async def get(self, name: str, look: Look = "now") -> Found | None:
        found = await (await self._runtime()).get(name, look)
        if found is None:
            await self._runtime(NOT_BELIEVED)
        return found

    async def list(self, after: str = "", limit: int = 100) -> Sequence[Found]:
        return await (await self._runtime(BELIEVED_LIST)).list(after, limit)

    async def logs(self, name: str) -> str | None:
        return await (await self._runtime()).logs(name)

    async def delete(
        self, name: str, uid: str | None = None, grace: timedelta | None = None, *, keep_loaded: bool = False
    ) -> bool:
        gone = await (await self._runtime()).delete(name, uid, grace, keep_loaded=keep_loaded)
        if gone:
            await self._runtime(NOT_BELIEVED)
        return gone

    async def release(self, name: str, uid: str) -> None:
        await (await self._runtime()).release(name, uid)

    async def grow(self, name: str, uid: str, memory_bytes: int) -> bool:
        return await (await self._runtime()).grow(name, uid, memory_bytes)

    async def take_back(self, name: str, uid: str, memory_bytes: int) -> None:
        await (await self._runtime()).take_back(name, uid, memory_bytes)

    async def usage(self, name: str) -> Usage | None:
        return None

    async def memory_bytes(self) -> int | None:
        return None
