"""Asking an engine something short: a job at interactive priority that the caller waits for."""

import asyncio
import time
from typing import TYPE_CHECKING

from paddock.db.pool import Transaction, statements
from paddock.exports.model import AskPayload
from paddock.jobs import enqueueing
from paddock.jobs.errors import Refused
from paddock.jobs.model import URGENT, Job, JobId, JsonObject, NewJob
from paddock.jobs.waiting import until_ended

if TYPE_CHECKING:
    from paddock.jobs.core import Core

LONGEST_WAIT = 30.0
# A worker that is just being started has this long to come.
WORKER_SECONDS = 10.0
# Of one owner, waiting or running. They go before everybody's exports, so nobody may have many.
MOST_AT_ONCE = 40
SQL = statements("paddock.exports.sql", "exports.sql")


class TooManyQuestions(Refused):
    def __init__(self) -> None:
        super().__init__(
            "too_many_questions",
            f"{MOST_AT_ONCE} of your questions to engines are not answered yet.",
            hint="Wait until some are.",
            status=429,
        )


async def ask(core: "Core", payload: AskPayload, *, owner: str, role: str | None, wait: float = LONGEST_WAIT) -> Job:
    """The job, ended if it ended in time. Where no worker could answer nobody is made to wait."""
    await _check_worker(core)
    new = NewJob(
        "describe", payload.model_dump(mode="json", exclude_none=True), owner=owner, role=role, priority=URGENT
    )

    async def write(tx: Transaction) -> JobId:
        await tx.execute(SQL["lock_questions"], owner)
        if await tx.fetchval(SQL["questions"], owner, MOST_AT_ONCE) >= MOST_AT_ONCE:
            raise TooManyQuestions
        [id] = await enqueueing.enqueue(core, tx, [new], public=True)
        return id

    [job] = await enqueueing.made(core, [await core.db.repeated(write)])
    return await until_ended(core, job, wait)


async def _check_worker(core: "Core") -> None:
    until = time.monotonic() + WORKER_SECONDS
    while not await core.db.fetchval(SQL["is_offered"], "describe"):
        if time.monotonic() >= until:
            raise Refused(
                "no_worker",
                "No live worker could ask the engine.",
                hint="Start one (`paddock worker`), or see why none lives: `paddock workers list`.",
            )
        await asyncio.sleep(min(WORKER_SECONDS, 0.3))


def answer_of(job: Job) -> JsonObject:
    """What the engine said; a refusal, a failure or no answer in time is an error for whoever asked."""
    if not job.ended:
        raise Refused(
            "engine_slow",
            "The engine has not answered yet.",
            hint=f"Look at job {job.id} in a moment; is a worker running that has this engine?",
            details={"job": str(job.id)},
            status=504,
        )
    if job.status != "completed":
        raise Refused(
            job.error_code or "engine_failed",
            job.error_message or "The engine could not be asked.",
            hint=_hint(job),
            details={"job": str(job.id)},
            status=422 if job.error_code in ("missing_use_case_id", "unknown_engine", "column_mismatch") else 502,
        )
    result: JsonObject = job.result
    refused = result.get("refused")
    if refused is not None:
        raise Refused(
            refused["code"],
            refused["message"],
            hint=refused.get("hint"),
            details={"line": refused.get("line"), "column": refused.get("column"), "job": str(job.id)},
            status=422,
        )
    return result


def _hint(job: Job) -> str | None:
    last = job.errors[-1] if job.errors else {}
    hint = last.get("hint")
    return None if hint is None else str(hint)
