"""Who may see what of the schema cache, and what they find there.

An engine is cached under one role. It is shown to those who may use the engine and that role, and to requests that name no
other role: all others learn no name, not even by a count, and are answered live. What was read under another role than the one
that is configured, or with other parts left out, is shown to nobody.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Annotated, Any

import asyncpg
import orjson
from pydantic import Field

from paddock.api import global_config
from paddock.api.errors import invalid_field
from paddock.api.plane import ControlPlane
from paddock.api.tokens import Caller
from paddock.config import Config
from paddock.db.pool import Database
from paddock.engines.registry import settings_from
from paddock.engines.settings import DuckdbSettings, EngineSettings, SqliteSettings, TrinoSettings
from paddock.exports.schema.merging import SQL, ReadAs
from paddock.jobs.model import JsonObject

TTL_HOURS = ("cache.metadata.ttl_hours", 24)
global_config.declare(
    TTL_HOURS[0],
    Annotated[int, Field(ge=1, le=8760)],
    TTL_HOURS[1],
    "After how many hours without a refresh what is known of an engine is stale.",
)
SHORTEST, LONGEST = 2, 200
MOST_FOUND = 200


def why_not_cached(config: Config, settings: EngineSettings) -> tuple[str, str] | None:
    """A stable reason and a sentence, or None where it may be cached."""
    if not config.has_store:
        return "no_store", "There is no object store for what workers read."
    if isinstance(settings, TrinoSettings) and settings.impersonate:
        return "impersonation", "The engine runs queries as their owner: each may see something else."
    if settings.requires_role and metadata_role(settings) is None:
        return "no_role", "The engine needs a role, and metadata_role names none."
    return None


def metadata_role(settings: EngineSettings) -> str | None:
    return settings.metadata_role if isinstance(settings, TrinoSettings) else None


def read_as(settings: EngineSettings) -> ReadAs:
    skip = settings.metadata_skip if isinstance(settings, TrinoSettings) else ()
    return ReadAs.of(metadata_role(settings), skip)


async def cached_engines(db: Database) -> dict[str, asyncpg.Record]:
    """What is known of each engine's cache."""
    return {row["engine"]: row for row in await db.fetch(SQL["engines"])}


def is_as_configured(known: asyncpg.Record | None, settings: EngineSettings) -> bool:
    """Whether what is cached was read as the settings say now."""
    return known is not None and ReadAs.of(known["role"], known["skip"]) == read_as(settings)


def visible_engines(config: Config, caller: Caller, role: str | None = None) -> list[str]:
    """Those whose cache this caller may see, as far as it was read as they are configured."""
    return [
        name
        for name, settings in sorted(settings_from(config).items())
        if why_not_cached(config, settings) is None
        and caller.may_use("engines", name)
        and _may_see(caller, settings, role)
    ]


def _may_see(caller: Caller, settings: EngineSettings, role: str | None) -> bool:
    cached_under = metadata_role(settings)
    if role is not None and role != cached_under:
        return False
    return cached_under is None or caller.may_use("engine_roles", cached_under)


async def browse(
    plane: ControlPlane,
    caller: Caller,
    engine: str,
    catalog: str | None,
    schema: str | None,
    table: str | None,
    role: str | None,
    *,
    any_engine: bool = False,
) -> JsonObject | None:
    """What the cache has; None: it must be asked live, as local engines always are, but by `any_engine`."""
    settings = settings_from(plane.config).get(engine)
    local = isinstance(settings, DuckdbSettings | SqliteSettings) and not any_engine
    if local or settings is None or engine not in visible_engines(plane.config, caller, role):
        return None
    db = plane.core.db
    known = (await cached_engines(db)).get(engine)
    if known is None or known["refreshed_at"] is None or not is_as_configured(known, settings):
        return None
    as_of: datetime | None = known["refreshed_at"]
    if schema is not None:
        as_of = await db.fetchval(SQL["schema"], engine, catalog, schema)
    elif catalog is not None:
        as_of = await db.fetchval(SQL["catalog"], engine, catalog)
    if as_of is None or known["now"] - as_of > await ttl(db):
        return None
    found = await _level(db, engine, catalog, schema, table)
    return None if not found else {**found, "from": "cache", "as_of": as_of}


async def _level(
    db: Database, engine: str, catalog: str | None, schema: str | None, table: str | None
) -> JsonObject | None:
    if table is not None:
        row = await db.fetchrow(SQL["table"], engine, catalog, schema, table)
        return None if row is None else {"columns": _columns(row["columns"], row["types"])}
    if schema is not None:
        return {"names": [row["name"] for row in await db.fetch(SQL["tables"], engine, catalog, schema)]}
    if catalog is not None:
        names = [row["name"] for row in await db.fetch(SQL["schemas"], engine, catalog)]
    else:
        names = [row["name"] for row in await db.fetch(SQL["catalogs"], engine)]
    return {"names": names} if names else None


