"""Who asks what: a bounded number of queries runs, a bounded number waits, and each can be stopped.

A query that is over its time, cancelled or left by its client is interrupted. If it does not hear that (the engines'
parsers do not), its engine child is killed after two seconds; the other queries of that child may be repeated.
"""

import asyncio
import hashlib
import time
from collections import deque
from collections.abc import Callable
from typing import Any

import structlog

from paddock.graphs.children.talking import DATA, END, ERROR, HEAD
from paddock.graphs.ends import crashed, failure, out_of_memory, restarted, stopped
from paddock.graphs.engine import Engine, Slot
from paddock.graphs.engines import Engines, death_reason
from paddock.graphs.problems import Problem
from paddock.graphs.query import Asked, Query
from paddock.graphs.spawning import ChildLied, read_facts, read_frame

RUNNING = 8
WAITING = 64
HEAR_SECONDS = 2.0
# Beside the limit on a result's rows: what a format puts around them.
AROUND_BYTES = 4 << 20

log = structlog.get_logger("paddock.graphs")


class Queries:
    def __init__(self, engines: Engines) -> None:
        self._engines = engines
        self._ended: list[Callable[[Query, float], None]] = []
        self._running: dict[str, Query] = {}
        self._waiting: dict[str, Query] = {}
        self._turns: deque[tuple[Query, asyncio.Future[None]]] = deque()
        self._tasks: set[asyncio.Task[None]] = set()
        # Of the child that crashed last with several queries: any of them may have done it.
        self._suspects: frozenset[bytes] = frozenset()
        self.last_activity_at: float | None = None

    @property
    def in_flight(self) -> int:
        return len(self._running)

    @property
    def queued(self) -> int:
        return len(self._waiting)

    def list(self) -> list[Query]:
        return [*self._running.values(), *self._waiting.values()]

    def start(self, asked: Asked) -> Query:
        """Raises Problem when too many wait already."""
        if asked.id in self._running or asked.id in self._waiting:
            raise Problem(409, "query_exists", f"A query with the id {asked.id} runs already.")
        if len(self._waiting) >= WAITING and len(self._running) >= RUNNING:
            raise Problem(
                429,
                "too_many_queries",
                f"{RUNNING} queries run and {WAITING} wait already.",
                hint="Ask again in a moment.",
                headers={"Retry-After": "1"},
            )
        query = Query(asked)
        self._waiting[asked.id] = query
        self.last_activity_at = time.time()
        task = asyncio.create_task(self._live(query))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return query

    def when_ended(self, tell: Callable[[Query, float], None]) -> None:
        """`tell` hears of each query, with the seconds from its question to its end."""
        self._ended.append(tell)

    def cancel(self, id: str) -> bool:
        query = self._running.get(id) or self._waiting.get(id)
        if query is not None:
            query.stop("cancelled")
        return query is not None

    async def close(self, grace: float) -> None:
        """What still runs after that time is told to stop."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=grace)
        self.stop_all()

    def stop_all(self) -> None:
        """Nobody will run them any more."""
        for query in self.list():
            query.stop("stopping")
            query.end(stopped(query))

    async def _live(self, query: Query) -> None:
        try:
            await self._wait_for_turn(query)
            try:
                if query.stopped is None:
                    await self._run(query)
            finally:
                self._end_turn(query)
        except Exception:
            log.exception("query_supervision_failed")
            query.end(Problem(500, "internal_error", "The query could not be run."))
        finally:
            self._waiting.pop(query.asked.id, None)
            query.end(stopped(query))
            self.last_activity_at = time.time()
            for told in self._ended:
                told(query, time.monotonic() - query.began)

    async def _wait_for_turn(self, query: Query) -> None:
        if len(self._running) < RUNNING and not self._turns:
            self._admit(query)
            return
        turn = query, asyncio.get_running_loop().create_future()
        self._turns.append(turn)
        await self._until(query, turn[1])
        if not turn[1].done():
            self._turns.remove(turn)

    def _admit(self, query: Query) -> None:
        del self._waiting[query.asked.id]
        self._running[query.asked.id] = query
        query.state = "running"

    def _end_turn(self, query: Query) -> None:
        if self._running.pop(query.asked.id, None) is None:
            return
        while self._turns and len(self._running) < RUNNING:
            following, turn = self._turns.popleft()
            # Its place is taken here and not when it wakes: two that end at once would give it away twice.
            self._admit(following)
            turn.set_result(None)

    async def _until(self, query: Query, *wanted: "asyncio.Future[Any]") -> None:
        """Returns when one of them is done or the query is to stop, its time being over among the reasons."""
        stopping = asyncio.ensure_future(query.stopping.wait())
        try:
            while query.stopped is None and not any(one.done() for one in wanted):
                left = query.deadline - time.monotonic()
                if left <= 0:
                    query.stop("timeout")
                    return
                await asyncio.wait([*wanted, stopping], timeout=left, return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopping.cancel()

    async def _run(self, query: Query) -> None:
        engine = await self._engine(query)
        if engine is None:
            return
        slot = engine.take()
        number = slot.number
        pump = asyncio.create_task(self._pump(query, engine, slot))
        try:
            await self._until(query, pump)
            if not pump.done():
                await self._interrupt(query, engine, slot, number, pump)
            await pump
        finally:
            engine.give_back(slot)
            self._engines.let_go(engine)

    async def _interrupt(
        self, query: Query, engine: Engine, slot: Slot, number: int, pump: "asyncio.Task[None]"
    ) -> None:
        telling = asyncio.create_task(engine.cancel(slot, number))
        await asyncio.wait([telling, pump], timeout=HEAR_SECONDS)
        if not pump.done():
            engine.kill(query.restart_reason())
        await telling

    async def _engine(self, query: Query) -> Engine | None:
        """One that takes queries at this very moment; None: the query is to stop."""
        while query.stopped is None:
            ready = asyncio.ensure_future(self._engines.ready())
            await self._until(query, ready)
            if not ready.done():
                ready.cancel()
            elif ready.result().usable:
                return ready.result()
        return None

    async def _pump(self, query: Query, engine: Engine, slot: Slot) -> None:
        """Moves frames from the child to the client until the query's last one, or the end of the child."""
        asked = query.asked
        try:
            await engine.ask(
                slot,
                {
                    "query": asked.text,
                    "parameters": asked.parameters,
                    "format": asked.format,
                    "max_rows": asked.max_rows,
                    "max_bytes": asked.max_bytes,
                },
            )
            await receive(query, slot)
        except ChildDiedInQuery:
            query.end(await self._death(query, engine))
        except ChildLied as lie:
            log.warning("engine_lied", problem=str(lie))
            engine.kill("crashed")
            query.end(crashed())

    async def _death(self, query: Query, engine: Engine) -> Problem:
        await engine.ended()
        if query.stopped is not None:
            return stopped(query)
        if engine.killed is not None:
            return restarted()
        return self._blame(query, engine)

    def _blame(self, query: Query, engine: Engine) -> Problem:
        """A child that died by itself died of one of its queries. Alone, it is that one; of several each may be it, and
        they are told to come again: one that was there when it happened before is not told so twice."""
        text = hashlib.sha256(query.asked.text.encode()).digest()
        if engine.running_at_end > 1 and text not in self._suspects:
            self._suspects = frozenset({*self._suspects, text}) if len(self._suspects) < RUNNING else frozenset({text})
            return restarted()
        return out_of_memory() if death_reason(engine) == "out_of_memory" else crashed()


class ChildDiedInQuery(Exception):
    """The pipe ended before the query did."""


async def receive(query: Query, slot: Slot) -> None:
    head, left = False, query.asked.max_bytes + AROUND_BYTES
    while True:
        frame = await read_frame(slot.pipe)
        if frame is None:
            raise ChildDiedInQuery
        kind, body = frame
        if kind == HEAD and not head and read_facts(body).get("media_type") == query.asked.media_type:
            head, found = True, read_facts(body).get("rows_found")
            query.rows_found = found if type(found) is int and 0 <= found < 1 << 63 else None
        elif kind == DATA and head:
            left -= len(body)
            if left < 0:
                raise ChildLied("An answer is larger than its limit.")
            await query.put(body)
        elif kind == END and head:
            # What came after it was to stop was thrown away: a child that had sent all of it before it heard of that ends
            # well, and a part would be taken for the whole.
            query.end(read_facts(body) if query.stopped is None else stopped(query))
            return
        elif kind == ERROR:
            query.end(failure(query, read_facts(body)))
            return
        else:
            raise ChildLied(f"A frame {kind!r} came out of turn.")
