"""The kinds our own runs use, added to Paddock from outside like any package's: by an entry point."""

from __future__ import annotations

import asyncio
import os
import struct
import time
from pathlib import Path

from pydantic import BaseModel

from paddock.jobs.kinds import Kind
from paddock.jobs.outcomes import Outcome, done
from paddock.jobs.turn import Turn

NOTES = "BENCH_NOTES"
NOTE = struct.Struct("=qq")


class Filled(BaseModel):
    filler: str = ""
    sequence: int = 0


async def nothing(turn: Turn[Filled]) -> Outcome:
    return done()


async def note_start(turn: Turn[Filled]) -> Outcome:
    """Appends (sequence, when) to the file the run named; one write, so that notes never mix."""
    at = time.monotonic_ns()
    notes = os.open(os.environ[NOTES], os.O_WRONLY | os.O_APPEND)
    try:
        os.write(notes, NOTE.pack(turn.payload.sequence, at))
    finally:
        os.close(notes)
    return done()


class Ticking(BaseModel):
    # Ends once this file is gone.
    while_exists: str


TICK_SECONDS = 0.01


async def tick(turn: Turn[Ticking]) -> Outcome:
    """How late this loop comes to what is due every 10 ms, in seconds. All handlers share the loop. A delay counts for
    every tick that it covers: it is as if somebody had come at each."""
    running, late = Path(turn.payload.while_exists), []
    due = time.monotonic()
    while running.exists():
        due += TICK_SECONDS
        await asyncio.sleep(max(0, due - time.monotonic()))
        now = time.monotonic()
        while True:
            late.append(max(0, now - due))
            if due + TICK_SECONDS > now:
                break
            due += TICK_SECONDS
    late.sort()
    return done({"ticks": len(late), "p50": _at(late, 0.5), "p99": _at(late, 0.99), "most": late[-1]})


def _at(ordered: list[float], share: float) -> float:
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


ADMINS = frozenset({"admin"})
KINDS = (
    Kind(name="noop", payload=Filled, handler=nothing, submit=ADMINS),
    Kind(name="noted", payload=Filled, handler=note_start, submit=ADMINS),
    Kind(name="tick", payload=Ticking, handler=tick, submit=ADMINS),
)
