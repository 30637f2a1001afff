"""A runtime in memory, for worlds that no machine would show on demand: pods there, gone, foreign, young, of unknown state."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

from paddock.config import Config
from paddock.instances import running_on
from paddock.jobs.core import Core
from paddock.runtimes.runtime import CannotGrow, Found, Look, RuntimeWords, Start, Usage

WORDS = RuntimeWords("Pod", "Kubernetes")
NOW = datetime(2026, 11, 18, 12, tzinfo=UTC)


@dataclass
class PlayedRuntime:
    words: RuntimeWords = WORDS
    grows: bool = False
    pods: dict[str, Found] = field(default_factory=dict)
    deleted: list[tuple[str, str | None, timedelta | None]] = field(default_factory=list)
    released: list[str] = field(default_factory=list)
    # Called with each name before it is answered for, or deleted.
    before_get: Any = None
    before_delete: Any = None
    away: bool = False
    # Of another installation: its lists do not show them.
    foreign: set[str] = field(default_factory=set)

    def add(self, name: str, instance: UUID, generation: UUID | None = None, **fields: Any) -> Found:
        found = Found(
            name=name,
            uid=str(uuid4()),
            instance=instance,
            generation=generation or uuid4(),
            state=fields.pop("state", "up"),
            made_at=fields.pop("made_at", NOW - timedelta(hours=1)),
            **fields,
        )
        self.pods[name] = found
        return found

    async def start(self, start: Start) -> bool:
        raise AssertionError("no pass starts anything itself")

    @asynccontextmanager
    async def alongside(self, changed: Callable[[UUID], None]) -> AsyncIterator[None]:
        yield

    async def release(self, name: str, uid: str) -> None:
        self.released.append(name)
        if name in self.pods and self.pods[name].uid == uid:
            del self.pods[name]

    async def grow(self, name: str, uid: str, memory_bytes: int) -> bool:
        raise CannotGrow(f"{self.words.thing} {name} has what it has.")

    async def take_back(self, name: str, uid: str, memory_bytes: int) -> None:
        return

    async def get(self, name: str, look: Look = "now") -> Found | None:
        if self.before_get is not None:
            self.before_get(name)
        return self.pods.get(name)

    async def list(self, after: str = "", limit: int = 100) -> Sequence[Found]:
        if self.away:
            raise ConnectionError("the runtime is away")
        names = sorted(self.pods.keys() - self.foreign)
        return [self.pods[name] for name in names if name > after][:limit]

    async def logs(self, name: str) -> str | None:
        return "its last words" if name in self.pods else None

    async def delete(
        self, name: str, uid: str | None = None, grace: timedelta | None = None, *, keep_loaded: bool = False
    ) -> bool:
        if self.before_delete is not None:
            self.before_delete(name)
        self.deleted.append((name, uid, grace))
        if name in self.pods and self.pods[name].uid == uid:
            del self.pods[name]
        return True

    async def usage(self, name: str) -> Usage | None:
        return None

    async def memory_bytes(self) -> int | None:
        return None


def open_runtime(config: Config) -> PlayedRuntime:
    runtime = PlayedRuntime()
    running_on.OPENED["local", config.data] = runtime
    return runtime


INSERT = """
INSERT INTO instances (id, owner, name, status, wrapper_type, mapping_id, mapping_version, snapshot_id, cpu_cores, memory_gb,
    memory_asked, ttl, inactivity_timeout, generation, generation_number, pod_name, token, generation_at, started_at,
    last_activity_at, expires_at)
VALUES ($1, 'ada', 'people', $2, 'ladybug', $1, 1, $3, 1, 1, false, '1 day', '4 hours', $4, 1, $5, 'token', paddock_now(),
    paddock_now(), paddock_now(), paddock_now() + interval '1 day')
"""


@dataclass(frozen=True)
class Made:
    id: UUID
    generation: UUID
    pod_name: str


async def add_instance(core: Core, status: str = "running", *, named: bool = True) -> Made:
    id, generation = uuid4(), uuid4()
    name = f"ladybug-wrapper-{id}-1"
    async with core.db.transaction() as tx:
        await tx.execute(INSERT, id, status, uuid4(), generation, name if named else None)
    return Made(id, generation, name)


async def row_of(core: Core, id: UUID) -> dict[str, Any] | None:
    async with core.db.transaction() as tx:
        row = await tx.fetchrow(
            "SELECT *, error ->> 'message' AS message, error ->> 'code' AS code FROM instances WHERE id = $1", id
        )
    return None if row is None else dict(row)


def changed(found: Found, **fields: Any) -> Found:
    return replace(found, **fields)
