"""One turn of an export: from SQL to a sealed draft, and from there to its destination.

Killed on any line, this leaves a draft that no reader can find: what makes it real is the transaction that ends the
job. A draft's id is saved before its query starts and is never used again, so two turns, or a turn and its late twin,
never write to the same place. A turn that will not go on with a saved query stops it first.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from paddock.engines.engine import Engine, NoAnswer, Query, QueryRefused, Stream
from paddock.engines.settings import MISSING_ROLE
from paddock.exports import arrow_types, delivering, patience, unloading
from paddock.exports.facts import facts_of
from paddock.exports.model import AskPayload, ExportPayload
from paddock.exports.resources import ExportResources
from paddock.exports.writing.output import Output
from paddock.jobs.errors import PermanentRunnerError, TransientResourceError, UserMistake
from paddock.jobs.model import JsonObject
from paddock.jobs.outcomes import Outcome, done
from paddock.jobs.turn import Turn
from paddock.storage.drafts import Draft, Sealed, new_draft_id

COLD_STARTS = 2
COLD_START_PAUSE = 5.0
REPORT_EVERY = 0.5

ExportTurn = Turn[ExportPayload]


async def run(turn: ExportTurn, resources: ExportResources) -> Outcome:
    away = turn.saved.get(patience.SAVED)
    try:
        return await _run(turn, resources)
    except QueryRefused as refused:
        raise refused.with_place() from None
    except TransientResourceError as problem:
        if problem.budget == "cluster":
            await patience.bounded(turn, problem, away)
        raise


async def _run(turn: ExportTurn, resources: ExportResources) -> Outcome:
    payload = turn.payload
    if turn.saved.get("sealed") is not None:
        return await delivering.deliver(turn, resources)
    engine = resources.engines[payload.engine]
    check_role(engine, turn.role)
    if payload.destination is not None:
        await delivering.check(payload.destination, resources)
    if payload.mode == "unload":
        unloaded = await unloading.run(turn, resources, engine, query_of(turn, engine))
        if isinstance(unloaded, tuple):
            return await finish(turn, resources, result_of(turn, *unloaded))
        if unloaded is not None:
            return unloaded
    await stop_query(turn, engine)
    return await finish(turn, resources, await _direct(turn, resources, engine))


def check_role(engine: Engine, role: str | None) -> None:
    if engine.requires_role and not role:
        raise UserMistake(
            MISSING_ROLE,
            code="missing_use_case_id",
            hint=f"Engine '{engine.name}' runs every query under a role: send it as X-Use-Case-Id (CLI: --role).",
        )


def query_of(turn: ExportTurn, engine: Engine) -> Query:
    payload = turn.payload
    sql = payload.sql
    if sql is None:
        sql = engine.table_query(payload.catalog, payload.schema_name, payload.table or "")
    return query_for(turn, sql)


def query_for(turn: ExportTurn | Turn[AskPayload], sql: str) -> Query:
    """What an engine is to run for this turn: under its role, in the catalog and schema that its payload names."""
    payload = turn.payload
    return Query(
        sql=sql,
        parameters=payload.parameters,
        role=turn.role,
        owner=turn.owner,
        job=str(turn.id),
        catalog=payload.catalog,
        schema=payload.schema_name,
        tell=lambda report: turn.report(**report),
    )


async def stop_query(turn: ExportTurn, engine: Engine) -> None:
    """What was started and will not be gone on with. An engine that does not answer is not waited for: it ends by
    itself a query whose rows nobody asks for."""
    handle = turn.saved.get("handle")
    if handle is not None:
        with contextlib.suppress(TransientResourceError):
            await engine.cancel(handle)


async def _direct(turn: ExportTurn, resources: ExportResources, engine: Engine) -> JsonObject:
    """A transport that does not answer before the first row is a cold start: again, with a new draft."""
    failed = 0
    while True:
        draft = Draft(resources.store, turn.payload.output, new_draft_id())
        await turn.save(_state(turn, draft), progress=False)
        try:
            return await _stream(turn, resources, engine, draft)
        except NoAnswer as problem:
            await stop_query(turn, engine)
            if failed == COLD_STARTS:
                raise PermanentRunnerError(
                    f"Direct export failed after {COLD_STARTS} retries: {problem.error_type}",
                    code="engine_no_answer",
                    hint=f"Engine '{engine.name}' did not answer in time. See that it runs (`paddock engines check "
                    f"{engine.name}`), or raise its request_timeout_seconds, then retry the job.",
                ) from problem
            failed += 1
            turn.log.warning("The engine did not answer; starting over.", error=problem.error_type, retry=failed)
            turn.report(phase="waiting for the engine", retry=failed)
            await asyncio.sleep(COLD_START_PAUSE)


def _state(turn: ExportTurn, draft: Draft) -> JsonObject:
    """Of a direct try. No progress: whatever became of earlier ones, this one begins at the beginning."""
    return {"draft": draft.id, "mode": "direct", **unloading.reason_of(turn)}


async def _stream(turn: ExportTurn, resources: ExportResources, engine: Engine, draft: Draft) -> JsonObject:
    began = datetime.now(UTC)
    clock = asyncio.get_running_loop()
    limit = turn.payload.max_duration_seconds
    try:
        # The engine may make the proof of the query wait too, so the time runs from here; the query has all of it anew.
        async with unloading.within(limit) as deadline:

            async def started(handle: JsonObject) -> None:
                """Saved before the query may run, so that whoever comes after this turn can stop it."""
                deadline.reschedule(clock.time() + limit)
                state = {**_state(turn, draft), "handle": handle, "query_id": handle.get("query_id")}
                await turn.save(state, progress=False)

            turn.report(phase="starting", percent=None)
            async with engine.open(query_of(turn, engine), started) as stream:
                return await _write(turn, resources, stream, draft, began)
    except BaseException:
        # Best effort and bounded: leftovers are collected anyway.
        with contextlib.suppress(Exception, asyncio.CancelledError):
            await asyncio.wait_for(draft.discard(), 5)
        raise


async def _write(
    turn: ExportTurn, resources: ExportResources, stream: Stream, draft: Draft, began: datetime
) -> JsonObject:
    payload = turn.payload
    conform = arrow_types.conformer(stream.columns, payload.columns)
    for other in arrow_types.other_names(stream.columns, payload.columns or ()):
        turn.log.warning(other.message, column=other.column)
    output = Output(draft, resources.scratch, conform.schema, payload.format, payload.options)
    progress = Reports(turn, stream, output, payload.max_rows)
    cut = False
    async with progress.following(), _memory(resources, stream, conform.schema, payload):
        try:
            async for batch in stream.batches():
                taken = batch
                if payload.max_rows is not None and output.rows + batch.num_rows > payload.max_rows:
                    taken, cut = batch.slice(0, payload.max_rows - output.rows), True
                await output.write(conform(taken))
                _check_size(output.bytes, payload.max_bytes)
                progress.wrote()
                if cut:
                    break
            progress.closing()
            await output.close()
            _check_size(output.bytes, payload.max_bytes)
        except BaseException:
            await output.abandon()
            raise
    facts = facts_of(payload, output.schema, stream.progress.query_id, began.isoformat(), truncated=cut)
    facts |= unloading.reason_of(turn)
    return result_of(turn, await draft.seal(facts), facts)


@contextlib.asynccontextmanager
async def _memory(
    resources: ExportResources, stream: Stream, schema: pa.Schema, payload: ExportPayload
) -> AsyncIterator[None]:
    """The budget gates reading, never submitting: by then the query has its first rows."""
    ahead = await stream.begin()
    async with resources.memory.reserve(Output.reservation(schema, payload.format, payload.options) + ahead):
        yield


def _check_size(size: int, limit: int | None) -> None:
    if limit is not None and size > limit:
        raise UserMistake(
            f"The export has more than the {limit:,} bytes it may have.",
            code="export_too_large",
            hint="Export less, or ask for more with max_bytes.",
        )


async def finish(turn: ExportTurn, resources: ExportResources, result: JsonObject) -> Outcome:
    if turn.payload.destination is None:
        return done(result)
    # The decision: from here on every turn only rolls forward.
    await turn.save({"draft": result["draft"], "query_id": result["query_id"], "sealed": result})
    return await delivering.deliver(turn, resources)


def result_of(turn: ExportTurn, sealed: Sealed, facts: JsonObject) -> JsonObject:
    """Totals and where the manifest is, never the list of files."""
    return {
        "rows": sealed.rows,
        "bytes": sealed.bytes,
        "files": sealed.files,
        "manifest": sealed.manifest,
        "sha256": sealed.sha256,
        "draft": turn.saved["draft"],
        "mode": turn.saved.get("mode", "direct"),
        **unloading.reason_of(turn),
        "query_id": turn.saved.get("query_id"),
        "started_at": facts["started_at"],
        "truncated": facts.get("truncated", False),
    }


async def clean(turn: ExportTurn, resources: ExportResources) -> Outcome:
    """After every end but *done*: its query is stopped and its draft goes."""
    engine = resources.engines[turn.payload.engine]
    handle = turn.saved.get("handle")
    if handle is not None:
        await engine.cancel(handle)
    await unloading.clean(turn, engine, query_of(turn, engine))
    if turn.saved.get("sealed") is not None:
        waiting = await delivering.undo(turn, resources)
        if waiting is not None:
            return waiting
    if turn.saved.get("draft") is not None:
        await Draft(resources.store, turn.payload.output, turn.saved["draft"]).discard()
    return done({"stopped_query": turn.saved.get("query_id"), "removed_draft": turn.saved.get("draft")})


class Reports:
    """Tells a person how far it is, twice a second: between batches too, for a query may work long before its first."""

    def __init__(self, turn: ExportTurn, stream: Stream, output: Output, max_rows: int | None) -> None:
        self._turn = turn
        self._stream = stream
        self._output = output
        self._max_rows = max_rows
        self._began = time.monotonic()
        # As of the last batch: while the next one is being written nobody looks into the output.
        self._written = {"rows": 0, "bytes": 0}
        self._phase: str | None = None

    @contextlib.asynccontextmanager
    async def following(self) -> AsyncIterator[None]:
        task = asyncio.create_task(self._follow())
        try:
            yield
        finally:
            task.cancel()

    async def _follow(self) -> None:
        while True:
            await asyncio.sleep(REPORT_EVERY)
            self._say()

    def wrote(self) -> None:
        self._written = {"rows": self._output.rows, "bytes": self._output.bytes}

    def closing(self) -> None:
        self._phase = "writing the last file"
        self.wrote()
        self._say()

    def _say(self) -> None:
        known: dict[str, Any] = {**self._written, "phase": self._phase or self._stream.progress.phase}
        percent = self._percent()
        if percent is not None:
            known["percent"] = round(percent, 1)
            spent = time.monotonic() - self._began
            if 1 <= percent < 100 and spent > 1:
                known["eta_seconds"] = round(spent * (100 - percent) / percent)
        if self._stream.progress.query_id is not None:
            known["query_id"] = self._stream.progress.query_id
        self._turn.report(**known)

    def _percent(self) -> float | None:
        known = [] if self._stream.progress.percent is None else [self._stream.progress.percent]
        if self._max_rows:
            known.append(100 * self._written["rows"] / self._max_rows)
        return min(max(known), 100) if known else None
