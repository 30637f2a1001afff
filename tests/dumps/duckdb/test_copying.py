"""A copy holds what was committed, whoever wrote it and however they ended; and nobody writes while it is made."""

import asyncio
import signal
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import duckdb
import pytest

from paddock.dumps.duckdb import copying
from paddock.jobs.errors import PermanentRunnerError, TransientResourceError
from tests.dumps.duckdb.loading import made, nothing, source

WRITER = """
import sys, duckdb
connection = duckdb.connect(sys.argv[1])
for statement in sys.argv[2:]:
    connection.execute(statement)
print("ready", flush=True)
sys.stdin.read()
"""


@contextmanager
def writer(path: Path, *statements: str) -> Iterator[subprocess.Popen[bytes]]:
    """Another process, which has the database open."""
    process = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path), *statements], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == b"ready\n"
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdin.close()
        process.stdout.close()


def rows(path: Path, table: str = "t") -> list[tuple[object, ...]]:
    with duckdb.connect(str(path), read_only=True) as connection:
        return connection.execute(f"SELECT * FROM {table} ORDER BY ALL").fetchall()


async def test_a_copy_is_one_file_that_only_its_owner_reads(tmp_path: Path) -> None:
    path, copy = made(tmp_path / "a.db", ["CREATE TABLE t AS SELECT 42 AS a"]), tmp_path / "copy.db"
    before, steps = datetime.now(UTC), list[tuple[int, int]]()

    async def progress(done: int, total: int) -> None:
        steps.append((done, total))

    at = await source(path).copy(copy, progress)

    assert rows(copy) == [(42,)]
    assert before <= at <= datetime.now(UTC)
    assert copy.stat().st_mode & 0o777 == 0o600
    assert steps[0][0] == 0
    assert steps[-1] == (path.stat().st_size, path.stat().st_size)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["a.db", "copy.db"]


async def test_what_a_killed_writer_committed_is_in_the_copy_and_the_source_is_untouched(tmp_path: Path) -> None:
    path, copy = tmp_path / "a.db", tmp_path / "copy.db"
    with writer(
        path,
        "SET wal_autocheckpoint = '1GB'",
        "CREATE TABLE t AS SELECT i, repeat('x', 100) AS s FROM range(50000) r(i)",
        "CHECKPOINT",
        "INSERT INTO t VALUES (-1, 'only in the log')",
        "DELETE FROM t WHERE i BETWEEN 100 AND 49999",
        "BEGIN",
        "INSERT INTO t VALUES (-2, 'never committed')",
    ) as process:
        process.send_signal(signal.SIGKILL)
        process.wait()
    log = Path(f"{path}.wal")
    was = path.read_bytes(), log.read_bytes()

    await source(path).copy(copy, nothing)

    found = rows(copy)
    assert found[:2] == [(-1, "only in the log"), (0, "x" * 100)]
    assert len(found) == 101
    assert (path.read_bytes(), log.read_bytes()) == was
    assert not Path(f"{copy}.wal").exists()
    with duckdb.connect(str(path)) as connection:
        assert connection.execute("SELECT count(*) FROM t").fetchall() == [(101,)]


async def test_a_database_that_is_open_elsewhere_is_locked_and_the_holder_named(tmp_path: Path) -> None:
    path = made(tmp_path / "a.db", ["CREATE TABLE t(a INTEGER)"])
    with writer(path, "INSERT INTO t VALUES (1)") as process:
        with pytest.raises(TransientResourceError, match=f"is open for writing in process {process.pid},") as refused:
            await source(path).copy(tmp_path / "copy.db", nothing)
        assert refused.value.code == "source_locked"
        assert str(tmp_path) not in refused.value.message
        assert not (tmp_path / "copy.db").exists()

    await source(path).copy(tmp_path / "copy.db", nothing)

    assert rows(tmp_path / "copy.db") == [(1,)]


async def test_nobody_can_write_while_it_is_copied_but_others_may_copy_too(tmp_path: Path) -> None:
    path = made(tmp_path / "a.db", ["CREATE TABLE t(a INTEGER)"])
    tried = list[str]()

    async def progress(_done: int, _total: int) -> None:
        if not tried:
            tried.append("")
            # Ends, and with it closes the file in this process: the lock must outlive that.
            await source(path).copy(tmp_path / "second.db", nothing)
            script = f"import duckdb\ntry: duckdb.connect({str(path)!r})\nexcept duckdb.IOException as e: print(e)"
            tried.append(
                subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
            )

    await source(path).copy(tmp_path / "copy.db", progress)

    assert "Could not set lock on file" in tried[1]
    with duckdb.connect(str(path)) as connection:
        connection.execute("INSERT INTO t VALUES (1)")


