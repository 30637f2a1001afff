"""Remote sources of DuckDB: the parent fetches what a query names, and its process still reaches nothing."""

import asyncio
import os
import shutil
import subprocess
import sys
import uuid
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from paddock.config import ConfigError, load
from paddock.engines.children import matching
from paddock.engines.children.duckdb import DuckdbEngine
from paddock.engines.engine import Query
from paddock.engines.registry import settings_from
from paddock.engines.settings import DuckdbSettings, RemoteSettings
from paddock.jobs.errors import InfrastructureError, PermanentRunnerError, TransientResourceError
from paddock.storage.store import CHUNK, Store, open_store
from tests.storage.disks import small_disk as small_disk
from tests.storage.servers import Server


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


async def test_files_keep_the_names_they_are_read_by(engine: DuckdbEngine, tmp_path: Path) -> None:
    """Where they were fetched to is another folder each time, and nobody's business."""
    sql = "SELECT filename FROM read_csv('{}', filename = true)"
    assert await read(engine, sql.format("lake/notes.csv")) == [{"filename": "lake/notes.csv"}]
    assert await read(engine, sql.format("lake/note*.csv")) == [{"filename": "./lake/notes.csv"}]
    assert await read(engine, sql.format("her*.csv")) == [{"filename": str(tmp_path / "root" / "here.csv")}]


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


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """The key and the number of bytes of each request for an object's content."""
    made: list[tuple[str, int]] = []
    read_range = Store.read_range

    async def counted(store: Store, key: str, start: int, length: int) -> bytes:
        data: bytes = await read_range(store, key, start, length)
        made.append((key, len(data)))
        return data

    monkeypatch.setattr(Store, "read_range", counted)
    return made


async def put_table(lake: Store, key: str, table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="none", use_dictionary=False)
    data: bytes = sink.getvalue().to_pybytes()
    await lake.put(key, data)
    return data


WIDE = {f"a_column_with_a_long_name_{number}": [number] * 20 for number in range(1_500)}


@pytest.fixture
async def large(lake: Store) -> None:
    """Half a megabyte each; the columns of those in `large/` differ, and one of them has a footer of many kilobytes."""
    numbers = pa.array(range(60_000), pa.int64())
    for key, table in {
        "large/day=1/a": pa.table({"id": numbers, "n": pa.array([0.5] * 60_000)}),
        "large/day=1/b": pa.table({"id": numbers.cast(pa.string())}),
        "large/day=x/a": pa.table({"id": numbers, "more": numbers}),
        "other/a-b/a": pa.table({"id": numbers}),
        "other/a/a": pa.table({"name": numbers.cast(pa.string())}),
    }.items():
        await put_table(lake, f"{key}.parquet", table)
    assert len(await put_table(lake, "wide.parquet", pa.table(WIDE))) > 300_000


@pytest.mark.parametrize(
    ("sql", "keys", "columns"),
    [
        ("SELECT * FROM 'lake/large/day=1/a.parquet'", ["day=1/a"], "id BIGINT, n DOUBLE, day BIGINT"),
        ("SELECT * FROM 'lake/large/day=1/*.parquet'", ["day=1/a"], "id BIGINT, n DOUBLE, day BIGINT"),
        ("SELECT * FROM 'lake/large/*/*.parquet'", ["day=1/a"], "id BIGINT, n DOUBLE, day VARCHAR"),
        (
            "SELECT * FROM read_parquet(['lake/large/day=x/a.parquet', 'lake/large/day=1/a.parquet'])",
            ["day=x/a"],
            "id BIGINT, more BIGINT, day VARCHAR",
        ),
        ("SELECT id FROM parquet_scan($path)", ["day=1/b"], "id VARCHAR"),
        ("SELECT * FROM 'lake/other/*/a.parquet'", ["a-b/a"], "id BIGINT"),
        ("SELECT * FROM 'lake/other/**/a.parquet'", ["a-b/a"], "id BIGINT"),
        (
            "SELECT o.*, l.n FROM 'lake/large/day=1/*.parquet' l, 'lake/other/a-b/*.parquet' o",
            ["a-b/a", "day=1/a"],
            "id BIGINT, n DOUBLE",
        ),
        ("SELECT sum(n) AS n FROM (SELECT n FROM 'lake/large/day=1/a.parquet')", ["day=1/a"], "n DOUBLE"),
    ],
)
async def test_parquet_is_described_by_its_footer(
    engine: DuckdbEngine, large: None, requests: list[tuple[str, int]], sql: str, keys: list[str], columns: str
) -> None:
    query = Query(sql, {"path": "lake/large/day=1/b.parquet"} if "$path" in sql else {})

    described = await engine.describe(query)

    assert ", ".join(f"{column.name} {column.native}" for column in described.columns) == columns
    assert sorted(key.split("/", 1)[1] for key, _ in requests) == [f"{key}.parquet" for key in keys]
    assert sum(size for _, size in requests) <= len(requests) * (64 << 10)
    async with engine.open(query) as stream:
        assert [(found.name, found.native) for found in stream.columns] == [
            (found.name, found.native) for found in described.columns
        ]


