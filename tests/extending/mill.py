"""Parts of a capability of somebody else, as its package might have them: broken, or under names that are taken."""

from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from paddock.jobs.kinds import Kind


async def run(_turn: Any) -> None: ...


async def answer(_request: Request) -> Response:
    return PlainTextResponse("open")


def taken_kinds(_config: Any) -> Sequence[Kind]:
    return [Kind(name=name, payload=BaseModel, handler=run) for name in ("neigh", "probe")]


def internal_routes() -> Sequence[Route]:
    return [Route("/internal/mill", answer)]


def broken(*_: Any) -> Any:
    raise RuntimeError("no hay")
