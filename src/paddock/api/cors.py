"""Pages of other origins, at the paths that are theirs to use: a capability's foreign paths, for the origins it names.

They send a token, never a cookie: credentials are not allowed, so that what a browser keeps for the dashboard stays out
of this.
"""

from collections.abc import Mapping, Sequence, Set

from starlette.datastructures import Headers
from starlette.responses import Response

from paddock.capability import each
from paddock.config import Config

EVERY = "*"
METHODS = "GET, HEAD, POST, DELETE"
SENT = "Authorization, Content-Type, Idempotency-Key, If-Range, Range, X-Request-Id"
SEEN = (
    "Accept-Ranges, Content-Disposition, Content-Length, Content-Range, ETag, Retry-After, X-Error-Code, X-Request-Id"
)

Raw = Sequence[tuple[bytes, bytes]]


def origins_by_path(config: Config) -> Mapping[str, Set[str]]:
    return {
        capability.foreign_paths: frozenset(origins(config))
        for capability, origins in each("cors_origins")
        if capability.foreign_paths is not None
    }


def headers(origins_at: Mapping[str, Set[str]], path: str, asked: Headers) -> Raw:
    """What the answer to this origin says besides; nothing: it is no business of another origin's page."""
    origins = next((names for below, names in origins_at.items() if path.startswith(below)), None)
    if not origins:
        return ()
    origin = asked.get("origin", "")
    if not origin or not origins & {origin, EVERY}:
        return ((b"vary", b"Origin"),)
    return (
        (b"vary", b"Origin"),
        (b"access-control-allow-origin", origin.encode("latin-1")),
        (b"access-control-expose-headers", SEEN.encode()),
    )


def is_preflight(method: str, asked: Headers) -> bool:
    return method == "OPTIONS" and "origin" in asked and "access-control-request-method" in asked


def preflight() -> Response:
    return Response(
        status_code=204,
        headers={
            "Access-Control-Allow-Methods": METHODS,
            "Access-Control-Allow-Headers": SENT,
            "Access-Control-Max-Age": "600",
        },
    )
