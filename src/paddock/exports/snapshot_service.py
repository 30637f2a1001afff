"""What a caller may do with snapshots, whoever asks: a route, a page or a command only translates."""

from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field

from paddock import tracing
from paddock.api.errors import not_found
from paddock.api.ids import path_id
from paddock.api.plane import ControlPlane
from paddock.api.tokens import Caller
from paddock.config import Config
from paddock.engines.settings import EngineSettings
from paddock.exports import snapshot_states, snapshots
from paddock.exports.explicit import check_explicit
from paddock.exports.mapping_bodies import Name, Ttl, VersionNumber, Words
from paddock.exports.mapping_examples import MAPPING_ID
from paddock.exports.mapping_service import ttl_of, visible_mapping
from paddock.exports.model import EngineName
from paddock.exports.request import limits, usual_mode
from paddock.exports.service import allowed_engine
from paddock.exports.snapshot_states import Snapshot
from paddock.exports.snapshots import NewSnapshot
from paddock.jobs.core import Core
from paddock.jobs.enqueueing import IdempotencyKey
from paddock.jobs.model import JsonObject


class SnapshotBody(BaseModel):
    model_config = ConfigDict(
        extra="forbid",
        title="NewSnapshot",
        json_schema_extra={"examples": [{"mapping_id": MAPPING_ID, "engine": "duckdb"}]},
    )

    mapping_id: UUID
    mapping_version: VersionNumber | None = Field(default=None, description="Left out: the newest.")
    engine: EngineName | None = Field(default=None, description="Needed where several are configured.")
    catalog: str | None = Field(default=None, max_length=200)
    schema_name: str | None = Field(default=None, max_length=200, alias="schema")
    name: Name | None = Field(default=None, description="Left out: the mapping's name and version.")
    description: Words = ""
    ttl: Ttl = None
    mode: str | None = Field(
        default=None, pattern="^(direct|unload)$", description="Who writes: the worker, the engine."
    )


async def prepare_snapshot(plane: ControlPlane, caller: Caller, body: SnapshotBody, role: str | None) -> NewSnapshot:
    check_explicit(plane.config)
    return await prepare_needed_snapshot(plane, caller, body, role)


async def prepare_needed_snapshot(
    plane: ControlPlane, caller: Caller, body: SnapshotBody, role: str | None
) -> NewSnapshot:
    """One that is made with what needs it, and so also where people make none themselves."""
    engine, settings = allowed_engine(plane.config, caller, body.engine, role)
    mapping = await visible_mapping(plane, caller, str(body.mapping_id), body.mapping_version)
    return NewSnapshot(
        owner=caller.owner,
        mapping_id=mapping.id,
        mapping_version=mapping.version,
        engine=engine,
        role=role,
        name=(body.name or "").strip(),
        description=body.description,
        ttl=ttl_of(body.ttl),
        request=await request_of(plane.core, plane.config, body, settings),
        traceparent=tracing.inject(),
    )


async def request_of(core: Core, config: Config, body: SnapshotBody, settings: EngineSettings) -> JsonObject:
    """What every job of it is told besides its definition."""
    wanted: JsonObject = {
        "catalog": body.catalog,
        "schema_name": body.schema_name,
        "mode": body.mode or usual_mode(config, settings),
        "max_duration_seconds": (await limits(core.db)).max_duration_seconds,
    }
    return {name: value for name, value in wanted.items() if value is not None}


async def changeable_snapshot(plane: ControlPlane, caller: Caller, text: str) -> Snapshot:
    """One that people may retry and cancel themselves."""
    check_explicit(plane.config)
    return await visible_snapshot(plane, caller, text)


async def retry_snapshot(
    plane: ControlPlane, caller: Caller, snapshot: Snapshot, *, idempotency: IdempotencyKey | None = None
) -> Snapshot:
    # The engine or the role may have been taken from them since.
    allowed_engine(plane.config, caller, snapshot.engine, snapshot.role)
    return await snapshots.retry(plane.core, snapshot, actor=caller.actor, idempotency=idempotency)


async def visible_snapshot(plane: ControlPlane, caller: Caller, text: str) -> Snapshot:
    found = await snapshot_states.get(plane.core.db, path_id(text, "snapshot"))
    if found is None or not caller.sees(found.owner):
        raise not_found("snapshot")
    return found
