"""What a caller may do with tables, whoever asks: a route, a page or a command only translates."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from paddock import tracing
from paddock.api.errors import ApiError, invalid
from paddock.api.plane import ControlPlane
from paddock.api.tokens import Caller
from paddock.db.pool import Transaction
from paddock.field_errors import field_errors
from paddock.jobs import enqueueing
from paddock.jobs.acting import audit
from paddock.jobs.asking import Question
from paddock.jobs.enqueueing import IdempotencyKey
from paddock.jobs.errors import Draining, LockHeld, Refused
from paddock.jobs.model import Job, JobId, JsonObject, NewJob
from paddock.maintenance import tables
from paddock.maintenance.access import catalogs_of, may_have, visible
from paddock.maintenance.catalog_settings import catalogs_from
from paddock.maintenance.health import next_at, why_not_now
from paddock.maintenance.model import (
    ACTIONS,
    FLOOR_HOURS,
    REWRITES,
    TABLES_PREFIX,
    LookPayload,
    Options,
    TableName,
    namespace_of,
)
from paddock.maintenance.submitting import new_maintenance, tag_of
from paddock.maintenance.tables import SQL, LakeTable

LIVE_LOOK_SECONDS = 10.0


class MaintenanceRequest(BaseModel):
    model_config = ConfigDict(
        extra="forbid",
        title="Maintenance",
        json_schema_extra={"examples": [{"actions": ["rewrite_data_files", "expire_snapshots"], "dry_run": True}]},
    )

    actions: list[str] = Field(max_length=20)
    dry_run: bool = False
    options: dict[str, Any] = Field(default_factory=dict)
    confirm: bool = False


@dataclass(frozen=True, slots=True)
class Checked:
    actions: tuple[str, ...]
    options: Options
    dry_run: bool
    confirm: bool


def check_request(caller: Caller, body: MaintenanceRequest) -> Checked:
    """Whatever is wrong with it, said all at once, with what would be right."""
    problems = [
        {"field": "actions", "message": f"There is no action '{name[:100]}'; there are {', '.join(ACTIONS)}."}
        for name in body.actions
        if name not in ACTIONS
    ]
    if not body.actions:
        problems.append({"field": "actions", "message": f"Name at least one: {', '.join(ACTIONS)}."})
    unknown = [name for name in body.options if name not in Options.model_fields]
    problems += [
        {
            "field": f"options.{name[:100]}",
            "message": f"There is no such option; there are {', '.join(Options.model_fields)}.",
        }
        for name in unknown
    ]
    known = {name: value for name, value in body.options.items() if name not in unknown}
    options = Options()
    try:
        options = Options.model_validate(known)
    except ValidationError as error:
        problems += [
            {"field": ".".join(["options", *each.path]), "message": each.sentence} for each in field_errors(error)
        ]
    if not body.confirm:
        problems += [
            {
                "field": f"options.{name}",
                "message": f"It should be at least {FLOOR_HOURS} hours: readers and commits that are under way need "
                "files younger than that. Operators may go below with `confirm`.",
            }
            for name in options.below_floor
        ]
    elif not caller.operator:
        problems.append({"field": "confirm", "message": "Only the roles ops and admin may confirm."})
    if problems:
        raise invalid(problems)
    return Checked(tuple(body.actions), options, body.dry_run, body.confirm)


def chosen_catalog(plane: ControlPlane, caller: Caller, named: str | None) -> str:
    known = catalogs_from(plane.config)
    if named is not None:
        if named not in known or named not in catalogs_of(plane.config, caller):
            raise unknown_catalog(named)
        return named
    mine = catalogs_of(plane.config, caller)
    if len(mine) == 1:
        return mine[0]
    if not mine:
        raise unknown_table()
    raise invalid([{"field": "catalog", "message": f"Name one of {', '.join(mine)} with ?catalog=."}])


def table_name(catalog: str, database: str, table: str) -> TableName:
    try:
        return TableName(catalog=catalog, namespace=namespace_of(database), name=table)
    except ValidationError:
        raise unknown_table() from None


def unknown_table() -> ApiError:
    return ApiError(
        404,
        "unknown_table",
        "There is no such table, or it is not yours to maintain.",
        hint="`paddock tables list` shows yours.",
    )


def unknown_catalog(name: str) -> ApiError:
    return ApiError(404, "unknown_catalog", f"There is no catalog '{name[:100]}' that you may use.")


async def refuse_when_draining(plane: ControlPlane) -> None:
    """Asked before a body is read: whoever must wait is told so at once."""
    state = await plane.core.db.fetchrow(enqueueing.SQL["drain_state"])
    if state is not None and state["drained"]:
        raise Draining(state["drain_reason"])


async def visible_table(plane: ControlPlane, caller: Caller, table: TableName) -> LakeTable:
    """As the last look saw it."""
    found = await tables.get(plane.core.db, table) if may_have(plane.config, caller, table) else None
    if found is None:
        raise unknown_table()
    return found


async def known_table(plane: ControlPlane, caller: Caller, table: TableName) -> LakeTable:
    """The same, and where no look has seen it yet, one looks now. That nobody answers never means that it is not there."""
    if not may_have(plane.config, caller, table):
        raise unknown_table()
    found = await tables.get(plane.core.db, table)
    if found is None or found.uuid is None:
        try:
            # All of it: waiting for a worker, and then for its look.
            async with asyncio.timeout(LIVE_LOOK_SECONDS):
                await look(plane, caller, table, wait=LIVE_LOOK_SECONDS)
        except Refused as refused:
            raise _not_asked(table, refused.message, refused.hint) from None
        except TimeoutError:
            raise _not_asked(table, f"no answer came within {LIVE_LOOK_SECONDS:g} seconds.", None) from None
        found = await tables.get(plane.core.db, table)
    if found is None:
        raise unknown_table()
    if found.uuid is None:
        raise ApiError(
            503, "catalog_unavailable", f"The table could not be loaded: {found.problem}", headers={"Retry-After": "30"}
        )
    return found


def _not_asked(table: TableName, why: str, hint: str | None) -> ApiError:
    return ApiError(
        503,
        "catalog_unavailable",
        f"The catalog '{table.catalog}' could not be asked for the table: {why}",
        hint=hint or "Try again in a moment.",
        headers={"Retry-After": "10"},
    )


async def look(plane: ControlPlane, caller: Caller, table: TableName, *, wait: float) -> JsonObject:
    """Asks a worker that has the catalog; what it saw is merged by the end of its job."""
    question = Question(kind=f"{TABLES_PREFIX}{table.catalog}", whom="catalog")
    payload = LookPayload(catalog=table.catalog, table=table, deep=True)
    job = await question.ask(
        plane.core, payload.model_dump(mode="json", exclude_none=True), owner=caller.owner, wait=wait
    )
    return question.answer(job)


async def check_catalog(plane: ControlPlane, caller: Caller, catalog: str, *, tag: bool = False) -> JsonObject:
    """What works, by a worker that has it. With `tag` also whether a table keeps one, for those who may use all of the catalog:
    that commits to a table which others may not even see."""
    if catalog not in catalogs_of(plane.config, caller):
        raise unknown_catalog(catalog)
    question = Question(kind=f"{TABLES_PREFIX}{catalog}", whom="catalog")
    whole, granted = visible(plane.config, caller)
    databases = None
    deep = tag
    if whole is not None and catalog not in whole:
        databases = tuple(each.removeprefix(f"{catalog}.") for each in granted or () if each.startswith(f"{catalog}."))
        deep = False
    payload = LookPayload(catalog=catalog, check=True, deep=deep, databases=databases).model_dump(
        mode="json", exclude_none=True
    )
    return question.answer(await question.ask(plane.core, payload, owner=caller.owner))


async def submit(
    plane: ControlPlane, caller: Caller, table: LakeTable, asked: Checked, key: IdempotencyKey | None = None
) -> tuple[Job, bool]:
    """The job, and whether it was there already: an equal request whose job has not begun is that job."""
    if any(action in REWRITES for action in asked.actions) and (cannot := table.figures.get("engine_cannot")):
        raise ApiError(
            422,
            "engine_cannot",
            str(cannot),
            hint="Rewrite it with the engine that writes it, and ask here for the other actions.",
        )
    new = await new_maintenance(
        plane.core.db,
        table,
        asked.actions,
        owner=caller.owner,
        options=asked.options,
        dry_run=asked.dry_run,
        confirm=asked.confirm,
        traceparent=tracing.inject(),
    )
    try:
        id = await enqueueing.once(plane.core, key, lambda tx: _insert(plane, tx, new, caller, asked, table))
    except LockHeld as held:
        same = None if held.holder is None else await plane.core.job(held.holder)
        if same is not None and caller.sees(same.owner) and _is_equal(same, new):
            return same, True
        raise
    [job] = await enqueueing.made(plane.core, [id])
    return job, False


async def _insert(
    plane: ControlPlane, tx: Transaction, new: NewJob, caller: Caller, asked: Checked, table: LakeTable
) -> JobId:
    [id] = await enqueueing.enqueue(plane.core, tx, [new], public=True)
    if asked.confirm:
        await audit(tx, caller.actor, "maintenance.confirm", f"table:{table.table}", details={"job_id": str(id)})
    return id


def _is_equal(job: Job, new: NewJob) -> bool:
    return job.status == "pending" and job.turn_count == 0 and job.kind == new.kind and job.payload == new.payload


async def list_tables(
    plane: ControlPlane,
    caller: Caller,
    filters: Mapping[str, str | None],
    *,
    after: tuple[str, str, str] = ("", "", ""),
    limit: int = 100,
) -> list[LakeTable]:
    catalogs, databases = visible(plane.config, caller)
    return await tables.page(
        plane.core.db, catalogs=catalogs, databases=databases, after=after, limit=limit, filters=filters
    )


async def list_catalogs(plane: ControlPlane, caller: Caller) -> list[JsonObject]:
    known = catalogs_from(plane.config)
    rounds = {row["catalog"]: row for row in await plane.core.db.fetch(SQL["catalogs"])}
    healths: dict[str, dict[str, int]] = {}
    whole, databases = visible(plane.config, caller)
    for row in await plane.core.db.fetch(SQL["healths"], whole, databases):
        healths.setdefault(row["catalog"], {})[row["health"]] = row["tables"]
    found = []
    for name in catalogs_of(plane.config, caller):
        settings, seen = known[name], rounds.get(name)
        found.append(
            {
                "name": name,
                "type": settings.type,
                "description": settings.description,
                "rewrites": settings.rewrites,
                "databases": [
                    each
                    for each in settings.databases
                    if whole is None or name in whole or f"{name}.{each}" in (databases or ())
                ],
                "fence": settings.fence,
                "tables": sum(healths.get(name, {}).values()),
                "healths": healths.get(name, {}),
                "seen_at": None if seen is None else seen["seen_at"],
                "problem": None if seen is None else seen["problem"],
            }
        )
    return found


def table_json(plane: ControlPlane, caller: Caller, found: LakeTable, now: datetime) -> JsonObject:
    settings = catalogs_from(plane.config).get(found.catalog)
    may_name_job = found.live_owner is not None and caller.sees(found.live_owner)
    standing = None if settings is None else found.standing(settings, now, may_name_job=may_name_job)
    why = "Its catalog is configured no more." if standing is None else why_not_now(standing, now)
    automatic = standing is not None and standing.database_listed and standing.enabled
    return {
        "catalog": found.catalog,
        "database": found.database,
        "name": found.name,
        "health": found.health,
        "needs_maintenance": bool(found.due_actions(now)),
        "uuid": found.uuid,
        "location": found.location,
        "snapshot_id": found.snapshot_id,
        "figures": found.figures,
        "issues": found.issues,
        "policy": found.policy,
        "recommended": found.due_actions(now),
        "why_not_now": why,
        "problem": found.problem,
        "seen_at": found.seen_at,
        "maintained_at": found.maintained_at,
        "next_at": next_at(standing, now) if standing is not None and automatic else None,
        "failures": found.failures,
        "job_id": found.live_id if may_name_job else None,
        "tag": tag_of(found.table),
    }


async def now_of(plane: ControlPlane) -> datetime:
    at: datetime = await plane.core.db.fetchval(SQL["clock"])
    return at


def place_of(found: Sequence[LakeTable]) -> tuple[str, str, str]:
    """For the next page."""
    last = found[-1]
    return (last.catalog, last.namespace, last.name)
