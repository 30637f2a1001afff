"""Copies: one moment of a database in use, whole or not at all, and clear words where there can be none."""

import asyncio
import os
import sqlite3
import stat
import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import apsw
import pytest

from paddock.dumps.model import DumpOptions
from paddock.dumps.settings import SqliteDatabase
from paddock.dumps.sqlite.copying import Copying
from paddock.dumps.sqlite.source import SqliteSource
from paddock.jobs.errors import PermanentRunnerError, TransientResourceError
from tests.dumps.sqlite.loading import dumped, loaded

TABLES = ("one", "two", "three")


async def nothing(_done: int, _total: int) -> None:
    pass


def source(path: Path, *, may_block: bool = False) -> SqliteSource:
    return SqliteSource(SqliteDatabase(type="sqlite", path=path, allow_blocking_copy=may_block))


def database(path: Path, rows: int = 10, mode: str = "wal") -> Path:
    connection = apsw.Connection(str(path))
    connection.pragma("journal_mode", mode)
    for table in TABLES:
        connection.execute(f"CREATE TABLE {table} (id INTEGER PRIMARY KEY, counter INTEGER, filler TEXT)")
        connection.execute(
            f"WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i < ?)"
            f" INSERT INTO {table} SELECT i, 0, hex(randomblob(200)) FROM n",
            (rows,),
        )
    connection.close()
    return path


