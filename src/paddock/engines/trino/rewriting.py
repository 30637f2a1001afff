"""Statements that rewrite tables on Trino: its client, used by a handler that blocks.

Trino runs nothing before the first answer is asked for, so the query's id and address are told before that. An address that is
old by then still ends the query, and where it does not, the query's id does.
"""

import asyncio
import threading
import time
from collections.abc import Coroutine
from contextlib import suppress
from datetime import timedelta
from functools import cached_property
from typing import Any, TypeVar
from urllib.parse import quote

import orjson

from paddock.engines.engine import Query
from paddock.engines.rewriting import Ended, Started, TableStatement, Tell
from paddock.engines.settings import TrinoSettings
from paddock.engines.trino.client import Silence
from paddock.engines.trino.engine import TrinoEngine
from paddock.engines.trino.statement import Statement, submit
from paddock.jobs.errors import TransientResourceError
from paddock.jobs.model import JsonObject

T = TypeVar("T")
OVER = ("FINISHED", "FAILED")
# How long an end is waited for before it is asked for again later.
END_SECONDS = 10.0
CLOSE_SECONDS = 1.5


class TrinoRewriter:
    type = "trino"

    def __init__(self, name: str, settings: TrinoSettings, role: str | None = None, job: str = "") -> None:
        self.name = name
        self._engine = TrinoEngine(name, settings)
        self._query = Query("", role=role, job=job)
        self._thread: threading.Thread | None = None

    def run(self, statement: TableStatement, limit: timedelta, started: Started, tell: Tell) -> None:
        session = {"query_max_run_time": f"{limit.total_seconds():.0f}s", **statement.session}
        call = self._engine.call(self._query, session)
        running = self._wait(submit(self._engine.client, statement.sql, call))
        try:
            self._follow(running, started, tell)
        finally:
            # Nothing to stop where it ended by itself.
            self._wait(running.stop())

    def rows(self, sql: str) -> list[list[object]]:
        return self._wait(self._engine.rows(sql, self._query))

    def end(self, identity: JsonObject) -> Ended | None:
        return self._wait(self._end(identity))

    def close(self) -> None:
        if self._thread is None:
            return
        closing = asyncio.run_coroutine_threadsafe(self._engine.close(), self._loop)
        with suppress(TimeoutError):
            closing.result(CLOSE_SECONDS)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(CLOSE_SECONDS)
        if not self._thread.is_alive():
            self._loop.close()
            self._thread = None

    def _follow(self, running: Statement, started: Started, tell: Tell) -> None:
        """The addresses of a query that waits and of one that runs are of two kinds; within a kind the old ones serve."""
        kind = None
        while running.next_uri is not None:
            if _kind_of(running.next_uri) != kind:
                kind = _kind_of(running.next_uri)
                started({"query_id": running.id, "next_uri": running.next_uri})
            self._wait(running.advance())
            # No rows come before the end: an answer that is late is asked for again, and not the whole rewrite.
            running.rows_came = True
            tell({"phase": running.progress.phase, "percent": running.progress.percent})

    async def _end(self, identity: JsonObject) -> Ended | None:
        client, call = self._engine.client, self._engine.call(self._query)
        end = time.monotonic() + END_SECONDS
        await client.stop(str(identity["next_uri"]), call)
        address = f"{client.base}/v1/query/{quote(str(identity['query_id']), safe='')}"
        while time.monotonic() < end:
            state = await self._state(address)
            if state is None or state in OVER:
                return "unknown" if state is None else "closed"
            with suppress(Silence):
                await client.ask("DELETE", address, dict(call.headers), patience=0)
            await asyncio.sleep(0.2)
        return None

    async def _state(self, address: str) -> str | None:
        """None: Trino does not know the query."""
        client, call = self._engine.client, self._engine.call(self._query)
        try:
            answer = await client.ask("GET", f"{address}?pruned=true", dict(call.headers), retry_silence=True)
        except Silence as silence:
            raise TransientResourceError(str(silence), code="engine_unavailable", budget="cluster") from None
        if answer.status in (404, 410):
            return None
        client.expect_ok(answer)
        return str(orjson.loads(answer.body).get("state"))

    @cached_property
    def _loop(self) -> asyncio.AbstractEventLoop:
        loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=loop.run_forever, name="trino", daemon=True)
        self._thread.start()
        return loop

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        """In this thread, where a signal interrupts it."""
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise


def _kind_of(uri: str) -> str:
    """`queued` or `executing`."""
    return uri.partition("/v1/statement/")[2].partition("/")[0]
