"""How answers look: {"data": ...}, lists with `next_cursor`. A cursor is opaque to its bearer and holds a keyset place."""

import base64
import binascii
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import msgspec
import orjson
from fastapi import Query
from starlette.responses import Response

from paddock.api.errors import invalid_field

DEFAULT_LIMIT = 100
MAX_LIMIT = 1000

Limit = Annotated[int, Query(ge=1, le=MAX_LIMIT, description="How many to answer with at most.")]
Cursor = Annotated[
    str | None, Query(max_length=2000, description="`next_cursor` of the page before; opaque.", examples=["eyJpZCI6…"])
]


def encode(value: Any) -> bytes:
    """Times as RFC 3339 with Z, ids as text."""
    return orjson.dumps(value, default=str, option=orjson.OPT_UTC_Z | orjson.OPT_NAIVE_UTC)


def answer(data: Any, status: int = 200, headers: Mapping[str, str] | None = None, **beside: Any) -> Response:
    return Response(encode({"data": data, **beside}), status, headers, media_type="application/json")


def page(items: Any, next_cursor: str | None, **beside: Any) -> Response:
    return answer(items, next_cursor=next_cursor, **beside)


def split(texts: Sequence[str] | None) -> tuple[str, ...] | None:
    """A parameter that takes several words, one by one or with commas."""
    return tuple(word for text in texts or () for word in text.split(",") if word) or None


def write_cursor(place: Any) -> str:
    return base64.urlsafe_b64encode(encode(place)).rstrip(b"=").decode()


def read_cursor(cursor: str, shape: Any) -> Any:
    """The place it was written from, as a value of `shape`; a cursor somebody made up is a 422."""
    try:
        content = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
        return msgspec.json.decode(content, type=shape)
    except (binascii.Error, ValueError, msgspec.MsgspecError):
        raise invalid_field("cursor", "Use `next_cursor` of the page before, unchanged.") from None
