"""What a contender is: the same few questions, put to the floor, to each peer and to ours."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Protocol

from bench.environment import Database, Env, Usage


@dataclass(frozen=True)
class Load:
    """No-op jobs to drain: all are in the queue before the clock starts."""

    jobs: int
    batch: int = 100
    in_flight: int = 2
    payload_bytes: int = 100


@dataclass(frozen=True)
class Drained:
    """`seconds` runs from the word to go until the finish of the last job has been acknowledged."""

    jobs: int
    seconds: float
    usage: Usage

    @property
    def rate(self) -> float:
        return self.jobs / self.seconds

    @property
    def cpu_us(self) -> float:
        return 1e6 * self.usage.cpu / self.jobs

    @property
    def wal_bytes(self) -> float:
        return self.usage.wal_bytes / self.jobs


@dataclass(frozen=True)
class Trickle:
    """Single jobs at random (exponential) intervals, for enqueue-to-start latency."""

    samples: int
    per_second: float = 40.0
    payload_bytes: int = 100


class Churn(Protocol):
    """A started system through which one slice of jobs after another is sent."""

    @property
    def control_pids(self) -> tuple[int, ...]: ...

    @property
    def worker_pids(self) -> tuple[int, ...]: ...

    async def run(self, jobs: int) -> None:
        """Enqueues that many and returns when the last is finished."""
        ...


Drain = Callable[[Env, Database, Load], Awaitable[Drained]]
Latency = Callable[[Env, Database, Trickle], Awaitable[list[float]]]
OpenChurn = Callable[[Env, Database, Load], AbstractAsyncContextManager[Churn]]


@dataclass(frozen=True)
class Contender:
    name: str
    drain: Drain
    # A slow peer drains fewer jobs, so that a round takes each of them about as long.
    share_of_jobs: float = 1.0


def payload(size: int) -> str:
    """JSON of about `size` bytes."""
    return '{"filler": "' + "x" * max(0, size - 14) + '"}'


async def trickled(trickle: Trickle, enqueue: Callable[[int], Awaitable[object]]) -> dict[int, int]:
    """Calls `enqueue(sequence)` at random intervals; answers when each call was *made* (monotonic ns, which all
    processes of one machine share). A slow call delays the next: at low load that is rare, and it favours nobody."""
    random_source = random.Random(1)
    sent: dict[int, int] = {}
    for sequence in range(trickle.samples):
        await asyncio.sleep(random_source.expovariate(trickle.per_second))
        sent[sequence] = time.monotonic_ns()
        await enqueue(sequence)
    return sent


def waits(sent: dict[int, int], started: dict[int, int]) -> list[float]:
    """Seconds from the enqueue call to the start of the handler, every sample accounted for."""
    if sent.keys() != started.keys():
        raise RuntimeError(f"{len(sent)} jobs were enqueued but {len(started)} started.")
    return [(started[sequence] - at) / 1e9 for sequence, at in sent.items()]
