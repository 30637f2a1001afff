"""The effective configuration: arguments, then the environment, then `paddock.toml`, then defaults.

Every value remembers where it came from. Whatever is wrong stops the start with one sentence that names the
variable or key as the person wrote it; a secret's value is never part of that sentence. A blank value counts as
not given, because that is what an optional key of a ConfigMap turns into.

Plain pydantic and tomllib instead of pydantic-settings: that package costs another 100 ms at every start of the
command line, and it keeps neither the source of a value nor the older names apart.
"""

import ipaddress
import json
import logging
import os
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple
from urllib.parse import unquote, urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PrivateAttr,
    SecretStr,
    ValidationError,
)

# What `object_store` says where nothing shall be kept: exports and dumps then have no place to go to.
NO_STORE = "none"
PREFIX = "PADDOCK_"
OLDER_PREFIX = "GRAPH_OLAP_"

# Names that older deployments set. They rank below PADDOCK_* and above the file.
OLDER_NAMES: Mapping[str, str] = {
    "CONTROL_PLANE_URL": "server",
    "LOG_LEVEL": "log_level",
    "POLL_INTERVAL_SECONDS": "poll_interval_seconds",
    "EMPTY_POLL_BACKOFF": "empty_poll_backoff",
    "STARBURST_URL": "starburst_url",
    "STARBURST_USER": "starburst_user",
    "STARBURST_PASSWORD": "starburst_password",
    "STARBURST_CLIENT_TAGS": "starburst_client_tags",
    "STARBURST_SOURCE": "starburst_source",
    "DIRECT_EXPORT": "direct_export",
    "GCP_PROJECT": "gcp_project",
    "EXPORT_BUCKET": "export_bucket",
}

# In the file a setting stands at the top, or in its table with or without the table's name: `log_level = "debug"`,
# or `[log]` and `level = "debug"`.
TABLES: Mapping[str, tuple[str, ...]] = {
    "serve": (
        "host",
        "port",
        "internal_port",
        "public_url",
        "trusted_proxies",
        "allowed_hosts",
        "max_body_bytes",
        "drain_retry_after_seconds",
        "streams_per_token",
        "webhook_allow_private",
    ),
    "database": ("database_url", "durable_pool", "relaxed_pool"),
    "storage": ("data", "object_store"),
    "worker": (
        "server",
        "token",
        "token_file",
        "worker_id",
        "worker_kinds",
        "worker_port",
        "concurrency",
        "kind_concurrency",
        "submitted_concurrency",
        "claims_in_flight",
        "poll_interval_seconds",
        "empty_poll_backoff",
        "beat_seconds",
    ),
    "jobs": ("lease_seconds", "rescue_seconds", "claim_grace_seconds", "history_days", "audit_days"),
    "log": ("log_level", "log_format", "log_days"),
    "metrics": ("metrics_port", "metrics_token"),
    "otel": ("otel_endpoint",),
    "starburst": (
        "starburst_url",
        "starburst_user",
        "starburst_password",
        "starburst_client_tags",
        "starburst_source",
    ),
    "exports": (
        "direct_export",
        "gcp_project",
        "export_bucket",
        "scratch",
        "scratch_bytes",
        "export_memory_bytes",
        "explicit_snapshots",
    ),
    "dumps": (
        "dumps_databases",
        "dumps_default_database",
        "dumps_sync_max_seconds",
        "dumps_keep_days",
        "dumps_slice_seconds",
        "dumps_part_bytes",
        "dumps_cors_origins",
        "dumps_callback_allow_http",
    ),
}
# Tables of tables, one for each name: `[engines.warehouse]`, `[dumps.databases.shop]`. What is in them is checked by who uses it.
NAMED_TABLES = ("engines", "destinations", "dumps_databases")
# Of those, what is a path: it starts at the file that names it.
PATHS_IN_TABLES = (
    "roots", "hidden", "spill_folder", "path", "database", "ca_file", "password_file", "token_file", "work_dir", "pg_dump"
)  # fmt: skip

# What Kubernetes adds for a service called `paddock` or `paddock-worker`, see `enableServiceLinks`.
SERVICE_LINK = re.compile(r".*_SERVICE_HOST|.*_SERVICE_PORT(_\w+)?|.*_PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?")
SERVICE_LINK_ADDRESS = re.compile(r"(tcp|udp|sctp)://")

log = logging.getLogger(__name__)


class ConfigError(Exception):
    """One sentence that names what is wrong and where it was set."""

    code = "bad_config"


def _number(value: object) -> object:
    if isinstance(value, bool):
        raise ValueError("it should be a number, not true or false")
    return value


