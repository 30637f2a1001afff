"""Pages as Trino writes them, for tests that need no server."""

import json
from collections.abc import Iterable, Sequence
from typing import Any

from paddock.engines.trino.types import TrinoColumn, column_of

Json = dict[str, Any]


def signature(raw: str, *arguments: Any) -> Json:
    """`signature("decimal", 10, 2)`, `signature("array", BIGINT)`, `signature("row", ("a", BIGINT), (None, BIGINT))`."""
    return {"rawType": raw, "arguments": [_argument(argument) for argument in arguments]}


def _argument(argument: Any) -> Json:
    if isinstance(argument, int):
        return {"kind": "LONG", "value": argument}
    if isinstance(argument, tuple):
        name, type_ = argument
        value = {"typeSignature": type_} | ({"fieldName": {"name": name}} if name is not None else {})
        return {"kind": "NAMED_TYPE", "value": value}
    return {"kind": "TYPE", "value": argument}


BOOLEAN = signature("boolean")
BIGINT = signature("bigint")
DOUBLE = signature("double")
VARCHAR = signature("varchar", 2147483647)
VARBINARY = signature("varbinary")


def columns(*types: Json) -> list[TrinoColumn]:
    """Named a, b, c..."""
    named = zip("abcdefghijklmnopqrstuvwxyz", types, strict=False)
    return [column_of({"name": name, "type": "as people read it", "typeSignature": type_}) for name, type_ in named]


def written(rows: Iterable[Sequence[Any]]) -> bytes:
    """As Jackson does: no spaces, raw UTF-8."""
    return json.dumps(list(rows), separators=(",", ":"), ensure_ascii=False).encode()


def down(values: Iterable[Any]) -> bytes:
    """A page of one column."""
    return written([value] for value in values)
