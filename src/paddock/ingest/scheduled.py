"""Runs by schedule: a small job of the control plane that starts a run each time.

    paddock schedules create hourly scheduled_ingest --every 1h '{"source": "orders"}'

A source that is at work already is left to it: the job is done, says `skipped`, and its outcome is that of the run at work.
"""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field

from paddock.api.services.rights import check_owner_named, check_run
from paddock.api.tokens import Caller
from paddock.config import Config
from paddock.db.pool import Database
from paddock.ingest import runs
from paddock.ingest.request import new_run, no_source
from paddock.ingest.service import may_use
from paddock.ingest.source_settings import sources_from
from paddock.jobs.core import Core
from paddock.jobs.enqueueing import IdempotencyKey
from paddock.jobs.errors import Draining, PermanentRunnerError, Refused, TransientResourceError
from paddock.jobs.kinds import Backoff, Kind
from paddock.jobs.model import Ordered
from paddock.jobs.outcomes import Outcome, done
from paddock.jobs.turn import Turn


class ScheduledIngest(BaseModel):
    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"source": "orders"}]})

    source: str = Field(max_length=100)
    limit: int | None = Field(default=None, ge=1)
    owner: str | None = Field(default=None, min_length=1, max_length=200, description="Whose run it is.")


async def allowed(_core: Core, config: Config, caller: Caller, payload: ScheduledIngest) -> None:
    check_owner_named(caller, payload.owner)
    source = sources_from(config).get(payload.source)
    if source is None or not may_use(caller, source):
        raise _no_source(payload.source)


async def check(core: Core, config: Config, payload: ScheduledIngest, owner: str) -> None:
    """Before a schedule is made: the source is there."""
    if payload.source not in sources_from(config):
        raise _no_source(payload.source)


def _no_source(name: str) -> Refused:
    problem = no_source(name)
    problem.details["fields"] = [{"field": "payload.source", "message": problem.message}]
    return problem


async def run(turn: Turn[ScheduledIngest], core: Core, config: Config) -> Outcome:
    await check_run(core, config, SCHEDULED, turn)
    asked = turn.payload
    try:
        new = new_run(config, asked.source, owner=asked.owner or turn.owner, limit=asked.limit)
        # The job's own id as the key: a second try of it starts no second run.
        key = IdempotencyKey(turn.owner, "scheduled_ingest", str(turn.id), b"")
        made = await runs.start(core, new, actor=f"schedule:{turn.owner}", idempotency=key)
    except Draining as later:
        raise TransientResourceError(later.message, code=later.code, hint=later.hint) from None
    except runs.RunActive as active:
        return done({"skipped": True, "run": active.details.get("run_id")})
    except Refused as problem:
        raise PermanentRunnerError(problem.message, code=problem.code, hint=problem.hint) from None
    return done({"run": str(made.id)})


async def outcomes(db: Database, ids: Sequence[str]) -> Mapping[str, Ordered]:
    """A run is many jobs: it is as well as it says itself."""
    return {
        str(run.id): Ordered(
            status=run.status,
            ended_at=run.ended_at,
            error_code=None if run.error is None else run.error["code"],
            error_message=None if run.error is None else run.error["message"],
            path=f"/ingest/runs/{run.id}",
            command=f"paddock ingest show {run.id}",
        )
        for run in await runs.some(db, [UUID(id) for id in ids])
        if run.status != "deleting"
    }


SCHEDULED = Kind(
    name="scheduled_ingest",
    payload=ScheduledIngest,
    handler=run,
    submit=frozenset({"ops", "admin"}),
    about="source",
    allowed=allowed,
    check=check,
    orders="run",
    outcomes=outcomes,
    internal=True,
    retry=Backoff(first=timedelta(seconds=10), cap=timedelta(minutes=5), limit=20),
)