def _words(value: object) -> object:
    if not isinstance(value, str):
        return value
    if value.startswith("["):
        return json.loads(value)
    return [word.strip() for word in value.split(",") if word.strip()]


def _numbers_by_kind(value: object) -> object:
    if not isinstance(value, str):
        return value
    if value.startswith("{"):
        return json.loads(value)
    pairs = [word.partition("=") for word in value.split(",") if word.strip()]
    if not all(equals for _, equals, _ in pairs):
        raise ValueError("it should look like export=4,dump=1")
    return {kind.strip(): number.strip() for kind, _, number in pairs}


def _tables(value: object) -> object:
    return json.loads(value) if isinstance(value, str) else value


def _http_url(value: str) -> str:
    parts = urlsplit(value)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("it should be a URL that begins with http:// or https://")
    return value.rstrip("/")


def _network(value: str) -> str:
    try:
        ipaddress.ip_network(value)
    except ValueError as problem:
        raise ValueError("each should be an address or a network such as 10.0.0.0/8") from problem
    return value


def _postgres_url(value: SecretStr) -> SecretStr:
    if not value.get_secret_value().startswith(("postgres://", "postgresql://")):
        raise ValueError("it should be a URL that begins with postgresql://")
    return value


def _store_url(value: str) -> str:
    return value if "://" in value or value == NO_STORE else _folder_url(Path(value))


def _folder_url(folder: Path) -> str:
    return folder.expanduser().absolute().as_uri()


def _default_store(valid: Mapping[str, Any]) -> str:
    bucket: str | None = valid.get("export_bucket")
    if bucket:
        return bucket if "://" in bucket else f"gs://{bucket}"
    return _folder_url(valid["data"] / "objects")


def _level(value: object) -> object:
    if not isinstance(value, str):
        return value
    return {"warn": "warning", "fatal": "critical"}.get(value.lower(), value.lower())


Seconds = Annotated[float, BeforeValidator(_number), Field(gt=0, le=366 * 86400, allow_inf_nan=False)]
Days = Annotated[int, BeforeValidator(_number), Field(ge=1, le=36500)]
Count = Annotated[int, BeforeValidator(_number), Field(ge=1, le=2**31)]
Bytes = Annotated[int, BeforeValidator(_number), Field(ge=16 * 1024**2, le=2**60)]
# Object stores take no part below 5 MiB, and it is raised to that there.
PartBytes = Annotated[int, BeforeValidator(_number), Field(ge=64 * 1024, le=5 * 1024**3)]
Port = Annotated[int, BeforeValidator(_number), Field(ge=0, le=65535)]
HttpUrl = Annotated[str, AfterValidator(_http_url)]
Words = Annotated[tuple[str, ...], BeforeValidator(_words)]
Proxies = Annotated[tuple[Annotated[str, AfterValidator(_network)], ...], BeforeValidator(_words)]
Tables = Annotated[dict[str, dict[str, Any]], BeforeValidator(_tables)]
Level = Literal["debug", "info", "warning", "error", "critical"]


class Explained(NamedTuple):
    name: str
    shown: str
    source: str


