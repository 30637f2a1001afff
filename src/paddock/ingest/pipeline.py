"""What follows from the end of a step, in the transaction that ends its job.

The run's row is locked first, then the batch, then the group (by the jobs that are made). A guard that finds nothing to
change makes nothing: the turn was superseded, and what it wrote is a leftover. Every end makes the next job before the
group is told of it, so a run's group ends exactly when nothing is left to do, and only `run_ended` ends a run.
"""

from collections.abc import Sequence
from datetime import UTC
from typing import Any
from uuid import UUID

import asyncpg
import orjson

from paddock.db.pool import Transaction, statements
from paddock.ingest import figures
from paddock.ingest.model import (
    BatchPayload,
    Fetched,
    FetchPayload,
    Hooked,
    Published,
    Step,
    StepPayload,
    prefix_of_step,
)
from paddock.jobs import bulk
from paddock.jobs.errors import Refused
from paddock.jobs.filtering import Filter
from paddock.jobs.model import Event, Group, GroupId, Job, JsonObject, NewEvent, NewJob

SQL = statements("paddock.ingest.sql", "ingest.sql")
RUN_INGESTER, RUN_HOOKS, PUBLISH_BATCH, REMOVE = "run_ingester", "run_hooks", "publish_batch", "remove_ingest_files"
ON_CLUSTER = ":kubernetes"
STEP_KINDS = (RUN_INGESTER, RUN_INGESTER + ON_CLUSTER, RUN_HOOKS, RUN_HOOKS + ON_CLUSTER, PUBLISH_BATCH)
# So many batches' files are removed by one job.
REMOVED_AT_ONCE = 200
# Failures that every batch of the run would meet as well: it is no use to go on.
SHARED = frozenset(
    {
        *("command_missing", "unknown_source", "unknown_hook", "secret_missing"),
        # Of a cluster: what its operator must mend.
        *(
            "unauthorized",
            "forbidden",
            "pod_security",
            "admission_denied",
            "quota_needs_requests",
            "namespace_terminating",
        ),
        *("namespace_missing", "invalid_spec", "too_large", "no_matching_node", "image_unavailable", "config_missing"),
        "container_refused",
        # Of the store, which all of them write to.
        *("store_denied", "store_no_bucket"),
    }
)
# Runs whose open batches go no further.
GIVEN_UP = ("stopping", "deleting")
LOST = {"code": "lost", "message": "The end of one of its jobs could not be written.", "hint": "Retry it."}
CANCELLED = {"code": "cancelled", "message": "Cancelled."}
MOVE_ON = "Write another session where there is more, or has_more: false where there is not."

Made = list[NewJob | NewEvent]


def event(type: str, run: UUID | str, **data: Any) -> NewEvent:
    return NewEvent(type, f"ingest:{run}", {"run": str(run), **data})


async def fetched(tx: Transaction, job: Job, waiting_bytes: int) -> Made:
    """`waiting_bytes` is what a run may have fetched and not published before its ingester waits."""
    payload = FetchPayload.model_validate(job.payload)
    run = await tx.fetchrow(SQL["lock_run"], UUID(payload.run_id))
    if run is None or run["status"] != "running" or run["next_batch"] != payload.batch:
        return []
    if job.status != "completed":
        return await _fetch_failed(tx, run, job)
    found = Fetched.model_validate(job.result)
    _check_places(payload, [batch.manifest for batch in found.batches])
    moved = found.secret_session is not None and found.secret_session != run["session"]
    if not found.batches and found.has_more and not moved:
        message = "The ingester gave no records and the session it was given, and says that there is more."
        return await _finishing(tx, run, {"code": "no_progress", "message": message, "hint": MOVE_ON})
    made = await _insert_batches(tx, run, job, found, moved)
    made += [
        event(
            "IngesterBatchReady",
            run["id"],
            source=run["source"],
            runtime=run["runtime"],
            batch=payload.batch + index,
            records=batch.records,
            bytes=batch.bytes,
            has_more=found.has_more or index + 1 < len(found.batches),
        )
        for index, batch in enumerate(found.batches)
    ]
    run = await tx.fetchrow(SQL["lock_run"], run["id"])
    assert run is not None
    if found.cut or not found.has_more or _left(run) == 0:
        return made + await _finishing(tx, run, None)
    if not moved:
        # The next fetch would be given the same session, and give the same records: for ever.
        message = "The ingester gave records and the session it was given, and says that there is more."
        return made + await _finishing(tx, run, {"code": "no_progress", "message": message, "hint": MOVE_ON})
    if run["waiting_bytes"] >= waiting_bytes:
        await tx.execute(SQL["hold"], run["id"])
        return made
    return [*made, _next(run)]


