"""The kinds our own runs use, added to Paddock from outside like any package's: by an entry point."""

from __future__ import annotations

import os
import struct
import time

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


ADMINS = frozenset({"admin"})
KINDS = (
    Kind(name="noop", payload=Filled, handler=nothing, submit=ADMINS),
    Kind(name="noted", payload=Filled, handler=note_start, submit=ADMINS),
)
