"""The form of a plain export: what it shows, what was written into it, and the request that this is."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

import orjson

from paddock.amounts import listed
from paddock.api.errors import ApiError
from paddock.exports.plain import Export
from paddock.exports.request import ExportRequest
from paddock.exports.service import AskBody
from paddock.jobs.errors import Refused
from paddock.log import masked
from paddock.web.form_problems import by_field, validated
from paddock.web.schedule_form import short_duration

DELIMITERS = {",": "comma", ";": "semicolon", "|": "bar", "\t": "tab"}
FORMATS = {"parquet": "Parquet", "csv": "CSV", "jsonl": "JSON Lines"}
# Of fields that are never empty.
DEFAULTS = {"format": "parquet", "delimiter": ",", "if_exists": "error"}
COMPRESSIONS = ("zstd", "gzip", "snappy", "none")


@dataclass(frozen=True, slots=True)
class Form:
    """Texts as a person wrote them. With a `table` there is no SQL."""

    name: str = ""
    engine: str = ""
    role: str = ""
    sql: str = ""
    # A line for each: name=value.
    parameters: str = ""
    catalog: str = ""
    schema: str = ""
    table: str = ""
    format: str = "parquet"
    compression: str = ""
    header: str = "on"
    delimiter: str = ","
    csv_safe: str = ""
    partition_by: str = ""
    max_rows: str = ""
    ttl: str = "7d"
    mode: str = ""
    destination: str = ""
    prefix: str = ""
    if_exists: str = "error"
    problems: Mapping[str, str] = field(default_factory=dict)

    def refused(self, error: ApiError | Refused) -> "Form":
        return replace(self, problems=by_field(error, KNOWN))

    @property
    def table_name(self) -> str:
        return ".".join(part for part in (self.catalog, self.schema, self.table) if part)


NAMES = tuple(one.name for one in fields(Form) if one.name != "problems")
KNOWN = frozenset(NAMES) - {"table"}


def filled(values: Mapping[str, Any]) -> Form:
    """From what a browser sent; a box that is not ticked sends nothing."""
    texts: dict[str, Any] = {name: _text(values.get(name)) for name in NAMES}
    usual = {name: texts[name] or DEFAULTS[name] for name in DEFAULTS}
    stripped: dict[str, Any] = {name: text.strip() for name, text in texts.items() if name not in ("sql", *DEFAULTS)}
    return Form(**{**stripped, "sql": texts["sql"].rstrip(), **usual})


def _text(value: object) -> str:
    """Lines end as the engine counts them."""
    return str(value or "").replace("\0", "").replace("\r\n", "\n")


def form_from_address(values: Mapping[str, str]) -> Form:
    """A form that an address fills in: the engine, and a table of it."""
    given: dict[str, Any] = {name: _text(values.get(name)) for name in ("engine", "role", "catalog", "schema", "table")}
    return Form(**given)


def like(export: Export) -> Form:
    """The same again; `request` has what differs from the defaults. A secret among the parameters is not shown again."""
    given = export.request.get("parameters", {})
    hidden = [name for name, value in given.items() if masked({name: value}) != {name: value}]
    again = f"Enter {listed(hidden)} again: what may be a secret is not shown."
    asked = export.request
    options = asked.get("options", {})
    name, _, prefix = str(asked.get("destination") or "").partition(":")
    return Form(
        name=export.name or "",
        engine=export.engine,
        role=export.role or "",
        sql=asked.get("sql") or "",
        parameters="\n".join(f"{name}={'' if name in hidden else _written(value)}" for name, value in given.items()),
        catalog=asked.get("catalog") or "",
        schema=asked.get("schema") or "",
        table=asked.get("table") or "",
        format=asked.get("format", "parquet"),
        compression=options.get("compression") or "",
        header="on" if options.get("header", True) else "",
        delimiter=options.get("delimiter", ","),
        csv_safe="on" if options.get("csv_safe") else "",
        partition_by=", ".join(options.get("partition_by", ())),
        max_rows=str(asked.get("max_rows") or ""),
        ttl=short_duration(export.ttl),
        mode=asked.get("mode") or "",
        destination=name,
        prefix=prefix,
        if_exists=asked.get("if_exists", "error"),
        problems={"parameters": again} if hidden else {},
    )


def request_of(form: Form) -> ExportRequest:
    wrong = _wrong(form)
    if form.destination and not form.prefix:
        wrong["prefix"] = "Enter a folder, like reports/{date}."
    body = {
        "name": form.name or None,
        "engine": form.engine or None,
        **_what(form),
        "format": form.format,
        "options": _options(form),
        "max_rows": form.max_rows.replace(",", "") or None,
        "ttl": form.ttl or None,
        "destination": f"{form.destination}:{form.prefix}" if form.destination and form.prefix else None,
        "if_exists": form.if_exists,
        "mode": (form.mode or None) if form.format == "parquet" else None,
    }
    return validated(ExportRequest, body, wrong)


def _wrong(form: Form) -> dict[str, str]:
    """What nobody can read, of what is asked for."""
    wrong = {}
    if not form.sql.strip() and not form.table:
        wrong["sql"] = "Write a query."
    unreadable = [] if form.table else [line for line in _lines(form) if not _named(line)]
    if unreadable:
        wrong["parameters"] = f"Write a line for each, as name=value; {unreadable[0]!r} has no '='."
    return wrong


def _what(form: Form) -> dict[str, Any]:
    what: dict[str, Any] = {"table": form.table} if form.table else {"sql": form.sql, "parameters": _parameters(form)}
    return {**what, "catalog": form.catalog or None, "schema": form.schema or None}


def _parameters(form: Form) -> dict[str, Any]:
    """As `paddock export --param` takes them."""
    return {name: _value(value) for name, value in filter(None, map(_named, _lines(form)))}


def _lines(form: Form) -> list[str]:
    return [line.strip() for line in form.parameters.splitlines() if line.strip()]


def _named(line: str) -> tuple[str, str] | None:
    name, equals, value = line.partition("=")
    return (name.strip(), value.strip()) if equals and name.strip() else None


def _value(text: str) -> Any:
    """`3` is a number, `"3"` and `three` are text."""
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return text


def _written(value: Any) -> str:
    """A text as it is, unless it would be read as something else, or as two lines."""
    plain = isinstance(value, str) and _value(value) == value and value == value.strip() and "\n" not in value
    return value if plain else orjson.dumps(value).decode()


def _options(form: Form) -> dict[str, Any]:
    """Only what was chosen: an option of another format is refused, and here it is merely hidden."""
    chosen: dict[str, Any] = {}
    if form.compression:
        chosen["compression"] = form.compression
    if form.format == "csv":
        chosen |= {"header": form.header == "on", "delimiter": form.delimiter, "csv_safe": form.csv_safe == "on"}
    partitions = [name for word in form.partition_by.split(",") if (name := word.strip())]
    return chosen | ({"partition_by": partitions} if partitions else {})


def question_of(form: Form, rows: int) -> AskBody:
    """What a preview asks."""
    return validated(AskBody, {**_what(form), "rows": rows}, _wrong(form))
