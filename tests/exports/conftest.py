from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.exports.crash_scene import Scene, scene_in, some_table
from tests.exports.place import Place
from tests.exports.place import place as whole_place


@pytest.fixture(scope="module")
def place() -> Iterator[Place]:
    with whole_place() as found:
        yield found


@pytest.fixture(scope="session")
def expected() -> pa.Table:
    return some_table()


@pytest.fixture(scope="session")
def files(tmp_path_factory: pytest.TempPathFactory, expected: pa.Table) -> Path:
    folder = tmp_path_factory.mktemp("files")
    pq.write_table(expected, folder / "rows.parquet")
    return folder


@pytest.fixture
async def scene(tmp_path: Path, files: Path, dsn: str) -> AsyncIterator[Scene]:
    async with scene_in(tmp_path, files, dsn) as opened:
        yield opened
