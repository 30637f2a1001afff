"""Snapshots by schedule: a small job of the control plane that makes a new snapshot of a mapping each time.

    paddock schedules create nightly-graph scheduled_snapshot --cron "30 2 * * *" \\
        '{"mapping_id": "019a8b1e-4c00-7000-8f6e-2f9d3c0a51e7", "engine": "duckdb", "ttl": "P7D"}'

Without `mapping_version` it is the version that is the newest at that time.
"""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from uuid import UUID

from pydantic import Field

from paddock.api.errors import ApiError
from paddock.api.services.rights import check_run
from paddock.api.tokens import Caller
from paddock.config import Config
from paddock.db.pool import Database
from paddock.engines.registry import settings_from
from paddock.exports import mappings, snapshot_states, snapshots
from paddock.exports.explicit import check_explicit
from paddock.exports.mapping_service import ttl_of
from paddock.exports.request import one_engine
from paddock.exports.service import ROLE, allowed_engine
from paddock.exports.snapshot_service import SnapshotBody, request_of
from paddock.exports.snapshots import NewSnapshot
from paddock.jobs.core import Core
from paddock.jobs.enqueueing import IdempotencyKey
from paddock.jobs.errors import Draining, PermanentRunnerError, Refused, TransientResourceError
from paddock.jobs.kinds import Backoff, Kind
from paddock.jobs.model import Ordered
from paddock.jobs.outcomes import Outcome, done
from paddock.jobs.turn import Turn


class ScheduledSnapshot(SnapshotBody):
    role: str | None = Field(default=None, pattern=ROLE, description="The engine role to run under.")


async def allowed(core: Core, config: Config, caller: Caller, payload: ScheduledSnapshot) -> None:
    check_explicit(config)
    if payload.engine is None and not caller.operator and len(settings_from(config)) > 1:
        # A run has no caller: it would not know which engine is theirs.
        message = "Name the engine."
        fields = [{"field": "payload.engine", "message": message}]
        raise Refused("engine_missing", message, status=422, details={"fields": fields})
    allowed_engine(config, caller, payload.engine, payload.role)
    mapping = await mappings.get(core.db, payload.mapping_id, payload.mapping_version)
    if mapping is None or not caller.sees(mapping.owner):
        message = "There is no such mapping, or no such version of it."
        fields = [{"field": "payload.mapping_id", "message": message}]
        raise Refused("not_found", message, status=404, details={"fields": fields})


async def check(_core: Core, _config: Config, payload: ScheduledSnapshot, _owner: str) -> None:
    """Before a schedule is made: how long its snapshots are kept."""
    ttl_of(payload.ttl)


async def run(turn: Turn[ScheduledSnapshot], core: Core, config: Config) -> Outcome:
    await check_run(core, config, SCHEDULED, turn)
    asked = turn.payload
    known = settings_from(config)
    try:
        engine = one_engine(asked.engine, list(known))
        if engine not in known:
            raise Refused("unknown_engine", f"There is no engine '{engine}'.")
        new = NewSnapshot(
            owner=turn.owner,
            mapping_id=asked.mapping_id,
            mapping_version=asked.mapping_version,
            engine=engine,
            role=asked.role,
            name=(asked.name or "").strip(),
            description=asked.description,
            ttl=ttl_of(asked.ttl),
            request=await request_of(core, config, asked, known[engine]),
            traceparent=turn.traceparent,
        )
        # The job's own id as the key: a second try of it makes no second snapshot.
        key = IdempotencyKey(turn.owner, "scheduled_snapshot", str(turn.id), b"")
        made = await snapshots.create(core, new, actor=f"schedule:{turn.owner}", idempotency=key)
    except Draining as later:
        raise TransientResourceError(later.message, code=later.code, hint=later.hint) from None
    except (ApiError, Refused) as problem:
        raise PermanentRunnerError(problem.message, code=problem.code, hint=problem.hint) from None
    return done({"snapshot": str(made.id)})


async def outcomes(db: Database, ids: Sequence[str]) -> Mapping[str, Ordered]:
    """A snapshot is many jobs: it is as well as it says itself."""
    return {
        str(made.id): Ordered(
            status={"ready": "completed"}.get(made.status, made.status),
            ended_at=None if made.live else made.ended_at,
            error_code=None if made.error is None else made.error.get("code"),
            error_message=None if made.error is None else made.error["message"],
            path=f"/snapshots/{made.id}",
            command=f"paddock snapshots show {made.id}",
        )
        for made in await snapshot_states.some(db, [UUID(id) for id in ids])
        if made.status != "deleting"
    }


SCHEDULED = Kind(
    name="scheduled_snapshot",
    payload=ScheduledSnapshot,
    handler=run,
    submit=frozenset({"ops", "admin"}),
    about=lambda payload: payload.name or str(payload.mapping_id),
    uses=lambda payload: [("engine role", payload.role)] if payload.role is not None else [],
    allowed=allowed,
    check=check,
    orders="snapshot",
    outcomes=outcomes,
    internal=True,
    retry=Backoff(first=timedelta(seconds=10), cap=timedelta(minutes=5), limit=20),
)
