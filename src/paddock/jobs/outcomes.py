"""The four ways a turn ends."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from paddock.jobs.model import Budget, JobError, JsonObject, NewEvent, NewJob


@dataclass(frozen=True, slots=True)
class Done:
    result: Any = None
    events: Sequence[NewEvent] = ()
    follow_ups: Sequence[NewJob] = ()


@dataclass(frozen=True, slots=True)
class Again:
    """Pick it up again after `delay`. With `waiting_on` the job reads `submitted`: something else does the work."""

    delay: timedelta = timedelta(0)
    waiting_on: str | None = None
    saved: JsonObject | None = None
    # Whether what is saved forgives earlier failures and losses, as `Turn.save` has it.
    progress: bool = True


@dataclass(frozen=True, slots=True)
class TransientFailure:
    error: JobError
    budget: Budget = "work"
    delay: timedelta | None = None
    # An exception nobody classified: transient, but at most three times whatever the kind's limit is.
    unclassified: bool = False


@dataclass(frozen=True, slots=True)
class PermanentFailure:
    error: JobError


Outcome = Done | Again | TransientFailure | PermanentFailure


def done(result: Any = None, *, events: Sequence[NewEvent] = (), follow_ups: Sequence[NewJob] = ()) -> Done:
    return Done(result, events, follow_ups)


def again(
    delay: timedelta = timedelta(0),
    *,
    waiting_on: str | None = None,
    saved: JsonObject | None = None,
    progress: bool = True,
) -> Again:
    return Again(delay, waiting_on, saved, progress)


def transient(
    code: str, message: str, *, hint: str | None = None, budget: Budget = "work", delay: timedelta | None = None
) -> TransientFailure:
    return TransientFailure(JobError(code, message, hint), budget, delay)


def permanent(code: str, message: str, *, hint: str | None = None) -> PermanentFailure:
    return PermanentFailure(JobError(code, message, hint))
