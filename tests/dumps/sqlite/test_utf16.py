"""Databases in UTF-16: text that is no Unicode comes as a database in UTF-8 would hold it, in rows of every size."""

from pathlib import Path
from typing import Any

import apsw
import pytest

from tests.dumps.sqlite.loading import contents, dumped, loaded, parsed_json

WIDE = ["UTF-16le", "UTF-16be"]
CODECS = {"UTF-16le": "utf-16-le", "UTF-16be": "utf-16-be"}
# Ordinary rows, rows that go one by one, and one that goes in pieces.
FILLERS = [10, 6_000, 9 << 20]
TEXTS = ["plain", "\ud800", "a\udc00b", "\udc00\ud800", '"\ud83d', "\x1c", "Ľ=", "=1", "\r\n\udfff", "\ufffe\uffff"]


def lone(path: Path, encoding: str, filler: int) -> Path:
    connection = apsw.Connection(str(path))
    connection.pragma("encoding", encoding)
    connection.execute("CREATE TABLE t (a TEXT, b, c BLOB)")
    with connection:
        for number, text in enumerate(TEXTS, 1):
            data = text.encode(CODECS[encoding], "surrogatepass")
            insert = "INSERT INTO t(rowid, a, b) VALUES (?1, CAST(?2 AS TEXT), CAST(?2 AS TEXT))"
            connection.execute(insert, (10 * number, data))
        # One large row is enough.
        connection.execute("UPDATE t SET c = zeroblob(?1) WHERE ?1 < 1000000 OR rowid = 20", (filler,))
    connection.close()
    return path


@pytest.mark.parametrize("filler", FILLERS)
@pytest.mark.parametrize("encoding", WIDE)
async def test_csv_has_the_bytes_that_a_database_in_utf8_would_hold(encoding: str, filler: int, tmp_path: Path) -> None:
    data = await dumped(lone(tmp_path / "wide.db", encoding, filler), "csv")

    for text in TEXTS:
        cell = '"' + text.replace('"', '""') + '"'
        assert f"{cell},{cell},".encode("utf-8", "surrogatepass") in data, ascii(text)


@pytest.mark.parametrize("encoding", WIDE)
@pytest.mark.parametrize("filler", FILLERS)
async def test_csv_marks_what_a_spreadsheet_runs_and_nothing_else(encoding: str, filler: int, tmp_path: Path) -> None:
    data = await dumped(lone(tmp_path / "wide.db", encoding, filler), "csv", csv_safe=True)

    assert b'"\'=1","\'=1",' in data
    assert '"Ľ=","Ľ=",'.encode() in data


@pytest.mark.parametrize("filler", FILLERS)
@pytest.mark.parametrize("encoding", WIDE)
async def test_json_has_the_bytes_that_a_database_in_utf8_would_hold(
    encoding: str, filler: int, tmp_path: Path
) -> None:
    rows = parsed_json(await dumped(lone(tmp_path / "wide.db", encoding, filler), "json"))

    assert [row["a"] for row in rows] == [_jsoned(text) for text in TEXTS]
    assert [row["b"] for row in rows] == [_jsoned(text) for text in TEXTS]


def _jsoned(text: str) -> Any:
    try:
        text.encode()
    except UnicodeEncodeError:
        return {"$text_hex": text.encode("utf-8", "surrogatepass").hex()}
    return text


@pytest.mark.parametrize("filler", FILLERS)
@pytest.mark.parametrize("encoding", WIDE)
async def test_sql_with_rowids_loads_back_the_same(encoding: str, filler: int, tmp_path: Path) -> None:
    path = lone(tmp_path / "wide.db", encoding, filler)

    copy = loaded(await dumped(path, preserve_rowids=True), tmp_path / "loaded.db")

    assert contents(copy) == contents(path)
    connection = apsw.Connection(str(copy))
    assert [row[0] for row in connection.execute("SELECT rowid FROM t")] == [10 * n for n in range(1, len(TEXTS) + 1)]
    connection.close()
