"""From an export's POST to the moment at which Trino has its SQL: control plane, worker and Trino in processes of their
own, nothing else to do, one export at a time.

The clock starts before the request is sent, so that accepting it is counted too. Trino is first asked to prove that the
text is one query (the gate); it has the SQL when the export's own statement arrives.
"""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import dataclass
from typing import Any

from bench.environment import Env
from bench.figures import Figure, at_most, percentile, shown
from bench.paddock_processes import Serve, serving, working
from bench.process import contender

GOAL_MS = 50
# The first ones make connections, plans and the worker's tools.
WARM_UP = 10
DONE_WITHIN = 60.0


@dataclass(frozen=True)
class Sample:
    """Milliseconds since the request was sent."""

    accepted: float
    gate: float
    sql: float


async def run(env: Env) -> list[Figure]:
    rounds, samples = (2, 20) if env.quick else (5, 60)
    found = []
    async with contender("bench.trino_server", "flat:10:10") as server:
        url = (await server.expect("ready"))["url"]
        engines = json.dumps({"bench": {"type": "trino", "url": url, "requires_role": False}})
        async with (
            env.database("export_latency") as database,
            serving(database, PADDOCK_ENGINES=engines) as serve,
            working(serve, batch=10, in_flight=1, PADDOCK_ENGINES=engines),
        ):
            exports = Exports(serve, url)
            for _ in range(WARM_UP):
                await exports.one()
            for number in range(rounds):
                found.append([await exports.one() for _ in range(samples)])
                p50 = percentile([sample.sql for sample in found[-1]], 0.5)
                env.say(f"round {number + 1}: p50 {p50:.1f} ms")
    return _figures(found)


class Exports:
    def __init__(self, serve: Serve, trino: str) -> None:
        self._serve, self._trino = serve, trino
        self._number = 0

    async def one(self) -> Sample:
        self._number += 1
        # A text of its own, by which Trino tells it from the others.
        sql = f"SELECT {self._number}, * FROM flat.direct"
        sent = time.monotonic_ns()
        made = await self._serve.ask("POST", "/api/exports", {"engine": "bench", "sql": sql})
        accepted = time.monotonic_ns()
        await self._ended(made["id"])
        [gate, own] = [at for at, asked in await self._asked() if sql in asked]
        return Sample(*((at - sent) / 1e6 for at in (accepted, gate, own)))

    async def _ended(self, id: str) -> None:
        deadline = time.monotonic() + DONE_WITHIN
        while (export := await self._serve.ask("GET", f"/api/exports/{id}"))["status"] in ("pending", "running"):
            if time.monotonic() > deadline:
                raise RuntimeError("The export did not end.")
            await asyncio.sleep(0.1)
        if export["status"] != "completed":
            raise RuntimeError(f"The export ended as {export['status']}: {export['error']}")

    async def _asked(self) -> list[list[Any]]:
        async with self._serve.http.get(f"{self._trino}/asked") as answer:
            found: list[list[Any]] = await answer.json()
            return found


def _figures(rounds: list[list[Sample]]) -> list[Figure]:
    def at(share: float, of: str) -> list[float]:
        return [percentile([getattr(sample, of) for sample in samples], share) for samples in rounds]

    count = sum(map(len, rounds))
    note = f"{count} exports, one after another"
    return [
        at_most("request sent -> Trino has the SQL, p50", at(0.5, "sql"), GOAL_MS, "ms", note=note),
        shown("the same, p99", at(0.99, "sql"), "ms"),
        shown("request sent -> answer read, p50", at(0.5, "accepted"), "ms"),
        shown("request sent -> Trino has the gate's query, p50", at(0.5, "gate"), "ms"),
    ]