def _columns(names: list[str], types: list[str]) -> list[dict[str, str]]:
    return [{"name": name, "native": native} for name, native in zip(names, types, strict=True)]


async def ttl(db: Database) -> timedelta:
    value = await db.fetchval(SQL["ttl_hours"], TTL_HOURS[0])
    return timedelta(hours=TTL_HOURS[1] if value is None else int(orjson.loads(value)))


@dataclass(frozen=True, slots=True)
class Match:
    engine: str
    catalog: str
    schema: str
    table: str
    # Those that match, of a search in columns; else none.
    columns: list[dict[str, str]]


async def search(
    plane: ControlPlane,
    caller: Caller,
    text: str,
    *,
    engine: str | None = None,
    catalog: str | None = None,
    within: str = "tables",
) -> list[Match]:
    """Names that begin so first, then those that hold it somewhere. A letter is a letter: `%` and `_` mean nothing."""
    wanted = text.strip().lower().replace("\0", "")
    if not SHORTEST <= len(wanted) <= LONGEST:
        raise invalid_field("q", f"Give {SHORTEST} to {LONGEST} characters.")
    db = plane.core.db
    readable = await _readable_engines(plane, caller, await cached_engines(db))
    engines = [name for name in readable if engine is None or name == engine]
    if within == "columns":
        rows = await db.fetch(SQL["search_columns"], engines, catalog, wanted, MOST_FOUND)
        return [_match(row, wanted) for row in rows]
    rows = list(await db.fetch(SQL["search_prefix"], engines, catalog, wanted, _beyond(wanted), MOST_FOUND))
    if len(rows) < MOST_FOUND:
        rows += await db.fetch(SQL["search_substring"], engines, catalog, wanted, MOST_FOUND - len(rows))
    return [_match(row, None) for row in rows]


def _beyond(prefix: str) -> str:
    """The first text, byte by byte, that no longer begins with it."""
    return prefix + "\U0010ffff"


def _match(row: Any, column: str | None) -> Match:
    columns = [] if column is None else _columns(row["columns"], row["types"])
    found = [one for one in columns if column is not None and column in one["name"].lower()]
    return Match(row["engine"], row["catalog"], row["schema"], row["name"], found[:50])


async def _readable_engines(plane: ControlPlane, caller: Caller, known: Mapping[str, asyncpg.Record]) -> list[str]:
    settings = settings_from(plane.config)
    return [name for name in visible_engines(plane.config, caller) if is_as_configured(known.get(name), settings[name])]


async def stats(plane: ControlPlane, caller: Caller) -> list[dict[str, Any]]:
    """Engine by engine, catalog by catalog: only what the caller may see. Operators also see which engines are not cached, and
    why."""
    engines, db = visible_engines(plane.config, caller), plane.core.db
    oldest, known = await ttl(db), await cached_engines(db)
    readable = await _readable_engines(plane, caller, known)
    catalogs: dict[str, list[asyncpg.Record]] = {name: [] for name in readable}
    for row in await db.fetch(SQL["stats"], readable):
        catalogs[row["engine"]].append(row)
    found = [
        _engine_stats(name, known[name], catalogs[name], oldest) if name in catalogs else _not_read(name)
        for name in engines
    ]
    return found + (_left_out(plane.config, caller) if caller.operator else [])


def _engine_stats(
    name: str, row: asyncpg.Record, catalogs: Sequence[asyncpg.Record], oldest: timedelta
) -> dict[str, Any]:
    return {
        "engine": name,
        "as_of": row["refreshed_at"],
        "stale": _is_stale(row["refreshed_at"], row["now"], oldest),
        "status": row["status"],
        "note": row["note"],
        "left_out": None,
        "catalogs": [_catalog_stats(catalog, row["now"], oldest) for catalog in catalogs],
    }


def _catalog_stats(row: asyncpg.Record, now: datetime, oldest: timedelta) -> dict[str, Any]:
    return {
        "catalog": row["catalog"],
        "schemas": row["schemas"],
        "tables": row["tables"],
        "columns": row["columns"],
        "as_of": row["as_of"],
        "stale": _is_stale(row["as_of"], now, oldest),
        "errors": list(row["errors"] or ()) if row["error"] is None else [row["error"]],
    }


def _is_stale(as_of: datetime | None, now: datetime, oldest: timedelta) -> bool:
    return as_of is None or now - as_of > oldest


def _not_read(name: str, left_out: tuple[str, str] | None = None) -> dict[str, Any]:
    """Never, or not as the engine is configured now."""
    reason, note = (None, None) if left_out is None else left_out
    return {
        "engine": name,
        "as_of": None,
        "stale": True,
        "status": None,
        "note": note,
        "left_out": reason,
        "catalogs": [],
    }


def _left_out(config: Config, caller: Caller) -> list[dict[str, Any]]:
    return [
        _not_read(name, why)
        for name, settings in sorted(settings_from(config).items())
        if caller.may_use("engines", name) and (why := why_not_cached(config, settings)) is not None
    ]
