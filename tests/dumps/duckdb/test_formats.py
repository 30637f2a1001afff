"""JSON and CSV, read back by readers that are not DuckDB's."""

import csv
import io
import json
import zipfile
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pytest

from paddock.dumps.model import DumpOptions
from paddock.engines.children.quoting import quoted
from tests.dumps.duckdb.loading import as_text, dumped, made, parsed
from tests.dumps.duckdb.test_loading_back import EXTREMES


@pytest.fixture
def types(tmp_path: Path) -> Path:
    return made(tmp_path / "types.db", ["CREATE TABLE all_types AS SELECT * FROM test_all_types()", *EXTREMES])


async def test_every_type_is_json(types: Path) -> None:
    whole = parsed(await dumped(types, "json"))

    with duckdb.connect(str(types), read_only=True) as connection:
        assert {name: len(rows) for name, rows in whole.items()} == {
            name: connection.execute(f"SELECT count(*) FROM {name}").fetchall()[0][0] for name in whole
        }
        for name in ("texts", "numbers", "decimals", "times", "bytes"):
            described = connection.execute(f"SELECT * FROM {name}").description
            for row in whole[name]:
                assert list(row) == [column[0] for column in described]


async def test_numbers_keep_all_their_digits_in_json(types: Path) -> None:
    whole = parsed(await dumped(types, "json"))

    assert whole["numbers"][0] == {
        "h": "-170141183460469231731687303715884105728",
        "uh": "340282366920938463463374607431768211455",
        "b": "-1",
        "ub": "18446744073709551615",
        "l": [
            "-170141183460469231731687303715884105728",
            "170141183460469231731687303715884105727",
            None,
        ],
        "ul": ["18446744073709551615", "0"],
        "m": {"12345678901234567890123456789012345678901234567890": "340282366920938463463374607431768211455"},
    }
    assert [row["a"] for row in whole["decimals"]] == [
        "0.12345678901234567890123456789012345678",
        "-0.00000000000000000000000000000000000001",
    ]
    assert [row["c"] for row in whole["decimals"]] == ["0.9", "-0.1"]
    with duckdb.connect(str(types), read_only=True) as connection:
        floats = connection.execute("SELECT d FROM floats").fetchall()
    for (was,), row in zip(floats, whole["floats"], strict=True):
        now = float({"NaN": "nan", "Infinity": "inf", "-Infinity": "-inf"}.get(row["d"], row["d"]))
        assert repr(now) == repr(was)


async def test_text_and_bytes_come_back_from_json(types: Path) -> None:
    whole = parsed(await dumped(types, "json"))

    with duckdb.connect(str(types), read_only=True) as connection:
        texts = connection.execute("SELECT t, j::VARCHAR, l, s FROM texts").fetchall()
        blobs = connection.execute("SELECT b, l FROM bytes").fetchall()
    for (t, j, items, s), row in zip(texts, whole["texts"], strict=True):
        assert row["t"] == t
        assert row["l"] == items
        assert row["j"] == (None if j is None else parsed(j.encode()))
        if s is not None:
            assert [None if one is None else one["it's"] for one in row["s"]] == [
                None if one is None else one["it's"] for one in s
            ]
    for (b, items), row in zip(blobs, whole["bytes"], strict=True):
        assert _blob(row["b"]) == b
        assert (None if items is None else [_blob(one) for one in row["l"]]) == items


def _blob(value: Any) -> bytes | None:
    return None if value is None else bytes.fromhex(value["$hex"])


async def test_nested_values_are_nested_json(tmp_path: Path) -> None:
    path = made(
        tmp_path / "a.db",
        [
            """CREATE TABLE t(u UNION(n INTEGER, t VARCHAR), m MAP(INTEGER, VARCHAR[]), k MAP(INTEGER[], DATE),
                s STRUCT("a ""b" TIMESTAMPTZ, i INTERVAL)[], f INTEGER[2], j JSON)""",
            """INSERT INTO t VALUES (union_value(t := 'x'), MAP {1: ['a', NULL], 2: NULL}, MAP {[1]: '2020-01-01'::DATE},
                [{'a "b': '2020-01-01 01:00:00+01'::TIMESTAMPTZ, 'i': INTERVAL 90 MINUTE}, NULL], [1, NULL],
                '{"x": [1.50]}'), (NULL, MAP {}, NULL, [], NULL, NULL)""",
        ],
    )

    assert json.loads(await dumped(path, "json", single=True), parse_float=Decimal) == [
        {
            "u": {"t": "x"},
            "m": {"1": ["a", None], "2": None},
            "k": [{"key": [1], "value": "2020-01-01"}],
            "s": [{'a "b': "2020-01-01 00:00:00+00", "i": "01:30:00"}, None],
            "f": [1, None],
            "j": {"x": [Decimal("1.50")]},
        },
        {"u": None, "m": {}, "k": None, "s": [], "f": None, "j": None},
    ]


