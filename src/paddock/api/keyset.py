"""Pages of things that have an id in the order of their page."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol
from uuid import UUID

from paddock.api.pagination import read_cursor, write_cursor
from paddock.db.pool import Statement


def read_place(cursor: str | None) -> UUID | None:
    if cursor is None:
        return None
    place: UUID = read_cursor(cursor, UUID)
    return place


def next_cursor(items: Sequence[Mapping[str, Any]], limit: int, by: str = "id") -> str | None:
    """A full page may be the last; the one after it is then empty."""
    return write_cursor(items[-1][by]) if len(items) == limit else None


class HasId(Protocol):
    @property
    def id(self) -> object: ...


def cursor_after(found: Sequence[HasId], limit: int) -> str | None:
    """The same for things themselves, which a page of the dashboard shows."""
    return write_cursor(found[-1].id) if len(found) == limit else None


def along(statement: Statement, columns: Mapping[str, str]) -> Statement:
    """The statement walking the index of these columns and the id; each with where the statement has its value."""
    parts = {
        "columns": "".join(f"{column}, " for column in columns),
        "values": "".join(f"{place}, " for place in columns.values()),
        "order": "".join(f"{column} DESC, " for column in columns),
    }
    text = statement.sql
    for part, content in parts.items():
        text = text.replace(f"{{{part}}}", content)
    return replace(statement, sql=text)
