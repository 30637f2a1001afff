"""A dump of every kind of object is found whole by a scratch server that is allowed everything; others say what to do."""

import asyncio
from pathlib import Path

import pytest

from paddock.dumps.verifying.checking import verify
from paddock.dumps.verifying.findings import Findings
from tests.dumps.frozen import ended
from tests.dumps.postgres.conftest import Place
from tests.dumps.postgres.dumping import dumped
from tests.dumps.postgres.test_everything import make

pytestmark = pytest.mark.slow


async def test_everything_is_whole(source: Place, tmp_path: Path) -> None:
    found = await look(source, tmp_path / "dump.sql", trusted=True)

    assert found.tables
    assert found.ok, ([table for table in found.tables if not table.ok], found.notes)


async def test_what_needs_a_superuser_is_said_to_need_one(source: Place, tmp_path: Path) -> None:
    found = await look(source, tmp_path / "dump.sql", trusted=False)

    assert not found.ok
    assert "--trusted" in found.notes[-1]


async def look(source: Place, path: Path, *, trusted: bool) -> Findings:
    await make(source)
    whole = await dumped(source.settings())
    path.write_bytes(ended(whole.data, whole.counts))
    return await asyncio.to_thread(verify, path, lambda done, total: None, trusted=trusted)
