"""Pages of things that have an id in the order of their page."""

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from paddock.api.pagination import read_cursor, write_cursor


def read_place(cursor: str | None) -> UUID | None:
    if cursor is None:
        return None
    place: UUID = read_cursor(cursor, UUID)
    return place


def next_cursor(items: Sequence[Mapping[str, Any]], limit: int) -> str | None:
    """A full page may be the last; the one after it is then empty."""
    return write_cursor(items[-1]["id"]) if len(items) == limit else None
