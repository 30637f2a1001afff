"""Remote sources of DuckDB: the parent fetches what a query names, and its process still reaches nothing."""

import asyncio
import os
import subprocess
import sys
import uuid
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from paddock.config import ConfigError, load
from paddock.engines.children import fetching
from paddock.engines.children.duckdb import DuckdbEngine
from paddock.engines.engine import Query
from paddock.engines.registry import settings_from
from paddock.engines.settings import DuckdbSettings, RemoteSettings
from paddock.jobs.errors import InfrastructureError, PermanentRunnerError, TransientResourceError
from paddock.storage.store import CHUNK, Store, open_store
from tests.storage.servers import Server
from tests.storage.servers import moto_server as moto_server
from tests.storage.servers import s3_server as s3_server


@pytest.fixture(autouse=True)
def credentials(s3_server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """The endpoint in the worker's environment; the key and its secret under names that only the configuration knows."""
    for name, value in s3_server.environ.items():
        known = {"AWS_ACCESS_KEY_ID": "LAKE_KEY", "AWS_SECRET_ACCESS_KEY": "LAKE_SECRET"}.get(name, name)
        monkeypatch.setenv(known, value)


@pytest.fixture
async def lake(s3_server: Server) -> Store:
    """Two days of orders, one of them in two files, a text, and an object of several requests."""
    lake = open_store(f"{s3_server.url}/{uuid.uuid4()}", environ=s3_server.environ)
    for key, ids in {"day=1/a": [1, 2], "day=1/b": [3], "day=2/a": [4]}.items():
        sink = pa.BufferOutputStream()
        pq.write_table(pa.table({"id": ids}), sink)
        await lake.put(f"orders/{key}.parquet", sink.getvalue().to_pybytes())
    await lake.put("notes.csv", b"note\nhello\n")
    await lake.put("odd [1].csv", b"n\n1\n")
    await lake.put("large.csv", b"n\n" + b"1234567\n" * ((2 * CHUNK) // 8) + b"7\n")
    return lake


def remote(lake: Store, **credentials: Mapping[str, str]) -> RemoteSettings:
    given = {"AWS_ACCESS_KEY_ID": {"env": "LAKE_KEY"}, "AWS_SECRET_ACCESS_KEY": {"env": "LAKE_SECRET"}, **credentials}
    return RemoteSettings.model_validate({"url": lake.url, "credentials": given})


@pytest.fixture
async def engine(lake: Store, tmp_path: Path) -> AsyncIterator[DuckdbEngine]:
    async with started(tmp_path, lake=remote(lake)) as engine:
        yield engine


def engine_in(folder: Path, *, fetch_bytes: int = 1 << 30, **remotes: RemoteSettings) -> DuckdbEngine:
    root = folder / "root"
    root.mkdir(exist_ok=True)
    (root / "here.csv").write_text("id\n7\n")
    return DuckdbEngine(
        "local",
        DuckdbSettings(roots=(root,), spill_folder=folder / "spill", remote=remotes, fetch_bytes=fetch_bytes),
    )


@asynccontextmanager
async def started(
    folder: Path, *, fetch_bytes: int = 1 << 30, **remotes: RemoteSettings
) -> AsyncIterator[DuckdbEngine]:
    engine = engine_in(folder, fetch_bytes=fetch_bytes, **remotes)
    try:
        yield engine
    finally:
        await engine.close()


async def read(engine: DuckdbEngine, sql: str, **parameters: Any) -> list[dict[str, Any]]:
    async with engine.open(Query(sql, parameters)) as stream:
        return [row async for batch in stream.batches() for row in batch.to_pylist()]


async def refusal(engine: DuckdbEngine, sql: str, **parameters: Any) -> InfrastructureError:
    with pytest.raises(InfrastructureError) as refused:
        await read(engine, sql, **parameters)
    return refused.value


def left(tmp_path: Path) -> list[Path]:
    return list((tmp_path / "spill").glob("*/*"))


@pytest.mark.parametrize(
    ("sql", "ids"),
    [
        ("SELECT id FROM 'lake/orders/day=1/a.parquet'", [1, 2]),
        ("SELECT id FROM 'lake/orders/day=1/*.parquet'", [1, 2, 3]),
        ("SELECT id FROM 'lake/orders/**/*.parquet'", [1, 2, 3, 4]),
        ("SELECT id FROM 'lake/orders/day=[2-3]/?.parquet' WHERE day = 2", [4]),
        ("SELECT id FROM read_parquet(['lake/orders/day=2/a.parquet', 'lake/orders/day=1/b.parquet'])", [3, 4]),
        ("SELECT id FROM read_parquet($path)", [3]),
        ("SELECT id FROM 'here.csv' UNION ALL SELECT id FROM read_parquet('lake/orders/day=2/*')", [4, 7]),
        ("SELECT n AS id FROM 'lake/odd [1].csv'", [1]),
        (
            "WITH o AS (SELECT * FROM 'lake/orders/day=1/b.parquet') SELECT id FROM o WHERE id IN (SELECT id FROM o)",
            [3],
        ),
    ],
)
async def test_what_a_query_names_is_read(engine: DuckdbEngine, tmp_path: Path, sql: str, ids: list[int]) -> None:
    parameters = {"path": "lake/orders/day=1/b.parquet"} if "$path" in sql else {}

    assert sorted(row["id"] for row in await read(engine, sql, **parameters)) == ids
    assert left(tmp_path) == []


async def test_an_object_of_many_requests_arrives_whole(engine: DuckdbEngine) -> None:
    [found] = await read(engine, "SELECT count(*) AS rows, sum(n) AS total FROM 'lake/large.csv'")

    rows = 2 * CHUNK // 8
    assert found == {"rows": rows + 1, "total": rows * 1_234_567 + 7}


async def test_an_engine_without_folders_reads_its_remote_sources(lake: Store) -> None:
    engine = DuckdbEngine("remote", DuckdbSettings(remote={"lake": remote(lake)}, spill_bytes=0))

    found = await read(engine, "SELECT id, filename FROM read_parquet('lake/orders/*/*.parquet', filename = true)")

    assert sorted(row["id"] for row in found) == [1, 2, 3, 4]
    assert {row["filename"] for row in found} >= {"lake/orders/day=1/a.parquet"}
    await engine.close()


async def test_describe_preview_and_browsing_know_them(engine: DuckdbEngine) -> None:
    query = Query("SELECT * FROM 'lake/notes.csv'")
    assert [column.name for column in (await engine.describe(query)).columns] == ["note"]
    assert (await engine.preview(query, 5))[1].to_pylist() == [{"note": "hello"}]

    assert "remote" in await engine.catalogs(query)
    assert await engine.schemas(query, "remote") == ["lake"]
    assert "lake/orders/day=2/a.parquet" in await engine.tables(query, "remote", "lake")
    columns = await engine.table_columns(query, "remote", "lake", "lake/orders/day=2/a.parquet")
    assert [column.name for column in columns] == ["id", "day"]


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("lake/orders/day=9/*.parquet", "remote_not_found"),
        ("lake/missing.parquet", "remote_not_found"),
        ("lake/orders", "remote_not_found"),
        ("lake/../secret.csv", "path_denied"),
        ("lake/orders/../../secret.csv", "path_denied"),
        ("lake//notes.csv", "path_denied"),
        ("lake/./notes.csv", "path_denied"),
        ("lake/a\\b.csv", "store_bad_key"),
        ("lakes/notes.csv", "query_failed"),
        ("s3://lake/exports/notes.csv", "remote_denied"),
        ("https://example.com/x.csv", "remote_denied"),
        ("file:///etc/passwd", "remote_denied"),
        ("../outside.csv", "path_denied"),
    ],
)
async def test_what_is_not_there_or_not_allowed_is_said(
    engine: DuckdbEngine, tmp_path: Path, path: str, code: str
) -> None:
    for sql in (f"SELECT * FROM read_csv('{path}')", f"SELECT * FROM '{path}'"):
        problem = await refusal(engine, sql)
        assert (problem.code, isinstance(problem, PermanentRunnerError)) == (code, True), problem
    assert left(tmp_path) == []


async def test_the_process_of_a_query_can_only_read_what_was_fetched(engine: DuckdbEngine, tmp_path: Path) -> None:
    sql = "SELECT * FROM 'lake/notes.csv'"
    async with engine.open(Query(sql)) as stream:
        mode = [path.stat().st_mode & 0o777 for path in (tmp_path / "spill").rglob("notes.csv")]
        async for _ in stream.batches():
            pass

    assert mode == [0o400]
    for attempt in ("COPY (SELECT 1) TO 'lake/notes.csv'", "SELECT getenv('LAKE_SECRET')"):
        assert isinstance(await refusal(engine, attempt), PermanentRunnerError)


async def test_wrong_credentials_are_said_without_being_shown(
    lake: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAKE_SECRET", "wrongsecret")
    async with started(tmp_path, lake=remote(lake)) as engine:
        problem = await refusal(engine, "SELECT * FROM 'lake/notes.csv'")
        [finding] = [found for found in await engine.check(Query("")) if found.what == "remote lake"]

    assert (problem.code, isinstance(problem, PermanentRunnerError)) == ("store_denied", True)
    assert "wrongsecret" not in f"{problem}{problem.hint}"
    assert (finding.ok, "refuses" in finding.message) == (False, True)


async def test_a_secret_may_stand_in_a_file_that_changes(lake: Store, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("not yet\n")
    async with started(tmp_path, lake=remote(lake, AWS_SECRET_ACCESS_KEY={"file": str(secret)})) as engine:
        assert (await refusal(engine, "SELECT * FROM 'lake/notes.csv'")).code == "store_denied"
        secret.write_text(f"{os.environ['LAKE_SECRET']}\n")
        assert await read(engine, "SELECT * FROM 'lake/notes.csv'") == [{"note": "hello"}]


async def test_a_missing_bucket_is_named(moto_server: Server, tmp_path: Path) -> None:
    elsewhere = open_store("s3://elsewhere/x", environ=moto_server.environ)
    source = remote(elsewhere).model_copy(update={"url": f"{elsewhere.url}?endpoint={moto_server.endpoint}"})
    async with started(tmp_path, lake=source) as engine:
        assert (await refusal(engine, "SELECT * FROM 'lake/*.csv'")).code == "store_no_bucket"


async def test_there_is_an_end_to_what_one_query_and_all_of_them_fetch(lake: Store, tmp_path: Path) -> None:
    size = await lake.size("large.csv")
    assert size is not None
    async with started(tmp_path, lake=remote(lake), fetch_bytes=size) as engine:
        too_large = await refusal(engine, "SELECT * FROM 'lake/large.csv', 'lake/notes.csv'")
        async with engine.open(Query("SELECT * FROM 'lake/large.csv'")):
            full = await refusal(engine, "SELECT * FROM 'lake/notes.csv'")
        afterwards = await read(engine, "SELECT * FROM 'lake/notes.csv'")

    assert (too_large.code, isinstance(too_large, PermanentRunnerError)) == ("remote_too_large", True)
    assert (full.code, isinstance(full, TransientResourceError)) == ("disk_full", True)
    assert afterwards == [{"note": "hello"}]


async def test_too_many_files_are_refused(engine: DuckdbEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetching, "MOST_FILES", 2)

    assert (await refusal(engine, "SELECT * FROM 'lake/orders/**/*.parquet'")).code == "remote_too_large"


@pytest.mark.parametrize("key", ["notes.csv", "large.csv"])
@pytest.mark.parametrize("change", [b"note\nanother\n", b"n\n"])
async def test_an_object_that_changes_meanwhile_is_fetched_again(
    engine: DuckdbEngine, lake: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: str, change: bytes
) -> None:
    """Between the look at its size and the last request for it."""
    read_range = Store.read_range

    async def late(store: Store, *arguments: Any) -> bytes:
        if arguments[1] == 0:
            found = await read_range(store, *arguments) if key == "large.csv" else b""
            await lake.put(key, change)
            return found or await read_range(store, *arguments)
        return await read_range(store, *arguments)

    monkeypatch.setattr(Store, "read_range", late)
    problem = await refusal(engine, f"SELECT * FROM 'lake/{key}'")

    assert isinstance(problem, TransientResourceError)
    assert problem.code == "remote_changed"
    assert left(tmp_path) == []


async def test_a_replacement_of_the_same_size_is_not_mixed_in(
    engine: DuckdbEngine, lake: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = await lake.size("large.csv")
    assert size is not None
    read_range = Store.read_range

    async def late(store: Store, *arguments: Any) -> bytes:
        found = await read_range(store, *arguments)
        if arguments[1] == 0:
            await lake.put("large.csv", b"n\n" + b"9999999\n" * (size // 8))
        return found

    monkeypatch.setattr(Store, "read_range", late)

    assert (await refusal(engine, "SELECT * FROM 'lake/large.csv'")).code == "remote_changed"


async def test_a_cancelled_fetch_leaves_nothing(
    engine: DuckdbEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetched = asyncio.Event()
    read_range = Store.read_range

    async def held(store: Store, *arguments: Any) -> bytes:
        found = await read_range(store, *arguments)
        fetched.set()
        await asyncio.Event().wait()
        return found

    monkeypatch.setattr(Store, "read_range", held)
    query = asyncio.create_task(read(engine, "SELECT * FROM 'lake/large.csv'"))
    await fetched.wait()
    query.cancel()
    with pytest.raises(asyncio.CancelledError):
        await query
    monkeypatch.setattr(Store, "read_range", read_range)

    assert left(tmp_path) == []
    assert len(await read(engine, "SELECT * FROM 'lake/notes.csv'")) == 1


KILLED = """
import asyncio, os, sys
from pathlib import Path
from tests.engines.test_duckdb_remote import engine_in
from paddock.engines.engine import Query
from paddock.engines.settings import RemoteSettings

async def main():
    engine = engine_in(Path(sys.argv[1]), lake=RemoteSettings(url=sys.argv[2]))
    async with engine.open(Query("SELECT * FROM 'lake/large.csv'")):
        print(len(list(Path(sys.argv[1]).rglob("large.csv"))), flush=True)
        os.kill(os.getpid(), 9)

asyncio.run(main())
"""


async def test_what_a_killed_worker_fetched_goes_when_the_next_one_starts(
    engine: DuckdbEngine, lake: Store, s3_server: Server, tmp_path: Path
) -> None:
    killed = subprocess.run(
        [sys.executable, "-c", KILLED, str(tmp_path), lake.url],
        env={**os.environ, **s3_server.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert (killed.returncode, killed.stdout) == (-9, b"1\n"), killed.stderr.decode()
    assert any(path.name == "large.csv" for path in (tmp_path / "spill").rglob("*"))

    assert len(await read(engine, "SELECT * FROM 'lake/notes.csv'")) == 1

    assert left(tmp_path) == []


async def test_a_folder_of_the_same_name_is_not_mixed_in(engine: DuckdbEngine, tmp_path: Path) -> None:
    (tmp_path / "root" / "lake").mkdir()

    assert (await refusal(engine, "SELECT 1")).code == "engine_remote_hidden"


@pytest.mark.parametrize(
    ("table", "says"),
    [
        ('url = "/srv/data"', "one of the roots"),
        ('url = "file:///srv/data"', "one of the roots"),
        ('url = "ftp://x/y"', "no store that Paddock knows"),
        ('url = "s3://key:secret@bucket"', "without credentials"),
        ('url = "s3://lake"\ncredentials.LAKE_KEY.env = "X"', "LAKE_KEY is no credential"),
        ('url = "s3://lake"\ncredentials.AWS_ACCESS_KEY_ID.file = "key"', "an absolute path"),
        ('url = "s3://lake"\ncredentials.AWS_ACCESS_KEY_ID = {}', "either env"),
        ('url = "s3://managed/objects/of/others"', "is the object store"),
        ('url = "s3://managed"', "is the object store"),
    ],
)
def test_a_source_that_cannot_be_meant_is_refused(tmp_path: Path, table: str, says: str) -> None:
    (tmp_path / "paddock.toml").write_text(f'[engines.local]\ntype = "duckdb"\n[engines.local.remote.lake]\n{table}\n')
    config = load({"PADDOCK_OBJECT_STORE": "s3://managed/objects"}, tmp_path)

    with pytest.raises(ConfigError, match=says) as refused:
        settings_from(config)
    assert "key:secret" not in str(refused.value)
