"""`instance_grow`: more memory for an instance that runs, where it runs.

Made by the pass that watches their memory. Killed on any line it goes on where it was: what was asked for already is not asked
for twice, and what does not come within a minute is taken back. A refusal is an event, and nothing failed.
"""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any
from uuid import UUID

import asyncpg
from pydantic import BaseModel, ConfigDict

from paddock.config import Config
from paddock.db.pool import Database, Transaction
from paddock.instances import limits, moving, sizing
from paddock.instances.model import SQL, subject_of
from paddock.instances.running_on import runtime_of
from paddock.jobs.core import Core
from paddock.jobs.errors import Refused
from paddock.jobs.model import Job, NewEvent, NewJob
from paddock.jobs.outcomes import Outcome, again, done
from paddock.jobs.turn import Turn
from paddock.pass_metrics import pass_metrics
from paddock.runtimes.runtime import CannotGrow, Found, Runtime

PENDING_FOR = timedelta(seconds=60)
PAUSE = timedelta(seconds=1)


class GrowPayload(BaseModel):
    model_config = ConfigDict(extra="forbid")

    instance_id: str
    generation: str
    memory_gb: int
    percent: int
    urgent: bool


def grow_job(row: asyncpg.Record, *, memory_gb: int, percent: int, urgent: bool) -> NewJob:
    payload: dict[str, Any] = {"instance_id": str(row["id"]), "generation": str(row["generation"])}
    payload |= {"memory_gb": memory_gb, "percent": percent, "urgent": urgent}
    return NewJob(moving.GROW, payload, owner=row["owner"], tags=[subject_of(row["id"])])


async def run_grow(turn: Turn[GrowPayload], core: Core, config: Config) -> Outcome:
    payload, runtime = turn.payload, runtime_of(config)
    row = await core.db.fetchrow(SQL["instance_row"], UUID(payload.instance_id))
    if runtime is None or row is None or row["status"] != "running" or str(row["generation"]) != payload.generation:
        return done({"outcome": "superseded"})
    found = await runtime.get(row["pod_name"], "now")
    if found is None or found.state == "ended":
        return done({"outcome": "superseded"})
    if "asked_at" not in turn.saved:
        if (limited := await _reserve(core, runtime, row, payload.memory_gb)) is not None:
            return done({"outcome": "limited", "message": limited})
        # Before it is asked for: whoever goes on takes it back, if it comes to that.
        await turn.save({"asked_at": turn.age.total_seconds()}, progress=False)
    return await _grow(turn, runtime, row, found)


async def _grow(turn: Turn[GrowPayload], runtime: Runtime, row: asyncpg.Record, found: Found) -> Outcome:
    try:
        if await runtime.grow(found.name, found.uid, turn.payload.memory_gb * sizing.GB):
            return done({"outcome": "resized"})
    except CannotGrow as refused:
        return done({"outcome": "refused", "message": str(refused)})
    if turn.age - timedelta(seconds=turn.saved["asked_at"]) < PENDING_FOR:
        thing = runtime.words.thing.lower()
        return again(PAUSE, waiting_on=f"more memory for {thing} {found.name}", saved=turn.saved, progress=False)
    message = f"There was no more memory for {runtime.words.thing} {found.name} where it runs."
    try:
        await runtime.take_back(found.name, found.uid, row["memory_gb"] * sizing.GB)
    except CannotGrow as refused:  # before 1.34 Kubernetes makes no limit smaller; or it is gone
        message = f"{message} It is still asked for: {refused}"
    return done({"outcome": "deferred", "message": message})


async def _reserve(core: Core, runtime: Runtime, row: asyncpg.Record, memory_gb: int) -> str | None:
    """None: there is room within the limits, and it counts as taken until the job ends. Else why there is none. Checked without
    being written, another growth or a new instance would be given the same room in the minute that this one takes."""
    room = await runtime.memory_bytes()

    async def write(tx: Transaction) -> str | None:
        await limits.lock(tx)
        try:
            await limits.check(tx, row["owner"], memory_gb, room=room, without=row["id"])
        except Refused as refused:
            return refused.message
        await tx.execute(SQL["reserve_growth"], row["id"], row["generation"], memory_gb)
        return None

    return await core.db.repeated(write)


async def end_lost(db: Database) -> Sequence[UUID]:
    """What is reserved for an instance that no job makes larger would count against its owner as long as it runs."""

    async def write(tx: Transaction) -> list[UUID]:
        await limits.lock(tx)
        return [row["id"] for row in await tx.fetch(SQL["end_lost_growths"])]

    return await db.repeated(write)


async def grow_ended(tx: Transaction, job: Job) -> Sequence[NewEvent]:
    payload = job.payload
    result = job.result if isinstance(job.result, dict) else {}
    outcome, metrics = result.get("outcome", job.status), pass_metrics()
    id, generation = UUID(payload["instance_id"]), UUID(payload["generation"])
    row = await tx.fetchrow(SQL["lock_instance"], id)
    await tx.execute(SQL["end_growth"], id)
    if outcome in ("superseded", "cancelled"):
        return ()
    if row is None or row["generation"] != generation:
        return ()
    if outcome == "resized":
        await tx.execute(SQL["mark_resized"], id, generation, payload["memory_gb"])
        tx.count(metrics.urgent_resizes if payload["urgent"] else metrics.proactive_resizes)
    elif outcome == "failed":
        tx.count(metrics.resource_monitor_failures)
    return [
        moving.event(
            "memory_high",
            id,
            percent=payload["percent"],
            memory_gb=row["memory_gb"],
            wanted_gb=payload["memory_gb"],
            outcome=outcome,
            message=result.get("message") or job.error_message or f"It has {payload['memory_gb']} GB now.",
        )
    ]
