"""What a person may ask of the files. Light: the control plane checks requests with it and never loads Arrow.

`OutputOptions` checks what stands by itself, `problems` what depends on the format.
"""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator

Format = Literal["parquet", "csv", "jsonl"]
Compression = Literal["zstd", "gzip", "snappy", "none"]
# None of these occurs in a number, a date or `true`, so only text needs quotes. \x01 is Hive's own.
Delimiter = Literal[",", ";", "|", "\t", "^", "~", "\x01"]
ColumnName = Annotated[str, StringConstraints(min_length=1, max_length=200)]

CSV_ONLY = frozenset({"header", "delimiter", "null", "csv_safe"})
PARQUET_ONLY = frozenset({"row_group_rows", "encoding", "level"})
COMPRESSIONS: dict[Format, tuple[Compression, ...]] = {
    "parquet": ("zstd", "snappy", "gzip", "none"),
    "csv": ("none", "gzip", "zstd"),
    "jsonl": ("none", "gzip", "zstd"),
}
ENDINGS: dict[Compression, str] = {"gzip": ".gz", "zstd": ".zst", "none": ""}
MEDIA_TYPES: dict[Format, str] = {
    "parquet": "application/vnd.apache.parquet",
    "csv": "text/csv; charset=utf-8",
    "jsonl": "application/x-ndjson",
}


class OutputOptions(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    # None: zstd inside Parquet, none around text.
    compression: Compression | None = None
    header: bool = True
    delimiter: Delimiter = ","
    # Written bare for NULL; text is always in quotes, so an empty or equal text is never taken for it.
    null: Annotated[str, StringConstraints(max_length=32, pattern=r'^[^"\r\n\x00]*$')] = ""
    # A spreadsheet runs text that begins with = + - @ as a formula: such text gets a ' in front. Changes values.
    csv_safe: bool = False
    partition_by: tuple[ColumnName, ...] = Field(default=(), max_length=8)
    # A file is closed and the next begun at about this size, as it is on the disk.
    file_bytes: int = Field(default=256 << 20, ge=1 << 20, le=4 << 30)
    row_group_rows: int = Field(default=128 << 10, ge=1_000, le=1 << 20)
    # plain is read by everybody, delta is a tenth smaller, compact smaller still: `encodings.py` says who reads them.
    encoding: Literal["plain", "delta", "compact"] = "plain"
    # Of zstd inside Parquet. None: chosen by column (`levels.py`).
    level: Annotated[int, Field(ge=1, le=9)] | None = None

    @model_validator(mode="after")
    def _agree(self) -> "OutputOptions":
        if self.delimiter in self.null:
            raise ValueError("The text for NULL must not contain the delimiter.")
        if len({name.lower() for name in self.partition_by}) < len(self.partition_by):
            raise ValueError("partition_by names a column twice.")
        return self


def problems(file_format: Format, options: OutputOptions) -> list[str]:
    """Sentences; none where the options fit the format."""
    found = []
    foreign = (CSV_ONLY if file_format != "csv" else frozenset()) | (
        PARQUET_ONLY if file_format != "parquet" else frozenset()
    )
    for name in sorted(foreign & options.model_fields_set):
        owner = "csv" if name in CSV_ONLY else "parquet"
        found.append(f"The option {name} belongs to the format {owner}, not to {file_format}.")
    known = COMPRESSIONS[file_format]
    if options.compression is not None and options.compression not in known:
        found.append(f"The format {file_format} has no compression {options.compression}; it has {', '.join(known)}.")
    if options.level is not None and file_format == "parquet" and compression_of(file_format, options) != "zstd":
        found.append(f"The option level belongs to the compression zstd, not to {options.compression}.")
    return found


def compression_of(file_format: Format, options: OutputOptions) -> Compression:
    return options.compression or COMPRESSIONS[file_format][0]


def ending(file_format: Format, options: OutputOptions) -> str:
    """`.parquet`, `.csv.gz`: Parquet compresses inside, so its name does not tell."""
    return ".parquet" if file_format == "parquet" else f".{file_format}{ENDINGS[compression_of(file_format, options)]}"
