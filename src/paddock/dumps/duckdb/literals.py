"""Values as SQL that DuckDB reads back to the last bit.

An expression here is SQL that makes the text of a value: one query renders a whole chunk. Nearly all values are written as
quoted text, because every type reads its own text exactly, and because items of one list must have one type. Bare are
whole numbers up to 64 bits; bare decimals and floats would go through types that round.

Text with a NUL ends a statement, and a CR at the end of a line is lost by who reads lines. The plain expressions leave
both as they are; a chunk in which one of them is found is rendered again by the careful ones.
"""

from paddock.dumps.duckdb.types import FLOATS, WHOLE, Type
from paddock.engines.children.quoting import literal, quoted


class Literals:
    def __init__(self, *, careful: bool = False) -> None:
        self.careful = careful

    def of(self, value: str, type: Type, depth: int = 0) -> str:
        """Never NULL: that is `NULL`."""
        match type.id:
            case "list" | "array":
                return f"coalesce('[' || {self._each(value, type.item, depth)} || ']', 'NULL')"
            case "struct":
                return self._struct(value, type, depth)
            case "map":
                return self._map(value, type, depth)
            case "union":
                return self._union(value, type, depth)
        return f"coalesce({self._scalar(value, type, nested=depth > 0)}, 'NULL')"

    def _scalar(self, value: str, type: Type, *, nested: bool) -> str:
        match type.id:
            case "null":
                return "NULL::VARCHAR"
            case id if id in WHOLE or id == "boolean":
                return f"{value}::VARCHAR"
            case "varchar" | "json" | "enum":
                return self._text(f"{value}::VARCHAR")
            case "blob":
                return f"'unhex(''' || hex({value}) || ''')'"
            case "geometry":
                return f"'st_geomfromwkb(unhex(''' || hex(st_aswkb({value})) || '''))'"
            case "interval":
                return _interval(value, nested=nested)
            case "timestamp with time zone":
                return f"'''' || {moment(value)} || ''''"
            case "time with time zone":
                return f"'''' || {time_of_day(value)} || ''''"
            case id if id in FLOATS:
                return _float(value, type, nested=nested)
        return f"'''' || {value}::VARCHAR || ''''"

    def _text(self, value: str) -> str:
        plain = f"'''' || replace({value}, '''', '''''') || ''''"
        if not self.careful:
            return plain
        escaped = f"replace(replace(replace({value}, '\\', '\\\\'), '''', ''''''), chr(13), '\\r')"
        return (
            f"CASE WHEN contains({value}, chr(0)) THEN 'decode(unhex(''' || hex(encode({value})) || '''))' "
            f"WHEN contains({value}, chr(13)) THEN 'E''' || {escaped} || '''' ELSE {plain} END"
        )

    def _each(self, value: str, item: Type, depth: int) -> str:
        name = f"x{depth}"
        return f"array_to_string(list_transform({value}, lambda {name}: {self.of(name, item, depth + 1)}), ',')"

    def _struct(self, value: str, type: Type, depth: int) -> str:
        parts = [
            f"{literal(f'{literal(name)}: ')}, {self.of(f'struct_extract({value}, {literal(name)})', field, depth + 1)}"
            for name, field in type.fields
        ]
        inner = ", ', ', ".join(parts)
        return f"CASE WHEN {value} IS NULL THEN 'NULL' ELSE concat('{{', {inner}, '}}') END"

    def _map(self, value: str, type: Type, depth: int) -> str:
        keys = self._each(f"map_keys({value})", type.item, depth)
        values = self._each(f"map_values({value})", type.value, depth)
        return f"coalesce('MAP([' || {keys} || '],[' || {values} || '])', 'NULL')"

    def _union(self, value: str, type: Type, depth: int) -> str:
        """Cast to its type at once: a union of one member has no type in common with that of another."""
        cases = " ".join(
            f"WHEN {literal(name)} THEN concat({literal(f'CAST(union_value({quoted(name)} := ')}, "
            f"{self.of(f'union_extract({value}, {literal(name)})', member, depth + 1)}, "
            f"{literal(f') AS {type.sql})')})"
            for name, member in type.fields
        )
        return f"CASE union_tag({value})::VARCHAR {cases} ELSE 'NULL' END"


def moment(value: str) -> str:
    """The text of a TIMESTAMPTZ, by its microseconds: the calendar library is a millisecond off far from today."""
    return f"coalesce(make_timestamp(epoch_us({value}))::VARCHAR || '+00', {value}::VARCHAR)"


def time_of_day(value: str) -> str:
    """The text of a TIMETZ: DuckDB prints an offset of seconds without minutes as if it were minutes."""
    offset = f"date_part('timezone', {value})::BIGINT"
    return (
        f"CASE WHEN {offset} % 60 = 0 THEN {value}::VARCHAR ELSE {value}::TIME::VARCHAR || CASE WHEN {offset} < 0 "
        f"THEN '-' ELSE '+' END || printf('%02d:%02d:%02d', abs({offset}) // 3600, abs({offset}) // 60 % 60, "
        f"abs({offset}) % 60) END"
    )


def _interval(value: str, *, nested: bool) -> str:
    """By its parts where its text is out of range for DuckDB's own reader."""
    text = f"{value}::VARCHAR"
    months = f"(date_part('year', {value}) * 12 + date_part('month', {value}))"
    minutes = f"(date_part('hour', {value})::HUGEINT * 60 + date_part('minute', {value}))"
    parts = (
        f"'to_months(' || {months} || ') + to_days(' || date_part('day', {value}) || ') + to_microseconds(' "
        f"|| ({minutes} * 60000000 + date_part('microsecond', {value})) || ')'"
    )
    plain = _typed(text, "INTERVAL", nested=nested)
    return f"CASE WHEN TRY_CAST({text} AS INTERVAL)::VARCHAR = {text} THEN {plain} ELSE {parts} END"


def _float(value: str, type: Type, *, nested: bool) -> str:
    """Numbers have an exact text. NaNs have many forms and one text: by their bits."""
    return (
        f"CASE WHEN isnan({value}) THEN '''' || {value}::BIT::VARCHAR || '''::BIT::{type.sql}' "
        f"ELSE {_typed(f'{value}::VARCHAR', type.sql, nested=nested)} END"
    )


def _typed(text: str, type: str, *, nested: bool) -> str:
    """In a list of structs the fields' types must agree, also where one value is no text."""
    return f"'''' || {text} || '''::{type}'" if nested else f"'''' || {text} || ''''"
