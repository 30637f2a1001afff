"""The values of a result as JSON, in the form that exports write as JSON Lines.

Integers and floats are numbers; decimals, durations, times, UUIDs and what JSON has no number for (NaN, Infinity) are
text, binary is base64. A map is an object whose keys are the text of its keys. A node is {_id, _label, properties}, a
relationship {_id, _type, _src, _dst, properties}, a path {_nodes, _rels}; an id is "table:offset".

A converter is made once for a type and called for each value; None in place of one means that the value stays as it is.
"""

import base64
import math
import struct
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import orjson

from paddock.declared_types import Type, parse

Converter = Callable[[Any], Any]
# For each label and edge type: its properties with their declared types.
Properties = Mapping[str, Mapping[str, str]]

AS_THEY_ARE = frozenset(
    {"STRING", "BOOL", "INT8", "INT16", "INT32", "INT64", "UINT8", "UINT16", "UINT32", "UINT64", "SERIAL"}
)
_FLOAT = struct.Struct("<f")


class Converters:
    """`properties` says how the values inside of nodes and relationships are to be written."""

    def __init__(self, properties: Properties) -> None:
        self._properties = {
            name: {column: self.of(parse(type)) for column, type in columns.items()}
            for name, columns in properties.items()
        }

    def of(self, type: Type) -> Converter | None:
        if type.name in AS_THEY_ARE:
            return None
        if type.name == "LIST":
            return _list(self.of(type.inner[0]))
        if type.name == "MAP":
            return _map(type.inner[0], self.of(type.inner[1]))
        if type.name == "STRUCT":
            return _struct(dict(zip(type.fields, map(self.of, type.inner), strict=True)))
        return SCALARS.get(type.name) or self.by_value

    def by_value(self, value: Any) -> Any:
        """Of a type that says nothing about its values: nodes, paths, unions, what a newer engine brings."""
        if isinstance(value, dict):
            if value.keys() == {"offset", "table"}:
                return f"{value['table']}:{value['offset']}"
            if "_SRC" in value:
                return self._relationship(value)
            if "_LABEL" in value:
                return self._node(value)
            if "_NODES" in value:
                return {
                    "_nodes": list(map(self.by_value, value["_NODES"])),
                    "_rels": list(map(self.by_value, value["_RELS"])),
                }
            return {key_text(key): self.by_value(inner) for key, inner in value.items()}
        if isinstance(value, list | tuple):
            return list(map(self.by_value, value))
        for types, convert in BY_CLASS:
            if isinstance(value, types):
                return convert(value)
        return value if value is None or isinstance(value, str | bool) else str(value)

    def _node(self, value: dict[str, Any]) -> dict[str, Any]:
        label = value["_LABEL"]
        return {"_id": self.by_value(value["_ID"]), "_label": label, **self._own(label, value)}

    def _relationship(self, value: dict[str, Any]) -> dict[str, Any]:
        ends = {"_src": self.by_value(value["_SRC"]), "_dst": self.by_value(value["_DST"])}
        type = value["_LABEL"]
        return {"_id": self.by_value(value.get("_ID")), "_type": type, **ends, **self._own(type, value)}

    def _own(self, name: str, value: dict[str, Any]) -> dict[str, Any]:
        """The engines give each node the properties of all labels in the result; only its own are kept."""
        known = self._properties.get(name)
        if known is None:
            return {key: self.by_value(inner) for key, inner in value.items() if not key.startswith("_")}
        return {
            column: inner if inner is None or convert is None else convert(inner)
            for column, convert in known.items()
            if (inner := value.get(column)) is not None or column in value
        }


def _list(convert: Converter | None) -> Converter | None:
    if convert is None:
        return None
    return lambda value: [None if one is None else convert(one) for one in value]


def _map(key: Type, convert: Converter | None) -> Converter:
    text = _float32_text if key.name == "FLOAT" else key_text
    if convert is None:
        return lambda value: {text(key): inner for key, inner in value.items()}
    return lambda value: {text(key): None if inner is None else convert(inner) for key, inner in value.items()}


def _struct(fields: Mapping[str, Converter | None]) -> Converter:
    def convert(value: dict[str, Any]) -> dict[str, Any]:
        return {
            name: inner if inner is None or (change := fields.get(name)) is None else change(inner)
            for name, inner in value.items()
        }

    return convert


def float_text(value: float) -> str:
    if math.isfinite(value):
        return repr(value)
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _double(value: float) -> float | str:
    return value if math.isfinite(value) else float_text(value)


def _float32(value: float) -> float | str:
    """By the shortest text that reads back as the same number of 32 bits, not as its neighbour of 64."""
    if not math.isfinite(value):
        return float_text(value)
    for digits in range(6, 9):
        short = float(f"{value:.{digits}g}")
        try:
            if _FLOAT.unpack(_FLOAT.pack(short))[0] == value:
                return short
        except OverflowError:
            continue  # rounded beyond the largest one
    return float(f"{value:.9g}")


def _float32_text(value: float) -> str:
    return str(_float32(value))


def _integer(value: int | Decimal) -> Any:
    """JSON's numbers have no limit; the encoder's have. Sums of integers come as decimals of 128 bits."""
    value = int(value)
    return value if -(1 << 63) <= value < 1 << 64 else orjson.Fragment(str(value))


def timestamp_text(value: datetime, between: str = "T") -> str:
    """An instant that has a zone is told in UTC, with a Z."""
    if value.tzinfo is None:
        return value.isoformat(between, timespec="microseconds")
    return value.astimezone(UTC).replace(tzinfo=None).isoformat(between, timespec="microseconds") + "Z"


def seconds_text(value: timedelta) -> str:
    microseconds = value // timedelta(microseconds=1)
    return f"{Decimal(microseconds).scaleb(-6):.6f}"


def decimal_text(value: Decimal) -> str:
    return f"{value:f}"


def binary_text(value: bytes) -> str:
    return base64.b64encode(value).decode()


def key_text(key: Any) -> str:
    """The plain text of a map's key."""
    if isinstance(key, str):
        return key
    if isinstance(key, bool):
        return "true" if key else "false"
    if isinstance(key, float):
        return float_text(key)
    if isinstance(key, datetime):
        return timestamp_text(key, " ")
    for types, convert in BY_CLASS:
        if isinstance(key, types):
            return str(convert(key))
    return "" if key is None else str(key)


SCALARS: Mapping[str, Converter] = {
    "DOUBLE": _double,
    "FLOAT": _float32,
    "INT128": _integer,
    "UINT128": _integer,
    "DATE": date.isoformat,
    "TIMESTAMP": timestamp_text,
    "TIMESTAMP_TZ": timestamp_text,
    "UUID": str,
    "BLOB": binary_text,
    "DECIMAL": decimal_text,
    "INTERVAL": seconds_text,
}
# A datetime is a date, so it comes first; a bool is an int, and stays what it is.
BY_CLASS: Sequence[tuple[type | tuple[type, ...], Converter]] = (
    (bool, lambda value: value),
    (int, _integer),
    (float, _double),
    (datetime, timestamp_text),
    (date, date.isoformat),
    (timedelta, seconds_text),
    (Decimal, decimal_text),
    (UUID, str),
    ((bytes, bytearray), binary_text),
)


def encode(value: Any) -> bytes:
    return orjson.dumps(value)
