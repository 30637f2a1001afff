"""What a query must not be able to do, each way on its own. Every refusal has its code; nothing is left on the disk."""

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from paddock.engines.children.duckdb import DuckdbEngine
from paddock.engines.children.process import Children
from paddock.engines.engine import Query
from paddock.engines.settings import DuckdbSettings
from paddock.jobs.errors import PermanentRunnerError

SECRET = "the secret of another folder"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("breakouts")
    root, outside = place / "root", place / "outside"
    (root / "sub").mkdir(parents=True)
    outside.mkdir()
    (root / "flights.csv").write_text("id,delay\n1,10\n2,70\n")
    (outside / "secret.csv").write_text(f"secret\n{SECRET}\n")
    (place / "root2").mkdir()
    (place / "root2" / "secret.csv").write_text(f"secret\n{SECRET}\n")
    (root / "link.csv").symlink_to(outside / "secret.csv")
    (root / "linked").symlink_to(outside)
    return place


@pytest.fixture(scope="module")
def engine(place: Path) -> Iterator[DuckdbEngine]:
    engine = DuckdbEngine(
        "duckdb",
        DuckdbSettings(
            roots=(place / "root",), memory_bytes=256 << 20, spill_bytes=16 << 20, spill_folder=place / "spill"
        ),
    )
    yield engine
    asyncio.run(engine.close())


@pytest.fixture(autouse=True)
def untouched(place: Path) -> Iterator[None]:
    before = _everything(place)
    yield
    assert _everything(place) == before


def _everything(place: Path) -> dict[str, bytes]:
    found = (path for path in place.rglob("*") if path.is_file() and "spill" not in path.parts)
    return {str(path): path.read_bytes() for path in found}


async def read(engine: DuckdbEngine, sql: str) -> list[object]:
    async with engine.open(Query(sql)) as stream:
        return [row async for batch in stream.batches() for row in batch.to_pylist()]


async def refused(engine: DuckdbEngine, sql: str) -> str:
    with pytest.raises(PermanentRunnerError) as caught:
        await read(engine, sql)
    assert SECRET not in str(caught.value)
    return caught.value.code


async def test_the_gate_stands_before_every_query(engine: DuckdbEngine) -> None:
    """What it refuses is in test_duckdb_gate."""
    copy = Query("COPY (SELECT 1) TO 'out.csv'")
    assert await refused(engine, copy.sql) == "query_refused"
    assert await refused(engine, "SELECT * FROM enable_logging(storage = 'file')") == "function_refused"
    assert await refused(engine, "IMPORT DATABASE 'dump'") == "query_failed"
    with pytest.raises(PermanentRunnerError):
        await engine.describe(copy)
    with pytest.raises(PermanentRunnerError):
        await engine.preview(copy, 10)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM read_text('/etc/passwd')",
        "SELECT * FROM read_blob('/etc/passwd')",
        "SELECT * FROM read_blob('file:///etc/passwd')",
        "SELECT * FROM read_csv('/etc/passwd')",
        "SELECT * FROM read_csv('/proc/self/environ')",
        "SELECT * FROM read_text('/proc/self/maps')",
        "SELECT * FROM read_json('/etc/passwd')",
        "SELECT * FROM read_parquet('/etc/passwd')",
        "SELECT * FROM sniff_csv('/etc/passwd')",
        "SELECT * FROM glob('/etc/*')",
        "SELECT * FROM glob('../*')",
        "SELECT * FROM glob('../outside/*')",
        "SELECT * FROM '../outside/secret.csv'",
        "SELECT * FROM 'sub/../../outside/secret.csv'",
        "SELECT * FROM '../root2/secret.csv'",
        "SELECT * FROM 'link.csv'",
        "SELECT * FROM 'linked/secret.csv'",
        "SELECT * FROM '*.csv'",
        "SELECT * FROM read_text(['flights.csv', '../outside/secret.csv'])",
    ],
)
async def test_nothing_outside_of_the_roots_is_read(engine: DuckdbEngine, sql: str) -> None:
    assert await refused(engine, sql) == "path_denied"


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM 'http://127.0.0.1:1/x.csv'",
        "SELECT * FROM 'https://example.com/x.parquet'",
        "SELECT * FROM read_csv('s3://bucket/x.csv')",
        "SELECT * FROM read_parquet('gcs://bucket/x.parquet')",
        "SELECT * FROM read_text('hf://datasets/x/y')",
    ],
)
async def test_nothing_is_fetched(engine: DuckdbEngine, sql: str) -> None:
    assert await refused(engine, sql) == "extension_missing"


