"""Sources, runs, batches and files as the API shows them: no command, no secret, no session of a run."""

from dataclasses import asdict
from typing import Any

from paddock.api.durations import iso
from paddock.api.plane import ControlPlane
from paddock.ingest import runs
from paddock.ingest.model import Batch, Run
from paddock.ingest.outputs import readable_json
from paddock.ingest.pipeline import PUBLISH_BATCH, RUN_HOOKS, RUN_INGESTER
from paddock.ingest.runs import File
from paddock.ingest.source_settings import Source
from paddock.storage.store import open_managed

STEP_OF_KIND = {RUN_INGESTER: "fetch", RUN_HOOKS: "hooks", PUBLISH_BATCH: "publish"}


async def source_json(plane: ControlPlane, name: str, source: Source) -> dict[str, Any]:
    db = plane.core.db
    last, session = await runs.last(db, name), await runs.committed_session(db, name)
    return {
        "name": name,
        "description": source.description,
        "protocol": source.protocol,
        "hooks": list(source.hooks),
        "batch_size": source.batch_size,
        "max_failed_batches": source.max_failed_batches,
        "columns": source.columns,
        "timeout": iso(source.timeout),
        "memory": source.memory,
        "owners": list(source.owners),
        "committed_session": None if session is None else readable_json(session.encode()),
        "last_run": None if last is None else await run_json(plane, last),
        "totals": await runs.totals(db, name),
    }


async def run_json(plane: ControlPlane, run: Run) -> dict[str, Any]:
    counted = await runs.counts(plane.core.db, run)
    published = counted.get("published", {})
    sums = {name: sum(one[name] for one in counted.values()) for name in ("records", "duplicates")}
    sums |= {name: published.get(name, 0) for name in ("passed", "rejected", "errors")}
    own = f"/api/ingest/runs/{run.id}"
    links = {"self": own, "batches": f"{own}/batches", "jobs": f"/api/jobs?group={run.group_id}"}
    if run.status in ("running", "finishing"):
        links["cancel"] = f"{own}/cancel"
    return {
        "id": run.id,
        "source": run.source,
        "owner": run.owner,
        "status": run.status,
        "request": run.request,
        "batches": {status: one["n"] for status, one in counted.items()},
        **sums,
        "next_batch": run.next_batch,
        "runtime": run.runtime,
        "fetched": run.fetched,
        "fetching": await runs.fetching(plane.core.db, run),
        "waiting_bytes": run.waiting_bytes,
        "held_since": run.held_since,
        "failed_batches": run.failed_batches,
        "error": _without_log(run.error),
        "group_id": run.group_id,
        "created_at": run.created_at,
        "ended_at": run.ended_at,
        "links": links,
    }


async def batch_with_steps(plane: ControlPlane, run: Run, batch: Batch) -> dict[str, Any]:
    """With the jobs of its steps, in the order in which they were made."""
    jobs = await runs.batch_jobs(plane.core.db, run, batch.n)
    steps = [
        {
            "step": STEP_OF_KIND[job["kind"].partition(":")[0]],
            "job_id": job["id"],
            "status": job["status"],
            "error_code": job["error_code"],
        }
        for job in jobs
    ]
    return {**batch_json(batch), "steps": steps}


def batch_json(batch: Batch) -> dict[str, Any]:
    shown = asdict(batch)
    for hidden in ("session", "manifest", "sha256", "hooked_manifest", "hooked_sha256"):
        del shown[hidden]
    return shown


def file_json(plane: ControlPlane, file: File) -> dict[str, Any]:
    shown = asdict(file)
    del shown["manifest"], shown["sha256"]
    folder = file.manifest.rpartition("/")[0]
    place = open_managed(plane.config)
    root = str(place.local) if place.local is not None else place.url.partition("?")[0]
    return {
        **shown,
        "path": f"{root.rstrip('/')}/{folder}/records.parquet",
        "links": {"download": f"/api/ingest/files/{file.id}/download", "run": f"/api/ingest/runs/{file.run_id}"},
    }


def _without_log(error: dict[str, Any] | None) -> dict[str, Any] | None:
    """The last lines of a command's log belong to its batch and its job."""
    return None if error is None else {name: value for name, value in error.items() if name != "traceback"}
