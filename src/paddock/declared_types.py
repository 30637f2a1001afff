"""The types a mapping may declare, as text: STRING, INT64, DECIMAL(10,2), LIST(STRING), MAP(STRING, INT64),
STRUCT(a INT64, b STRING). What each is in Arrow is said in `paddock.declared_arrow`, which only workers load."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

SCALARS = (
    "STRING", "INT8", "INT16", "INT32", "INT64", "FLOAT", "DOUBLE", "BOOL", "DATE", "TIMESTAMP", "UUID", "BLOB",
)  # fmt: skip
KEYS = ("STRING", "INT64", "DATE", "UUID")
MOST_DIGITS = 38
DEEPEST = 16

_WORD = re.compile(r"\s*([A-Za-z_][A-Za-z0-9_]*|[0-9]+|[(),])")


class BadType(ValueError):
    """A sentence that says what is wrong and what would be right."""


@dataclass(frozen=True, slots=True)
class Type:
    """`name` is one of SCALARS, DECIMAL, LIST, MAP or STRUCT."""

    name: str
    precision: int = 0
    scale: int = 0
    # LIST: the element. MAP: key and value. STRUCT: one for each field.
    inner: Sequence["Type"] = ()
    fields: Sequence[str] = ()

    def __str__(self) -> str:
        if self.name == "DECIMAL":
            return f"DECIMAL({self.precision},{self.scale})"
        if self.fields:
            told = (f"{field} {type}" for field, type in zip(self.fields, self.inner, strict=True))
            return f"STRUCT({', '.join(told)})"
        return f"{self.name}({', '.join(map(str, self.inner))})" if self.inner else self.name


def parse(text: str) -> Type:
    words = _words(text)
    found = _type(words, text, 0)
    if words:
        raise BadType(f"'{text}' goes on after its type ends, at '{words[0]}'.")
    return found


def _words(text: str) -> list[str]:
    words, at = [], 0
    while at < len(text.rstrip()):
        match = _WORD.match(text, at)
        if match is None:
            raise BadType(f"'{text}' is not a type: {text[at:].strip()[:10]!r} has no place in one.")
        words.append(match[1])
        at = match.end()
    return words


def _type(words: list[str], text: str, depth: int) -> Type:
    if depth > DEEPEST:
        raise BadType(f"A type is nested at most {DEEPEST} deep.")
    name = _next(words, text).upper()
    if name in SCALARS:
        return Type(name)
    if name == "DECIMAL":
        _expect(words, "(", text)
        precision = _number(words, text)
        _expect(words, ",", text)
        scale = _number(words, text)
        _expect(words, ")", text)
        if not 1 <= precision <= MOST_DIGITS or scale > precision:
            raise BadType(f"'{text}': a DECIMAL(p,s) has p from 1 to {MOST_DIGITS} and s from 0 to p.")
        return Type(name, precision, scale)
    if name in ("LIST", "MAP"):
        _expect(words, "(", text)
        inner = [_type(words, text, depth + 1)]
        if name == "MAP":
            _expect(words, ",", text)
            inner.append(_type(words, text, depth + 1))
        _expect(words, ")", text)
        return Type(name, inner=tuple(inner))
    if name == "STRUCT":
        return _struct(words, text, depth)
    raise BadType(
        f"'{name}' is not a type; there are {', '.join(SCALARS)}, DECIMAL(p,s), LIST(t), MAP(k, v), STRUCT(…)."
    )


def _struct(words: list[str], text: str, depth: int) -> Type:
    _expect(words, "(", text)
    names, types = [], []
    while True:
        names.append(_next(words, text))
        types.append(_type(words, text, depth + 1))
        if (word := _next(words, text)) == ")":
            break
        if word != ",":
            raise BadType(f"'{text}' should have ',' or ')' where it has '{word}'.")
    if len({name.lower() for name in names}) < len(names):
        raise BadType(f"'{text}' names a field twice.")
    return Type("STRUCT", inner=tuple(types), fields=tuple(names))


def _next(words: list[str], text: str) -> str:
    if not words:
        raise BadType(f"'{text}' ends before its type is complete.")
    return words.pop(0)


def _expect(words: list[str], wanted: str, text: str) -> None:
    if (word := _next(words, text)) != wanted:
        raise BadType(f"'{text}' should have '{wanted}' where it has '{word}'.")


def _number(words: list[str], text: str) -> int:
    if not (word := _next(words, text)).isdigit():
        raise BadType(f"'{text}' should have a number where it has '{word}'.")
    return int(word)