@pytest.mark.parametrize("name", ["connection", "request"])
async def test_variables_of_the_process_are_no_tables(engine: DuckdbEngine, name: str) -> None:
    assert await refused(engine, f"SELECT * FROM {name}") == "query_refused"


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT repeat('x', 4000000000)",
        "SELECT repeat('x', 1500000000)",
        "SELECT length(repeat('x', 4000000000))",
        "SELECT len(list_transform(range(200000000), x -> x::VARCHAR || 'some text that is long'))",
        "SELECT string_agg(repeat('x', 1000000), '') FROM range(4000)",
    ],
)
async def test_a_query_that_wants_gigabytes_fails_alone(engine: DuckdbEngine, sql: str) -> None:
    assert await refused(engine, sql) in {"query_out_of_memory", "query_crashed", "query_failed", "row_too_large"}
    assert await read(engine, "SELECT 1 AS one") == [{"one": 1}]


async def test_spilling_has_an_end(engine: DuckdbEngine) -> None:
    sql = "SELECT x, repeat(x::VARCHAR, 40) AS y FROM range(20000000) t(x) ORDER BY hash(x)"
    assert await refused(engine, sql) == "query_spill_full"


async def test_the_spill_of_another_job_cannot_be_read(engine: DuckdbEngine, place: Path) -> None:
    async with engine.open(Query("SELECT * FROM range(100000000)")) as other:
        await anext(other.batches())
        (mine,) = (place / "spill").glob("*/*")
        (mine / "spilled.csv").write_text(f"secret\n{SECRET}\n")

        assert await refused(engine, f"SELECT * FROM '{mine}/spilled.csv'") == "path_denied"
        assert await refused(engine, f"SELECT * FROM glob('{mine}/*')") == "path_denied"
    assert not mine.exists()


async def test_a_folder_that_is_hidden_in_a_root_is_not_read(place: Path) -> None:
    settings = DuckdbSettings(roots=(place,), hidden=(place / "outside",), spill_folder=place / "spill")
    engine = DuckdbEngine("duckdb", settings)
    try:
        assert len(await read(engine, "SELECT * FROM 'root/flights.csv'")) == 2
        assert await refused(engine, "SELECT * FROM 'outside/secret.csv'") == "query_failed"
        assert await refused(engine, "SELECT * FROM 'root/link.csv'") == "query_failed"
        assert await refused(engine, "SELECT * FROM read_text('outside/*')") == "query_failed"
        assert "outside/secret.csv" not in await engine.tables(Query(""), "local", "files")
    finally:
        await engine.close()


async def test_the_child_has_no_environment(engine: DuckdbEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STARBURST_PASSWORD", SECRET)
    async with engine.open(Query("SELECT * FROM range(100000000)")) as stream:
        await anext(stream.batches())
        pid = str(stream.progress.query_id).removeprefix("pid ")
        assert SECRET.encode() not in Path(f"/proc/{pid}/environ").read_bytes()
        opened = {os.readlink(entry) for entry in Path(f"/proc/{pid}/fd").iterdir()}
        assert not [name for name in opened if "socket" in name]


async def test_a_root_full_of_modules_is_no_place_to_import_from(place: Path) -> None:
    trap = place / "root" / "json.py"
    trap.write_text(f"open({str(place / 'trapped')!r}, 'w')")
    engine = DuckdbEngine("duckdb", DuckdbSettings(roots=(place / "root",), spill_folder=place / "spill"))
    try:
        assert await read(engine, "SELECT 1 AS one") == [{"one": 1}]
    finally:
        await engine.close()
        trap.unlink()
    assert not (place / "trapped").exists()


WITHOUT_LANDLOCK = """
from paddock.engines.children import landlock
landlock.version = lambda: 0
from paddock.engines.children.duckdb_child import main
main()
"""


async def test_without_landlock_the_settings_of_duckdb_hold_alone(place: Path) -> None:
    settings = DuckdbSettings(roots=(place / "root",), spill_folder=place / "spill")
    engine = DuckdbEngine("duckdb", settings)
    engine._children = Children(["-c", WITHOUT_LANDLOCK], place / "spill")
    try:
        assert len(await read(engine, "SELECT * FROM 'flights.csv'")) == 2
        for path in ("/etc/passwd", "../outside/secret.csv", "link.csv", "linked/secret.csv", "/proc/self/environ"):
            assert await refused(engine, f"SELECT * FROM read_text('{path}')") == "path_denied"
        engine.settings = settings.model_copy(update={"require_landlock": True})
        assert await refused(engine, "SELECT * FROM 'flights.csv'") == "sandbox_missing"
    finally:
        await engine.close()
