"""The maintenance of one table by schedule: a small job of the control plane that orders it each time.

    paddock schedules create weekly-orders scheduled_maintenance --cron "0 3 * * 0" \\
        '{"catalog": "lake", "database": "sales", "table": "orders", "actions": ["rewrite_data_files"]}'

A table at which a job is at work already is left to it: the schedule's job is done then and says `skipped`.
"""

from datetime import timedelta

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from paddock.api.services.rights import check_run
from paddock.api.tokens import Caller
from paddock.config import Config
from paddock.jobs.core import Core
from paddock.jobs.enqueueing import IdempotencyKey
from paddock.jobs.errors import Draining, LockHeld, PermanentRunnerError, Refused, TransientResourceError
from paddock.jobs.kinds import Backoff, Kind
from paddock.jobs.outcomes import Outcome, done
from paddock.jobs.turn import Turn
from paddock.maintenance import tables
from paddock.maintenance.access import may_have
from paddock.maintenance.model import REWRITES, Action, TableName, namespace_of
from paddock.maintenance.submitting import new_maintenance
from paddock.maintenance.tables import LakeTable


class ScheduledMaintenance(BaseModel):
    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [{"catalog": "lake", "database": "sales", "table": "orders", "actions": ["rewrite_data_files"]}]
        },
    )

    catalog: str = Field(max_length=100)
    database: str = Field(min_length=1, max_length=500)
    table: str = Field(min_length=1, max_length=500)
    actions: tuple[Action, ...] = Field(
        min_length=1, max_length=20, description="With the options that are usual here."
    )


async def allowed(core: Core, config: Config, caller: Caller, payload: ScheduledMaintenance) -> None:
    """A table that no look has seen yet is none to be scheduled."""
    name = _name(payload)
    if not may_have(config, caller, name) or await tables.get(core.db, name) is None:
        raise _unknown(payload)


def _name(payload: ScheduledMaintenance) -> TableName:
    try:
        return TableName(catalog=payload.catalog, namespace=namespace_of(payload.database), name=payload.table)
    except ValidationError:
        raise _unknown(payload) from None


def _unknown(payload: ScheduledMaintenance) -> Refused:
    named = f"{payload.catalog}.{payload.database}.{payload.table}"
    message = f"There is no table '{named[:200]}', or it is not yours to maintain."
    fields = [{"field": "payload.table", "message": message}]
    hint = "`paddock tables list` shows yours."
    return Refused("unknown_table", message, hint=hint, status=404, details={"fields": fields})


async def run(turn: Turn[ScheduledMaintenance], core: Core, config: Config) -> Outcome:
    await check_run(core, config, SCHEDULED, turn)
    try:
        table = await _table(core, turn.payload)
        new = await new_maintenance(
            core.db, table, turn.payload.actions, owner=turn.owner, traceparent=turn.traceparent
        )
        # The job's own id as the key: a second try of it orders nothing twice.
        key = IdempotencyKey(turn.owner, "scheduled_maintenance", str(turn.id), b"")
        [made] = (await core.submit([new], idempotency=key)).jobs
    except Draining as later:
        raise TransientResourceError(later.message, code=later.code, hint=later.hint) from None
    except LockHeld as held:
        own = held.holder is not None and held.holder_owner == turn.owner
        return done({"skipped": True, "job": str(held.holder) if own else None})
    except Refused as problem:
        raise PermanentRunnerError(problem.message, code=problem.code, hint=problem.hint) from None
    return done({"job": str(made.id)})


async def _table(core: Core, payload: ScheduledMaintenance) -> LakeTable:
    found = await tables.get(core.db, _name(payload))
    if found is None:
        raise _unknown(payload)
    if found.uuid is None:
        raise TransientResourceError(f"The table could not be loaded: {found.problem}", code="catalog_unavailable")
    if any(action in REWRITES for action in payload.actions) and (cannot := found.figures.get("engine_cannot")):
        raise Refused("engine_cannot", str(cannot), hint="Rewrite it with the engine that writes it.", status=422)
    return found


SCHEDULED = Kind(
    name="scheduled_maintenance",
    payload=ScheduledMaintenance,
    handler=run,
    submit=frozenset({"ops", "admin"}),
    about=lambda payload: f"{payload.catalog}.{payload.database}.{payload.table}: {', '.join(payload.actions)}",
    allowed=allowed,
    orders="job",
    internal=True,
    retry=Backoff(first=timedelta(seconds=10), cap=timedelta(minutes=5), limit=20),
)
