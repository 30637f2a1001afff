"""Claims that wait for work, and whom to wake for what. A waiter holds no connection."""

import asyncio
import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from uuid import UUID

from paddock.jobs import wire
from paddock.jobs.cursors import Pair

# Jobs that become due within so many seconds of each other share a timer.
TIMER_SLICE = 0.005


@dataclass(eq=False)
class Waiter:
    session: UUID
    claim_id: UUID
    # The kinds of which it may take jobs in lanes 1 to 4, and in lane 0.
    kinds: frozenset[str]
    submitted_kinds: frozenset[str]
    # It waits for certain jobs only: woken by all of their kinds, but no wake-up is spent on it.
    choosy: bool = False
    # Its session may take nothing for now: no wake-up is spent on it either.
    barred: bool = False
    woken: asyncio.Event = field(default_factory=asyncio.Event)
    # What it was woken for and has not looked for since; and whether it has to look for everything.
    wakes: set[Pair] = field(default_factory=set)
    everything: bool = True
    # When something becomes due that nobody may wake it for: by then it looks for everything.
    look_by: float = math.inf
    lost: list[UUID] = field(default_factory=list)
    superseded: bool = False

    @property
    def key(self) -> tuple[UUID, UUID]:
        return (self.session, self.claim_id)

    def takes(self, pair: Pair) -> bool:
        return not self.barred and pair[0] in (self.kinds if pair[1] else self.submitted_kinds)

    def take_wakes(self) -> tuple[set[Pair], bool]:
        """Called before it looks: what becomes due while it looks wakes it again. What it was woken for, and whether it
        has to look for everything all the same: at first, when its time was up, when wake-ups may have been missed."""
        self.woken.clear()
        wakes, self.wakes = self.wakes, set()
        everything, self.everything = self.everything or not wakes, False
        if everything:
            self.look_by = math.inf
        return wakes, everything


class Waiters:
    def __init__(self) -> None:
        self._waiters: dict[tuple[UUID, UUID], Waiter] = {}
        # How many become due in each slice of time: one timer each, however many jobs.
        self.timers: dict[tuple[Pair, int], int] = {}

    def __iter__(self) -> Iterator[Waiter]:
        return iter(self._waiters.values())

    def __len__(self) -> int:
        return len(self._waiters)

    def enter(self, message: wire.Claim, kinds: Collection[str]) -> Waiter:
        roomy = frozenset(kind for kind in kinds if message.limits.get(kind, 1) > 0)
        waiter = Waiter(
            message.session,
            message.claim_id,
            roomy if message.limit > 0 else frozenset(),
            frozenset(kinds) if message.submitted_limit else frozenset(),
            choosy=bool(message.only),
        )
        if message.submitted_limit is None:
            waiter.submitted_kinds = waiter.kinds
        earlier = self._waiters.get(waiter.key)
        if earlier is not None:
            # The same question again: whoever asked first has hung up.
            earlier.superseded = True
            earlier.woken.set()
        self._waiters[waiter.key] = waiter
        return waiter

    def leave(self, waiter: Waiter) -> None:
        if self._waiters.get(waiter.key) is waiter:
            del self._waiters[waiter.key]
        # Woken, and gone without looking again (full, hung up, time is up): the job is for somebody else.
        self.pass_on(waiter.wakes)

    def pass_on(self, wakes: Iterable[Pair]) -> None:
        for pair in wakes:
            self.rouse(pair, 1)

    def rouse(self, pair: Pair, n: int) -> None:
        for waiter in self._waiters.values():
            if not waiter.takes(pair):
                continue
            if waiter.choosy:
                waiter.woken.set()
            elif waiter.woken.is_set():
                # It looks for this too when it looks; but it may have no room for both, so somebody else is woken for it.
                waiter.wakes.add(pair)
            elif n > 0:
                waiter.woken.set()
                waiter.wakes.add(pair)
                n -= 1

    def rouse_all(self) -> None:
        for waiter in self._waiters.values():
            waiter.everything = True
            waiter.woken.set()

    def rouse_later(self, pair: Pair, due_in: float, n: int) -> None:
        loop = asyncio.get_running_loop()
        slice_ = int((loop.time() + due_in) / TIMER_SLICE) + 1
        if (pair, slice_) not in self.timers:
            loop.call_at(slice_ * TIMER_SLICE, self._timer_rang, pair, slice_)
        self.timers[pair, slice_] = self.timers.get((pair, slice_), 0) + n

    def _timer_rang(self, pair: Pair, slice_: int) -> None:
        self.rouse(pair, self.timers.pop((pair, slice_)))

    def cancelled(self, sessions: Mapping[UUID, Sequence[UUID]]) -> None:
        """Tells waiting workers at once which of their attempts are over."""
        for waiter in self._waiters.values():
            if waiter.session in sessions:
                waiter.lost.extend(sessions[waiter.session])
                waiter.woken.set()
