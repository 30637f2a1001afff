"""What `/api/instances` is asked with."""

from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints, field_validator, model_validator

from paddock.exports.mapping_bodies import Name, VersionNumber, Words
from paddock.exports.mapping_examples import MAPPING_ID
from paddock.exports.model import EngineName
from paddock.instances.model import STATUSES
from paddock.instances.sizing import LEAST_GB, MOST_GB

MOST_QUERY_BYTES = 64 << 10
MOST_AT_ONCE = 100
Duration = Annotated[str, StringConstraints(min_length=1, max_length=50)]
Reason = Annotated[str, StringConstraints(max_length=500)]


def _query_text(query: str) -> str:
    if len(query.encode("utf-8", "replace")) > MOST_QUERY_BYTES:
        raise ValueError("A query has at most 64 KiB.")
    if not query.strip():
        raise ValueError("Write a query.")
    return query


QueryText = Annotated[str, AfterValidator(_query_text)]


class InstanceBody(BaseModel):
    """Either `mapping_id` or `snapshot_id`."""

    model_config = ConfigDict(
        extra="forbid",
        title="NewInstance",
        json_schema_extra={"examples": [{"mapping_id": MAPPING_ID, "name": "flights"}]},
    )

    mapping_id: UUID | None = None
    mapping_version: VersionNumber | None = Field(default=None, description="Left out: the newest.")
    snapshot_id: UUID | None = Field(default=None, description="A ready one, instead of a mapping.")
    name: Name | None = Field(default=None, description="Left out: the mapping's name and version.")
    description: Words = ""
    wrapper_type: Annotated[str, StringConstraints(max_length=50)] | None = Field(
        default=None, description="ladybug (default) or ryugraph, which loads FLOAT and DOUBLE 25 to 90 times slower."
    )
    engine: EngineName | None = Field(
        default=None, description="For the snapshot; needed where several are configured."
    )
    catalog: str | None = Field(default=None, max_length=200)
    schema_name: str | None = Field(default=None, max_length=200, alias="schema")
    ttl: Duration | None = Field(default=None, description="How long it lives from its first running, like PT24H.")
    inactivity_timeout: Duration | None = Field(default=None, description="After how long unused it ends, like PT4H.")
    cpu_cores: int = Field(default=2, ge=1, le=8)
    memory_gb: int | None = Field(
        default=None, ge=LEAST_GB, le=MOST_GB, description="Left out: from the snapshot's size."
    )

    @model_validator(mode="after")
    def _one_source(self) -> "InstanceBody":
        if (self.mapping_id is None) == (self.snapshot_id is None):
            raise ValueError("Give either mapping_id or snapshot_id.")
        if self.snapshot_id is not None:
            beside = [
                n for n in ("mapping_version", "engine", "catalog", "schema_name") if getattr(self, n) is not None
            ]
            if beside:
                raise ValueError(f"Leave '{beside[0].removesuffix('_name')}' out: a snapshot has its own.")
        return self


class ChangeBody(BaseModel):
    """What is not named stays as it is."""

    model_config = ConfigDict(
        extra="forbid", title="InstanceChange", json_schema_extra={"examples": [{"ttl": "PT48H"}]}
    )

    name: Name | None = None
    description: Words | None = None
    ttl: Duration | None = Field(default=None, description="From its first running; at most the longest from now.")
    inactivity_timeout: Duration | None = None


class DeleteFilter(BaseModel):
    model_config = ConfigDict(extra="forbid", title="InstanceFilter")

    owner: Annotated[str, StringConstraints(min_length=1, max_length=500)] | None = None
    status: list[Literal["waiting_for_snapshot", "starting", "running", "stopping", "failed"]] | None = Field(
        default=None, min_length=1, max_length=len(STATUSES)
    )
    name_prefix: Annotated[str, StringConstraints(min_length=1, max_length=255)] | None = None
    older_than: Duration | None = Field(default=None, description="Made longer ago than this, like P1D.")

    @field_validator("status", mode="before")
    @classmethod
    def _one_word(cls, value: Any) -> Any:
        return [value] if isinstance(value, str) else value


class BulkBody(BaseModel):
    """Either `ids` or `filter`, of which something is named."""

    model_config = ConfigDict(
        extra="forbid",
        title="DeleteInstances",
        json_schema_extra={"examples": [{"filter": {"name_prefix": "test-"}, "reason": "the course is over"}]},
    )

    ids: list[UUID] | None = Field(default=None, min_length=1, max_length=MOST_AT_ONCE)
    filter: DeleteFilter | None = None
    expected_count: int | None = Field(default=None, ge=0, description="409 when so many would not be deleted.")
    dry_run: bool = False
    reason: Annotated[str, StringConstraints(min_length=1, max_length=500, pattern=r"\S")]

    @model_validator(mode="after")
    def _one_choice(self) -> "BulkBody":
        if (self.ids is None) == (self.filter is None):
            raise ValueError("Give either ids or filter.")
        if self.filter is not None and not self.filter.model_fields_set:
            raise ValueError("An empty filter would delete all; name owner, status, name_prefix or older_than.")
        return self


class QueryBody(BaseModel):
    model_config = ConfigDict(
        extra="forbid",
        title="Query",
        json_schema_extra={"examples": [{"query": "MATCH (a:Airport) RETURN a.code LIMIT 5"}]},
    )

    query: QueryText
    parameters: dict[str, Any] = Field(default_factory=dict)
    timeout_ms: int = Field(default=60_000, ge=1_000, le=1_800_000)
    max_rows: int | None = Field(default=None, ge=1, le=5_000_000)


class SavedQueryBody(BaseModel):
    model_config = ConfigDict(
        extra="forbid",
        title="NewSavedQuery",
        json_schema_extra={"examples": [{"name": "hubs", "query": "MATCH (a:Airport) RETURN a.code LIMIT 5"}]},
    )

    name: Name
    query: QueryText
