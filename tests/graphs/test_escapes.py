"""Nobody's Cypher reads, writes, loads or connects: in both engines, with Landlock and by the limits alone.

Every statement is sent to a real instance beside files that it must not see and a folder that it must not write into. It
may answer with whatever error; what counts is that no secret came back, that nothing on the disk has changed, that
nobody was called, and that the next query answers.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from paddock.engines.children import landlock
from tests.graphs.running import RunningInstance, cities, instance

SECRET = "S3CR3T-that-nobody-may-read"

# {secret}: a readable folder with files that hold the secret; {out}: a folder to write into; {db}: the database file;
# {port}: where somebody listens.
STATEMENTS = [
    "LOAD FROM '{secret}/a.csv' RETURN *",
    "LOAD FROM '{secret}/a.csv' (header=true) RETURN *",
    "LOAD FROM '{secret}/a.parquet' RETURN *",
    "LOAD FROM '{secret}/*.csv' RETURN *",
    "LOAD FROM ['{secret}/a.csv', '{secret}/b.csv'] RETURN *",
    "LOAD WITH HEADERS (line STRING) FROM '{secret}/a.csv' RETURN line",
    "LOAD FROM '{secret}/a.json' RETURN *",
    "LOAD FROM '{secret}/a.npy' RETURN *",
    "LOAD FROM '/etc/passwd' (header=false, delim=':') RETURN *",
    "LOAD FROM '/etc/shadow' RETURN *",
    "LOAD FROM '/proc/self/environ' (file_format='csv') RETURN *",
    "LOAD FROM '/proc/self/maps' (file_format='csv') RETURN *",
    "LOAD FROM '/proc/self/cmdline' (file_format='csv') RETURN *",
    "LOAD FROM '/proc/self/fd/0' (file_format='csv') RETURN *",
    "LOAD FROM '/proc/self/fd/1' (file_format='csv') RETURN *",
    "LOAD FROM '/proc/self/fd/3' (file_format='csv') RETURN *",
    "LOAD FROM '/dev/stdin' (file_format='csv') RETURN *",
    "LOAD FROM '/dev/fd/0' (file_format='csv') RETURN *",
    "LOAD FROM '../../../../../../{secret}/a.csv' RETURN *",
    "LOAD FROM '{secret}/link.csv' RETURN *",
    "LOAD FROM '{db}' (file_format='csv') RETURN *",
    "LOAD FROM 'http://127.0.0.1:{port}/a.csv' RETURN *",
    "LOAD FROM 'https://127.0.0.1:{port}/a.parquet' RETURN *",
    "LOAD FROM 's3://bucket/a.parquet' RETURN *",
    "LOAD FROM request RETURN *",
    "LOAD FROM result RETURN *",
    "LOAD FROM self RETURN *",
    "LOAD FROM pieces RETURN *",
    "LOAD FROM $table RETURN *",
    "PROFILE LOAD FROM '{secret}/a.csv' RETURN *",
    "EXPLAIN LOAD FROM '{secret}/a.csv' RETURN *",
    "COPY City FROM '{secret}/a.csv'",
    "COPY City FROM (LOAD FROM '{secret}/a.csv' RETURN *)",
    "COPY (MATCH (c:City) RETURN c.name) TO '{out}/a.csv'",
    "COPY (MATCH (c:City) RETURN c.name) TO '{out}/a.parquet'",
    "COPY (MATCH (c:City) RETURN c.name) TO '{out}/a.json'",
    "PROFILE COPY (MATCH (c:City) RETURN c.name) TO '{out}/b.csv'",
    "COPY (RETURN 1) TO '{db}'",
    "COPY (RETURN 1) TO '/proc/self/oom_score_adj'",
    "EXPORT DATABASE '{out}/exported'",
    "EXPORT DATABASE '{out}/exported' (format='parquet')",
    "EXPORT DATABASE '{out}/exported' (schema_only=true)",
    "IMPORT DATABASE '{secret}'",
    "ATTACH '{secret}/other.db' AS other (dbtype lbug)",
    "ATTACH '{db}' AS again (dbtype kuzu)",
    "ATTACH '{secret}/other.duckdb' AS other (dbtype duckdb)",
    "ATTACH 'host=127.0.0.1 port={port}' AS other (dbtype postgres)",
    "ATTACH '{secret}/other.sqlite' AS other (dbtype sqlite)",
    "DETACH other",
    "USE other",
    "INSTALL httpfs",
    "INSTALL json",
    "FORCE INSTALL httpfs FROM 'http://127.0.0.1:{port}/'",
    "INSTALL httpfs FROM 'http://127.0.0.1:{port}/'",
    "UPDATE httpfs",
    "UNINSTALL httpfs",
    "LOAD EXTENSION httpfs",
    "LOAD EXTENSION '{secret}/evil.so'",
    "LOAD httpfs",
    "CALL home_directory='{out}'",
    "CALL file_search_path='{secret}'",
    "CALL threads=64",
    "CALL timeout=0",
    "CALL spill_to_disk=true",
    "CALL checkpoint_threshold=1",
    "CALL auto_checkpoint=true",
    "CALL s3_endpoint='127.0.0.1:{port}'",
    "CALL show_attached_databases() RETURN *",
    "CALL show_official_extensions() RETURN *",
    "CALL catalog_version() RETURN *",
    "CALL db_version() RETURN *",
    "CALL current_setting('home_directory') RETURN *",
    "CALL project_graph('g', ['City'], ['ROAD'])",
    "CALL create_fts_index('City', 'i', ['name'])",
    "CHECKPOINT",
    "BEGIN TRANSACTION",
    "BEGIN TRANSACTION READ ONLY",
    "COMMIT",
    "ROLLBACK",
    "CREATE (:City {{name: 'Oslo', people: 1}})",
    "MATCH (c:City) SET c.people = 0",
    "MATCH (c:City) DETACH DELETE c",
    "MERGE (:City {{name: 'Oslo'}})",
    "CREATE NODE TABLE Other(id INT64 PRIMARY KEY)",
    "CREATE REL TABLE OTHER(FROM City TO City)",
    "DROP TABLE ROAD",
    "ALTER TABLE City ADD extra STRING",
    "ALTER TABLE City RENAME TO Town",
    "COMMENT ON TABLE City IS 'x'",
    "CREATE MACRO plus(a) AS a + 1",
    "CREATE SEQUENCE numbers",
    "CREATE TYPE mood AS STRING",
    "RETURN 1; CREATE (:City {{name: 'Oslo'}})",
    "CREATE NODE TABLE Loaded AS LOAD FROM '{secret}/a.csv' RETURN *",
    "RETURN nextval('numbers')",
]


@asynccontextmanager
async def somebody_listens() -> AsyncIterator[tuple[int, list[bytes]]]:
    calls: list[bytes] = []

    async def called(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        calls.append(await reader.read(64))
        writer.close()

    server = await asyncio.start_server(called, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1], calls


def secrets(folder: Path) -> Path:
    folder.mkdir()
    for name in ("a.csv", "b.csv", "a.json", "evil.so", "other.sqlite"):
        (folder / name).write_text(f"line\n{SECRET}\n")
    pq.write_table(pa.table({"line": [SECRET]}), folder / "a.parquet")
    (folder / "link.csv").symlink_to(folder / "a.csv")
    return folder


def everything_below(folder: Path) -> dict[str, tuple[int, int]]:
    """Names, sizes and times of change. `log` and `run.json` are the server's own."""
    return {str(path.relative_to(folder)): (path.stat().st_size, path.stat().st_mtime_ns) for path in folder.rglob("*")}


