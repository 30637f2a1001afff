"""Unload: Trino writes the files itself, as an external table of a Hive catalog that is dropped afterwards.

Trino commits such a table only when its answers are read to the end, so an unload is polled: by whichever worker, turn
by turn. Nothing is ever started twice: where the address of the next answer is lost, the query's id is asked for, and
where the query is forgotten, the table's existence decides.

Starburst's table function `system.unload` needs no table (`unload_function`, off unless it is asked for). Its count comes
as the query's one row; where that was missed there is nothing to decide by, and the query runs again into a new draft.
"""

import re
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import orjson

from paddock.engines.engine import NoAnswer, Query, QueryRefused
from paddock.engines.settings import TrinoSettings
from paddock.engines.trino.answers import QUERY_LOST
from paddock.engines.trino.client import Page, Silence
from paddock.engines.trino.errors import failure
from paddock.engines.trino.literals import quoted_name, text
from paddock.engines.trino.signature import Signature
from paddock.engines.trino.statement import Statement
from paddock.engines.trino.types import TrinoColumn
from paddock.jobs.errors import InfrastructureError, PermanentRunnerError, TransientResourceError
from paddock.jobs.model import JsonObject

if TYPE_CHECKING:
    from paddock.engines.trino.engine import TrinoEngine


# Told of each address before it is asked. Trino answers only the last one twice: who dies two answers after the address
# that was saved cannot read the query to its end any more. It raises where somebody else polls the query by now, and so
# it is told before a query is stopped too.
Moved = Callable[[str], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Unloading:
    """Still at it; save `next_uri` for the next poll."""

    next_uri: str
    state: str
    percent: float | None

    def __repr__(self) -> str:
        return f"Unloading({self.state}, {self.percent})"


@dataclass(frozen=True, slots=True)
class Unloaded:
    """Committed. What the files' footers say must add up to `update_count`."""

    update_count: int


@dataclass(frozen=True, slots=True)
class Lost:
    """The query is gone and there is no table: a new attempt may begin."""


# What Parquet files of Trino's Hive connector hold just as ours do. Left out, though Hive takes them: timestamps, which
# it writes as INT96 (many readers wrap around at 2262), and char, whose padding it drops.
_SCALARS = {
    "boolean", "tinyint", "smallint", "integer", "bigint", "real", "double", "decimal", "varchar", "varbinary", "date",
}  # fmt: skip
_NAME = re.compile(r"[a-z_][a-z0-9_]*")
_TABLE = re.compile(r"[a-z_][a-z0-9_]{0,127}")
# Of a file system with real folders, when no row made one.
_NO_FOLDER = "External table location does not exist"
NOTHING_WRITTEN = "unload_nothing_written"
# The name of the function, not another one that the query itself calls.
_NO_FUNCTION = re.compile(r"\bsystem\.unload\b", re.IGNORECASE)
NO_FUNCTION = "unload_function_not_found"
STOPPED = "user_canceled"


def why_not(settings: TrinoSettings, columns: Sequence[TrinoColumn]) -> str | None:
    """Why Trino cannot write this result itself."""
    if not settings.unload_function and (settings.unload_catalog is None or settings.unload_schema is None):
        return "This engine has no unload_catalog and unload_schema."
    names = [column.name for column in columns]
    for column in columns:
        if not _writable(column.signature):
            return f"Hive cannot write column '{column.name}' ({column.native}) exactly."
        if not _NAME.fullmatch(column.name) or names.count(column.name) > 1:
            return f"Hive cannot write the column name '{column.name}' as it is."
    return None


def _writable(signature: Signature) -> bool:
    if signature.raw in _SCALARS:
        return True
    if signature.raw == "map" and signature.children[0].raw not in _SCALARS - {"varbinary"}:
        return False
    if signature.raw == "row":
        names = [name or "" for name in signature.names]
        if len(set(names)) < len(names) or not all(map(_NAME.fullmatch, names)):
            return False
    return signature.raw in ("array", "map", "row") and all(map(_writable, signature.children))


def create_table(
    settings: TrinoSettings,
    sql: str,
    columns: Sequence[TrinoColumn],
    table: str,
    location: str,
    names: Sequence[str] | None,
) -> str:
    if reason := why_not(settings, columns):
        raise QueryRefused(reason, code="direct_only", hint="Export it directly.")
    files = names or [column.name for column in columns]
    if len(files) != len(columns) or not all(map(_NAME.fullmatch, files)):
        raise QueryRefused("Hive cannot write these column names.", code="direct_only", hint="Export it directly.")
    aliases = ", ".join(map(quoted_name, files))
    if settings.unload_function:
        return unload_call(sql, aliases, location)
    properties = f"format = 'PARQUET', external_location = {text(location)}"
    made = f"CREATE TABLE {name_of(settings, table)} WITH ({properties})"
    return f"{made} AS SELECT * FROM (\n{sql}\n) AS q ({aliases})"  # noqa: S608  it passed the gate in these brackets


def unload_call(sql: str, aliases: str, location: str) -> str:
    """Of Starburst. It gives a row for each file, with its `path` and `count`."""
    written = f"location => {text(location)}, format => 'PARQUET', compression => 'ZSTD'"
    rows = f"input => TABLE(\n{sql}\n) AS q ({aliases})"
    return f'SELECT sum("count") FROM TABLE(system.unload({rows}, {written}))'  # noqa: S608  as above


def name_of(settings: TrinoSettings, table: str) -> str:
    if settings.unload_catalog is None or settings.unload_schema is None:
        raise PermanentRunnerError(
            "This engine has no unload_catalog and unload_schema.",
            code="unload_not_configured",
            hint="Name a Hive catalog and schema in paddock.toml, or export directly.",
        )
    if not _TABLE.fullmatch(table):
        raise ValueError("not a table name of ours")
    return quoted_name(settings.unload_catalog, settings.unload_schema, table)


def session_of(settings: TrinoSettings) -> dict[str, str]:
    return {} if settings.unload_function else {f"{settings.unload_catalog}.compression_codec": "ZSTD"}


async def prove_hive(engine: "TrinoEngine", query: Query) -> None:
    """Dropping an external Hive table leaves its files; dropping an Iceberg table deletes them."""
    if engine.drops_keep_files or engine.settings.unload_function:
        return
    catalog = engine.settings.unload_catalog or ""
    found = await engine.rows(
        f"SELECT connector_name FROM system.metadata.catalogs WHERE catalog_name = {text(catalog)}",  # noqa: S608
        query,
    )
    if found != [["hive"]]:
        what = f"is of the connector {found[0][0]}" if found else "is not there"
        raise PermanentRunnerError(
            f"Unload writes through a Hive catalog; '{catalog}' {what}.",
            code="unload_needs_hive",
            hint="Name a catalog of the Hive connector as unload_catalog, or export directly.",
        )
    engine.drops_keep_files = True


async def poll(
    engine: "TrinoEngine", handle: JsonObject, seconds: float, moved: Moved | None
) -> Unloading | Unloaded | Lost:
    query = Query("", role=handle.get("role"), owner=handle.get("owner") or "system")
    call = engine.call(query)
    try:
        page = await engine.client.next_page(str(handle["next_uri"]), call, retry_silence=True)
        if page.envelope["id"] != handle["query_id"]:
            raise TransientResourceError("Trino answered for another query.", code="bad_page")
        statement = Statement(engine.client, call, page, None)
        _count(statement, page)
        await _follow(statement, seconds, moved, to_its_end=engine.settings.unload_function)
    except (Silence, NoAnswer) as silence:
        raise TransientResourceError(str(silence), code="engine_unavailable", budget="cluster") from None
    except InfrastructureError as problem:
        # STOPPED by one of us, as below: nobody else has its addresses. Trino may say so at an old one too.
        if problem.code in (QUERY_LOST, STOPPED):
            return await _by_id(engine, query, handle, moved)
        raise _meant(engine, problem) from None
    if statement.next_uri is not None:
        return Unloading(statement.next_uri, statement.progress.phase, statement.progress.percent)
    if statement.update_count is None and engine.settings.unload_function:
        return Lost()
    return await _committed(engine, query, handle, statement.update_count)


async def _follow(statement: Statement, seconds: float, moved: Moved | None, *, to_its_end: bool) -> None:
    """Until an answer brings nothing new though Trino waited with it, as it does for a second at most. `to_its_end`: but
    not once the rows were counted, which is known to this turn alone."""
    end, in_vain = time.monotonic() + seconds, False
    while statement.next_uri is not None:
        counted = to_its_end and statement.update_count is not None
        if (in_vain or time.monotonic() >= end) and not counted:
            return
        if moved is not None:
            await moved(statement.next_uri)
        asked, before = time.monotonic(), _progress_of(statement)
        _count(statement, await statement.advance())
        in_vain = _progress_of(statement) == before and time.monotonic() - asked > 0.5


def _count(statement: Statement, page: Page) -> None:
    """Beside the rows where a table was made; else it is the only row there is."""
    if statement.update_count is None and page.rows is not None:
        for [count] in orjson.loads(page.rows):
            statement.update_count = int(count or 0)


def _progress_of(statement: Statement) -> tuple[Any, ...]:
    return statement.progress.phase, statement.progress.percent, statement.stats.get("processedRows")


async def _by_id(
    engine: "TrinoEngine", query: Query, handle: JsonObject, moved: Moved | None
) -> Unloading | Unloaded | Lost:
    """The address of the next answer is gone: Trino was restarted, or an answer was fetched and not saved."""
    call = engine.call(query)
    info = await engine.client.info(str(handle["query_id"]), call)
    state = str((info or {}).get("state"))
    if info is not None and state not in ("FINISHED", "FAILED"):
        # Without the address it cannot be read to its end, so it will not commit. The next poll sees what became of it.
        # But an address is old too when another worker holds the job by now and has polled on.
        if moved is not None:
            await moved(str(handle["next_uri"]))
        await engine.client.stop(str(handle["next_uri"]), call)
        return Unloading(str(handle["next_uri"]), "stopping", None)
    if not engine.settings.unload_function and await _exists(engine, query, str(handle["table"])):
        return await _committed(engine, query, handle, None)
    if state == "FAILED" and (error := _error_of(info or {})) is not None:
        raise _meant(engine, error)
    return Lost()


def _error_of(info: Mapping[str, Any]) -> InfrastructureError | None:
    code = info.get("errorCode") or {}
    if code.get("name") in ("USER_CANCELED", "ABANDONED_QUERY"):
        return None
    said = info.get("failureInfo") or {}
    error = {"errorName": code.get("name"), "errorType": code.get("type"), "message": said.get("message")}
    return failure(error, info.get("queryId"))


def _meant(engine: "TrinoEngine", problem: InfrastructureError) -> InfrastructureError:
    """What a failure says about the unload, where it is not the query's own."""
    said = str(problem)
    if _NO_FOLDER in said:
        return PermanentRunnerError(
            "Trino wrote no file: the result has no rows, and this file system has no folder for none.",
            code=NOTHING_WRITTEN,
            hint="Export it directly.",
        )
    missing = problem.code == "function_not_found" or "not registered" in said
    if engine.settings.unload_function and missing and _NO_FUNCTION.search(said):
        return PermanentRunnerError(
            "This cluster has no function system.unload.", code=NO_FUNCTION, hint="Export it directly."
        )
    return problem


async def _committed(engine: "TrinoEngine", query: Query, handle: JsonObject, count: int | None) -> Unloaded:
    if count is None:
        # Told once, and we missed it.
        name = name_of(engine.settings, str(handle["table"]))
        [[counted]] = await engine.rows(f"SELECT count(*) FROM {name}", query)  # noqa: S608
        count = int(str(counted))
    return Unloaded(count)


async def _exists(engine: "TrinoEngine", query: Query, table: str) -> bool:
    settings = engine.settings
    name_of(settings, table)
    rows = await engine.rows(
        f"SELECT 1 FROM {quoted_name(settings.unload_catalog or '', 'information_schema', 'tables')}"  # noqa: S608
        f" WHERE table_schema = {text(settings.unload_schema or '')} AND table_name = {text(table)}",
        query,
    )
    return bool(rows)


async def drop(engine: "TrinoEngine", query: Query, table: str) -> None:
    if engine.settings.unload_function:
        return
    name = name_of(engine.settings, table)
    await prove_hive(engine, query)
    await engine.rows(f"DROP TABLE IF EXISTS {name}", query)
