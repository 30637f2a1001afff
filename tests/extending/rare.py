"""A capability of another package with the fields that hardly any has, for `test_rare_fields.py`."""

import asyncio
from collections.abc import Sequence

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from paddock.api.access import open_route
from paddock.capability import Capability
from paddock.config import Config, ConfigError
from paddock.db.pool import Database
from paddock.jobs.link import Link

RARE = Capability(
    name="rare",
    title="Rare",
    package="tests.extending",
    check_settings="tests.extending.rare:check_settings",
    worker_chore="tests.extending.rare:chore",
    internal_routes="tests.extending.rare:internal_routes",
    kept_drafts="tests.extending.rare:kept_drafts",
)
needed: set[str] = set()
chores: "asyncio.Queue[Link]" = asyncio.Queue()


def check_settings(config: Config) -> None:
    if config.concurrency == 13:
        raise ConfigError("rare wants no concurrency of 13.")


async def chore(config: Config, link: Link) -> None:
    chores.put_nowait(link)
    raise RuntimeError("a chore that fails is tried again")


def internal_routes() -> list[Route]:
    return [open_route("/internal/rare", answer)]


async def answer(request: Request) -> Response:
    return JSONResponse({"rare": True})


async def kept_drafts(db: Database, drafts: Sequence[str]) -> set[str]:
    return needed.intersection(drafts)
