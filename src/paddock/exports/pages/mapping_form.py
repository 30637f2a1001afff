"""A mapping written as YAML in a form: read, checked, and every problem at its field and its line."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import yaml
from pydantic import ValidationError

from paddock.api import bodies
from paddock.api.errors import ApiError, invalid_field
from paddock.exports import mappings, yaml_form
from paddock.exports.mapping import Definition, checked
from paddock.exports.mapping_bodies import MappingBody, VersionBody
from paddock.exports.mapping_json import mapping_json
from paddock.jobs.errors import Refused
from paddock.web.form_problems import as_refusal, field_problems

# Some hundred nodes and edges with their queries; the edge of the API bounds the whole form too.
MOST_TEXT = 2_000_000
BEGINNING = """\
name: flights
nodes:
  - label: Airport
    primary_key: {name: code, type: STRING}
    properties:
      - {name: city, type: STRING}
    sql: |-
      SELECT code, city
      FROM airports
edges:
  - type: ROUTE
    from_node: Airport
    to_node: Airport
    from_key: origin
    to_key: target
    sql: |-
      SELECT origin, target
      FROM routes
"""


@dataclass(frozen=True, slots=True)
class Problem:
    """`field` is a path like nodes.0.properties.1.type, or empty; `line` where that stands."""

    field: str
    message: str
    line: int | None = None


# The fields around the text; the last four say a node or an edge that is to be added.
AROUND = ("change_description", "based_on", "engine", "role", "add_sql", "add_name", "add_from", "add_to")


@dataclass(frozen=True, slots=True)
class Form:
    yaml: str = BEGINNING
    change_description: str = ""
    based_on: str = ""
    engine: str = ""
    role: str = ""
    add_sql: str = ""
    add_name: str = ""
    add_from: str = ""
    add_to: str = ""
    # Of the fields around the text; what is wrong with the text itself is `listed`.
    problems: Mapping[str, str] = field(default_factory=dict)
    listed: Sequence[Problem] = ()

    def refused(self, error: ApiError | Refused) -> "Form":
        around, inside = {}, []
        for place, message in field_problems(error):
            if place in AROUND:
                around[place] = message
            else:
                inside.append(Problem(place, message, line_of(self.yaml, place) if place else None))
        return replace(self, problems=around, listed=inside)


def filled(values: Mapping[str, Any]) -> Form:
    def text(name: str) -> str:
        return str(values.get(name) or "").replace("\0", "").replace("\r\n", "\n")

    around: dict[str, Any] = {name: text(name).strip() for name in AROUND}
    return Form(yaml=text("yaml"), **around)


def form_of(mapping: mappings.Mapping) -> Form:
    return Form(yaml=yaml_form.write(mapping_json(mapping)), based_on=str(mapping.version))


def written(form: Form) -> dict[str, Any]:
    if len(form.yaml) > MOST_TEXT:
        raise invalid_field("yaml", f"A mapping has at most {MOST_TEXT:,} characters.")
    try:
        found = yaml_form.read(form.yaml)
    except yaml_form.BadFile as bad:
        raise Refused("invalid", str(bad), status=422) from None
    bodies.check(found)
    return found


def new_body(form: Form) -> MappingBody:
    try:
        return MappingBody.model_validate(written(form))
    except ValidationError as error:
        raise as_refusal(error) from None


def version_body(form: Form) -> VersionBody:
    """All of it stands in the text, so what is not there is taken away."""
    whole = new_body(form)
    if not form.change_description:
        raise invalid_field("change_description", "Say what is changed, and why.")
    try:
        return VersionBody(
            change_description=form.change_description,
            name=whole.name,
            description=whole.description,
            ttl=whole.ttl,
            nodes=whole.nodes,
            edges=whole.edges,
            based_on=int(form.based_on) if form.based_on.isdecimal() and len(form.based_on) < 10 else None,
        )
    except ValidationError as error:
        raise as_refusal(error) from None


def unchecked(form: Form) -> Definition:
    body = new_body(form)
    return Definition(nodes=body.nodes, edges=body.edges)


def definition_of(form: Form) -> Definition:
    """As it would be saved; raises with every problem."""
    return checked(unchecked(form))


def line_of(text: str, path: str) -> int | None:
    return lines_of(text, [path])[path]


def lines_of(text: str, paths: Sequence[str]) -> dict[str, int | None]:
    """The line at which each field stands, or the nearest thing around it that does."""
    try:
        top = yaml.compose(text, Loader=yaml.BaseLoader)
    except (yaml.YAMLError, RecursionError):
        top = None
    return {path: _line_in(top, path) for path in paths}


def _line_in(node: yaml.Node | None, path: str) -> int | None:
    line: int | None = None
    for part in path.split("."):
        found = _inside(node, part)
        if found is None:
            break
        line, node = found
    return line


def _inside(node: yaml.Node | None, part: str) -> tuple[int, yaml.Node] | None:
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if isinstance(key, yaml.ScalarNode) and key.value == part:
                return key.start_mark.line + 1, value
    if isinstance(node, yaml.SequenceNode) and part.isdecimal() and int(part) < len(node.value):
        value = node.value[int(part)]
        return value.start_mark.line + 1, value
    return None
