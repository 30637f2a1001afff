"""What a caller may do with exports and engines, whoever asks: a route, a page or a command only translates."""

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field

from paddock import tracing
from paddock.api.errors import ApiError, invalid_field, not_found
from paddock.api.ids import path_id
from paddock.api.plane import ControlPlane
from paddock.api.tokens import Caller, check_engine_role
from paddock.config import Config
from paddock.engines.registry import settings_from
from paddock.engines.settings import MISSING_ROLE, EngineSettings
from paddock.exports import asking, plain, taken
from paddock.exports.model import Action, AskPayload, Sql
from paddock.exports.plain import Export, NewExport
from paddock.exports.request import ExportRequest, limits, new_export, one_engine, target_of
from paddock.exports.settings import ExportSettings
from paddock.jobs.enqueueing import IdempotencyKey
from paddock.jobs.model import JsonObject

ROLE = r"^[A-Za-z0-9_.-]{1,128}$"


class AskBody(BaseModel):
    model_config = ConfigDict(
        extra="forbid", title="Question", json_schema_extra={"examples": [{"sql": "SELECT 42 AS answer"}]}
    )

    sql: Sql | None = None
    table: str | None = Field(default=None, max_length=500)
    catalog: str | None = Field(default=None, max_length=200)
    schema_name: str | None = Field(default=None, max_length=200, alias="schema")
    parameters: dict[str, Any] = Field(default_factory=dict)
    rows: int = Field(default=20, ge=1, le=200)


async def prepare_export(plane: ControlPlane, caller: Caller, body: ExportRequest, role: str | None) -> NewExport:
    name, _ = allowed_engine(plane.config, caller, body.engine, role)
    at = datetime.now(UTC)
    target = target_of(body, at)
    if target is not None and (
        target.name not in plane.config.of(ExportSettings).destinations
        or not caller.may_use("destinations", target.name)
    ):
        raise ApiError(
            403,
            "destination_not_allowed",
            f"This token may not write to a destination '{target.name}'.",
            hint="Ask for it to be granted to your token, or leave `destination` out and download the files.",
        )
    return new_export(
        plane.config,
        body,
        engine=name,
        owner=caller.owner,
        role=role,
        limits=await limits(plane.core.db),
        at=at,
        traceparent=tracing.inject(),
    )


async def create_export(
    plane: ControlPlane,
    caller: Caller,
    body: ExportRequest,
    role: str | None,
    *,
    idempotency: IdempotencyKey | None = None,
) -> Export:
    """Refused at once where its place in a destination is taken, and not by its job a while later."""
    new = await prepare_export(plane, caller, body, role)
    await taken.check(plane.core, plane.config, new.target, caller.sees, idempotency)
    return await plain.create(plane.core, new, idempotency=idempotency)


def allowed_engine(config: Config, caller: Caller, named: str | None, role: str | None) -> tuple[str, EngineSettings]:
    known = settings_from(config)
    mine = [engine for engine in known if caller.may_use("engines", engine)]
    name = one_engine(named, mine)
    if name not in mine:
        raise ApiError(
            403,
            "engine_not_allowed",
            f"There is no engine '{name}' that this token may use.",
            hint=f"Yours: {', '.join(mine) or 'none'}. Others must be configured, and granted to your token.",
        )
    check_role(caller, known[name], role)
    return name, known[name]


def check_role(caller: Caller, settings: EngineSettings, role: str | None) -> None:
    if role is None and settings.requires_role:
        raise ApiError(
            422,
            "missing_use_case_id",
            MISSING_ROLE,
            hint="This engine runs every query under a role: send it as X-Use-Case-Id (CLI: --role).",
        )
    check_engine_role(caller, role)


async def visible_export(plane: ControlPlane, caller: Caller, text: str) -> Export:
    found = await plain.get(plane.core.db, UUID(str(path_id(text, "export"))))
    if found is None or not caller.sees(found.owner):
        raise not_found("export")
    return found


async def ask_engine(
    plane: ControlPlane, caller: Caller, engine: str, action: Action, body: AskBody, role: str | None
) -> JsonObject:
    if action in ("describe", "preview") and (body.sql is None) == (body.table is None):
        raise invalid_field("sql", "Give either sql or table.")
    if engine not in settings_from(plane.config) or not caller.may_use("engines", engine):
        raise not_found("engine")
    check_role(caller, settings_from(plane.config)[engine], role)
    payload = AskPayload(engine=engine, action=action, **body.model_dump())
    return asking.answer_of(await asking.ask(plane.core, payload, owner=caller.owner, role=role))


async def browse_engine(
    plane: ControlPlane,
    caller: Caller,
    engine: str,
    level: Action,
    body: AskBody,
    role: str | None,
    *,
    live: bool = False,
) -> JsonObject:
    """From the cache where it has a fresh answer that this caller may see, else by a worker."""
    from paddock.exports.schema import service as cache

    if not live:
        found = await cache.browse(plane, caller, engine, body.catalog, body.schema_name, body.table, role)
        if found is not None:
            return found
    return {**await ask_engine(plane, caller, engine, level, body, role), "from": "live"}
