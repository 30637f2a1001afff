"""The databases that may be dumped, as `[dumps.databases.X]` names them. A request names one; paths and addresses stand
only here."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from paddock.config import Config, bad_table
from paddock.dumps.settings import DumpSettings
from paddock.engines.settings import PostgresLogin
from paddock.field_errors import field_errors


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
    # Without a write-ahead log, and with many writers, a copy keeps them waiting: for so long, or as long as it takes.
    blocking_copy_seconds: float = Field(default=10.0, ge=0)
    allow_blocking_copy: bool = False


class DuckdbDatabase(FileDatabase):
    type: Literal["duckdb"]


class PostgresDatabase(PostgresLogin, _Settings):
    # Where pg_dump is; None: on PATH, then among what Paddock brings.
    pg_dump: Path | None = None


DatabaseSettings = SqliteDatabase | DuckdbDatabase | PostgresDatabase
TYPES = frozenset({"sqlite", "duckdb", "postgres"})
DATABASE: TypeAdapter[DatabaseSettings] = TypeAdapter(Annotated[DatabaseSettings, Field(discriminator="type")])


def databases_from(config: Config) -> dict[str, DatabaseSettings]:
    found: dict[str, DatabaseSettings] = {}
    for name, table in config.of(DumpSettings).databases.items():
        try:
            found[name] = DATABASE.validate_python(table)
        except ValidationError as invalid:
            raise bad_table(f"dumps.databases.{name}", field_errors(invalid), not_fields=TYPES) from None
    return found
