"""Values as JSON.

- Whole numbers, HUGEINT and BIGNUM too, and decimals: numbers with all their digits (read them with a parser that keeps
  them). Floats: the shortest number that reads back the same; `"NaN"`, `"Infinity"` and `"-Infinity"` are strings, as
  JSON has no such numbers.
- Dates, times, intervals, UUIDs, bit strings: strings as DuckDB prints them, TIMESTAMPTZ in UTC with `+00`.
- BLOB `{"$hex": "..."}`; GEOMETRY the same, of its WKB. JSON as it stands there.
- LIST and ARRAY: arrays. STRUCT: objects. UNION: an object of the one member that it is. MAP: an object by the keys'
  text; where keys are themselves nested, an array of `{"key": ..., "value": ...}`.
"""

import json

from paddock.dumps.duckdb.literals import moment, time_of_day
from paddock.dumps.duckdb.types import FLOATS, HUGE, NESTED, WHOLE, Type
from paddock.engines.children.quoting import literal


def key(name: str) -> str:
    return json.dumps(name, ensure_ascii=False)


def of(value: str, type: Type, depth: int = 0) -> str:
    """Never NULL: that is `null`."""
    match type.id:
        case "list" | "array":
            return f"coalesce('[' || {_each(value, type.item, depth)} || ']', 'null')"
        case "struct":
            return _struct(value, type, depth)
        case "map":
            return _map(value, type, depth)
        case "union":
            return _union(value, type, depth)
    return f"coalesce({_scalar(value, type)}, 'null')"


def _scalar(value: str, type: Type) -> str:
    match type.id:
        case "null":
            return "NULL::VARCHAR"
        case id if id in WHOLE or id in HUGE or id in {"boolean", "json"}:
            return f"{value}::VARCHAR"
        case "decimal":
            return _decimal(value)
        case id if id in FLOATS:
            return _float(value)
        case "blob":
            return _hex(f"hex({value})")
        case "geometry":
            return _hex(f"hex(st_aswkb({value}))")
        case "varchar" | "enum":
            return f"json_quote({value}::VARCHAR)::VARCHAR"
        case "timestamp with time zone":
            return f"'\"' || {moment(value)} || '\"'"
        case "time with time zone":
            return f"'\"' || {time_of_day(value)} || '\"'"
    return f"'\"' || {value}::VARCHAR || '\"'"


def _hex(digits: str) -> str:
    return f"'{{\"$hex\": \"' || {digits} || '\"}}'"


def _decimal(value: str) -> str:
    """Where all digits stand behind the point, DuckDB prints none before it."""
    text = f"{value}::VARCHAR"
    return (
        f"CASE WHEN starts_with({text}, '.') THEN '0' || {text} "
        f"WHEN starts_with({text}, '-.') THEN '-0' || substr({text}, 2) ELSE {text} END"
    )


def _float(value: str) -> str:
    return (
        f"CASE WHEN isfinite({value}) THEN {value}::VARCHAR WHEN isnan({value}) THEN '\"NaN\"' "
        f"WHEN {value} > 0 THEN '\"Infinity\"' WHEN {value} < 0 THEN '\"-Infinity\"' END"
    )


def _each(value: str, item: Type, depth: int) -> str:
    name = f"x{depth}"
    return f"array_to_string(list_transform({value}, lambda {name}: {of(name, item, depth + 1)}), ', ')"


def _struct(value: str, type: Type, depth: int) -> str:
    parts = [
        f"{literal(f'{key(name)}: ')}, {of(f'struct_extract({value}, {literal(name)})', field, depth + 1)}"
        for name, field in type.fields
    ]
    inner = ", ', ', ".join(parts)
    return f"CASE WHEN {value} IS NULL THEN 'null' ELSE concat('{{', {inner}, '}}') END"


def _map(value: str, type: Type, depth: int) -> str:
    name = f"x{depth}"
    inner = of(f"struct_extract({name}, 'value')", type.value, depth + 1)
    of_key = f"struct_extract({name}, 'key')"
    if type.item.id in NESTED:
        entry = f"""concat('{{"key": ', {of(of_key, type.item, depth + 1)}, ', "value": ', {inner}, '}}')"""
        opening, closing = "[", "]"
    else:
        entry = f"concat(json_quote({_key(of_key, type.item)})::VARCHAR, ': ', {inner})"
        opening, closing = "{", "}"
    each = f"array_to_string(list_transform(map_entries({value}), lambda {name}: {entry}), ', ')"
    return f"coalesce('{opening}' || {each} || '{closing}', 'null')"


def _key(value: str, type: Type) -> str:
    match type.id:
        case "blob":
            return f"hex({value})"
        case "geometry":
            return f"hex(st_aswkb({value}))"
        case "timestamp with time zone":
            return moment(value)
        case "time with time zone":
            return time_of_day(value)
    return f"{value}::VARCHAR"


def _union(value: str, type: Type, depth: int) -> str:
    cases = " ".join(
        f"WHEN {literal(name)} THEN concat({literal(f'{{{key(name)}: ')}, "
        f"{of(f'union_extract({value}, {literal(name)})', member, depth + 1)}, '}}')"
        for name, member in type.fields
    )
    return f"CASE union_tag({value})::VARCHAR {cases} ELSE 'null' END"
