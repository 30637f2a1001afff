"""Asking a worker something short: a job at interactive priority that the caller waits for.

A kind whose jobs are such questions has a `Question`, which says whom they go to. Where no worker could answer nobody
is made to wait, and nobody may have many at once: questions go before everybody's other work.
"""

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from paddock.db.pool import Transaction, statements
from paddock.jobs import enqueueing
from paddock.jobs.errors import Refused
from paddock.jobs.model import URGENT, Job, JobId, JsonObject, NewJob
from paddock.jobs.waiting import until_ended

if TYPE_CHECKING:
    from paddock.jobs.core import Core

LONGEST_WAIT = 30.0
# A worker that is just being started has this long to come.
WORKER_SECONDS = 10.0
# Of one owner and one kind, waiting or running.
MOST_AT_ONCE = 40
# Most are answered within a second or two.
RETRY_AFTER = 2
SQL = statements("paddock.jobs.sql", "asking.sql")


class TooManyQuestions(Refused):
    retry_after: int | None = RETRY_AFTER

    def __init__(self, whom: str) -> None:
        super().__init__(
            "too_many_questions",
            f"{MOST_AT_ONCE} of your questions to {whom}s are not answered yet.",
            hint="Wait until some are.",
            status=429,
        )


@dataclass(frozen=True, kw_only=True)
class Question:
    """The questions of one kind. `whom` is what they go to, like "engine"; errors and their codes name it."""

    kind: str
    whom: str
    # Codes of failed jobs that are the asker's own mistake, though no `UserMistake` says so.
    mistakes: frozenset[str] = frozenset()

    async def ask(
        self, core: "Core", payload: JsonObject, *, owner: str, role: str | None = None, wait: float = LONGEST_WAIT
    ) -> Job:
        """The job, ended if it ended in time."""
        await self._check_worker(core)
        new = NewJob(self.kind, payload, owner=owner, role=role, priority=URGENT)

        async def write(tx: Transaction) -> JobId:
            await tx.execute(SQL["lock_questions"], owner)
            if await tx.fetchval(SQL["questions"], owner, MOST_AT_ONCE, self.kind) >= MOST_AT_ONCE:
                raise TooManyQuestions(self.whom)
            [id] = await enqueueing.enqueue(core, tx, [new], public=True)
            return id

        [job] = await enqueueing.made(core, [await core.db.repeated(write)])
        return await until_ended(core, job, wait)

    def answer(self, job: Job) -> JsonObject:
        """The result. A failure, or no answer in time, is an error for whoever asked."""
        details: dict[str, object] = {"job": str(job.id)}
        if not job.ended:
            raise Refused(
                f"{self.whom}_slow",
                f"The {self.whom} has not answered yet.",
                hint=f"Look at job {job.id} in a moment; is a worker running that has this {self.whom}?",
                details=details,
                status=504,
            )
        if job.status != "completed":
            last: Mapping[str, Any] = job.errors[-1] if job.errors else {}
            hint = last.get("hint")
            raise Refused(
                job.error_code or f"{self.whom}_failed",
                job.error_message or f"The {self.whom} could not be asked.",
                hint=None if hint is None else str(hint),
                details=details,
                status=422 if last.get("mistake") or job.error_code in self.mistakes else 502,
            )
        result: JsonObject = job.result
        return result

    async def _check_worker(self, core: "Core") -> None:
        until = time.monotonic() + WORKER_SECONDS
        while not await core.db.fetchval(SQL["is_offered"], self.kind):
            if time.monotonic() >= until:
                raise Refused(
                    "no_worker",
                    f"No live worker could ask the {self.whom}.",
                    hint="Start one (`paddock worker`), or see why none lives: `paddock workers list`.",
                )
            await asyncio.sleep(min(WORKER_SECONDS, 0.3))
