"""Copies: one moment of a database in use, whole or not at all, and clear words where there can be none."""

import asyncio
import os
import sqlite3
import stat
import threading
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import apsw
import pytest

from paddock.dumps.composing import Composer, Written
from paddock.dumps.database_settings import SqliteDatabase
from paddock.dumps.model import DumpOptions
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


def writes(path: Path, number: int) -> None:
    """At once or not at all: nobody is waited for."""
    writer = apsw.Connection(str(path))
    writer.execute("INSERT INTO one(id) VALUES (?)", (-number,))
    writer.close()


def steps(copying: Copying, between: Callable[[int], object]) -> int:
    count = 1
    while not copying.step():
        between(count)
        count += 1
        assert count < 1_000, "It stands still."
    copying.finish()
    return count


@pytest.mark.parametrize("mode", ["delete", "truncate", "persist"])
def test_without_a_log_writers_get_in_between_the_steps_and_their_rows_are_in_the_copy(
    tmp_path: Path, mode: str
) -> None:
    path = database(tmp_path / "old.db", rows=5_000, mode=mode)
    copying = Copying.begin(path, tmp_path / "copy.db", may_block=0)
    written = list[datetime]()

    def write(step: int) -> None:
        if step in (2, 4):
            writes(path, step)
            written.append(datetime.now(UTC))

    assert steps(copying, write) > 8
    copying.close()

    assert copying.restarts == 2
    assert copying.point_in_time >= written[-1]
    copy = apsw.Connection(str(tmp_path / "copy.db"))
    assert copy.pragma("integrity_check") == "ok"
    assert copy.execute("SELECT id FROM one WHERE id < 0 ORDER BY id").fetchall() == [(-4,), (-2,)]
    copy.close()


def test_a_database_that_is_written_to_all_the_time_is_copied_under_one_lock(tmp_path: Path) -> None:
    path = database(tmp_path / "old.db", rows=5_000, mode="delete")
    copying = Copying.begin(path, tmp_path / "copy.db", may_block=10, clock=lambda: 0)
    refused = list[int]()

    def write(step: int) -> None:
        try:
            writes(path, step)
        except apsw.BusyError:
            refused.append(step)

    steps(copying, write)
    copying.close()

    assert refused
    copy = apsw.Connection(str(tmp_path / "copy.db"))
    assert copy.pragma("integrity_check") == "ok"
    # All that came before somebody had to wait.
    assert copy.execute("SELECT count(*) FROM one WHERE id < 0").get == refused[0] - 1
    copy.close()


def test_writers_wait_only_for_so_long(tmp_path: Path) -> None:
    path = database(tmp_path / "old.db", rows=5_000, mode="delete")
    clock = iter(range(0, 10_000, 6))
    copying = Copying.begin(path, tmp_path / "copy.db", may_block=10, clock=lambda: next(clock))

    def write(step: int) -> None:
        with suppress(apsw.BusyError):
            writes(path, step)

    with pytest.raises(PermanentRunnerError, match="kept waiting for 10 seconds") as refused:
        steps(copying, write)
    copying.close()

    assert refused.value.code == "needs_wal"
    assert "journal_mode=WAL" in (refused.value.hint or "")
    assert "allow_blocking_copy = true" in (refused.value.hint or "")
    assert not (tmp_path / "copy.db").exists()
    writes(path, 1_000_000)


async def test_a_database_in_its_default_journal_mode_is_dumped(tmp_path: Path) -> None:
    path = database(tmp_path / "old.db", mode="delete")
    await source(path).copy(tmp_path / "copy.db", nothing)
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


async def test_a_table_that_cannot_be_counted_is_copied_all_the_same(tmp_path: Path) -> None:
    path = database(tmp_path / "shop.db", rows=500, mode="delete")
    whole = dict.fromkeys(TABLES, 500)
    without = {table: 500 for table in TABLES if table != "one"}
    for damage, counted, rows in ((b"", whole, 1_500), (b"\xff" * 4096, without, None)):
        with path.open("r+b") as file:
            file.seek(4096)  # the root of the first table
            file.write(damage)
        frozen = await source(path).open(path, datetime.now(UTC), DumpOptions())
        composer = Composer(frozen, "sqlite", DumpOptions())
        chunk = await composer.render(composer.first, Written())
        await frozen.close()
        assert (chunk.next, chunk.data) == (None, path.read_bytes())
        assert (composer.rows(chunk.at), composer.progress(chunk.at).get("rows")) == (counted, rows)


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
