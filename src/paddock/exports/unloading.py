"""Exports that the engine writes itself: started in one turn, polled in many, verified in the last.

Saved in this order, so that no crash submits a query twice: the draft and its table's name, then, after the POST, the
query; Trino starts nothing before the first poll. The files count only when their footers sum up to what the engine
said it wrote, and its table is dropped before the job ends: the files stay.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pyarrow as pa

from paddock.declared_arrow import arrow_of
from paddock.declared_types import parse
from paddock.engines.engine import Engine, Query, QueryRefused
from paddock.exports import arrow_types
from paddock.exports.facts import facts_of
from paddock.exports.model import ExportPayload
from paddock.exports.resources import ExportResources
from paddock.exports.writing.output import Output
from paddock.jobs.errors import PermanentRunnerError, TransientResourceError
from paddock.jobs.model import JsonObject
from paddock.jobs.outcomes import Outcome, again
from paddock.jobs.turn import Turn
from paddock.storage.drafts import Draft, DraftFile, Sealed, new_draft_id
from paddock.storage.footers import footer

if TYPE_CHECKING:
    from paddock.engines.trino.engine import TrinoEngine

# Then 90 s for as long as it takes.
DELAYS = (2, 3, 5, 8, 13, 21, 34, 55, 89)
LAST_DELAY = 90
WAITING_ON = "engine"


def delay_after(polls: int) -> timedelta:
    return timedelta(seconds=DELAYS[polls] if polls < len(DELAYS) else LAST_DELAY)


def can_unload(engine: Engine) -> "TrinoEngine | None":
    if engine.type != "trino":
        return None
    from paddock.engines.trino.engine import TrinoEngine

    return engine if isinstance(engine, TrinoEngine) else None


async def run(
    turn: Turn[ExportPayload], resources: ExportResources, engine: Engine, query: Query
) -> Outcome | tuple[Sealed, JsonObject] | None:
    """A poll that goes on, the sealed draft with its facts, or None: this one goes direct."""
    if turn.saved.get("mode") == "direct":
        return None
    trino = can_unload(engine)
    if trino is None:
        await _go_direct(turn, f"Engine '{engine.name}' ({engine.type}) writes no files itself.")
        return None
    if turn.saved.get("handle") is None:
        async with within(turn.payload.max_duration_seconds):
            why = await _begin(turn, resources, trino, query)
        if why is not None:
            await _go_direct(turn, why)
            return None
    return await _poll(turn, resources, trino, query)


async def _go_direct(turn: Turn[ExportPayload], why: str) -> None:
    """Saved, so that the result tells it whichever turn ends the job."""
    turn.log.info("Exported directly, not by the engine.", why=why)
    await turn.save({"mode": "direct", "direct_because": why}, progress=False)


def reason_of(turn: Turn[ExportPayload]) -> JsonObject:
    """Why the worker writes what the engine was asked to write, for the result and the manifest."""
    return {name: turn.saved[name] for name in ("direct_because",) if name in turn.saved}


async def _begin(
    turn: Turn[ExportPayload], resources: ExportResources, engine: "TrinoEngine", query: Query
) -> str | None:
    """Why it must go direct, or None: the engine knows the query, and runs it once it is polled."""
    described = await engine.describe(query)
    # Raises where they are not the declared ones: the engine would write any column under any name.
    arrow_types.conformer(described.columns, turn.payload.columns)
    why = described.direct_only or _why_direct(turn.payload, [column.type for column in described.columns])
    location = engine.settings.unload_location
    if location is None:
        why = f"Engine '{engine.name}' has no unload_location."
    if why is not None:
        return why
    draft = Draft(resources.store, turn.payload.output, new_draft_id())
    state: JsonObject = {"draft": draft.id, "mode": "unload", "table": f"paddock_{draft.id}"}
    await turn.save(state, progress=False)

    async def started(handle: JsonObject) -> None:
        posted = {"posted_age": turn.age.total_seconds(), "started_at": datetime.now(UTC).isoformat()}
        begun = {**state, **posted, "handle": handle, "query_id": handle["query_id"], "poll_count": 0}
        await turn.save(begun, progress=False)

    names = None if turn.payload.columns is None else [column.name for column in turn.payload.columns]
    try:
        await engine.begin_unload(query, state["table"], f"{str(location).rstrip('/')}/{draft.prefix}", started, names)
    except QueryRefused as refused:
        if refused.code != "direct_only":
            raise
        return refused.message
    return None


def _why_direct(payload: ExportPayload, found: list[pa.DataType]) -> str | None:
    """What the engine's own files could not be."""
    if payload.format != "parquet" or payload.options.model_fields_set:
        return "The engine writes plain Parquet only."
    if payload.max_rows is not None or payload.max_bytes is not None:
        return "The engine knows no limits of rows or bytes."
    if payload.columns is not None:
        declared = [arrow_of(parse(column.type)) for column in payload.columns]
        if declared != found:
            return "The declared types are not the query's own."
    return None


