"""Cancelling a job, and cancelling and retrying all jobs that match a filter, whoever asks: a route, a page or a command only translates."""

from dataclasses import replace
from datetime import timedelta

from paddock.api.errors import ApiError, not_found
from paddock.api.parts import check_part
from paddock.api.plane import ControlPlane
from paddock.api.services.submitting import rights_of
from paddock.api.tokens import Caller
from paddock.jobs import bulk, reading
from paddock.jobs.enqueueing import IdempotencyKey
from paddock.jobs.figures.overviews import SQL as OVERVIEWS
from paddock.jobs.filtering import Filter
from paddock.jobs.model import Job, NewJob

COUNTED_EXACTLY = 10_000


# A person waits for it before they confirm.
COUNTED_WITHIN = timedelta(milliseconds=400)


async def cancel_one(plane: ControlPlane, caller: Caller, job: Job, reason: str | None) -> None:
    """Returns when it is cancelled, and says otherwise why it is not."""
    check_part(plane, caller, job)
    verdict = (await plane.core.cancel([job.id], actor=caller.actor, reason=reason))[job.id]
    if verdict == "finished":
        raise ApiError(409, "already_finished", "The job has ended already; nothing was cancelled.")
    if verdict == "cleanup":
        raise ApiError(
            409,
            "cleanup_not_cancellable",
            "A cleanup is not cancelled: it frees what an ended job left behind, its lock among it.",
            hint="It ends by itself; `paddock why` says what it waits for.",
        )
    if verdict == "unknown":
        raise not_found("job")


async def count_matching(plane: ControlPlane, caller: Caller, action: bulk.Action, asked: Filter) -> reading.Count:
    """How many the action could do something to."""
    narrowed = bulk.narrow(action, _scoped(caller, asked))
    return await reading.count(plane.core.db, narrowed, at_most=COUNTED_EXACTLY, budget=COUNTED_WITHIN)


async def act_on_matching(
    plane: ControlPlane,
    caller: Caller,
    action: bulk.Action,
    asked: Filter,
    *,
    all_jobs: bool,
    reason: str | None,
    idempotency: IdempotencyKey | None,
) -> Job:
    """The job that goes through all that match now."""
    _check_meant(action, asked, all_jobs)
    now = await plane.core.db.fetchval(OVERVIEWS["clock"])
    payload = bulk.payload(
        action,
        _scoped(caller, asked),
        until=now if asked.until is None else min(asked.until, now),
        actor=caller.actor,
        reason=reason,
        all_jobs=all_jobs,
        rights=rights_of(plane, caller),
    )
    # Drain mode refuses retries, which are new work; ending work is always possible.
    submitted = await plane.core.submit(
        [NewJob(bulk.BULK.name, payload, owner=caller.owner)], public=action == "retry", idempotency=idempotency
    )
    [job] = submitted.jobs
    return job


def _check_meant(action: bulk.Action, asked: Filter, all_jobs: bool) -> None:
    if asked.empty and not all_jobs:
        raise ApiError(
            422,
            "empty_filter",
            f"The filter is empty: this would {action} every job.",
            hint="Send a filter, or `all: true` if you mean it.",
        )


def _scoped(caller: Caller, asked: Filter) -> Filter:
    return asked if caller.scope is None else replace(asked, owner=caller.scope)
