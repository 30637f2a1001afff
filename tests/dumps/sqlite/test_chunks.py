"""Chunks: the same bytes from the same place, bounded in rows, bytes and memory, whatever the rows are."""

import hashlib
import json
import random
import subprocess
import sys
import tracemalloc
from pathlib import Path
from typing import Any

import apsw
import pytest

from paddock.dumps.composing import Composer
from paddock.dumps.model import CHUNK_BYTES, CHUNK_ROWS, DumpOptions, Format
from paddock.dumps.source import Table
from paddock.dumps.sqlite import big
from paddock.dumps.sqlite.source import FrozenSqlite
from paddock.jobs.errors import PermanentRunnerError
from tests.dumps.sqlite.loading import AT, all_rows, contents, dumped, loaded, made, parsed_csv, parsed_json

FORMATS: tuple[Format, ...] = ("sql", "json", "csv")
SCHEMA = """
CREATE TABLE narrow (id INTEGER PRIMARY KEY, a INTEGER, b REAL, t TEXT);
CREATE TABLE sparse (t TEXT, d BLOB);
CREATE TABLE keyed (a TEXT COLLATE NOCASE, b INTEGER, c REAL, d TEXT, PRIMARY KEY (a, b DESC, c)) WITHOUT ROWID;
CREATE TABLE shadowed (rowid TEXT, _rowid_ INTEGER, oid TEXT);
CREATE TABLE growing (id INTEGER PRIMARY KEY, d BLOB, t TEXT);
CREATE VIRTUAL TABLE words USING fts5(body);
"""


