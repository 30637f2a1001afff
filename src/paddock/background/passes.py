"""The frame of every pass, written once: budget, cursor, counting, logs, and the row that says how it went.

A background job is an internal, serial, housekeeping kind and a schedule of the same name. The core never retries a pass: the
schedule comes again. Its row is written in the transaction that ends its job, so a pass that timed out or whose replica
died for good is told there too.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import structlog
from pydantic import BaseModel, ConfigDict

from paddock.background import records
from paddock.background.settings import BackgroundSettings
from paddock.background.ticks import Budget, GiveBack, Tick
from paddock.config import Config
from paddock.db.pool import Transaction
from paddock.jobs.core import Core
from paddock.jobs.errors import StaleAttempt
from paddock.jobs.kinds import Backoff, Kind, Trigger
from paddock.jobs.model import Job, JsonObject
from paddock.jobs.outcomes import Outcome, again, done
from paddock.jobs.turn import Turn, TurnLog

LONGEST = timedelta(seconds=240)
# How much longer than its budget a pass may take before it is stopped.
BEYOND_BUDGET = timedelta(seconds=60)
GRACE = timedelta(seconds=20)
# Passes that come more often than this say nothing at info when they found nothing.
OFTEN = timedelta(minutes=1)


class PassPayload(BaseModel):
    """Empty for a scheduled pass; a trigger says who asked for it and why."""

    model_config = ConfigDict(extra="forbid")

    triggered_by: str | None = None
    reason: str | None = None
    request_id: str | None = None
    force: bool = False
    engine: str | None = None


@dataclass(frozen=True)
class BackgroundJob:
    """`run` is the pass itself. `counts` are the counts its last log line always has. `symptom` is the paragraph of
    docs/background-jobs.md for somebody who finds it in trouble."""

    name: str
    run: Callable[[Tick], Awaitable[None]]
    about: str
    counts: tuple[str, ...] = ()
    longest: timedelta = LONGEST
    symptom: str = "Jobs do not run"

    def every(self, config: Config) -> timedelta:
        return config.of(BackgroundSettings).every(self.name)

    def budget(self, config: Config) -> timedelta:
        return min(self.every(config) * 4 / 5, self.longest) if self.longest == LONGEST else self.longest


def kind_of(job: BackgroundJob, config: Config) -> Kind:
    async def handler(turn: Turn[PassPayload], core: Core, config: Config) -> Outcome:
        return await run_pass(job, turn, core, config)

    handler.__doc__ = job.about

    async def ended(tx: Transaction, ended: Job) -> None:
        await records.ended(tx, ended)

    return Kind(
        name=job.name,
        payload=PassPayload,
        handler=handler,
        internal=True,
        housekeeping=True,
        serial=True,
        retry=Backoff(limit=0, cluster_limit=0),
        retry_unclassified=False,
        turn_timeout=job.budget(config) + BEYOND_BUDGET,
        grace=GRACE,
        on_end=ended,
        trigger=Trigger(f"/background/{job.name}", f"paddock ops trigger {job.name} --reason ..."),
    )


class PassLog:
    """What a pass says in the log of this process is said in the log of its job too, where the job's page shows it; but what is
    said at debug, for passes come every few seconds."""

    def __init__(self, log: Any, job_log: TurnLog) -> None:
        self._log, self._job_log = log, job_log

    def debug(self, event: str, **fields: object) -> None:
        self._log.debug(event, **fields)

    def info(self, event: str, **fields: object) -> None:
        self._log.info(event, **fields)
        self._job_log.info(event, **_of_a_line(fields))

    def warning(self, event: str, **fields: object) -> None:
        self._log.warning(event, **fields)
        self._job_log.warning(event, **_of_a_line(fields))

    def error(self, event: str, **fields: object) -> None:
        self._log.error(event, **fields)
        self._job_log.error(event, **_of_a_line(fields))

    def exception(self, event: str, **fields: object) -> None:
        self._log.exception(event, **fields)
        self._job_log.error(event, **_of_a_line(fields))


def _of_a_line(fields: Mapping[str, object]) -> dict[str, object]:
    """The message of a job's line is its event."""
    return {"says" if name == "message" else name: value for name, value in fields.items()}


def logger_of(job: str, **fields: object) -> Any:
    return structlog.get_logger().bind(job=job, logger=f"paddock.background.{job}", **fields)


async def run_pass(job: BackgroundJob, turn: Turn[PassPayload], core: Core, config: Config) -> Outcome:
    """Whatever is logged on the way, by the capabilities too, carries the job, and the request of a manual trigger."""
    asked = turn.payload
    told = {} if asked.request_id is None else {"request_id": asked.request_id}
    with structlog.contextvars.bound_contextvars(job=job.name, **told):
        return await _run(job, turn, core, config, PassLog(logger_of(job.name, **told), turn.log))


async def _run(job: BackgroundJob, turn: Turn[PassPayload], core: Core, config: Config, log: PassLog) -> Outcome:
    asked = turn.payload
    often = job.every(config) < OFTEN and asked.triggered_by is None
    begin = log.debug if often else log.info
    begin("job_started", job_id=str(turn.id))
    begin(f"{job.name}_job_started")
    place = await records.place(core.db, job.name)

    async def still_ours(tx: Transaction) -> None:
        if await tx.fetchval(records.SQL["still_ours"], turn.id, turn.attempt_id) is None:
            raise StaleAttempt

    tick = Tick(
        core=core,
        config=config,
        now=place.now,
        budget=Budget(job.budget(config)),
        cursor=place.cursor,
        notes=place.notes,
        force=asked.force,
        engine=asked.engine,
        by_hand=asked.triggered_by is not None,
        saved=turn.saved,
        save=turn.save,
        still_ours=still_ours,
        log=log,
    )
    try:
        await job.run(tick)
    except GiveBack:
        return again(saved=turn.saved)
    except StaleAttempt:
        raise
    except Exception as problem:
        # The job fails with it and is not tried again: the schedule comes soon.
        log.exception("job_failed", error=f"{type(problem).__name__}: {problem}")
        raise
    seconds = round((await records.now(core.db) - place.now).total_seconds(), 3)
    found = {name: tick.found[name] for name in job.counts} | dict(tick.found)
    end = log.debug if often and not any(tick.found.values()) else log.info
    end(f"{job.name}_job_completed", **found, duration_seconds=seconds)
    end("job_completed", duration_seconds=seconds)
    result: JsonObject = {"found": _without_zeros(found), "cursor": tick.left_at, "notes": tick.notes or None}
    if tick.again_in is not None and not tick.by_hand:  # a pass by hand shifts no schedule
        result["again_in_seconds"] = tick.again_in.total_seconds()
    return done(result)


def _without_zeros(found: Mapping[str, int]) -> dict[str, int]:
    return {name: n for name, n in found.items() if n}