async def _poll(
    turn: Turn[ExportPayload], resources: ExportResources, engine: "TrinoEngine", query: Query
) -> Outcome | tuple[Sealed, JsonObject] | None:
    from paddock.engines.trino.errors import QueryFailed
    from paddock.engines.trino.unloading import NO_FUNCTION, NOTHING_WRITTEN, Lost, Unloading

    saved = turn.saved
    if "update_count" in saved:
        # Its table may be dropped already, which would look like a query that never was.
        return await _seal(turn, resources, engine, query, saved["update_count"])
    await _check_duration(turn, engine)

    async def moved(next_uri: str) -> None:
        await turn.save(_at(saved, next_uri), progress=False)

    delay = delay_after(saved["poll_count"])
    try:
        polled = await engine.poll_unload(saved["handle"], moved=moved)
    except PermanentRunnerError as problem:
        if problem.code == NO_FUNCTION:
            await _go_direct(turn, problem.message)
            return None
        if problem.code != NOTHING_WRITTEN:
            raise
        return await _seal(turn, resources, engine, query, 0)
    except QueryFailed:
        await turn.save(_not_begun(saved), progress=False)
        raise
    except TransientResourceError as problem:
        # Polled on as before, not backed off from: Trino drops a query that nobody asks for after some minutes.
        await turn.save(_next_poll(turn.saved, delay), progress=False)
        problem.delay = problem.delay or delay
        raise
    if isinstance(polled, Unloading):
        turn.report(phase=polled.state.lower(), percent=polled.percent, query_id=saved["query_id"])
        state = _next_poll(_at(saved, polled.next_uri), delay)
        # No progress: a query that fails whenever it has run for a while must come to an end.
        return again(delay, waiting_on=WAITING_ON, saved=state, progress=False)
    if isinstance(polled, Lost):
        await turn.save(_not_begun(saved), progress=False)
        raise TransientResourceError(
            f"The engine forgot query {saved['query_id']}, and its table is not there.",
            code="unload_lost",
            hint="Paddock starts it again.",
        )
    return await _seal(turn, resources, engine, query, polled.update_count)


def _at(saved: JsonObject, next_uri: str) -> JsonObject:
    return {**saved, "handle": {**saved["handle"], "next_uri": next_uri}}


def _next_poll(saved: JsonObject, delay: timedelta) -> JsonObject:
    at = (datetime.now(UTC) + delay).isoformat()
    return {**saved, "poll_count": saved["poll_count"] + 1, "next_poll_at": at}


def _not_begun(saved: JsonObject) -> JsonObject:
    """Its query is over and wrote nothing: the next turn starts another."""
    return {"draft": saved["draft"], "mode": "unload", "table": saved["table"]}


async def _check_duration(turn: Turn[ExportPayload], engine: "TrinoEngine") -> None:
    limit = turn.payload.max_duration_seconds
    if turn.age.total_seconds() - turn.saved["posted_age"] > limit:
        await engine.cancel(turn.saved["handle"])
        raise too_long(limit)


@asynccontextmanager
async def within(limit: int) -> AsyncIterator[asyncio.Timeout]:
    """So many seconds, the time in the engine's queues included."""
    deadline = asyncio.timeout(limit)
    try:
        async with deadline:
            yield deadline
    except TimeoutError as problem:
        if not deadline.expired():
            raise
        raise too_long(limit) from problem


def too_long(limit: int) -> PermanentRunnerError:
    return PermanentRunnerError(
        f"Export job exceeded maximum duration ({limit}s)",
        code="export_too_long",
        hint="Export less, or have the setting export.max_duration_seconds raised.",
    )


async def _seal(
    turn: Turn[ExportPayload], resources: ExportResources, engine: "TrinoEngine", query: Query, count: int
) -> tuple[Sealed, JsonObject]:
    """Every file's footer is read; together they hold what the engine counted, or nothing of it counts."""
    if "update_count" not in turn.saved:
        await turn.save({**turn.saved, "update_count": count})
    saved = turn.saved
    turn.report(phase="verifying", rows=count)
    draft = Draft(resources.store, turn.payload.output, saved["draft"])
    found = [entry async for entry in resources.store.list(f"{draft.prefix}/")]
    schema: pa.Schema | None = None
    parts = []
    for entry in sorted(found, key=lambda entry: entry.key):
        name = entry.key.removeprefix(f"{draft.prefix}/")
        if name.startswith(("_", ".")):
            continue
        read = await footer(resources.store, entry.key, entry.size)
        schema = read.schema
        parts.append(DraftFile(name, read.rows, entry.size, None))
    rows = sum(part.rows for part in parts)
    if rows != count:
        raise PermanentRunnerError(
            f"The engine said it wrote {count:,} rows, and its files hold {rows:,}.",
            code="unload_incomplete",
            hint="See that unload_location and the object store are the same place, then retry the job.",
        )
    if schema is None or not rows:
        # Written again by a turn that finds it: the manifest, once there, must say the same of it.
        schema = await _write_empty(turn, resources, engine, query, draft)
    else:
        for part in parts:
            await draft.adopt(part)
    await engine.drop_unload(query, saved["table"])
    facts = facts_of(turn.payload, schema, saved["query_id"], saved["started_at"])
    return await draft.seal(facts), facts


async def _write_empty(
    turn: Turn[ExportPayload], resources: ExportResources, engine: "TrinoEngine", query: Query, draft: Draft
) -> pa.Schema:
    columns = (await engine.describe(query)).columns
    schema = arrow_types.conformer(columns, turn.payload.columns).schema
    output = Output(draft, resources.scratch, schema, "parquet", turn.payload.options)
    await output.close()
    return output.schema


async def clean(turn: Turn[ExportPayload], engine: Engine, query: Query) -> None:
    """After every end but *done*. Its query was stopped before."""
    trino = can_unload(engine)
    if trino is not None and turn.saved.get("table") is not None:
        await trino.drop_unload(query, turn.saved["table"])
