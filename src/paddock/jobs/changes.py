"""Which jobs changed, for those who watch.

A ring of ids in memory, fed by this process's own commits at once and by other replicas once a second. It is a hint
where to look, never the state itself: a watcher reads the job. Where the ring cannot tell what was missed
(overflow, a lost connection, another replica's position) it says so and the watcher starts over.
"""

import asyncio
import uuid
from collections import deque
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from itertools import islice

from paddock.jobs.model import JobId

RING = 20_000


@dataclass(frozen=True, slots=True)
class Changed:
    ids: frozenset[JobId]
    overflow: bool
    position: int


class Changes:
    def __init__(self) -> None:
        self.epoch = uuid.uuid4().hex[:12]
        self.position = 0
        self._ring: deque[JobId] = deque(maxlen=RING)
        self._stirred = asyncio.Event()
        self._watched: dict[JobId, set[asyncio.Event]] = {}

    def record(self, ids: Iterable[JobId]) -> None:
        changed = list(ids)
        if not changed:
            return
        self._ring.extend(changed)
        self.position += len(changed)
        if self._watched:
            for id in changed:
                for event in self._watched.get(id, ()):
                    event.set()
        self._stirred.set()

    def forget(self) -> None:
        """Changes may have been missed: every watcher starts over."""
        self.epoch = uuid.uuid4().hex[:12]
        self._ring.clear()
        self.position += 1
        self._stirred.set()
        for events in self._watched.values():
            for event in events:
                event.set()

    def since(self, epoch: str, position: int) -> frozenset[JobId] | None:
        """The ids changed after that position; None when that cannot be told."""
        missed = self.position - position
        if epoch != self.epoch or missed < 0 or missed > len(self._ring):
            return None
        return frozenset(islice(self._ring, len(self._ring) - missed, None))

    @asynccontextmanager
    async def subscribe(self) -> AsyncIterator["Subscription"]:
        yield Subscription(self)

    async def wait_for(self, id: JobId, timeout: float) -> bool:
        """True when that job changed, False when the time is up."""
        event = asyncio.Event()
        self._watched.setdefault(id, set()).add(event)
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(timeout):
                    await event.wait()
            return event.is_set()
        finally:
            watchers = self._watched[id]
            watchers.discard(event)
            if not watchers:
                del self._watched[id]

    async def _next_stir(self) -> None:
        # One event for all watchers, replaced when it fires: nobody has to be counted.
        stirred = self._stirred
        await stirred.wait()
        if self._stirred is stirred:
            self._stirred = asyncio.Event()


class Subscription:
    def __init__(self, changes: Changes) -> None:
        self._changes = changes
        self._epoch = changes.epoch
        self._position = changes.position

    async def next(self) -> Changed:
        while self._changes.position == self._position and self._changes.epoch == self._epoch:
            await self._changes._next_stir()
        ids = self._changes.since(self._epoch, self._position)
        self._epoch, self._position = self._changes.epoch, self._changes.position
        return Changed(ids if ids is not None else frozenset(), ids is None, self._position)
