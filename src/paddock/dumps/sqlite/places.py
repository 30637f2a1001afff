"""Where a chunk begins, as JSON: the key of the last row before it, typed, so that nothing of it is lost."""

import base64
import struct
from collections.abc import Sequence
from typing import Any

from paddock.dumps.sqlite.quoting import literal

# Of a value that people are told of, so much.
TOLD = 100

# A value of a key: text as the bytes that the database has of it.
Value = int | float | bytes | str | None


def pack(values: Sequence[Value], texts: Sequence[bool]) -> list[Any]:
    return [_pack(value, text) for value, text in zip(values, texts, strict=True)]


def _pack(value: Value, text: bool) -> Any:
    if isinstance(value, bytes):
        return {"text" if text else "blob": base64.b64encode(value).decode()}
    if isinstance(value, float):
        return {"double": struct.pack(">d", value).hex()}
    return value


def unpack(packed: Sequence[Any]) -> list[tuple[str, Value]]:
    """With the words to bind each by. Without `+` the cast would lend its affinity to the column it is compared with."""
    return [_unpack(value) for value in packed]


def _unpack(packed: Any) -> tuple[str, Value]:
    if not isinstance(packed, dict):
        return "?", packed
    [(kind, data)] = packed.items()
    if kind == "double":
        return "?", struct.unpack(">d", bytes.fromhex(data))[0]
    return ("+CAST(? AS TEXT)" if kind == "text" else "?"), base64.b64decode(data)


def display_key(packed: Any, codec: str) -> str:
    """As SQL writes it, for people."""
    _, value = _unpack(packed)
    if not isinstance(value, bytes):
        return "NULL" if value is None else str(value)
    if "blob" in packed:
        return f"x'{_short(value.hex())}'"
    return literal(_short(value.decode(codec, "replace")))


def _short(text: str) -> str:
    return text if len(text) <= TOLD else f"{text[:TOLD]}…"
