"""The form of a plain export: what it shows, what was written into it, and the request that this is."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

import orjson
from pydantic import ValidationError

from paddock.api.errors import ApiError, invalid_field
from paddock.exports.plain import Export
from paddock.exports.request import ExportRequest
from paddock.exports.routes import AskBody
from paddock.jobs.errors import Refused
from paddock.web.form_problems import as_refusal, by_field
from paddock.web.schedule_form import short_duration

DELIMITERS = {",": "comma", ";": "semicolon", "|": "bar", "\t": "tab"}
FORMATS = {"parquet": "Parquet", "csv": "CSV", "jsonl": "JSON Lines"}
# Of fields that are never empty.
DEFAULTS = {"format": "parquet", "delimiter": ",", "if_exists": "error"}
COMPRESSIONS = ("zstd", "gzip", "snappy", "none")


@dataclass(frozen=True, slots=True)
class Form:
    """Texts as a person wrote them. With a `table` there is no SQL."""

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


def asked_for(values: Mapping[str, str]) -> Form:
    """A form that an address fills in: the engine, and a table of it."""
    given: dict[str, Any] = {name: _text(values.get(name)) for name in ("engine", "role", "catalog", "schema", "table")}
    return Form(**given)


def like(export: Export) -> Form:
    """The same again; `request` has what differs from the defaults."""
    asked = export.request
    options = asked.get("options", {})
    name, _, prefix = str(asked.get("destination") or "").partition(":")
    return Form(
        engine=export.engine,
        role=export.role or "",
        sql=asked.get("sql") or "",
        parameters="\n".join(f"{name}={_written(value)}" for name, value in asked.get("parameters", {}).items()),
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
    )


def request_of(form: Form) -> ExportRequest:
    if not form.sql.strip() and not form.table:
        raise invalid_field("sql", "Write a query.")
    if form.destination and not form.prefix:
        raise invalid_field("prefix", "Say where in it, like reports/{date}.")
    body = {
        "engine": form.engine or None,
        **_what(form),
        "format": form.format,
        "options": _options(form),
        "max_rows": form.max_rows.replace(",", "") or None,
        "ttl": form.ttl or None,
        "destination": f"{form.destination}:{form.prefix}" if form.destination else None,
        "if_exists": form.if_exists,
        "mode": (form.mode or None) if form.format == "parquet" else None,
    }
    try:
        return ExportRequest.model_validate(body)
    except ValidationError as error:
        raise as_refusal(error) from None


def _what(form: Form) -> dict[str, Any]:
    what: dict[str, Any] = {"table": form.table} if form.table else {"sql": form.sql, "parameters": _parameters(form)}
    return {**what, "catalog": form.catalog or None, "schema": form.schema or None}


def _parameters(form: Form) -> dict[str, Any]:
    """As `paddock export --param` takes them."""
    found: dict[str, Any] = {}
    for line in filter(str.strip, form.parameters.splitlines()):
        name, equals, value = line.partition("=")
        if not equals or not name.strip():
            raise invalid_field("parameters", f"Write a line for each, as name=value; {line.strip()!r} is none.")
        found[name.strip()] = _value(value.strip())
    return found


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
    if not form.sql.strip() and not form.table:
        raise invalid_field("sql", "Write a query.")
    try:
        return AskBody.model_validate({**_what(form), "rows": rows})
    except ValidationError as error:
        raise as_refusal(error) from None
