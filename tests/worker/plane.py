"""A control plane in memory: a small fenced store behind the `Link` protocol, with outages one can order.

Every message goes through JSON on its way in and out, as it would over HTTP.
"""

import asyncio
import contextlib
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar
from uuid import UUID, uuid4

import msgspec

from paddock.jobs import wire
from paddock.jobs.link import LinkDown, LinkRefused, SessionUnknown

M = TypeVar("M", bound=wire.Struct)


def through_json(message: M) -> M:
    return msgspec.json.decode(msgspec.json.encode(message), type=type(message))


async def until(condition: Callable[[], object], seconds: float = 45.0) -> None:
    """Waits for something to become true, for less than the beats of a minute with which tests rule beats out."""
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110 - other processes set no events of ours
            await asyncio.sleep(0.01)


@dataclass
class PlaneJob:
    id: UUID
    kind: str
    payload: dict[str, Any]
    status: str = "pending"
    attempt_id: UUID | None = None
    session: UUID | None = None
    saved: Any = None
    report: Any = None
    result: Any = None
    error: wire.Error | None = None
    turn_count: int = 0
    failure_count: int = 0
    submitted: bool = False
    cleanup_of: UUID | None = None
    parent_id: UUID | None = None
    # Not claimed before the attempt it cleans up after has acknowledged.
    waits_for: UUID | None = None
    past_attempts: list[UUID] = field(default_factory=list)
    releases: list[wire.ReleaseItem] = field(default_factory=list)
    outcomes: list[wire.FinishItem] = field(default_factory=list)
    timeouts: dict[str, Any] = field(default_factory=dict)
    ended_by: UUID | None = None
    logs: list[wire.LogItem] = field(default_factory=list)

    @property
    def ended(self) -> bool:
        return self.status in ("completed", "failed", "cancelled")


