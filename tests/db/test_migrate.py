"""Migrations: each is applied once, whole, in order, however many processes start at the same time."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import asyncpg
import pytest

from paddock.db import migrate as migrations_module
from paddock.db.migrate import ChecksumChanged, MigrationError, SchemaTooNew, ServerTooOld, migrate
from tests.conftest import Server


@pytest.fixture
async def dsn(postgres: Server) -> AsyncIterator[str]:
    """Of an empty database."""
    yield await postgres.create_database("unmigrated")
    await postgres.drop_database("unmigrated")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "0001_jobs.sql").write_text("CREATE TABLE jobs (id int);\nINSERT INTO jobs VALUES (1);\n")
    (tmp_path / "0002_more.sql").write_text("INSERT INTO jobs VALUES (2);\n")
    (tmp_path / "README.md").write_text("not a migration")
    return tmp_path


async def fetch(dsn: str, sql: str) -> list[tuple[object, ...]]:
    connection = await asyncpg.connect(dsn)
    try:
        return [tuple(row) for row in await connection.fetch(sql)]
    finally:
        await connection.close()


async def test_applies_in_order_and_once(dsn: str, folder: Path) -> None:
    assert await migrate(dsn, {"core": folder}) == ["0001_jobs", "0002_more"]
    assert await migrate(dsn, {"core": folder}) == []
    (folder / "0003_last.sql").write_text("INSERT INTO jobs VALUES (3);")
    assert await migrate(dsn, {"core": folder}) == ["0003_last"]
    assert await fetch(dsn, "SELECT id FROM jobs") == [(1,), (2,), (3,)]
    recorded = await fetch(dsn, "SELECT version, name FROM schema_migrations WHERE applied_at <= now() ORDER BY 1")
    assert recorded == [(1, "0001_jobs"), (2, "0002_more"), (3, "0003_last")]


async def test_sixteen_at_once(dsn: str, folder: Path) -> None:
    # With an index built concurrently, which waits for the snapshots of all other sessions, the waiting ones included.
    (folder / "0003_index.sql").write_text(
        "-- no-transaction\nCREATE INDEX CONCURRENTLY IF NOT EXISTS jobs_id ON jobs (id)"
    )
    async with asyncio.timeout(60):
        applied = await asyncio.gather(*(migrate(dsn, {"core": folder}) for _ in range(16)))
    assert sorted(applied) == [[]] * 15 + [["0001_jobs", "0002_more", "0003_index"]]
    assert await fetch(dsn, "SELECT id FROM jobs") == [(1,), (2,)]
    assert await fetch(dsn, "SELECT indisvalid FROM pg_index WHERE indexrelid = 'jobs_id'::regclass") == [(True,)]


async def test_failed_migration_leaves_nothing_of_itself(dsn: str, folder: Path) -> None:
    (folder / "0003_bad.sql").write_text("INSERT INTO jobs VALUES (3);\nSELECT no_such_function();\n")
    with pytest.raises(MigrationError, match=r"0003_bad failed and was not recorded: .*no_such_function"):
        await migrate(dsn, {"core": folder})
    assert await fetch(dsn, "SELECT id FROM jobs") == [(1,), (2,)]
    (folder / "0003_bad.sql").write_text("INSERT INTO jobs VALUES (3);\n")
    assert await migrate(dsn, {"core": folder}) == ["0003_bad"]


async def test_migration_and_its_record_commit_together(dsn: str, folder: Path) -> None:
    # The record cannot be written, because the migration itself has taken its number.
    (folder / "0003_bad.sql").write_text(
        "INSERT INTO jobs VALUES (3);\nINSERT INTO schema_migrations (version, name, checksum) VALUES (3, '', '');\n"
    )
    with pytest.raises(MigrationError, match="0003_bad failed and was not recorded"):
        await migrate(dsn, {"core": folder})
    assert await fetch(dsn, "SELECT id FROM jobs") == [(1,), (2,)]
    assert await fetch(dsn, "SELECT max(version) FROM schema_migrations") == [(2,)]


async def test_changed_file_is_refused(dsn: str, folder: Path) -> None:
    await migrate(dsn, {"core": folder})
    (folder / "0002_more.sql").write_text("INSERT INTO jobs VALUES (99);\n")
    (folder / "0003_next.sql").write_text("INSERT INTO jobs VALUES (3);\n")
    with pytest.raises(ChecksumChanged, match="0002_more has changed since it was applied"):
        await migrate(dsn, {"core": folder})
    assert await fetch(dsn, "SELECT id FROM jobs") == [(1,), (2,)]


async def test_a_newer_database_is_refused_and_left_as_it_is(dsn: str, folder: Path) -> None:
    (folder / "0004_newer.sql").write_text("INSERT INTO jobs VALUES (4);\n")
    await migrate(dsn, {"core": folder})
    (folder / "0004_newer.sql").unlink()
    (folder / "0003_ours.sql").write_text("INSERT INTO jobs VALUES (3);\n")
    with pytest.raises(SchemaTooNew, match=r"newer release: .* does not know 0004_newer\. Start that release"):
        await migrate(dsn, {"core": folder})
    assert await fetch(dsn, "SELECT id FROM jobs ORDER BY id") == [(1,), (2,), (4,)]


@pytest.fixture
def stables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a capability, whose numbers are its own."""
    folder = tmp_path_factory.mktemp("stables")
    (folder / "0001_stables.sql").write_text("CREATE TABLE stables AS SELECT max(id) AS jobs FROM jobs;\n")
    return folder