async def test_a_large_footer_is_read_too(engine: DuckdbEngine, large: None, requests: list[tuple[str, int]]) -> None:
    described = await engine.describe(Query("SELECT * FROM 'lake/wide.parquet'"))

    assert [column.name for column in described.columns] == [*WIDE]
    assert len(requests) == 2


async def test_where_a_footer_does_not_do_all_is_fetched(
    engine: DuckdbEngine, large: None, requests: list[tuple[str, int]]
) -> None:
    query = Query("SELECT * FROM read_parquet('lake/large/*/*.parquet', union_by_name = true)")

    described = ", ".join(f"{column.name} {column.native}" for column in (await engine.describe(query)).columns)

    assert described == "id VARCHAR, n DOUBLE, more BIGINT, day VARCHAR"
    assert len({key for key, size in requests if size > 480_000}) == 3


async def test_what_is_no_parquet_file_is_said_by_its_name(engine: DuckdbEngine, lake: Store) -> None:
    await lake.put("none.parquet", b"this is no Parquet file" * 10_000)

    with pytest.raises(PermanentRunnerError, match="No magic bytes") as refused:
        await engine.describe(Query("SELECT * FROM 'lake/orders/*/*.parquet' UNION ALL FROM 'lake/none.parquet'"))

    assert refused.value.code == "query_failed"
    assert "'lake/none.parquet'" in refused.value.message


async def test_a_mistake_in_the_text_is_told_without_fetching_more(
    engine: DuckdbEngine, large: None, requests: list[tuple[str, int]]
) -> None:
    with pytest.raises(PermanentRunnerError, match="nonsense"):
        await engine.describe(Query("SELECT nonsense FROM 'lake/large/*/*.parquet'"))

    assert len(requests) == 1


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM read_parquet('lake/' || 'orders/day=1/a.parquet')",
        "SELECT * FROM read_csv(concat('la', 'ke/notes.csv'))",
        "SELECT * FROM read_text(format('{}/notes.csv', $source))",
        "SELECT * FROM read_parquet(['lake/orders/day=1/a.parquet', 'lake/orders/' || '*/*.parquet'])",
        "SELECT * FROM read_parquet(list_transform(['1', '2'], d -> 'lake/orders/day=' || d || '/a.parquet'))",
        "SELECT * FROM glob(lower('LAKE/*'))",
        "SELECT * FROM range(3) r(n), LATERAL read_csv('lake/' || n)",
    ],
)
async def test_a_path_that_a_query_computes_is_refused_with_a_way_out(engine: DuckdbEngine, sql: str) -> None:
    """Some functions would find nothing and say nothing, and a pattern what happens to be there."""
    problem = await refusal(engine, sql, **({"source": "lake"} if "$source" in sql else {}))

    assert (problem.code, isinstance(problem, PermanentRunnerError)) == ("path_computed", True), problem
    assert "computes the path" in problem.message
    assert "pass it as a parameter" in problem.message