async def test_every_type_is_csv_that_duckdb_casts_back(types: Path) -> None:
    archive = zipfile.ZipFile(io.BytesIO(await dumped(types, "csv")))
    files = json.loads(archive.read("manifest.json"))["files"]

    with duckdb.connect(str(types), read_only=True) as connection:
        for entry, name in files.items():
            described = connection.execute(f"SELECT * FROM {name}").description
            header, *lines = csv.reader(io.StringIO(archive.read(entry).decode(), newline=""))
            assert header == [column[0] for column in described]
            texts = connection.execute(
                f"SELECT {', '.join(as_text(quoted(column[0]), str(column[1])) for column in described)} FROM {name}"
            ).fetchall()
            assert [list(row) for row in texts] == lines, name


async def test_null_and_nothing_are_two_things_in_csv(tmp_path: Path) -> None:
    path = made(
        tmp_path / "a.db",
        [
            "CREATE TABLE t(a VARCHAR, b INTEGER, c VARCHAR[])",
            """INSERT INTO t VALUES ('', 1, []), (NULL, NULL, NULL), ('a,"b', 2, ['x', 'y z']),
                ('line' || chr(10), 3, NULL), (' x ', NULL, [NULL])""",
        ],
    )

    assert await dumped(path, "csv") == (
        b'a,b,c\r\n"",1,[]\r\n,,\r\n"a,""b",2,"[x, y z]"\r\n"line\n",3,\r\n x ,,[NULL]\r\n'
    )


async def test_one_column_of_csv_has_no_blank_lines(tmp_path: Path) -> None:
    path = made(
        tmp_path / "a.db", ["CREATE TABLE t(a VARCHAR)", "INSERT INTO t VALUES ('x'), (NULL), (''), ('\\N'), ('y')"]
    )

    assert await dumped(path, "csv") == b'a\r\nx\r\n\\N\r\n""\r\n"\\N"\r\ny\r\n'


async def test_cells_that_a_spreadsheet_would_run_are_prefixed_only_if_asked(tmp_path: Path) -> None:
    path = made(
        tmp_path / "a.db",
        [
            "CREATE TABLE t(a VARCHAR, b INTEGER, e ENUM('=e'))",
            """INSERT INTO t VALUES ('=1+1', -1, '=e'), ('@x', 2, NULL), (chr(9) || 'y', 3, NULL), ('+a,b', 4, NULL),
                ('-', 5, NULL), ('a=', 6, NULL), (chr(13), 7, NULL), ('', 8, NULL), (NULL, 9, NULL)""",
        ],
    )

    assert await dumped(path, "csv") == (
        b'a,b,e\r\n=1+1,-1,=e\r\n@x,2,\r\n\ty,3,\r\n"+a,b",4,\r\n-,5,\r\na=,6,\r\n"\r",7,\r\n"",8,\r\n,9,\r\n'
    )
    assert await dumped(path, "csv", DumpOptions(csv_safe=True)) == (
        b"a,b,e\r\n'=1+1,-1,'=e\r\n'@x,2,\r\n'\ty,3,\r\n\"'+a,b\",4,\r\n'-,5,\r\na=,6,\r\n\"'\r\",7,\r\n\"\",8,\r\n,9,\r\n"
    )


async def test_generated_columns_are_values_too(tmp_path: Path) -> None:
    path = made(
        tmp_path / "a.db",
        ["CREATE TABLE t(a INTEGER, g INTEGER GENERATED ALWAYS AS (a * 2))", "INSERT INTO t VALUES (1), (2)"],
    )

    assert json.loads(await dumped(path, "json")) == [{"a": 1, "g": 2}, {"a": 2, "g": 4}]
    assert await dumped(path, "csv") == b"a,g\r\n1,2\r\n2,4\r\n"


async def test_without_rows_there_are_still_tables(tmp_path: Path) -> None:
    path = made(tmp_path / "a.db", ["CREATE TABLE t(a INTEGER)", "CREATE SCHEMA s", "CREATE TABLE s.t(a INTEGER)"])

    assert json.loads(await dumped(path, "json")) == {"t": [], "s.t": []}
    made(path, ["INSERT INTO t VALUES (1)"])
    assert json.loads(await dumped(path, "json", DumpOptions(schema_only=True))) == {"t": [], "s.t": []}
