"""What SQLite itself finds too wide, or cannot read at all."""

import io
import json
import zipfile
from pathlib import Path

import apsw
import pytest

from paddock.dumps.model import DumpOptions, DumpPayload
from paddock.dumps.resources import DumpResources
from paddock.dumps.source import Table
from paddock.jobs.errors import PermanentRunnerError
from tests.dumps.sqlite.loading import AT, dumped, loaded, made, parsed_csv, parsed_json
from tests.dumps.sqlite.test_copying import source
from tests.dumps.turning import Job, configured, to_its_end

COLUMNS = 1_990
TABLES = {
    "by_rowid": ("", ""),
    "by_key": (", PRIMARY KEY (c0)", "WITHOUT ROWID"),
    "counted": (", rowid, _rowid_, oid", ""),
}


@pytest.mark.parametrize(
    ("table", "large"), [("by_rowid", False), ("by_rowid", True), ("by_key", False), ("counted", False)]
)
async def test_a_table_of_two_thousand_columns_is_dumped(table: str, large: bool, tmp_path: Path) -> None:
    more, kind = TABLES[table]
    columns = ", ".join(f"c{number}{' TEXT' if number % 3 else ''}" for number in range(COLUMNS))
    path = made(tmp_path / "wide.db", f"CREATE TABLE {table} ({columns}{more}) {kind}")
    connection = apsw.Connection(str(path))
    names = ", ".join(f"c{number}" for number in range(COLUMNS))
    for row in range(3):
        values = [f"it's {row}.{number}" if number % 3 else number + row for number in range(COLUMNS)]
        values[-1] = "x" * 9_000_000 if large and row == 1 else 1
        connection.execute(f"INSERT INTO {table}({names}) VALUES ({', '.join('?' * COLUMNS)})", values)

    expected = connection.execute(f"SELECT * FROM {table}").fetchall()
    connection.close()

    copy = apsw.Connection(str(loaded(await dumped(path), tmp_path / "loaded.db")))
    assert copy.execute(f"SELECT * FROM {table}").fetchall() == expected
    copy.close()
    assert [tuple(row.values()) for row in parsed_json(await dumped(path, "json"))] == expected
    if not large:
        lines = parsed_csv(await dumped(path, "csv"))[1:]
        assert lines == [["" if value is None else str(value) for value in row] for row in expected]


UNSCANNABLE = """
CREATE TABLE orders (id INTEGER PRIMARY KEY); INSERT INTO orders VALUES (1);
CREATE TABLE people (id INTEGER PRIMARY KEY); INSERT INTO people VALUES (2);
CREATE VIRTUAL TABLE Words USING fts5(a, content='', columnsize=0); INSERT INTO words(rowid, a) VALUES (7, 'hello');
"""


async def test_a_table_whose_rows_nobody_can_read_does_not_keep_the_rest_from_being_dumped(tmp_path: Path) -> None:
    path = made(tmp_path / "shop.db", UNSCANNABLE)

    copy = apsw.Connection(str(loaded(await dumped(path), tmp_path / "loaded.db")))
    assert copy.execute("SELECT rowid FROM words WHERE words MATCH 'hello'").fetchall() == [(7,)]
    copy.close()
    assert parsed_json(await dumped(path, "json")) == {"orders": [{"id": 1}], "people": [{"id": 2}]}
    archive = zipfile.ZipFile(io.BytesIO(await dumped(path, "csv")))
    assert sorted(archive.namelist()) == ["manifest.json", "orders.csv", "people.csv"]
    assert json.loads(archive.read("manifest.json"))["unreadable"] == ["Words"]


async def test_the_log_says_whose_rows_are_missing(tmp_path: Path) -> None:
    made(tmp_path / "shop.db", UNSCANNABLE)
    payload = DumpPayload(dump_id="export_20261116-093000_abc123", database="shop", format="json")
    job = Job(payload)

    finished = await to_its_end(job, DumpResources(configured(tmp_path)))

    assert finished.tables == {"orders": 1, "people": 1}
    assert finished.unreadable == ["Words"]
    assert "A table's rows cannot be read: JSON and CSV lack it, SQL has what it is stored in." in job.logged


async def test_an_error_names_the_table_and_the_database_and_not_its_copy(tmp_path: Path) -> None:
    path = made(tmp_path / "shop.db", "CREATE TABLE orders (a)")
    connection = apsw.Connection(str(path))
    connection.executemany("INSERT INTO orders VALUES (?)", [("x" * 900,)] * 100)
    connection.close()
    content = bytearray(path.read_bytes())
    content[5 * 4096 : 7 * 4096] = b"\xff" * 8192
    (tmp_path / "0123abcd.db").write_bytes(content)
    frozen = await source(path).open(tmp_path / "0123abcd.db", AT, DumpOptions())

    with pytest.raises(PermanentRunnerError) as refused:
        await frozen.rows(Table("orders"), "sql", None)
    await frozen.close()

    assert refused.value.message == "The database shop.db is damaged (table 'orders')."
