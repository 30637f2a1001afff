"""Short questions to an engine: what a query gives, its first rows, what tables there are, whether it works."""

import asyncio
import base64
import dataclasses
from collections.abc import Sequence
from typing import Any

import orjson
import pyarrow as pa

from paddock.engines.engine import Column, Engine, Query, QueryRefused
from paddock.exports import arrow_types
from paddock.exports.model import AskPayload
from paddock.exports.resources import ExportResources
from paddock.exports.running import check_role, query_for
from paddock.exports.writing.names import file_names
from paddock.jobs.model import JsonObject
from paddock.jobs.outcomes import Outcome, done
from paddock.jobs.turn import Turn

MOST_BYTES = 200_000
LONGEST_TEXT = 500


async def run(turn: Turn[AskPayload], resources: ExportResources) -> Outcome:
    payload = turn.payload
    engine = resources.engines[payload.engine]
    if payload.action != "check":
        # Whether it can be reached is told without a role, too: `paddock doctor` has none.
        check_role(engine, turn.role)
    query = query_for(turn, _sql(engine, payload))
    try:
        return done(await _answer(engine, payload, query))
    except QueryRefused as refused:
        # What a person typed is theirs to mend: that is an answer, not a failed job.
        return done({"refused": _refused(refused)})


def _sql(engine: Engine, payload: AskPayload) -> str:
    if payload.sql is not None:
        return payload.sql
    if payload.table is not None and payload.action in ("describe", "preview"):
        return engine.table_query(payload.catalog, payload.schema_name, payload.table)
    return ""


async def _answer(engine: Engine, payload: AskPayload, query: Query) -> JsonObject:
    match payload.action:
        case "describe":
            described = await engine.describe(query)
            return {**_described(described.columns, payload), "direct_only": described.direct_only}
        case "preview":
            columns, table = await engine.preview(query, payload.rows)
            rows = await asyncio.to_thread(_rows, table)
            return {**_described(columns, payload), **rows}
        case "catalogs":
            return {"names": list(await engine.catalogs(query))}
        case "schemas":
            return {"names": await _schemas(engine, query, payload.catalog or "")}
        case "tables":
            return {"names": await _tables(engine, query, payload.catalog or "", payload.schema_name or "")}
        case "columns":
            found = await engine.table_columns(
                query, payload.catalog or "", payload.schema_name or "", payload.table or ""
            )
            return _described(found, payload)
        case "check":
            return {"findings": [dataclasses.asdict(finding) for finding in await engine.check(query)]}


async def _schemas(engine: Engine, query: Query, catalog: str) -> list[str]:
    found = list(await engine.schemas(query, catalog))
    if not found and catalog not in await engine.catalogs(query):
        raise QueryRefused(
            f"There is no catalog '{catalog}'.", code="no_such_catalog", hint="Browse without --catalog."
        )
    return found


async def _tables(engine: Engine, query: Query, catalog: str, schema: str) -> list[str]:
    found = list(await engine.tables(query, catalog, schema))
    if not found and schema not in await _schemas(engine, query, catalog):
        raise QueryRefused(
            f"There is no schema '{schema}' in catalog '{catalog}'.",
            code="no_such_schema",
            hint="Browse without --schema.",
        )
    return found


def _described(columns: Sequence[Column], payload: AskPayload) -> JsonObject:
    names = file_names([column.name for column in columns])
    shown: JsonObject = {
        "columns": [
            {
                "name": name,
                "type": arrow_types.declared_name(column),
                "arrow": str(column.type),
                "native": column.native,
            }
            for name, column in zip(names, columns, strict=True)
        ]
    }
    if payload.columns is not None:
        wrong = arrow_types.mismatches(columns, payload.columns)
        shown["mismatches"] = [dataclasses.asdict(one) for one in wrong]
        shown["warnings"] = [dataclasses.asdict(one) for one in arrow_types.other_names(columns, payload.columns)]
    return shown


def _refused(refused: QueryRefused) -> JsonObject:
    return {
        "code": refused.code,
        "message": refused.message,
        "hint": refused.hint,
        "line": refused.line,
        "column": refused.column,
    }


def _rows(table: pa.Table) -> JsonObject:
    """As many of the rows as fit an answer, each value as text or plain JSON a person can read."""
    rows: list[list[Any]] = []
    size = 0
    for batch in table.to_batches(max_chunksize=16):
        for row in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            shown = [_preview_value(value) for value in row]
            size += len(orjson.dumps(shown))
            if size > MOST_BYTES:
                return {"rows": rows, "cut": True}
            rows.append(shown)
    return {"rows": rows, "cut": False}


def _preview_value(value: Any) -> Any:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return value if abs(value) < 2**53 else str(value)
    if isinstance(value, float):
        return value if value == value and abs(value) != float("inf") else str(value)
    if isinstance(value, bytes):
        return base64.b64encode(value[:LONGEST_TEXT]).decode()
    if isinstance(value, list | tuple):
        return [_preview_value(one) for one in value[:50]]
    if isinstance(value, dict):
        return {str(key): _preview_value(one) for key, one in list(value.items())[:50]}
    return str(value)[:LONGEST_TEXT]
