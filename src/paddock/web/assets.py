"""Stylesheet, scripts, icons: read once, named by their content, kept by browsers for good.

A capability's own are served below its name: `static/plot.js` of `greeter` is `greeter/plot.js`. One digest names all: `/static/{digest}/live.js`. Scripts import each other by relative paths, which then
lead to the same digest, so a browser never mixes the scripts of two versions. An address with another digest, or with
none, gets the same content but is not kept.
"""

import gzip
import hashlib
import mimetypes
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from paddock.api.access import open_route
from paddock.capability import capabilities

FRAME = "paddock.web"
PATH = "/static/{name:path}"
KEPT = "public, max-age=31536000, immutable"
NOT_KEPT = "no-cache"
DIGEST_LENGTH = 12
TEXTS = frozenset({"text/css", "text/javascript", "image/svg+xml", "text/plain"})


@dataclass(frozen=True, slots=True)
class Asset:
    content: bytes
    media_type: str
    # None: it would not be smaller.
    zipped: bytes | None


def routes() -> list[Route]:
    return [open_route(PATH, answer)]


def path_of(name: str) -> str:
    """Where a browser finds it, below the root."""
    if name not in assets():
        raise LookupError(f"There is no static/{name}.")
    return f"/static/{digest()}/{name}"


async def answer(request: Request) -> Response:
    name = str(request.path_params["name"])
    first, _, rest = name.partition("/")
    versioned = rest != "" and len(first) == DIGEST_LENGTH and rest in assets()
    asset = assets().get(rest if versioned else name)
    if asset is None:
        raise HTTPException(404)
    headers = {"cache-control": KEPT if versioned and first == digest() else NOT_KEPT, "vary": "accept-encoding"}
    content = asset.content
    if asset.zipped is not None and accepts_gzip(request):
        content = asset.zipped
        headers["content-encoding"] = "gzip"
    return Response(content, media_type=asset.media_type, headers=headers)


def accepts_gzip(request: Request) -> bool:
    return "gzip" in request.headers.get("accept-encoding", "")


@cache
def assets() -> dict[str, Asset]:
    found = _walk(files(FRAME) / "static", "")
    for capability in capabilities():
        if capability.package in packages_with("static"):
            found += _walk(files(capability.package) / "static", f"{capability.name}/")
    return dict(found)


def packages_with(folder: str) -> list[str]:
    """The frame of the dashboard, and the capabilities that bring such a folder."""
    packages = [FRAME, *(capability.package for capability in capabilities())]
    return [package for package in packages if (files(package) / folder).is_dir()]


@cache
def digest() -> str:
    together = hashlib.sha256()
    for name, asset in sorted(assets().items()):
        together.update(f"{name}\0{len(asset.content)}\0".encode() + asset.content)
    return together.hexdigest()[:DIGEST_LENGTH]


def _walk(folder: Traversable, before: str) -> list[tuple[str, Asset]]:
    found = []
    for item in folder.iterdir():
        if item.is_dir():
            found += _walk(item, f"{before}{item.name}/")
        else:
            found.append((f"{before}{item.name}", _asset(item.name, item.read_bytes())))
    return found


def _asset(name: str, content: bytes) -> Asset:
    media_type = mimetypes.guess_type(name)[0] or "application/octet-stream"
    zipped = gzip.compress(content, 9, mtime=0) if media_type in TEXTS else None
    if zipped is not None and len(zipped) > 0.9 * len(content):
        zipped = None
    return Asset(content, media_type, zipped)
