"""The sources and hooks, as `[ingest.sources.X]` and `[ingest.hooks.X]` name them. A request names a source; commands and
secrets stand only here."""

import os
import re
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError, field_validator, model_validator

from paddock.config import Config, ConfigError, bad_table
from paddock.config.settings import known_settings
from paddock.field_errors import field_errors
from paddock.ingest.columns import column_type
from paddock.ingest.settings import IngestSettings
from paddock.jobs import durations

NAME = re.compile(r"[a-z][a-z0-9_-]{0,62}")
VARIABLE = r"^[A-Za-z_][A-Za-z0-9_]{0,99}$"
IMAGE = re.compile(r"[^@\s]{1,900}@sha256:[0-9a-f]{64}")
MIB = 1024**2

Runtime = Literal["local", "kubernetes"]

Word = Annotated[str, StringConstraints(min_length=1, max_length=4096)]
Variable = Annotated[str, StringConstraints(pattern=VARIABLE)]


class SecretSource(BaseModel):
    """Where a secret comes from: on the machine of the worker, or a key of a Secret in the namespace of the steps."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    env: str | None = None
    file: Path | None = None
    secret: str | None = None
    key: str | None = None

    @model_validator(mode="after")
    def _one(self) -> Self:
        named = [self.env is not None, self.file is not None, self.secret is not None and self.key is not None]
        if sum(named) != 1 or (self.secret is None) != (self.key is None):
            raise ValueError("it should name env, or file, or (on Kubernetes) secret and key")
        return self

    @property
    def runtime(self) -> Runtime:
        return "local" if self.secret is None else "kubernetes"


class _Command(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    command: tuple[Word, ...] = ()
    # What runs on Kubernetes, by digest: a tag may mean another image tomorrow.
    image: str | None = None
    # Where it is started; None: in its private folder.
    folder: Path | None = None
    config: dict[str, Any] = Field(default_factory=dict)
    secrets: dict[Variable, SecretSource] = Field(default_factory=dict)
    timeout: timedelta
    memory: int = Field(ge=16 * MIB)
    # On Kubernetes a step that ran out of memory is tried again with twice as much, up to this. None: four times `memory`.
    memory_max: int | None = Field(default=None, ge=16 * MIB)
    cpu: float = Field(gt=0, le=256)

    @field_validator("timeout", mode="before")
    @classmethod
    def _duration(cls, value: object) -> object:
        return durations.parse(value) if isinstance(value, str) else value

    @field_validator("image")
    @classmethod
    def _digest(cls, image: str | None) -> str | None:
        if image is not None and IMAGE.fullmatch(image) is None:
            raise ValueError(
                "it should name an image by its digest, like registry/name@sha256:… : what a tag means may change"
            )
        return image

    @model_validator(mode="after")
    def _something(self) -> Self:
        if not self.command and self.image is None:
            raise ValueError("it needs a command, or an image")
        if self.memory_max is not None and self.memory_max < self.memory:
            raise ValueError("its memory_max should not be less than its memory")
        return self

    @property
    def most_memory(self) -> int:
        return self.memory_max or 4 * self.memory


class Source(_Command):
    protocol: Literal["files", "singer", "airbyte"] = "files"
    # Where it and its hooks run. None: as PADDOCK_RUNTIME says.
    runtime: Runtime | None = None
    # What a tap is to fetch: a file on the worker's machine.
    catalog: Path | None = None
    description: str = ""
    hooks: tuple[str, ...] = ()
    batch_size: int = Field(default=0, ge=1, le=100_000)
    max_failed_batches: int = Field(default=10, ge=0)
    columns: dict[str, str] = Field(default_factory=dict)
    # Besides ops and admin: who may run it and see its runs.
    owners: tuple[str, ...] = ()
    timeout: timedelta = timedelta(hours=1)
    memory: int = Field(default=4096 * MIB, ge=16 * MIB)
    cpu: float = Field(default=1.0, gt=0, le=256)

    @field_validator("hooks")
    @classmethod
    def _once(cls, hooks: tuple[str, ...]) -> tuple[str, ...]:
        if len(set(hooks)) < len(hooks):
            raise ValueError("it should name each hook once")
        return hooks

    @model_validator(mode="after")
    def _of_its_protocol(self) -> Self:
        if self.protocol == "files" and self.catalog is not None:
            raise ValueError("only a tap has a catalog: name the protocol singer or airbyte")
        if self.protocol == "airbyte" and self.catalog is None:
            raise ValueError("an Airbyte source needs a catalog")
        if self.batch_size == 0:
            object.__setattr__(self, "batch_size", 1_000 if self.protocol == "files" else 10_000)
        return self

    @field_validator("columns")
    @classmethod
    def _types(cls, columns: dict[str, str]) -> dict[str, str]:
        for name, type in columns.items():
            column_type(name, type)
        return columns


class Hook(_Command):
    timeout: timedelta = timedelta(minutes=5)
    memory: int = Field(default=1024 * MIB, ge=16 * MIB)
    cpu: float = Field(default=0.5, gt=0, le=256)
    # On Kubernetes: whether network policies let it out.
    network: bool = False


def sources_from(config: Config) -> dict[str, Source]:
    """All of them, checked: a bad entry stops the start with one sentence."""
    hooks = hooks_from(config)
    found = {name: _read("sources", name, table, Source) for name, table in config.of(IngestSettings).sources.items()}
    for name, source in found.items():
        runtime = runtime_of(config, source)
        _check_runs(f"ingest.sources.{name}", source, runtime, f"{name} runs", source.protocol != "files")
        for hook in source.hooks:
            if hook not in hooks:
                there = f"There are: {', '.join(sorted(hooks))}." if hooks else "There is none."
                raise ConfigError(
                    f"ingest.sources.{name} names the hook '{hook}', which is not in [ingest.hooks]. {there}"
                )
            _check_runs(f"ingest.hooks.{hook}", hooks[hook], runtime, f"the source '{name}', which it is for, runs")
    return found


def runtime_of(config: Config, source: Source) -> Runtime:
    if source.runtime is not None:
        return source.runtime
    return "kubernetes" if setting_of_runtime(config, "runtime") == "kubernetes" else "local"


def setting_of_runtime(config: Config, name: str) -> Any:
    """It belongs to another capability, whose inside is not ours."""
    setting = known_settings().get(name)
    return None if setting is None else getattr(config.of(setting.model), setting.field)  # type: ignore[type-var]


def _check_runs(table: str, settings: _Command, runtime: Runtime, who: str, tap: bool = False) -> None:
    where = "on Kubernetes" if runtime == "kubernetes" else "on the worker's machine"
    if runtime == "kubernetes" and settings.image is None:
        raise ConfigError(f"{table} needs an image: {who} {where}.")
    if not settings.command and (runtime == "local" or tap):
        raise ConfigError(f"{table} needs a command: {who} {where}.")
    for variable, place in settings.secrets.items():
        if place.runtime != runtime:
            wanted = "env or file" if runtime == "local" else "secret and key"
            raise ConfigError(f"{table}.secrets.{variable} should name {wanted}: {who} {where}.")


def check(config: Config) -> None:
    """What a worker asks at its start: the tables, and whether the secrets of what it would run are here."""
    sources, hooks = sources_from(config), hooks_from(config)
    local = {name: source for name, source in sources.items() if runtime_of(config, source) == "local"}
    if config.worker_kinds is None or "run_ingester" in config.worker_kinds:
        for name, source in local.items():
            _check_secrets(f"ingest.sources.{name}", source)
    if config.worker_kinds is None or "run_hooks" in config.worker_kinds:
        for hook in {hook for source in local.values() for hook in source.hooks}:
            _check_secrets(f"ingest.hooks.{hook}", hooks[hook])


def _check_secrets(table: str, settings: _Command) -> None:
    for variable, place in settings.secrets.items():
        if read_secret(place) is None:
            raise ConfigError(
                f"{table}.secrets.{variable} is not there: this worker does not have {named_place(place)}. Give it to "
                "the worker, or name another place in paddock.toml."
            )


def read_secret(place: SecretSource) -> str | None:
    if place.env is not None:
        return os.environ.get(place.env)
    assert place.file is not None
    try:
        return place.file.read_text().rstrip("\n")
    except (OSError, UnicodeDecodeError):
        return None


def named_place(place: SecretSource) -> str:
    return f"the variable {place.env}" if place.env is not None else f"the file {place.file}"


def hooks_from(config: Config) -> dict[str, Hook]:
    return {name: _read("hooks", name, table, Hook) for name, table in config.of(IngestSettings).hooks.items()}


def _read(section: str, name: str, table: Mapping[str, Any], model: type[Any]) -> Any:
    if NAME.fullmatch(name) is None:
        raise ConfigError(
            f"ingest.{section}.{name[:100]} needs another name: small letters, digits, - and _, at most 63 of them."
        )
    try:
        return model.model_validate(table)
    except ValidationError as invalid:
        raise bad_table(f"ingest.{section}.{name}", field_errors(invalid)) from None
