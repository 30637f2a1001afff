"""What the rules say becomes of every step: a second, slow and sequential core without SQL.

It is written from the rules and kept in plain Python, one method for each thing a person, a worker or a pass can do.
Each changes the model and answers what the core must answer. Rows whose ids only the database can know (cleanups,
deliveries, follow-ups) wait in `fresh` until the comparison finds their like.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from uuid import UUID, uuid4

from paddock.jobs import wire
from paddock.jobs.kinds import Kind
from paddock.jobs.model import NewJob
from tests.properties.kinds import BY_NAME, Anything, Switches
from tests.properties.rows import NEVER, Ended, GroupRow, Live, Snapshot, Told

BEAT = timedelta(seconds=10)
LEASE = timedelta(seconds=60)
CLAIM_GRACE = timedelta(seconds=30)
HEAD_START = timedelta(seconds=30)
KEYS_KEPT = timedelta(hours=24)
UNCLASSIFIED_LIMIT = 3


@dataclass
class Session:
    expires_at: datetime
    quiet: bool = False


@dataclass
class Webhook:
    id: UUID
    owner: str
    all_owners: bool
    types: tuple[str, ...]
    active: bool = True

    def hears(self, type: str, owner: str) -> bool:
        family = type.split(".", 1)[0] + ".*"
        return self.active and (self.all_owners or self.owner == owner) and bool({"*", type, family} & set(self.types))


@dataclass
class Key:
    body: bytes
    jobs: list[UUID]
    at: datetime


@dataclass
class Model:
    now: datetime
    served_at: datetime
    resumed_at: datetime
    live: dict[UUID, Live] = field(default_factory=dict)
    ended: dict[UUID, Ended] = field(default_factory=dict)
    groups: dict[UUID, GroupRow] = field(default_factory=dict)
    final_wanted: set[UUID] = field(default_factory=set)
    sessions: dict[UUID, Session] = field(default_factory=dict)
    webhooks: list[Webhook] = field(default_factory=list)
    events: list[Told] = field(default_factory=list)
    end_hooks: list[tuple[UUID, str]] = field(default_factory=list)
    keys: dict[tuple[str, str], Key] = field(default_factory=dict)
    drained: bool = False
    paused: set[str] = field(default_factory=set)
    fresh: list[Live] = field(default_factory=list)
    # How each attempt ended its turn: a repetition must be told from a late write.
    asked: dict[UUID, str] = field(default_factory=dict)

    # Coming in.

    def refusal(self, jobs: Sequence[NewJob], *, public: bool) -> str | None:
        for job in jobs:
            if job.group_id is not None and job.retry_of is None and self.groups[job.group_id].ended:
                return "group_finished"
        if public and self.drained:
            return "draining"
        locks = [lock for job in jobs if (lock := lock_of(job)) is not None]
        held = {row.lock_key for row in self.live.values()}
        return "lock_held" if len(set(locks)) < len(locks) or held & set(locks) else None

    def earlier(self, owner: str, key: str) -> Key | None:
        known = self.keys.get((owner, key))
        return known if known is not None and known.at >= self.now - KEYS_KEPT else None

    def enqueue(self, ids: Iterable[UUID], jobs: Sequence[NewJob]) -> None:
        for id, job in zip(ids, jobs, strict=True):
            self.live[id] = self._new(id, job)
            if job.group_id is not None and job.retry_of is None:
                self.groups[job.group_id].open += 1
                self.groups[job.group_id].total += 1

    def _new(self, id: UUID, job: NewJob) -> Live:
        return Live(
            id=id,
            kind=job.kind,
            status="pending",
            priority=job.priority,
            lane=job.priority,
            due_at=self.now + (job.delay or timedelta(0)),
            owner=job.owner,
            created_at=self.now,
            lock_key=lock_of(job),
            group_id=job.group_id,
            retry_of=job.retry_of,
            parent_id=job.parent_id,
            serial=BY_NAME[job.kind].serial,
        )

    def retry_refusal(self, id: UUID, job: NewJob) -> str | None:
        old = self.ended.get(id)
        if old is None:
            return "not_finished" if id in self.live else "not_found"
        if old.cleanup_of is not None:
            return "not_retriable"
        if any(row.retry_of == id for row in everything(self.live, self.ended)):
            return "already_retried"
        if old.group_id is not None and self.groups[old.group_id].final:
            return "group_finished"
        return self.refusal([job], public=True)

    def retry(self, id: UUID, new: UUID, job: NewJob) -> None:
        old = self.ended[id]
        self.enqueue([new], [job])
        if old.group_id is not None:
            group = self.groups[old.group_id]
            group.open += 1
            group.failed -= old.status == "failed"
            group.cancelled -= old.status == "cancelled"
            group.ended = group.hook_due = False

    # Claiming.

    def claimable(self, session: UUID, kinds: Iterable[str]) -> list[Live]:
        """What a claim of these kinds may take now; of a serial kind at most one of them."""
        known = self.sessions[session]
        if known.quiet or known.expires_at <= self.now:
            return []
        busy = {row.kind for row in self.live.values() if row.serial and row.attempt_id is not None}
        return [
            row
            for row in self.live.values()
            if row.attempt_id is None
            and row.due_at <= self.now
            and row.kind in kinds
            and (row.lane == 0 or row.kind not in self.paused)
            and row.kind not in busy
        ]

    def claimed_as(self, session: UUID, claim_id: UUID) -> list[Live]:
        return [
            row
            for row in self.live.values()
            if row.session_id == session and row.claim_id == claim_id and row.attempt_id is not None
        ]

    def claim(self, session: UUID, claim_id: UUID, id: UUID, attempt: UUID) -> None:
        row = self.live[id]
        row.status, row.attempt_id, row.session_id, row.claim_id = "claimed", attempt, session, claim_id
        row.claimed_at, row.started_at = self.now, row.started_at or self.now
        row.unlisted, row.turn_count = 0, row.turn_count + 1

    # The fence.

    def verdict(self, id: UUID, attempt: UUID, operation: str) -> str:
        """`a|b`: either will do, because the row does not tell what the attempt had asked for."""
        row = self.live.get(id) or self.ended.get(id)
        if row is None:
            return "unknown"
        if isinstance(row, Live) and row.attempt_id == attempt:
            return "accepted"
        late = "cancelled" if row.status == "cancelled" else "stale_attempt"
        if row.ended_by != attempt:
            return late
        if operation == "beat":
            return "already_yours"
        if self.asked.get(attempt) != operation:
            return f"{late}|already_yours|invalid"
        return "invalid" if row.error_code == "invalid_result" else "already_yours"

    def save(self, id: UUID, attempt: UUID, saved: str, *, progress: bool = True) -> str:
        verdict = self.verdict(id, attempt, "save")
        if verdict == "accepted":
            self._saved(self.live[id], saved, progress=progress)
        return verdict

    def release(self, id: UUID, attempt: UUID, delay: timedelta = timedelta(0)) -> str:
        verdict = self.verdict(id, attempt, "release")
        if verdict == "accepted":
            self.asked[attempt] = "release"
            self._back(self.live[id], attempt, "release", delay)
        else:
            self._stopped([attempt])
        return verdict

    def finish(self, item: wire.FinishItem, *, invalid: bool, on_behalf: bool = False) -> str:
        """`on_behalf`: the rescuer ends the turn of an attempt that may still be running."""
        outcome = "permanent" if invalid else item.outcome
        verdict = self.verdict(item.id, item.attempt_id, item.outcome)
        if verdict != "accepted":
            return verdict
        if not on_behalf:
            self.asked[item.attempt_id] = item.outcome
        row, code = self.live[item.id], "invalid_result" if invalid else item.error.code if item.error else None
        if outcome == "done":
            if problem := self._refused_done(row, item):
                outcome, code = "transient", problem
            else:
                self._done(row, item)
        if outcome == "again":
            if item.saved is not None:
                self._saved(row, canonical(item.saved), progress=item.progress)
            row.waiting_on = item.waiting_on
            self._back(row, item.attempt_id, "again", timedelta(seconds=item.delay_seconds or 0))
        elif outcome == "transient":
            self._failed(row, item, code, on_behalf=on_behalf)
        elif outcome == "permanent":
            self.end(row, "failed", code, by=item.attempt_id)
        return "invalid" if invalid else verdict

    def _refused_done(self, row: Live, item: wire.FinishItem) -> str | None:
        if BY_NAME[row.kind].on_end is not None and row.cleanup_of is None and Switches.end_hook_raises:
            return "end_hook_failed"
        held = {other.lock_key for other in self.live.values() if other is not row and other.lock_key is not None}
        wanted = [lock_of(NewJob(new.kind, new.payload)) for new in item.follow_ups]
        return "follow_up_lock_held" if held & set(wanted) else None

    def _done(self, row: Live, item: wire.FinishItem) -> None:
        self.end(row, "completed", None, by=item.attempt_id)
        for event in item.events:
            self._tell(event.type, event.subject, row.owner, always=True)
        for new in item.follow_ups:
            job = NewJob(new.kind, new.payload, owner=row.owner, priority=new.priority or 3)
            follow_up = self._new(uuid4(), job)
            follow_up.parent_id = row.id
            self.fresh.append(follow_up)

    def _failed(self, row: Live, item: wire.FinishItem, code: str | None, *, on_behalf: bool) -> None:
        policy = BY_NAME[row.kind].retry
        spent = row.failure_count if item.budget == "work" else row.cluster_count
        limit = policy.limit if item.budget == "work" else policy.cluster_limit
        unforgiven = item.budget == "work" and item.unclassified and row.unclassified_count >= UNCLASSIFIED_LIMIT
        if spent >= limit or unforgiven:
            by = None if on_behalf else item.attempt_id
            self.end(row, "failed", "attempts_exhausted", by=by, still_running=on_behalf)
            return
        delay = min(policy.cap, policy.first * 2**spent)
        if item.delay_seconds is not None:
            delay = timedelta(seconds=item.delay_seconds)
        self._back(row, None if on_behalf else item.attempt_id, "transient", delay)
        row.error_code = code
        if code == "stalled":
            row.unsaved_seconds = 0
        if item.budget == "work":
            row.failure_count += 1
            row.unclassified_count += item.unclassified
        else:
            row.cluster_count += 1

    def _saved(self, row: Live, saved: str, *, progress: bool) -> None:
        row.saved = saved
        if progress:
            row.saved_at, row.unsaved_seconds = self.now, 0
            row.failure_count = row.unclassified_count = row.lost_count = 0

    def _back(self, row: Live, by: UUID | None, ended_as: str | None, delay: timedelta) -> None:
        """Out of `claimed`, not ended."""
        row.status = "pending" if row.waiting_on is None else "submitted"
        row.lane = 0 if row.waiting_on is not None or row.cleanup_of is not None else row.priority
        row.unsaved_seconds += self._unsaved(row)
        row.attempt_id, row.due_at = None, self.now + delay
        if by is not None:
            row.ended_by, row.ended_as = by, ended_as

    def _unsaved(self, row: Live) -> float:
        times = [at for at in (row.claimed_at, row.saved_at) if at is not None]
        return (self.now - max(times)).total_seconds() if times else 0.0

    # Ends.

    def end(
        self, row: Live, status: str, code: str | None, *, by: UUID | None = None, still_running: bool = False
    ) -> None:
        """Everything that belongs to the end of a job, in one step."""
        del self.live[row.id]
        old = Ended(
            id=row.id,
            kind=row.kind,
            status=status,
            priority=row.priority,
            owner=row.owner,
            ended_by=by,
            error_code=code,
            turn_count=row.turn_count,
            failure_count=row.failure_count,
            cluster_count=row.cluster_count,
            lost_count=row.lost_count,
            saved=row.saved,
            lock_key=row.lock_key,
            group_id=row.group_id,
            retry_of=row.retry_of,
            cleanup_of=row.cleanup_of,
            parent_id=row.parent_id,
            completed_at=self.now,
        )
        self.ended[row.id] = old
        if cleanup_wanted(old):
            self.fresh.append(self._cleanup(row, still_running=still_running))
        if BY_NAME[row.kind].on_end is not None and row.cleanup_of is None and not Switches.end_hook_raises:
            self.end_hooks.append((row.id, status))
        if row.group_id is not None:
            self._shrink(self.groups[row.group_id], status)
        self.tell_end(old)

    def _cleanup(self, row: Live, *, still_running: bool) -> Live:
        waits = still_running and row.attempt_id is not None
        return Live(
            id=uuid4(),
            kind=row.kind,
            status="pending",
            priority=row.priority,
            lane=0,
            due_at=NEVER if waits else self.now,
            owner=row.owner,
            created_at=self.now,
            saved=row.saved,
            session_id=row.session_id,
            lock_key=row.lock_key,
            cleanup_of=row.id,
            after_attempt=row.attempt_id if waits else None,
            serial=row.serial,
        )

    def tell_end(self, old: Ended) -> None:
        if old.kind != "webhook" and old.cleanup_of is None:
            self._tell(f"job.{old.status}", str(old.id), old.owner, always=False)

    def _tell(self, type: str, subject: str, owner: str, *, always: bool) -> None:
        told = [webhook for webhook in self.webhooks if webhook.hears(type, owner)]
        if told or always:
            self.events.append((type, subject, tuple(sorted(webhook.id for webhook in told))))
        # A delivery belongs to who is told, not to whose work it tells of.
        self.fresh += [self._new(uuid4(), NewJob("webhook", {}, owner=webhook.owner)) for webhook in told]

    def cancel(self, id: UUID) -> str:
        row = self.live.get(id)
        if row is None:
            return "finished" if id in self.ended else "unknown"
        if row.cleanup_of is not None:
            return "cleanup"
        self.end(row, "cancelled", "cancelled", still_running=True)
        return "cancelled"

    def _stopped(self, attempts: Iterable[UUID]) -> None:
        known = set(attempts)
        for row in self.live.values():
            if row.after_attempt in known:
                row.after_attempt, row.due_at = None, self.now

    # Groups.

    def seal(self, id: UUID) -> None:
        group = self.groups[id]
        if not group.sealed:
            group.sealed = True
            self._maybe_ended(group)

    def _shrink(self, group: GroupRow, status: str) -> None:
        group.open -= 1
        group.failed += status == "failed"
        group.cancelled += status == "cancelled"
        self._maybe_ended(group)

    def _maybe_ended(self, group: GroupRow) -> None:
        group.ended = group.hook_due = group.sealed and group.open == 0
        if group.ended:
            self._run_hook(group)

    def _run_hook(self, group: GroupRow) -> None:
        if not Switches.group_hook_raises:
            group.hook_due = False
            group.hook_runs += 1
            group.final = group.final or group.id in self.final_wanted

    def repeat_hooks(self) -> int:
        due = [group for group in self.groups.values() if group.hook_due]
        for group in due:
            self._run_hook(group)
        return sum(not group.hook_due for group in due)

    # Sessions and passes.

    def beat(self, session: UUID, listed: Sequence[tuple[UUID, UUID]], *, dying: bool = False) -> list[str]:
        self.sessions[session].expires_at = self.now + LEASE
        attempts = {attempt for _, attempt in listed}
        held = [row for row in self.live.values() if row.session_id == session and row.attempt_id is not None]
        awaited = [
            row.after_attempt
            for row in self.live.values()
            if row.after_attempt is not None
            and row.session_id == session
            and row.created_at < self.now - CLAIM_GRACE
            and row.after_attempt not in attempts
        ]
        for row in held:
            settled = row.claimed_at is not None and row.claimed_at < self.now - CLAIM_GRACE
            if settled and row.attempt_id not in attempts:
                row.unlisted += 1
                if row.unlisted >= 2:
                    assert row.attempt_id is not None
                    self.asked[row.attempt_id] = "release"
                    self._back(row, row.attempt_id, "release", timedelta(0))
            elif row.attempt_id in attempts:
                row.unlisted = 0
        self._stopped(awaited)
        if dying and not listed and not held:
            self.sessions[session].expires_at = self.now
        return [self.verdict(id, attempt, "beat") for id, attempt in listed]

    def stamp(self) -> bool:
        """A replica serves. True: it does so long enough for leases and time-outs to run."""
        if self.served_at < self.now - BEAT:
            self.resumed_at = self.now
        self.served_at = self.now
        return self.resumed_at + 2 * BEAT <= self.now

    def rescue(self) -> None:
        if not self.stamp():
            return
        lost = [row for row in self.live.values() if self._lost(row)]
        for_good = [row for row in lost if not forgiven(row)]
        for row in lost:
            if forgiven(row):
                self._back(row, None, None, timedelta(0))
                row.lost_count += 1
        for row in self.live.values():
            if row.after_attempt is not None and not self._alive(row.session_id):
                row.after_attempt, row.due_at = None, self.now
        for row in for_good:
            self.end(row, "failed", "worker_lost")

    def _alive(self, session: UUID | None) -> bool:
        return session in self.sessions and self.sessions[session].expires_at >= self.now

    def _lost(self, row: Live) -> bool:
        if row.attempt_id is None or row.session_id not in self.sessions:
            return False
        return self.sessions[row.session_id].expires_at + BY_NAME[row.kind].patience < self.now

    def keep_timeouts(self) -> None:
        if not self.stamp():
            return
        held = [row for row in self.live.values() if row.attempt_id is not None]
        over = [row for row in held if self._past(row.started_at, BY_NAME[row.kind].total_timeout)]
        late = [row for row in held if row not in over and self._late(row)]
        for row in late:
            assert row.attempt_id is not None
            reason = "turn_timeout" if self._past(row.claimed_at, BY_NAME[row.kind].turn_timeout) else "stalled"
            error = wire.Error(code=reason, message=reason)
            item = wire.FinishItem(id=row.id, attempt_id=row.attempt_id, outcome="transient", error=error)
            self.finish(item, invalid=False, on_behalf=True)
        waiting = [row for row in self.live.values() if row.attempt_id is None and row.cleanup_of is None]
        over += [row for row in waiting if self._past(row.started_at, BY_NAME[row.kind].total_timeout, timedelta(0))]
        for row in over:
            self.end(row, "failed", "timed_out", still_running=True)

    def _past(self, since: datetime | None, limit: timedelta | None, head_start: timedelta = HEAD_START) -> bool:
        return since is not None and limit is not None and since + limit + head_start < self.now

    def _late(self, row: Live) -> bool:
        kind = BY_NAME[row.kind]
        if self._past(row.claimed_at, kind.turn_timeout):
            return True
        unsaved = row.unsaved_seconds + self._unsaved(row)
        return kind.stall_timeout is not None and unsaved > (kind.stall_timeout + HEAD_START).total_seconds()

    def run_now(self, id: UUID) -> str | None:
        row = self.live.get(id)
        if row is None:
            return "not_waiting" if id in self.ended else "not_found"
        if row.attempt_id is not None or row.after_attempt is not None or row.due_at <= self.now:
            return "not_waiting"
        row.due_at = self.now
        return None

    def adopt(self, snapshot: Snapshot) -> None:
        """After a race only the database knows who won: from here on the model goes on from what it says."""
        for id, old in snapshot.ended.items():
            if id not in self.ended:
                self.tell_end(old)
        self.live, self.ended, self.groups = snapshot.live, snapshot.ended, snapshot.groups
        self.end_hooks, self.fresh = snapshot.end_hooks, []
        for id, expires_at in snapshot.sessions.items():
            self.sessions[id].expires_at = expires_at


def everything(live: Mapping[UUID, Live], ended: Mapping[UUID, Ended]) -> Iterator[Live | Ended]:
    yield from live.values()
    yield from ended.values()


def lock_of(job: NewJob) -> str | None:
    kind: Kind = BY_NAME[job.kind]
    return None if kind.lock_key is None else kind.lock_key(Anything.model_validate(job.payload))


def cleanup_wanted(old: Ended) -> bool:
    declared = BY_NAME[old.kind].cleanup is not None
    return declared and old.status != "completed" and old.turn_count > 0 and old.cleanup_of is None


def forgiven(row: Live) -> bool:
    kind = BY_NAME[row.kind]
    return (kind.may_repeat or row.cleanup_of is not None) and row.lost_count < kind.retry.loss_limit


def canonical(saved: dict[str, int]) -> str:
    """As jsonb prints the small objects used here."""
    return "{" + ", ".join(f'"{name}": {value}' for name, value in sorted(saved.items())) + "}"


def recounted(snapshot: Snapshot) -> dict[UUID, tuple[int, int, int, int]]:
    """Per group what its counters must say, from its current jobs: the last of each retry chain."""
    known = list(everything(snapshot.live, snapshot.ended))
    retried = {row.retry_of for row in known}
    counts: dict[UUID, Counter[str]] = {id: Counter() for id in snapshot.groups}
    for row in known:
        if row.group_id is not None and row.id not in retried:
            counts[row.group_id][row.status if isinstance(row, Ended) else "open"] += 1
    return {id: (c["open"], c["failed"], c["cancelled"], c.total()) for id, c in counts.items()}
