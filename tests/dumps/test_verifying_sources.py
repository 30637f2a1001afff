"""What the sources write of their nastiest databases is found whole: nothing in it confuses the reader."""

from pathlib import Path

import pytest

from paddock.dumps.compressing import compressed
from paddock.dumps.model import Format
from paddock.dumps.verifying.checking import verify
from paddock.dumps.verifying.findings import Findings
from tests.dumps.duckdb.loading import dumped as duckdb_dumped
from tests.dumps.duckdb.loading import made
from tests.dumps.duckdb.test_loading_back import EXTREMES, OBJECTS
from tests.dumps.sqlite.loading import dumped as sqlite_dumped
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


@pytest.mark.parametrize("encoding", ["UTF-16le", "UTF-16be"])
async def test_sqlite_in_utf16(tmp_path: Path, encoding: str) -> None:
    found = look(tmp_path / "wide", await sqlite_dumped(torture(tmp_path / "wide.db", encoding)))

    assert found.ok, [table for table in found.tables if not table.ok]


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
