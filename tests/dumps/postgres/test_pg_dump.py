"""pg_dump: the right one, told what it needs and nothing else."""

import asyncio
import json
import os
import re
import signal
from pathlib import Path

import psutil
import pytest

from paddock.dumps import syncing
from paddock.dumps.model import DumpOptions, Format
from paddock.dumps.postgres import pg_dump
from paddock.dumps.postgres.errors import pg_dump_said
from paddock.dumps.postgres.programs import find
from paddock.dumps.postgres.source import PostgresSource
from paddock.dumps.source import Frozen, Table
from paddock.jobs.errors import PermanentRunnerError, TransientResourceError
from tests.dumps.postgres.conftest import BIN, PASSWORD, Connection, Place
from tests.dumps.postgres.dumping import DRAFT, dumped, read
from tests.playing import until
from tests.processes.running import alive


def program(folder: Path, script: str) -> Path:
    path = folder / "pg_dump"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


async def test_one_that_is_too_old_is_named(source: Place, tmp_path: Path) -> None:
    old = program(tmp_path, "echo 'pg_dump (PostgreSQL) 9.6.24'")

    with pytest.raises(PermanentRunnerError) as missing:
        await dumped(source.settings(pg_dump=old))

    assert missing.value.code == "pg_dump_missing"
    assert f"{old} (version 9.6.24)" in missing.value.message
    assert "no pg_dump of version 1" in missing.value.message


async def test_one_that_is_not_there_is_named(source: Place, tmp_path: Path) -> None:
    with pytest.raises(PermanentRunnerError) as missing:
        await dumped(source.settings(pg_dump=tmp_path / "nothing"))

    assert missing.value.code == "pg_dump_missing"
    assert f"{tmp_path / 'nothing'} (does not run)" in missing.value.message


async def test_one_on_the_path_is_taken_if_it_is_new_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found_first = program(tmp_path, "echo 'pg_dump (PostgreSQL) 16.9 (Debian 16.9-1)'")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")

    found = await find(None, 16)
    assert (found.path, found.version, found.restrict_key) == (found_first, "16.9", False)
    assert (await find(None, 18)).path == BIN / "pg_dump"
    with pytest.raises(PermanentRunnerError, match="no pg_dump of version 99 or newer"):
        await find(None, 99)


async def test_the_same_draft_gives_the_same_bytes(admin: Connection, source: Place) -> None:
    await admin.execute("CREATE TABLE t AS SELECT 1 AS a")

    once, again = await dumped(source.settings()), await dumped(source.settings())

    assert once.data == again.data
    assert b"\\restrict " in once.data
    assert (await dumped(source.settings(), draft="another")).data != once.data


async def test_the_password_is_in_no_argument_and_no_error(source: Place, tmp_path: Path) -> None:
    said = tmp_path / "said"
    talker = program(
        tmp_path,
        f"""case "$*" in *--version*) echo 'pg_dump (PostgreSQL) 99.1'; exit;; esac
echo "$@" > {said}
env > {said}.env
echo "no: $PGPASSWORD is wrong" >&2
exit 1""",
    )

    with pytest.raises(TransientResourceError) as lost:
        await dumped(source.settings(pg_dump=talker))

    assert PASSWORD not in said.read_text()
    assert f"PGPASSWORD={PASSWORD}" in Path(f"{said}.env").read_text()
    assert lost.value.message == "The snapshot is lost: pg_dump says: no: *** is wrong"
    assert lost.value.code == "snapshot_connection_lost"


