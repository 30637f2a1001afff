"""Hive partitions: the rows of one key's values in one folder, `country=DE/day=2026-01-31/`.

A folder's name is encoded as Hive encodes it, and gives the exact value back. Two texts that Hive would lose are kept:
the empty text is `key=`, and a text equal to Hive's name for NULL begins with %5F.
"""

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from paddock.exports.writing.text import is_text, plain_text
from paddock.jobs.errors import PermanentRunnerError, UserMistake
from paddock.storage.store import MAX_SEGMENT

MOST = 1_000
NULL = "__HIVE_DEFAULT_PARTITION__"
ESCAPED = frozenset("\"#%'*/:=?\\\x7f{[]^") | {chr(code) for code in range(0x20)}


def hive_encoded(text: str) -> str:
    if text == NULL:
        return "%5F" + text[1:]
    return "".join(f"%{ord(character):02X}" if character in ESCAPED else character for character in text)


def folder_of(names: Sequence[str], values: Sequence[str | None]) -> str:
    segments = []
    for name, value in zip(names, values, strict=True):
        segment = f"{hive_encoded(name)}={NULL if value is None else hive_encoded(value)}"
        if len(segment.encode()) > MAX_SEGMENT:
            raise UserMistake(
                f"A value of '{name}' is too long for the name of a folder: {len(segment.encode()):,} bytes, at most"
                f" {MAX_SEGMENT} are possible.",
                code="partition_value_too_long",
                hint="Partition by a column of short values.",
            )
        segments.append(segment)
    return "/".join(segments)


def partition_columns(schema: pa.Schema, wanted: Sequence[str]) -> list[str]:
    """Found without regard to case, refused where a folder's name cannot tell the value."""
    by_name = {name.lower(): name for name in schema.names}
    found = []
    for name in wanted:
        if name.lower() not in by_name:
            raise _refused(f"There is no column '{name}' to partition by; there are {', '.join(schema.names)}.")
        found.append(by_name[name.lower()])
        type = schema.field(found[-1]).type
        if not _tells(type.value_type if pa.types.is_dictionary(type) else type):
            raise _refused(f"'{name}' is of type {type}: a folder's name cannot tell its values.")
    if len(found) == len(schema.names):
        raise _refused("partition_by names every column, which leaves nothing for the files.")
    return found


class Partitions:
    def __init__(self, schema: pa.Schema, columns: Sequence[str]) -> None:
        self.columns = list(columns)
        self.rest = [name for name in schema.names if name not in columns]
        self._seen: dict[str, pa.Table] = {}

    def split(self, table: pa.Table) -> list[tuple[str, pa.Table]]:
        """The rows of each folder in their order, without the columns that its name tells."""
        keys = pa.table([_grouped(table[name]) for name in self.columns], names=self._numbered())
        rows = keys.append_column("row", pa.array(range(len(table)), pa.int64()))
        # One thread: the rows of a group stay in order.
        groups = rows.group_by(self._numbered(), use_threads=False).aggregate([("row", "list")])
        values = table.select(self.rest)
        return [(self._folder(groups, at), values.take(groups["row_list"][at].values)) for at in range(len(groups))]

    def ordered(self) -> list[str]:
        """Every folder so far, by the values of the columns, NULL last."""
        folders = list(self._seen)
        if not folders:
            return []
        keys = pa.concat_tables(self._seen.values())
        order = pc.sort_indices(keys, sort_keys=[(name, "ascending") for name in keys.schema.names])
        return [folders[at] for at in order.to_pylist()]

    def _folder(self, groups: pa.Table, at: int) -> str:
        key = groups.select(self._numbered()).slice(at, 1)
        folder = folder_of(self.columns, [plain_text(column.combine_chunks())[0].as_py() for column in key.columns])
        if folder not in self._seen:
            self._seen[folder] = key
            if len(self._seen) > MOST:
                raise UserMistake(
                    f"More than {MOST:,} partitions by {', '.join(self.columns)}.",
                    code="too_many_partitions",
                    hint="Partition by fewer columns, or by one with fewer values (the month instead of the day).",
                )
        return folder

    def _numbered(self) -> list[str]:
        # A column may itself be called `row`.
        return [str(number) for number in range(len(self.columns))]


def _tells(type: pa.DataType) -> bool:
    return (
        is_text(type)
        or pa.types.is_integer(type)
        or pa.types.is_boolean(type)
        or pa.types.is_decimal(type)
        or pa.types.is_date(type)
        or pa.types.is_timestamp(type)
    )


def _grouped(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Arrow groups by neither dictionaries nor views."""
    type = column.type
    if pa.types.is_dictionary(type):
        type = type.value_type
    return column.cast(pa.large_string() if is_text(type) else type)


def _refused(message: str) -> PermanentRunnerError:
    hint = "Name columns of text, numbers, dates or booleans, and leave at least one other column."
    return UserMistake(message, code="bad_partition_by", hint=hint)
