"""A shared cluster that has few places, played in virtual time: how many Jobs ingest makes on it, and how many wait at once.

The queue is the one that workers have (`paddock.ingest.backpressure`); played are the scheduler, the pods, what the workers'
watches show them and when, and the backoff of steps whose Job found no place within its clock.
"""

import asyncio
import heapq
import random
import selectors
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from paddock.ingest.backpressure import LOOK_AGAIN, JobSeen, Queue

# From `09`: a Job that is not scheduled by then was for nothing.
SCHEDULE_CLOCK = 120.0
BACKOFF_FIRST, BACKOFF_CAP, BUDGET = 60.0, 300.0, 50
SCHEDULER_SECONDS = 0.1


class VirtualSelector(selectors.DefaultSelector):
    """Nothing is waited for: where a loop would sleep, its clock jumps."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise RuntimeError("everybody waits for somebody")
        self.now += max(0.0, timeout)
        return super().select(0)


class VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._virtual = VirtualSelector()
        super().__init__(self._virtual)
        # Below it two times are one; a real clock has steps as well.
        self._clock_resolution = 1e-6

    def time(self) -> float:
        return self._virtual.now


@dataclass
class Simulation:
    """What is asked of it, and what was seen."""

    batches: int
    places: int = 10
    workers: int = 4
    slots: int = 40
    seconds: tuple[float, float] = (30.0, 90.0)
    # Whether workers look before they create; otherwise each step only backs off.
    looking: bool = True
    # An autoscaler: nodes of so many places, and how long one takes to come.
    grows_to: int = 0
    node_places: int = 10
    node_seconds: float = 90.0
    # For so long nothing is scheduled.
    closed_until: float = 0.0
    seed: int = 1

    creates: int = 0
    most_unscheduled: int = 0
    given_up: int = 0
    busy_seconds: float = 0.0
    ended_at: float = 0.0
    # When all places were there, and when four fifths of the places were taken after the cluster opened.
    full_at: float | None = None
    recovered_at: float | None = None
    creates_by_hour: dict[int, int] = field(default_factory=dict)
    # Places times their time, while there was work for all of them.
    offered_seconds: float = 0.0

    def run(self) -> "Simulation":
        with asyncio.Runner(loop_factory=VirtualLoop) as runner:
            runner.run(_Cluster(self).play())
        return self

    @property
    def jobs_per_batch(self) -> float:
        return self.creates / self.batches

    @property
    def throughput(self) -> float:
        """Against capacity: the share of the places' time that steps ran."""
        return self.busy_seconds / self.offered_seconds


@dataclass
class _Job:
    step: str
    scheduled: bool = False
    gone: bool = False


class _Worker:
    """What one worker's watch has shown it so far: the truth of a moment ago."""

    def __init__(self) -> None:
        self.known: dict[str, bool] = {}
        self.changed = asyncio.Event()

    def show(self, step: str, scheduled: bool | None) -> None:
        if scheduled is None:
            self.known.pop(step, None)
        else:
            self.known[step] = scheduled
        self.changed.set()

    def look(self) -> list[JobSeen]:
        return [JobSeen(step, scheduled) for step, scheduled in self.known.items()]

    async def tick(self) -> None:
        self.changed.clear()
        try:
            async with asyncio.timeout(LOOK_AGAIN.total_seconds()):
                await self.changed.wait()
        except TimeoutError:
            pass


