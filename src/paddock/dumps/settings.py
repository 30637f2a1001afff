"""The databases that may be dumped, as `[dumps.databases.X]` names them. A request names one; paths and addresses stand
only here."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from paddock.config import Config, ConfigError
from paddock.engines.settings import PostgresLogin


class _Settings(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    description: str = ""
    # Besides ops and admin: whose tokens may dump it and see its dumps.
    owners: tuple[str, ...] = ()
    # Whether GET /export/dump and its kin may stream it from the control plane, which then must reach it.
    sync: bool = False


class FileDatabase(_Settings):
    path: Path
    # Where copies are made; None: beside the source, so that whoever reaches the one reaches the other.
    work_dir: Path | None = None
    # What all copies of this database may take together; None: what the disk has.
    work_bytes: int | None = Field(default=None, ge=1)

    @property
    def copies(self) -> Path:
        return self.work_dir or self.path.with_name(f".{self.path.name}.dumps")


class SqliteDatabase(FileDatabase):
    type: Literal["sqlite"]
    # Without a write-ahead log a copy keeps writers waiting: only if this says that they may wait.
    allow_blocking_copy: bool = False


class DuckdbDatabase(FileDatabase):
    type: Literal["duckdb"]


class PostgresDatabase(PostgresLogin, _Settings):
    # Where pg_dump is; None: on PATH, then among what Paddock brings.
    pg_dump: Path | None = None


DatabaseSettings = SqliteDatabase | DuckdbDatabase | PostgresDatabase
DATABASE: TypeAdapter[DatabaseSettings] = TypeAdapter(Annotated[DatabaseSettings, Field(discriminator="type")])


def databases_from(config: Config) -> dict[str, DatabaseSettings]:
    found: dict[str, DatabaseSettings] = {}
    for name, table in config.dumps_databases.items():
        try:
            found[name] = DATABASE.validate_python(table)
        except ValidationError as invalid:
            error = invalid.errors(include_url=False, include_context=False, include_input=False)[0]
            at = ".".join(str(part) for part in error["loc"][1:]) or "type"
            raise ConfigError(
                f"dumps.databases.{name}.{at} has a bad value: {error['msg'].removeprefix('Value error, ')}."
            ) from None
    return found
