"""Making tokens, whoever asks: a route, a page or a command only translates."""

from typing import TYPE_CHECKING, Annotated, Self

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, StringConstraints, create_model, model_validator

from paddock.api.access import Role
from paddock.api.tokens import NewToken
from paddock.capability import grants

Name = Annotated[str, StringConstraints(min_length=1, max_length=200, pattern=r"^[^\x00-\x1f\x7f]+$")]


Names = Annotated[list[Name], Field(max_length=1000)]


class TokenFields(BaseModel):
    """What every token has; `TokenBody` has a field for each grant besides."""

    model_config = ConfigDict(
        extra="forbid",
        title="NewToken",
        json_schema_extra={"examples": [{"name": "laptop", "owner": "ada", "role": "analyst", "engines": ["duckdb"]}]},
    )

    name: Name
    role: Role
    owner: Name | None = Field(default=None, description="Whose work this is; the name, if left out.")
    kinds: Names | None = Field(default=None, description="Workers: what it may claim; left out: all but internal.")
    expires_at: AwareDatetime | None = None

    @model_validator(mode="after")
    def _kinds_are_for_workers(self) -> Self:
        if self.kinds is not None and self.role != "worker":
            raise ValueError("only a worker's token is limited to kinds")
        return self


if TYPE_CHECKING:
    TokenBody = TokenFields
else:
    TokenBody = create_model(
        "TokenBody",
        __base__=TokenFields,
        **{
            grant.name: (Names, Field(default_factory=list, description=f"{grant.help} '*' is all."))
            for grant in grants()
        },
    )


def new_token(body: TokenBody) -> NewToken:
    return NewToken(
        name=body.name,
        role=body.role,
        owner=body.owner or body.name,
        kinds=body.kinds,
        grants={grant.name: getattr(body, grant.name) for grant in grants()},
        expires_at=body.expires_at,
    )