async def test_a_dump_under_writers_is_one_state_and_the_stated_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every commit changes every table and bumps one counter; what was committed when is kept by the writer."""
    path = database(tmp_path / "busy.db", rows=20_000)
    committed: list[tuple[datetime, datetime, int]] = []
    stop, more = threading.Event(), threading.Condition()

    def write() -> None:
        # By the same library: another one in this process would not see its locks.
        connection = apsw.Connection(str(path))
        connection.set_busy_timeout(30_000)
        counter = 0
        while not stop.is_set():
            counter += 1
            before = datetime.now(UTC)
            connection.execute("BEGIN IMMEDIATE")
            for table in TABLES:
                connection.execute(f"UPDATE {table} SET counter = ? WHERE id % 97 = ?", (counter, counter % 97))
                connection.execute(f"INSERT INTO {table}(counter) VALUES (?)", (counter,))
            connection.execute("COMMIT")
            with more:
                committed.append((before, datetime.now(UTC), counter))
                more.notify_all()
        connection.close()

    def wait_for(count: int) -> None:
        with more:
            assert more.wait_for(lambda: len(committed) >= count, timeout=60)

    begin, held = Copying.begin, list[datetime]()

    def noted(*args: Any, **kwargs: Any) -> Copying:
        copying = begin(*args, **kwargs)
        held.append(datetime.now(UTC))
        return copying

    monkeypatch.setattr(Copying, "begin", noted)
    writer = threading.Thread(target=write)
    writer.start()
    try:
        await asyncio.to_thread(wait_for, 5)
        progress, started = list[int](), datetime.now(UTC)

        async def told(done: int, total: int) -> None:
            progress.append(done)
            assert done <= total
            await asyncio.to_thread(wait_for, len(committed) + 2)

        at = await source(path).copy(tmp_path / "copy.db", told)
    finally:
        stop.set()
        writer.join()

    assert len(progress) > 2
    assert progress == sorted(progress)
    copy = sqlite3.connect(loaded(await dumped(tmp_path / "copy.db"), tmp_path / "loaded.db"))
    counters = [copy.execute(f"SELECT max(counter), count(*) FROM {table}").fetchone() for table in TABLES]
    copy.close()
    counter, rows = counters[0]
    assert counters == [(counter, rows)] * 3
    assert rows == 20_000 + counter
    # All that had been committed at the stated time, and nothing that was begun when the state was held.
    assert started <= at <= held[0]
    assert counter >= max(number for _, after, number in committed if after <= at)
    assert counter < min(number for before, _, number in committed if before > held[0])
    assert committed[-1][2] > counter


async def test_a_copy_is_private_and_the_whole_database(tmp_path: Path) -> None:
    path = database(tmp_path / "app.db")
    await source(path).copy(tmp_path / "copy.db", nothing)

    assert stat.S_IMODE((tmp_path / "copy.db").stat().st_mode) == 0o600
    assert sorted(each.name for each in tmp_path.iterdir() if each.name.startswith("copy")) == ["copy.db"]
    frozen = await source(path).open(tmp_path / "copy.db", datetime.now(UTC), DumpOptions())
    assert frozen.file == tmp_path / "copy.db"
    assert [table.rows for table in frozen.tables] == [10, 10, 10]
    await frozen.close()
    assert sorted(each.name for each in tmp_path.iterdir() if each.name.startswith("copy")) == ["copy.db"]


async def test_what_is_only_in_the_log_is_in_the_copy(tmp_path: Path) -> None:
    path = database(tmp_path / "app.db")
    writer = apsw.Connection(str(path))
    writer.pragma("wal_autocheckpoint", 0)
    writer.execute("INSERT INTO one(id) VALUES (1000)")

    await source(path).copy(tmp_path / "copy.db", nothing)

    copy = apsw.Connection(str(tmp_path / "copy.db"))
    assert copy.execute("SELECT max(id) FROM one").get == 1000
    copy.close()
    writer.close()


async def test_a_cancelled_copy_leaves_nothing(tmp_path: Path) -> None:
    path = database(tmp_path / "app.db", rows=20_000)
    begun = asyncio.Event()

    async def told(_done: int, _total: int) -> None:
        begun.set()

    task = asyncio.create_task(source(path).copy(tmp_path / "copy.db", told))
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not (tmp_path / "copy.db").exists()
    # Nobody holds the source any more: its log can be emptied.
    writer = apsw.Connection(str(path))
    writer.execute("INSERT INTO one(id) VALUES (-1)")
    assert writer.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE) == (0, 0)
    writer.close()


async def test_a_copy_that_a_crash_left_is_made_anew(tmp_path: Path) -> None:
    path = database(tmp_path / "app.db")
    (tmp_path / "copy.db").write_bytes(b"half a copy" * 1000)
    (tmp_path / "copy.db-journal").write_bytes(b"of it")
    await source(path).copy(tmp_path / "copy.db", nothing)
    copy = apsw.Connection(str(tmp_path / "copy.db"))
    assert copy.pragma("integrity_check") == "ok"
    copy.close()


async def test_without_a_log_the_copy_must_be_allowed_to_block(tmp_path: Path) -> None:
    path = database(tmp_path / "old.db", mode="delete")
    with pytest.raises(PermanentRunnerError, match="write-ahead") as refused:
        await source(path).copy(tmp_path / "copy.db", nothing)
    assert refused.value.code == "needs_wal"
    assert not (tmp_path / "copy.db").exists()

    await source(path, may_block=True).copy(tmp_path / "copy.db", nothing)
    copy = apsw.Connection(str(tmp_path / "copy.db"))
    assert copy.execute("SELECT count(*) FROM one").get == 10
    copy.close()


async def test_an_empty_file_is_an_empty_database(tmp_path: Path) -> None:
    (tmp_path / "empty.db").touch()
    await source(tmp_path / "empty.db", may_block=True).copy(tmp_path / "copy.db", nothing)
    assert b"COMMIT" in await dumped(tmp_path / "copy.db")


async def test_what_cannot_be_read_says_why(tmp_path: Path) -> None:
    (tmp_path / "text.db").write_text("This is not a database, or it is encrypted. " * 100)
    damaged = database(tmp_path / "damaged.db", rows=5_000, mode="delete")
    with damaged.open("r+b") as file:
        file.seek(4096)
        file.write(b"\xff" * 8192)
    for name, code in (("missing.db", "source_missing"), ("text.db", "not_a_database"), (".", "source_unreadable")):
        with pytest.raises(PermanentRunnerError) as refused:
            await source(tmp_path / name, may_block=True).copy(tmp_path / "copy.db", nothing)
        assert (name, refused.value.code) == (name, code)
        assert not (tmp_path / "copy.db").exists()
    await source(damaged, may_block=True).copy(tmp_path / "copy.db", nothing)
    with pytest.raises(PermanentRunnerError) as refused:
        await dumped(tmp_path / "copy.db")
    assert refused.value.code == "damaged_database"


async def test_a_database_that_another_keeps_for_itself_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("paddock.dumps.sqlite.copying.BUSY_MILLISECONDS", 10)
    path = database(tmp_path / "held.db")
    holder = apsw.Connection(str(path))
    holder.pragma("locking_mode", "exclusive")
    holder.execute("INSERT INTO one(id) VALUES (-1)")
    with pytest.raises(TransientResourceError) as refused:
        await source(path).copy(tmp_path / "copy.db", nothing)
    assert refused.value.code == "source_locked"
    holder.close()


async def test_a_file_that_may_not_be_read_says_so(tmp_path: Path) -> None:
    path = database(tmp_path / "secret.db", mode="delete")
    path.chmod(0)
    if os.access(path, os.R_OK):  # root reads everything: then there is nothing to say
        path.chmod(0o600)
        return
    with pytest.raises(PermanentRunnerError) as refused:
        await source(path, may_block=True).copy(tmp_path / "copy.db", nothing)
    assert refused.value.code == "source_unreadable"
