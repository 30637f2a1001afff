"""Chunks depend on rows and places alone: asked again, in any order and any process, they are the same bytes."""

import hashlib
import json
import re
import subprocess
import sys
from pathlib import Path

import duckdb
import pytest

from paddock.dumps.duckdb import connecting, frozen, large, rendering
from paddock.dumps.duckdb.frozen import DuckdbFrozen
from paddock.dumps.model import CHUNK_BYTES, CHUNK_ROWS, DumpOptions, Format
from paddock.dumps.source import Place, Rows
from paddock.jobs.errors import PermanentRunnerError
from tests.dumps.duckdb.loading import AT, dumped, made, nothing, source

FORMATS: tuple[Format, ...] = ("sql", "json", "csv")

WITH_GAPS = [
    "CREATE TABLE t(i BIGINT, s VARCHAR, l VARCHAR[])",
    "INSERT INTO t SELECT i, 'row ' || i, ['a', 'it''s ' || i, NULL] FROM range(60000) r(i)",
    "DELETE FROM t WHERE i BETWEEN 3 AND 7000 OR i % 3 = 0 OR i BETWEEN 20000 AND 41000",
    "UPDATE t SET s = s || chr(13) WHERE i = 50000",
    "INSERT INTO t SELECT -i, NULL, [] FROM range(10) r(i)",
]


async def opened(path: Path, options: DumpOptions | None = None) -> DuckdbFrozen:
    copy = path.with_name("copy.db")
    await source(path).copy(copy, nothing)
    return await source(path).open(copy, AT, options or DumpOptions())


async def chunks(of: DuckdbFrozen, format: Format, table: int = 0) -> list[tuple[Place | None, Rows]]:
    found: list[tuple[Place | None, Rows]] = []
    place: Place | None = None
    while not found or place is not None:
        rows = await of.rows(of.tables[table], format, place)
        found.append((place, rows))
        place = rows.next
    return found


@pytest.mark.parametrize("format", FORMATS)
async def test_gaps_are_stepped_over_and_chunks_are_full(tmp_path: Path, format: Format) -> None:
    path = made(tmp_path / "a.db", WITH_GAPS)
    of = await opened(path)
    found = await chunks(of, format)
    await of.close()

    counts = [rows.counts["t"] for _, rows in found]
    with duckdb.connect(str(path), read_only=True) as connection:
        assert [(sum(counts),)] == connection.execute("SELECT count(*) FROM t").fetchall()
    assert counts[:-1] == [CHUNK_ROWS] * (len(counts) - 1)
    assert all(rows.data for _, rows in found)


@pytest.mark.parametrize("format", FORMATS)
async def test_rows_come_in_the_order_of_their_ids(tmp_path: Path, format: Format) -> None:
    of = await opened(made(tmp_path / "a.db", ["CREATE TABLE t AS SELECT i FROM range(300000) r(i)"]))
    whole = b"".join(rows.data for _, rows in await chunks(of, format))
    await of.close()

    assert [int(number) for number in re.findall(rb"\d+", whole)] == list(range(300000))


async def test_any_place_asked_again_in_any_order_gives_the_same_bytes(tmp_path: Path) -> None:
    of = await opened(made(tmp_path / "a.db", WITH_GAPS))
    again = await source(tmp_path / "a.db").open(tmp_path / "copy.db", AT, DumpOptions())
    for format in FORMATS:
        for place, rows in reversed(await chunks(of, format)):
            assert json.loads(json.dumps(place)) == place
            assert await again.rows(again.tables[0], format, place) == rows
    await of.close()
    await again.close()


ELSEWHERE = """
import asyncio, hashlib, sys
from pathlib import Path
from tests.dumps.duckdb.loading import AT, source
from tests.dumps.duckdb.test_chunks import FORMATS, chunks
from paddock.dumps.model import DumpOptions

async def main():
    of = await source(Path(sys.argv[1])).open(Path(sys.argv[2]), AT, DumpOptions())
    for format in FORMATS:
        for place, rows in await chunks(of, format):
            print(format, place, rows.next, hashlib.sha256(rows.data).hexdigest())
    await of.close()

asyncio.run(main())
"""


async def test_another_process_renders_the_same_bytes(tmp_path: Path) -> None:
    path = made(tmp_path / "a.db", WITH_GAPS)
    of = await opened(path)
    here = [
        f"{format} {place} {rows.next} {hashlib.sha256(rows.data).hexdigest()}"
        for format in FORMATS
        for place, rows in await chunks(of, format)
    ]
    await of.close()

    # Another zone, and nothing of this process: settings of the machine must not show.
    there = subprocess.run(
        [sys.executable, "-c", ELSEWHERE, str(path), str(tmp_path / "copy.db")],
        capture_output=True,
        text=True,
        check=True,
        env={"TZ": "Asia/Kathmandu", "LANG": "C", "PYTHONPATH": ":".join(sys.path)},
    )

    assert there.stdout.splitlines() == here


async def test_large_values_cut_chunks_and_one_of_them_is_a_chunk(tmp_path: Path) -> None:
    size = CHUNK_BYTES * 3 // 4
    path = made(
        tmp_path / "a.db",
        [
            "CREATE TABLE t(i INTEGER, s VARCHAR, b BLOB)",
            "INSERT INTO t SELECT i, repeat('x', 1000), NULL FROM range(3000) r(i)",
            f"INSERT INTO t SELECT -i, repeat('y', {size}), NULL FROM range(4) r(i)",
            f"INSERT INTO t SELECT 0, NULL, repeat('z', {size})::BLOB",
            f"INSERT INTO t SELECT 1, repeat('w', {CHUNK_BYTES * 2}), NULL",
            "INSERT INTO t VALUES (2, 'last', NULL)",
        ],
    )
    of = await opened(path)
    for format in FORMATS:
        found = [rows for _, rows in await chunks(of, format)]
        assert max(len(rows.data) for rows in found[:-2]) < CHUNK_BYTES * 1.6
        assert sum(rows.counts["t"] for rows in found) == 3007
        assert [rows.counts["t"] for rows in found[-6:]] == [1, 1, 1, 1, 1, 1]
    await of.close()


