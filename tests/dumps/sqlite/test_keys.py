"""Tables stored by their key: each row once, in their order, whatever encoding, collation and direction they have."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw
import pytest

from paddock.dumps.composing import Composer
from paddock.dumps.model import DumpOptions, Format
from paddock.dumps.sqlite.chunks import Limits
from paddock.dumps.sqlite.source import FrozenSqlite
from paddock.engines.children.quoting import quoted as name
from paddock.jobs.errors import PermanentRunnerError
from tests.dumps.sqlite.loading import AT, contents, loaded, parsed_json

ROWS = 60
KEYS: dict[str, list[Any]] = {
    "names": [f"{('anna', 'Bob', 'carl', 'Dora')[n % 4]}{n}" for n in range(ROWS)],
    "items": [f"{('item', 'Item')[n % 2]}{n:06}" for n in range(ROWS)],
    "mails": [f"{('ada', 'Grace', 'ÉVA', 'éric')[n % 4]}.{n}@Example.org" for n in range(ROWS)],
    "spaced": [f"{'ab'[n % 2] * (n // 6 + 1)}{' ' * (n // 2 % 3)}" for n in range(ROWS)],
    "whole": [n * 7_919 % 101 - 50 for n in range(ROWS)],
    "reals": [n / 7 - 3 for n in range(ROWS)],
    "blobs": [bytes([n * 37 % 256, n]) for n in range(ROWS)],
    "mixed": [(n, n / 3, f"x{n}", bytes([n]))[n % 4] for n in range(ROWS)],
    "wide": ["\ud7ffé\ue000\ufffd😀"[n % 5] + str(n) for n in range(ROWS)],
}
COLLATIONS = ("BINARY", "NOCASE", "RTRIM")
# Many rows in a statement, fewer because of their bytes, and one by one.
LIMITS = (Limits(7, 1 << 20), Limits(50, 2 << 10))


def keyed(path: Path, encoding: str) -> Path:
    connection = apsw.Connection(str(path))
    connection.pragma("encoding", encoding)
    with connection:
        for kind, keys in KEYS.items():
            for collation in COLLATIONS:
                for way in ("ASC", "DESC"):
                    one, two = f"{kind} {collation} {way}", f"{kind} {collation} {way} two"
                    connection.execute(
                        f'CREATE TABLE "{one}" (k COLLATE {collation}, v TEXT, PRIMARY KEY (k {way})) WITHOUT ROWID;'
                        f'CREATE TABLE "{two}" (g TEXT COLLATE {collation}, k COLLATE {collation}, v TEXT,'
                        f"  PRIMARY KEY (g {way}, k {'ASC' if way == 'DESC' else 'DESC'})) WITHOUT ROWID"
                    )
                    rows = [(key, f"v{number}") for number, key in enumerate(keys)]
                    connection.executemany(f'INSERT OR IGNORE INTO "{one}" VALUES (?, ?)', rows)
                    pairs = [("aB "[number % 3], *row) for number, row in enumerate(rows)]
                    connection.executemany(f'INSERT OR IGNORE INTO "{two}" VALUES (?, ?, ?)', pairs)
    connection.close()
    return path


async def rendered(path: Path, format: Format, limits: Limits) -> bytes:
    frozen = FrozenSqlite(path, AT, DumpOptions(), limits)
    try:
        return b"".join([chunk async for chunk in Composer(frozen, format, DumpOptions()).chunks()])
    finally:
        await frozen.close()


@pytest.mark.parametrize("limits", LIMITS, ids=["by rows", "by bytes"])
@pytest.mark.parametrize("encoding", ["UTF-8", "UTF-16le", "UTF-16be"])
async def test_each_row_comes_once_and_in_the_order_of_its_key(encoding: str, limits: Limits, tmp_path: Path) -> None:
    path = keyed(tmp_path / "keyed.db", encoding)

    tables = parsed_json(await rendered(path, "json", limits))

    connection = apsw.Connection(str(path))
    assert connection.pragma("encoding") == encoding
    assert len(tables) == len(KEYS) * len(COLLATIONS) * 2 * 2
    for table, rows in tables.items():
        stored = [row[0] for row in connection.execute(f"SELECT v FROM {name(table)}")]
        assert len(stored) > 10
        assert [row["v"] for row in rows] == stored, table
    connection.close()
    assert contents(loaded(await rendered(path, "sql", limits), tmp_path / "loaded.db")) == contents(path)


# As a program does that brings a NOCASE of its own: by bytes, where some rows come again, and backwards, where a walk finds
# its end too soon.
ORDERS: dict[str, Callable[[str, str], int]] = {
    "by bytes": lambda one, two: (one > two) - (one < two),
    "backwards": lambda one, two: (one < two) - (one > two),
}


@pytest.mark.parametrize("format", ["sql", "json", "csv"])
@pytest.mark.parametrize("encoding", ["UTF-8", "UTF-16le"])
@pytest.mark.parametrize("order", ORDERS)
async def test_a_table_in_another_order_than_it_says_fails_and_loses_no_row(
    order: str, encoding: str, format: Format, tmp_path: Path
) -> None:
    path = tmp_path / "broken.db"
    connection = apsw.Connection(str(path))
    connection.pragma("encoding", encoding)
    connection.create_collation("NOCASE", ORDERS[order])
    connection.execute("CREATE TABLE people (k TEXT COLLATE NOCASE PRIMARY KEY, v) WITHOUT ROWID")
    for keys in (KEYS["names"], KEYS["items"]):
        connection.executemany("INSERT INTO people VALUES (?, 1)", [(key,) for key in keys])
    connection.close()

    with pytest.raises(PermanentRunnerError, match=r"Table 'people' of broken.db has 120 rows") as refused:
        await rendered(path, format, Limits(7, 1 << 20))
    assert refused.value.code == "rows_differ"
