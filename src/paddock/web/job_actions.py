"""What can be done with one job, each with what it will do; and a word for what one might look for in vain."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from paddock.api.errors import ApiError
from paddock.api.parts import no_parts_of
from paddock.api.plane import ControlPlane
from paddock.api.services.submitting import check_kind, check_retry
from paddock.api.tokens import Caller
from paddock.jobs.kinds import Kind, Trigger
from paddock.jobs.model import Job
from paddock.web import commands
from paddock.web.words import plural
from paddock.why import span

PART = "It is part of a snapshot. Here these are retried and cancelled only with the instances that need them."


@dataclass(frozen=True, slots=True)
class Possible:
    """An action with what it will do, or None; `why_not` has a word for what one might look for in vain."""

    cancel: str | None
    retry: str | None
    run_now: str | None
    why_not: Sequence[str]


def possible(plane: ControlPlane, caller: Caller, job: Job, *, drained: bool, now: datetime) -> Possible:
    if job.cleanup_of is not None:
        return Possible(None, None, None, ["A cleanup is neither cancelled nor retried by hand: it ends by itself."])
    if not job.ended:
        waits = job.attempt_id is None and job.due_at is not None and job.due_at > now
        part = plane.core.kinds.part_of(job) in no_parts_of(plane.config, caller)
        cancel = None if part else _cancelling(plane, job)
        return Possible(cancel, None, _hurrying(job, now) if waits else None, [PART] if part else [])
    no = _why_no_retry(plane, caller, job, drained)
    return Possible(None, None if no else _retrying(job), None, [no] if no else [])


def _cancelling(plane: ControlPlane, job: Job) -> str:
    kind = plane.core.kinds.get(job.kind)
    if job.attempt_id is not None:
        told = f"It runs on {job.claimed_by}, is stopped there at once and does not run again."
    elif job.status == "submitted":
        told = f"It waits for {job.waiting_on}. It ends at once and does not run again."
    else:
        told = "It waits, ends at once and does not run."
    if kind is not None and kind.cleanup is not None and job.turn_count:
        told += " A cleanup removes what it has begun" + (", then frees its lock." if job.lock_key else ".")
    elif job.turn_count:
        told += " What it has done so far stays done."
    return told + (" Its group counts it as cancelled." if job.group_id is not None else "")


def _retrying(job: Job) -> str:
    told = "One new job of the same kind with the same payload is created, due at once. This one stays as it is."
    if job.lock_key:
        told += f" It takes the lock '{job.lock_key}' again."
    return told + (" Its group is open again until the new job ends." if job.group_id is not None else "")


def _hurrying(job: Job, now: datetime) -> str:
    assert job.due_at is not None
    before = f" Its {plural(job.failure_count, 'failure')} so far still count." if job.failure_count else ""
    return f"It would be due in {span(job.due_at - now)}; it becomes due now, and a free worker takes it.{before}"


def _why_no_retry(plane: ControlPlane, caller: Caller, job: Job, drained: bool) -> str | None:
    if job.retried_by is not None:
        return "It was retried already: see its related jobs."
    if job.status == "completed":
        return "It completed, so there is nothing to retry. To run the same work, submit a new job."
    if (trigger := _trigger(plane, job)) is not None:
        return f"It comes again by its schedule; by hand it is run on {trigger.page}, where it is asked why."
    if drained:
        return "Drain mode is on: it can be retried once new work is accepted again."
    if plane.core.kinds.part_of(job) in no_parts_of(plane.config, caller):
        return PART
    return (
        None
        if _may_retry(plane, caller, job)
        else "Your token may no longer use what it ran with: its engine, role or destination."
    )


def _trigger(plane: ControlPlane, job: Job) -> Trigger | None:
    kind = plane.core.kinds.get(job.kind)
    return None if kind is None else kind.trigger


def _may_retry(plane: ControlPlane, caller: Caller, job: Job) -> bool:
    try:
        check_retry(plane, caller, job)
    except ApiError:
        return False
    return True


def as_commands(plane: ControlPlane, caller: Caller, job: Job, payload: Any, server: str) -> list[commands.Command]:
    """`payload` as it may be shown: with secrets masked."""
    retriable = job.ended and job.status != "completed" and job.retried_by is None and job.cleanup_of is None
    return commands.commands(
        server,
        job,
        payload,
        retriable=retriable and _trigger(plane, job) is None and _may_retry(plane, caller, job),
        submittable=job.cleanup_of is None and _may_submit(plane, caller, job.kind),
    )


def _may_submit(plane: ControlPlane, caller: Caller, kind: str) -> bool:
    try:
        check_kind(plane, caller, kind, {})
    except ApiError:
        return False
    return plane.core.kinds.get(kind) is not None


def may_submit(kind: Kind | None, caller: Caller) -> bool:
    return kind is not None and kind.submit is not None and (caller.role in kind.submit or caller.role == "admin")
