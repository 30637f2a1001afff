"""How a turn's end becomes a message: outcomes as they are, exceptions by one rule, texts scrubbed and bounded."""

import re
import traceback
from dataclasses import replace
from typing import Any

import msgspec
from pydantic import ValidationError

from paddock.field_errors import field_errors
from paddock.jobs import wire
from paddock.jobs.errors import PermanentRunnerError, TransientResourceError, UserMistake
from paddock.jobs.kinds import Kind
from paddock.jobs.model import (
    MAX_ERROR_MESSAGE,
    MAX_RESULT_BYTES,
    MAX_SAVED_BYTES,
    MAX_TRACEBACK,
    JobError,
    NewEvent,
    NewJob,
)
from paddock.jobs.outcomes import Again, Done, Outcome, PermanentFailure, TransientFailure
from paddock.jobs.values import INEXACT, has_inexact_number
from paddock.log import scrub

MAX_HINT = 1_000
MAX_CODE = 100

_encode = msgspec.json.Encoder().encode
# What JSON may have made of a number that it cannot hold: of NaN and the infinities, and of very long integers.
_SUSPECT = re.compile(rb"null|[0-9]{19}")


class InvalidPayload(Exception):
    """The payload is not what the kind declares."""


def item_for(job: wire.ClaimedJob, outcome: Outcome | object) -> wire.FinishItem:
    """The message for an outcome, or for the failure to give one."""
    try:
        return _item(job, outcome)
    except PermanentRunnerError as error:
        return _item(job, PermanentFailure(JobError(error.code, error.message, error.hint)))
    except (TypeError, ValueError, msgspec.MsgspecError, RecursionError) as error:
        return _item(job, PermanentFailure(JobError("invalid_result", f"The outcome cannot be sent: {error}")))


def failure_of(kind: Kind, job: wire.ClaimedJob, error: BaseException) -> wire.FinishItem:
    """The message for an exception that left the handler."""
    return _item(job, _meaning(kind, error))


def encoded_state(state: Any) -> msgspec.Raw:
    """Saved state, checked here so that the handler that made it sees the error."""
    try:
        encoded = _encoded(state)
    except (TypeError, ValueError, msgspec.MsgspecError, RecursionError) as error:
        raise PermanentRunnerError(f"The saved state cannot be sent: {error}", code="invalid_saved") from error
    if len(encoded) > MAX_SAVED_BYTES:
        raise PermanentRunnerError(
            f"The saved state has {len(encoded)} bytes; {MAX_SAVED_BYTES} are allowed.",
            code="invalid_saved",
            hint="Keep larger things in the object store and save their names.",
        )
    return msgspec.Raw(encoded)


def _meaning(kind: Kind, error: BaseException) -> Outcome:
    if isinstance(error, TransientResourceError):
        return TransientFailure(
            JobError(error.code, error.message, error.hint, _trace(error)), error.budget, error.delay
        )
    if isinstance(error, PermanentRunnerError):
        told = JobError(error.code, error.message, error.hint, _trace(error))
        if isinstance(error, UserMistake):
            told = replace(told, mistake=True, line=error.line, column=error.column)
        return PermanentFailure(told)
    if isinstance(error, InvalidPayload):
        hint = f"Compare it with the payload of kind '{kind.name}'; another version may have written it."
        return PermanentFailure(JobError("invalid_payload", str(error), hint))
    told = JobError("unclassified_error", f"{type(error).__name__}: {_text(error)}", None, _trace(error))
    return TransientFailure(told, unclassified=True) if kind.retry_unclassified else PermanentFailure(told)


def payload_error(kind: Kind, error: ValidationError) -> InvalidPayload:
    """Names every wrong field; never its value, which may be anything."""
    fields = " ".join(f"{found.field or 'payload'}: {found.sentence}" for found in field_errors(error))
    return InvalidPayload(f"The payload is not what kind '{kind.name}' takes: {fields}")