async def test_memory_that_is_too_small_grows_and_changes_no_byte(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    statements = [f"CREATE TABLE t AS SELECT i, repeat(i::VARCHAR, {3 << 20}) AS s FROM range(8) r(i)"]
    path = made(tmp_path / "a.db", statements)
    of = await opened(path)
    plenty = [rows for _, rows in await chunks(of, "sql")]
    await of.close()

    monkeypatch.setattr(connecting, "MEMORY", 2 << 20)
    of = await opened(path)
    scarce = [rows for _, rows in await chunks(of, "sql")]
    grown = of._session._memory
    await of.close()

    assert scarce == plenty
    assert grown > connecting.MEMORY


async def test_a_row_that_is_too_large_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = made(tmp_path / "a.db", ["CREATE TABLE t AS SELECT i, repeat('x', i * 1000) AS s FROM range(20) r(i)"])
    monkeypatch.setattr(rendering, "MOST_BYTES", 15_000)
    of = await opened(path)

    with pytest.raises(PermanentRunnerError, match="A row of table 't' is too large") as refused:
        await chunks(of, "sql")

    assert refused.value.code == "value_too_large"
    await of.close()


async def test_opening_again_for_the_next_slice_reads_no_catalog(tmp_path: Path) -> None:
    path = made(tmp_path / "a.db", WITH_GAPS)
    await (await opened(path)).close()
    before = frozen._frozen_plan.cache_info().hits

    await (await source(path).open(tmp_path / "copy.db", AT, DumpOptions())).close()
    assert frozen._frozen_plan.cache_info().hits == before + 1

    # A new copy in its place is another database.
    made(path, ["CREATE TABLE u(a INTEGER)"])
    of = await opened(path)
    assert [table.name for table in of.tables] == ["t", "u"]
    await of.close()


async def test_nothing_but_the_copy_can_be_reached(tmp_path: Path) -> None:
    of = await opened(made(tmp_path / "a.db", WITH_GAPS))
    (tmp_path / "secret.csv").write_text("a\n1\n")
    for statement in (
        f"SELECT * FROM '{tmp_path / 'secret.csv'}'",
        f"COPY t TO '{tmp_path / 'out.csv'}'",
        f"ATTACH '{tmp_path / 'other.db'}'",
        "SET enable_external_access = true",
        "INSTALL httpfs",
        "INSERT INTO t VALUES (1, 'x', NULL)",
    ):
        with pytest.raises(duckdb.Error):
            of._session.connection.execute(statement)
    await of.close()


@pytest.mark.slow
@pytest.mark.parametrize("text", ["plain", "it''s \\ \"quoted\", ", "line\r\nline", "a\0b", "=1+1,", "-x\ty"])
@pytest.mark.parametrize("format", FORMATS)
async def test_a_large_row_is_written_as_a_small_one_would_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, format: Format, text: str
) -> None:
    shown = "|| chr(0) ||".join(f"'{part}'" for part in text.split("\0"))
    columns = "i BIGINT, s VARCHAR, b BLOB, j JSON, l VARCHAR[], nothing VARCHAR"
    # An eighth of what is large otherwise: DuckDB takes long to quote such values. The C library is told only once.
    large.give_back_at_once()
    monkeypatch.setattr(large, "LARGE", large.LARGE // 8)
    monkeypatch.setattr(large, "_PIECE", large._PIECE // 8)
    document = """'{"a": "' || repeat('x', 187500) || '"}'"""
    values = f"7, repeat({shown}, 25000), encode(repeat('é', 100000)), {document}, [repeat('it''s', 37500), NULL], NULL"
    path = made(tmp_path / "a.db", [f"CREATE TABLE t({columns})", f"INSERT INTO t SELECT {values}"])
    for safe in (False, True) if format == "csv" else (False,):
        of = await opened(path, DumpOptions(csv_safe=safe))
        monkeypatch.setattr(rendering, "CHUNK_BYTES", CHUNK_BYTES // 8)
        [(_, by_column)] = await chunks(of, format)
        monkeypatch.setattr(rendering, "CHUNK_BYTES", 1 << 30)
        [(_, by_expression)] = await chunks(of, format)
        await of.close()
        assert len(by_column.data) > CHUNK_BYTES // 8
        assert by_column.data == by_expression.data


async def test_a_packed_database_is_known_to_be_larger_than_its_file(tmp_path: Path) -> None:
    """Else its dump would have more parts than a store takes: they are sized before it is written."""
    repeated = "CREATE TABLE packed AS SELECT 1 AS n, repeat('the same ', 20) AS said, NULL::INTEGER AS nothing FROM"
    path = made(tmp_path / "a.db", [f"{repeated} range(300_000)"])
    written = len(await dumped(path, "json"))
    copy = path.with_name("copy.db")
    await source(path).copy(copy, nothing)
    opened = await source(path).open(copy, AT, DumpOptions())
    await opened.close()

    assert written > 20 * path.stat().st_size
    assert written < 3 * opened.size < 4 * written
