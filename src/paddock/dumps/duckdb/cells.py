"""Values as cells of CSV (RFC 4180): NULL is empty, an empty text `""`, a blob `\\x..`; nested values, their text as DuckDB
prints it."""

from paddock.dumps.duckdb.literals import moment, time_of_day
from paddock.dumps.duckdb.types import NESTED, Type

# Only these can hold what needs quotes.
_TEXT = frozenset({"varchar", "json", "enum"}) | NESTED
_RISKY = r"^[=+\-@\t\r]"


def of(value: str, type: Type, *, null: str = "", safe: bool = False) -> str:
    """Never NULL: that is `null`."""
    return f"coalesce({_cell(value, type, null=null, safe=safe)}, '{null}')"


def _cell(value: str, type: Type, *, null: str, safe: bool) -> str:
    text = f"{value}::VARCHAR"
    match type.id:
        case "null":
            return "NULL::VARCHAR"
        case "blob":
            return f"'\\x' || hex({value})"
        case "geometry":
            return f"'\\x' || hex(st_aswkb({value}))"
        case "timestamp with time zone":
            return moment(value)
        case "time with time zone":
            return time_of_day(value)
        case id if id not in _TEXT:
            return text
    if safe:
        # A spreadsheet would take it for a formula.
        text = f"CASE WHEN regexp_matches({text}, '{_RISKY}') THEN '''' || {text} ELSE {text} END"
    special = f"regexp_matches({text}, '[\",\\r\\n]') OR strlen({text}) = 0"
    if null:
        special += f" OR {text} = '{null}'"
    return f"CASE WHEN {special} THEN '\"' || replace({text}, '\"', '\"\"') || '\"' ELSE {text} END"