async def still_answers(running: RunningInstance) -> None:
    """A child that died of the statement is being replaced: whoever asks now waits for the next."""
    assert await running.rows("MATCH (c:City) RETURN count(*), sum(c.people)") == [[3, 948]]


# Where there is no Landlock, this one makes an empty folder; nothing gets into it.
MAKES_FOLDER = "EXPORT DATABASE"


@pytest.mark.parametrize("held_by", ["landlock", "limits"])
@pytest.mark.parametrize("wrapper_type", ["ladybug", "ryugraph"])
async def test_no_statement_gets_out(tmp_path: Path, wrapper_type: str, held_by: str) -> None:
    if held_by == "landlock" and landlock.version() == 0:
        pytest.skip("this kernel has no Landlock")
    secret, out = secrets(tmp_path / "secret"), tmp_path / "out"
    out.mkdir()
    switch = "where_there" if held_by == "landlock" else "off"
    async with (
        somebody_listens() as (port, calls),
        instance(tmp_path / "instance", wrapper_type=wrapper_type, landlock=switch) as running,
    ):
        status = await running.load(cities(tmp_path / "store"))
        assert status["phase"] == "ready", status["error"]
        database = tmp_path / "instance" / "db" / "1" / "graph.db"
        before, read_before = everything_below(tmp_path / "instance"), everything_below(secret)
        for statement in STATEMENTS:
            text = statement.format(secret=secret, out=out, db=database, port=port)
            answer = await running.query(
                text, timeout_ms=10_000, parameters={"table": str(secret / "a.csv")} if "$" in text else {}
            )

            assert SECRET not in answer.text, text
            assert "root:" not in answer.text, text
            made = [path for path in out.rglob("*") if path.is_file() or held_by == "landlock"]
            assert made == [], text
            assert everything_below(tmp_path / "instance") == before, text
            await still_answers(running)
        assert everything_below(secret) == read_before
        assert calls == []
        assert [entry.name for entry in out.iterdir()] in ([], ["exported"])
