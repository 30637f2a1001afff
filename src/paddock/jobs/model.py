"""The words of the core as values: what a job is, what a write to it may answer, what a caller may ask for."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Literal, NewType
from uuid import UUID

JobId = NewType("JobId", UUID)
AttemptId = NewType("AttemptId", UUID)
SessionId = NewType("SessionId", UUID)
GroupId = NewType("GroupId", UUID)

JsonObject = dict[str, Any]
Budget = Literal["work", "cluster"]

LIVE = ("pending", "claimed", "submitted")
TERMINAL = ("completed", "failed", "cancelled")
STATUSES = LIVE + TERMINAL

URGENT, HIGH, NORMAL, LOW = 1, 2, 3, 4

MAX_SAVED_BYTES = 64 * 1024
MAX_PAYLOAD_BYTES = 1024 * 1024
MAX_RESULT_BYTES = 256 * 1024
MAX_REPORT_BYTES = 8 * 1024
MAX_DEPTH = 64
MAX_TAGS = 20
MAX_TAG_LENGTH = 100
MAX_ERROR_MESSAGE = 4_000
MAX_TRACEBACK = 16_000


class Verdict(StrEnum):
    """What the fence answers to one write."""

    ACCEPTED = "accepted"
    ALREADY_YOURS = "already_yours"
    CANCELLED = "cancelled"
    STALE_ATTEMPT = "stale_attempt"
    INVALID = "invalid"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class JobError:
    """Why an attempt failed, for the person who will read it: what failed, on what, what to do."""

    code: str
    message: str
    hint: str | None = None
    traceback: str | None = None
    # Of whoever asked: a `UserMistake`.
    mistake: bool = False
    # Where in the text of its query, if it is known.
    line: int | None = None
    column: int | None = None


@dataclass(frozen=True, slots=True)
class NewEvent:
    """A fact to record in the transaction that makes it true. It carries references, never data or secrets."""

    type: str
    subject: str
    data: JsonObject = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Event:
    """A fact as it was recorded. Of two of one subject the one with the greater version is the newer."""

    id: UUID
    type: str
    subject: str
    version: int
    owner: str
    data: JsonObject
    at: datetime


@dataclass(frozen=True, slots=True)
class NewJob:
    """A job somebody asks for. Lock, group, limits and roles come from its kind, never from the asker."""

    kind: str
    payload: JsonObject
    owner: str = "system"
    role: str | None = None
    priority: int = NORMAL
    run_at: datetime | None = None
    delay: timedelta | None = None
    tags: Sequence[str] = ()
    group_id: GroupId | None = None
    retry_of: JobId | None = None
    parent_id: JobId | None = None
    schedule: str | None = None
    traceparent: str | None = None


@dataclass(frozen=True, slots=True)
class Job:
    """One row, live or from history, as a reader sees it."""

    id: JobId
    kind: str
    status: str
    priority: int
    owner: str
    role: str | None
    tags: Sequence[str]
    payload: JsonObject
    created_at: datetime
    saved: JsonObject | None = None
    report: JsonObject | None = None
    result: Any = None
    error_code: str | None = None
    error_message: str | None = None
    errors: Sequence[Mapping[str, Any]] = field(default_factory=list)
    due_at: datetime | None = None
    visible_at: datetime | None = None
    attempt_id: AttemptId | None = None
    ended_by: AttemptId | None = None
    session_id: SessionId | None = None
    claimed_by: str | None = None
    claimed_at: datetime | None = None
    turn_count: int = 0
    failure_count: int = 0
    cluster_count: int = 0
    lost_count: int = 0
    waiting_on: str | None = None
    lock_key: str | None = None
    group_id: GroupId | None = None
    retry_of: JobId | None = None
    retried_by: JobId | None = None
    cleanup_of: JobId | None = None
    schedule: str | None = None
    started_at: datetime | None = None
    submitted_at: datetime | None = None
    completed_at: datetime | None = None
    run_seconds: float = 0
    wait_seconds: float = 0
    # One line, as its kind tells from its payload.
    about: str | None = None

    @property
    def attempt_count(self) -> int:
        return self.failure_count + self.cluster_count + self.lost_count + 1

    @property
    def ended(self) -> bool:
        return self.status in TERMINAL


@dataclass(frozen=True, slots=True)
class Ordered:
    """What became of a thing that a job ordered and that is no single job, like a run of ingest. `status` is "failed" where it
    failed, and `ended_at` is None while it is at work. `path` leads to it in the dashboard, and below /api; `command` shows it."""

    status: str
    ended_at: datetime | None
    error_code: str | None
    error_message: str | None
    path: str
    command: str


@dataclass(frozen=True, slots=True)
class Group:
    """Counters of the jobs that belong together; `open` reaches 0 exactly once after it is sealed."""

    id: GroupId
    kind: str
    owner: str
    open: int
    failed: int
    cancelled: int
    total: int
    sealed: bool
    data: JsonObject
    created_at: datetime
    ended_at: datetime | None
    # Lets nothing reopen it.
    final: bool
    # It ended, and its kind's hook for that has still to succeed.
    hook_due: bool

    @property
    def completed(self) -> int:
        return self.total - self.open - self.failed - self.cancelled
