"""Exports by schedule: a small job of the control plane that makes a new export each time, `{date}` filled in anew.

    paddock schedules create nightly scheduled_export --cron "30 2 * * *" \\
        '{"engine": "warehouse", "role": "sales", "table": "orders", "destination": "lake:orders/{date}"}'
"""

from collections.abc import Sequence
from datetime import timedelta

from pydantic import Field

from paddock.config import Config
from paddock.db.pool import statements
from paddock.engines.registry import settings_from
from paddock.exports import plain
from paddock.exports.request import ExportRequest, limits, new_export, one_engine
from paddock.jobs.core import Core
from paddock.jobs.enqueueing import IdempotencyKey
from paddock.jobs.errors import Draining, LockHeld, PermanentRunnerError, Refused, TransientResourceError
from paddock.jobs.kinds import Backoff, Kind
from paddock.jobs.outcomes import Outcome, done
from paddock.jobs.turn import Turn

SQL = statements("paddock.exports.sql", "exports.sql")


class ScheduledExport(ExportRequest):
    role: str | None = Field(
        default=None, pattern=r"^[A-Za-z0-9_.-]{1,128}$", description="The engine role to run under."
    )


def uses(payload: ScheduledExport) -> Sequence[tuple[str, str]]:
    """What a token must be allowed to use before it may schedule this."""
    found = [("engine", payload.engine or "")]
    if payload.destination is not None:
        found.append(("destination", payload.destination.partition(":")[0]))
    if payload.role is not None:
        found.append(("engine role", payload.role))
    return found


async def run(turn: Turn[ScheduledExport], core: Core, config: Config) -> Outcome:
    request = turn.payload
    known = settings_from(config)
    try:
        engine = one_engine(request.engine, list(known))
        if engine not in known:
            raise Refused("unknown_engine", f"There is no engine '{engine}'.")
        new = new_export(
            config,
            request,
            engine=engine,
            owner=turn.owner,
            role=request.role,
            limits=await limits(core.db),
            at=await core.db.fetchval(SQL["now"]),
            traceparent=turn.traceparent,
        )
        # The job's own id as the key: a second try of it makes no second export.
        made = await plain.create(
            core, new, idempotency=IdempotencyKey(turn.owner, "scheduled_export", str(turn.id), b"")
        )
    except (LockHeld, Draining) as later:
        raise TransientResourceError(later.message, code=later.code, hint=later.hint) from None
    except Refused as refused:
        raise PermanentRunnerError(refused.message, code=refused.code, hint=refused.hint) from None
    return done({"export": str(made.id), "job": str(made.job_id)})


SCHEDULED = Kind(
    name="scheduled_export",
    payload=ScheduledExport,
    handler=run,
    submit=frozenset({"ops", "admin"}),
    uses=uses,
    internal=True,
    retry=Backoff(first=timedelta(seconds=10), cap=timedelta(minutes=5), limit=20),
)