class Plane:
    def __init__(self, beat_seconds: float = 0.2, lease_seconds: float = 30.0) -> None:
        self.beat_seconds = beat_seconds
        self.lease_seconds = lease_seconds
        self.jobs: dict[UUID, PlaneJob] = {}
        self.sessions: set[UUID] = set()
        self.claims: dict[UUID, list[wire.ClaimedJob]] = {}
        # What was asked, by operation.
        self.calls: Counter[str] = Counter()
        self.messages: list[tuple[str, Any]] = []
        # Operations that fail before, or after, they did their work; how often (-1: until told otherwise).
        self.away: set[str] = set()
        self.lose_answers: Counter[str] = Counter()
        self.refuse: dict[str, LinkRefused] = {}
        self.refuse_once: set[str] = set()
        self.quiet = False
        # Whether a transient failure makes its job due again, at once.
        self.retries = False
        self.cleanups: set[str] = set()
        self.lost: dict[UUID, list[UUID]] = {}
        # Operations that hang until the event is set.
        self.hanging: dict[str, asyncio.Event] = {}
        self.closed = False
        self._changed = asyncio.Event()

    # For the test.

    def add(
        self, kind: str, timeouts: dict[str, Any] | None = None, submitted: bool = False, **payload: Any
    ) -> PlaneJob:
        job = PlaneJob(uuid4(), kind, payload, timeouts=timeouts or {}, submitted=submitted)
        self.jobs[job.id] = job
        self._changed.set()
        return job

    def outage(self, *operations: str) -> None:
        self.away = set(operations or ("register", "claim", "beat", "save", "finish", "release", "logs"))

    def back(self) -> None:
        self.away = set()

    def take_away(self, job: PlaneJob) -> None:
        """As the rescuer does: the job is pending again, and its attempt stale."""
        self._detach(job)
        job.status = "held_back"

    def cancel(self, job: PlaneJob) -> None:
        session, attempt = job.session, job.attempt_id
        self._detach(job)
        job.status = "cancelled"
        if job.kind in self.cleanups and attempt is not None:
            cleanup = PlaneJob(uuid4(), job.kind, job.payload, saved=job.saved, cleanup_of=job.id, waits_for=attempt)
            cleanup.submitted = True
            self.jobs[cleanup.id] = cleanup
        if session is not None and attempt is not None:
            self.lost.setdefault(session, []).append(attempt)
        self._changed.set()

    def sent(self, operation: str) -> list[Any]:
        return [message for name, message in self.messages if name == operation]

    # The Link.

    async def register(self, message: wire.Register) -> wire.Registered:
        async def answer() -> wire.Registered:
            session = uuid4()
            self.sessions.add(session)
            return wire.Registered(session=session, beat_seconds=self.beat_seconds, lease_seconds=self.lease_seconds)

        return await self._do("register", message, answer)

    async def claim(self, message: wire.Claim) -> wire.Claimed:
        message = through_json(message)
        asked = asyncio.get_running_loop().time()

        async def answer() -> wire.Claimed:
            while True:
                if message.session not in self.sessions:
                    raise SessionUnknown(str(message.session))
                jobs = self.claims.get(message.claim_id) or self._take(message)
                lost = self.lost.pop(message.session, [])
                left = asked + message.wait_seconds - asyncio.get_running_loop().time()
                is_open = any(self._matches(job, message.only) and not job.ended for job in self.jobs.values())
                if jobs or lost or left <= 0 or (message.only and not is_open):
                    return wire.Claimed(jobs=jobs, lost=lost, open=bool(message.only) and is_open)
                self._changed.clear()
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._changed.wait(), min(left, 0.5))
                self._check("claim")

        return await self._do("claim", message, answer)

    async def beat(self, session: UUID, message: wire.Beat) -> wire.Verdicts:
        async def answer() -> wire.Verdicts:
            if session not in self.sessions:
                raise SessionUnknown(str(session))
            for held in message.holding:
                job = self.jobs[held.id]
                if held.report is not None and job.attempt_id == held.attempt_id:
                    job.report = held.report
            verdicts = [
                wire.ItemVerdict(id=held.id, attempt_id=held.attempt_id, verdict=self._verdict(held) or "accepted")
                for held in message.holding
            ]
            return wire.Verdicts(verdicts=verdicts, quiet=self.quiet)

        return await self._do("beat", message, answer)

    async def save(self, message: wire.Save) -> wire.Verdicts:
        return await self._each("save", message, self._save)

    async def finish(self, message: wire.Finish) -> wire.Verdicts:
        return await self._each("finish", message, self._finish)

    async def release(self, message: wire.Release) -> wire.Verdicts:
        return await self._each("release", message, self._release)

    async def logs(self, message: wire.Logs) -> None:
        async def answer() -> wire.Logs:
            for item in message.items:
                self.jobs[item.id].logs.append(item)
            return message

        await self._do("logs", message, answer)

    async def close(self) -> None:
        self.closed = True

    # The store.

    def _take(self, message: wire.Claim) -> list[wire.ClaimedJob]:
        taken: list[wire.ClaimedJob] = []
        limit, submitted = message.limit, message.submitted_limit
        limits = dict(message.limits)
        for job in self.jobs.values():
            if job.status not in ("pending", "submitted") or job.waits_for or job.kind not in message.kinds:
                continue
            if message.only and not self._matches(job, message.only):
                continue
            pool_is_own = submitted is not None and (job.submitted or job.status == "submitted")
            if pool_is_own:
                if not submitted:
                    continue
                submitted -= 1
            elif limit <= 0 or limits.get(job.kind, limit) <= 0:
                continue
            else:
                limit -= 1
                if job.kind in limits:
                    limits[job.kind] -= 1
            taken.append(self._claim_one(job, message.session, pool_is_own))
        if taken:
            self.claims[message.claim_id] = taken
        return taken

    def _claim_one(self, job: PlaneJob, session: UUID, submitted: bool) -> wire.ClaimedJob:
        job.status, job.attempt_id, job.session = "claimed", uuid4(), session
        job.turn_count += 1
        return wire.ClaimedJob(
            id=job.id,
            attempt_id=job.attempt_id,
            kind=job.kind,
            payload=msgspec.Raw(msgspec.json.encode(job.payload)),
            saved=msgspec.Raw(msgspec.json.encode(job.saved)),
            owner="tester",
            turn_count=job.turn_count,
            failure_count=job.failure_count,
            cleanup_of=job.cleanup_of,
            parent_id=job.parent_id,
            submitted=submitted,
            **job.timeouts,
        )

    def _matches(self, job: PlaneJob, only: list[UUID]) -> bool:
        return job.id in only or job.cleanup_of in only or job.parent_id in only

    def _verdict(self, item: Any) -> str | None:
        """None: the attempt holds its job."""
        job = self.jobs.get(item.id)
        if job is None:
            return "unknown"
        if job.attempt_id == item.attempt_id:
            return None
        if job.ended_by == item.attempt_id:
            return "already_yours"
        return "cancelled" if job.status == "cancelled" else "stale_attempt"

    def _save(self, item: wire.SaveItem) -> str:
        if verdict := self._verdict(item):
            return verdict
        job = self.jobs[item.id]
        job.saved, job.failure_count = item.saved, 0
        return "accepted"

    def _finish(self, item: wire.FinishItem) -> str:
        if verdict := self._verdict(item):
            return verdict
        job = self.jobs[item.id]
        job.outcomes.append(item)
        self._detach(job)
        job.ended_by = item.attempt_id
        job.error = item.error or job.error
        if item.outcome == "done":
            job.status, job.result = "completed", item.result
            for follow_up in item.follow_ups:
                child = self.add(follow_up.kind, **follow_up.payload)
                child.parent_id = job.id
        elif item.outcome == "permanent":
            job.status = "failed"
        else:
            job.status = "submitted" if item.waiting_on else "pending"
            if item.outcome == "transient" and not self.retries:
                job.status = "held_back"
            job.saved = job.saved if item.saved is None else item.saved
            job.failure_count += item.outcome == "transient"
        self._changed.set()
        return "accepted"

    def _release(self, item: wire.ReleaseItem) -> str:
        for cleanup in self.jobs.values():
            if cleanup.waits_for == item.attempt_id:
                cleanup.waits_for = None
                self._changed.set()
        self.jobs[item.id].releases.append(item)
        if verdict := self._verdict(item):
            return verdict
        job = self.jobs[item.id]
        self._detach(job)
        job.ended_by = item.attempt_id
        job.status = "released"
        return "accepted"

    def _detach(self, job: PlaneJob) -> None:
        if job.attempt_id is not None:
            job.past_attempts.append(job.attempt_id)
        job.attempt_id = job.session = None

    async def _each(self, operation: str, message: Any, apply: Callable[[Any], str]) -> wire.Verdicts:
        received = through_json(message)

        async def answer() -> wire.Verdicts:
            return wire.Verdicts(
                verdicts=[
                    wire.ItemVerdict(id=item.id, attempt_id=item.attempt_id, verdict=apply(item))
                    for item in received.items
                ]
            )

        return await self._do(operation, received, answer)

    async def _do(self, operation: str, message: Any, answer: Callable[[], Awaitable[M]]) -> M:
        self.calls[operation] += 1
        self.messages.append((operation, message))
        if operation in self.hanging:
            await self.hanging[operation].wait()
        self._check(operation)
        answered = through_json(await answer())
        if self.lose_answers[operation]:
            self.lose_answers[operation] -= 1
            raise LinkDown(f"the answer to {operation} was lost")
        return answered

    def _check(self, operation: str) -> None:
        if operation in self.away:
            raise LinkDown(f"{operation}: away")
        if operation in self.refuse:
            error = self.refuse[operation]
            if operation in self.refuse_once:
                del self.refuse[operation]
            raise error
