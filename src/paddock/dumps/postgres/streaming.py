"""The rows of one COPY, in blocks of CHUNK_BYTES. One is used, one waits, one fills; then the server waits too."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from paddock.dumps.model import CHUNK_BYTES

# The server sends 8 KiB at a time. Waking up for each would cost more than all the rest.
_GATHER_SECONDS = 0.001
_GATHER_BYTES = 128 << 10

Take = Callable[[bytes], Coroutine[Any, Any, None]]


class Stream:
    def __init__(self, table: str, copy: Callable[[Take], Awaitable[int]]) -> None:
        """`copy` gives whole rows to what it is given, and ends with how many there were."""
        self.table = table
        # Of the block that comes next.
        self.place = 0
        # How many rows the server says there were; known when the last block is.
        self.rows: int | None = None
        self._filling: list[bytes] = []
        self._filled = 0
        self._blocks: asyncio.Queue[bytes | int | Exception] = asyncio.Queue(maxsize=1)
        self._ahead: bytes | None = None
        self._running = asyncio.create_task(self._run(copy))

    async def next(self) -> tuple[bytes, bool]:
        """A block, and whether it is the last: to know that, the one behind it is awaited."""
        if self.place == 0:
            self._ahead = await self._block()
        data, self._ahead = self._ahead, None
        if data is not None:
            self._ahead = await self._block()
        self.place += 1
        return data or b"", self._ahead is None

    async def close(self) -> None:
        """Still running: whoever reads left early. The driver then cancels the COPY at the server."""
        self._running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._running

    async def _block(self) -> bytes | None:
        block = await self._blocks.get()
        if isinstance(block, Exception):
            raise block
        if isinstance(block, int):
            self.rows = block
            return None
        return block

    async def _run(self, copy: Callable[[Take], Awaitable[int]]) -> None:
        try:
            rows = await copy(self._take)
        except Exception as problem:
            # Whatever it is, `next` raises it: it would wait forever otherwise.
            await self._blocks.put(problem)
            return
        await self._flush()
        await self._blocks.put(rows)

    async def _take(self, rows: bytes) -> None:
        self._filling.append(rows)
        self._filled += len(rows)
        if self._filled >= CHUNK_BYTES:
            await self._flush()
        elif len(rows) < _GATHER_BYTES:
            await asyncio.sleep(_GATHER_SECONDS)

    async def _flush(self) -> None:
        if self._filling:
            block = b"".join(self._filling)
            self._filling, self._filled = [], 0
            await self._blocks.put(block)
