"""The types of a result as the engines write them: `INT64[]`, `MAP(STRING, INT64)`, `STRUCT(a INT64, b STRING)`, `NODE`.

They become the `Type` that a mapping's types are too. A text that makes no sense here is a type of that name, which is
treated by its values: a newer engine's types must not stop a query.
"""

from paddock.declared_types import Type


def read_type(text: str) -> Type:
    text = text.strip()
    if text.endswith("]"):
        return Type("LIST", inner=(read_type(text[: text.rindex("[")]),))
    name, opened, rest = text.partition("(")
    if not opened or not rest.endswith(")"):
        return Type(text.upper())
    parts = _parts(rest[:-1])
    name = name.strip().upper()
    if name == "DECIMAL" and len(parts) == 2:
        return Type(name, int(parts[0]), int(parts[1]))
    if name == "MAP" and len(parts) == 2:
        return Type(name, inner=(read_type(parts[0]), read_type(parts[1])))
    if name == "STRUCT":
        pairs = [_field(part) for part in parts]
        return Type(name, inner=tuple(read_type(type) for _, type in pairs), fields=tuple(field for field, _ in pairs))
    return Type(name)


def _field(part: str) -> tuple[str, str]:
    part = part.strip()
    if part.startswith("`"):
        name, _, type = part[1:].partition("`")
        return name, type
    name, _, type = part.partition(" ")
    return name, type


def _parts(text: str) -> list[str]:
    """Cut at the commas that are inside no bracket."""
    parts, depth, begin = [], 0, 0
    for place, character in enumerate(text):
        depth += (character == "(") - (character == ")")
        if character == "," and depth == 0:
            parts.append(text[begin:place])
            begin = place + 1
    return [*parts, text[begin:]]
