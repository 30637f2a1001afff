"""What `paddock why` says of a job's run: whether its source waits for hooks, for the cluster, or for nobody."""

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import orjson

from paddock.amounts import gibibytes, span
from paddock.api.around import Around
from paddock.api.plane import ControlPlane
from paddock.api.tokens import Caller
from paddock.ingest import runs
from paddock.ingest.backpressure import PHASE
from paddock.ingest.model import Run
from paddock.ingest.pipeline import ON_CLUSTER, RUN_HOOKS, SQL, STEP_KINDS
from paddock.ingest.scheduled import SCHEDULED
from paddock.ingest.service import may_see_source
from paddock.jobs.model import Job


async def around(plane: ControlPlane, caller: Caller, job: Job) -> list[Around]:
    id = UUID(job.payload["run_id"]) if job.kind in STEP_KINDS else started_by(job)
    run = None if id is None else await runs.get(plane.core.db, id)
    if run is None or not may_see_source(plane, caller, run.source):
        return []
    now = datetime.now(UTC)
    if job.kind not in STEP_KINDS and run.status == "failed" and run.error is not None:
        return [_failed(run)]
    rows = await plane.core.db.fetch(SQL["run_jobs"], run.group_id)
    reports = [orjson.loads(row["report"]) for row in rows if row["report"] is not None and row["status"] == "claimed"]
    return [told for told in (_standing(run, now), _cluster(reports, now)) if told is not None]


def started_by(job: Job) -> UUID | None:
    """The run that a schedule's job started, or left its source to."""
    run = job.result.get("run") if job.kind == SCHEDULED.name and isinstance(job.result, dict) else None
    return None if run is None else UUID(run)


def _failed(run: Run) -> Around:
    assert run.error is not None
    sentence = f"Its run of '{run.source}' failed: {run.error['message']} [{run.error['code']}]"
    return Around(sentence, [f"`paddock ingest show {run.id}` tells more."])


def _standing(run: Run, now: datetime) -> Around | None:
    name = f"Its run of '{run.source}'"
    if run.held_since is not None:
        hooks = RUN_HOOKS + ON_CLUSTER if run.runtime == "kubernetes" else RUN_HOOKS
        return Around(
            f"{name} is held: {gibibytes(run.waiting_bytes)} wait for hooks, since "
            f"{span((now - run.held_since).total_seconds())}. It fetches on as soon as less waits.",
            [
                f"`paddock jobs list --kind {hooks}` shows whether hooks run: start workers that offer them, or make them faster.",
                "PADDOCK_INGEST_WAITING_BYTES says how much may wait.",
            ],
        )
    if run.live:
        words = {
            "running": "is running",
            "finishing": "fetches nothing more; what was fetched goes through",
            "stopping": "is being stopped: what is left is cancelled",
        }
        failed = "" if run.error is None else f". {run.error['message']}"
        return Around(
            f"{name} {words[run.status]}{failed.rstrip('.')}.", [f"`paddock ingest show {run.id}` tells more."]
        )
    return Around(f"{name} {'was ' if run.status == 'cancelled' else ''}{run.status}.")


def _cluster(reports: list[dict[str, Any]], now: datetime) -> Around | None:
    """What the steps that wait say of the cluster; the newest look is as good as any."""
    waiting = [report for report in reports if report.get("phase") == PHASE]
    if not waiting:
        return None
    seen = waiting[-1]
    since = min((report["since"] for report in waiting if isinstance(report.get("since"), str)), default=None)
    long = "" if since is None else f" since {span((now - datetime.fromisoformat(since)).total_seconds())}"
    return Around(
        f"It is waiting for the cluster: {seen.get('scheduled', 0)} Jobs are scheduled, "
        f"{seen.get('unscheduled', 0)} find no place{long}.",
        [
            "Nothing: no more Jobs are made than the cluster takes, and each place that becomes free is used.",
            "For more at once give the namespace more quota or the cluster more nodes.",
        ],
    )
