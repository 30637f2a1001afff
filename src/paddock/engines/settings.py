"""Engines as `paddock.toml` names them. A request names an engine; addresses and credentials stand only here.

A credential is never written into the file: `password_env` and `token_env` name an environment variable,
`password_file` and `token_file` a mounted secret, read anew each time because it may change.
"""

import os
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import parse_qs, urlsplit

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, TypeAdapter, field_validator, model_validator

from paddock.config import ConfigError
from paddock.jobs.errors import PermanentRunnerError

# Clients look for these very words.
MISSING_ROLE = "Missing use case ID (X-Use-Case-Id header required)"


class _Settings(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    description: str = ""


class Secret(BaseModel):
    """Where a secret stands."""

    model_config = ConfigDict(frozen=True)

    env: str | None = None
    file: Path | None = None

    def read(self, what: str) -> str | None:
        if self.file is not None:
            try:
                return self.file.read_text("utf-8").strip()
            except (OSError, UnicodeDecodeError) as problem:
                raise ConfigError(f"{what} is to be read from {self.file}, which cannot be read: {problem}.") from None
        if self.env is not None:
            value = os.environ.get(self.env)
            if not value:
                raise ConfigError(f"{what} is to be read from the variable {self.env}, which is not set.")
            return value
        return None


class RemoteSettings(BaseModel):
    """A part of an object store that queries may read, under a name of its own."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    url: str
    # By the provider's own names, say AWS_SECRET_ACCESS_KEY; what is not named here stands in the worker's environment.
    credentials: dict[str, Secret] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _is_one(self) -> "RemoteSettings":
        from paddock.storage.buckets import VARIABLES, bucket_of  # here: few engines have any

        if "://" not in self.url or self.url.startswith("file:"):
            raise ValueError("a remote source is s3://, gs:// or az://; a folder of this machine is one of the roots")
        try:
            known = VARIABLES[bucket_of(self.url, {}).scheme]
        except (ConfigError, PermanentRunnerError) as problem:
            raise ValueError(str(problem).rstrip(".")) from None
        for name, secret in self.credentials.items():
            if name not in known:
                raise ValueError(f"{name} is no credential of this store")
            if (secret.env is None) == (secret.file is None) or (secret.file and not secret.file.is_absolute()):
                raise ValueError(f"{name} names either env, a variable, or file, an absolute path")
        return self

    def environ(self, name: str) -> dict[str, str] | None:
        """For the store of this name; None: the worker's own."""
        if not self.credentials:
            return None
        found = {key: secret.read(f"{key} of remote '{name}'") for key, secret in self.credentials.items()}
        return {**os.environ, **{key: value for key, value in found.items() if value is not None}}


RemoteName = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9_-]{0,62}$")]


class DuckdbSettings(_Settings):
    type: Literal["duckdb"] = "duckdb"
    # Folders a query may read, nothing else on this machine.
    roots: tuple[Path, ...] = ()
    # Inside a root, and yet no query's business: say, the data of Paddock itself. Kept by the kernel (Landlock).
    hidden: tuple[Path, ...] = ()
    # An existing database file whose tables queries see, opened read-only.
    database: Path | None = None
    memory_bytes: int = Field(default=1 << 30, ge=64 << 20)
    spill_bytes: int = Field(default=4 << 30, ge=0)
    # Where what does not fit into memory goes; None: a private folder among the system's temporary files.
    spill_folder: Path | None = None
    # A kernel without Landlock runs no query then.
    require_landlock: bool = False
    threads: int = Field(default=1, ge=1, le=64)
    # Object stores that a query reads as `name/path`: what it names is fetched before it runs.
    remote: dict[RemoteName, RemoteSettings] = Field(default_factory=dict)
    # Of the worker's disk, for what all queries of this engine that run at once have fetched.
    fetch_bytes: int = Field(default=4 << 30, ge=0)

    @model_validator(mode="after")
    def _can_be_searched(self) -> "DuckdbSettings":
        if self.remote and any("," in str(path) for path in (*self.roots[:1], self.spill_folder or "")):
            raise ValueError("with remote sources, neither the first root nor the spill_folder has a comma in its name")
        return self

    @property
    def requires_role(self) -> bool:
        return False


