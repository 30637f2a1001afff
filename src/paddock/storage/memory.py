"""Memory that exports share: one reservation each, for all they hold at a time, first come, first served.

A big one at the head of the queue is not overtaken by small ones behind it, or it would wait for ever. Nobody may
reserve a second time while holding: two who do so would wait for each other.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Memory:
    def __init__(self, total: int) -> None:
        self.total = total
        self.used = 0
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    @asynccontextmanager
    async def reserve(self, size: int) -> AsyncIterator[int]:
        """Gives what was reserved: `size`, or the total where that is less."""
        size = max(0, min(size, self.total))
        await self._take(size)
        try:
            yield size
        finally:
            self._give(size)

    async def _take(self, size: int) -> None:
        if not self._waiting and self.used + size <= self.total:
            self.used += size
            return
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append((size, turn))
        try:
            await turn
        except asyncio.CancelledError:
            # Granted and cancelled in the same round of the loop: the grant goes on to the next.
            if turn.done() and not turn.cancelled():
                self._give(size)
            else:
                self._waiting.remove((size, turn))
                self._wake()
            raise

    def _give(self, size: int) -> None:
        self.used -= size
        self._wake()

    def _wake(self) -> None:
        while self._waiting and self.used + self._waiting[0][0] <= self.total:
            size, turn = self._waiting.popleft()
            self.used += size
            turn.set_result(None)
