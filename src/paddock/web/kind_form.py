"""The form of a job of any kind, made from the schema of its payload: a field for each, with its type, default and words."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from paddock.api.errors import ApiError
from paddock.jobs.errors import Refused
from paddock.jobs.kinds import Kind
from paddock.jobs.model import NORMAL, Job, JsonObject
from paddock.log import masked
from paddock.web.form_problems import field_problems
from paddock.web.words import pretty

# Before the names of a payload's fields, which may be called like the form's own.
PREFIX = "payload-"
OWN = ("priority", "tags", "role")
NUMBERS = frozenset({"integer", "number"})
LONG_TEXT = 200


@dataclass(frozen=True, slots=True)
class Field:
    """One of a payload. `shape`: text, long (a text of several lines), number, boolean, choice, or json for all else."""

    name: str
    shape: str
    words: str
    required: bool
    default: Any = None
    choices: Sequence[str] = ()

    @property
    def key(self) -> str:
        return PREFIX + self.name

    @property
    def placeholder(self) -> str:
        return "" if self.default in (None, "") else written(self.default)


@dataclass(frozen=True, slots=True)
class Form:
    """Texts as a person wrote them, by the keys of the fields."""

    fields: Sequence[Field]
    values: Mapping[str, str]
    problems: Mapping[str, str] = field(default_factory=dict)

    def __getitem__(self, key: str) -> str:
        return self.values.get(key, "")

    def refused(self, error: ApiError | Refused) -> "Form":
        """The same with what is wrong at its field; what is about none stands at the top."""
        known = {name: name for name in OWN} | {each.name: each.key for each in self.fields}
        problems: dict[str, str] = {}
        for place, message in field_problems(error):
            inside = place.removeprefix("payload.")
            name, _, deeper = inside.partition(".")
            key = known.get(name, "")
            problems.setdefault(key, f"{inside}: {message}" if place and (deeper or not key) else message)
        return Form(self.fields, self.values, problems)


def fields_of(kind: Kind) -> list[Field]:
    schema = kind.payload.model_json_schema()
    required = frozenset(schema.get("required", ()))
    definitions = schema.get("$defs", {})
    return [_field(name, found, name in required, definitions) for name, found in schema.get("properties", {}).items()]


def _field(name: str, schema: Mapping[str, Any], required: bool, definitions: Mapping[str, Any]) -> Field:
    words, default = str(schema.get("description", "")), schema.get("default")
    inner = schema
    options = [each for each in schema.get("anyOf", ()) if each.get("type") != "null"]
    if len(options) == 1:
        inner = options[0]
    if "$ref" in inner:
        inner = definitions.get(str(inner["$ref"]).rpartition("/")[2], {})
    choices = inner.get("enum", ())
    shape = "json"
    if choices and all(isinstance(each, str) for each in choices):
        shape = "choice"
    elif inner.get("type") in NUMBERS:
        shape = "number"
    elif inner.get("type") == "boolean":
        shape = "boolean"
    elif inner.get("type") == "string":
        shape = "long" if inner.get("maxLength", LONG_TEXT + 1) > LONG_TEXT else "text"
    return Field(name, shape, words, required, default, choices if shape == "choice" else ())


def written(value: Any) -> str:
    """A value as the form has it."""
    return value if isinstance(value, str) else orjson.dumps(value).decode()


def empty(kind: Kind) -> Form:
    return Form(fields_of(kind), {"priority": str(NORMAL)})


def like(kind: Kind, job: Job) -> Form:
    """The same job again. What may be a secret is not shown again, and is to be entered."""
    fields = fields_of(kind)
    values = {"priority": str(job.priority), "tags": ", ".join(job.tags), "role": job.role or ""}
    problems: dict[str, str] = {}
    for each in fields:
        if each.name not in job.payload:
            continue
        value = job.payload[each.name]
        if masked({each.name: value}) != {each.name: value}:
            problems[each.key] = "Enter it again: what may be a secret is not shown."
        elif value is not None or each.shape == "json":
            values[each.key] = pretty(value) if each.shape == "json" else written(value)
    return Form(fields, values, problems)


def filled(kind: Kind, given: Mapping[str, Any]) -> Form:
    fields = fields_of(kind)
    keys = [*(each.key for each in fields), *OWN]
    return Form(fields, {key: str(given.get(key) or "").replace("\0", "").replace("\r\n", "\n") for key in keys})


def payload_of(form: Form) -> JsonObject:
    """What was entered; a field that was left empty has its default. It raises for what is no JSON."""
    payload: JsonObject = {}
    wrong = []
    for each in form.fields:
        text = form[each.key]
        if not text.strip():
            continue
        if each.shape in ("text", "long", "choice"):
            payload[each.name] = text
            continue
        try:
            payload[each.name] = orjson.loads(text)
        except orjson.JSONDecodeError:
            # A number that is none is the model's to refuse, in its own words.
            payload[each.name] = text
            if each.shape == "json":
                wrong.append(
                    {"field": f"payload.{each.name}", "message": "Write JSON: a text stands in double quotes."}
                )
    if wrong:
        raise ApiError(422, "invalid", "The form is not complete.", details={"fields": wrong})
    return payload


def tags_of(form: Form) -> list[str]:
    return list(_words(form["tags"]))


def _words(text: str) -> Iterator[str]:
    yield from (word for part in text.split(",") if (word := part.strip()))
