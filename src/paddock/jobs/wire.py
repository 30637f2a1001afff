"""The messages between a worker and the control plane.

Both sides ignore fields they do not know and every addition has a default, so that version n works with n+1.
"""

from typing import Any, Literal
from uuid import UUID

import msgspec

# One object, so that it is known as the default: left out, and not read.
NOTHING = msgspec.Raw(b"null")


class Struct(msgspec.Struct, omit_defaults=True, kw_only=True):
    pass


class Register(Struct):
    worker_id: str
    version: str
    kinds: list[str]
    slots: int = 10


class Registered(Struct):
    session: UUID
    beat_seconds: float
    lease_seconds: float
    unknown_kinds: list[str] = []


class Claim(Struct):
    session: UUID
    claim_id: UUID
    kinds: list[str]
    limit: int = 10
    wait_seconds: float = 0
    # Submitted and cleanup jobs have slots of their own; None: they share `limit`.
    submitted_limit: int | None = None
    # Fewer than `limit` of some kinds.
    limits: dict[str, int] = {}
    # Not empty: only these jobs, their cleanups (`cleanup_of`) and their follow-ups (`parent_id`).
    only: list[UUID] = []


class ClaimedJob(Struct):
    id: UUID
    attempt_id: UUID
    kind: str
    payload: msgspec.Raw
    owner: str
    turn_count: int
    failure_count: int = 0
    lost_count: int = 0
    saved: msgspec.Raw = NOTHING
    role: str | None = None
    tags: list[str] = []
    waiting_on: str | None = None
    cleanup_of: UUID | None = None
    # The job whose follow-up it is.
    parent_id: UUID | None = None
    # True: it came from the slots of submitted and cleanup jobs.
    submitted: bool = False
    turn_timeout: float | None = None
    stall_timeout: float | None = None
    # Seconds left of the total and of the stall time-out, counted by the database's clock at the claim.
    total_left: float | None = None
    stall_left: float | None = None
    # Seconds since its first claim, by the same clock.
    age_seconds: float = 0
    secrets: dict[str, str] = {}
    traceparent: str | None = None


class Claimed(Struct):
    jobs: list[ClaimedJob]
    # Attempts of this session that lost their job while it waited (cancelled, mostly): stop them now.
    lost: list[UUID] = []
    # Whether a live job matches `Claim.only`: False tells `--once` that it is through.
    open: bool = False


class Held(Struct):
    id: UUID
    attempt_id: UUID
    report: dict[str, Any] | None = None


class Beat(Struct):
    holding: list[Held]
    # False: only reports; the session is not renewed and nothing is said about what is not listed.
    renew: bool = True
    dying: bool = False


class ItemVerdict(Struct):
    id: UUID
    verdict: str
    attempt_id: UUID | None = None
    message: str | None = None


class Verdicts(Struct):
    verdicts: list[ItemVerdict]
    # The session is quieted: finish what runs, claim nothing new.
    quiet: bool = False


class SaveItem(Struct):
    id: UUID
    attempt_id: UUID
    saved: Any
    # False: it forgives no failure, no loss and no stall.
    progress: bool = True


class Save(Struct):
    items: list[SaveItem]


class Error(Struct):
    code: str
    message: str
    hint: str | None = None
    traceback: str | None = None
    mistake: bool = False
    line: int | None = None
    column: int | None = None


class FollowUp(Struct):
    kind: str
    payload: dict[str, Any]
    priority: int | None = None
    delay_seconds: float = 0
    tags: list[str] = []


class Event(Struct):
    type: str
    subject: str
    data: dict[str, Any] = {}


class FinishItem(Struct):
    id: UUID
    attempt_id: UUID
    outcome: Literal["done", "again", "transient", "permanent"]
    result: Any = None
    error: Error | None = None
    saved: Any = None
    # As of `SaveItem`; it tells nothing where nothing is saved.
    progress: bool = True
    delay_seconds: float | None = None
    waiting_on: str | None = None
    budget: Literal["work", "cluster"] = "work"
    unclassified: bool = False
    events: list[Event] = []
    follow_ups: list[FollowUp] = []


class Finish(Struct):
    items: list[FinishItem]


class ReleaseItem(Struct):
    id: UUID
    attempt_id: UUID
    reason: str = "released"
    delay_seconds: float = 0


class Release(Struct):
    items: list[ReleaseItem]


class LogItem(Struct):
    id: UUID
    attempt_id: UUID
    seq: int
    lines: str
    dropped_bytes: int = 0


class Logs(Struct):
    items: list[LogItem]


class Jobs(Struct):
    """Asked: which of these have ended? Answered: these."""

    ids: list[UUID]
