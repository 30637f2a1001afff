"""What all ways to render a table share."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

# From here on a row is written in pieces.
BIG = 8 << 20


@dataclass(frozen=True, slots=True)
class Limits:
    rows: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Chunk:
    """`begins` is False where it goes on with a row of the chunk before; that is counted when it is over. Pieces are put
    together only for who needs that: they are copied by it."""

    pieces: Sequence[bytes]
    next: Any
    rows: int
    begins: bool = True

    @property
    def data(self) -> bytes:
        return b"".join(self.pieces)


class Renderer(Protocol):
    """One table in one format. One caller at a time."""

    def render(self, place: Any) -> Chunk:
        """What comes after a place, None: from the first row; a pure function of the database, the format and it."""

    def close(self) -> None: ...


class RowsDiffer(Exception):
    """The walk over a table does not come by each of its rows once."""

    def __init__(self, table: str, written: int, counted: int) -> None:
        super().__init__(table, written, counted)
        self.table, self.written, self.counted = table, written, counted
