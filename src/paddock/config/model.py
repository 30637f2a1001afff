"""Every setting of the core, its default, and where its value came from; and the settings of capabilities."""

import os
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Literal, NamedTuple, Self, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, PrivateAttr, SecretStr

from paddock.config.refusing import ConfigError, display_value, why
from paddock.config.settings import KnownSetting, Settings, known_settings
from paddock.config.values import (
    NO_STORE,
    Bytes,
    Count,
    Days,
    HttpUrl,
    Level,
    Port,
    Proxies,
    Seconds,
    Tables,
    Words,
    default_store,
    level,
    numbers_by_kind,
    postgres_url,
    store_url,
)

M = TypeVar("M", bound=Settings)


class Explained(NamedTuple):
    name: str
    shown: str
    source: str


class Config(BaseModel):
    """Port 0 means any free port. `None` means what the comment beside it says."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    database_url: Annotated[SecretStr, AfterValidator(postgres_url)] | None = None  # None: `up` embeds one
    durable_pool: Count = 10
    relaxed_pool: Count = 10

    host: str | None = None  # None: 127.0.0.1 under `up`, 0.0.0.0 under `serve`
    port: Port = 8080
    internal_port: Port | None = None  # None: /internal answers on `port`
    public_url: HttpUrl | None = None
    trusted_proxies: Proxies = ("127.0.0.1", "::1")  # whose X-Forwarded-Proto and -For are believed
    allowed_hosts: Words = ()
    max_body_bytes: Count = 1024 * 1024
    max_connections: Count = 1000  # on each port that `serve` listens on
    drain_retry_after_seconds: Seconds = 30
    streams_per_token: Count = 20
    max_schedules_per_owner: Count = 20  # of an analyst; operators may have as many as they like
    scaled_kinds: Words = ()  # for which a scaler brings workers: none live is no fault until a job waited for 2 min
    tokens_dir: Path | None = None  # None: tokens are made by people, `paddock tokens create`
    webhook_allow_private: bool = False

    data: Path = Path("paddock-data")
    export_bucket: str | None = None  # the older name of object_store: a bucket of GCS unless it is a URL
    object_store: Annotated[str, AfterValidator(store_url)] = Field(default_factory=default_store)

    server: HttpUrl | None = None  # None: the running `paddock up`
    token: SecretStr | None = None
    token_file: Path | None = None
    worker_id: str = Field(default_factory=lambda: f"worker-{os.getpid()}", max_length=253)
    worker_kinds: Words | None = None  # None: every kind this worker has
    worker_port: Port = 8080
    concurrency: Count = 10
    kind_concurrency: Annotated[dict[str, Count], BeforeValidator(numbers_by_kind)] = Field(default_factory=dict)
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

    log_level: Annotated[Level, BeforeValidator(level)] = "info"
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
    scratch: Path = Field(default_factory=lambda valid: valid["data"] / "scratch")
    scratch_bytes: Bytes = 16 * 1024**3
    engines: Tables = Field(default_factory=dict)

    _sources: dict[str, str] = PrivateAttr(default_factory=dict)
    _settings: dict[type[Settings], Settings] = PrivateAttr(default_factory=dict)

    def of(self, model: type[M]) -> M:
        """The settings of a capability: `config.of(DumpSettings).keep_days`."""
        held = self._settings.get(model)
        return held if isinstance(held, model) else model()

    def with_settings(self, *settings: Settings) -> Self:
        """A copy with these settings of capabilities in the place of what it had."""
        changed = self.model_copy()
        changed._settings = {**self._settings, **{type(each): each for each in settings}}
        return changed

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
            raise ConfigError(f"{self.source('token_file')} names {self.token_file}, which {why(error)}.") from None
        if not text:
            raise ConfigError(f"{self.source('token_file')} names {self.token_file}, which is empty.")
        return SecretStr(text)

    def source(self, name: str) -> str:
        """The variable, file, `argument` or `default` that the value of this setting came from."""
        return self._explained(known_settings()[name]).source

    def explain(self) -> list[Explained]:
        return [self._explained(setting) for setting in known_settings().values()]

    def _explained(self, setting: KnownSetting) -> Explained:
        holder = self.of(setting.model) if issubclass(setting.model, Settings) else self
        otherwise = "argument" if setting.field in holder.model_fields_set else "default"
        source = self._sources.get(setting.name) or otherwise
        return Explained(setting.name, display_value(getattr(holder, setting.field)), source)

    def __repr__(self) -> str:
        return f"Config({', '.join(f'{name}={shown}' for name, shown, _ in self.explain())})"

    __str__ = __repr__
