"""What the sources write of their nastiest databases is found whole: nothing in it confuses the reader."""

from pathlib import Path

import apsw
import pytest

from paddock.dumps.compressing import compressed
from paddock.dumps.model import Format
from paddock.dumps.verifying.checking import verify
from paddock.dumps.verifying.findings import Findings
from tests.dumps.duckdb.loading import dumped as duckdb_dumped
from tests.dumps.duckdb.loading import made
from tests.dumps.duckdb.test_loading_back import EXTREMES, OBJECTS
from tests.dumps.sqlite.loading import dumped as sqlite_dumped
from tests.dumps.sqlite.loading import made as sqlite_made
from tests.dumps.sqlite.test_limits import UNSCANNABLE
from tests.dumps.sqlite.test_torture import torture


def look(path: Path, content: bytes) -> Findings:
    path.write_bytes(content)
    return verify(path, lambda done, total: None)


@pytest.fixture(scope="module")
def nasty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return torture(tmp_path_factory.mktemp("torture") / "nasty.db")


@pytest.mark.parametrize("format", ["sql", "json", "csv", "sqlite"])
async def test_sqlite(nasty: Path, tmp_path: Path, format: Format) -> None:
    content = await sqlite_dumped(nasty, format)
    found = look(tmp_path / "nasty", content if format == "csv" else compressed(content, "gzip"))

    assert found.ok, [table for table in found.tables if not table.ok]
    assert len(found.tables) > 15


@pytest.mark.parametrize("format", ["sql", "sqlite"])
@pytest.mark.parametrize("encoding", ["UTF-16le", "UTF-16be"])
async def test_sqlite_in_utf16(tmp_path: Path, encoding: str, format: Format) -> None:
    path = torture(tmp_path / "wide.db", encoding)
    connection = apsw.Connection(str(path))
    connection.execute(
        "CREATE TABLE people (name TEXT COLLATE NOCASE PRIMARY KEY, mail TEXT COLLATE RTRIM UNIQUE) WITHOUT ROWID"
    )
    names = [
        (name, f"{name}{' ' * (number % 3)}") for number, name in enumerate(["anna", "Bob", "carl", "Dora", "\ue000x"])
    ]
    connection.executemany("INSERT INTO people VALUES (?, ?)", names)
    half = "\ud800".encode("utf-16-le" if encoding == "UTF-16le" else "utf-16-be", "surrogatepass")
    connection.execute("INSERT INTO people VALUES (CAST(?1 AS TEXT), CAST(?1 AS TEXT))", (half,))
    connection.close()

    found = look(tmp_path / "wide", await sqlite_dumped(path, format))

    assert found.ok, [table for table in found.tables if not table.ok]
    assert ("people", 6) in [(table.table, table.rows) for table in found.tables]


async def test_sqlite_with_a_table_that_nobody_can_read(tmp_path: Path) -> None:
    path = sqlite_made(tmp_path / "shop.db", UNSCANNABLE)
    for format in ("sql", "sqlite"):
        found = look(tmp_path / format, await sqlite_dumped(path, format))
        assert found.ok, [table for table in found.tables if not table.ok]
        assert [table.table for table in found.tables] == ["orders", "people"]


async def test_sqlite_in_an_order_that_only_its_application_knows(tmp_path: Path) -> None:
    connection = apsw.Connection(str(tmp_path / "shop.db"))
    connection.create_collation("backwards", lambda one, two: (one < two) - (one > two))
    connection.execute(
        "CREATE TABLE words (word TEXT COLLATE backwards PRIMARY KEY) WITHOUT ROWID; CREATE TABLE other (id INTEGER PRIMARY KEY);"
        "INSERT INTO words VALUES ('a'), ('b'), ('c'); INSERT INTO other VALUES (1)"
    )
    connection.close()

    found = look(tmp_path / "dump", await sqlite_dumped(tmp_path / "shop.db", "sqlite"))

    assert [(table.table, table.rows) for table in found.tables] == [("other", 1), ("words", 3)]


async def test_sqlite_without_its_rows(nasty: Path, tmp_path: Path) -> None:
    found = look(tmp_path / "nasty", await sqlite_dumped(nasty, schema_only=True))

    assert found.ok, [table for table in found.tables if not table.ok]
    assert sum(table.rows or 0 for table in found.tables) == 0


@pytest.mark.parametrize("format", ["sql", "json", "csv"])
async def test_duckdb(tmp_path: Path, format: Format) -> None:
    types = "CREATE TABLE all_types AS SELECT * FROM test_all_types()"
    objects = made(tmp_path / "shop.db", [*OBJECTS, types, *EXTREMES])
    content = await duckdb_dumped(objects, format)

    found = look(tmp_path / "dump", content if format == "csv" else compressed(content, "zstd"))

    assert found.ok, [table for table in found.tables if not table.ok]
    assert found.compared == (format != "json")
