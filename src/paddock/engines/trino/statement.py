"""One query that Trino knows, followed to its end."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

import orjson

from paddock.engines.engine import NoAnswer, Progress
from paddock.engines.trino.client import LARGEST_PAGE, Call, LargePage, Page, Silence, TrinoClient
from paddock.engines.trino.decoding import BadPage
from paddock.engines.trino.errors import Wrapped, failure
from paddock.jobs.errors import InfrastructureError, TransientResourceError

# Of a page, while there is no memory for it: about what a connection buffers anyway.
GLANCE = 64 << 10

PHASES = {
    "WAITING_FOR_RESOURCES": "queued",
    "DISPATCHING": "queued",
    "PLANNING": "starting",
    "FINISHED": "fetching",
}


async def submit(
    client: TrinoClient, sql: str, call: Call, *, encodings: Sequence[str] = (), wrapped: Wrapped | None = None
) -> "Statement":
    try:
        page = await client.submit(sql, call, encodings)
    except Silence as silence:
        raise NoAnswer(str(silence), error_type=silence.error_type) from None
    return Statement(client, call, page, wrapped)


async def all_rows(client: TrinoClient, sql: str, call: Call) -> list[list[Any]]:
    """Of a small result, as JSON has them."""
    rows: list[list[Any]] = []
    async with await submit(client, sql, call) as statement:
        async for page in statement.pages():
            if page.rows is not None:
                rows.extend(orjson.loads(page.rows))
    return rows


class Statement:
    """Used as a context: leaving it early stops the query."""

    def __init__(self, client: TrinoClient, call: Call, first: Page, wrapped: Wrapped | None) -> None:
        self._client = client
        self._call = call
        self._page: Page = first
        self._wrapped = wrapped
        self._asking = False
        self._previous: str | None = None
        self._heads = True
        self.id: str = first.envelope["id"]
        self.next_uri: str | None = None
        self.columns: list[Mapping[str, Any]] | None = None
        self.stats: Mapping[str, Any] = {}
        self.progress = Progress(query_id=self.id)
        self.update_type: str | None = None
        self.update_count: int | None = None
        # A time-out is a cold start only as long as nothing came.
        self.rows_came = False
        self._take(first)

    def __repr__(self) -> str:
        return f"Statement({self.id})"

    async def __aenter__(self) -> "Statement":
        self._beating = asyncio.create_task(self._beat())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._beating.cancel()
        await self.stop()

    async def stop(self) -> None:
        uri, self.next_uri = self.next_uri, None
        if uri is not None:
            await asyncio.shield(self._client.stop_soon(uri, self._call))

    async def reach_rows(self) -> bool:
        """Follows the query until it has rows or ends, without taking them: a page of any size is left with Trino, which
        hears from us meanwhile, and `pages` asks for it again. Gives whether the rows are in a store."""
        while not self._page.has_rows and self.next_uri is not None:
            try:
                await self.advance(most=GLANCE)
            except LargePage as page:
                self._previous = self.next_uri
                self.rows_came = True
                return page.spooled
        return self._page.has_rows and self._page.rows is None

    async def pages(self) -> AsyncIterator[Page]:
        """Those with rows. Ends only where Trino ends."""
        while True:
            page = self._page
            if page.has_rows:
                yield page
            if self.next_uri is None:
                return
            await self.advance()

    async def advance(self, most: int = LARGEST_PAGE) -> Page:
        """One more request. Raises LargePage, and stays where it is, if the page has more bytes than `most`."""
        uri = self.next_uri
        assert uri is not None
        self._asking = True
        try:
            page = await self._client.next_page(uri, self._call, retry_silence=self.rows_came, most=most)
        except Silence as silence:
            if self.rows_came:
                raise TransientResourceError(str(silence), code="engine_unavailable", budget="cluster") from None
            raise NoAnswer(str(silence), error_type=silence.error_type) from None
        finally:
            self._asking = False
        self._previous = uri
        self._take(page)
        return page

    def _take(self, page: Page) -> None:
        envelope = page.envelope
        if envelope["id"] != self.id:
            raise BadPage("Trino answered for another query.")
        self._page = page
        self.rows_came = self.rows_came or page.has_rows
        self.stats = envelope.get("stats") or {}
        self._report(self.stats)
        self.columns = envelope.get("columns") or self.columns
        self.update_type = envelope.get("updateType") or self.update_type
        if envelope.get("updateCount") is not None:
            self.update_count = int(envelope["updateCount"])
        if error := envelope.get("error"):
            self.next_uri = None
            raise failure(error, self.id, self._wrapped)
        uri = envelope.get("nextUri")
        if uri is not None:
            # Not followed if it is foreign: the query is then stopped by the address before.
            self._client.check_address(uri)
        self.next_uri = uri

    def _report(self, stats: Mapping[str, Any]) -> None:
        """For people; nothing is decided by it."""
        state = str(stats.get("state") or "")
        self.progress.phase = PHASES.get(state, state.lower())
        percent = stats.get("progressPercentage")
        self.progress.percent = float(percent) if isinstance(percent, int | float) else None

    async def _beat(self) -> None:
        """While nobody asks for the next page (rows are being written, segments fetched) Trino would forget us."""
        while True:
            await asyncio.sleep(self._client.settings.heartbeat_seconds)
            if self.next_uri is not None and not self._asking:
                await self._beat_once(self.next_uri)

    async def _beat_once(self, uri: str) -> None:
        if self._heads and not await self._client.beat(uri, self._call):
            self._heads = uri != self.next_uri
        if not self._heads and self._previous is not None and uri == self.next_uri and not self._asking:
            # Older servers: the last page again, which they keep until the next is asked for.
            with suppress(InfrastructureError, Silence):
                await self._client.ask("GET", self._previous, self._client.following(self._call), patience=0)
