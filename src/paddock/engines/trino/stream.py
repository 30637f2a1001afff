"""A started query as record batches: pages or segments are fetched ahead, decoded on a thread, given in order."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from paddock.engines.engine import Column, Progress, QueryRefused
from paddock.engines.trino.client import Page, TrinoClient
from paddock.engines.trino.decoding import BadPage, Decoder, decoder_for, decompress
from paddock.engines.trino.spooling import Segment, WrongSegments, acknowledge, fetch, segments_of
from paddock.engines.trino.statement import Statement
from paddock.engines.trino.types import TrinoColumn, column_of
from paddock.jobs.errors import PermanentRunnerError
from paddock.storage.threads import on_cpu

# Smaller rows are decoded where they arrive: faster than the way to a thread and back.
AT_ONCE = 16 << 10


@dataclass(slots=True)
class Piece:
    """Rows on their way: of a page, or of a segment that is being fetched."""

    rows: bytes | asyncio.Task[bytes]
    weight: int
    segment: Segment | None = None


class Window:
    """How much may be on its way at a time: pieces and bytes, but always one."""

    def __init__(self, pieces: int, bytes_: int) -> None:
        self._pieces, self._bytes = pieces, bytes_
        self._count = self._held = 0
        self._left = asyncio.Event()

    async def enter(self, weight: int) -> None:
        while self._count and (self._count >= self._pieces or self._held + weight > self._bytes):
            self._left.clear()
            await self._left.wait()
        self._count += 1
        self._held += weight

    def leave(self, weight: int) -> None:
        self._count -= 1
        self._held -= weight
        self._left.set()


class TrinoStream:
    def __init__(self, client: TrinoClient, statement: Statement, columns: Sequence[TrinoColumn]) -> None:
        self.columns: Sequence[Column] = columns
        self.progress: Progress = statement.progress
        # Whether rows came through the store rather than from the coordinator.
        self.spooled = False
        self._client = client
        self._statement = statement
        self._decoder: Decoder | None = None
        # The columns as the first page with some has them.
        self._declared: Sequence[Mapping[str, Any]] | None = None
        self._pieces: asyncio.Queue[Piece | BaseException | None] = asyncio.Queue()
        # One page is being decoded while the next is fetched.
        self._pages = Window(1, 0)
        self._segments = Window(client.settings.segments, client.settings.segment_window_bytes)
        self._tasks: set[asyncio.Task[None] | asyncio.Task[bytes]] = set()

    async def begin(self) -> int:
        spooled = await self._statement.reach_rows()
        return self._client.settings.segment_window_bytes if spooled and self._client.settings.encodings else 0

    async def batches(self) -> AsyncIterator[pa.RecordBatch]:
        self._keep(asyncio.create_task(self._fetch_all()))
        while (piece := await self._pieces.get()) is not None:
            if isinstance(piece, BaseException):
                raise piece
            rows = await piece.rows if isinstance(piece.rows, asyncio.Task) else piece.rows
            batch = await self._decoded(rows, piece.segment)
            if batch.num_rows:
                yield batch
            # Here the rows were taken.
            (self._pages if piece.segment is None else self._segments).leave(piece.weight)
            if piece.segment is not None:
                self._client.in_background(acknowledge(self._client, piece.segment))

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    def _keep(self, task: asyncio.Task[None] | asyncio.Task[bytes]) -> None:
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None] | asyncio.Task[bytes]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()

    async def _fetch_all(self) -> None:
        try:
            taken = 0
            async for page in self._statement.pages():
                self._prepare()
                taken = await self._take(page, taken)
            self._prepare()
        except BaseException as problem:
            self._pieces.put_nowait(problem)
            raise
        self._pieces.put_nowait(None)

    async def _take(self, page: Page, taken: int) -> int:
        if page.rows is not None:
            await self._pages.enter(len(page.rows))
            self._pieces.put_nowait(Piece(page.rows, len(page.rows)))
            return taken
        self.spooled = True
        data = page.envelope["data"]
        if not isinstance(data, dict):
            raise BadPage("The rows of a page are neither rows nor segments.")
        for segment in segments_of(data, taken):
            await self._segments.enter(segment.size)
            task = asyncio.create_task(fetch(self._client, segment))
            self._keep(task)
            self._pieces.put_nowait(Piece(task, segment.size, segment))
            taken += segment.rows
        return taken

    def _prepare(self) -> None:
        """Once the server says what it sends, and whenever it says something else: it must be what was described."""
        declared = self._statement.columns
        if declared is None or declared == self._declared:
            return
        sent = [column_of(column) for column in declared]
        if self._declared is None:
            self._begin_with(sent)
        elif sent != (first := [column_of(column) for column in self._declared]):
            raise PermanentRunnerError(
                f"Trino declared other columns in the middle of a result: {_listed(sent)} after {_listed(first)}.",
                code="columns_changed",
                hint="Run the export again. If this goes on, Trino's log says more, under the query id.",
            )
        self._declared = declared

    def _begin_with(self, sent: Sequence[TrinoColumn]) -> None:
        if [(one.name, one.type) for one in sent] != [(one.name, one.type) for one in self.columns]:
            raise QueryRefused(
                "The query's columns changed between its check and its start.",
                code="columns_changed",
                hint="Run the export again.",
            )
        self._decoder = decoder_for(sent)

    async def _decoded(self, rows: bytes, segment: Segment | None) -> pa.RecordBatch:
        if self._decoder is None:
            raise BadPage("Rows came before Trino said what columns they have.")
        if len(rows) <= AT_ONCE:
            return decode(self._decoder, rows, segment)
        return await on_cpu(decode, self._decoder, rows, segment)


def _listed(columns: Sequence[TrinoColumn]) -> str:
    return ", ".join(f"{column.name} {column.native}" for column in columns)[:500]


def decode(decoder: Decoder, rows: bytes, segment: Segment | None) -> pa.RecordBatch:
    if segment is None:
        return decoder.decode(rows)
    batch = decoder.decode(decompress(segment.encoding, rows, segment.uncompressed))
    if batch.num_rows != segment.rows:
        raise WrongSegments(f"A segment of {segment.rows:,} rows holds {batch.num_rows:,}.")
    return batch