class Config(BaseModel):
    """Port 0 means any free port. `None` means what the comment beside it says."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    database_url: Annotated[SecretStr, AfterValidator(_postgres_url)] | None = None  # None: `up` embeds one
    durable_pool: Count = 10
    relaxed_pool: Count = 10

    host: str | None = None  # None: 127.0.0.1 under `up`, 0.0.0.0 under `serve`
    port: Port = 8080
    internal_port: Port | None = None  # None: /internal answers on `port`
    public_url: HttpUrl | None = None
    trusted_proxies: Proxies = ("127.0.0.1", "::1")  # whose X-Forwarded-Proto and -For are believed
    allowed_hosts: Words = ()
    max_body_bytes: Count = 1024 * 1024
    drain_retry_after_seconds: Seconds = 30
    streams_per_token: Count = 20
    webhook_allow_private: bool = False

    data: Path = Path("paddock-data")
    export_bucket: str | None = None  # the older name of object_store: a bucket of GCS unless it is a URL
    object_store: Annotated[str, AfterValidator(_store_url)] = Field(default_factory=_default_store)

    server: HttpUrl | None = None  # None: the running `paddock up`
    token: SecretStr | None = None
    token_file: Path | None = None
    worker_id: str = Field(default_factory=lambda: f"worker-{os.getpid()}", max_length=253)
    worker_kinds: Words | None = None  # None: every kind this worker has
    worker_port: Port = 8080
    concurrency: Count = 10
    kind_concurrency: Annotated[dict[str, Count], BeforeValidator(_numbers_by_kind)] = Field(default_factory=dict)
    submitted_concurrency: Count = 10
    claims_in_flight: Count = 1
    poll_interval_seconds: Seconds = 5
    empty_poll_backoff: Seconds = 10
    beat_seconds: Seconds = 10

    lease_seconds: Seconds = 60
    rescue_seconds: Seconds = 1
    claim_grace_seconds: Seconds = 30
    history_days: Days = 30
    audit_days: Days = 365

    log_level: Annotated[Level, BeforeValidator(_level)] = "info"
    log_format: Literal["auto", "json", "console"] = "auto"
    log_days: Days = 7
    metrics_port: Port | None = None  # None: /metrics answers on `port`
    metrics_token: SecretStr | None = None
    otel_endpoint: HttpUrl | None = None  # None: no traces

    starburst_url: HttpUrl | None = None
    starburst_user: str | None = None
    starburst_password: SecretStr | None = None
    starburst_client_tags: Words = ()
    starburst_source: str | None = None
    direct_export: bool = True
    gcp_project: str | None = None
    scratch: Path = Field(default_factory=lambda valid: valid["data"] / "scratch")
    scratch_bytes: Bytes = 16 * 1024**3
    export_memory_bytes: Bytes = 256 * 1024**2
    explicit_snapshots: bool = True
    engines: Tables = Field(default_factory=dict)
    destinations: Tables = Field(default_factory=dict)

    dumps_databases: Tables = Field(default_factory=dict)
    dumps_default_database: str | None = None  # None: the only one there is
    dumps_sync_max_seconds: Seconds = 900
    dumps_keep_days: Days = 7
    dumps_slice_seconds: Seconds = 4.5
    dumps_part_bytes: PartBytes | None = None  # None: by the size of the database
    dumps_cors_origins: Words = ()
    dumps_callback_allow_http: bool = False

    _sources: dict[str, str] = PrivateAttr(default_factory=dict)

    @property
    def beat(self) -> timedelta:
        return timedelta(seconds=self.beat_seconds)

    @property
    def lease(self) -> timedelta:
        return timedelta(seconds=self.lease_seconds)

    @property
    def rescue_every(self) -> timedelta:
        return timedelta(seconds=self.rescue_seconds)

    @property
    def claim_grace(self) -> timedelta:
        return timedelta(seconds=self.claim_grace_seconds)

    @property
    def poll_interval(self) -> timedelta:
        return timedelta(seconds=self.poll_interval_seconds)

    @property
    def empty_backoff(self) -> timedelta:
        return timedelta(seconds=self.empty_poll_backoff)

    @property
    def drain_retry_after(self) -> timedelta:
        return timedelta(seconds=self.drain_retry_after_seconds)

    @property
    def history_kept(self) -> timedelta:
        return timedelta(days=self.history_days)

    @property
    def audit_kept(self) -> timedelta:
        return timedelta(days=self.audit_days)

    @property
    def logs_kept(self) -> timedelta:
        return timedelta(days=self.log_days)

    @property
    def has_store(self) -> bool:
        return self.object_store != NO_STORE

    def bearer_token(self) -> SecretStr | None:
        """`token`, else what `token_file` holds now: a mounted secret changes while we run."""
        if self.token is not None or self.token_file is None:
            return self.token
        try:
            text = self.token_file.read_text("utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"{self.source('token_file')} names {self.token_file}, which {_why(error)}.") from None
        if not text:
            raise ConfigError(f"{self.source('token_file')} names {self.token_file}, which is empty.")
        return SecretStr(text)

    def source(self, name: str) -> str:
        """The variable, file, `argument` or `default` that the value of this setting came from."""
        return self._sources.get(name) or ("argument" if name in self.model_fields_set else "default")

    def explain(self) -> list[Explained]:
        return [Explained(name, _shown(getattr(self, name)), self.source(name)) for name in type(self).model_fields]

    def __repr__(self) -> str:
        return f"Config({', '.join(f'{name}={shown}' for name, shown, _ in self.explain())})"

    __str__ = __repr__


SETTINGS: frozenset[str] = frozenset(Config.model_fields)
SECRETS = frozenset({"database_url", "token", "metrics_token", "starburst_password"})


class _Given(NamedTuple):
    value: Any
    source: str  # for `explain`
    called: str  # for error sentences: the name as it was written
    base: Path  # relative folders start here


def load(
    environ: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    overrides: Mapping[str, Any] | None = None,
) -> Config:
    """An override that is None was not given: flags of the command line can be passed as they are."""
    environ = os.environ if environ is None else environ
    cwd = Path.cwd() if cwd is None else cwd
    given: dict[str, _Given] = {"data": _Given("paddock-data", "default", "data", cwd)}
    if hostname := environ.get("HOSTNAME", "").strip():
        given["worker_id"] = _Given(hostname, "HOSTNAME", "HOSTNAME", cwd)
    for layer in (_from_file(environ, cwd), _from_environment(environ, cwd), _from_arguments(overrides or {}, cwd)):
        given.update({name: item for name, item in layer if item.value is not None and item.value != ""})
    try:
        config = Config.model_validate({name: _placed(name, item) for name, item in given.items()})
    except ValidationError as invalid:
        # `from None`: pydantic's own text could show what a secret was set to.
        raise _first_error(invalid, given) from None
    config._sources.update({name: item.source for name, item in given.items()})
    _check_relations(config, given)
    return config


def _from_arguments(overrides: Mapping[str, Any], cwd: Path) -> Iterator[tuple[str, _Given]]:
    for name, value in overrides.items():
        if name not in SETTINGS:
            raise ConfigError(f"{name} is not a setting{_nearest(name, SETTINGS)}")
        yield name, _Given(value, "argument", f"--{name.replace('_', '-')}", cwd)


def _from_environment(environ: Mapping[str, str], cwd: Path) -> list[tuple[str, _Given]]:
    """Least first: older names, then GRAPH_OLAP_*, then PADDOCK_*."""
    bare, older, ours = [], [], []
    for key, value in environ.items():
        item = _Given(value.strip(), key, key, cwd)
        if key in OLDER_NAMES:
            bare.append((OLDER_NAMES[key], item))
        elif key.startswith(PREFIX):
            name = key.removeprefix(PREFIX).lower()
            if _is_service_link(key, value) or key == "PADDOCK_CONFIG":
                continue
            if name not in SETTINGS or key != PREFIX + name.upper():
                raise ConfigError(f"{key} is not a setting{_nearest(name, map(_variable, SETTINGS), PREFIX)}")
            ours.append((name, item))
        elif key.startswith(OLDER_PREFIX) and not _is_service_link(key, value):
            rest = key.removeprefix(OLDER_PREFIX)
            name = OLDER_NAMES.get(rest, rest.lower())
            if name in SETTINGS:
                older.append((name, item))
            else:
                log.warning(
                    "%s is not a setting and is ignored%s", key, _nearest(name, map(_variable, SETTINGS), PREFIX)
                )
    return bare + older + ours


def _is_service_link(key: str, value: str) -> bool:
    return bool(SERVICE_LINK.fullmatch(key) or (key.endswith("_PORT") and SERVICE_LINK_ADDRESS.match(value)))


def _from_file(environ: Mapping[str, str], cwd: Path) -> list[tuple[str, _Given]]:
    named = environ.get("PADDOCK_CONFIG", "").strip()
    path = cwd / Path(named or "paddock.toml").expanduser()
    try:
        content = tomllib.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        if named:
            raise ConfigError(f"PADDOCK_CONFIG names {path}, which does not exist.") from None
        return []
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} {_why(error)}.") from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path} is not valid TOML: {error}.") from None
    found: dict[str, _Given] = {}
    for called, name, value in _keys_of_file(content, path):
        if name in found:
            raise ConfigError(f"{called} and {found[name].called} set the same thing: keep one of them.")
        found[name] = _Given(value.strip() if isinstance(value, str) else value, str(path), called, path.parent)
    return list(found.items())


def _keys_of_file(content: Mapping[str, Any], path: Path) -> Iterator[tuple[str, str, Any]]:
    for key, value in content.items():
        if isinstance(value, dict) and key in TABLES:
            group = TABLES[key]
            for inner, inner_value in value.items():
                name = f"{key}_{inner}" if f"{key}_{inner}" in group else inner
                if name not in group:
                    known = [f"{key}.{name.removeprefix(f'{key}_')}" for name in group]
                    nearest = _nearest(inner, known, f"{key}.")
                    raise ConfigError(f"{key}.{inner} in {path} is not a setting{nearest}")
                yield f"{key}.{inner} in {path}", name, inner_value
        elif key in SETTINGS:
            yield f"{key} in {path}", key, value
        else:
            raise ConfigError(f"{key} in {path} is not a setting{_nearest(key, {*SETTINGS, *TABLES})}")


def _placed(name: str, item: _Given) -> Any:
    """A relative folder starts where it was written: at the file that names it, or where the command runs."""
    if name in NAMED_TABLES and isinstance(item.value, dict):
        return {key: _placed_table(table, item.base) for key, table in item.value.items()}
    store = name == "object_store" and "://" not in str(item.value) and item.value != NO_STORE
    relative = name in ("data", "token_file", "scratch") or store
    if relative and isinstance(item.value, str | Path):
        path = item.base / Path(item.value).expanduser()
        return str(path) if name == "object_store" else path
    return item.value


def _placed_table(table: Any, base: Path) -> Any:
    def placed(value: Any) -> Any:
        if isinstance(value, list):
            return [placed(one) for one in value]
        return str(base / Path(value).expanduser()) if isinstance(value, str) else value

    if not isinstance(table, dict):
        return table

    def is_path(key: str, value: Any) -> bool:
        """A destination's url may be a folder, like the object store's."""
        return key in PATHS_IN_TABLES or (key == "url" and isinstance(value, str) and "://" not in value)

    return {key: placed(value) if is_path(key, value) else value for key, value in table.items()}


def _check_relations(config: Config, given: Mapping[str, _Given]) -> None:
    def told(name: str) -> str:
        where = given[name].called if name in given else f"{name}, by default"
        return f"{where} ({_shown(getattr(config, name))})"

    if config.lease_seconds < 3 * config.beat_seconds:
        raise ConfigError(
            f"{told('lease_seconds')} must be at least three times {told('beat_seconds')},"
            " or one lost beat ends a healthy worker's session."
        )
    taken: dict[int, str] = {}
    for name in ("port", "internal_port", "metrics_port"):
        port = getattr(config, name)
        if port and port in taken:
            first = told(taken[port])
            raise ConfigError(f"{told(name)} must differ from {first}: leave it out to answer on that port.")
        if port:
            taken[port] = name
    _check_places(config)


def _check_places(config: Config) -> None:
    """A place has one name: exports take turns at `lake:orders`, and would not know that it is `sales:orders` too."""
    places = [("object_store", _place(config.object_store))] if config.has_store else []
    for name, table in config.destinations.items():
        if isinstance(url := table.get("url"), str):
            places.append((f"destinations.{name}", _place(url)))
    for at, (name, place) in enumerate(places):
        for other, its_place in places[:at]:
            shorter = min(len(place), len(its_place))
            if place[:shorter] == its_place[:shorter]:
                raise ConfigError(
                    f"{name} and {other} must be places of their own: one is the other, or a folder inside it."
                )


def _place(url: str) -> tuple[str, ...]:
    """Equal for equal places; that of a folder inside begins with it."""
    parts = urlsplit(url)
    if parts.scheme in ("", "file"):
        return ("file", *Path(unquote(parts.path) if parts.scheme else url).resolve().parts)
    return (parts.scheme, parts.netloc, parts.query, *(folder for folder in parts.path.split("/") if folder))


def _first_error(invalid: ValidationError, given: Mapping[str, _Given]) -> ConfigError:
    error = invalid.errors(include_url=False, include_context=False)[0]
    name, *inside = (str(part) for part in error["loc"])
    why = error["msg"].removeprefix("Value error, ").replace("Input should", "it should")
    item = given.get(name)
    called = item.called if item else name
    if item and name not in SECRETS:
        called += f" ({_shown(item.value)})"
    at = f" at {'.'.join(inside)}" if inside else ""
    return ConfigError(f"{called} has a bad value{at}: {why[:1].lower()}{why[1:]}.")


def _shown(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, SecretStr):
        return "********"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:.12g}"
    if isinstance(value, dict):
        return ",".join(f"{key}={inner}" for key, inner in value.items())
    if isinstance(value, list | tuple):
        return ",".join(map(str, value))
    from paddock.log import scrub  # here: only errors and `config show` need it

    return scrub(str(value), limit=200)


def _nearest(word: str, known: Iterable[str], prefix: str = "") -> str:
    """The end of the sentence: a question where there is a name to suggest. What all share says nothing."""
    from difflib import get_close_matches  # here: only a mistake needs it

    written = {name.removeprefix(prefix).lower(): name for name in sorted(known)}
    word = word.lower()
    match = [name for name in written if name.startswith(f"{word}_")] or get_close_matches(word, written, n=1)
    return f"; did you mean {written[match[0]]}?" if match else "."


def _variable(name: str) -> str:
    return PREFIX + name.upper()


def _why(error: Exception) -> str:
    if isinstance(error, OSError):
        return f"cannot be read ({error.strerror or type(error).__name__})"
    return "is not UTF-8 text"
