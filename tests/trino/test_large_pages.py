"""Pages that are read in pieces give the same batch, and the same errors, as if they were read at once."""

import json
from typing import Any

import pytest

from paddock.engines.trino.decoding import BadPage
from paddock.engines.trino.decoding.by_objects import AT_ONCE, ByObjects
from paddock.engines.trino.types import column_of

BIGINT = {"rawType": "bigint", "arguments": []}
VARCHAR = {"rawType": "varchar", "arguments": [{"kind": "LONG", "value": 2147483647}]}
COLUMNS = [
    column_of({"name": "n", "typeSignature": BIGINT}),
    column_of(
        {"name": "texts", "typeSignature": {"rawType": "array", "arguments": [{"kind": "TYPE", "value": VARCHAR}]}}
    ),
]
# Texts that look like the end of a row.
HOSTILE = ['"],["', "],[1,[", "\\", "]]", "東京"]


def rows_of(count: int) -> list[list[Any]]:
    return [[n, None if n % 7 == 0 else [*HOSTILE[: n % 6], "x" * 60]] for n in range(count)]


def text_of(rows: list[Any]) -> bytes:
    return json.dumps(rows, ensure_ascii=False).encode()


def test_every_row_of_a_large_page_is_there_in_its_order() -> None:
    rows = rows_of(20_000)
    text = text_of(rows)
    assert len(text) > 4 * AT_ONCE

    batch = ByObjects(COLUMNS).decode(text)

    assert [list(row.values()) for row in batch.to_pylist()] == rows
    batch.validate(full=True)


def test_one_row_larger_than_a_piece_is_read() -> None:
    rows = [[1, ["x" * (4 * AT_ONCE)]], [2, []]]
    assert ByObjects(COLUMNS).decode(text_of(rows)).column(1).to_pylist() == [rows[0][1], []]


@pytest.mark.parametrize(
    "spoil",
    [
        lambda text: text[:-1],
        lambda text: text[: len(text) // 2],
        lambda text: text + b"]",
        lambda text: text[: len(text) // 2] + b"\xff" + text[len(text) // 2 :],
        lambda text: b'{"a":' + text + b"}",
        lambda text: text[:-1] + b",[1]]",
        lambda text: text[:-1] + b",7]",
        lambda text: text[:-1] + b',["no number",[]]]',
    ],
)
def test_a_damaged_large_page_is_refused(spoil: Any) -> None:
    with pytest.raises(BadPage):
        ByObjects(COLUMNS).decode(spoil(text_of(rows_of(20_000))))