def _item(job: wire.ClaimedJob, outcome: Outcome | object) -> wire.FinishItem:
    if isinstance(outcome, Done):
        return wire.FinishItem(
            id=job.id,
            attempt_id=job.attempt_id,
            outcome="done",
            result=None if outcome.result is None else _result(outcome.result),
            events=[_event(event) for event in outcome.events] if outcome.events else [],
            follow_ups=[_follow_up(follow_up) for follow_up in outcome.follow_ups] if outcome.follow_ups else [],
        )
    if isinstance(outcome, Again):
        return wire.FinishItem(
            id=job.id,
            attempt_id=job.attempt_id,
            outcome="again",
            saved=None if outcome.saved is None else encoded_state(outcome.saved),
            progress=outcome.progress,
            delay_seconds=outcome.delay.total_seconds(),
            waiting_on=outcome.waiting_on,
        )
    if isinstance(outcome, TransientFailure):
        return wire.FinishItem(
            id=job.id,
            attempt_id=job.attempt_id,
            outcome="transient",
            error=_error(outcome.error),
            budget=outcome.budget,
            delay_seconds=None if outcome.delay is None else outcome.delay.total_seconds(),
            unclassified=outcome.unclassified,
        )
    if not isinstance(outcome, PermanentFailure):
        outcome = PermanentFailure(
            JobError(
                "bad_outcome",
                f"The handler of '{job.kind}' returned {type(outcome).__name__}, which is no outcome.",
                "Return done(...), again(...), transient(...) or permanent(...).",
            )
        )
    return wire.FinishItem(id=job.id, attempt_id=job.attempt_id, outcome="permanent", error=_error(outcome.error))


def _result(result: Any) -> msgspec.Raw:
    encoded = _encoded(result)
    if len(encoded) > MAX_RESULT_BYTES:
        raise ValueError(f"the result has {len(encoded)} bytes, {MAX_RESULT_BYTES} are allowed")
    return msgspec.Raw(encoded)


def _encoded(value: Any) -> bytes:
    encoded = _encode(value)
    if _SUSPECT.search(encoded) and has_inexact_number(msgspec.to_builtins(value, str_keys=True)):
        raise ValueError(f"it contains {INEXACT}; write it as text")
    return encoded


def _event(event: NewEvent) -> wire.Event:
    _encoded(event.data)
    return wire.Event(type=event.type, subject=event.subject, data=event.data)


def _follow_up(job: NewJob) -> wire.FollowUp:
    if job.run_at is not None:
        raise ValueError("a follow-up takes a delay, not a time: only the database has a clock")
    _encoded(job.payload)
    return wire.FollowUp(
        kind=job.kind,
        payload=job.payload,
        priority=job.priority,
        delay_seconds=0 if job.delay is None else job.delay.total_seconds(),
        tags=list(job.tags),
    )


def _error(error: JobError) -> wire.Error:
    return wire.Error(
        code=_printable(str(error.code))[:MAX_CODE],
        message=_printable(scrub(str(error.message), limit=MAX_ERROR_MESSAGE)),
        hint=None if error.hint is None else _printable(scrub(str(error.hint), limit=MAX_HINT)),
        traceback=None if error.traceback is None else _printable(scrub(error.traceback, limit=MAX_TRACEBACK)),
        mistake=error.mistake,
        line=error.line,
        column=error.column,
    )


def _printable(text: str) -> str:
    """PostgreSQL stores no NUL and JSON no lone surrogate: an error must not be lost for what its text contains."""
    return text.encode("utf-8", "backslashreplace").decode().replace("\x00", "\\x00")


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except BaseException as broken:  # somebody's __str__: the failure is worth more than its text
        return f"<{type(broken).__name__} in __str__>"


def _trace(error: BaseException) -> str:
    """The end of the traceback: that is where the fault is. Scrubbed first: the cut could hide a secret's name."""
    try:
        return scrub("".join(traceback.format_exception(error, limit=-50)))[-MAX_TRACEBACK:]
    except BaseException as broken:
        return f"<no traceback: {type(broken).__name__}>"
