"""Where a database lies is nothing that those who may dump it are told."""

from pathlib import Path
from uuid import uuid4

import duckdb

from paddock.dumps.copies import Copies
from paddock.dumps.duckdb import connecting
from paddock.jobs.errors import PermanentRunnerError
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


def test_an_error_in_a_copy_names_the_table_and_the_database(tmp_path: Path) -> None:
    file = tmp_path / "lake.duckdb"
    copy = tmp_path / ".lake.duckdb.dumps" / "1" / "2.db"

    told = connecting.unreadable(duckdb.Error(f'Cannot read "{copy}"'), file, copy, "orders")

    assert told.message == "DuckDB cannot read table 'orders' of lake.duckdb: Cannot read \"lake.duckdb\""
    assert isinstance(told, PermanentRunnerError)
