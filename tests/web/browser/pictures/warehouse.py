"""The kinds of a small warehouse, for the pictures: they load, report and transfer, and go wrong as the world does.

The world is a JSON file that the stories change while jobs run, so that a failure has a cause outside the job, and an end.
"""

import asyncio
import json
import os
from datetime import timedelta
from pathlib import Path

from pydantic import BaseModel

from paddock.jobs.kinds import Backoff, Kind
from paddock.jobs.model import JsonObject
from paddock.jobs.outcomes import Outcome, done, permanent
from paddock.jobs.turn import Turn

WORLD = "WAREHOUSE_WORLD"
BATCH_ROWS = 10_000
BATCH_SECONDS = 0.4
EVERYBODY = frozenset({"analyst", "ops", "admin"})


class Ingest(BaseModel):
    table: str
    source: str
    rows: int


class Report(BaseModel):
    name: str
    table: str
    day: str


class Transfer(BaseModel):
    table: str
    to: str
    parts: int = 10


def world() -> JsonObject:
    found: JsonObject = json.loads(Path(os.environ[WORLD]).read_text())
    return found


async def ingest(turn: Turn[Ingest]) -> Outcome:
    """Killed on any line, it goes on with the batch after the last saved one."""
    rows = turn.payload.rows
    for loaded in range(turn.saved.get("rows", 0), rows, BATCH_ROWS):
        await asyncio.sleep(BATCH_SECONDS)
        now = min(loaded + BATCH_ROWS, rows)
        turn.log.info("batch loaded", table=turn.payload.table, rows=now)
        turn.report(percent=round(100 * now / rows), rows=now)
        await turn.save({"rows": now})
    return done({"table": turn.payload.table, "rows": rows})


async def report(turn: Turn[Report]) -> Outcome:
    table, lacking = turn.payload.table, world().get("lacking", {})
    turn.log.info("query sent", table=table, day=turn.payload.day)
    await asyncio.sleep(1.5)
    if table in lacking:
        turn.log.error("query refused", table=table, column=lacking[table])
        return permanent(
            "column_missing",
            f"Table '{table}' has no column '{lacking[table]}'.",
            hint=f"Bring the column back, or take it out of report '{turn.payload.name}'; then retry.",
        )
    return done({"file": f"reports/{turn.payload.name}/{turn.payload.day}.parquet"})


async def transfer(turn: Turn[Transfer]) -> Outcome:
    """Killed on any line, it goes on with the part after the last saved one; the partner ignores a part it has."""
    parts = turn.payload.parts
    for part in range(turn.saved.get("parts", 0), parts):
        if part >= parts * 0.6 and turn.payload.to in world().get("silent", []):
            turn.log.warning("waiting for the partner to acknowledge", part=part + 1, partner=turn.payload.to)
            await asyncio.Event().wait()
        await asyncio.sleep(BATCH_SECONDS)
        turn.log.info("part sent", part=part + 1, bytes=8_388_608)
        turn.report(percent=round(100 * (part + 1) / parts), parts=part + 1, bytes=8_388_608 * (part + 1))
        await turn.save({"parts": part + 1})
    return done({"parts": parts})


async def withdraw(turn: Turn[Transfer]) -> Outcome:
    return done({"withdrawn": turn.saved.get("parts", 0)})


KINDS = [
    Kind(name="ingest", payload=Ingest, handler=ingest, submit=EVERYBODY, public_saved=("rows",)),
    Kind(name="report", payload=Report, handler=report, submit=EVERYBODY),
    Kind(
        name="transfer",
        payload=Transfer,
        handler=transfer,
        cleanup=withdraw,
        submit=EVERYBODY,
        turn_timeout=timedelta(seconds=45),
        retry=Backoff(first=timedelta(seconds=5)),
        public_saved=("parts",),
    ),
]
