"""Dumps of PostgreSQL are loaded into a server of their own, with little power, and counted there."""

import asyncio
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import asyncpg
import psutil
import pytest

from paddock.db.embedded import embedded_postgres
from paddock.dumps.digesting import chain_of
from paddock.dumps.verifying import postgres
from paddock.dumps.verifying.checking import verify
from paddock.dumps.verifying.findings import Findings, NotWhole
from paddock.dumps.verifying.reading import Record
from tests.dumps.frozen import ended

pytestmark = pytest.mark.slow

SHOP = """
CREATE ROLE alice;
CREATE SCHEMA app AUTHORIZATION alice;
CREATE TABLE app.orders(id serial PRIMARY KEY, note text);
INSERT INTO app.orders(note) SELECT E'\\\\.\\n' || i FROM generate_series(1, 5000) i;
ALTER TABLE app.orders OWNER TO alice;
CREATE TABLE p(k int, v json) PARTITION BY LIST (k);
CREATE TABLE p1 PARTITION OF p FOR VALUES IN (1);
INSERT INTO p SELECT 1, '{}' FROM generate_series(1, 10);
CREATE TYPE mood AS ENUM ('sad', 'happy');
CREATE TABLE moods(m mood, n int) PARTITION BY HASH (m);
CREATE TABLE moods_0 PARTITION OF moods FOR VALUES WITH (MODULUS 2, REMAINDER 0);
CREATE TABLE moods_1 PARTITION OF moods FOR VALUES WITH (MODULUS 2, REMAINDER 1);
INSERT INTO moods SELECT (ARRAY['sad', 'happy'])[1 + i % 2]::mood, i FROM generate_series(1, 30) i;
CREATE TABLE "We.ird"(x text);
INSERT INTO "We.ird" VALUES ('a'), (NULL);
ALTER TABLE "We.ird" ENABLE ROW LEVEL SECURITY;
ALTER TABLE "We.ird" FORCE ROW LEVEL SECURITY;
CREATE FUNCTION f() RETURNS text LANGUAGE sql AS $$ SELECT '
COPY public.p1 (k) FROM stdin;
1' $$;
"""
# Rows that an enum's hash leads to a partition are told of the whole table: in another database they are led elsewhere.
ROWS = {"app.orders": 5000, "moods": 30, "p1": 10, '"We.ird"': 2}


@dataclass(frozen=True)
class Dumps:
    """What pg_dump wrote of the database above."""

    sql: bytes
    rows_only: bytes
    custom: bytes


@pytest.fixture(scope="module")
def dumps() -> Iterator[Dumps]:
    with reachable_folder() as folder:
        yield asyncio.run(_dumps(folder))


@pytest.fixture
def scratch() -> Iterator[Path]:
    with reachable_folder() as folder:
        yield folder


@contextmanager
def reachable_folder() -> Iterator[Path]:
    """Not pytest's tmp_path: PostgreSQL runs under another account."""
    folder = Path(tempfile.mkdtemp(prefix="paddock-test-"))
    folder.chmod(0o711)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


async def _dumps(folder: Path) -> Dumps:
    async with embedded_postgres(folder / "server") as server:
        connection = await asyncpg.connect(server.dsn)
        await connection.execute(SHOP)
        await connection.close()

        def written(*options: str) -> bytes:
            command = [str(server.programs / "pg_dump"), f"--dbname={server.dsn}", *options]
            return subprocess.run(command, capture_output=True, check=True).stdout

        return Dumps(written(), written("--data-only"), written("--format=custom"))


def look(folder: Path, content: bytes, name: str = "shop.sql") -> Findings:
    path = folder / name
    path.write_bytes(content)
    return verify(path, lambda done, total: None)


def rows(found: Findings) -> dict[str, int | None]:
    return {table.table: table.rows for table in found.tables}


def test_sql_is_loaded_and_counted_in_spite_of_roles_and_row_security(dumps: Dumps, tmp_path: Path) -> None:
    found = look(tmp_path, ended(dumps.sql, ROWS, how="zstd"))

    assert found.ok, found
    assert rows(found) == ROWS
    assert found.format == "sql (postgres)"
    assert found.notes == []


