"""A runtime whose instances are small servers in this process: each plays the instance server's part of the protocol, as the
test tells it to. It can lose answers: what was asked is done, and whoever asked is told that it failed."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from aiohttp import web

from paddock.jobs.errors import TransientResourceError
from paddock.runtimes.runtime import Address, CannotGrow, Found, Look, NoRoom, RuntimeWords, Start, State, Usage, Why

Handle = Callable[[web.Request], Awaitable[web.StreamResponse]]
READY: dict[str, Any] = {"phase": "ready", "counts": {"nodes": {}, "edges": {}}, "dangling_edges": {}}


@dataclass
class Behaviour:
    """What the instances that are started from now on do."""

    # Phases that /status tells one after the other once it was told to load; the last one stays.
    phases: Sequence[dict[str, Any]] = (READY,)
    starts_as: State = "up"
    why: Why | None = None
    no_room: str | None = None
    # For routes of its own: hostile ones, queries.
    routes: dict[str, Handle] = field(default_factory=dict)


class FakeInstance:
    def __init__(self, start: Start, behaviour: Behaviour) -> None:
        self.start = start
        self.behaviour = behaviour
        self.loads: list[dict[str, Any]] = []
        self.asked: list[tuple[str, str, Any]] = []
        self.headers: dict[str, str] = {"Paddock-Engine-Restarts": "0", "Paddock-Engine-Restart-Reason": ""}
        self._looks = 0
        self._runner: web.AppRunner | None = None
        self.port = 0

    async def serve(self) -> None:
        app = web.Application(client_max_size=64 << 20)
        app.router.add_route("*", "/{path:.*}", self._answer)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1, handler_cancellation=True)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.port = self._runner.addresses[0][1]

    async def close(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        body = await request.json() if request.can_read_body else None
        self.asked.append((request.method, request.path, body))
        handle = self.behaviour.routes.get(f"{request.method} {request.path}")
        if handle is not None:
            answer = await handle(request)
            if not answer.prepared:
                answer.headers.update(self._all_headers())
            return answer
        if request.path == "/load":
            self.loads.append(body or {})
            return self._json({"data": {"phase": "fetching"}}, 202)
        if request.path == "/status":
            return self._json({"data": self._status()})
        return self._json({"error": {"code": "not_found", "message": "There is nothing."}}, 404)

    def _status(self) -> dict[str, Any]:
        if not self.loads and self.behaviour.phases and not self.behaviour.phases[0].get("from_database"):
            return {"phase": "empty"}
        found = self.behaviour.phases[min(self._looks, len(self.behaviour.phases) - 1)]
        self._looks += 1
        return {"moved_at": str(self._looks), **found}

    def _all_headers(self) -> dict[str, str]:
        return {"Paddock-Generation": str(self.start.generation), **self.headers}

    def _json(self, body: Any, status: int = 200) -> web.Response:
        return web.json_response(body, status=status, headers=self._all_headers())


class FakeRuntime:
    words = RuntimeWords("Process", "this machine")
    grows = False

    def __init__(self) -> None:
        self.behaviour = Behaviour()
        self.running: dict[str, FakeInstance] = {}
        self.states: dict[str, tuple[State, Why | None]] = {}
        self.started: list[str] = []
        self.room: int | None = None
        # Asked before each call with its name; may raise, wait, or change things.
        self.before: Callable[[str, str], Awaitable[None]] | None = None
        # Which calls lose their answer: (what, name) -> bool.
        self.loses: Callable[[str, str], bool] = lambda _what, _name: False
        self.ends_slowly = 0

    async def start(self, start: Start) -> bool:
        await self._begin("start", start.name)
        if self.behaviour.no_room is not None:
            raise NoRoom("disk", self.behaviour.no_room)
        for name in [name for name, one in self.running.items() if one.start.instance == start.instance]:
            if name != start.name:
                await self._remove(name)
        if start.name not in self.running:
            self.started.append(start.name)
            instance = FakeInstance(start, replace(self.behaviour))
            await instance.serve()
            self.running[start.name] = instance
            self.states[start.name] = (self.behaviour.starts_as, self.behaviour.why)
        self._end("start", start.name)
        return True

    @contextlib.asynccontextmanager
    async def alongside(self, changed: Callable[[UUID], None]) -> AsyncIterator[None]:
        yield

    async def get(self, name: str, look: Look = "now") -> Found | None:
        await self._begin("get", name)
        instance = self.running.get(name)
        if instance is None:
            return None
        state, why = self.states[name]
        self._end("get", name)
        return Found(
            name=name,
            uid=str(instance.start.generation),
            instance=instance.start.instance,
            generation=instance.start.generation,
            state=state,
            made_at=datetime.now(UTC),
            address=Address("127.0.0.1", instance.port) if state == "up" else None,
            why=why,
        )

    async def list(self, after: str = "", limit: int = 100) -> Sequence[Found]:
        found = [await self.get(name) for name in sorted(self.running) if name > after]
        return [one for one in found if one is not None][:limit]

    async def logs(self, name: str) -> str | None:
        await self._begin("logs", name)
        return f"the log of {name}" if name in self.running else None

    async def release(self, name: str, uid: str) -> None:
        return

    async def grow(self, name: str, uid: str, memory_bytes: int) -> bool:
        raise CannotGrow("it cannot grow")

    async def take_back(self, name: str, uid: str, memory_bytes: int) -> None:
        return

    async def delete(
        self, name: str, uid: str | None = None, grace: timedelta | None = None, *, keep_loaded: bool = False
    ) -> bool:
        await self._begin("delete", name)
        if self.ends_slowly > 0:
            self.ends_slowly -= 1
            return False
        number = int(name.rpartition("-")[2])
        for one in list(self.running):
            if one.rpartition("-")[0] == name.rpartition("-")[0] and int(one.rpartition("-")[2]) <= number:
                await self._remove(one)
        self._end("delete", name)
        return True

    async def usage(self, name: str) -> Usage | None:
        return Usage(1)

    async def memory_bytes(self) -> int | None:
        return self.room

    async def kill(self, name: str, why: Why = "exited") -> None:
        """As if the process had died by itself."""
        await self.running[name].close()
        self.states[name] = ("ended", why)

    async def vanish(self, name: str) -> None:
        await self._remove(name)

    async def close(self) -> None:
        for name in list(self.running):
            await self._remove(name)

    async def _remove(self, name: str) -> None:
        with contextlib.suppress(KeyError):
            await self.running.pop(name).close()

    async def _begin(self, what: str, name: str) -> None:
        if self.before is not None:
            await self.before(what, name)
        else:
            await asyncio.sleep(0)

    def _end(self, what: str, name: str) -> None:
        if self.loses(what, name):
            raise TransientResourceError("The answer was lost.", delay=timedelta(0), budget="cluster")

    def of(self, id: UUID | str) -> FakeInstance:
        """The only one that runs for this instance."""
        [found] = [one for one in self.running.values() if str(one.start.instance) == str(id)]
        return found
