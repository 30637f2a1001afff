"""JSON on its way into the database, checked before SQL sees it: one bad item must never spoil a batch."""

import json
import math
import re
from typing import Any

import msgspec

from paddock.jobs.model import MAX_DEPTH

# Numbers are kept exactly or refused. PostgreSQL would keep any, but readers make doubles of integers beyond 64 bits, and
# cannot parse what no double holds (1e99999 is written out as a hundred thousand digits). Digits alone, for text from
# json.dumps; with exponents, for what others wrote.
LEAST_INTEGER, MOST_INTEGER = -(2**63), 2**64 - 1
_LONG_NUMBER = re.compile(r"[0-9]{19}")
_SUSPECT = re.compile(rb"\\u|[0-9][eE][+-]?[0-9]{3}|[0-9]{19}")


INEXACT = "NaN, an infinity or an integer beyond 64 bits"


class InvalidValue(ValueError):
    """The message says what is wrong, for the person who reads the job."""


def checked_json(value: Any, *, limit: int, what: str) -> str | None:
    """`value` as JSON text that PostgreSQL's jsonb will take; None stays None."""
    if value is None:
        return None
    text = _raw_text(value, what) if isinstance(value, msgspec.Raw) else _text(value, what)
    if len(text) > limit or len(text.encode()) > limit:
        raise InvalidValue(f"The {what} is larger than {limit:,} bytes; put it into the object store and name it here.")
    return None if text == "null" else text


def _text(value: Any, what: str) -> str:
    try:
        text = json.dumps(value, allow_nan=False, ensure_ascii=False, separators=(",", ":"))
        text.encode()
    except UnicodeEncodeError:
        raise InvalidValue(f"The {what} contains a lone surrogate, which is not text.") from None
    except (ValueError, TypeError, RecursionError) as problem:
        raise InvalidValue(f"The {what} is not JSON: {problem}.") from None
    # First: the walks below go as deep as the value does.
    if text.count("[") + text.count("{") > MAX_DEPTH and _deeper_than(value, MAX_DEPTH):
        raise InvalidValue(f"The {what} is nested deeper than {MAX_DEPTH} levels.")
    if "\\u0000" in text and _has_nul(value):
        raise InvalidValue(f"The {what} contains a NUL character, which PostgreSQL cannot store.")
    if _LONG_NUMBER.search(text) and has_inexact_number(value):
        raise InvalidValue(f"The {what} contains {INEXACT}; write it as text.")
    return text


def _raw_text(raw: msgspec.Raw, what: str) -> str:
    """What came over the wire was only scanned, not decoded; the plain case stays that cheap."""
    content = bytes(raw)
    if _SUSPECT.search(content) is None and content.count(b"[") + content.count(b"{") <= MAX_DEPTH:
        try:
            return content.decode()
        except UnicodeDecodeError:
            raise InvalidValue(f"The {what} is not UTF-8.") from None
    try:
        return _text(json.loads(content), what)
    except (ValueError, RecursionError) as problem:
        if isinstance(problem, InvalidValue):
            raise
        raise InvalidValue(f"The {what} is not JSON: {problem}.") from None


def _has_nul(value: Any) -> bool:
    if isinstance(value, str):
        return "\0" in value
    if isinstance(value, dict):
        return any(_has_nul(key) or _has_nul(part) for key, part in value.items())
    return isinstance(value, list | tuple) and any(_has_nul(part) for part in value)


def has_inexact_number(value: Any) -> bool:
    """Whether JSON or its readers would change a number of it: NaN, infinity, an integer beyond 64 bits."""
    if isinstance(value, float):
        return not math.isfinite(value)
    if isinstance(value, int):
        return not LEAST_INTEGER <= value <= MOST_INTEGER
    if isinstance(value, dict):
        return any(has_inexact_number(part) for part in value.values())
    return isinstance(value, list | tuple) and any(has_inexact_number(part) for part in value)


def _deeper_than(value: Any, levels: int) -> bool:
    if not isinstance(value, dict | list | tuple):
        return False
    if levels == 0:
        return True
    return any(_deeper_than(part, levels - 1) for part in (value.values() if isinstance(value, dict) else value))


def clean_text(text: str, limit: int) -> str:
    """Text for a person, made storable: no NUL, no lone surrogate, bounded."""
    text = text.replace("\0", "\ufffd").encode("utf-8", "replace").decode()
    return text if len(text) <= limit else text[: limit - 1] + "…"