async def test_the_core_comes_first_and_each_owner_has_its_own_numbers(dsn: str, folder: Path, stables: Path) -> None:
    folders = {"core": folder, "stables": stables, "without": folder / "none"}
    assert await migrate(dsn, folders) == ["0001_jobs", "0002_more", "stables/0001_stables"]
    assert await migrate(dsn, folders) == []
    assert await fetch(dsn, "SELECT jobs FROM stables") == [(2,)]
    recorded = await fetch(dsn, "SELECT capability, version, name FROM schema_migrations ORDER BY 1, 2")
    assert recorded == [("core", 1, "0001_jobs"), ("core", 2, "0002_more"), ("stables", 1, "0001_stables")]


async def test_an_uninstalled_capability_is_no_newer_schema_and_goes_on_when_it_is_back(
    dsn: str, folder: Path, stables: Path
) -> None:
    await migrate(dsn, {"core": folder, "stables": stables})
    assert await migrate(dsn, {"core": folder}) == []
    assert await fetch(dsn, "SELECT jobs FROM stables") == [(2,)]
    (stables / "0002_more.sql").write_text("INSERT INTO stables VALUES (9);\n")
    assert await migrate(dsn, {"core": folder, "stables": stables}) == ["stables/0002_more"]
    (stables / "0002_more.sql").unlink()
    with pytest.raises(SchemaTooNew, match=r"does not know stables/0002_more\."):
        await migrate(dsn, {"core": folder, "stables": stables})


async def test_old_server_is_refused(dsn: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(migrations_module, "OLDEST_SERVER", 99)
    with pytest.raises(ServerTooOld, match=r"PostgreSQL 18; Paddock needs 99 or newer"):
        await migrate(dsn, {"core": folder})
    assert await fetch(dsn, "SELECT to_regclass('schema_migrations')") == [(None,)]


@pytest.mark.parametrize(
    ("names", "sentence"),
    [
        (["1_short.sql"], "1_short.sql is not named like 0001_name.sql"),
        (["0001_a.sql", "0001_b.sql"], "have one number"),
    ],
)
def test_folder_with_wrong_names(tmp_path: Path, names: list[str], sentence: str) -> None:
    for name in names:
        (tmp_path / name).write_text("SELECT 1")
    with pytest.raises(MigrationError, match=sentence):
        migrations_module.read_migrations(tmp_path)
