"""The players: each step asks the core and the model the same and compares the answers.

Nobody here is well-behaved: workers forget answers, write late and twice, stop beating, and race each other.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, TypeVar
from uuid import UUID, uuid4

from paddock.jobs import grouping, rescuing, wire
from paddock.jobs.core import Core, DirectLink
from paddock.jobs.enqueueing import IdempotencyKey
from paddock.jobs.errors import Refused
from paddock.jobs.model import GroupId, JobId, NewJob, SessionId
from tests.properties.checking import check_invariants, check_model
from tests.properties.kinds import BY_NAME, Switches
from tests.properties.model import Key, Model, Session, Webhook, canonical
from tests.properties.rows import GroupRow, Live
from tests.properties.world import World

T = TypeVar("T")
ALL = tuple(BY_NAME)
ROUTE = "/api/jobs"
# No round of the drain-down ends fewer jobs than one per serial kind; a run makes far fewer jobs than this.
MOST_ROUNDS = 400


@dataclass(frozen=True)
class Held:
    """An attempt its worker knows of, whether it still holds its job or not."""

    id: UUID
    attempt: UUID
    session: UUID

    @property
    def pair(self) -> tuple[UUID, UUID]:
        return (self.id, self.attempt)


@dataclass(frozen=True)
class Asked:
    """A claim, kept so that it can be repeated."""

    session: UUID
    claim_id: UUID
    kinds: tuple[str, ...]
    limit: int
    submitted_limit: int | None


@dataclass
class Play:
    world: World
    model: Model
    sessions: list[UUID] = field(default_factory=list)
    attempts: list[Held] = field(default_factory=list)
    claims: list[Asked] = field(default_factory=list)
    # Writes that can be sent again.
    writes: list[Callable[[], Awaitable[None]]] = field(default_factory=list)
    turn: int = 0

    @property
    def core(self) -> Core:
        """The replicas take turns."""
        self.turn += 1
        return self.world.cores[self.turn % 2]

    @property
    def link(self) -> DirectLink:
        return self.core.link()

    async def step(self, work: Awaitable[None]) -> None:
        self.world.steps += 1
        await self.world.advance(self.model, 0.001)
        await work
        await self.check()

    async def check(self) -> None:
        snapshot = await self.world.look()
        check_invariants(self.model, snapshot)
        check_model(self.model, snapshot)

    # People.

    async def submit(self, jobs: Sequence[NewJob], key: str | None = None, body: bytes = b"") -> None:
        owner = jobs[0].owner
        idempotency = None if key is None else IdempotencyKey(owner, ROUTE, key, body)
        earlier = None if key is None else self.model.earlier(owner, key)
        expected = self.model.refusal(jobs, public=True)
        if earlier is not None:
            expected = None if earlier.body == body else "idempotency_key_reused"
        submitted, refusal = await asked(self.core.submit(jobs, idempotency=idempotency))
        assert refusal == expected, (refusal, expected)
        self.world.seen[f"submit: {refusal or 'repeated' if earlier else refusal or 'accepted'}"] += 1
        if submitted is None:
            return
        ids = [job.id for job in submitted.jobs]
        assert submitted.repeated == (earlier is not None)
        if earlier is not None:
            assert sorted(ids) == sorted(earlier.jobs), "a repeated submission made other jobs"
            return
        self.model.enqueue(ids, jobs)
        if key is not None:
            self.model.keys[(owner, key)] = Key(body, [*ids], self.model.now)

    async def make_group(self, jobs: Sequence[NewJob], *, sealed: bool, final: bool) -> None:
        core = self.core
        async with core.db.transaction() as tx:
            id = await grouping.create(tx, "member", "ann", {"final": final})
            members = [NewJob(job.kind, job.payload, owner=job.owner, group_id=id) for job in jobs]
            ids = await core.enqueue(tx, members)
            self.model.groups[id] = GroupRow(id)
            if final:
                self.model.final_wanted.add(id)
            self.model.enqueue(ids, members)
            if sealed:
                await grouping.seal(core, tx, id)
                self.model.seal(id)

    async def seal(self, id: UUID) -> None:
        core = self.core
        async with core.db.transaction() as tx:
            await grouping.seal(core, tx, GroupId(id))
        self.model.seal(id)

    async def cancel(self, ids: Sequence[UUID]) -> None:
        answers = await self.core.cancel([JobId(id) for id in ids], actor="ann", reason="enough")
        for id in dict.fromkeys(ids):
            expected = self.model.cancel(id)
            assert answers[JobId(id)] == expected, (answers[JobId(id)], expected)

    async def retry(self, id: UUID) -> None:
        job = self._again(id)
        expected = self.model.retry_refusal(id, job)
        new, refusal = await asked(self.core.retry(JobId(id), actor="ann"))
        assert refusal == expected, (refusal, expected)
        self.world.seen[f"retry: {refusal or 'accepted'}"] += 1
        if new is not None:
            self.model.retry(id, new.id, job)

    def _again(self, id: UUID) -> NewJob:
        old = self.model.ended.get(id)
        if old is None:
            return NewJob("plain", {})
        group = None if old.group_id is None else GroupId(old.group_id)
        payload = {"lock": old.lock_key}
        return NewJob(old.kind, payload, owner=old.owner, priority=old.priority, group_id=group, retry_of=JobId(id))

    async def run_now(self, id: UUID) -> None:
        expected = self.model.run_now(id)
        _, refusal = await asked(self.core.run_now(JobId(id), actor="ann"))
        assert refusal == expected, (refusal, expected)

    async def drain(self, enabled: bool) -> None:
        await self.core.drain(enabled, actor="ops")
        self.model.drained = enabled

    async def pause(self, kind: str, paused: bool) -> None:
        await (self.core.pause if paused else self.core.resume)(kind, actor="ops")
        for core in self.world.cores:
            core.look_again()
        (self.model.paused.add if paused else self.model.paused.discard)(kind)

    async def quiet(self, session: UUID, quiet: bool) -> None:
        await self.core.quiet(SessionId(session), actor="ops", quiet=quiet)
        self.model.sessions[session].quiet = quiet

    async def subscribe(self, owner: str, all_owners: bool, types: tuple[str, ...]) -> None:
        id = await self.world.connection.fetchval(
            "INSERT INTO webhooks (owner, all_owners, url, types, secret) VALUES ($1, $2, 'http://x', $3, 's') RETURNING id",
            owner,
            all_owners,
            list(types),
        )
        self.model.webhooks.append(Webhook(id, owner, all_owners, types))

    async def unsubscribe(self, webhook: Webhook) -> None:
        await self.world.connection.execute("UPDATE webhooks SET active = false WHERE id = $1", webhook.id)
        webhook.active = False

    async def switch_hooks(self, *, end: bool, group: bool) -> None:
        Switches.end_hook_raises, Switches.group_hook_raises = end, group

    # Workers.

    async def register(self) -> UUID:
        message = wire.Register(worker_id=f"worker-{len(self.sessions)}", version="test", kinds=list(ALL))
        session = (await self.link.register(message)).session
        self.sessions.append(session)
        self.model.sessions[session] = Session(self.model.now + timedelta(seconds=60))
        return session

    async def new_worker(self, kind: str) -> None:
        session = await self.register()
        await self.claim(Asked(session, uuid4(), (kind,), 6, None))

    async def claim(self, asked: Asked, *, answer_lost: bool = False) -> None:
        repeated = self.model.claimed_as(asked.session, asked.claim_id)
        jobs = await self._claim(asked)
        self.world.seen["claim: repeated" if repeated else f"claim: {'some' if jobs else 'none'}"] += 1
        if repeated:
            got = {job.id: job.attempt_id for job in jobs}
            assert got == {row.id: row.attempt_id for row in repeated}, "a repeated claim got something else"
        else:
            self._check_claim(asked, jobs)
            for job in jobs:
                self.model.claim(asked.session, asked.claim_id, job.id, job.attempt_id)
        if not answer_lost:
            self._know(asked.session, jobs)

    async def _claim(self, asked: Asked) -> list[wire.ClaimedJob]:
        message = wire.Claim(
            session=asked.session,
            claim_id=asked.claim_id,
            kinds=list(asked.kinds),
            limit=asked.limit,
            submitted_limit=asked.submitted_limit,
        )
        return (await self.link.claim(message)).jobs

    def _know(self, session: UUID, jobs: Sequence[wire.ClaimedJob]) -> None:
        known = {held.attempt for held in self.attempts}
        self.attempts += [Held(job.id, job.attempt_id, session) for job in jobs if job.attempt_id not in known]

    def _check_claim(self, asked: Asked, jobs: Sequence[wire.ClaimedJob]) -> None:
        """Only what may be taken, as much as there is, the most urgent first (or, every tenth time, the oldest)."""
        takeable = self.model.claimable(asked.session, asked.kinds)
        taken = [self.model.live[job.id] for job in jobs]
        assert all(row in takeable for row in taken), "took what may not be taken"
        shared = asked.submitted_limit is None
        for limit, may in (
            [(asked.limit, takeable)]
            if shared
            else [
                (asked.limit, [row for row in takeable if row.lane]),
                (asked.submitted_limit or 0, [row for row in takeable if not row.lane]),
            ]
        ):
            got = [row for row in taken if row in may]
            # One of a serial kind is taken whichever lane it stands in; the others may cost the claim a place each.
            spare = max(0, sum(BY_NAME[row.kind].serial for row in may) - 1)
            most = min(limit, len(may) - spare)
            assert len(got) <= limit
            if shared:
                assert max(min(most, 1), most - spare) <= len(got) <= most, (
                    f"took {len(got)} of {len(may)}, limit {limit}"
                )
            rest = [row for row in may if row not in got and not BY_NAME[row.kind].serial]
            assert _ordered(got, rest, by_lane=True) or _ordered(got, rest, by_lane=False), "took the wrong ones"

    async def beat(self, session: UUID, *, omit: int = 0, dying: bool = False) -> None:
        held = [held.pair for held in self.attempts if held.session == session][-8:]
        listed = [pair for n, pair in enumerate(held) if not omit >> n & 1]
        message = wire.Beat(holding=[wire.Held(id=id, attempt_id=attempt) for id, attempt in listed], dying=dying)
        answer = await self.link.beat(session, message)
        self._same("beat", answer.verdicts, self.model.beat(session, listed, dying=dying))

    async def save(self, held: Held, saved: dict[str, int] | str, *, progress: bool = True) -> None:
        async def write() -> None:
            item = wire.SaveItem(id=held.id, attempt_id=held.attempt, saved=saved, progress=progress)
            answers = (await self.link.save(wire.Save(items=[item]))).verdicts
            self._count_rivals("save", [held.pair])
            expected = "invalid"
            if isinstance(saved, dict):
                expected = self.model.save(held.id, held.attempt, canonical(saved), progress=progress)
            self._same("save", answers, [expected])

        await self._write(write)

    async def save_together(self, several: Sequence[Held], saved: dict[str, int]) -> None:
        items = [wire.SaveItem(id=held.id, attempt_id=held.attempt, saved=saved) for held in several]
        answers = (await self.link.save(wire.Save(items=items))).verdicts
        self._same("save", answers, [self.model.save(held.id, held.attempt, canonical(saved)) for held in several])

    async def release(self, held: Held, delay: float) -> None:
        async def write() -> None:
            item = wire.ReleaseItem(id=held.id, attempt_id=held.attempt, delay_seconds=delay)
            answers = (await self.link.release(wire.Release(items=[item]))).verdicts
            self._same("release", answers, [self.model.release(held.id, held.attempt, timedelta(seconds=delay))])

        await self._write(write)

    async def finish(self, items: Sequence[wire.FinishItem]) -> None:
        async def write() -> None:
            answers = (await self.link.finish(wire.Finish(items=list(items)))).verdicts
            self._count_rivals("finish", [(item.id, item.attempt_id) for item in items])
            self._same("finish", answers, self._finished(items))

        await self._write(write)

    def _finished(self, items: Sequence[wire.FinishItem]) -> list[str]:
        """Who holds its job is heard first; what the others are told depends on what became of it."""
        verdicts: dict[UUID, str] = {}
        for item in sorted(items, key=lambda item: not self._holds(item)):
            verdicts[item.attempt_id] = self.model.finish(item, invalid=item.result == INVALID)
        return [verdicts[item.attempt_id] for item in items]

    def _holds(self, item: wire.FinishItem) -> bool:
        row = self.model.live.get(item.id)
        return row is not None and row.attempt_id == item.attempt_id

    def _count_rivals(self, operation: str, several: Iterable[tuple[UUID, UUID]]) -> None:
        for id, attempt in several:
            row = self.model.live.get(id)
            self.world.seen[f"{operation} against a holder"] += row is not None and row.attempt_id not in (
                None,
                attempt,
            )

    def _same(self, operation: str, answers: Sequence[wire.ItemVerdict], expected: Sequence[str]) -> None:
        assert all(a.verdict in e.split("|") for a, e in zip(answers, expected, strict=True)), (answers, expected)
        self.world.seen.update(f"{operation}: {answer.verdict}" for answer in answers)

    async def _write(self, write: Callable[[], Awaitable[None]]) -> None:
        self.writes.append(write)
        await write()

    # Passes and time.

    async def rescue(self) -> None:
        rescued = await rescuing.rescue(self.core)
        self.model.rescue()
        self.world.seen.update(
            {
                "rescue: given back": rescued.given_back,
                "rescue: lost": rescued.failed,
                "rescue: cleanups": rescued.cleanups,
            }
        )

    async def keep_timeouts(self) -> None:
        await self.core.keep_timeouts()
        self.model.keep_timeouts()

    async def repeat_hooks(self) -> None:
        assert await self.core.finish_group_hooks() == self.model.repeat_hooks()

    async def pass_time(self, seconds: float, *, served: bool, beating: int) -> None:
        """Served: a replica ticks all the while, and the workers in `beating` beat. Otherwise: an outage."""
        while seconds > 0:
            pause = min(seconds, 9) if served else seconds
            await self.world.advance(self.model, pause)
            seconds -= pause
            if served:
                for n, session in enumerate(self.sessions[-4:]):
                    if beating >> n & 1:
                        await self.beat(session)
                await self.rescue()

    # Races.

    async def race(self, several: Sequence["Raced"]) -> None:
        """At once, over both replicas. Who wins is open; that one does, and nobody else, is not."""
        answers = await asyncio.gather(*(raced.work for raced in several), return_exceptions=True)
        for answer in answers:
            assert answer is None or isinstance(answer, str | list | Refused), repr(answer)
        snapshot = await self.world.look()
        check_invariants(self.model, snapshot)
        winners: dict[UUID, tuple[str, UUID | None]] = {}
        for raced, answer in zip(several, answers, strict=True):
            if raced.id is None or answer not in ("accepted", "cancelled") or raced.ends is None:
                continue
            if answer == "cancelled" and raced.attempt is not None:
                continue
            assert raced.id not in winners, "I1: two writers ended one job"
            winners[raced.id] = (raced.ends, raced.attempt)
        for id, (status, attempt) in winners.items():
            assert (snapshot.ended[id].status, snapshot.ended[id].ended_by) == (status, attempt)
        if any(raced.ticks for raced in several):
            self.model.stamp()
        self.model.adopt(snapshot)

    def raced_finish(self, held: Held, outcome: str) -> "Raced":
        item = finish_item(held, outcome)

        async def work() -> str:
            [answer] = (await self.link.finish(wire.Finish(items=[item]))).verdicts
            if answer.verdict == "accepted":
                self.model.asked[held.attempt] = outcome
            return answer.verdict

        # An exhausted failure ends the job too, but whether it does depends on the order.
        return Raced(work(), held.id, held.attempt, {"done": "completed", "permanent": "failed"}.get(outcome))

    def raced_release(self, held: Held) -> "Raced":
        async def work() -> str:
            item = wire.ReleaseItem(id=held.id, attempt_id=held.attempt)
            [answer] = (await self.link.release(wire.Release(items=[item]))).verdicts
            if answer.verdict == "accepted":
                self.model.asked[held.attempt] = "release"
            return answer.verdict

        return Raced(work(), held.id, held.attempt)

    def raced_cancel(self, id: UUID) -> "Raced":
        async def work() -> str:
            return (await self.core.cancel([JobId(id)], actor="ann"))[JobId(id)]

        return Raced(work(), id, None, "cancelled")

    def raced_claim(self, session: UUID) -> "Raced":
        asked = Asked(session, uuid4(), ALL, 3, None)

        async def work() -> None:
            self._know(session, await self._claim(asked))

        return Raced(work())

    def raced_submit(self, job: NewJob, key: str | None) -> "Raced":
        idempotency = None if key is None else IdempotencyKey(job.owner, ROUTE, key, b"raced")

        async def work() -> list[UUID]:
            ids: list[UUID] = [found.id for found in (await self.core.submit([job], idempotency=idempotency)).jobs]
            if key is not None:
                known = self.model.keys.setdefault((job.owner, key), Key(b"raced", ids, self.model.now))
                assert known.jobs == ids, "two submissions with one key made two jobs"
            return ids

        return Raced(work())

    def raced_retry(self, id: UUID) -> "Raced":
        async def work() -> None:
            await self.core.retry(JobId(id), actor="ann")

        return Raced(work())

    def raced_rescue(self) -> "Raced":
        async def work() -> None:
            await rescuing.rescue(self.core)

        return Raced(work(), ticks=True)

    def raced_timeouts(self) -> "Raced":
        async def work() -> None:
            await self.core.keep_timeouts()

        return Raced(work(), ticks=True)

    def raced_seal(self, id: UUID) -> "Raced":
        async def work() -> None:
            core = self.core
            async with core.db.transaction() as tx:
                await grouping.seal(core, tx, GroupId(id))

        return Raced(work())

    # The end of a run.

    async def drain_down(self) -> None:
        """I2: once somebody healthy serves and works, everything comes to its end in bounded steps."""
        await self.switch_hooks(end=False, group=False)
        for kind in sorted(self.model.paused):
            await self.pause(kind, False)
        for group in list(self.model.groups):
            await self.seal(group)
        # All sessions die: their workers are gone, and patience runs out too.
        await self.pass_time(9 * 20, served=True, beating=0)
        await self.repeat_hooks()
        await self.check()
        for _ in range(MOST_ROUNDS):
            if not self.model.live:
                break
            await self._work_off()
        await self.check()
        assert not self.model.live, f"I2: never ended: {self.model.live}"
        for old in self.model.ended.values():
            self.world.seen[f"{'cleanup' if old.cleanup_of else 'job'} {old.status}: {old.error_code or ''}"] += 1
            self.world.seen["lock passed"] += old.cleanup_of is not None and old.lock_key is not None
        self.world.seen["group ended"] += len(self.model.groups)
        self.world.seen["delivery"] += sum(len(told) for _, _, told in self.model.events)
        assert all(group.ended and not group.hook_due for group in self.model.groups.values())

    async def _work_off(self) -> None:
        await self.world.advance(self.model, 30 * 60)
        for core in self.world.cores:  # as it does every few seconds
            core.claims._sweep_due = 0.0
            await core.claims.sweep()
        session = await self.register()
        asked = Asked(session, uuid4(), ALL, 100, None)
        known = len(self.attempts)
        await self.claim(asked)
        for held in self.attempts[known:]:
            await self.finish([finish_item(held, "done")])
        snapshot = await self.world.look()
        check_model(self.model, snapshot)


@dataclass
class Raced:
    """One of several things done at once. `ends`: the status it gives its job if it wins."""

    work: Awaitable[Any]
    id: UUID | None = None
    attempt: UUID | None = None
    ends: str | None = None
    ticks: bool = False


INVALID = "\0"


async def asked(work: Awaitable[T]) -> tuple[T | None, str | None]:
    """What was answered, or the code it was refused with."""
    try:
        return await work, None
    except Refused as refused:
        return None, refused.code


def finish_item(held: Held, outcome: str, **fields: Any) -> wire.FinishItem:
    if outcome in ("transient", "permanent"):
        fields.setdefault("error", wire.Error(code="broken", message="It broke."))
    return wire.FinishItem(id=held.id, attempt_id=held.attempt, outcome=outcome, **fields)  # type: ignore[arg-type]


def _ordered(taken: Sequence[Live], left: Sequence[Live], *, by_lane: bool) -> bool:
    def place(row: Live) -> tuple[Any, ...]:
        return (row.lane if by_lane else 0, row.due_at, row.id)

    return not taken or not left or max(map(place, taken)) < min(map(place, left))
