"""Mappings, ready snapshots and the control plane's own worker, in this process."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar
from uuid import UUID

import httpx2

from paddock.config import Config
from paddock.exports import mappings
from paddock.exports.mapping import Definition
from paddock.exports.mappings import Mapping, NewMapping
from paddock.exports.snapshot_states import Snapshot
from paddock.instances import model
from paddock.instances.model import Instance
from paddock.jobs.core import Core
from paddock.serve import InternalWorker, teams
from paddock.stopping import end
from paddock.storage.drafts import Draft, DraftFile, new_draft_id
from paddock.storage.store import open_managed
from tests.playing import worker
from tests.snapshots.making import make_snapshot, now, payload_of, result

T = TypeVar("T")
# Longer than one backoff of a start that failed on a busy machine and is tried again.
SECONDS = 240.0

GRAPH: dict[str, Any] = {
    "nodes": [
        {
            "label": "Airport",
            "sql": "SELECT code, name FROM airports",
            "primary_key": {"name": "code", "type": "STRING"},
            "properties": [{"name": "name", "type": "STRING"}],
        }
    ],
    "edges": [
        {
            "type": "ROUTE",
            "from_node": "Airport",
            "to_node": "Airport",
            "sql": "SELECT origin, target FROM routes",
            "from_key": "origin",
            "to_key": "target",
        }
    ],
}


async def make_mapping(core: Core, *, owner: str = "ada", name: str = "air", graph: dict[str, Any] = GRAPH) -> Mapping:
    new = NewMapping(owner=owner, name=name, definition=Definition.model_validate(graph))
    return await mappings.create(core, new, actor=owner)


async def export(core: Core, config: Config, *, fail: bool = False) -> int:
    """Plays the worker: all export jobs that wait are completed with a real manifest each, or fail. How many."""
    attempts = await (await worker(core)).claim("export", limit=50)
    store = open_managed(config)
    for attempt in attempts:
        if attempt.job.cleanup_of is not None:
            await attempt.finish()
            continue
        if fail:
            await attempt.finish("permanent")
            continue
        draft = Draft(store, payload_of(attempt)["output"], new_draft_id())
        await store.put(f"{draft.prefix}/part-0.parquet", b"PAR1")
        await draft.adopt(DraftFile("part-0.parquet", 10, 4, None))
        sealed = await draft.seal({"format": "parquet"})
        facts = {"bytes": sealed.bytes, "files": 1, "manifest": sealed.manifest, "sha256": sealed.sha256}
        assert await attempt.finish("done", result=result(10, **facts)) == "accepted"
    return len(attempts)


async def ready_snapshot(core: Core, config: Config, *, owner: str = "ada", name: str = "air") -> Snapshot:
    mapping = await make_mapping(core, owner=owner, name=name)
    made = await make_snapshot(core, mapping, owner=owner, engine="local", role=None)
    await export(core, config)
    found = await now(core, made.id)
    assert found.status == "ready"
    return found


@asynccontextmanager
async def working(core: Core, config: Config) -> AsyncIterator[None]:
    """The worker inside `serve` for all internal kinds but housekeeping, told as by `serve` of jobs whose time has come."""
    inside = InternalWorker(core, config, next(team for team in teams(core.kinds) if team.suffix == ""))
    task, sweeping = asyncio.create_task(inside.run()), asyncio.create_task(_sweep(core))
    try:
        yield
    finally:
        await end(sweeping)
        inside.stop()
        await task


async def _sweep(core: Core) -> None:
    while True:
        await core.claims.sweep()
        await asyncio.sleep(0.2)


async def until(what: str, look: Callable[[], Awaitable[T | None]], *, seconds: float = SECONDS) -> T:
    deadline = time.monotonic() + seconds
    while True:
        found = await look()
        if found:
            return found
        assert time.monotonic() < deadline, f"Waited in vain until {what}."
        await asyncio.sleep(0.02)


async def until_status(core: Core, id: UUID | str, *statuses: str) -> Instance:
    async def look() -> Instance | None:
        found = await model.get(core.db, UUID(str(id)))
        return found if found is not None and found.status in statuses else None

    return await until(f"instance {id} is {' or '.join(statuses)}", look)


async def until_gone(core: Core, id: UUID | str) -> None:
    async def look() -> bool:
        return await model.get(core.db, UUID(str(id))) is None

    await until(f"instance {id} is gone", look)


async def until_idle(core: Core) -> None:
    """No job is at work or waits for anything but a person."""

    async def look() -> bool:
        rows = await core.db.pool("durable").fetchval("SELECT count(*) FROM jobs WHERE kind LIKE 'instance%'")
        return bool(rows == 0)

    await until("no job of instances is left", look)


async def create(client: httpx2.AsyncClient, **body: Any) -> dict[str, Any]:
    answer = await client.post("/api/instances", json=body)
    assert answer.status_code == 201, answer.text
    made: dict[str, Any] = answer.json()["data"]
    return made


async def running(core: Core, client: httpx2.AsyncClient, snapshot: Snapshot, **body: Any) -> dict[str, Any]:
    """One that runs; a worker is at work."""
    made = await create(client, snapshot_id=str(snapshot.id), **body)
    found = await until_status(core, made["id"], "running", "failed")
    assert found.status == "running", found.error
    return made


async def events_of(core: Core, id: UUID | str) -> list[str]:
    rows = await core.db.pool("durable").fetch(
        "SELECT type FROM events WHERE subject = $1 ORDER BY id", f"instance:{id}"
    )
    return [row["type"].removeprefix("instance.") for row in rows]


def code_of(answer: httpx2.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["error"]["code"]


def fields_of(answer: httpx2.Response) -> list[str]:
    assert answer.status_code == 422, answer.text
    return [field["field"] for field in answer.json()["error"]["details"]["fields"]]