class SqliteSettings(_Settings):
    type: Literal["sqlite"] = "sqlite"
    path: Path
    memory_bytes: int = Field(default=1 << 30, ge=64 << 20)
    # For sorting what does not fit into memory, as above.
    spill_bytes: int = Field(default=4 << 30, ge=0)
    spill_folder: Path | None = None
    require_landlock: bool = False

    @property
    def requires_role(self) -> bool:
        return False


class PostgresLogin(_Settings):
    """How a PostgreSQL is reached, by an engine or by a dump."""

    type: Literal["postgres"]
    url: str
    password_env: str | None = None
    password_file: Path | None = None
    # As libpq's sslmode, which the url may name too. With a CA the server's name is verified.
    ssl: Literal["disable", "prefer", "require", "verify-full"] | None = None
    ca_file: Path | None = None
    connect_timeout_seconds: float = Field(default=10, gt=0)
    lock_timeout_seconds: float = Field(default=30, gt=0)

    @field_validator("url")
    @classmethod
    def _no_password(cls, url: str) -> str:
        try:
            parts = urlsplit(url)
        except ValueError:
            raise ValueError("it is no URL") from None
        if parts.scheme not in ("postgresql", "postgres"):
            raise ValueError("it must begin with postgresql://")
        if parts.password is not None or "password" in parse_qs(parts.query):
            raise ValueError("a password stands in password_env or password_file, not in the url")
        return url

    @property
    def password(self) -> Secret:
        return Secret(env=self.password_env, file=self.password_file)

    def tls(self) -> Any:
        """As asyncpg takes it."""
        import ssl  # here: only who connects needs it

        if self.ca_file is None:
            return self.ssl
        try:
            return ssl.create_default_context(cafile=str(self.ca_file))
        except (OSError, ssl.SSLError) as problem:
            raise ConfigError(f"The ca_file {self.ca_file} cannot be read: {problem}.") from None


class PostgresSettings(PostgresLogin):
    type: Literal["postgres"] = "postgres"
    statement_timeout_seconds: float = Field(default=3600, gt=0)
    # False: a query that row-level security would shorten fails, as in pg_dump. True: the policies choose the rows.
    row_security: bool = False

    @property
    def requires_role(self) -> bool:
        return False


