"""The transitions of an instance. Each is one guarded statement and what belongs to it (event, metrics, job), in one
transaction of the caller.

Counted on every path: `instances_transitioned_to_starting_total`, `instances_transitioned_to_failed_total`.
"""

import secrets
from collections.abc import Sequence
from uuid import UUID, uuid4

import asyncpg
import orjson
import structlog

from paddock import metrics
from paddock.db.pool import Transaction
from paddock.instances.model import SQL, subject_of
from paddock.jobs.model import JsonObject, NewEvent, NewJob
from paddock.pass_metrics import pass_metrics

START, STOP, GROW = "instance_start", "instance_stop", "instance_grow"
log = structlog.get_logger()


def event(what: str, id: UUID, **data: object) -> NewEvent:
    return NewEvent(f"instance.{what}", subject_of(id), {"instance_id": str(id), **data})


async def to_starting(
    tx: Transaction, row: asyncpg.Record, *, memory_gb: int, from_: Sequence[str], reopened: bool = False
) -> NewJob | None:
    """A new generation, and the job that starts it. None: somebody else moved the instance on."""
    id: UUID = row["id"]
    begun = await tx.fetchrow(
        SQL["begin_start"], id, list(from_), uuid4(), secrets.token_urlsafe(32), memory_gb, reopened
    )
    if begun is None:
        return None
    log.info(
        "transitioning_instance_to_starting",
        instance_id=str(id),
        generation=str(begun["generation"]),
        pod_name=begun["pod_name"],
    )
    tx.count(pass_metrics().to_starting)
    payload = {"instance_id": str(id), "generation": str(begun["generation"])}
    return NewJob(START, payload, owner=row["owner"], tags=[subject_of(id)])


async def to_running(tx: Transaction, id: UUID, generation: UUID, status: JsonObject) -> Sequence[NewEvent]:
    """Nothing, when the instance was deleted or started anew meanwhile."""
    dangling = {name: n for name, n in (status.get("dangling_edges") or {}).items() if n}
    known = (_json(status.get("counts")), _json(dangling), _json(status.get("address")))
    row = await tx.fetchrow(SQL["mark_running"], id, generation, *known)
    if row is None:
        return ()
    told = metrics.default()
    tx.count(told.instances_started(row["wrapper_type"], "running"))
    tx.observe(told.instance_start_seconds, row["start_seconds"])
    events = [event("running", id, generation=str(generation), from_database=bool(status.get("from_database")))]
    if dangling:
        events.append(event("dangling_edges", id, dangling_edges=dangling))
    return events


async def to_failed(
    tx: Transaction, id: UUID, generation: UUID | None, error: JsonObject, *, from_: Sequence[str]
) -> Sequence[NewEvent]:
    row = await tx.fetchrow(SQL["mark_failed"], id, generation, list(from_), _json(error))
    if row is None:
        return ()
    log.warning("instance_failed", instance_id=str(id), code=error["code"], cause=error.get("cause"))
    told = metrics.default()
    tx.count(pass_metrics().to_failed)
    if "starting" in from_:
        tx.count(told.instances_started(row["wrapper_type"], "failed"))
    return [event("failed", id, **event_data(error))]


def event_data(error: JsonObject) -> JsonObject:
    """What an event says of an error: sentence and hint, and where a cluster failed the category, who can mend it and the
    cluster's own words."""
    diagnosis = error.get("diagnosis") or {}
    told = {"code": error["code"], "message": error.get("message"), "hint": error.get("hint")}
    told |= {name: diagnosis.get(name) for name in ("category", "mended_by", "words")}
    return {name: value for name, value in told.items() if value is not None}


def stop_job(row: asyncpg.Record) -> NewJob:
    return NewJob(STOP, {"instance_id": str(row["id"])}, owner=row["owner"], tags=[subject_of(row["id"])])


def _json(value: object) -> str | None:
    return None if value is None else orjson.dumps(value).decode()