async def _insert_batches(tx: Transaction, run: asyncpg.Record, job: Job, found: Fetched, moved: bool) -> Made:
    """A fetch without records that moved the session is an empty batch, published as it is."""
    count = len(found.batches) or int(moved)
    session = None if found.cut or not moved else found.secret_session
    size = sum(batch.bytes for batch in found.batches)
    records = sum(batch.records + batch.duplicates for batch in found.batches)
    await tx.fetchval(SQL["fetched"], run["id"], run["next_batch"], count, records, session, size)
    if count == 0:
        return []
    first: int = run["next_batch"]
    await tx.execute(
        SQL["insert_batches"],
        run["id"],
        found.fetched_at.astimezone(UTC),
        job.id,
        list(range(first, first + count)),
        [batch.records for batch in found.batches] or [0],
        [batch.duplicates for batch in found.batches] or [0],
        [batch.bytes for batch in found.batches] or [0],
        [None] * (count - 1) + [session or (None if found.cut else run["session"])],
        [batch.manifest for batch in found.batches] or [None],
        [batch.sha256 for batch in found.batches] or [None],
    )
    if found.batches:
        return []
    figures.ended(tx, run["source"], "published")
    return [event("IngestBatchPublished", run["id"], source=run["source"], batch=first, file=None, rows=0, rejected=0)]


def _left(run: asyncpg.Record) -> int | None:
    """How many records the run may still have."""
    return None if run["record_limit"] is None else max(0, run["record_limit"] - run["fetched"])


def _next(run: asyncpg.Record) -> NewEvent:
    data = {"source": run["source"], "runtime": run["runtime"], "batch": run["next_batch"]}
    return event("NextBatchRequested", run["id"], **data)


async def _fetch_failed(tx: Transaction, run: asyncpg.Record, job: Job) -> Made:
    """What was fetched goes through; nothing more is fetched."""
    if job.status == "cancelled":
        return await stop(tx, run["id"], "cancelled", CANCELLED)
    figures.step_failed(tx, "fetch", job.error_code)
    return await _finishing(tx, run, _error(job))


async def _finishing(tx: Transaction, run: asyncpg.Record, error: JsonObject | None) -> Made:
    await tx.execute(SQL["finishing"], run["id"], None if error is None else orjson.dumps(error).decode())
    return []


async def hooked(tx: Transaction, job: Job, waiting_bytes: int) -> Made:
    payload = BatchPayload.model_validate(job.payload)
    run, batch = await _locked(tx, payload)
    # A job of an earlier try, repeated by hand, names what that try was given.
    if run is None or batch is None or batch["status"] != "fetched" or batch["manifest"] != payload.manifest:
        return []
    if job.status != "completed":
        return await _batch_failed(tx, run, batch, job, "hooks", waiting_bytes)
    found = Hooked.model_validate(job.result)
    _check_places(payload, [found.manifest])
    await tx.fetchval(
        SQL["hooked"],
        run["id"],
        payload.batch,
        found.manifest,
        found.sha256,
        found.passed,
        found.rejected,
        found.errors,
        orjson.dumps(found.hooks).decode(),
        job.id,
    )
    counts = {"passed": found.passed, "rejected": found.rejected, "errors": found.errors}
    return [event("HookBatchCompleted", run["id"], source=run["source"], batch=payload.batch, **counts)]


async def published(tx: Transaction, job: Job, waiting_bytes: int) -> Made:
    payload = BatchPayload.model_validate(job.payload)
    run, batch = await _locked(tx, payload)
    if run is None or batch is None or batch["status"] != "hooked" or batch["hooked_manifest"] != payload.manifest:
        return []
    if job.status != "completed":
        return await _batch_failed(tx, run, batch, job, "publish", waiting_bytes)
    found = Published.model_validate(job.result)
    _check_places(payload, [found.manifest])
    key = (run["source"], run["id"], payload.batch)
    counts = (found.rows, found.rejected, found.bytes)
    file_id = await tx.fetchval(SQL["insert_file"], *key, *counts, found.manifest, found.sha256)
    # A value that does not fit its column rejects its record here; errors of hooks are counted apart.
    rejected = found.rejected - (batch["errors"] or 0)
    await tx.fetchval(SQL["published"], run["id"], payload.batch, file_id, found.rows, rejected, job.id)
    figures.published(tx, run["source"], batch, found)
    data = {"batch": payload.batch, "file": str(file_id), "rows": found.rows, "rejected": found.rejected}
    made: Made = [event("IngestBatchPublished", run["id"], source=run["source"], **data)]
    made += remove_steps(run, [payload.batch])
    return made + await _make_room(tx, run, batch, waiting_bytes, failed=0)


