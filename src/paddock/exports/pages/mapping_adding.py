"""A node or an edge written from a query: its columns, in their order, become the key (of an edge from and to) and the
properties, with the types that the engine tells."""

import re
from collections.abc import Sequence
from dataclasses import replace

from paddock import declared_types as types
from paddock.api.errors import invalid_field
from paddock.exports import yaml_form
from paddock.exports.mapping import MAX_NAME
from paddock.exports.model import Section
from paddock.exports.pages.mapping_form import Form
from paddock.jobs.errors import Refused
from paddock.jobs.model import JsonObject

INTEGERS = ("INT8", "INT16", "INT32", "INT64")


def check(form: Form, section: Section) -> None:
    """What can be known before the engine is asked."""
    if not form.add_sql:
        raise invalid_field("add_sql", "Write the query whose rows are the nodes or the edges.")
    if not form.add_name:
        raise invalid_field("add_name", "Name the label of the nodes, or the type of the edges.")
    for name in ("add_from", "add_to"):
        if section == "edges" and not getattr(form, name):
            raise invalid_field(name, "An edge leads from one label to another: name both.")


def added(form: Form, section: Section, columns: Sequence[JsonObject]) -> Form:
    """The text with it at the end of its list, and the fields empty for the next."""
    keys = 2 if section == "edges" else 1
    if len(columns) < keys:
        raise invalid_field("add_sql", "The query of an edge gives two keys first: where it starts and where it ends.")
    names = _names([str(column["name"]) for column in columns])
    if section == "edges":
        entity: JsonObject = {
            "type": form.add_name,
            "from_node": form.add_from,
            "to_node": form.add_to,
            "from_key": names[0],
            "to_key": names[1],
        }
    else:
        entity = {"label": form.add_name, "primary_key": {"name": names[0], "type": _key_type(columns[0])}}
    rest = zip(names[keys:], columns[keys:], strict=True)
    entity["properties"] = [{"name": name, "type": column["type"]} for name, column in rest]
    try:
        text = yaml_form.add(form.yaml, section, {**entity, "sql": form.add_sql})
    except yaml_form.BadFile as bad:
        raise Refused("invalid", str(bad), status=422) from None
    return replace(form, yaml=text, add_sql="", add_name="", add_from="", add_to="")


def _key_type(column: JsonObject) -> str:
    type = str(column["type"])
    if type in INTEGERS:
        return "INT64"
    if type not in types.KEYS:
        raise invalid_field(
            "add_sql",
            f"The first column, '{column['name']}', is {type}, and a key is one of {', '.join(types.KEYS)}: cast it in"
            " the query, or begin with another column.",
        )
    return type


def _names(columns: Sequence[str]) -> list[str]:
    """Names that a mapping may have, each once: count(*) becomes count, and a second count becomes count_2."""
    found: list[str] = []
    for place, column in enumerate(columns, 1):
        word = re.sub(r"[^A-Za-z0-9_]+", "_", column).strip("_")[: MAX_NAME - 5]
        name = word if re.match("[A-Za-z]", word) else f"column_{place}"
        found.append(name if name not in found else f"{name}_{place}")
    return found