class _Cluster:
    def __init__(self, asked: Simulation) -> None:
        self.asked = asked
        self.chance = random.Random(asked.seed)
        self.places = asked.places
        self.taken = 0
        self.waiting: deque[tuple[_Job, asyncio.Future[None]]] = deque()
        self.unscheduled = 0
        self.nodes_coming = 0
        self.workers = [_Worker() for _ in range(asked.workers)]
        # Steps that are due, by when; then those that wait for their backoff.
        self.due: list[tuple[float, int, int]] = [(0.0, n, 0) for n in range(asked.batches)]
        self.left = asked.batches
        self.free = asyncio.Condition()

    @property
    def now(self) -> float:
        return asyncio.get_running_loop().time()

    async def play(self) -> None:
        slots = self.asked.slots if self.asked.looking else self.asked.batches
        async with asyncio.TaskGroup() as tasks:
            if self.asked.closed_until:
                tasks.create_task(self._open())
            measuring = asyncio.create_task(self._measure())
            async with asyncio.TaskGroup() as work:
                for worker in self.workers:
                    queue = Queue(worker.look, worker.tick, self.chance.random)
                    for _ in range(slots if self.asked.looking else -(-slots // len(self.workers))):
                        work.create_task(self._slot(queue))
            measuring.cancel()
        self.asked.ended_at = self.now

    async def _slot(self, queue: Queue) -> None:
        """One slot of a worker: a step after the other, those that failed once more when they are due."""
        while self.left:
            if not self.due or self.due[0][0] > self.now:
                wait = self.due[0][0] - self.now if self.due else 5.0
                await asyncio.sleep(min(max(wait, 0.01), 5.0))
                continue
            _, n, failures = heapq.heappop(self.due)
            step = f"{n}"
            if self.asked.looking and not await queue.wait(step, lambda _: None):
                heapq.heappush(self.due, (self.now + 1.0, n, failures))
                continue
            try:
                done = await self._run(step)
            finally:
                queue.leave(step)
            if done:
                self.left -= 1
            elif failures + 1 > BUDGET:
                self.left -= 1
                self.asked.given_up += 1
            else:
                backoff = min(BACKOFF_FIRST * 2**failures, BACKOFF_CAP) * self.chance.uniform(0.9, 1.1)
                heapq.heappush(self.due, (self.now + backoff, n, failures + 1))

    async def _run(self, step: str) -> bool:
        """A Job from its create to its end. False: it found no place within its clock, and was deleted."""
        job = _Job(step)
        self.asked.creates += 1
        hour = int(self.now // 3600)
        self.asked.creates_by_hour[hour] = self.asked.creates_by_hour.get(hour, 0) + 1
        self._show(job)
        placed = asyncio.get_running_loop().create_future()
        self.unscheduled += 1
        self.waiting.append((job, placed))
        self._later(SCHEDULER_SECONDS, self._schedule)
        try:
            async with asyncio.timeout(SCHEDULE_CLOCK):
                await placed
        except TimeoutError:
            self.unscheduled -= 1
            job.gone = True
            self._show(job)
            return False
        seconds = self.chance.uniform(*self.asked.seconds)
        await asyncio.sleep(seconds)
        self.asked.busy_seconds += seconds
        self.taken -= 1
        job.gone = True
        self._show(job)
        self._schedule()
        return True

    def _later(self, seconds: float, call: Callable[..., Any], *arguments: Any) -> None:
        asyncio.get_running_loop().call_later(seconds, call, *arguments)

    def _schedule(self) -> None:
        """In the order of their creation."""
        while self.waiting and self.waiting[0][0].gone:
            self.waiting.popleft()
        if self.now >= self.asked.closed_until:
            while self.waiting and self.taken < self.places:
                job, placed = self.waiting.popleft()
                if not job.gone:
                    job.scheduled = True
                    self.taken += 1
                    self.unscheduled -= 1
                    placed.set_result(None)
                    self._show(job)
        self.asked.most_unscheduled = max(self.asked.most_unscheduled, self.unscheduled)
        self._grow()

    def _grow(self) -> None:
        """As autoscalers do: as many nodes are asked for as the pods that wait would fill."""
        wanted = -(-self.unscheduled // self.asked.node_places)
        while self.nodes_coming < wanted and self._coming < self.asked.grows_to:
            self.nodes_coming += 1
            self._later(self.asked.node_seconds, self._node)

    @property
    def _coming(self) -> int:
        return self.places + self.nodes_coming * self.asked.node_places

    def _node(self) -> None:
        self.nodes_coming -= 1
        self.places += self.asked.node_places
        if self.places >= self.asked.grows_to and self.asked.full_at is None:
            self.asked.full_at = self.now
        self._schedule()

    def _show(self, job: _Job) -> None:
        """Each worker hears of it after a delay of its own."""
        for worker in self.workers:
            self._later(self.chance.uniform(0.02, 0.3), worker.show, job.step, None if job.gone else job.scheduled)

    async def _open(self) -> None:
        await asyncio.sleep(self.asked.closed_until)
        self._schedule()
        while self.taken < 0.8 * self.places:
            await self.workers[0].tick()
        self.asked.recovered_at = self.now - self.asked.closed_until

    async def _measure(self) -> None:
        """What the places could have done, while there was work for all of them."""
        while True:
            await asyncio.sleep(1.0)
            if self.left >= self.places and self.now >= self.asked.closed_until:
                self.asked.offered_seconds += self.places