def remove_steps(run: asyncpg.Record, batches: Sequence[int]) -> Sequence[NewJob]:
    """What the steps before wrote is needed no more. A late writer's draft is removed with the leftovers."""
    steps: Sequence[Step] = ("fetch", "hooks")
    found = []
    for first in range(0, len(batches), REMOVED_AT_ONCE):
        some = batches[first : first + REMOVED_AT_ONCE]
        places = [prefix_of_step(run["source"], str(run["id"]), n, step) for n in some for step in steps]
        found.append(NewJob(REMOVE, {"prefixes": places}, owner=run["owner"]))
    return found


async def _batch_failed(
    tx: Transaction, run: asyncpg.Record, batch: asyncpg.Record, job: Job, step: str, waiting_bytes: int
) -> Made:
    cancelled = job.status == "cancelled"
    error = CANCELLED if cancelled else {**_error(job), "step": step}
    status = "cancelled" if cancelled else "failed"
    await tx.fetchval(SQL["unpublished"], run["id"], batch["n"], status, orjson.dumps(error).decode(), job.id)
    figures.ended(tx, run["source"], status)
    made = await _make_room(tx, run, batch, waiting_bytes, failed=int(not cancelled))
    if cancelled:
        return [*made, *remove_steps(run, [batch["n"]])]
    figures.step_failed(tx, step, job.error_code)
    if job.error_code in SHARED:
        return made + await stop(tx, run["id"], "failed", error)
    if run["failed_batches"] + 1 > run["max_failed_batches"]:
        message = f"More than {run['max_failed_batches']} batches failed; the last: {error['message']}"
        return made + await stop(
            tx, run["id"], "failed", {**error, "code": "too_many_failed_batches", "message": message}
        )
    return made


async def _make_room(
    tx: Transaction, run: asyncpg.Record, batch: asyncpg.Record, waiting_bytes: int, *, failed: int
) -> Made:
    """A run that is held goes on as soon as there is room."""
    now = await tx.fetchrow(SQL["less_waits"], run["id"], batch["bytes"], failed)
    if now is None or now["held_since"] is None or now["status"] != "running" or now["waiting_bytes"] >= waiting_bytes:
        return []
    await tx.execute(SQL["let_go"], run["id"])
    return [_next(now)]


async def stop(tx: Transaction, run: UUID, stop_as: str, error: JsonObject) -> Made:
    """The rest is cancelled, by a job that cancels all jobs of the run's group. The caller has locked the run."""
    if await tx.fetchval(SQL["stopping"], run, stop_as, orjson.dumps(error).decode()) is None:
        return []
    row = await tx.fetchrow(SQL["read_run"], run)
    assert row is not None
    payload = bulk.payload(
        "cancel",
        Filter(group=row["group_id"]),
        until=await tx.fetchval(SQL["tomorrow"]),
        actor="paddock",
        reason=error["message"],
        all_jobs=False,
        rights=bulk.Rights(),
    )
    return [NewJob("bulk", payload)]


async def run_ended(tx: Transaction, group: Group) -> Made:
    """The only place where a run ends. It is repeated until it succeeds."""
    if "run_id" not in group.data:
        return []
    id = UUID(group.data["run_id"])
    run = await tx.fetchrow(SQL["lock_run"], id)
    if run is None or run["ended_at"] is not None:
        return []
    stopping = run["status"] == "stopping"
    left = await tx.fetch(
        SQL["end_open_batches"],
        id,
        "cancelled" if stopping else "failed",
        orjson.dumps(CANCELLED if stopping else LOST).decode(),
    )
    lost = not stopping and (run["status"] == "running" or bool(left))
    status = run["stop_as"] if stopping else "failed" if lost or run["error"] is not None else "completed"
    problem = orjson.dumps(LOST).decode() if lost else None
    await tx.fetchrow(SQL["end_run"], id, status, problem, 0 if stopping else len(left))
    await tx.execute(SQL["close_group"], group.id)
    figures.run_ended(tx, run["source"], status, run["created_at"])
    word = {"completed": "IngestRunCompleted", "failed": "IngestRunFailed", "cancelled": "IngestRunCancelled"}[status]
    for _ in left:
        figures.ended(tx, run["source"], "cancelled" if stopping else "failed")
    made: Made = [event(word, id, source=run["source"], batches=run["next_batch"])]
    # Lost batches keep what they have: they may be retried.
    return [*made, *remove_steps(run, [row["n"] for row in left] if stopping else [])]


