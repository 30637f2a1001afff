"""Ten clients, each enqueueing one job per request: what the notifier and idempotency keys cost the write path."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass

from bench import paddock_peer
from bench.environment import Env
from bench.figures import Figure, at_least, missing, shown

CLIENTS = 10
GOAL = 0.8


@dataclass(frozen=True)
class Enqueued:
    rate: float
    cpu_us: float


async def enqueued(env: Env, *, bare: bool, seconds: float) -> Enqueued:
    async with (
        env.database("enqueue") as database,
        paddock_peer.enqueue_target(env, database, clients=CLIENTS, bare=bare) as target,
    ):
        for client in range(CLIENTS):
            await target.enqueue(client)

        async def until(end: float, client: int) -> int:
            requests = 0
            while time.perf_counter() < end:
                await target.enqueue(client)
                requests += 1
            return requests

        async with env.measure(target.control_pids) as measurement:
            end = time.perf_counter() + seconds
            requests = sum(await asyncio.gather(*(until(end, client) for client in range(CLIENTS))))
    usage = measurement.usage
    return Enqueued(requests / usage.seconds, 1e6 * usage.cpu / requests)


async def run(env: Env) -> list[Figure]:
    name = f"{CLIENTS} clients, full / bare"
    full: list[Enqueued] = []
    bare: list[Enqueued] = []
    try:
        for number in range(2 if env.quick else 5):
            order = (False, True) if number % 2 == 0 else (True, False)
            for is_bare in order:
                measured = await enqueued(env, bare=is_bare, seconds=2 if env.quick else 6)
                (bare if is_bare else full).append(measured)
    except NotImplementedError:
        return [missing(name, "x", f">= {GOAL:g} x")]
    return [
        at_least(name, [mine.rate / theirs.rate for mine, theirs in zip(full, bare, strict=True)], GOAL),
        shown("full: rate", [measured.rate for measured in full], "jobs/s"),
        shown("bare: rate", [measured.rate for measured in bare], "jobs/s"),
        shown("full: CPU of PostgreSQL and serve", [measured.cpu_us for measured in full], "us/job"),
        shown("bare: CPU of PostgreSQL and serve", [measured.cpu_us for measured in bare], "us/job"),
    ]
