"""Exports by schedule: a small job of the control plane that makes a new export each time, with `{date}` filled in.

    paddock schedules create nightly scheduled_export --cron "30 2 * * *" \\
        '{"engine": "warehouse", "role": "sales", "table": "orders", "destination": "lake:orders/{date}"}'
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta

from pydantic import Field

from paddock.api.services.rights import check_run
from paddock.api.tokens import Caller
from paddock.config import Config
from paddock.db.pool import statements
from paddock.engines.registry import settings_from
from paddock.engines.settings import EngineSettings
from paddock.exports import asking, plain
from paddock.exports.model import AskPayload, Target
from paddock.exports.request import ExportRequest, limits, new_export, one_engine, target_of
from paddock.exports.settings import ExportSettings
from paddock.jobs import schedules
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


async def allowed(_core: Core, _config: Config, _caller: Caller, _payload: ScheduledExport) -> None:
    """An analyst's too: all that an export needs to be allowed is in `uses`."""


async def check(core: Core, config: Config, payload: ScheduledExport, owner: str) -> None:
    """Before a schedule is made: what it names is there, and its engine takes the query. A worker asks the engine."""
    known = settings_from(config)
    target = target_of(payload, await core.db.fetchval(SQL["now"]))
    schedules.refuse(list(_problems(payload, known, target, config)))
    engine = _known_engine(payload, known)
    question = AskPayload(
        engine=engine,
        sql=payload.sql,
        table=payload.table,
        catalog=payload.catalog,
        schema_name=payload.schema_name,
        parameters=payload.parameters,
    )
    try:
        asking.answer_of(await asking.ask(core, question, owner=owner, role=payload.role))
    except Refused as refused:
        message = f"Engine '{engine}' could not check the query: {refused.message}"
        field = "table" if payload.sql is None else "sql"
        raise _invalid(refused.code, field, message, refused.hint, refused.status, refused.details) from None


def _problems(
    payload: ScheduledExport, known: Mapping[str, EngineSettings], target: Target | None, config: Config
) -> Iterator[Refused]:
    """Of what it names, all that is not there."""
    try:
        engine = _known_engine(payload, known)
        if payload.role is None and known[engine].requires_role:
            message = f"Engine '{engine}' runs every query under a role: name it as `role` in the payload."
            yield _invalid("missing_use_case_id", "role", message)
    except Refused as refused:
        yield refused
    if target is not None and target.name not in config.of(ExportSettings).destinations:
        yield _invalid("unknown_destination", "destination", f"There is no destination '{target.name}'.")


def _known_engine(payload: ScheduledExport, known: Mapping[str, EngineSettings]) -> str:
    engine = one_engine(payload.engine, list(known))
    if engine not in known:
        raise _invalid("unknown_engine", "engine", f"There is no engine '{engine}'.")
    return engine


def _invalid(
    code: str,
    field: str,
    message: str,
    hint: str | None = None,
    status: int = 422,
    details: Mapping[str, object] | None = None,
) -> Refused:
    fields = [{"field": f"payload.{field}", "message": message}]
    return Refused(code, message, hint=hint, status=status, details={**(details or {}), "fields": fields})


async def run(turn: Turn[ScheduledExport], core: Core, config: Config) -> Outcome:
    await check_run(core, config, SCHEDULED, turn)
    request = turn.payload
    known = settings_from(config)
    try:
        engine = _known_engine(request, known)
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
    about=lambda payload: payload.table or payload.sql or payload.name,
    allowed=allowed,
    check=check,
    orders="export",
    internal=True,
    retry=Backoff(first=timedelta(seconds=10), cap=timedelta(minutes=5), limit=20),
)
