"""What became of what schedules made.

A job that only orders work (`Kind.orders`) has completed as soon as the work is ordered, so its status says nothing about
the work. Its outcome is that of the job it ordered, or of what `Kind.outcomes` says; and the outcome of a job that was retried
is that of the retry.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

import asyncpg

from paddock.db.pool import Database, statements
from paddock.jobs import reading
from paddock.jobs.kinds import Kinds
from paddock.jobs.model import Job, JobId, Ordered

SQL = statements("paddock.jobs.sql", "schedules.sql")
# Of each schedule; one of them has usually ended, though the newest may still run.
RUNS_READ = 3
MOST_STEPS = 10
SCHEDULES_AT_ONCE = 500


@dataclass(frozen=True, slots=True)
class Run:
    """`first` is the job that the schedule made. What counts is the status of `last`, or of `ordered` where no single job does
    the work; both None: it is no longer kept. `made` is the kind of thing that was ordered and its id, like ("export",
    "019a…")."""

    first: JobId
    last: Job | None
    made: tuple[str, str] | None = None
    ordered: Ordered | None = None

    @property
    def outcome(self) -> Job | Ordered | None:
        return self.last or self.ordered

    @property
    def ended_at(self) -> datetime | None:
        return self.last.completed_at if self.last is not None else self.ordered.ended_at if self.ordered else None

    @property
    def ended(self) -> bool:
        return self.outcome is None or self.ended_at is not None

    @property
    def failed(self) -> bool:
        return self.outcome is not None and self.outcome.status == "failed"


@dataclass(frozen=True, slots=True)
class FailedSchedule:
    """`run` is None where the schedule made no job when it was last due; `problem` is why, or the error of the run."""

    name: str
    problem: str
    at: datetime
    run: Run | None = None


def ordered_job(kinds: Kinds, job: Job) -> JobId | None:
    """The job that does what this one ordered, once it has ordered it."""
    made = _result_of(kinds, job)
    try:
        return None if made is None else JobId(UUID(job.result["job"]))
    except (KeyError, TypeError, ValueError):
        return None


def _result_of(kinds: Kinds, job: Job) -> tuple[str, str] | None:
    kind = kinds.get(job.kind)
    if kind is None or kind.orders is None or job.status != "completed" or not isinstance(job.result, Mapping):
        return None
    id = job.result.get(kind.orders)
    return None if id is None else (kind.orders, str(id))


async def runs_of(db: Database, kinds: Kinds, ids: Collection[JobId]) -> dict[JobId, Run]:
    """By the job that a schedule made; those that are no longer kept are left out."""
    jobs: dict[JobId, Job] = {}
    at = {id: id for id in ids}
    made: dict[JobId, tuple[str, str]] = {}
    for _ in range(MOST_STEPS):
        unread = list({id for id in at.values() if id not in jobs})
        jobs |= await _read(db, kinds, unread)
        following = {first: job for first, id in at.items() if (job := _following(kinds, jobs.get(id))) is not None}
        made |= {first: thing for first in following if (thing := _result_of(kinds, jobs[at[first]])) is not None}
        if not following:
            break
        at |= following
    runs = {first: Run(first, jobs.get(last), made.get(first)) for first, last in at.items() if first in jobs}
    return runs | await _without_a_job(db, kinds, [run for run in runs.values() if run.last is not None])


async def _without_a_job(db: Database, kinds: Kinds, runs: Sequence[Run]) -> dict[JobId, Run]:
    """Of these, the runs whose work no single job does, with what their kinds say of it."""
    things: dict[str, dict[JobId, tuple[str, str]]] = {}
    for run in runs:
        assert run.last is not None
        kind, thing = kinds.get(run.last.kind), _result_of(kinds, run.last)
        if kind is not None and kind.outcomes is not None and thing is not None:
            things.setdefault(kind.name, {})[run.first] = thing
    found: dict[JobId, Run] = {}
    for name, made in things.items():
        outcomes = kinds[name].outcomes
        assert outcomes is not None
        ordered = await outcomes(db, list({id for _, id in made.values()}))
        found |= {first: Run(first, None, thing, ordered.get(thing[1])) for first, thing in made.items()}
    return found


def _following(kinds: Kinds, job: Job | None) -> JobId | None:
    return None if job is None else ordered_job(kinds, job) or job.retried_by


async def _read(db: Database, kinds: Kinds, ids: Sequence[JobId]) -> dict[JobId, Job]:
    """Without payloads and results, which may be large, but for the small results of those that order."""
    jobs = {job.id: job for job in await reading.briefs(db, ids)} if ids else {}
    ordering = [id for id, job in jobs.items() if (kind := kinds.get(job.kind)) is not None and kind.orders]
    return jobs | ({job.id: job for job in await reading.jobs(db, ordering)} if ordering else {})


async def last_runs(db: Database, kinds: Kinds, names: Collection[str]) -> dict[str, list[Run]]:
    """The newest runs of these schedules, newest first."""
    rows = await db.fetch(SQL["last_runs"], list(names), RUNS_READ)
    runs = await runs_of(db, kinds, [JobId(row["id"]) for row in rows])
    found: dict[str, list[Run]] = {name: [] for name in names}
    for row in rows:
        if row["id"] in runs:
            found[row["name"]].append(runs[row["id"]])
    return found


async def failed_schedules(db: Database, kinds: Kinds) -> list[FailedSchedule]:
    """Those switched on that made no job when last due, or whose newest run that has ended failed."""
    found: list[FailedSchedule] = []
    after = ""
    while enabled := await db.fetch(SQL["enabled_schedules"], after, SCHEDULES_AT_ONCE):
        found += _failed(enabled, await last_runs(db, kinds, [row["name"] for row in enabled]))
        after = enabled[-1]["name"]
    return found


def _failed(enabled: Sequence[asyncpg.Record], runs: Mapping[str, Sequence[Run]]) -> list[FailedSchedule]:
    found: list[FailedSchedule] = []
    for row in enabled:
        name = row["name"]
        ended = next((run for run in runs[name] if run.ended), None)
        if row["last_problem"] is not None:
            found.append(FailedSchedule(name, row["last_problem"], row["last_at"]))
        elif ended is not None and ended.failed:
            last = ended.outcome
            assert last is not None
            assert ended.ended_at is not None
            found.append(FailedSchedule(name, f"{last.error_message} [{last.error_code}]", ended.ended_at, ended))
    return found
