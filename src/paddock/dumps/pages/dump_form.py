"""The form of a dump: what it shows, what was written into it, and the request that this is."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from paddock.api.errors import ApiError
from paddock.dumps.dumps import Dump
from paddock.dumps.request import WITH_SCHEMA, DumpRequest
from paddock.jobs.errors import Refused
from paddock.web.form_problems import by_field, field_problems, validated

COMPRESSIONS = {"none": "none", "zstd": "zstd", "gzip": "gzip"}
WHICH = {"all": "all tables", "only": "only these", "but": "all but these"}
CONTENTS = {"all": "schema and rows", "schema": "the schema alone", "data": "the rows alone"}
DEFAULTS = {"format": "sql", "compress": "none", "which": "all", "content": "all"}
ABOUT = {"invalid_callback": "callback_url", "unknown_table": "tables"}
UPPER = re.compile(r"(?<=[a-z])(?=[A-Z])")


@dataclass(frozen=True, slots=True)
class Form:
    """Texts as a person wrote them."""

    database: str = ""
    format: str = "sql"
    compress: str = "none"
    which: str = "all"
    # A name on each line: they may hold anything else.
    tables: str = ""
    content: str = "all"
    no_owner: str = ""
    preserve_rowids: str = ""
    csv_safe: str = ""
    callback_url: str = ""
    problems: Mapping[str, str] = field(default_factory=dict)

    def refused(self, error: ApiError | Refused) -> "Form":
        place = ABOUT.get(error.code)
        if place is not None:
            return replace(self, problems={place: field_problems(error)[0][1]})
        found = {_field(name): message for name, message in by_field(error, MODEL_FIELDS).items()}
        return replace(self, problems=found)

    @property
    def names(self) -> list[str]:
        return [line for line in self.tables.split("\n") if line.strip()]


NAMES = tuple(one.name for one in fields(Form) if one.name != "problems")
# As the request's model spells them.
MODEL_FIELDS = frozenset({"database", "format", "compress", "tables", "excludeTables", "callbackUrl"})


def _field(name: str) -> str:
    return "tables" if name == "excludeTables" else UPPER.sub("_", name).lower()


def filled(values: Mapping[str, Any]) -> Form:
    """From what a browser sent; a box that is not ticked sends nothing."""
    texts: dict[str, Any] = {name: _text(values.get(name)) for name in NAMES}
    kept = {name: text if name == "tables" else text.strip() for name, text in texts.items()}
    return Form(**{**kept, **{name: kept[name] or usual for name, usual in DEFAULTS.items()}})


def _text(value: object) -> str:
    return str(value or "").replace("\0", "").replace("\r\n", "\n")


def like(dump: Dump) -> Form:
    """The same again; where to call at its end is a secret, and not among what is known."""
    asked = dump.request
    only = [asked["table"]] if asked.get("table") else asked.get("tables") or []
    without = asked.get("excludeTables") or []
    return Form(
        database=dump.database,
        format=dump.format,
        compress=asked.get("compress", "none"),
        which="only" if only else "but" if without else "all",
        tables="\n".join(only or without),
        content="schema" if asked.get("schemaOnly") else "data" if asked.get("dataOnly") else "all",
        no_owner="on" if asked.get("noOwner") else "",
        preserve_rowids="on" if asked.get("preserveRowids") else "",
        csv_safe="on" if asked.get("csvSafe") else "",
    )


def request_of(form: Form, type: str) -> DumpRequest:
    wrong = {}
    if _chooses(form) and not form.names:
        wrong["tables"] = "Name the tables, one on each line."
    return validated(DumpRequest, {**_body(form), **_options(form, type)}, wrong)


def _chooses(form: Form) -> bool:
    return form.which != "all" and form.format != "sqlite"


def _body(form: Form) -> dict[str, Any]:
    chosen: dict[str, Any] = {"tables" if form.which == "only" else "excludeTables": form.names}
    return {
        "async": True,
        "database": form.database or None,
        "format": form.format,
        "compress": form.compress,
        "callbackUrl": form.callback_url or None,
        **(chosen if _chooses(form) and form.names else {}),
    }


def _options(form: Form, type: str) -> dict[str, Any]:
    """Only what belongs to the format: the rest is refused, and here it is merely hidden."""
    chosen: dict[str, Any] = {}
    if form.format in WITH_SCHEMA:
        chosen |= {"schemaOnly": form.content == "schema", "dataOnly": form.content == "data"}
        chosen["noOwner"] = type == "postgres" and form.no_owner == "on"
    if (type, form.format) == ("sqlite", "sql"):
        chosen["preserveRowids"] = form.preserve_rowids == "on"
    if form.format == "csv":
        chosen["csvSafe"] = form.csv_safe == "on"
    return {name: value for name, value in chosen.items() if value}