async def test_a_cancelled_copy_stops_and_lets_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = made(tmp_path / "a.db", ["CREATE TABLE t AS SELECT i FROM range(200000) r(i)"])
    monkeypatch.setattr(copying, "PIECE", 4096)
    monkeypatch.setattr(copying, "_cloned", lambda _opened, _made: False)
    begun, pieces = asyncio.Event(), list[int]()

    async def progress(done: int, _total: int) -> None:
        pieces.append(done)
        if done:
            begun.set()
            await asyncio.sleep(0)

    task = asyncio.create_task(source(path).copy(tmp_path / "copy.db", progress))
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert pieces[-1] < path.stat().st_size
    script = f"import duckdb; duckdb.connect({str(path)!r}).execute('INSERT INTO t VALUES (1)')"
    subprocess.run([sys.executable, "-c", script], check=True)


async def test_what_an_earlier_try_left_is_not_taken_for_the_copy(tmp_path: Path) -> None:
    path, copy = made(tmp_path / "a.db", ["CREATE TABLE t AS SELECT 1 AS a"]), tmp_path / "copy.db"
    with writer(tmp_path / "other.db", "CREATE TABLE t AS SELECT 666 AS a") as process:
        process.kill()
        process.wait()
    copy.write_bytes((tmp_path / "other.db").read_bytes())
    Path(f"{copy}.wal").write_bytes((tmp_path / "other.db.wal").read_bytes())

    await source(path).copy(copy, nothing)

    assert rows(copy) == [(1,)]


def _of_version(path: Path, version: int) -> None:
    """With DuckDB's checksum made to fit: it is checked first."""
    made(path, ["CREATE TABLE t(a INTEGER)"])
    data = bytearray(path.read_bytes())
    data[12:20] = struct.pack("<Q", version)
    data[0:8] = struct.pack("<Q", _checksum(bytes(data[8:4096])))
    path.write_bytes(data)


def _checksum(data: bytes) -> int:
    mask = (1 << 64) - 1
    result = 5381
    for (word,) in struct.iter_unpack("<Q", data[: len(data) // 8 * 8]):
        result ^= (word * 0xBF58476D1CE4E5B9) & mask
    return result


@pytest.mark.parametrize(
    ("name", "code", "says"),
    [
        ("missing.db", "database_missing", "There is no database missing.db"),
        ("text.db", "not_a_database", "is not a DuckDB database"),
        ("empty.db", "not_a_database", "is not a DuckDB database"),
        ("short.db", "database_unreadable", "DuckDB cannot open"),
        ("folder", "not_a_database", "is not a DuckDB database"),
        ("newer.db", "database_version", "we can only read versions"),
        ("secret.db", "database_encrypted", "is encrypted"),
        ("cut.db", "database_unreadable", "DuckDB cannot open"),
    ],
)
async def test_what_cannot_be_dumped_is_said_at_once(tmp_path: Path, name: str, code: str, says: str) -> None:
    path = tmp_path / name
    match name:
        case "text.db":
            path.write_bytes(b"SQLite format 3\0" + bytes(20_000))
        case "empty.db":
            path.touch()
        case "short.db":
            path.write_bytes(b"12345678DUCK")
        case "folder":
            path.mkdir()
        case "newer.db":
            _of_version(path, 999)
        case "secret.db":
            with duckdb.connect() as connection:
                connection.execute("SET force_mbedtls_unsafe = 'true'")
                connection.execute(f"ATTACH '{path}' AS secret (ENCRYPTION_KEY 'word')")
                connection.execute("CREATE TABLE secret.t(a INTEGER)")
        case "cut.db":
            made(path, ["CREATE TABLE t AS SELECT i FROM range(100000) r(i)"])
            path.write_bytes(path.read_bytes()[:12_288])

    with pytest.raises(PermanentRunnerError, match=says) as refused:
        await source(path).copy(tmp_path / "copy.db", nothing)

    assert refused.value.code == code
    assert name in refused.value.message
    assert str(tmp_path) not in f"{refused.value.message} {refused.value.hint}", "where it lies is for the log"


FULL = """
import asyncio, resource, sys
from pathlib import Path
from paddock.dumps.duckdb import copying
from paddock.jobs.errors import TransientResourceError

async def unheard(done, total): ...

path, most = Path(sys.argv[1]), int(sys.argv[2])
resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
try:
    asyncio.run(copying.copy(path, path.with_name("copy.db"), unheard))
except (OSError, TransientResourceError) as problem:
    print(getattr(problem, "code", None) or problem.strerror)
"""


def test_no_room_for_what_the_log_holds_is_no_word_about_the_database(tmp_path: Path) -> None:
    """The file fits and its log does; the log written into the file does not."""
    path = made(tmp_path / "a.db", ["CREATE TABLE t AS SELECT md5(n::VARCHAR) AS a FROM range(200_000) r(n)"])
    with duckdb.connect(str(path)) as connection:
        connection.execute("PRAGMA disable_checkpoint_on_shutdown")
        for part in range(30):
            connection.execute(f"INSERT INTO t SELECT md5(({part}000 + n)::VARCHAR) FROM range(1000) r(n)")
    assert Path(f"{path}.wal").stat().st_size > 500_000
    told = [
        subprocess.check_output([sys.executable, "-c", FULL, str(path), str(most)], text=True)
        for most in (path.stat().st_size, 1_000_000)
    ]
    # Where the file itself does not fit, the system says so, and whoever asked for the copy knows the number.
    assert told == ["disk_full\n", "File too large\n"]