async def test_what_changes_bytes_is_not_inherited(source: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = await dumped(source.settings())
    monkeypatch.setenv("PGCLIENTENCODING", "LATIN1")
    monkeypatch.setenv("PGOPTIONS", "-c quote_all_identifiers=on")
    monkeypatch.setenv("PGHOST", "nowhere.invalid")

    assert (await dumped(source.settings())).data == plain.data


def test_the_settings_stand_above_the_url(source: Place) -> None:
    given = source.settings(url="postgresql://me@h:1,h2:2/db?sslmode=disable&application_name=x", ca_file="/ca.pem")

    address = pg_dump.address(given)

    assert address.startswith(
        "postgresql://me@h:1,h2:2/db?sslmode=verify-full&application_name=x&sslrootcert=%2Fca.pem&"
    )


@pytest.mark.parametrize(
    ("status", "words", "code"),
    [
        (-9, "", "snapshot_connection_lost"),
        (1, "pg_dump: error: query failed: server closed the connection unexpectedly", "snapshot_connection_lost"),
        (1, "pg_dump: error: something new", "snapshot_connection_lost"),
        (1, "pg_dump: error: query failed: ERROR:  permission denied for table a", "access_denied"),
        (1, "ERROR:  query would be affected by row-level security policy for table", "row_security"),
        (1, "pg_dump: error: no matching tables were found", "unknown_table"),
        (1, "pg_dump: error: aborting because of server version mismatch", "pg_dump_missing"),
        (1, 'pg_dump: error: invalid value "zstd" for option -Z/--compress', "zstd_missing"),
        (1, "canceling statement due to lock timeout", "lock_timeout"),
    ],
)
def test_what_it_says_decides_whether_to_try_again(status: int, words: str, code: str) -> None:
    assert pg_dump_said(status, words).code == code


async def test_zstd_that_it_was_built_without_is_refused_at_once(source: Place) -> None:
    """As is the one that comes with Paddock."""
    with pytest.raises(PermanentRunnerError, match="does not support compression with ZSTD") as refused:
        await dumped(source.settings(), "custom", compress="zstd")

    assert refused.value.code == "zstd_missing"
    assert "gzip" in (refused.value.hint or "")


async def rest(frozen: Frozen, table: Table) -> None:
    for place in range(1, 1000):
        await frozen.rows(table, "sql", place)


async def opened(place: Place, admin: Connection) -> Frozen:
    await admin.execute("CREATE TABLE big AS SELECT i, repeat('x', 1000) AS a FROM generate_series(1, 40000) i")
    return await PostgresSource(place.settings()).open("sql", DumpOptions(), DRAFT)


async def test_a_pg_dump_that_is_killed(admin: Connection, source: Place) -> None:
    frozen = await opened(source, admin)
    table = frozen.sections()[0].table
    assert table is not None
    await frozen.rows(table, "sql", None)
    os.kill(frozen._running.pid, 9)  # type: ignore[attr-defined]

    with pytest.raises(TransientResourceError) as lost:
        await rest(frozen, table)

    assert lost.value.code == "snapshot_connection_lost"
    assert "signal 9" in lost.value.message
    await frozen.close()


async def test_a_server_that_ends_the_connection_of_pg_dump(admin: Connection, source: Place) -> None:
    frozen = await opened(source, admin)
    table = frozen.sections()[0].table
    assert table is not None
    await frozen.rows(table, "sql", None)
    await admin.execute(
        "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
        " WHERE datname = current_database() AND application_name LIKE 'paddock dump%'"
    )

    with pytest.raises(TransientResourceError) as lost:
        await rest(frozen, table)

    assert lost.value.code == "snapshot_connection_lost"
    # A server that was waiting for its reader in that moment hangs up without a word of its own.
    assert re.search("pg_dump says: .*(terminating connection|server closed the connection)", lost.value.message)
    await frozen.close()


async def test_one_that_nobody_reads_waits_and_leaves_nothing_behind(admin: Connection, source: Place) -> None:
    frozen = await opened(source, admin)
    table = frozen.sections()[0].table
    assert table is not None
    await frozen.rows(table, "sql", None)
    pid = frozen._running.pid  # type: ignore[attr-defined]
    assert Path(f"/proc/{pid}").exists()

    await frozen.close()

    assert not Path(f"/proc/{pid}").exists()
    await nobody_connected(admin)


async def test_a_caller_that_is_cancelled_ends_it(admin: Connection, source: Place, tmp_path: Path) -> None:
    silent = program(tmp_path, "[ $1 = --version ] && echo 'pg_dump (PostgreSQL) 99.1' && exit\nexec sleep 1000")
    frozen = await PostgresSource(source.settings(pg_dump=silent)).open("sql", DumpOptions(), DRAFT)
    table = frozen.sections()[0].table
    assert table is not None
    pid = frozen._running.pid  # type: ignore[attr-defined]
    reading = asyncio.create_task(frozen.rows(table, "sql", None))
    await asyncio.sleep(0)
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading

    await frozen.close()

    assert not Path(f"/proc/{pid}").exists()
    await nobody_connected(admin)


@pytest.mark.parametrize("alone", [False, True], ids=["broken off", "killed alone"])
async def test_a_stream_that_ends_takes_a_silent_one_with_it(
    admin: Connection, source: Place, tmp_path: Path, alone: bool
) -> None:
    silent = program(tmp_path, "[ $1 = --version ] && echo 'pg_dump (PostgreSQL) 99.1' && exit\nexec sleep 1000")
    settings = source.settings(pg_dump=silent).model_dump(mode="json", exclude_defaults=True)
    asked = {"database": "books", "settings": settings, "format": "sql", "options": {}, "single": False}
    child = syncing.start()
    await child.write(json.dumps(asked).encode() + b"\n")
    line, _ = await syncing.first_line(child)
    assert json.loads(line) == {"begins": True}
    [sleeper] = psutil.Process(child.pid).children()
    await until(lambda: sleeper.name() == "sleep")

    if alone:
        child.send_signal(signal.SIGKILL)
        await child.wait()
    await child.end()

    await until(lambda: not alive(sleeper))
    await nobody_connected(admin)


async def test_a_place_that_is_not_the_next(admin: Connection, source: Place) -> None:
    frozen = await opened(source, admin)
    table = frozen.sections()[0].table
    assert table is not None
    await frozen.rows(table, "sql", None)

    with pytest.raises(TransientResourceError, match="in order"):
        await frozen.rows(table, "sql", None)
    await frozen.close()


async def nobody_connected(admin: Connection) -> None:
    """A backend ends a moment after its client."""
    async with asyncio.timeout(60):
        while await admin.fetchval(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
            " AND application_name LIKE 'paddock dump%'"
        ):
            await admin.execute("SELECT pg_sleep(0.01)")


@pytest.mark.parametrize("format", ["sql", "custom"])
async def test_rows_that_an_enum_leads_to_a_partition_are_counted_once(
    source: Place, admin: Connection, format: Format
) -> None:
    await admin.execute(
        """
        CREATE TYPE mood AS ENUM ('sad', 'happy');
        CREATE TABLE moods (m mood, n int) PARTITION BY HASH (m);
        CREATE TABLE moods_0 PARTITION OF moods FOR VALUES WITH (MODULUS 2, REMAINDER 0);
        CREATE TABLE moods_1 PARTITION OF moods FOR VALUES WITH (MODULUS 2, REMAINDER 1);
        CREATE TABLE numbers (n int) PARTITION BY HASH (n);
        CREATE TABLE all_numbers PARTITION OF numbers FOR VALUES WITH (MODULUS 1, REMAINDER 0);
        INSERT INTO moods SELECT (ARRAY['sad', 'happy'])[1 + i % 2]::mood, i FROM generate_series(1, 30) i;
        INSERT INTO numbers SELECT generate_series(1, 7);
        """
    )
    frozen = await PostgresSource(source.settings()).open(format, DumpOptions(), "draft")
    try:
        whole = await read(frozen, format)
    finally:
        await frozen.close()

    assert sorted(table.name for table in frozen.tables) == ["all_numbers", "moods"]
    assert whole.counts == {"moods": 30, "all_numbers": 7}