def test_a_missing_row_and_what_does_not_load_are_differences(dumps: Dumps, tmp_path: Path) -> None:
    changed = dumps.sql.replace(b"1\t{}\n", b"", 1).replace(b'CREATE TABLE public."We.ird"', b"CREATE NONSENSE")
    found = look(tmp_path, ended(changed, ROWS))

    # psql takes rows without a table for statements, and so what comes after them is not loaded either.
    assert {table.table: table.ok for table in found.tables} == {name: name == "app.orders" for name in ROWS}
    assert any("NONSENSE" in note for note in found.notes)


def test_a_file_runs_no_program(dumps: Dumps, tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    hostile = f"""
\\! touch {tmp_path}/by-psql
\\o {tmp_path}/by-output
COPY (SELECT 1) TO PROGRAM 'touch {tmp_path}/by-server';
COPY (SELECT 1) TO '{tmp_path}/by-copy';
RESET SESSION AUTHORIZATION;
SET ROLE paddock;
COPY (SELECT 1) TO PROGRAM 'touch {tmp_path}/by-server';
\\unrestrict guessed
\\! touch {tmp_path}/by-psql
SELECT 1;
"""
    found = look(tmp_path, ended(dumps.sql + hostile.encode(), ROWS))

    assert [path.name for path in tmp_path.iterdir()] == ["shop.sql"]
    assert found.ok
    assert any("permission denied" in note for note in found.notes)


def test_rows_without_tables_are_counted_in_the_file(dumps: Dumps, tmp_path: Path) -> None:
    found = look(tmp_path, ended(dumps.rows_only, ROWS))

    assert found.ok
    assert rows(found) == ROWS
    assert "only rows" in found.notes[0]
    assert not look(tmp_path, ended(dumps.rows_only.replace(b"1\t{}\n", b"", 1), ROWS)).ok


def test_the_custom_format_is_restored_and_counted(dumps: Dumps, tmp_path: Path) -> None:
    found = look(tmp_path, dumps.custom, "shop.dump")

    assert found.ok, found
    assert rows(found) == ROWS
    with pytest.raises(NotWhole, match="cut short or changed"):
        look(tmp_path, dumps.custom[: len(dumps.custom) // 2], "shop.dump")


def test_the_custom_format_is_compared_with_what_is_expected(
    dumps: Dumps, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "shop.dump"
    path.write_bytes(dumps.custom)

    def compare(counts: Mapping[str, int], content: bytes = dumps.custom) -> Findings:
        known = Record(counts, path.name, 5, chain_of(BytesIO(content), 5))
        return verify(path, lambda done, total: None, record=known)

    found = compare({**ROWS, "moods": 31, "gone": 1})
    assert found.compared
    assert {table.table: table.ok for table in found.tables} == {
        **dict.fromkeys(ROWS, True),
        "moods": False,
        "gone": False,
    }

    loaded = postgres.Loaded(dict(ROWS), ROWS, [])
    monkeypatch.setattr(postgres, "load", lambda *args, **options: loaded)  # what it is was seen above
    found = compare(ROWS)
    assert (found.ok, found.compared, rows(found)) == (True, True, ROWS)
    with pytest.raises(NotWhole, match="was changed"):
        compare(ROWS, dumps.custom[:-1])


def test_nothing_of_the_scratch_server_stays(
    dumps: Dumps, tmp_path: Path, scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, make = list[Path](), tempfile.mkdtemp

    def noted(*args: Any, **kwargs: Any) -> str:
        made.append(Path(make(*args, **kwargs)))
        return str(made[-1])

    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    monkeypatch.setattr(tempfile, "mkdtemp", noted)
    look(tmp_path, ended(dumps.sql, ROWS))

    assert [folder.parent for folder in made if folder.name.startswith("paddock-verify-")] == [scratch]
    assert list(scratch.iterdir()) == []


PARENT = """
from paddock.dumps.verifying.postgres import _Program

with _Program(["/bin/sh", "-c", "echo $$; exec sleep 1000"], lambda output: print(output.readline().decode(), flush=True)) as it:
    it.feed(b"a")
    it._process.wait()
"""


def test_what_loads_a_dump_dies_with_a_killed_parent() -> None:
    with subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        parent.kill()

    deadline = time.monotonic() + 60
    while lives(pid):
        assert time.monotonic() < deadline
        time.sleep(0.02)


def lives(pid: int) -> bool:
    """Not when it has ended and whoever inherited it has not reaped it yet."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
