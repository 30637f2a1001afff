"""What a look at a file finds."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

# Bytes of the file that are read, and all there are.
Told = Callable[[int, int], None]


class NotWhole(Exception):
    """The file is cut short, changed, or no dump at all; the message is a sentence."""

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


@dataclass(frozen=True, slots=True)
class Checked:
    """A table: the rows it has, and those it should have, where that is told."""

    table: str
    rows: int | None
    expected: int | None = None
    problem: str | None = None

    @property
    def ok(self) -> bool:
        return self.problem is None and self.rows is not None and self.expected in (None, self.rows)


@dataclass(frozen=True, slots=True)
class Findings:
    """`compared`: whether the file tells how many rows there should be."""

    format: str
    tables: Sequence[Checked]
    compared: bool
    point_in_time: str | None = None
    notes: Sequence[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return all(table.ok for table in self.tables)


def compared(counted: Mapping[str, int | None], expected: Mapping[str, int]) -> list[Checked]:
    """Those that are told, in their order."""
    return [
        Checked(table, counted.get(table), rows, None if counted.get(table) is not None else "was not loaded")
        for table, rows in expected.items()
    ]