class TrinoSettings(_Settings):
    type: Literal["trino"] = "trino"
    url: str
    user: str = "paddock"
    password_env: str | None = None
    password_file: Path | None = None
    token_env: str | None = None
    token_file: Path | None = None
    ca_file: Path | None = None
    catalog: str | None = None
    schema_: str | None = Field(default=None, alias="schema")
    # In so many words: without this line every query needs a role.
    requires_role: bool = True
    # `X-Trino-Role: <role_catalog>=ROLE{<role>}`
    role_catalog: str = "system"
    # Queries run as their owner; the login must be allowed to impersonate.
    impersonate: bool = False
    client_tags: tuple[str, ...] = ("graph-olap-export",)
    source: str = "graph-olap-export-worker"
    request_timeout_seconds: float = Field(default=30, gt=0)
    # How long one page is asked for again while Trino is busy or away.
    patience_seconds: float = Field(default=60, ge=0)
    # How often Trino hears of us while rows are being written; it forgets a query after five minutes.
    heartbeat_seconds: float = Field(default=30, gt=0)
    # Other addresses of the same cluster, should Trino answer with one.
    other_urls: tuple[str, ...] = ()
    # Spooled results: offered in this order. None at all: rows come from the coordinator, page by page.
    encodings: tuple[Literal["json+zstd", "json+lz4", "json"], ...] = ("json+zstd", "json+lz4", "json")
    # Segments that one export fetches at a time, and how many bytes of them.
    segments: int = Field(default=8, ge=1, le=8)
    segment_window_bytes: int = Field(default=32 << 20, ge=1)
    # Session properties, those of a catalog as `catalog.property`.
    session: dict[str, str] = Field(default_factory=dict)
    # Server-side export: a Hive catalog and schema for the external tables, and how the managed store's URL looks
    # from Trino.
    unload_catalog: str | None = None
    unload_schema: str | None = None
    unload_location: str | None = None
    # Starburst's table function `system.unload` writes the files, and no catalog is needed. Untested: no Starburst was
    # there to test it on.
    unload_function: bool = False
    # The role under which names of tables and columns are read for the schema cache. None: it is not cached.
    metadata_role: str | None = None
    # Left out of the schema cache: `catalog` or `catalog.schema`.
    metadata_skip: tuple[str, ...] = ()

    @property
    def can_unload(self) -> bool:
        return self.unload_function or self.unload_catalog is not None

    @field_validator("url", "other_urls")
    @classmethod
    def _address(cls, given: str | tuple[str, ...]) -> str | tuple[str, ...]:
        for url in (given,) if isinstance(given, str) else given:
            parts = urlsplit(url)
            if parts.scheme not in ("http", "https") or not parts.hostname:
                raise ValueError("an address looks like https://trino.example.com:8443")
            if parts.username or parts.password or parts.query or parts.fragment:
                raise ValueError("an address has no login and no query; the login stands in user and password_env")
        return given

    @model_validator(mode="after")
    def _secrets_stay_secret(self) -> "TrinoSettings":
        secret = any((self.password_env, self.password_file, self.token_env, self.token_file))
        for url in (self.url, *self.other_urls):
            parts = urlsplit(url)
            if secret and parts.scheme == "http" and parts.hostname not in ("localhost", "127.0.0.1", "::1"):
                raise ValueError("a password or token is sent over https only")
        return self

    @property
    def password(self) -> Secret:
        return Secret(env=self.password_env, file=self.password_file)

    @property
    def token(self) -> Secret:
        return Secret(env=self.token_env, file=self.token_file)


class SparkSettings(_Settings):
    """A HiveServer2, as Spark's Thrift server and Kyuubi serve it. It rewrites tables and answers no queries."""

    type: Literal["spark"] = "spark"
    url: str
    user: str = "paddock"
    # With LDAP. Without one the server takes any.
    password_env: str | None = None
    password_file: Path | None = None
    # Of one answer; the server itself waits up to ten seconds with some.
    request_timeout_seconds: float = Field(default=60, ge=15)

    @field_validator("url")
    @classmethod
    def _address(cls, url: str) -> str:
        wrong = ValueError("an address looks like thrift://spark.example.com:10009")
        try:
            parts = urlsplit(url)
            right = parts.scheme == "thrift" and bool(parts.hostname) and parts.port is not None
        except ValueError:
            raise wrong from None
        if not right:
            raise wrong
        if parts.username or parts.password or parts.query or parts.fragment or parts.path not in ("", "/"):
            raise ValueError("an address is host and port; the login stands in user and password_env")
        return url

    @property
    def host(self) -> str:
        return urlsplit(self.url).hostname or ""

    @property
    def port(self) -> int:
        return urlsplit(self.url).port or 0

    @property
    def password(self) -> Secret:
        return Secret(env=self.password_env, file=self.password_file)


class OtherSettings(_Settings):
    """Of an engine that another package brings; what else it takes, that package checks."""

    model_config = ConfigDict(extra="allow")

    type: str
    requires_role: bool = False


BuiltIn = Annotated[DuckdbSettings | SqliteSettings | PostgresSettings | TrinoSettings, Field(discriminator="type")]
EngineSettings = DuckdbSettings | SqliteSettings | PostgresSettings | TrinoSettings | OtherSettings
ENGINE: TypeAdapter[DuckdbSettings | SqliteSettings | PostgresSettings | TrinoSettings] = TypeAdapter(BuiltIn)
