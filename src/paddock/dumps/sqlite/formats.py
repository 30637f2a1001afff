"""The fast way to SQL and CSV: a row is one call of SQLite's `format`, in words that fit the types of its columns.

The types are guessed from the first rows of a chunk, and every row is tested for them. One that is otherwise is a DOUBT,
and rows with one in them are written again with the careful expression beside the fast. A wrong guess costs time, never
a byte. `format` ends text at NUL, so such text is otherwise too.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from paddock.dumps.sqlite.expressions import DOUBT, REAL, Writing, negative_zero
from paddock.dumps.sqlite.quoting import literal
from paddock.dumps.sqlite.schema import SqliteColumn
from paddock.engines.children.quoting import quoted as name

# `format` takes a thousand arguments, and a column up to three.
MOST = 300
# The least and the greatest name of a type in a column (blob, integer, null, real, text), as `guesses` asks for them.
Guess = tuple[str | None, str | None]


@dataclass(frozen=True, slots=True)
class _Cell:
    """What must be true of a value (nothing: ''), and how it is written if so."""

    test: str
    word: str
    arguments: Sequence[str]


def possible(writing: Writing) -> bool:
    alone = writing.format == "csv" and len(writing.columns) == 1
    return len(writing.columns) <= MOST and not (writing.wide or writing.csv_safe or alone)


def guesses(writing: Writing) -> str:
    types = [f"typeof({name(column.name)})" for column in writing.columns]
    return ",".join(f"min({type}),max({type})" for type in types)


def row(writing: Writing, guessed: Sequence[str | None], *, careful: bool) -> str:
    """Not careful: whether there is a DOUBT, or for SQL a CR in some text, is to be seen in the result."""
    sql = writing.format == "sql"
    bad = ["char(0)", "char(13)"] if sql and careful else ["char(0)"]
    pairs = zip(guessed[::2], guessed[1::2], strict=True)
    cells = [_cell(writing, column, guess, bad) for column, guess in zip(writing.columns, pairs, strict=True)]
    if writing.keeps_rowid:
        cells.insert(0, _Cell("", "%d", [writing.plan.rowid or ""]))
    words = literal(",".join(cell.word for cell in cells))
    arguments = [argument for cell in cells for argument in cell.arguments]
    tests = " AND ".join(cell.test for cell in cells if cell.test) or "1"
    other = writing.row() if careful else f"char({DOUBT})"
    return f"CASE WHEN {tests} THEN format({','.join([words, *arguments])}) ELSE {other} END"


def _cell(writing: Writing, column: SqliteColumn, guess: Guess, bad: Sequence[str]) -> _Cell:
    it = name(column.name)
    sql = writing.format == "sql"
    if column.rowid:
        return _Cell("", "%d", [it])
    nulls = "null" in guess
    match guess:
        case ("null", "null"):
            return _Cell(f"{it} IS NULL", "NULL" if sql else "", [])
        case ("integer", "integer" | "null"):
            return _integer(it, nulls, "NULL" if sql else "")
        case ("real", "real") | ("null", "real"):
            return _real(it, column, nulls, sql)
        case ("text", "text") | ("null", "text"):
            return _text(it, column, nulls, sql, bad)
    # CSV has NUL as it is, which `format` has not.
    test = "" if sql else f"({it} IS NULL OR {it}>=x'' OR NOT instr({it},char(0)))"
    return _Cell(test, "%s", [writing.cell(column)])


def _integer(it: str, nulls: bool, nothing: str) -> _Cell:
    if nulls:
        return _Cell(f"({it} IS NULL OR typeof({it})='integer')", "%s", [f"ifnull({it},{literal(nothing)})"])
    return _Cell(f"typeof({it})='integer'", "%d", [it])


def _real(it: str, column: SqliteColumn, nulls: bool, sql: bool) -> _Cell:
    # What SQL needs to be read by any SQLite, or what is enough for everybody else.
    word = REAL if sql else "%!.17g"
    test = (
        f"(+{it} BETWEEN 1e-280 AND 1e308 OR +{it} BETWEEN -1e308 AND -1e-280 OR (+{it}=0 AND NOT {negative_zero(it)}))"
    )
    if column.affinity != "real":
        test = f"typeof({it})='real' AND {test}"
    if not nulls:
        return _Cell(test, word, [it])
    nothing = "'NULL'" if sql else "''"
    return _Cell(
        f"({it} IS NULL OR ({test}))", "%s", [f"CASE WHEN {it} IS NULL THEN {nothing} ELSE format('{word}',{it}) END"]
    )


def _text(it: str, column: SqliteColumn, nulls: bool, sql: bool, bad: Sequence[str]) -> _Cell:
    tests = [f"{it}<x''", *(f"NOT instr({it},{byte})" for byte in bad)]
    if column.affinity != "text":
        tests.insert(0, f"+{it} COLLATE BINARY>=''")
    test = " AND ".join(tests)
    if nulls:
        test = f"({it} IS NULL OR ({test}))"
    if sql:
        return _Cell(test, "%Q", [it])
    if not nulls:
        return _Cell(test, '"%w"', [it])
    quote = f"""CASE WHEN {it} IS NULL THEN '' ELSE '"' END"""
    return _Cell(test, "%s%w%s", [quote, f"ifnull({it},'')", quote])