async def test_a_path_may_be_cast_and_texts_that_are_no_paths_may_be_anything(engine: DuckdbEngine) -> None:
    path = "lake/orders/day=2/a.parquet"
    assert [row["id"] for row in await read(engine, "SELECT id FROM read_parquet($path::VARCHAR)", path=path)] == [4]
    sql = "SELECT * FROM unnest(['https://example.com', 'lake/' || 'x']) AS t(link)"
    assert [row["link"] for row in await read(engine, sql)] == ["https://example.com", "lake/x"]


@pytest.mark.parametrize("path", ["./lake/orders/*/*.parquet", "*/orders/*/*.parquet", "**/*.parquet", "x/../lake/*"])
async def test_what_was_fetched_is_not_found_by_other_names(engine: DuckdbEngine, path: str) -> None:
    """Only one of the day's two files is here: a pattern that finds it would find a part."""
    sql = f"SELECT id FROM 'lake/orders/day=1/a.parquet' UNION ALL SELECT id FROM read_parquet('{path}')"

    assert (await refusal(engine, sql)).code == "path_denied"


async def test_a_listing_has_an_end(engine: DuckdbEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matching, "MOST_LISTED", 2)

    problem = await refusal(engine, "SELECT * FROM 'lake/**/nothing.parquet'")

    assert (problem.code, isinstance(problem, PermanentRunnerError)) == ("remote_too_large", True)
    assert "more than 2 objects" in problem.message


async def test_all_paths_together_name_so_many_files(engine: DuckdbEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matching, "MOST_FILES", 3)

    sql = "SELECT id FROM 'lake/orders/day=1/*' UNION ALL SELECT id FROM 'lake/orders/day=2/*'"
    assert (await refusal(engine, f"{sql} UNION ALL SELECT n FROM 'lake/odd*.csv'")).code == "remote_too_large"


async def test_what_does_not_fit_the_disk_is_not_begun(
    engine: DuckdbEngine, requests: list[tuple[str, int]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(10, 9, 1))

    problem = await refusal(engine, "SELECT * FROM 'lake/notes.csv'")

    assert (problem.code, isinstance(problem, TransientResourceError)) == ("disk_full", True)
    assert "for 11 bytes of remote sources" in problem.message
    assert requests == []
    assert left(tmp_path) == []


async def test_a_disk_that_fills_meanwhile_is_said(lake: Store, small_disk: Path) -> None:
    free = os.statvfs(small_disk)
    with patch.object(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(1 << 40, 0, 1 << 40)):
        async with started(small_disk, lake=remote(lake)) as engine:
            problem = await refusal(engine, "SELECT * FROM 'lake/large.csv'")
            assert left(small_disk) == []

    assert free.f_bavail * free.f_frsize < 2 << 20
    assert (problem.code, "disk for fetched files" in problem.message) == ("disk_full", True)


async def test_it_is_told_how_much_has_arrived(engine: DuckdbEngine, lake: Store) -> None:
    told: list[dict[str, Any]] = []
    sql = "SELECT * FROM 'lake/large.csv', 'lake/notes.csv'"
    async with engine.open(Query(sql, tell=told.append)):
        pass

    total = {"total_bytes": 11 + (await lake.size("large.csv") or 0), "total_files": 2}
    assert told[0] == {"phase": "listing remote files"}
    assert all(report["phase"] == "fetching" and total.items() <= report.items() for report in told[1:])
    assert [report["fetched_bytes"] for report in told[1:]] == sorted(report["fetched_bytes"] for report in told[1:])
    assert {8 << 20, total["total_bytes"]} & {report["fetched_bytes"] for report in told[1:]}
    last = {"phase": "fetching", "fetched_bytes": total["total_bytes"], "fetched_files": 2, "percent": 100.0, **total}
    assert last.items() <= told[-1].items()


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
    monkeypatch.setattr(matching, "MOST_FILES", 2)

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
