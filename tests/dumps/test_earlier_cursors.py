"""A dump that was begun before its saved state had words for keys goes on where it was."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from paddock.dumps import composing
from paddock.dumps.composing import Composer, Position, Written
from paddock.dumps.earlier_cursors import spelled_out
from paddock.dumps.model import DumpOptions, Format
from paddock.dumps.sqlite.chunks import Limits
from paddock.dumps.sqlite.source import FrozenSqlite
from paddock.dumps.writing import Cursor, read_draft
from paddock.storage.store import open_store
from tests.dumps.sqlite.loading import AT, made

SQL = """
CREATE TABLE kept (a TEXT, b BLOB, c REAL, note, PRIMARY KEY (a, b, c DESC)) WITHOUT ROWID;
INSERT INTO kept VALUES ('one', x'00ff', 0.5, 1), ('one', x'00ff', 0.25, 2), ('one', x'01', -1.5, 3), ('two', x'', 7.0, 4),
    ('zwei', x'07', 1.0, 5);
CREATE TABLE numbered (id INTEGER PRIMARY KEY, note);
INSERT INTO numbered VALUES (1, 'a'), (5, 'b'), (9, 'c');
"""
ONE: Any = [["t", "b25l"], ["b", "AP8="], ["f", "3fd0000000000000"]]
LAST: Any = [["t", "endlaQ=="], ["b", "Bw=="], ["f", "3ff0000000000000"]]
BOTH = {"kept": 5, "numbered": 3}


def rows_after(mark: Any, written: int, counted: int) -> list[Any]:
    return [{"after": mark, "step": 1000, "slow": 0}, written, counted]


# Where the version before saved that the chunks of that database begin.
SAVED: dict[Format, Sequence[Position]] = {
    "sql": [
        {"s": 0, "p": None, "n": {}},
        {"s": 1, "p": None, "n": {}},
        {"s": 1, "p": rows_after([ONE, 3], 2, 5), "n": {"kept": 2}},
        {"s": 1, "p": rows_after([LAST, 3], 5, 5), "n": {"kept": 5}},
        {"s": 2, "p": rows_after(5, 2, 3), "n": {"kept": 5, "numbered": 2}},
        {"s": 3, "p": None, "n": BOTH},
        {"s": 5, "p": None, "n": BOTH},
    ],
    "csv": [
        {"s": 0, "p": None, "n": {}},
        {
            "s": 0,
            "p": rows_after([ONE, 3], 2, 5),
            "n": {"kept": 2},
            "z": {"o": 0, "e": [], "c": [3609056052, 44, 53]},
        },
        {
            "s": 0,
            "p": rows_after([LAST, 3], 5, 5),
            "n": {"kept": 5},
            "z": {"o": 0, "e": [], "c": [571167869, 97, 107]},
        },
        {
            "s": 1,
            "p": rows_after(5, 2, 3),
            "n": {"kept": 5, "numbered": 2},
            "z": {"o": 181, "e": [[571167869, 99, 107, 0]], "c": [4195653804, 28, 23]},
        },
        {
            "s": 2,
            "p": None,
            "n": BOTH,
            "z": {"o": 310, "e": [[571167869, 99, 107, 0], [559690067, 43, 30, 181]], "c": [0, 0, 0]},
        },
    ],
}


def cursor_at(position: Position) -> dict[str, Any]:
    return {"part": 2, "digest": "ab", "position": position, "start": [8388608, 8388608, "ab"], "shipped": 17}


@pytest.mark.parametrize("format", SAVED)
async def test_a_chunk_begins_where_it_was_saved_to_begin(
    format: Format, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(composing, "ENOUGH", 1)
    frozen = FrozenSqlite(made(tmp_path / "shop.db", SQL), AT, DumpOptions(), Limits(2, 1 << 20))
    composer = Composer(frozen, format, DumpOptions())
    begun: list[Position] = []
    position: Position | None = composer.first
    while position is not None:
        begun.append(position)
        position = (await composer.render(position, Written())).next
    await frozen.close()

    assert [spelled_out(cursor_at(saved))["position"] for saved in SAVED[format]] == begun


@pytest.mark.parametrize(
    ("before", "now"),
    [
        ({"row": 3}, {"row": 3}),
        ({"row": 3, "big": [1, 65536]}, {"row": 3, "big": {"column": 1, "offset": 65536}}),
        ({"after": 5, "big": [0, 0]}, {"after": 5, "big": {"column": 0, "offset": 0}}),
        ({"after": None, "step": 0}, {"after": None, "step": 0}),
    ],
)
def test_a_large_row_goes_on_in_its_middle(before: dict[str, Any], now: dict[str, Any]) -> None:
    cursor = spelled_out(cursor_at({"s": 1, "p": [before, 2, 5], "n": {}}))
    assert cursor["position"]["place"] == {"chunk": now, "written": 2, "counted": 5}


async def test_a_draft_that_was_saved_before_is_read(tmp_path: Path) -> None:
    draft = {"id": "d1", "key": "d/d1.sql", "part_size": 8388608, "identity": "x", "upload": "u", "etags": ["e"]}
    saved = {**draft, "rolled": 0, "cursor": cursor_at({"s": 2, "p": 8_000, "n": {"events": 8_000}})}

    read = await read_draft(open_store(str(tmp_path)), saved)

    position = {"section": 2, "place": 8_000, "counts": {"events": 8_000}}
    assert read.cursor == Cursor(2, "ab", position, Written(8388608, 8388608, "ab"), 17)
