"""The fast way to SQL and CSV guesses types from the first rows; what comes after may be anything."""

from pathlib import Path
from typing import Any

import apsw
import pytest

from paddock.dumps.model import Format
from paddock.dumps.sqlite import formats
from tests.dumps.sqlite.loading import contents, dumped, loaded, made, parsed_json
from tests.dumps.sqlite.test_torture import BLOBS, INTEGERS, NO_UNICODE, REALS, TEXTS

TYPES = ["", "INTEGER", "TEXT", "REAL", "BLOB", "NUMERIC"]
# What the first rows hold, in turn.
FIRST: list[list[Any]] = [[7], [7, None], [2.5], [2.5, None], ["it's"], ["it's", None], [None], [7, "x"], [b"\1"]]
ODD: list[Any] = [*INTEGERS, *REALS, -(2.0**63), 2.0**62, *TEXTS, *BLOBS, None]


@pytest.fixture
def surprising(tmp_path: Path) -> Path:
    """A column for each declared type and each guess, and then every value in every one of them."""
    columns = [(type, first) for type in TYPES for first in FIRST]
    path = tmp_path / "surprising.db"
    connection = apsw.Connection(str(path))
    names = ", ".join(f"c{number} {type}" for number, (type, _) in enumerate(columns))
    insert = f"INSERT INTO t VALUES (NULL, {', '.join('?' * len(columns))})"
    connection.execute(f"CREATE TABLE t (id INTEGER PRIMARY KEY, {names})")
    usual = [[first[row % len(first)] for _, first in columns] for row in range(40)]
    with connection:
        connection.executemany(insert, usual)
        for value in ODD:
            # Alone among usual ones, column by column, and everywhere.
            connection.executemany(
                insert,
                [
                    [value if at == number else cell for at, cell in enumerate(usual[number % 40])]
                    for number in range(len(columns))
                ],
            )
            connection.execute(insert, [value] * len(columns))
        for data in NO_UNICODE:
            connection.execute(insert.replace("?", "CAST(?1 AS TEXT)"), (data,))
    connection.close()
    return path


async def test_values_of_other_types_than_those_before_load_back_the_same(surprising: Path, tmp_path: Path) -> None:
    assert contents(loaded(await dumped(surprising), tmp_path / "loaded.db")) == contents(surprising)


@pytest.mark.parametrize("format", ["sql", "csv"])
async def test_the_fast_way_writes_what_the_careful_one_does(
    surprising: Path, format: Format, monkeypatch: pytest.MonkeyPatch
) -> None:
    fast = await dumped(surprising, format)
    monkeypatch.setattr(formats, "possible", lambda _: False)
    assert (await dumped(surprising, format)).splitlines() == fast.splitlines()


@pytest.mark.parametrize("filler", [10, 6_000])
async def test_text_that_looks_like_a_number_stays_text_in_a_column_of_numbers(filler: int, tmp_path: Path) -> None:
    path = made(tmp_path / "odd.db", "CREATE TABLE t (a, b, c, d)")
    connection = apsw.Connection(str(path))
    rows = [("5", "6.5", "-0.0"), (5, 6.5, 1), ("0", "0", "1e300")]
    connection.executemany("INSERT INTO t VALUES (?, ?, ?, ?)", [(*row, "x" * filler) for row in rows])
    # As some migrations do it.
    connection.pragma("writable_schema", "on")
    connection.execute("UPDATE sqlite_schema SET sql = 'CREATE TABLE t (a INTEGER, b REAL, c NUMERIC, d)'")
    connection.close()

    lines = (await dumped(path, "csv")).split(b"\r\n")
    statements = (await dumped(path)).split(b"\n")
    objects = parsed_json(await dumped(path, "json"))

    assert [line[: line.rindex(b",")] for line in lines[1:4]] == [b'"5","6.5","-0.0"', b"5,6.5,1", b'"0","0","1e300"']
    values = [line[len('INSERT INTO "t" VALUES(') : line.rindex(b",")] for line in statements if b"INSERT" in line]
    assert values == [b"'5','6.5','-0.0'", b"5,6.5,1", b"'0','0','1e300'"]
    assert [(row["a"], row["b"], row["c"]) for row in objects] == rows
