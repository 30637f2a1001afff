"""Claimed rows on their way to a worker: with what their kinds allow them, and with their secrets."""

from collections.abc import Sequence
from typing import TYPE_CHECKING
from uuid import UUID

import asyncpg
import msgspec
import structlog

from paddock.db.pool import UNAVAILABLE
from paddock.jobs import finishing, wire
from paddock.jobs.errors import InfrastructureError, PermanentRunnerError
from paddock.jobs.kinds import Kind

if TYPE_CHECKING:
    from paddock.jobs.core import Core

# What a statement of a resolver may get wrong, at every try: the database is not away.
ITS_OWN_FAULT = (
    asyncpg.DataError,
    asyncpg.IntegrityConstraintViolationError,
    asyncpg.SyntaxOrAccessError,
    asyncpg.RaiseError,
)
log = structlog.get_logger()


async def handed_out(core: "Core", rows: Sequence[asyncpg.Record]) -> list[wire.ClaimedJob]:
    """The rows of a claim, each as its worker gets it; without those whose secrets could not be resolved."""
    core.job_kinds.remember(rows)
    kinds = {name: core.kinds.get(name) for name in {row["kind"] for row in rows}}
    jobs = [_job(row, kinds[row["kind"]]) for row in rows]
    if all(kind is None or kind.secrets is None for kind in kinds.values()):
        return jobs
    return [job for job in jobs if await _got_secrets(core, job, kinds[job.kind])]


def _job(row: asyncpg.Record, kind: Kind | None) -> wire.ClaimedJob:
    # By place and not by name, and what is seldom there is looked at together: this is done for every job.
    id, attempt_id, name, lane, _, _, payload, owner, turn_count, age_seconds, unsaved_seconds, *seldom = row
    job = wire.ClaimedJob(
        id=id,
        attempt_id=attempt_id,
        kind=name,
        payload=msgspec.Raw(payload.encode()),
        owner=owner,
        turn_count=turn_count,
        submitted=lane == 0,
        age_seconds=age_seconds,
    )
    if any(seldom):
        _add(job, *seldom)
    if kind is not None:
        _limit(job, kind, unsaved_seconds)
    return job


def _add(
    job: wire.ClaimedJob,
    failure_count: int,
    lost_count: int,
    tags: list[str],
    saved: str | None,
    role: str | None,
    waiting_on: str | None,
    cleanup_of: UUID | None,
    parent_id: UUID | None,
    traceparent: str | None,
) -> None:
    job.failure_count, job.lost_count, job.tags = failure_count, lost_count, tags
    job.role, job.waiting_on, job.cleanup_of = role, waiting_on, cleanup_of
    job.parent_id, job.traceparent = parent_id, traceparent
    if saved is not None:
        job.saved = msgspec.Raw(saved.encode())


def _limit(job: wire.ClaimedJob, kind: Kind, unsaved_seconds: float) -> None:
    if kind.turn_timeout is not None:
        job.turn_timeout = kind.turn_timeout.total_seconds()
    if kind.total_timeout is not None:
        job.total_left = kind.total_timeout.total_seconds() - job.age_seconds
    if kind.stall_timeout is not None:
        job.stall_timeout = kind.stall_timeout.total_seconds()
        job.stall_left = job.stall_timeout - unsaved_seconds


async def _got_secrets(core: "Core", job: wire.ClaimedJob, kind: Kind | None) -> bool:
    if kind is None or kind.secrets is None:
        return True
    try:
        payload = kind.payload.model_validate_json(bytes(job.payload))
        async with core.db.transaction() as tx:
            job.secrets = dict(await kind.secrets(tx, payload))
        return True
    except Exception as problem:
        if isinstance(problem, UNAVAILABLE) and not isinstance(problem, ITS_OWN_FAULT):
            raise
        # This attempt fails here and now. Raising would lose the answer for the other jobs too, and the repeated
        # claim would raise again: nobody would get anything until the claim is given back, and then the same.
        log.exception("secrets_not_resolved", job=str(job.id), kind=job.kind)
        await finishing.finish(core, [_without_secrets(job, problem)])
        return False


def _without_secrets(job: wire.ClaimedJob, problem: Exception) -> wire.FinishItem:
    shown = problem.message if isinstance(problem, InfrastructureError) else f"{type(problem).__name__} (see the logs)."
    return wire.FinishItem(
        id=job.id,
        attempt_id=job.attempt_id,
        outcome="permanent" if isinstance(problem, PermanentRunnerError) else "transient",
        error=wire.Error(code="secrets_not_resolved", message=f"Its secrets could not be resolved: {shown}"),
        unclassified=not isinstance(problem, InfrastructureError),
    )
