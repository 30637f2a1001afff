"""Pages of other origins, at the paths that are theirs to use: `/export/`, for the origins of `dumps_cors_origins`.

They send a token, never a cookie: credentials are not allowed, so that what a browser keeps for the dashboard stays out
of this.
"""

from collections.abc import Sequence, Set

from starlette.datastructures import Headers
from starlette.responses import Response

BELOW = "/export/"
EVERY = "*"
METHODS = "GET, HEAD, POST, DELETE"
SENT = "Authorization, Content-Type, Idempotency-Key, If-Range, Range, X-Request-Id"
SEEN = (
    "Accept-Ranges, Content-Disposition, Content-Length, Content-Range, ETag, Retry-After, X-Error-Code, X-Request-Id"
)

Raw = Sequence[tuple[bytes, bytes]]


def headers(origins: Set[str], path: str, asked: Headers) -> Raw:
    """What the answer to this origin says besides; nothing: it is no business of another origin's page."""
    if not origins or not path.startswith(BELOW):
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
