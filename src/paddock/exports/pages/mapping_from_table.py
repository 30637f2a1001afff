"""The beginning of a mapping that a table becomes: one node, whose key and types are for the person to judge."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from paddock.engines.children.quoting import quoted
from paddock.exports import yaml_form

# By the first word of the engine's own type. What is not here is read as text, which always works.
TYPES: Mapping[str, str] = {
    "bigint": "INT64",
    "int8": "INT64",
    "integer": "INT32",
    "int": "INT32",
    "int4": "INT32",
    "smallint": "INT16",
    "boolean": "BOOL",
    "bool": "BOOL",
    "real": "FLOAT",
    "double": "DOUBLE",
    "date": "DATE",
    "uuid": "UUID",
}
NO_LETTER = re.compile(r"[^A-Za-z0-9_]+")


def beginning(place: Sequence[str], columns: Sequence[Mapping[str, Any]]) -> str:
    """`place`: catalog, schema and table. The first column is taken for the key, which is right more often than not."""
    named = [
        (f"c{n}" if not _plain(column["name"]) else _plain(column["name"]), column) for n, column in enumerate(columns)
    ]
    fields = [{"name": name, "type": _type(str(column.get("native", "")))} for name, column in named]
    selected = ",\n       ".join(f"{quoted(column['name'])} AS {quoted(name)}" for name, column in named)
    source = ".".join(quoted(part) for part in place if part)
    node = {
        "label": _plain(place[-1]) or "Node",
        "primary_key": fields[0] if fields else {"name": "id", "type": "STRING"},
        "properties": fields[1:],
        "sql": f"SELECT {selected or '*'}\nFROM {source}",
    }
    return yaml_form.write({"name": (_plain(place[-1]) or "mapping").lower(), "nodes": [node], "edges": []})


def _type(native: str) -> str:
    return TYPES.get(native.lower().partition("(")[0].partition(" ")[0], "STRING")


def _plain(name: str) -> str:
    """As a label or a property may be called; empty where nothing of it is left."""
    plain = NO_LETTER.sub("_", name).strip("_")[:60]
    return f"n_{plain}" if plain[:1].isdecimal() else plain
