"""Tokens: made and revoked by admins; everybody may ask who they are."""

from typing import Annotated, Self

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, StringConstraints, model_validator
from starlette.requests import Request
from starlette.responses import Response

from paddock.api import signin
from paddock.api.access import Role
from paddock.api.auth import Asking
from paddock.api.documenting import documented, documented_page
from paddock.api.errors import not_found
from paddock.api.guard import guarded_router
from paddock.api.ids import path_id
from paddock.api.keyset import next_cursor, read_place
from paddock.api.pagination import DEFAULT_LIMIT, Cursor, Limit, answer, page
from paddock.api.plane import ThePlane
from paddock.api.tokens import NewToken

router = guarded_router("tokens")

Name = Annotated[str, StringConstraints(min_length=1, max_length=200, pattern=r"^[^\x00-\x1f\x7f]+$")]
Names = Annotated[list[Name], Field(max_length=1000)]

TOKEN_EXAMPLE = {
    "id": "7d8f9a0b-1c2d-4e3f-8a9b-0c1d2e3f4a5b",
    "name": "laptop",
    "owner": "ada",
    "role": "analyst",
    "kinds": None,
    "engine_roles": ["finance"],
    "engines": ["duckdb"],
    "destinations": [],
    "databases": [],
    "created_at": "2026-11-15T09:00:00Z",
    "created_by": "admin",
    "expires_at": None,
    "last_used_at": "2026-11-15T09:30:00Z",
    "revoked_at": None,
}


class TokenBody(BaseModel):
    model_config = ConfigDict(
        extra="forbid",
        title="NewToken",
        json_schema_extra={"examples": [{"name": "laptop", "owner": "ada", "role": "analyst", "engines": ["duckdb"]}]},
    )

    name: Name
    role: Role
    owner: Name | None = Field(default=None, description="Whose work this is; the name, if left out.")
    kinds: Names | None = Field(default=None, description="Workers: what it may claim; left out: all but internal.")
    engine_roles: Names = Field(default_factory=list, description="What X-Use-Case-Id may say; '*' is all.")
    engines: Names = Field(default_factory=list)
    destinations: Names = Field(default_factory=list)
    databases: Names = Field(default_factory=list)
    expires_at: AwareDatetime | None = None

    @model_validator(mode="after")
    def _kinds_are_for_workers(self) -> Self:
        if self.kinds is not None and self.role != "worker":
            raise ValueError("only a worker's token is limited to kinds")
        return self


@router.get("/api/tokens", summary="All tokens, newest first", responses=documented_page(TOKEN_EXAMPLE))
async def list_tokens(plane: ThePlane, caller: Asking, limit: Limit = DEFAULT_LIMIT, cursor: Cursor = None) -> Response:
    found = await plane.tokens.page(read_place(cursor), limit)
    return page(found, next_cursor(found, limit))


@router.post(
    "/api/tokens",
    status_code=201,
    summary="Make a token",
    responses=documented(
        {**TOKEN_EXAMPLE, "token": "pdk_..."}, status=201, description="With the secret, shown this once."
    ),
)
async def create_token(body: TokenBody, plane: ThePlane, caller: Asking) -> Response:
    shown, secret = await plane.tokens.create(new_token(body), actor=caller.actor)
    return answer({**shown, "token": secret}, 201)


def new_token(body: TokenBody) -> NewToken:
    return NewToken(
        name=body.name,
        role=body.role,
        owner=body.owner or body.name,
        kinds=body.kinds,
        engine_roles=body.engine_roles,
        engines=body.engines,
        destinations=body.destinations,
        databases=body.databases,
        expires_at=body.expires_at,
    )


@router.get(
    "/api/tokens/self", summary="Who am I?", responses=documented({"name": "laptop", "owner": "ada", "role": "analyst"})
)
async def get_own_token(plane: ThePlane, caller: Asking) -> Response:
    return answer(
        {
            "id": caller.token_id,
            "name": caller.name,
            "owner": caller.owner,
            "role": caller.role,
            "engine_roles": sorted(caller.engine_roles),
            "engines": sorted(caller.engines),
            "destinations": sorted(caller.destinations),
            "databases": sorted(caller.databases),
        }
    )


@router.post(
    "/api/tokens/self/sign-in-link",
    status_code=201,
    summary="A link that signs a browser in once, within five minutes",
    responses=documented({"path": "/sign-in#code=..."}, status=201, description="To be opened on this server."),
)
async def create_sign_in_link(request: Request, plane: ThePlane, caller: Asking) -> Response:
    code = await signin.create_link(plane.tokens, caller.token_id)
    path = signin.link_path(code)
    return answer({"path": path, "url": signin.own_address(request) + path}, 201)


@router.delete("/api/tokens/{token_id}", summary="Revoke a token, at once", responses=documented(TOKEN_EXAMPLE))
async def revoke_token(token_id: str, plane: ThePlane, caller: Asking) -> Response:
    revoked = await plane.tokens.revoke(path_id(token_id, "token"), actor=caller.actor)
    if revoked is None:
        raise not_found("token")
    return answer(revoked)
