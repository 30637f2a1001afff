"""Where a database lies is nothing that those who may dump it are told."""

from pathlib import Path
from uuid import uuid4

import duckdb

from paddock.dumps.copies import Copies
from paddock.dumps.duckdb import connecting
from paddock.jobs.model import JobId


def test_a_disk_without_room_is_not_named(tmp_path: Path) -> None:
    told = Copies(tmp_path / "secret place", JobId(uuid4())).lacking(1 << 60, None)

    assert told is not None
    assert "bytes free" in told
    assert str(tmp_path) not in told


def test_what_duckdb_says_of_a_path_is_its_last_part(tmp_path: Path) -> None:
    file = tmp_path / "a place" / "lake.duckdb"
    said = f'IO Error: Cannot open "{file}", nor "{file.parent}/.lake.duckdb.dumps/1/2.db", nor /srv/other/x.wal'

    told = connecting.explained(duckdb.IOException(said), file).message

    assert told == (
        'DuckDB cannot open lake.duckdb: IO Error: Cannot open "lake.duckdb", nor ".lake.duckdb.dumps/1/2.db", nor x.wal'
    )
