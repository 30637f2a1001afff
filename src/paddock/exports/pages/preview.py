"""The first rows of a query as a table."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from paddock.jobs.model import JsonObject
from paddock.web.words import plural


@dataclass(frozen=True, slots=True)
class Cell:
    """`kind` is number, text, word (true, false) or null."""

    text: str
    kind: str


@dataclass(frozen=True, slots=True)
class Preview:
    columns: Sequence[JsonObject]
    rows: Sequence[Sequence[Cell]]
    summary: str

    @property
    def numeric(self) -> frozenset[int]:
        """Which columns have numbers, so that their heads stand over them."""
        return frozenset(place for row in self.rows for place, cell in enumerate(row) if cell.kind == "number")


def preview_of(answer: JsonObject, asked: int) -> Preview:
    rows = [[cell_of(value) for value in row] for row in answer["rows"]]
    first = "The first " if len(rows) == asked or answer["cut"] else ""
    summary = f"{first}{plural(len(rows), 'row')}, {plural(len(answer['columns']), 'column')}."
    return Preview(answer["columns"], rows, summary[:1].upper() + summary[1:])


def cell_of(value: Any) -> Cell:
    if value is None:
        return Cell("NULL", "null")
    if isinstance(value, bool):
        return Cell(str(value).lower(), "word")
    if isinstance(value, int | float):
        return Cell(str(value), "number")
    if isinstance(value, str):
        return Cell(value, "text")
    return Cell(orjson.dumps(value).decode(), "text")
