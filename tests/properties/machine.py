"""Random schedules of everything that can happen to jobs, as a state machine of hypothesis."""

from collections.abc import Awaitable, Callable
from datetime import timedelta
from functools import wraps
from typing import Any
from uuid import UUID, uuid4

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from paddock.jobs import wire
from paddock.jobs.model import GroupId, NewJob
from tests.properties.kinds import BY_NAME, SUBMITTED
from tests.properties.playing import ALL, INVALID, Asked, Held, Play, Raced, finish_item
from tests.properties.world import World

OWNERS = st.sampled_from(["ann", "bob"])
KIND = st.sampled_from(SUBMITTED)
LOCK = st.sampled_from([None, "table-1", "table-2", "table-3"])
PICK = st.integers(0, 1_000)
# The last ones are taken most: what was done long ago seldom matters to what happens next.
RECENT = 12
OUTCOMES = ("done", "again", "transient", "permanent")
WRITE = st.sampled_from(
    ["save", "save no progress", "save nonsense", "release", "release for later", "invalid", *OUTCOMES]
)
WHO = st.sampled_from(["holder", "holder", "holder", "superseded", "cancelled", "anyone"])


def when(condition: Callable[["Paddock"], bool]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Not hypothesis' precondition: who won a race decides what there is, and what is drawn must not depend on that."""

    def decorate(step: Callable[..., None]) -> Callable[..., None]:
        @wraps(step)
        def guarded(machine: "Paddock", **drawn: Any) -> None:
            if condition(machine):
                step(machine, **drawn)

        return guarded

    return decorate


def have_attempts(machine: "Paddock") -> bool:
    return bool(machine.play.attempts)


def have_groups(machine: "Paddock") -> bool:
    return bool(machine.play.model.groups)


def have_ended(machine: "Paddock") -> bool:
    return bool(machine.play.model.ended)


def have_live(machine: "Paddock") -> bool:
    return bool(machine.play.model.live)


class Paddock(RuleBasedStateMachine):
    world: World
    play: Play

    @initialize()
    def begin(self) -> None:
        self.play = Play(self.world, self.world.run(self.world.start()))
        self.run(self.register_one())
        for kind in ("plain", "locking", "timed"):
            self.run(self.play.submit([new_job(kind, "ann", 3, "table-1", 0)]))
            self.run(self.play.new_worker(kind))

    async def register_one(self) -> None:
        await self.play.register()

    def run(self, work: Awaitable[None]) -> None:
        self.world.run(self.play.step(work))

    def teardown(self) -> None:
        if hasattr(self, "play"):
            self.world.run(self.play.drain_down())

    # Picking among what is there.

    def attempt(self, pick: int) -> Held:
        recent = self.play.attempts[-RECENT:]
        return recent[-1 - pick % len(recent)]

    def holder(self, pick: int) -> Held:
        """One that holds its job, if there is one."""
        live = self.play.model.live
        holding = [held for held in self.play.attempts if held.id in live and live[held.id].attempt_id == held.attempt]
        return holding[-1 - pick % len(holding)] if holding else self.attempt(pick)

    def superseded(self, pick: int) -> Held:
        """One whose job another attempt holds now or held after it, if there is one."""
        last, live = {held.id: held for held in self.play.attempts}, self.play.model.live
        late = [held for held in self.play.attempts if last[held.id] is not held][-RECENT:]
        now = [h for h in self.play.attempts if h.id in live and live[h.id].attempt_id not in (None, h.attempt)]
        late = now if now and pick % 3 else late
        return late[-1 - pick % len(late)] if late else self.attempt(pick)

    def cancelled(self, pick: int) -> Held:
        """One whose job was taken from it by a person, if there is one."""
        ended = self.play.model.ended
        gone = [h for h in self.play.attempts if h.id in ended and ended[h.id].status == "cancelled"][-RECENT:]
        return gone[-1 - pick % len(gone)] if gone else self.attempt(pick)

    def one(self, who: str, pick: int) -> Held:
        return {
            "holder": self.holder,
            "superseded": self.superseded,
            "cancelled": self.cancelled,
            "anyone": self.attempt,
        }[who](pick)

    def session(self, pick: int) -> UUID:
        """Mostly one that is alive."""
        model = self.play.model
        alive = [id for id in self.play.sessions if model.sessions[id].expires_at > model.now]
        recent = (alive if alive and pick % 4 else self.play.sessions)[-4:]
        return recent[-1 - pick % len(recent)]

    def job(self, pick: int) -> UUID:
        known = [*self.play.model.ended, *self.play.model.live][-2 * RECENT :]
        return known[-1 - pick % len(known)]

    def group(self, pick: int) -> GroupId:
        known = list(self.play.model.groups)
        return GroupId(known[-1 - pick % len(known)])

    # People.

    @rule(
        kind=KIND,
        owner=OWNERS,
        n=st.integers(1, 3),
        priority=st.integers(1, 4),
        lock=LOCK,
        delay=st.sampled_from([0, 0, 0, 40]),
    )
    def submit(self, kind: str, owner: str, n: int, priority: int, lock: str | None, delay: int) -> None:
        self.run(self.play.submit([new_job(kind, owner, priority, lock, delay) for _ in range(n)]))

    @rule(kind=KIND, lock=LOCK, key=st.sampled_from(["a", "b", "c"]), body=st.sampled_from([b"1", b"1", b"1", b"2"]))
    def submit_with_key(self, kind: str, lock: str | None, key: str, body: bytes) -> None:
        self.run(self.play.submit([new_job(kind, "ann", 3, lock, 0)], key, body))

    @rule(kinds=st.lists(KIND, max_size=3), sealed=st.booleans(), final=st.sampled_from([False, False, True]))
    def make_group(self, kinds: list[str], sealed: bool, final: bool) -> None:
        jobs = [new_job(kind, "ann", 3, None, 0) for kind in kinds]
        self.run(self.play.make_group(jobs, sealed=sealed, final=final))

    @rule(pick=PICK, kind=KIND, lock=LOCK)
    @when(have_groups)
    def submit_to_group(self, pick: int, kind: str, lock: str | None) -> None:
        job = NewJob(kind, {"lock": lock}, owner="ann", group_id=self.group(pick))
        self.run(self.play.submit([job]))

    @rule(pick=PICK)
    @when(have_groups)
    def seal(self, pick: int) -> None:
        self.run(self.play.seal(self.group(pick)))

    @rule(picks=st.lists(PICK, min_size=1, max_size=3), running=st.booleans())
    @when(have_live)
    def cancel(self, picks: list[int], running: bool) -> None:
        live = list(self.play.model.live)
        if running and self.play.attempts:
            live = [self.holder(picks[0]).id]
        self.run(self.play.cancel([live[pick % len(live)] for pick in picks]))

    @rule(pick=PICK)
    @when(have_ended)
    def retry(self, pick: int) -> None:
        ended = list(self.play.model.ended)
        self.run(self.play.retry(ended[-1 - pick % len(ended)]))

    @rule(pick=PICK)
    @when(lambda self: have_live(self) or have_ended(self))
    def run_now(self, pick: int) -> None:
        self.run(self.play.run_now(self.job(pick)))

    @rule(what=st.sampled_from(["drain", "pause", "quiet", "hooks"]), kind=KIND, pick=PICK, on=st.sampled_from([1, 0]))
    def operate(self, what: str, kind: str, pick: int, on: int) -> None:
        if what == "drain":
            self.run(self.play.drain(bool(on)))
        elif what == "pause":
            self.run(self.play.pause(kind, bool(on)))
        elif what == "quiet":
            self.run(self.play.quiet(self.session(pick), bool(on)))
        else:
            self.run(self.play.switch_hooks(end=bool(on and pick % 3), group=bool(on and pick % 2)))

    @rule(
        owner=OWNERS,
        all_owners=st.booleans(),
        types=st.sampled_from([("*",), ("job.*",), ("job.failed", "job.cancelled"), ("toy.made",)]),
    )
    def subscribe(self, owner: str, all_owners: bool, types: tuple[str, ...]) -> None:
        if len(self.play.model.webhooks) < 3:
            self.run(self.play.subscribe(owner, all_owners, types))
        else:
            self.run(self.play.unsubscribe(self.play.model.webhooks[-1]))

    # Workers.

    @rule()
    def register(self) -> None:
        self.run(self.register_one())

    @rule(
        pick=PICK,
        limit=st.integers(1, 6),
        submitted=st.sampled_from([None, None, 0, 2]),
        kinds=st.sampled_from([ALL, ALL, ("plain", "timed"), ("serial", "locking", "webhook")]),
        lost=st.sampled_from([False, False, False, True]),
        again=st.booleans(),
    )
    def claim(
        self, pick: int, limit: int, submitted: int | None, kinds: tuple[str, ...], lost: bool, again: bool
    ) -> None:
        asked = Asked(self.session(pick), uuid4(), kinds, limit, submitted)
        self.play.claims.append(asked)
        self.run(self.play.claim(asked, answer_lost=lost))
        if again:
            self.run(self.play.claim(asked))

    @rule(kind=st.sampled_from([*ALL, "locking", "locking", "timed"]), n=st.integers(1, 3), lock=LOCK)
    def a_worker_for(self, kind: str, n: int, lock: str | None) -> None:
        """A new worker that takes what there is of one kind, after more of it came in."""
        if kind in SUBMITTED:
            self.run(self.play.submit([new_job(kind, "bob", 3, lock, 0) for _ in range(n)]))
        self.run(self.play.new_worker(kind))

    @rule(pick=PICK)
    @when(lambda self: bool(self.play.claims))
    def claim_again(self, pick: int) -> None:
        recent = self.play.claims[-4:]
        self.run(self.play.claim(recent[-1 - pick % len(recent)]))

    @rule(who=WHO, pick=PICK, what=WRITE)
    @when(have_attempts)
    def write(self, who: str, pick: int, what: str) -> None:
        self._write(what, self.one(who, pick))

    def _write(self, what: str, held: Held) -> None:
        play = self.play
        work: dict[str, Callable[[], Awaitable[None]]] = {
            "save": lambda: play.save(held, {"saved": len(play.writes)}),
            "save no progress": lambda: play.save(held, {"noted": len(play.writes)}, progress=False),
            "save nonsense": lambda: play.save(held, "not an object"),
            "release": lambda: play.release(held, 0),
            "release for later": lambda: play.release(held, 5),
            "invalid": lambda: play.finish([finish_item(held, "done", result=INVALID)]),
        }
        self.run(work[what]() if what in work else play.finish([finish_item(held, what)]))

    @rule(pick=PICK)
    @when(have_attempts)
    def save_by_all_attempts_of_one_job(self, pick: int) -> None:
        self.run(self.play.save_together(self.all_attempts_of(self.superseded(pick)), {"late": 1}))

    @rule(
        who=WHO,
        pick=PICK,
        outcome=st.sampled_from(OUTCOMES),
        delay=st.sampled_from([None, None, 0, 50]),
        waiting_on=st.sampled_from([None, "trino"]),
        saved=st.sampled_from([None, {"turn": 1}]),
        progress=st.booleans(),
        budget=st.sampled_from(["work", "work", "cluster"]),
        unclassified=st.booleans(),
    )
    @when(have_attempts)
    def finish(
        self,
        who: str,
        pick: int,
        outcome: str,
        delay: float | None,
        waiting_on: str | None,
        saved: dict[str, int] | None,
        progress: bool,
        budget: str,
        unclassified: bool,
    ) -> None:
        of_outcome: dict[str, dict[str, Any]] = {
            "again": {"delay_seconds": delay, "waiting_on": waiting_on, "saved": saved, "progress": progress},
            "transient": {"delay_seconds": delay, "budget": budget, "unclassified": unclassified},
        }
        fields = of_outcome.get(outcome, {})
        self.run(self.play.finish([finish_item(self.one(who, pick), outcome, **fields)]))

    @rule(pick=PICK, kind=KIND, lock=LOCK, event=st.booleans(), follow_ups=st.integers(0, 1))
    @when(have_attempts)
    def done_with_more(self, pick: int, kind: str, lock: str | None, event: bool, follow_ups: int) -> None:
        held = self.holder(pick)
        item = finish_item(
            held,
            "done",
            events=[wire.Event(type="toy.made", subject=str(held.attempt))] if event else [],
            follow_ups=[wire.FollowUp(kind=kind, payload={"lock": lock}) for _ in range(follow_ups)],
        )
        self.run(self.play.finish([item]))

    @rule(pick=PICK, budget=st.sampled_from(["work", "cluster"]), times=st.integers(3, 6), unclassified=st.booleans())
    @when(have_attempts)
    def fail_again_and_again(self, pick: int, budget: str, times: int, unclassified: bool) -> None:
        """Each try notes something first, as a handler does that begins anew: that forgives nothing."""
        held = self.holder(pick)
        for n in range(times):
            self.run(self.play.save(held, {"try": n}, progress=False))
            item = finish_item(held, "transient", delay_seconds=0, budget=budget, unclassified=unclassified)
            self.run(self.play.finish([item]))
            row = self.play.model.live.get(held.id)
            if row is None:
                break
            self.run(self.play.new_worker(row.kind))
            held = next((h for h in reversed(self.play.attempts) if h.id == held.id), held)

    @rule(pick=PICK, times=st.integers(1, 3))
    @when(have_attempts)
    def die_again_and_again(self, pick: int, times: int) -> None:
        held = self.holder(pick)
        for _ in range(times):
            self.run(self.play.pass_time(125, served=True, beating=0))
            row = self.play.model.live.get(held.id)
            if row is None:
                break
            self.run(self.play.new_worker(row.kind))

    @rule(
        pick=PICK,
        taken=st.sampled_from(["release", "again", "transient", "died"]),
        late=st.lists(WRITE, min_size=1, max_size=3),
    )
    @when(have_attempts)
    def take_over_and_write_late(self, pick: int, taken: str, late: list[str]) -> None:
        """The heart of it: another attempt holds the job, and the one before does not know."""
        play, held = self.play, self.holder(pick)
        if taken == "release":
            self.run(play.release(held, 0))
        elif taken == "died":
            self.run(play.pass_time(125, served=True, beating=0))
        else:
            self.run(play.finish([finish_item(held, taken, delay_seconds=0)]))
        if held.id in play.model.live:
            self.run(play.new_worker(play.model.live[held.id].kind))
        for write in late:
            self._write(write, held)

    @rule(picks=st.lists(st.tuples(PICK, st.sampled_from(OUTCOMES)), min_size=2, max_size=4))
    @when(have_attempts)
    def finish_together(self, picks: list[tuple[int, str]]) -> None:
        items = {(held := self.attempt(pick)).attempt: finish_item(held, outcome) for pick, outcome in picks}
        self.run(self.play.finish(list(items.values())))

    @rule(pick=PICK, outcome=st.sampled_from(OUTCOMES))
    @when(have_attempts)
    def finish_all_attempts_of_one_job(self, pick: int, outcome: str) -> None:
        """One worker may well hold a dead attempt's finish and the living one's, and send them together."""
        several = self.all_attempts_of(self.superseded(pick))
        self.run(self.play.finish([finish_item(held, outcome) for held in several]))

    def all_attempts_of(self, one: Held) -> list[Held]:
        return [held for held in self.play.attempts if held.id == one.id]

    @rule(pick=PICK)
    @when(lambda self: bool(self.play.writes))
    def write_again(self, pick: int) -> None:
        recent = self.play.writes[-3:]
        self.run(recent[-1 - pick % len(recent)]())

    @rule(pick=PICK, omit=st.sampled_from([0, 0, 1, 2, 0xFF]), dying=st.sampled_from([False, False, False, True]))
    def beat(self, pick: int, omit: int, dying: bool) -> None:
        self.run(self.play.beat(self.session(pick), omit=omit, dying=dying))

    # Passes and time.

    @rule(seconds=st.sampled_from([5, 15, 33, 70]), beating=st.integers(0, 15))
    def time_passes(self, seconds: float, beating: int) -> None:
        self.run(self.play.pass_time(seconds, served=True, beating=beating))

    @rule(seconds=st.sampled_from([2, 12, 45, 130, 400, 900]))
    def outage(self, seconds: float) -> None:
        self.run(self.play.pass_time(seconds, served=False, beating=0))

    @rule(seconds=st.sampled_from([125, 160, 220, 520]))
    def time_runs_out(self, seconds: float) -> None:
        """For handlers whose workers are well and do not stop them."""
        self.run(self.play.pass_time(seconds, served=True, beating=15))
        self.run(self.play.keep_timeouts())

    @rule(what=st.sampled_from(["rescue", "keep_timeouts", "repeat_hooks"]))
    def tick(self, what: str) -> None:
        play = self.play
        self.run(
            {"rescue": play.rescue, "keep_timeouts": play.keep_timeouts, "repeat_hooks": play.repeat_hooks}[what]()
        )

    # Races.

    @rule(
        picks=st.lists(PICK, min_size=1, max_size=3),
        outcomes=st.lists(st.sampled_from(OUTCOMES), min_size=4, max_size=4),
        others=st.sets(st.sampled_from(["cancel", "release", "rescue", "rescue", "claim", "timeouts"]), max_size=3),
    )
    @when(have_attempts)
    def race_to_end(self, picks: list[int], outcomes: list[str], others: set[str]) -> None:
        play, several = self.play, {(held := self.holder(pick)).attempt: held for pick in picks}
        several |= {(held := self.superseded(picks[0])).attempt: held}
        raced = [play.raced_finish(held, outcome) for held, outcome in zip(several.values(), outcomes, strict=False)]
        first = next(iter(several.values()))
        raced += [self._other(other, first) for other in sorted(others)]
        self.run(play.race(raced))

    def _other(self, what: str, held: Held) -> Raced:
        play = self.play
        return {
            "cancel": lambda: play.raced_cancel(held.id),
            "release": lambda: play.raced_release(held),
            "rescue": play.raced_rescue,
            "claim": lambda: play.raced_claim(self.session(0)),
            "timeouts": play.raced_timeouts,
        }[what]()

    @rule(n=st.integers(2, 3), kind=KIND, lock=LOCK, key=st.sampled_from([None, "r1", "r2"]))
    def race_to_submit(self, n: int, kind: str, lock: str | None, key: str | None) -> None:
        job = new_job(kind, "bob", 3, lock, 0)
        self.run(self.play.race([self.play.raced_submit(job, key) for _ in range(n)]))

    @rule(n=st.integers(2, 3))
    def race_to_claim(self, n: int) -> None:
        self.run(self.play.race([self.play.raced_claim(self.session(m)) for m in range(n)]))

    @rule(pick=PICK, n=st.integers(2, 3))
    @when(have_ended)
    def race_to_retry(self, pick: int, n: int) -> None:
        ended = list(self.play.model.ended)
        self.run(self.play.race([self.play.raced_retry(ended[-1 - pick % len(ended)]) for _ in range(n)]))

    @rule(pick=PICK, outcome=st.sampled_from(["done", "permanent"]))
    @when(have_groups)
    def race_to_end_a_group(self, pick: int, outcome: str) -> None:
        play, group = self.play, self.group(pick)
        live = play.model.live
        members = [h for h in play.attempts if h.id in live and live[h.id].group_id == group][-3:]
        raced = [play.raced_finish(held, outcome) for held in members]
        self.run(play.race([*raced, play.raced_seal(group)]))


def new_job(kind: str, owner: str, priority: int, lock: str | None, delay: float) -> NewJob:
    lock = lock if BY_NAME[kind].lock_key is not None else None
    return NewJob(kind, {"lock": lock}, owner=owner, priority=priority, delay=timedelta(seconds=delay))
