"""What somebody asks for with a plain export, and the job it becomes. Used by the API and by schedules alike."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Annotated, Any, Literal

import orjson
from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError, field_validator, model_validator

from paddock.config import Config
from paddock.db.pool import Database, statements
from paddock.engines.registry import settings_from
from paddock.engines.settings import EngineSettings, TrinoSettings
from paddock.exports import destinations
from paddock.exports.model import EngineName, IfExists, Sql, Target
from paddock.exports.plain import NewExport
from paddock.exports.settings import ExportSettings
from paddock.exports.writing.options import Format, OutputOptions, problems
from paddock.field_errors import clause_of, field_errors
from paddock.jobs.durations import parse
from paddock.jobs.errors import Refused
from paddock.jobs.model import JsonObject

SQL = statements("paddock.exports.sql", "exports.sql")
MAX_DURATION = ("export.max_duration_seconds", 3600)
QUOTA = ("export.quota_bytes", None)
LONGEST_TTL = timedelta(days=36_500)
MOST = 2**63 - 1  # what the database counts to


class ExportRequest(BaseModel):
    """Either `sql` or `table`."""

    model_config = ConfigDict(
        extra="forbid",
        title="NewExport",
        populate_by_name=True,
        json_schema_extra={"examples": [{"engine": "duckdb", "sql": "SELECT 42 AS answer", "format": "parquet"}]},
    )

    name: Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=200)] | None = Field(
        default=None, description="What you call it: it is found by that, and downloads carry it."
    )
    engine: EngineName | None = Field(default=None, description="Needed where several are configured.")
    sql: Sql | None = None
    table: str | None = Field(
        default=None, min_length=1, max_length=500, description="With `catalog` and `schema` where the engine has them."
    )
    catalog: str | None = Field(default=None, max_length=200)
    schema_name: str | None = Field(default=None, max_length=200, alias="schema")
    parameters: dict[str, Any] = Field(default_factory=dict, description="Values the SQL names, bound by the engine.")
    format: Format = "parquet"
    options: OutputOptions = Field(default_factory=OutputOptions)
    max_rows: int | None = Field(default=None, ge=1, le=MOST, description="Stop after this many rows.")
    max_bytes: int | None = Field(default=None, ge=1, le=MOST, description="Fail when the files grow larger.")
    ttl: str | None = Field(default="P7D", max_length=50, description="Deleted so long after it was made; null: never.")
    destination: str | None = Field(default=None, max_length=600, description="`name:prefix` with a configured name.")
    if_exists: IfExists = "error"
    mode: Literal["direct", "unload"] | None = Field(default=None, description="Who writes: the worker, or the engine.")

    @field_validator("name")
    @classmethod
    def _one_line(cls, name: str | None) -> str | None:
        if name is not None and not name.isprintable():
            raise ValueError("a name should be one line of visible characters")
        return name

    @field_validator("ttl")
    @classmethod
    def _a_duration(cls, ttl: str | None) -> str | None:
        if ttl is not None and not timedelta(0) < parse(ttl) <= LONGEST_TTL:
            raise ValueError("a ttl should be more than zero and at most 100 years; null keeps it forever")
        return ttl

    @model_validator(mode="after")
    def _agrees(self) -> "ExportRequest":
        if (self.sql is None) == (self.table is None):
            raise ValueError("give either sql or table")
        wrong = problems(self.format, self.options)
        if wrong:
            raise ValueError(" ".join(wrong))
        return self

    @property
    def kept(self) -> timedelta | None:
        return None if self.ttl is None else parse(self.ttl)


@dataclass(frozen=True, slots=True)
class Limits:
    max_duration_seconds: int
    quota_bytes: int | None


async def limits(db: Database) -> Limits:
    """The installation's own, as they are now."""
    names = [MAX_DURATION[0], QUOTA[0]]
    found = {row["name"]: orjson.loads(row["value"]) for row in await db.fetch(SQL["limits"], names)}
    return Limits(found.get(*MAX_DURATION), found.get(*QUOTA))


def one_engine(named: str | None, mine: Sequence[str]) -> str:
    """The engine that is meant: the named one, or the only one there is."""
    if named is None and len(mine) == 1:
        return mine[0]
    if named is None:
        listed = f"Name one of {', '.join(mine)}." if mine else "This token may use no engine."
        raise Refused("invalid", f"engine: {listed}", status=422, details={"fields": [_field("engine", listed)]})
    return named


def target_of(request: ExportRequest, at: datetime) -> Target | None:
    """Where it goes, every placeholder filled in with the time of this very run."""
    if request.destination is None:
        return None
    try:
        name, prefix = destinations.parse(request.destination, at)
        return Target(name=name, prefix=prefix, if_exists=request.if_exists)
    except ValidationError as invalid:
        problem = "; ".join(f"its {found.field}: {clause_of(found.sentence)}" for found in field_errors(invalid))
    except ValueError as found:
        problem = str(found)
    fields = [_field("destination", f"{problem}.")]
    raise Refused("invalid", f"destination: {problem}.", status=422, details={"fields": fields})


def _field(name: str, message: str) -> JsonObject:
    return {"field": name, "message": message}


def new_export(
    config: Config,
    request: ExportRequest,
    *,
    engine: str,
    owner: str,
    role: str | None,
    limits: Limits,
    at: datetime,
    schedule: str | None = None,
    traceparent: str | None = None,
) -> NewExport:
    target = target_of(request, at)
    payload: JsonObject = {
        "engine": engine,
        "sql": request.sql,
        "table": request.table,
        "parameters": request.parameters,
        "catalog": request.catalog,
        "schema_name": request.schema_name,
        "format": request.format,
        "options": request.options.model_dump(mode="json", exclude_defaults=True),
        "max_rows": request.max_rows,
        "max_bytes": request.max_bytes,
        "max_duration_seconds": limits.max_duration_seconds,
        "mode": request.mode or usual_mode(config, settings_from(config)[engine]),
        "destination": None if target is None else target.model_dump(mode="json"),
    }
    asked = request.model_dump(mode="json", by_alias=True, exclude_defaults=True, exclude={"ttl"})
    return NewExport(
        owner=owner,
        role=role,
        payload=payload,
        request={**asked, "engine": engine},
        ttl=request.kept,
        quota_bytes=limits.quota_bytes,
        schedule=schedule,
        traceparent=traceparent,
    )


def usual_mode(config: Config, settings: EngineSettings) -> str:
    """Who writes where nobody says."""
    can_unload = isinstance(settings, TrinoSettings) and settings.can_unload
    return "unload" if can_unload and not config.of(ExportSettings).direct_export else "direct"
