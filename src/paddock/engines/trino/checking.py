"""What `paddock engines check` finds out of a Trino."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from paddock.engines.engine import Finding, Query
from paddock.engines.trino import unloading
from paddock.engines.trino.client import Silence
from paddock.jobs.errors import InfrastructureError

if TYPE_CHECKING:
    from paddock.engines.trino.engine import TrinoEngine

# One of each kind of value the wire has.
VALUES = (
    "SELECT true AS a, TINYINT '1' AS b, BIGINT '2' AS c, REAL '1.5' AS d, nan() AS e, DECIMAL '1.25' AS f, 'x' AS g, "
    "X'00' AS h, DATE '2024-02-29' AS i, TIME '01:02:03.004' AS j, TIMESTAMP '2024-02-29 01:02:03.000004' AS k, "
    "TIMESTAMP '2024-02-29 01:02:03 Europe/Berlin' AS l, UUID '12151fd2-7586-11e9-8f9e-2a86e4085a59' AS m, "
    "ARRAY[1, NULL] AS n, MAP(ARRAY['k'], ARRAY[1]) AS o, CAST(ROW(1, 'y') AS ROW(p integer, q varchar)) AS r, NULL AS s"
)

Check = Callable[["TrinoEngine", Query], Awaitable[str]]


class Wanting(Exception):
    """Works, but not this."""

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.hint = hint


async def findings(engine: "TrinoEngine", query: Query) -> Sequence[Finding]:
    found: list[Finding] = []
    for what, check in CHECKS.items():
        finding = await _finding(what, check, engine, query)
        found.append(finding)
        # Without these nothing after them can work.
        if not finding.ok and what in ("reachable", "role"):
            break
        if engine.settings.requires_role and query.role is None:
            break
    return found


async def _finding(what: str, check: Check, engine: "TrinoEngine", query: Query) -> Finding:
    try:
        return Finding(what, True, await check(engine, query))
    except Wanting as wanting:
        return Finding(what, False, str(wanting), wanting.hint)
    except Silence as silence:
        return Finding(what, False, str(silence), "Check `url` of this engine, and what stands between.")
    except InfrastructureError as problem:
        return Finding(what, False, problem.message, problem.hint)


async def _reachable(engine: "TrinoEngine", query: Query) -> str:
    info = await engine.client.version()
    version = str((info.get("nodeVersion") or {}).get("version") or "of unknown version")
    if info.get("starting"):
        raise Wanting(f"Trino {version} is still starting.", "Wait a minute.")
    return f"Trino {version} at {engine.client.base}."


async def _role(engine: "TrinoEngine", query: Query) -> str:
    [[user]] = await engine.rows("SELECT current_user", query)
    return f"Queries run as {user} with the role {query.role}." if query.role else f"Queries run as {user}."


async def _spooling(engine: "TrinoEngine", query: Query) -> str:
    if not engine.settings.encodings:
        raise Wanting("Switched off in paddock.toml.", "Leave `encodings` out to have it.")
    async with engine.open(replace(query, sql="SELECT 1 AS one", parameters={})) as stream:
        async for _ in stream.batches():
            pass
    if not getattr(stream, "spooled", False):
        raise Wanting(
            "This Trino does not spool: rows come from the coordinator, one page at a time.",
            "Ask for protocol.spooling.enabled=true; large exports are several times faster.",
        )
    return "Results are spooled."


async def _unload(engine: "TrinoEngine", query: Query) -> str:
    settings = engine.settings
    if settings.unload_function:
        return "Starburst's system.unload writes the files; whether it is there shows when it is used."
    if settings.unload_catalog is None or settings.unload_schema is None:
        raise Wanting("Not configured.", "Name unload_catalog and unload_schema in paddock.toml to have it.")
    await unloading.prove_hive(engine, query)
    if settings.unload_schema not in await engine.schemas(query, settings.unload_catalog):
        raise Wanting(f"The schema '{settings.unload_schema}' is not there.", "Create it, or name another.")
    return f"External tables are made in {settings.unload_catalog}.{settings.unload_schema}."


async def _types(engine: "TrinoEngine", query: Query) -> str:
    columns, table = await engine.preview(replace(query, sql=VALUES, parameters={}), 1)
    if table.num_rows != 1:
        raise Wanting("A row of all types did not arrive.")
    return f"{len(columns)} types arrived exactly."


CHECKS: dict[str, Check] = {
    "reachable": _reachable,
    "role": _role,
    "spooling": _spooling,
    "unload": _unload,
    "types": _types,
}
