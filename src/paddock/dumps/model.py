"""What a dump is told, what it may be asked for, and what it leaves in its job's result."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

Format = Literal["sql", "json", "csv", "sqlite", "custom"]
Compression = Literal["none", "zstd", "gzip"]
DatabaseName = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9_-]{0,62}$")]
TableName = Annotated[str, StringConstraints(min_length=1, max_length=500)]

# Bytes of a dump are a pure function of its copy, these numbers and the library's version.
RENDERER = 2
CHUNK_ROWS = 5_000
CHUNK_BYTES = 4 << 20

EXTENSIONS = {"sql": "sql", "json": "json", "csv": "csv", "zip": "zip", "sqlite": "db", "custom": "dump"}
MEDIA_TYPES = {
    "sql": "application/sql",
    "json": "application/json",
    "csv": "text/csv; charset=utf-8; header=present",
    "zip": "application/zip",
    "db": "application/x-sqlite3",
    "dump": "application/octet-stream",
    "zst": "application/zstd",
    "gz": "application/gzip",
}
COMPRESSED = {"zstd": "zst", "gzip": "gz"}
FORMATS: dict[str, tuple[Format, ...]] = {
    "sqlite": ("sql", "json", "csv", "sqlite"),
    "duckdb": ("sql", "json", "csv"),
    "postgres": ("sql", "json", "csv", "custom"),
}


class DumpOptions(BaseModel):
    """What of a database, and how it is written."""

    model_config = ConfigDict(extra="forbid")

    # Only these; empty: all but the excluded.
    tables: list[TableName] = Field(default_factory=list, max_length=1_000)
    exclude_tables: list[TableName] = Field(default_factory=list, max_length=1_000)
    schema_only: bool = False
    data_only: bool = False
    # PostgreSQL: leave out who owns what.
    no_owner: bool = False
    # SQLite: write rowids of tables without an INTEGER PRIMARY KEY too.
    preserve_rowids: bool = False
    # CSV: a cell that a spreadsheet would run is prefixed.
    csv_safe: bool = False
    compress: Compression = "none"


def prefix_of(dump_id: str) -> str:
    """Where a dump's objects go."""
    return f"exports/{dump_id.replace('export_', 'dump_', 1)}"


def counts_key(key: str) -> str:
    """Beside a file of so many tables that its result cannot name them: the rows of each, as JSON."""
    return f"{key}.tables.json"


class DumpPayload(BaseModel):
    model_config = ConfigDict(extra="forbid")

    # export_YYYYMMDD-HHMMSS_xxxxxx: the name of the dump, and of its row.
    dump_id: str = ""
    database: DatabaseName
    format: Format = "sql"
    options: DumpOptions = Field(default_factory=DumpOptions)
    # A dump of one table is an array or a plain file, also where the database has more.
    single: bool = False
    # No dump at all: only whether one could be made.
    check: bool = False

    @property
    def prefix(self) -> str:
        return prefix_of(self.dump_id)


class Finished(BaseModel):
    """The result of a dump job: all that a download needs."""

    model_config = ConfigDict(extra="ignore")

    key: str
    etag: str
    size: int
    # Where the store takes no parts of one object: so many plain objects `key/000001`, in order. 0: one object.
    objects: int = 0
    part_size: int
    # sha256(previous + sha256(part)) over all parts, beginning with nothing.
    digest: str
    # None: not all tables were counted, as those of a damaged or very large SQLite file that is dumped as it is.
    rows: int | None
    table_count: int
    # Rows of each that was counted; None: there are too many to name here, and they are in the object `counts_key(key)`.
    tables: dict[str, int] | None
    point_in_time: str
    restarts: int = 0
    file_name: str
    media_type: str
    # Tables whose rows nobody can read, and which a JSON or CSV file therefore lacks; the first of them.
    unreadable: list[str] = []


def extension(format: Format, *, zipped: bool, compress: Compression) -> str:
    plain = EXTENSIONS["zip" if zipped else format]
    return plain if compress == "none" else f"{plain}.{COMPRESSED[compress]}"
