"""JSON from strangers: bounded, and only what PostgreSQL can store.

Refused before any model sees it: text that is not UTF-8 or holds NUL or lone surrogates, NaN and infinities, integers
over 64 bits, nesting over 64 levels. A key that occurs twice counts once, its last value; so do most parsers.
"""

import hashlib
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.types import Receive

from paddock.api.errors import ApiError, invalid_field
from paddock.jobs.model import MAX_DEPTH
from paddock.jobs.values import LEAST_INTEGER, MOST_INTEGER


class JsonRequest(Request):
    async def json(self) -> Any:
        if not hasattr(self, "_json"):
            self._json = parse(await self.body())
        return self._json


def parse(body: bytes) -> Any:
    try:
        value = msgspec.json.decode(body)
    except RecursionError:
        raise _too_deep() from None
    except (msgspec.DecodeError, UnicodeDecodeError) as problem:
        raise malformed(f"The body is not valid JSON: {problem}.") from None
    check(value)
    return value


def malformed(message: str) -> ApiError:
    return ApiError(400, "malformed_body", message, hint="Send JSON in UTF-8.")


def check(value: Any) -> None:
    """Walks without recursion: the value may be as deep as the parser allowed."""
    waiting: list[tuple[Any, int, str]] = [(value, 0, "")]
    while waiting:
        part, depth, path = waiting.pop()
        if isinstance(part, str):
            _check_text(part, path)
        elif isinstance(part, dict):
            _check_depth(depth)
            for key, inner in part.items():
                _check_text(key, path)
                waiting.append((inner, depth + 1, f"{path}.{key}" if path else key))
        elif isinstance(part, list):
            _check_depth(depth)
            waiting.extend((inner, depth + 1, f"{path}.{place}") for place, inner in enumerate(part))
        elif isinstance(part, int) and not LEAST_INTEGER <= part <= MOST_INTEGER:
            raise invalid_field(_display_path(path), "An integer may have 64 bits at most.")


def _check_text(text: str, path: str) -> None:
    if "\0" in text:
        raise invalid_field(_display_path(path), "Text may not hold a NUL character.")


def _check_depth(depth: int) -> None:
    if depth >= MAX_DEPTH:
        raise _too_deep()


def _too_deep() -> ApiError:
    return malformed(f"The body is nested deeper than {MAX_DEPTH} levels.")


def _display_path(path: str) -> str:
    return path.replace("\0", "�")[:200] or "body"


def canonical_hash(value: Any) -> bytes:
    """The same for bodies that mean the same: neither the order of keys nor white space counts."""
    return hashlib.sha256(msgspec.json.encode(value, order="deterministic")).digest()


def is_json(content_type: str | None) -> bool:
    kind = (content_type or "").partition(";")[0].strip().lower()
    return kind == "application/json" or (kind.startswith("application/") and kind.endswith("+json"))


def too_large(limit: int) -> ApiError:
    return ApiError(
        413,
        "body_too_large",
        f"The body is larger than {limit:,} bytes.",
        hint="Put large things into the object store and name them in the payload; PADDOCK_MAX_BODY_BYTES is the limit.",
        # What still comes of it is not worth keeping the connection for.
        headers={"Connection": "close"},
    )


async def read(receive: Receive) -> bytes:
    """The whole body; `receive` is the edge's and keeps the limit."""
    message = await receive()
    if not message.get("more_body"):
        return bytes(message.get("body", b""))
    parts = [message["body"]]
    while message.get("more_body"):
        message = await receive()
        parts.append(message.get("body", b""))
    return b"".join(parts)
