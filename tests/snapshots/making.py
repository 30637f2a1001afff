"""A small mapping, snapshots of it, and the test as the worker that exports it."""

from typing import Any
from uuid import UUID

import msgspec

from paddock.exports import mappings, snapshot_states, snapshots
from paddock.exports.mapping import Definition
from paddock.exports.mappings import Mapping, NewMapping
from paddock.exports.snapshot_states import Snapshot, SnapshotPart
from paddock.exports.snapshots import NewSnapshot
from paddock.jobs.core import Core
from tests.playing import Attempt, worker

AIRPORTS: dict[str, Any] = {
    "nodes": [
        {
            "label": "Airport",
            "sql": "SELECT code, name FROM airports",
            "primary_key": {"name": "code", "type": "STRING"},
            "properties": [{"name": "name", "type": "STRING"}],
        },
        {"label": "Airline", "sql": "SELECT id FROM airlines", "primary_key": {"name": "id", "type": "INT64"}},
    ],
    "edges": [
        {
            "type": "ROUTE",
            "from_node": "Airport",
            "to_node": "Airport",
            "sql": "SELECT origin, target, miles FROM routes",
            "from_key": "origin",
            "to_key": "target",
            "properties": [{"name": "miles", "type": "DECIMAL(10,2)"}],
        },
        {
            "type": "FLIES_TO",
            "from_node": "Airline",
            "to_node": "Airport",
            "sql": "SELECT airline, airport FROM serves",
            "from_key": "airline",
            "to_key": "airport",
        },
    ],
}
NAMES = ["Airport", "Airline", "ROUTE", "FLIES_TO"]


def result(rows: int = 10, **fields: Any) -> dict[str, Any]:
    """As a worker gives it."""
    return {
        "rows": rows,
        "bytes": rows * 100,
        "files": 1,
        "manifest": "somewhere/_manifest.json",
        "sha256": "ab" * 32,
        "draft": "d" * 32,
        "query_id": "q1",
        "started_at": "2026-11-16T09:30:00+00:00",
        **fields,
    }


async def make_mapping(core: Core, *, owner: str = "ada", name: str = "air", **fields: Any) -> Mapping:
    new = NewMapping(owner=owner, name=name, definition=Definition.model_validate(AIRPORTS), **fields)
    return await mappings.create(core, new, actor=owner)


async def make_snapshot(core: Core, mapping: Mapping | None = None, **fields: Any) -> Snapshot:
    source = mapping or await make_mapping(core)
    new = NewSnapshot(**{"owner": "ada", "mapping_id": source.id, "engine": "warehouse", "role": "finance", **fields})
    return await snapshots.create(core, new, actor="ada")


async def now(core: Core, id: UUID) -> Snapshot:
    found = await snapshot_states.get(core.db, id)
    assert found is not None
    return found


async def parts_of(core: Core, snapshot: Snapshot) -> dict[str, SnapshotPart]:
    return {part.name: part for part in await snapshot_states.parts(core.db, await now(core, snapshot.id))}


async def claim(core: Core, limit: int = 20) -> dict[str, Attempt]:
    """The attempts by the name of what they export, in the order of their ids. Cleanups of ended jobs are done at once."""
    attempts = await (await worker(core)).claim("export", limit=limit)
    for cleanup in [attempt for attempt in attempts if attempt.job.cleanup_of is not None]:
        attempts.remove(cleanup)
        await cleanup.finish()
    return {payload_of(attempt)["name"]: attempt for attempt in sorted(attempts, key=lambda a: a.id)}


def payload_of(attempt: Attempt) -> dict[str, Any]:
    payload: dict[str, Any] = msgspec.json.decode(attempt.job.payload)
    return payload


async def complete(attempt: Attempt, rows: int = 10) -> str:
    return await attempt.finish("done", result=result(rows))
