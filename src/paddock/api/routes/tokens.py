"""Tokens: made and revoked by admins; everybody may ask who they are."""

from starlette.requests import Request
from starlette.responses import Response

from paddock.api import signin
from paddock.api.access import ADMINS, PEOPLE
from paddock.api.auth import Asking
from paddock.api.documenting import documented, documented_page
from paddock.api.errors import not_found
from paddock.api.guard import guarded_router
from paddock.api.ids import path_id
from paddock.api.keyset import next_cursor, read_place
from paddock.api.pagination import DEFAULT_LIMIT, Cursor, Limit, answer, page
from paddock.api.plane import ThePlane
from paddock.api.services.tokens import TokenBody, new_token
from paddock.capability import grants

router = guarded_router("tokens", ADMINS)


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


@router.for_roles(PEOPLE).get(
    "/api/tokens/self", summary="Who am I?", responses=documented({"name": "laptop", "owner": "ada", "role": "analyst"})
)
async def get_own_token(plane: ThePlane, caller: Asking) -> Response:
    return answer(
        {
            "id": caller.token_id,
            "name": caller.name,
            "owner": caller.owner,
            "role": caller.role,
            **{grant.name: sorted(caller.granted(grant.name)) for grant in grants()},
        }
    )


@router.for_roles(PEOPLE).post(
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
