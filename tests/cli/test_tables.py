"""How a list is laid out."""

import pytest
from rich.console import Console

from paddock.cli import output
from paddock.cli.output import Column, field, rendered, table

COLUMNS = (field("name"), Column("count", lambda item: str(item["count"]), right=True), field("note", wide=True))
ITEMS = [{"name": "a", "count": 5, "note": "short"}, {"name": "bb", "count": 1234, "note": "a long one that goes on"}]


def test_numbers_end_at_the_same_place() -> None:
    assert rendered(table(ITEMS, COLUMNS)).splitlines() == [
        "NAME  COUNT  NOTE",
        "a         5  short",
        "bb     1234  a long one that goes on",
    ]


def test_in_a_pipe_long_sql_is_cut_and_nothing_else() -> None:
    columns = (
        field("name"),
        Column("what", lambda item: str(item["note"]), wide=True, longest_in_pipe=10),
        *COLUMNS[1:],
    )
    assert rendered(table(ITEMS, columns)).splitlines() == [
        "NAME  WHAT        COUNT  NOTE",
        "a     short           5  short",
        "bb    a long on…   1234  a long one that goes on",
    ]


def test_on_a_narrow_terminal_only_the_wide_column_gives_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output, "console", lambda: Console(width=26, highlight=False))
    assert rendered(table(ITEMS, COLUMNS)).splitlines() == [
        "NAME  COUNT  NOTE",
        "a         5  short",
        "bb     1234  a long one…",
    ]