def _fill(path: Path) -> Path:
    made(path, SCHEMA)
    connection = apsw.Connection(str(path))
    dice = random.Random(7)
    with connection:
        connection.executemany(
            "INSERT INTO narrow VALUES (?, ?, ?, ?)",
            [(n * 3 - 9_000, n, n / 7, "odd\r\n" if n == 7_000 else f"it's {n}") for n in range(12_000)],
        )
        ids = [dice.getrandbits(64) - 2**63 for _ in range(6_000)]
        connection.executemany(
            "INSERT INTO sparse(rowid, t, d) VALUES (?, ?, ?)", [(id, f"t{id}", dice.randbytes(9)) for id in ids]
        )
        keys = [(f"{'aA'[n % 2]}{n % 7}", n // 14, n / 2, f"row {n}") for n in range(14_000)]
        connection.executemany("INSERT OR IGNORE INTO keyed VALUES (?, ?, ?, ?)", keys)
        connection.executemany("INSERT INTO shadowed VALUES (?, ?, ?)", [(str(n), n, "x" * 90) for n in range(11_000)])
        sizes = [10] * 2_000 + [60_000] * 90 + [2_000] * 1_500 + [3_000_000] * 3 + [10] * 2_000
        connection.executemany(
            "INSERT INTO growing(d, t) VALUES (?, ?)", [(dice.randbytes(size), f"{size}") for size in sizes]
        )
        connection.executemany("INSERT INTO words VALUES (?)", [(f"word {n}",) for n in range(6_000)])
    connection.close()
    return path


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _fill(tmp_path_factory.mktemp("chunks") / "many.db")


@pytest.mark.parametrize("format", FORMATS)
async def test_every_place_gives_the_same_bytes_again(many: Path, format: Format) -> None:
    frozen = FrozenSqlite(many, AT, DumpOptions())
    for table in frozen.tables:
        chunks = await all_rows(frozen, table, format)
        # Rows of a virtual table are written as those of the tables behind it.
        assert len(chunks) > 1 or (table.name, format) == ("words", "sql")
        for place, rows in reversed(chunks):
            again = FrozenSqlite(many, AT, DumpOptions())
            assert await again.rows(table, format, place) == rows
            await again.close()
            assert await frozen.rows(table, format, place) == rows
    await frozen.close()


@pytest.mark.slow
async def test_another_process_makes_the_same_bytes(many: Path) -> None:
    script = (
        "import asyncio, hashlib, sys; from pathlib import Path\n"
        "from tests.dumps.sqlite.loading import dumped\n"
        "print(hashlib.sha256(asyncio.run(dumped(Path(sys.argv[1]), sys.argv[2]))).hexdigest())"
    )
    for format in FORMATS:
        here = hashlib.sha256(await dumped(many, format)).hexdigest()
        there = subprocess.run(
            [sys.executable, "-c", script, str(many), format], capture_output=True, text=True, check=True
        )
        assert there.stdout.strip() == here


@pytest.mark.parametrize("format", FORMATS)
async def test_a_chunk_is_bounded_in_rows_and_bytes(many: Path, format: Format) -> None:
    frozen = FrozenSqlite(many, AT, DumpOptions())
    for table in frozen.tables:
        for _, rows in await all_rows(frozen, table, format):
            assert rows.counts[table.name] <= CHUNK_ROWS or (table.name, format) == ("words", "sql")
            # One row of 3 MB is 6 MB of hex.
            assert len(rows.data) <= CHUNK_BYTES or rows.counts[table.name] == 1, (table.name, rows.counts)
    await frozen.close()


async def test_all_rows_come_back_from_many_chunks(many: Path, tmp_path: Path) -> None:
    assert contents(loaded(await dumped(many), tmp_path / "loaded.db")) == contents(many)


async def test_json_and_csv_of_many_chunks_hold_each_row_once_in_the_order_of_the_key(many: Path) -> None:
    rows = parsed_json(await dumped(many, "json", tables=["keyed"]))
    lines = parsed_csv(await dumped(many, "csv", tables=["keyed"]))

    connection = apsw.Connection(str(many))
    expected: list[Any] = connection.execute("SELECT a, b, c, d FROM keyed ORDER BY a, b DESC, c").fetchall()
    connection.close()
    assert [tuple(row.values()) for row in rows] == expected
    assert lines[1:] == [[a, str(b), repr(c), d] for a, b, c, d in expected]


@pytest.mark.slow
@pytest.mark.parametrize("format", FORMATS)
async def test_a_value_of_twenty_megabytes_goes_in_pieces(format: Format, tmp_path: Path) -> None:
    path = made(
        tmp_path / "big.db",
        "CREATE TABLE big (id INTEGER PRIMARY KEY, d BLOB, t TEXT, n TEXT, u TEXT, x INTEGER);"
        "CREATE TABLE keyed (k TEXT PRIMARY KEY, d BLOB) WITHOUT ROWID;"
        "CREATE TABLE shadowed (rowid TEXT, _rowid_ TEXT, oid BLOB);",
    )
    connection = apsw.Connection(str(path))
    blob = random.Random(1).randbytes(20 << 20)
    text = 'it\'s "é" \\ ' * 100_000
    connection.execute(
        "INSERT INTO big VALUES (1, ?, ?, ?, CAST(? AS TEXT), 5)", (blob, text, "a\0\r\n" * 100_000, b"\xff" * 300_000)
    )
    connection.execute("INSERT INTO big VALUES (2, x'00', 'small', NULL, '', 6)")
    connection.execute("INSERT INTO keyed VALUES ('a', 'x'), ('b', ?), ('c', NULL)", (blob[: 9 << 20],))
    connection.execute(
        "INSERT INTO shadowed VALUES ('a', 'b', 'c'), ('d', 'e', ?), ('f', ?, NULL)", (blob[: 9 << 20], text)
    )
    connection.close()

    data = await dumped(path, format)

    if format == "sql":
        assert contents(loaded(data, tmp_path / "loaded.db")) == contents(path)
    if format == "json":
        tables = parsed_json(data)
        first = tables["big"][0]
        assert (bytes.fromhex(first["d"]["$hex"]), first["t"], first["x"]) == (blob, text, 5)
        assert (first["n"], first["u"]) == ("a\0\r\n" * 100_000, {"$text_hex": "ff" * 300_000})
        assert [bytes.fromhex(row["d"]["$hex"]) for row in tables["keyed"][1:2]] == [blob[: 9 << 20]]
        assert [row["_rowid_"] for row in tables["shadowed"]] == ["b", "e", text]
    if format == "csv":
        import csv

        csv.field_size_limit(1 << 30)
        rows = parsed_csv(await dumped(path, "csv", tables=["big"]))
        assert rows[1][:4] == ["1", "\\x" + blob.hex(), text, "a\0\r\n" * 100_000]
        assert rows[2] == ["2", "\\x00", "small", "", "", "6"]


async def test_pieces_of_a_row_are_the_same_again_and_count_it_once(tmp_path: Path) -> None:
    path = made(
        tmp_path / "big.db",
        "CREATE TABLE big (d BLOB); INSERT INTO big VALUES (x'01'), (randomblob(12000000)), (x'02')",
    )
    frozen = FrozenSqlite(path, AT, DumpOptions())
    chunks = await all_rows(frozen, Table("big"), "sql")

    assert sum(rows.counts["big"] for _, rows in chunks) == 3
    assert len(chunks) > 5
    assert all(len(rows.data) <= CHUNK_BYTES for _, rows in chunks)
    for place, rows in reversed(chunks):
        assert await frozen.rows(Table("big"), "sql", place) == rows
    await frozen.close()


@pytest.mark.parametrize("format", FORMATS)
async def test_memory_does_not_grow_with_a_value(format: Format, tmp_path: Path) -> None:
    path = made(tmp_path / "big.db", "CREATE TABLE big (d BLOB); INSERT INTO big VALUES (zeroblob(100000000))")
    frozen = FrozenSqlite(path, AT, DumpOptions())
    tracemalloc.start()
    try:
        size = 0
        async for chunk in Composer(frozen, format, DumpOptions()).chunks():
            size += len(chunk)
        assert size > 200_000_000
        assert tracemalloc.get_traced_memory()[1] < 4 * CHUNK_BYTES
    finally:
        tracemalloc.stop()
    await frozen.close()


@pytest.mark.slow
async def test_a_value_that_no_loader_takes_fails_at_once_and_names_it(tmp_path: Path) -> None:
    path = made(
        tmp_path / "huge.db",
        "CREATE TABLE huge (id INTEGER PRIMARY KEY, d BLOB); INSERT INTO huge VALUES (77, zeroblob(500000000))",
    )
    frozen = FrozenSqlite(path, AT, DumpOptions())
    with pytest.raises(PermanentRunnerError, match=r"'d' of table 'huge'.* 77") as refused:
        await frozen.rows(Table("huge"), "sql", None)
    assert refused.value.code == "value_too_large"
    assert (await frozen.rows(Table("huge"), "csv", None)).data.startswith(b"77,\\x00")
    await frozen.close()


@pytest.mark.parametrize(
    ("table", "key", "told"),
    [
        ("id INTEGER PRIMARY KEY", "77", '"id" = 77'),
        ("a TEXT, b INT, c, d, e, PRIMARY KEY (a, b DESC, c, d)", "'it''s', -7, 1.5, x'00ff', 1",
         "\"a\" = 'it''s' and \"b\" = -7 and \"c\" = 1.5 and \"d\" = x'00ff'"),
        ("a PRIMARY KEY", f"'{'long' * 100}'", f"\"a\" = '{'long' * 25}…'"),
    ],
    ids=["rowid", "key", "long key"],
)  # fmt: skip
@pytest.mark.parametrize("encoding", ["UTF-8", "UTF-16le"])
async def test_the_row_with_a_value_that_no_loader_takes_is_named_as_people_would_look_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, table: str, key: str, told: str, encoding: str
) -> None:
    monkeypatch.setattr(big, "LOADABLE", 15_000_000)
    kind = "" if "INTEGER PRIMARY KEY" in table else "WITHOUT ROWID"
    column, _, rest = table.partition(", PRIMARY KEY")
    made(
        tmp_path / "huge.db",
        f"PRAGMA encoding = '{encoding}'; CREATE TABLE huge ({column}, huge BLOB{rest and ', PRIMARY KEY'}{rest}) {kind};"
        f"INSERT INTO huge VALUES ({key}, zeroblob(9000000))",
    )
    frozen = FrozenSqlite(tmp_path / "huge.db", AT, DumpOptions())
    with pytest.raises(PermanentRunnerError) as refused:
        await frozen.rows(Table("huge"), "sql", None)
    assert refused.value.message.endswith(f", in the row with {told}.")
    await frozen.close()


async def test_where_rows_have_no_key_the_one_with_too_large_a_value_is_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(big, "LOADABLE", 15_000_000)
    path = made(
        tmp_path / "huge.db",
        "CREATE TABLE huge (rowid, _rowid_, oid, d); INSERT INTO huge VALUES (1, 1, 1, 'small'), (1, 1, 1, 'small'),"
        "(1, 1, 1, zeroblob(9000000))",
    )
    frozen = FrozenSqlite(path, AT, DumpOptions())
    first = await frozen.rows(Table("huge"), "sql", None)
    with pytest.raises(PermanentRunnerError, match="in the row number 3"):
        await frozen.rows(Table("huge"), "sql", first.next)
    await frozen.close()


async def test_a_place_is_json_and_holds_keys_that_are_no_unicode(tmp_path: Path) -> None:
    path = made(tmp_path / "keys.db", "CREATE TABLE keys (k PRIMARY KEY, v) WITHOUT ROWID")
    connection = apsw.Connection(str(path))
    keys: list[Any] = [n if n % 3 else n / 7 for n in range(6_000)] + [
        bytes([255, n % 256, n // 256]) for n in range(3_000)
    ]
    with connection:
        connection.executemany("INSERT INTO keys VALUES (?, 1)", [(key,) for key in keys])
        texts = [(b"\xff%d" % n,) for n in range(6_000)]
        connection.executemany("INSERT INTO keys VALUES (CAST(? AS TEXT), 1)", texts)
    connection.close()
    frozen = FrozenSqlite(path, AT, DumpOptions())
    chunks = await all_rows(frozen, Table("keys"), "sql")
    await frozen.close()

    assert sum(rows.counts["keys"] for _, rows in chunks) == 15_000
    assert len({json.dumps(place) for place, _ in chunks}) == len(chunks)
    lines = b"".join(rows.data for _, rows in chunks).splitlines()
    assert len(set(lines)) == len(lines) == 15_000