async def _locked(tx: Transaction, payload: StepPayload) -> tuple[asyncpg.Record | None, asyncpg.Record | None]:
    run = await tx.fetchrow(SQL["lock_run"], UUID(payload.run_id))
    return run, await tx.fetchrow(SQL["lock_batch"], UUID(payload.run_id), payload.batch)


def _check_places(payload: StepPayload, manifests: Sequence[str]) -> None:
    """A worker names only what it may have written: files of this run."""
    place = f"ingest/{payload.source}/{payload.run_id}/"
    if any(not manifest.startswith(place) for manifest in manifests):
        raise Refused("foreign_key", "The step's files are not where this run's files are.")


def _error(job: Job) -> JsonObject:
    last = job.errors[-1] if job.errors else {}
    error = {"code": job.error_code, "message": job.error_message or "The step failed.", "job_id": str(job.id)}
    return error | {name: last[name] for name in ("hint", "traceback") if last.get(name)}


# What the kinds hear: each gives the delivery, or none when nothing is left to do, or the run is for the other runtime.


async def fetch_for(tx: Transaction, heard: Event, runtime: str) -> NewJob | None:
    if _is_of_another(heard, runtime):
        return None
    run = await tx.fetchrow(SQL["lock_run"], UUID(heard.data["run"]))
    if (
        run is None
        or run["runtime"] != runtime
        or run["status"] != "running"
        or run["next_batch"] != heard.data["batch"]
    ):
        return None
    # One ingester at a time: an event that is delivered again finds the first delivery at work.
    if await tx.fetchval(SQL["fetching"], run["group_id"], run["next_batch"]):
        return None
    payload = FetchPayload(
        run_id=str(run["id"]),
        source=run["source"],
        batch=run["next_batch"],
        batch_size=run["batch_size"],
        limit=_left(run),
    )
    return _step(RUN_INGESTER, run, payload)


def _is_of_another(heard: Event, runtime: str) -> bool:
    """Asked before anything is locked: both runtimes hear every event. One that was made by an older version does not say."""
    return bool(heard.data.get("runtime", runtime) != runtime)


async def hooks_for(tx: Transaction, heard: Event, runtime: str) -> NewJob | None:
    if _is_of_another(heard, runtime):
        return None
    run, batch = await _heard_batch(tx, heard)
    if (
        run is None
        or run["runtime"] != runtime
        or batch is None
        or batch["status"] != "fetched"
        or run["status"] in GIVEN_UP
    ):
        return None
    return _step(RUN_HOOKS, run, _batch_payload(run, batch, batch["manifest"], batch["sha256"]))


async def publish_for(tx: Transaction, heard: Event, runtime: str) -> NewJob | None:
    run, batch = await _heard_batch(tx, heard)
    if run is None or batch is None or batch["status"] != "hooked" or run["status"] in GIVEN_UP:
        return None
    return _step(PUBLISH_BATCH, run, _batch_payload(run, batch, batch["hooked_manifest"], batch["hooked_sha256"]))


async def _heard_batch(tx: Transaction, heard: Event) -> tuple[asyncpg.Record | None, asyncpg.Record | None]:
    id = UUID(heard.data["run"])
    run = await tx.fetchrow(SQL["lock_run"], id)
    return run, await tx.fetchrow(SQL["lock_batch"], id, heard.data["batch"])


def _batch_payload(run: asyncpg.Record, batch: asyncpg.Record, manifest: str, sha256: str) -> BatchPayload:
    return BatchPayload(
        run_id=str(run["id"]),
        source=run["source"],
        batch=batch["n"],
        manifest=manifest,
        sha256=sha256,
        fetched_at=batch["fetched_at"],
    )


def _step(kind: str, run: asyncpg.Record, payload: StepPayload) -> NewJob:
    """In the group while the run lives; a batch that is retried later is in none, and the run's end stays."""
    on_cluster = run["runtime"] == "kubernetes" and kind != PUBLISH_BATCH
    return NewJob(
        kind + ON_CLUSTER if on_cluster else kind,
        payload.model_dump(mode="json", exclude_none=True),
        owner=run["owner"],
        tags=[f"ingest:{payload.source}"],
        group_id=GroupId(run["group_id"]) if run["ended_at"] is None else None,
    )
