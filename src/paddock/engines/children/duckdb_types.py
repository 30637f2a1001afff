"""What each type of DuckDB becomes in a file. Declared here, never guessed from values.

A type that Arrow or Parquet cannot hold as it is, is cast by DuckDB itself, exactly or not at all; a type without an
exact form is refused with the cast to write.
"""

from collections.abc import Mapping
from typing import NamedTuple

import pyarrow as pa
from _duckdb._sqltypes import DuckDBPyType

from paddock.engines.children.quoting import quoted
from paddock.engines.children.wire import UUID_MARK, Failure


class Rule(NamedTuple):
    """`cast`: the type DuckDB casts to first. `refused`: why there is no rule, and what to write."""

    arrow: pa.DataType | None = None
    cast: str | None = None
    refused: str | None = None
    note: str = ""


TYPES: Mapping[str, Rule] = {
    "boolean": Rule(pa.bool_()),
    "tinyint": Rule(pa.int8()),
    "smallint": Rule(pa.int16()),
    "integer": Rule(pa.int32()),
    "bigint": Rule(pa.int64()),
    "utinyint": Rule(pa.uint8()),
    "usmallint": Rule(pa.uint16()),
    "uinteger": Rule(pa.uint32()),
    "ubigint": Rule(pa.uint64()),
    "hugeint": Rule(pa.decimal128(38, 0), cast="DECIMAL(38,0)", note="39 digits fail and name the column"),
    "uhugeint": Rule(pa.decimal128(38, 0), cast="DECIMAL(38,0)", note="39 digits fail and name the column"),
    "bignum": Rule(pa.string(), cast="VARCHAR"),
    "float": Rule(pa.float32()),
    "double": Rule(pa.float64()),
    "varchar": Rule(pa.string()),  # JSON too, which is text
    "blob": Rule(pa.binary()),
    "uuid": Rule(pa.string(), cast="VARCHAR"),
    "bit": Rule(pa.string(), cast="VARCHAR"),
    "enum": Rule(pa.string(), cast="VARCHAR"),
    "date": Rule(pa.date32()),
    "time": Rule(pa.time64("us"), note="24:00:00 fails and names the column"),
    "time_ns": Rule(pa.time64("ns"), note="24:00:00 fails and names the column"),
    # Its offset would be lost in Arrow.
    "time with time zone": Rule(pa.string(), cast="VARCHAR"),
    "timestamp": Rule(pa.timestamp("us")),
    "timestamp_s": Rule(pa.timestamp("us"), cast="TIMESTAMP"),
    "timestamp_ms": Rule(pa.timestamp("us"), cast="TIMESTAMP"),
    "timestamp_ns": Rule(pa.timestamp("ns")),
    "timestamp with time zone": Rule(pa.timestamp("us", tz="UTC")),
    "interval": Rule(pa.string(), cast="VARCHAR"),
    # What DuckDB itself writes for a column that is NULL and nothing else.
    "null": Rule(pa.int32(), cast="INTEGER"),
    "union": Rule(refused="which member a value is would be lost; use union_extract, or cast it to VARCHAR"),
    "variant": Rule(refused="its values have no common type; cast it to JSON or to the type you expect"),
    "geometry": Rule(refused="cast it with ST_AsWKB or ST_AsText"),
    "type": Rule(refused="cast it to VARCHAR"),
}


class Target(NamedTuple):
    arrow: pa.DataType
    # The SQL type to cast to, which is the type itself where `changed` is False.
    sql: str
    changed: bool = False
    metadata: Mapping[bytes, bytes] | None = None

    def field(self, name: str, *, nullable: bool = True) -> pa.Field:
        return pa.field(name, self.arrow, nullable, self.metadata)


def target(column: str, type: DuckDBPyType) -> Target:
    match type.id:
        case "decimal":
            precision, scale = (int(str(value)) for _, value in type.children)
            return Target(pa.decimal128(precision, scale), str(type))
        case "list":
            return _list(column, type, changed=False)
        case "array":
            return _list(column, type, changed=True)
        case "struct":
            return _struct(column, type)
        case "map":
            return _map(column, type)
    rule = TYPES.get(type.id, Rule(refused="cast it to a type that has"))
    if rule.arrow is None:
        raise refused(column, str(type), str(rule.refused))
    # JSON is VARCHAR by another name, and stays so inside other types.
    changed = rule.cast is not None
    return Target(rule.arrow, rule.cast or str(type), changed, UUID_MARK if type.id == "uuid" else None)


def _list(column: str, type: DuckDBPyType, *, changed: bool) -> Target:
    item = target(column, _child(type, 0))
    return Target(pa.list_(item.field("item")), f"{item.sql}[]", changed or item.changed)


def _struct(column: str, type: DuckDBPyType) -> Target:
    fields = [(name, target(column, _child(type, index))) for index, (name, _) in enumerate(type.children)]
    if not all(name for name, _ in fields):
        raise refused(column, str(type), "its fields have no names; use struct_pack or {'name': value}")
    sql = ", ".join(f"{quoted(name)} {field.sql}" for name, field in fields)
    arrow = pa.struct([field.field(name) for name, field in fields])
    return Target(arrow, f"STRUCT({sql})", any(field.changed for _, field in fields))


def _map(column: str, type: DuckDBPyType) -> Target:
    key, value = target(column, _child(type, 0)), target(column, _child(type, 1))
    arrow = pa.map_(key.field("key", nullable=False), value.field("value"))
    return Target(arrow, f"MAP({key.sql}, {value.sql})", key.changed or value.changed)


def _child(type: DuckDBPyType, index: int) -> DuckDBPyType:
    child = type.children[index][1]
    assert isinstance(child, DuckDBPyType)
    return child


def refused(column: str, type: str, why: str) -> Failure:
    return Failure(
        "type_not_exportable",
        f"Column '{column}' has the type {type[:200]}, which no file can hold exactly.",
        hint=f"In the query, {why}." if not why.startswith(("its", "which")) else f"{why[0].upper()}{why[1:]}.",
        refused=True,
    )
