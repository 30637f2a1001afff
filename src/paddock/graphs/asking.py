"""What `POST /query` may ask: read, checked and bounded before anything runs."""

import json
import math
import uuid
from typing import Any

from paddock.graphs.problems import Problem, invalid
from paddock.graphs.query import Asked

MOST_TEXT = 64 * 1024
MOST_PARAMETERS = 1 << 20
MOST_DEPTH = 32
TIMEOUT_MS = (1_000, 60_000, 30 * 60_000)  # least, default, most

JSON = "application/json"
CSV = "text/csv"
ARROW = "application/vnd.apache.arrow.stream"
# Format, rows if nothing is said, most rows, bytes.
LIMITS: dict[str, tuple[Any, int, int, int]] = {
    JSON: ("json", 10_000, 10_000, 64 << 20),
    CSV: ("csv", 10_000, 10_000, 64 << 20),
    ARROW: ("arrow", 1_000_000, 5_000_000, 1 << 30),
}
FIELDS = frozenset({"query", "parameters", "timeout_ms", "max_rows", "query_id", "owner"})


def read_query(body: bytes, accept: str) -> Asked:
    try:
        told = json.loads(body)
    except (ValueError, RecursionError):
        raise Problem(400, "invalid_json", "The body is not valid JSON.") from None
    if not isinstance(told, dict):
        raise invalid("body", "is not a JSON object.")
    if unknown := sorted(told.keys() - FIELDS):
        raise invalid(unknown[0][:100], "is not a field of a query.")
    media_type = wanted_type(accept)
    format, rows, most_rows, most_bytes = LIMITS[media_type]
    least, usual, most = TIMEOUT_MS
    return Asked(
        text=_text(told.get("query")),
        parameters=_parameters(told.get("parameters")),
        format=format,
        media_type=media_type,
        timeout=_number(told, "timeout_ms", least, most, usual) / 1000,
        max_rows=_number(told, "max_rows", 1, most_rows, rows),
        max_bytes=most_bytes,
        id=read_id("query_id", told.get("query_id")),
        owner=_owner(told.get("owner")),
    )


def wanted_type(accept: str) -> str:
    """The first of the three that is named; JSON where nothing is."""
    named = [part.partition(";")[0].strip().lower() for part in accept.split(",")]
    for name in named:
        if name in LIMITS:
            return name
    if not accept.strip() or any(name in ("*/*", "application/*") for name in named):
        return JSON
    raise Problem(406, "not_acceptable", f"An answer is {JSON}, {CSV} or {ARROW}.")


def _text(value: object) -> str:
    if not isinstance(value, str) or not value.strip():
        raise invalid("query", "is the Cypher text and cannot be empty.")
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        raise invalid("query", "holds half a character (a lone surrogate).") from None
    if size > MOST_TEXT:
        raise invalid("query", f"has {size:,} bytes; at most {MOST_TEXT:,} are read.")
    if "\x00" in value:
        raise invalid("query", "holds a NUL character.")
    return value


def _parameters(value: object) -> dict[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise invalid("parameters", "is an object: the name of each parameter with its value.")
    if not _plain(value, 0):
        raise invalid("parameters", "are text, numbers, booleans, null, and lists and objects of those.")
    return value


def _plain(value: object, depth: int) -> bool:
    if depth > MOST_DEPTH:
        return False
    if isinstance(value, dict):
        return all(_plain(inner, depth + 1) and _plain(name, depth + 1) for name, inner in value.items())
    if isinstance(value, list):
        return all(_plain(inner, depth + 1) for inner in value)
    if isinstance(value, str):
        return "\x00" not in value and not any("\ud800" <= character <= "\udfff" for character in value)
    if isinstance(value, float):
        return math.isfinite(value)
    return value is None or isinstance(value, bool) or (isinstance(value, int) and -(1 << 63) <= value < 1 << 63)


def _number(told: dict[str, Any], name: str, least: int, most: int, usual: int) -> int:
    value = told.get(name)
    if value is None:
        return usual
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise invalid(name, f"is a whole number from {least:,} to {most:,}.")
    return value


def read_id(name: str, value: object) -> str:
    if value is None:
        return str(uuid.uuid4())
    try:
        return str(uuid.UUID(value))  # type: ignore[arg-type]  # anything else is refused by it
    except (ValueError, AttributeError, TypeError):
        raise invalid(name, "is a UUID.") from None


def _owner(value: object) -> str | None:
    if value is None:
        return None
    if not isinstance(value, str) or len(value) > 255:
        raise invalid("owner", "is text of at most 255 characters.")
    return value
