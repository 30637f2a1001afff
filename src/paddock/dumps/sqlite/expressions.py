"""Rows as text, made by SQLite itself: one expression per table and format, evaluated without a call into Python.

A type is told by comparison (number < '' <= text < x'' <= blob), which is one instruction; `typeof` is a call. COLLATE
BINARY, because a column's own collation may be slow, or unknown here. `+`, because a column of numbers would take text
that looks like one for a number. `quote` is that of the SQLite we bring: older
ones print 15 digits, and `Inf`.

These expressions look at every value. Most rows need that for no format (`formats`, and JSON's plain objects): what the
fast ways cannot say they leave to these.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from paddock.dumps.sqlite.quoting import literal
from paddock.dumps.sqlite.schema import SqliteColumn, TablePlan
from paddock.engines.children.quoting import quoted as name

# A function takes so many arguments; `json_object` needs two for a column.
ARGUMENTS = 400
# Ours, in Python (`values`): whether text is no Unicode, whether it would be another after a way through UTF-8, its bytes
# in a database in UTF-8, and a real as an expression.
NOT_UNICODE, NOT_KEPT = "paddock_not_unicode", "paddock_not_kept"
TEXT_HEX, EXACT = "paddock_text_hex", "paddock_exact"
# A row with this character in it may be other than SQLite writes it, and is looked at again.
DOUBT = 28

# A real in SQL, see `_real`.
REAL = "%!.19g"


@dataclass(frozen=True, slots=True)
class Frame:
    """What stands before the first row, between two, and after the last."""

    before: bytes
    between: str
    after: bytes


@dataclass(frozen=True, slots=True)
class Writing:
    """How a table is written in one format."""

    plan: TablePlan
    format: str
    # UTF-16: what is no Unicode does not survive the way through UTF-8, and does not show in its result.
    wide: bool = False
    preserve_rowids: bool = False
    csv_safe: bool = False

    @property
    def columns(self) -> Sequence[SqliteColumn]:
        if self.format == "sql":
            return [column for column in self.plan.columns if not column.generated]
        return self.plan.columns

    @property
    def keeps_rowid(self) -> bool:
        plan = self.plan
        return self.format == "sql" and self.preserve_rowids and plan.rowid is not None and not plan.has_rowid_alias

    def frame(self) -> Frame:
        if self.format == "sql":
            insert = f"INSERT INTO {name(self.plan.name)}{self._names()} VALUES("
            return Frame(insert.encode(), ");\n" + insert, b");\n")
        if self.format == "csv":
            return Frame(b"", "\r\n", b"\r\n")
        return Frame(b"", ",\n", b"")

    def _names(self) -> str:
        if not self.keeps_rowid and len(self.columns) == len(self.plan.columns):
            return ""
        names = [name(column.name) for column in self.columns]
        return "(" + ",".join([self.plan.rowid or "", *names] if self.keeps_rowid else names) + ")"

    def row(self) -> str:
        if self.format == "json":
            return _object(self.columns, careful=True)
        cells = [self.cell(column) for column in self.columns]
        return _joined([self.plan.rowid or "", *cells] if self.keeps_rowid else cells)

    def plain_object(self) -> str:
        """It lets bytes pass that are no Unicode."""
        return _object(self.columns, careful=False)

    def value(self, column: SqliteColumn) -> str:
        """One value by itself."""
        return f"json_quote({_json(column, True)})" if self.format == "json" else self.cell(column)

    def cell(self, column: SqliteColumn) -> str:
        it = name(column.name)
        if column.rowid:
            return it
        if self.format == "sql":
            text = _sql_text(it, self.wide)
            return _by_type(it, column, _real(it), text, other=f"quote({it})")
        text = _safe(it) if self.csv_safe else f"""'"'||replace({it},'"','""')||'"'"""
        if self.wide:
            # Behind the mark, for its size: a chunk is bounded by that.
            text = f"CASE WHEN {NOT_UNICODE}(CAST({it} AS BLOB)) THEN char({DOUBT}) ELSE '' END||{text}"
        nothing = "'\\N'" if len(self.columns) == 1 else "''"
        blob = f"CASE WHEN {it} IS NULL THEN {nothing} ELSE '\\x'||lower(hex({it})) END"
        real = f"CASE WHEN {negative_zero(it)} THEN '-0.0' ELSE quote({it}) END"
        return _by_type(it, column, real, text, other=blob)


def _by_type(it: str, column: SqliteColumn, real: str, text: str, *, other: str) -> str:
    """The likely type first; only speed depends on it."""
    is_number, is_text = f"+{it} COLLATE BINARY<''", f"{it}<x''"
    number = f"CASE WHEN typeof({it})='integer' THEN {it} ELSE {real} END"
    if column.affinity == "integer":
        return (
            f"CASE WHEN typeof({it})='integer' THEN {it} WHEN {is_number} THEN {real}"
            f" WHEN {is_text} THEN {text} ELSE {other} END"
        )
    if column.affinity in ("text", "blob"):
        return (
            f"CASE WHEN +{it} COLLATE BINARY>='' AND {is_text} THEN {text}"
            f" WHEN {is_number} THEN {number} ELSE {other} END"
        )
    # A column of reals has no integers: what is stored as one is read as a real.
    number = real if column.affinity == "real" else number
    return f"CASE WHEN {is_number} THEN {number} WHEN {is_text} THEN {text} ELSE {other} END"


def _real(it: str) -> str:
    """Nineteen digits: SQLite before 3.43 rounds twice when it reads a number, and a shorter one, though exact by itself,
    may come back as its neighbour. Very small ones it reads wrong in any length, and Inf is no word of SQL."""
    usual = f"format('{REAL}',{it})"
    return (
        f"CASE WHEN {it} BETWEEN 1e-280 AND 1e308 THEN {usual} WHEN {it} BETWEEN -1e308 AND -1e-280 THEN {usual}"
        f" WHEN {it}=0 AND NOT {negative_zero(it)} THEN '0.0' ELSE {EXACT}({it}) END"
    )


def negative_zero(it: str) -> str:
    """It is equal to zero and printed like it."""
    return f"(+{it}=0 AND atan2({it},-1)<0)"


def _sql_text(it: str, wide: bool) -> str:
    """The sqlite3 command ends a line at NUL and drops a CR before LF. CR stays readable where it can be spelled."""
    # Not by `quote`, which ends at NUL.
    plain = f"''''||replace({it},'''','''''')||''''"
    hexed = f"'CAST(X'''||hex(CAST({it} AS BLOB))||''' AS TEXT)'"
    spelled = f"'replace('''||replace(replace({it},'''',''''''),char(13),'\\r')||''',''\\r'',char(13))'"
    lost = f" OR {NOT_KEPT}(CAST({it} AS BLOB))" if wide else ""
    return (
        f"CASE WHEN instr({it},char(0)){lost} THEN {hexed} WHEN NOT instr({it},char(13)) THEN {plain}"
        f" WHEN instr({it},'\\r') THEN {hexed} ELSE {spelled} END"
    )


def _safe(it: str) -> str:
    """A spreadsheet runs what begins so."""
    return (
        f"""CASE WHEN {it} GLOB '[=+@'||char(9)||char(13)||'-]*' THEN '"''' ELSE '"' END||replace({it},'"','""')||'"'"""
    )


def _joined(cells: Sequence[str]) -> str:
    if len(cells) == 1:
        return cells[0]
    groups = [cells[start : start + ARGUMENTS] for start in range(0, len(cells), ARGUMENTS)]
    parts = [f"concat_ws(',',{','.join(group)})" for group in groups]
    return parts[0] if len(parts) == 1 else _joined(parts)


def _object(columns: Sequence[SqliteColumn], careful: bool) -> str:
    groups = [columns[start : start + ARGUMENTS] for start in range(0, len(columns), ARGUMENTS)]
    objects = [
        "json_object(" + ",".join(f"{literal(each.name)},{_json(each, careful)}" for each in group) + ")"
        for group in groups
    ]
    if len(objects) == 1:
        return objects[0]
    inner = [f"substr({each},2,length({each})-2)" for each in objects]
    return "'{'||" + "||','||".join(inner) + "||'}'"


def _json(column: SqliteColumn, careful: bool) -> str:
    it = name(column.name)
    if column.rowid:
        return it
    # Told apart here too: SQLite takes a blob that looks like JSONB (x'01' is true) for JSON.
    tests = [f"WHEN {it}>=x'' THEN json_object('$hex',lower(hex({it})))"]
    if column.affinity not in ("integer", "text"):
        tests.append(f"WHEN {negative_zero(it)} THEN json('-0.0')")
    if careful:
        broken = f"+{it} COLLATE BINARY>='' AND {NOT_UNICODE}(CAST({it} AS BLOB))"
        tests.append(f"WHEN {broken} THEN json_object('$text_hex',{TEXT_HEX}(CAST({it} AS BLOB)))")
    return f"CASE {' '.join(tests)} ELSE {it} END"


def octets(columns: Sequence[SqliteColumn]) -> str:
    """How large a row is, without reading what is large in it."""
    return _sum([f"ifnull(octet_length({name(column.name)}),0)" for column in columns]) or "0"


def _sum(terms: Sequence[str]) -> str:
    """In halves of halves: SQLite takes an expression for too large by its depth."""
    half = len(terms) // 2
    return f"({_sum(terms[:half])}+{_sum(terms[half:])})" if half else "".join(terms)


def utf8(data: bytes, codec: str) -> bytes:
    """Text of the database's encoding as a database in UTF-8 has it. Half a character stays half a character; half a unit
    at the end is none, as SQLite has it."""
    if codec == "utf-8":
        return data
    whole = data[: len(data) & ~1]
    return whole.decode(codec, "surrogatepass").encode("utf-8", "surrogatepass")
