"""Where in a query its error is: the line with its neighbours, and a mark below the column."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from paddock.api.errors import ApiError
from paddock.jobs.errors import Refused

LINES_AROUND = 2
LONGEST_LINE = 300


@dataclass(frozen=True, slots=True)
class SqlLine:
    number: int
    text: str
    wrong: bool


@dataclass(frozen=True, slots=True)
class Fault:
    message: str
    hint: str | None
    line: int | None
    column: int | None
    excerpt: Sequence[SqlLine]


def fault_of_job(error: Mapping[str, Any] | None, payload: Mapping[str, Any]) -> Fault | None:
    """Of an error that says where in the query of its job it is."""
    line, sql = (error or {}).get("line"), payload.get("sql")
    if error is None or not isinstance(line, int) or not isinstance(sql, str):
        return None
    column = error.get("column")
    message = str(error.get("message") or "").removesuffix(f" Line {line}, column {column}.")
    lines = excerpt(sql, line)
    known = column if isinstance(column, int) else None
    return Fault(message, error.get("hint"), line, known, lines) if lines else None


def fault_of_refusal(error: ApiError | Refused, text: str) -> Fault:
    """Of a query that was refused while somebody waits for its answer."""
    line, column = error.details.get("line"), error.details.get("column")
    known = line if isinstance(line, int) else None
    return Fault(error.message, error.hint, known, column if isinstance(column, int) else None, excerpt(text, known))


def excerpt(text: str, line: int | None) -> list[SqlLine]:
    """The line and its neighbours; nothing where there is no such line."""
    lines = text.split("\n")
    if not text or line is None or not 1 <= line <= len(lines):
        return []
    first, last = max(1, line - LINES_AROUND), min(len(lines), line + LINES_AROUND)
    return [SqlLine(number, lines[number - 1][:LONGEST_LINE], number == line) for number in range(first, last + 1)]
