"""A type as Trino's `typeSignature` states it, and as SQL writes it.

The display text beside it (`INTERVAL YEAR TO MONTH`, `decimal(4, 2)`) is for people and is never read.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from paddock.engines.children.quoting import quoted

# What Trino sends for a varchar without a length.
_UNBOUNDED = 2147483647
# What `time` and `timestamp` mean where no precision is sent.
_DEFAULT_PRECISION = 3


@dataclass(frozen=True, slots=True)
class Signature:
    raw: str
    numbers: tuple[int, ...] = ()
    # Element of an array, key and value of a map, fields of a row.
    children: tuple["Signature", ...] = ()
    # Of a row's fields: None where a field has no name. Names may repeat.
    names: tuple[str | None, ...] = ()

    @property
    def precision(self) -> int:
        return self.numbers[0] if self.numbers else _DEFAULT_PRECISION


def parse(signature: Mapping[str, Any]) -> Signature:
    """By the shape of each argument, not by its `kind`: the words for that have changed between versions."""
    numbers: list[int] = []
    children: list[Signature] = []
    names: list[str | None] = []
    for argument in signature.get("arguments") or ():
        value = argument["value"]
        if isinstance(value, int):
            numbers.append(value)
        elif isinstance(value, str):
            children.append(Signature(value))
        elif "typeSignature" in value:
            children.append(_nested(value["typeSignature"]))
            names.append((value.get("fieldName") or {}).get("name") or None)
        else:
            children.append(parse(value))
    return Signature(signature["rawType"], tuple(numbers), tuple(children), tuple(names))


def _nested(signature: Mapping[str, Any] | str) -> Signature:
    return Signature(signature) if isinstance(signature, str) else parse(signature)


def spelled(signature: Signature) -> str:
    """As a cast would write it."""
    raw = signature.raw
    if raw == "row":
        fields = zip(signature.names, signature.children, strict=True)
        return f"row({', '.join(_field(name, child) for name, child in fields)})"
    if signature.children:
        return f"{raw}({', '.join(map(spelled, signature.children))})"
    if not signature.numbers or (raw == "varchar" and signature.numbers[0] == _UNBOUNDED):
        return raw
    numbers = ",".join(map(str, signature.numbers))
    word, space, rest = raw.partition(" ")
    return f"{word}({numbers}){space}{rest}"


def _field(name: str | None, signature: Signature) -> str:
    return spelled(signature) if name is None else f"{quoted(name)} {spelled(signature)}"
