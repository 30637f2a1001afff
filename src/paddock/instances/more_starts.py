"""Another start of an instance whose last one ended: with twice the memory, or as it was. Each a few times."""

import asyncpg

from paddock.db.pool import Transaction
from paddock.instances import limits, moving, sizing
from paddock.instances.ends import END_OF
from paddock.instances.model import SQL
from paddock.jobs.errors import Refused
from paddock.jobs.model import JsonObject, NewEvent

# How often what it runs on may be taken away.
MOST_DISRUPTIONS = 3


async def once_more(tx: Transaction, row: asyncpg.Record, error: JsonObject, room: int | None) -> JsonObject | None:
    """None: it is to be started once more, and the row says so. Else why not, as its error says it. The caller holds the lock of
    the limits, and the row's."""
    if END_OF[error["cause"]].then == "larger":
        return await grow(tx, row, room)
    if row["disruptions"] < MOST_DISRUPTIONS:
        await tx.execute(SQL["mark_disrupted"], row["id"], row["generation"])
        return None
    told = (error.get("diagnosis") or {}).get("message") or error["message"]
    return {"message": f"{error['message']}: {told} It had been started again {MOST_DISRUPTIONS} times."}


def restarted(row: asyncpg.Record, error: JsonObject) -> NewEvent:
    """What the owner reads of a start that follows by itself."""
    diagnosis = error.get("diagnosis") or {}
    # That it is reopened by hand is no advice here: it starts by itself.
    told = {**moving.event_data(error), "message": diagnosis.get("message") or error["message"]}
    told |= {"hint": diagnosis.get("hint"), "category": diagnosis.get("category")}
    return moving.event("restarted", row["id"], pod_name=row["pod_name"], **told)


async def grow(tx: Transaction, row: asyncpg.Record, room: int | None) -> JsonObject | None:
    """None: it is to be started with twice the memory. Else why not, as its error says it. The caller holds the lock of the
    limits, and the row's."""
    before = int(row["memory_gb"])
    doubled = min(2 * before, sizing.MOST_GB)
    hint = f"Make it again with memory_gb of {doubled} or more, or leave some of the graph out."
    if before >= sizing.MOST_GB:
        hint = f"{sizing.MOST_GB} GB are the most there are: leave some of the graph out."
    said = {"message": f"The instance ran out of memory with {before} GB.", "hint": hint}
    if doubled == before or row["memory_steps"] >= sizing.MOST_STEPS:
        return said
    try:
        await limits.check(tx, row["owner"], doubled, room=room, without=row["id"])
    except Refused as refused:
        return {"message": f"{said['message']} It could not get {doubled}: {refused.message}", "hint": hint}
    await tx.execute(SQL["mark_again"], row["id"], row["generation"], doubled, 1)
    return None
