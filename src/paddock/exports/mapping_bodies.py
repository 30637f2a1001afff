"""What `/api/mappings` is asked with."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from paddock.exports.mapping import Edge, Node
from paddock.exports.mapping_examples import DEFINITION_EXAMPLE
from paddock.exports.mappings import GREATEST_VERSION
from paddock.exports.model import EngineName

Name = Annotated[str, StringConstraints(min_length=1, max_length=255, pattern=r"\S")]
Words = Annotated[str, StringConstraints(max_length=2_000)]
Ttl = Annotated[
    str | None, Field(max_length=50, description="Deleted so long after it was made, as in P30D; null: never.")
]
# Not an int in the path: what is no number is no version, and simply not there.
VersionNumber = Annotated[int, Field(ge=1, le=GREATEST_VERSION)]


class MappingBody(BaseModel):
    model_config = ConfigDict(
        extra="forbid", title="NewMapping", json_schema_extra={"examples": [{"name": "flights", **DEFINITION_EXAMPLE}]}
    )

    name: Name
    description: Words = ""
    ttl: Ttl = None
    nodes: list[Node]
    edges: list[Edge] = Field(default_factory=list)


class VersionBody(BaseModel):
    """What is not named stays as it is."""

    model_config = ConfigDict(
        extra="forbid",
        title="NewVersion",
        json_schema_extra={"examples": [{"change_description": "Miles are whole numbers.", **DEFINITION_EXAMPLE}]},
    )

    change_description: Annotated[str, StringConstraints(min_length=1, max_length=2_000, pattern=r"\S")]
    name: Name | None = None
    description: Words | None = None
    ttl: Ttl = None
    nodes: list[Node] | None = None
    edges: list[Edge] | None = Field(default=None, description="Comes with `nodes`; left out beside them: no edges.")
    based_on: VersionNumber | None = Field(
        default=None, description="The version you changed: 409 when there is a newer one."
    )


class CopyBody(BaseModel):
    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"name": "flights of mine"}]})

    name: Name
    version: VersionNumber | None = Field(default=None, description="Left out: the newest.")


class ValidationTarget(BaseModel):
    model_config = ConfigDict(extra="forbid")

    engine: EngineName | None = Field(default=None, description="Needed where several are configured.")
    catalog: str | None = Field(default=None, max_length=200)
    schema_name: str | None = Field(default=None, max_length=200, alias="schema")


class ValidateBody(ValidationTarget):
    model_config = ConfigDict(json_schema_extra={"examples": [{"engine": "duckdb", **DEFINITION_EXAMPLE}]})

    nodes: list[Node]
    edges: list[Edge] = Field(default_factory=list)


class ValidateSavedBody(ValidationTarget):
    model_config = ConfigDict(json_schema_extra={"examples": [{"engine": "duckdb", "version": 2}]})

    version: VersionNumber | None = Field(default=None, description="Left out: the newest.")
