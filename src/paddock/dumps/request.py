"""What somebody asks for with a dump, and the dump it becomes. Used by the API, the dashboard and schedules alike."""

from collections.abc import Collection, Sequence
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, field_validator
from pydantic.alias_generators import to_camel

from paddock.config import Config
from paddock.dumps.database_settings import DatabaseSettings
from paddock.dumps.dumps import NewDump
from paddock.dumps.model import FORMATS, Compression, DumpOptions, TableName
from paddock.dumps.settings import DumpSettings
from paddock.jobs.errors import Refused

ALLOW_HTTP = "PADDOCK_DUMPS_CALLBACK_ALLOW_HTTP"
NO_STORE = (
    "Async exports require an object store to keep their files in: set PADDOCK_OBJECT_STORE (object_store in paddock.toml)"
    " to a folder or to a bucket like s3://bucket/prefix."
)
# Word for word as StarbaseDB says it.
NO_BUCKET = "Async exports require the EXPORT_BUCKET R2 binding to be configured"
# Formats that have a schema to leave out, or to write alone.
WITH_SCHEMA = ("sql", "custom")


class DumpRequest(BaseModel):
    """StarbaseDB's `async`, `format`, `table` and `callbackUrl`, and what else a dump may be told. As there, what nobody
    knows is ignored."""

    model_config = ConfigDict(
        extra="ignore",
        title="NewDump",
        alias_generator=to_camel,
        populate_by_name=True,
        json_schema_extra={"examples": [{"async": True, "format": "sql", "database": "shop"}]},
    )

    asynchronous: Any = Field(default=None, alias="async", description="Must be true.")
    format: str = Field(default="sql", max_length=50, description="`sql`, `json`, `csv`, `sqlite` or `custom`.")
    database: str | None = Field(default=None, max_length=100, description="Needed where several are configured.")
    table: TableName | None = Field(default=None, description="This one alone: an array or a plain file.")
    callback_url: str | None = Field(default=None, max_length=2000, description="Called when it has ended, by POST.")
    tables: list[TableName] = Field(default_factory=list, max_length=1_000, description="Only these.")
    exclude_tables: list[TableName] = Field(default_factory=list, max_length=1_000, description="All but these.")
    schema_only: bool = False
    data_only: bool = False
    no_owner: bool = Field(default=False, description="PostgreSQL: without who owns what.")
    preserve_rowids: bool = Field(default=False, description="SQLite: with rowids that are no key.")
    csv_safe: bool = Field(default=False, description="CSV: what a spreadsheet would run is prefixed with '.")
    compress: Compression = "none"

    @field_validator("format", mode="before")
    @classmethod
    def _usual_format(cls, format: Any) -> Any:
        return "sql" if format is None else format

    @property
    def options(self) -> DumpOptions:
        return DumpOptions(
            tables=self.tables if self.table is None else [self.table],
            exclude_tables=self.exclude_tables,
            schema_only=self.schema_only,
            data_only=self.data_only,
            no_owner=self.no_owner,
            preserve_rowids=self.preserve_rowids,
            csv_safe=self.csv_safe,
            compress=self.compress,
        )


def refused(message: str, *, code: str = "invalid_export", status: int = 400) -> Refused:
    return Refused(code, message, status=status)


def which(config: Config, named: str | None, mine: Collection[str]) -> str:
    """The database that is meant: the named one, the usual one, or the only one there is. `mine` are those of the asker,
    who learns of no other."""
    configured = config.of(DumpSettings).databases
    if not configured:
        raise refused("No database can be exported here: name one in paddock.toml, as [dumps.databases.NAME].")
    if named is None and config.of(DumpSettings).default_database in mine:
        named = config.of(DumpSettings).default_database
    if named is None and len(mine) == 1:
        [named] = mine
    if named is None and mine:
        raise refused(f"Name the database to export, as `database`: one of {', '.join(sorted(mine))}.")
    if named is None:
        raise refused("There is no database that you may export.", code="not_found", status=404)
    if named not in mine:
        raise refused(f"Database '{named[:100]}' does not exist.", code="not_found", status=404)
    return named


def check_async(config: Config, request: DumpRequest) -> None:
    if request.asynchronous is not True:
        raise refused('Send {"async": true}: a POST starts an export in the background; GET /export/dump streams one.')
    if not config.has_store:
        raise Refused("no_object_store", NO_BUCKET, hint=NO_STORE, status=400)
    if request.callback_url is not None:
        # As of webhooks: where private addresses are allowed, so is plain HTTP.
        allow_http = config.of(DumpSettings).callback_allow_http or config.webhook_allow_private
        check_callback(request.callback_url, allow_http=allow_http)


def check_callback(url: str, *, allow_http: bool) -> None:
    """What the text tells; where it leads is checked at each connect."""
    try:
        parts = urlsplit(url)
        good = bool(parts.hostname) and (parts.port is None or parts.port > 0) and parts.scheme in ("http", "https")
    except ValueError:
        good = False
    if not good or not url.isascii() or not url.isprintable() or " " in url:
        raise refused("callbackUrl is not a URL like https://example.com/hook.", code="invalid_callback")
    parts = urlsplit(url)
    if parts.scheme == "http" and not allow_http:
        raise refused(
            f"callbackUrl must begin with https://; {ALLOW_HTTP}=true allows http:// too.", code="invalid_callback"
        )
    if parts.username is not None or parts.password is not None:
        raise refused(
            "callbackUrl may not hold a user name or password; check the signature instead.", code="invalid_callback"
        )


def new_dump(
    config: Config,
    settings: DatabaseSettings,
    *,
    database: str,
    format: str,
    options: DumpOptions,
    owner: str,
    request: dict[str, Any],
    callback_url: str | None = None,
    schedule: str | None = None,
    keep_last: int | None = None,
    traceparent: str | None = None,
) -> NewDump:
    wrong = problems(settings.type, format, options)
    if wrong:
        raise refused(" ".join(wrong))
    return NewDump(
        database=database,
        format=format,  # type: ignore[arg-type]  # it is one: `problems` looked
        owner=owner,
        kept=timedelta(days=config.of(DumpSettings).keep_days),
        options=options,
        request=request,
        callback_url=callback_url,
        schedule=schedule,
        keep_last=keep_last,
        traceparent=traceparent,
    )


def problems(type: str, format: str, options: DumpOptions) -> Sequence[str]:
    """Why a database of this type is not dumped like that, in sentences."""
    known = FORMATS[type]
    if format not in known:
        return [f"A {type} database is not exported as '{format}': choose {_either(known)}."]
    found = []
    if format == "sqlite" and (options.tables or options.exclude_tables):
        found.append("The format sqlite is the whole database: leave the tables out, or choose another format.")
    if format not in WITH_SCHEMA and (options.schema_only or options.data_only):
        found.append("schemaOnly and dataOnly are for the formats sql and custom.")
    if options.schema_only and options.data_only:
        found.append("schemaOnly and dataOnly leave nothing to export: choose one.")
    if options.tables and options.exclude_tables:
        found.append("Name either the tables to export or those to leave out.")
    if options.no_owner and type != "postgres":
        found.append("noOwner is for PostgreSQL.")
    if options.preserve_rowids and (type, format) != ("sqlite", "sql"):
        found.append("preserveRowids is for SQLite and the format sql.")
    if options.csv_safe and format != "csv":
        found.append("csvSafe is for the format csv.")
    return found


def _either(words: Sequence[str]) -> str:
    return f"{', '.join(words[:-1])} or {words[-1]}"
