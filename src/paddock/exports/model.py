"""What an export job is told, in one place: its payload, and where its output goes.

Everything it needs is copied in when the job is made: a mapping or a setting that changes later changes nothing here.
No free text is part of a path, only ids and names that were checked.
"""

import hashlib
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from paddock.exports.writing.options import Format, OutputOptions

MAX_SQL = 200_000
EngineName = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9_-]{0,62}$")]
Sql = Annotated[str, StringConstraints(min_length=1, max_length=MAX_SQL)]
Section = Literal["nodes", "edges"]
IfExists = Literal["error", "replace"]


class _Payload(BaseModel):
    model_config = ConfigDict(extra="forbid")


class DeclaredColumn(_Payload):
    """A column as a mapping declares it; position counts, the query's own name does not."""

    name: str
    type: str


class Target(_Payload):
    """A destination by its configured name, and where in it. `{job}` and times were filled in before."""

    name: EngineName
    prefix: str = Field(max_length=500)
    if_exists: IfExists = "error"

    @property
    def key(self) -> str:
        return f"{self.name}:{self.prefix}"


class ExportPayload(_Payload):
    engine: EngineName
    # Either of the two; the engine quotes the names of a table.
    sql: Sql | None = None
    table: str | None = None
    parameters: dict[str, Any] = Field(default_factory=dict)
    catalog: str | None = None
    schema_name: str | None = None
    # Where drafts go in the managed store.
    output: str
    format: Format = "parquet"
    options: OutputOptions = Field(default_factory=OutputOptions)
    # What the mapping declares; None: as the engine says.
    columns: list[DeclaredColumn] | None = None
    mode: Literal["direct", "unload"] = "direct"
    max_rows: int | None = Field(default=None, ge=1)
    max_bytes: int | None = Field(default=None, ge=1)
    max_duration_seconds: int = Field(default=3600, ge=1)
    destination: Target | None = None
    # Whose files these are: of a plain export, or of one definition of a snapshot.
    export_id: str | None = None
    snapshot_id: str | None = None
    section: Section | None = None
    name: str | None = None


def about(payload: "ExportPayload | AskPayload") -> str | None:
    """The query or the table; of one definition of a snapshot after its name."""
    what = payload.table or payload.sql
    name = payload.name if isinstance(payload, ExportPayload) else None
    return ": ".join(part for part in (name, what) if part) or None


Action = Literal["describe", "preview", "catalogs", "schemas", "tables", "columns", "check"]


class AskPayload(_Payload):
    """A short question to an engine, asked by a worker because only workers have engines."""

    engine: EngineName
    action: Action = "describe"
    sql: Sql | None = None
    parameters: dict[str, Any] = Field(default_factory=dict)
    catalog: str | None = Field(default=None, max_length=200)
    schema_name: str | None = Field(default=None, max_length=200)
    table: str | None = Field(default=None, max_length=500)
    rows: int = Field(default=20, ge=1, le=200)
    # Compared with what the query gives, position by position.
    columns: list[DeclaredColumn] | None = None


class MetadataPayload(_Payload):
    """What a `metadata` job reads: all that an engine has, but for `catalog` and `catalog.schema` named in `skip`."""

    engine: EngineName
    skip: list[str] = Field(default_factory=list)


def owner_id(owner: str) -> str:
    """An owner's name may be any text; a path has its hash."""
    return hashlib.sha256(owner.encode()).hexdigest()[:16]


def output_of_export(owner: str, export_id: str) -> str:
    return f"{owner_id(owner)}/exports/{export_id}"


def output_of_part(owner: str, mapping_id: str, version: int, snapshot_id: str, section: Section, name: str) -> str:
    return f"{owner_id(owner)}/{mapping_id}/v{version}/{snapshot_id}/{section}/{name}"
