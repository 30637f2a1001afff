"""DuckDB's types as expressions need them: a tree, read from what a query answers."""

from collections.abc import Sequence
from dataclasses import dataclass

from duckdb.sqltypes import DuckDBPyType

WHOLE = frozenset({"tinyint", "smallint", "integer", "bigint", "utinyint", "usmallint", "uinteger", "ubigint"})
HUGE = frozenset({"hugeint", "uhugeint", "bignum"})
FLOATS = frozenset({"float", "double"})
TIMES = frozenset(
    {"date", "time", "time_ns", "time with time zone", "timestamp", "timestamp_s", "timestamp_ms", "timestamp_ns"}
)
NESTED = frozenset({"list", "array", "struct", "map", "union"})
KNOWN = (
    WHOLE
    | HUGE
    | FLOATS
    | TIMES
    | NESTED
    | {"boolean", "decimal", "varchar", "json", "enum", "blob", "bit", "uuid", "interval", "geometry"}
    | {"timestamp with time zone", "null"}
)


@dataclass(frozen=True, slots=True)
class Type:
    """`fields`: of a struct or union; else the items' type, or a map's keys' and values'."""

    id: str
    sql: str
    fields: Sequence[tuple[str, "Type"]] = ()

    @property
    def item(self) -> "Type":
        return self.fields[0][1]

    @property
    def value(self) -> "Type":
        return self.fields[1][1]

    def walk(self) -> "Sequence[Type]":
        return [self, *(inner for _, field in self.fields for inner in field.walk())]


def read(type: DuckDBPyType) -> Type:
    sql = str(type)
    if type.id not in NESTED:
        return Type("json" if sql == "JSON" else type.id, sql)
    fields = [(name, field) for name, field in type.children if isinstance(field, DuckDBPyType)]
    if type.id == "union":
        # Which member it is, DuckDB keeps as one more.
        fields = [(name, field) for name, field in fields if name]
    return Type(type.id, sql, tuple((name, read(field)) for name, field in fields))
