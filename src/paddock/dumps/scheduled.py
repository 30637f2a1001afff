"""Dumps by schedule: a small job of the control plane that makes a new dump each time.

    paddock schedules create nightly scheduled_dump --cron "30 2 * * *" '{"database": "shop", "keepLast": 7}'

With `keepLast` the schedule's newest completed dumps stay, so many of them and however old; else each goes when its time
is over.
"""

from datetime import timedelta

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from paddock.api.services.rights import check_owner_named, check_run
from paddock.api.tokens import Caller
from paddock.config import Config
from paddock.dumps import dumps
from paddock.dumps.database_settings import databases_from
from paddock.dumps.databases import databases_of
from paddock.dumps.looking import refuse_unknown_tables
from paddock.dumps.model import DumpOptions
from paddock.dumps.request import NO_STORE, new_dump, problems, refused, which
from paddock.jobs.core import Core
from paddock.jobs.enqueueing import IdempotencyKey
from paddock.jobs.errors import Draining, PermanentRunnerError, Refused, TransientResourceError
from paddock.jobs.kinds import Backoff, Kind
from paddock.jobs.model import JobId
from paddock.jobs.outcomes import Outcome, done
from paddock.jobs.turn import Turn


class ScheduledDump(BaseModel):
    model_config = ConfigDict(
        extra="forbid",
        populate_by_name=True,
        json_schema_extra={"examples": [{"database": "shop", "format": "sql", "keepLast": 7}]},
    )

    database: str | None = Field(default=None, max_length=100, description="Needed where several are configured.")
    format: str = Field(default="sql", max_length=50)
    options: DumpOptions = Field(default_factory=DumpOptions)
    keep_last: int | None = Field(
        default=None,
        ge=1,
        le=10_000,
        alias="keepLast",
        description="How many completed dumps of its schedule are kept.",
    )
    owner: str | None = Field(default=None, min_length=1, max_length=200, description="Whose dump it is.")


async def allowed(_core: Core, config: Config, caller: Caller, payload: ScheduledDump) -> None:
    check_owner_named(caller, payload.owner)
    if payload.database is None and not caller.operator and len(databases_from(config)) > 1:
        # A run has no caller: it would take the one that is usual here, which may be none of theirs.
        raise refused("Name the database.", code="database_missing")
    which(config, payload.database, databases_of(config, caller))


async def check(core: Core, config: Config, payload: ScheduledDump, owner: str) -> None:
    """Before a schedule is made: the database, its tables and a format that it has."""
    if not config.has_store:
        raise refused(NO_STORE, code="no_object_store")
    database = which(config, payload.database, databases_from(config))
    wrong = problems(databases_from(config)[database].type, payload.format, payload.options)
    if wrong:
        raise refused(" ".join(wrong))
    await refuse_unknown_tables(config, database, payload.options)


async def run(turn: Turn[ScheduledDump], core: Core, config: Config) -> Outcome:
    await check_run(core, config, SCHEDULED, turn)
    asked = turn.payload
    known = databases_from(config)
    schedule = await _schedule(core, turn.id)
    try:
        if not config.has_store:
            raise refused(NO_STORE, code="no_object_store")
        database = which(config, asked.database, known)
        shown = asked.model_dump(mode="json", exclude_defaults=True, exclude={"keep_last", "owner", "options"})
        new = new_dump(
            config,
            known[database],
            database=database,
            format=asked.format,
            options=asked.options,
            owner=asked.owner or turn.owner,
            request={**shown, **_camel(asked.options), "database": database},
            schedule=schedule,
            keep_last=None if schedule is None else asked.keep_last,
            traceparent=turn.traceparent,
        )
        # The job's own id as the key: a second try of it makes no second dump.
        made = await dumps.create(
            core, new, idempotency=IdempotencyKey(turn.owner, "scheduled_dump", str(turn.id), b"")
        )
    except Draining as later:
        raise TransientResourceError(later.message, code=later.code, hint=later.hint) from None
    except Refused as problem:
        raise PermanentRunnerError(problem.message, code=problem.code, hint=problem.hint) from None
    return done({"dump": made.id, "job": str(made.job_id)})


def _camel(options: DumpOptions) -> dict[str, object]:
    return {to_camel(name): value for name, value in options.model_dump(mode="json", exclude_defaults=True).items()}


async def _schedule(core: Core, id: JobId) -> str | None:
    """The one that had this job made, or the job that this one repeats."""
    job = await core.job(id)
    while job is not None and job.schedule is None and job.retry_of is not None:
        job = await core.job(job.retry_of)
    return None if job is None else job.schedule


SCHEDULED = Kind(
    name="scheduled_dump",
    payload=ScheduledDump,
    handler=run,
    submit=frozenset({"ops", "admin"}),
    about="database",
    allowed=allowed,
    check=check,
    orders="dump",
    internal=True,
    retry=Backoff(first=timedelta(seconds=10), cap=timedelta(minutes=5), limit=20),
)
