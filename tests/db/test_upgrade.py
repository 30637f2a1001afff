"""A database that the version before made comes up to this one: its tokens keep what they were granted.

The version before numbered the migrations of exports and dumps among the core's, recorded no owner, and had a column
of `tokens` for each grant."""

import asyncio
import sys
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import asyncpg
import pytest
from prometheus_client import CollectorRegistry

from paddock.api.tokens import Tokens, everything, hashed
from paddock.config import Config
from paddock.db.migrate import Migration, migrate, migration_folders, read_migrations
from paddock.db.pool import open_database
from paddock.doctor.findings import Finding
from paddock.doctor.on_database import migrations as migrations_check
from paddock.jobs.core import open_core
from paddock.jobs.kinds import Kinds
from paddock.jobs.partitions import TAGS, drop_expired, make_ahead
from paddock.metrics import Metrics
from tests.conftest import SHAPE, Server

OLD_RECORDS = """
CREATE TABLE schema_migrations (
    version    int PRIMARY KEY,
    name       text NOT NULL,
    checksum   text NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT now()
)
"""
OLD_INSERT = """
INSERT INTO tokens (name, owner, role, secret_hash, kinds, engine_roles, engines, destinations, databases, expires_at,
                    created_by)
VALUES ($1, $1, 'analyst', $2, NULL, $3, $4, $5, $6, NULL, 'root')
"""
TOKENS: dict[str, tuple[list[str], ...]] = {
    "ada": (["finance", "people"], ["warehouse"], ["lake"], ["shop"]),
    "root": (["*"], ["*"], ["*"], ["*"]),
    "poor": ([], [], [], []),
}
GRANTS = ("engine_roles", "engines", "destinations", "databases")
OLD_EXPORT = """
INSERT INTO exports (id, job_id, owner, engine, request)
VALUES (gen_random_uuid(), gen_random_uuid(), 'ada', 'warehouse', '{}')
"""
OLD_DUMP = """
INSERT INTO dumps (id, job_id, database, owner, format, request, kept)
VALUES ('export_20261118-120000_abcdef', gen_random_uuid(), 'shop', 'ada', 'sql', '{}', interval '1 day')
"""


# As databases in use have recorded them: a file that was released never changes, or their next start is refused.
RELEASED = {
    "0001_core": "da87a3beddcf1db29b51243e9bdf5bb608bf72de6f78217a6ce325e3729ded8b",
    "0002_exports": "8aa2e1efd5243ac1cd9b7479da2445884945975b073df17f5061e9999dd03664",
    "0003_dumps": "f7dae2898b2dd64b142849c138db79fadb72fff89a1eda6a8a80c73b6074e084",
}


def old_migrations() -> list[Migration]:
    known = [migration for owner, folder in migration_folders().items() for migration in read_migrations(folder, owner)]
    return [migration for migration in known if migration.name in RELEASED]


def test_what_was_released_has_not_changed() -> None:
    assert {migration.name: migration.checksum for migration in old_migrations()} == RELEASED


async def make_old(dsn: str, migrations: list[Migration]) -> None:
    connection = await asyncpg.connect(dsn)
    try:
        await connection.execute(OLD_RECORDS)
        for migration in migrations:
            await connection.execute(migration.sql)
            await connection.execute(
                "INSERT INTO schema_migrations (version, name, checksum, applied_at) VALUES ($1, $2, $3, '2026-01-01Z')",
                migration.version,
                migration.name,
                migration.checksum,
            )
        for name, granted in TOKENS.items():
            await connection.execute(OLD_INSERT, name, hashed(f"pdk_{name}"), *granted)
    finally:
        await connection.close()


@pytest.fixture
async def empty(postgres: Server) -> AsyncIterator[str]:
    yield await postgres.create_database("of_the_version_before")
    await postgres.drop_database("of_the_version_before")


@pytest.fixture
async def old(empty: str) -> str:
    await make_old(empty, old_migrations())
    return empty


@pytest.fixture
async def connection(old: str) -> AsyncIterator["asyncpg.Connection[asyncpg.Record]"]:
    connection = await asyncpg.connect(old)
    yield connection
    await connection.close()


async def records(dsn: str) -> dict[tuple[str, int], tuple[str, bool]]:
    """The name of each migration, and whether the version before has applied it."""
    connection = await asyncpg.connect(dsn)
    try:
        rows = await connection.fetch(
            "SELECT capability, version, name, applied_at = '2026-01-01Z' AS old FROM schema_migrations"
        )
    finally:
        await connection.close()
    return {(row["capability"], row["version"]): (row["name"], row["old"]) for row in rows}


async def granted(dsn: str) -> dict[str, tuple[list[str], ...]]:
    """What each of the tokens may use, as whoever presents its secret finds it."""
    found = {}
    async with open_database(dsn, durable=1, relaxed=1) as db:
        for name in TOKENS:
            caller = await Tokens(db).by_secret(f"pdk_{name}")
            assert caller is not None
            found[name] = tuple(sorted(caller.granted(grant)) for grant in GRANTS)
    return found


async def test_the_records_get_their_owners_and_the_tokens_keep_their_grants(
    old: str, connection: "asyncpg.Connection[asyncpg.Record]"
) -> None:
    await connection.execute(OLD_EXPORT)
    await connection.execute(OLD_DUMP)

    applied = await migrate(old)

    assert "0005_grants" in applied
    assert not {str(migration) for migration in old_migrations()} & set(applied)
    found = await records(old)
    assert {key: name for key, (name, by_old) in found.items() if by_old} == {
        ("core", 1): "0001_core",
        ("exports", 2): "0002_exports",
        ("dumps", 3): "0003_dumps",
    }
    assert await granted(old) == TOKENS
    assert await connection.fetchval("SELECT owner FROM exports") == "ada"
    assert await connection.fetchval("SELECT owner FROM dumps") == "ada"
    assert await migrate(old) == [], "a second start finds nothing to do"
    assert await records(old) == found


async def test_it_ends_like_a_new_database(old: str, dsn: str) -> None:
    await migrate(old)
    shapes = []
    for each in (old, dsn):
        connection = await asyncpg.connect(each)
        shapes.append(await connection.fetchval(SHAPE))
        await connection.close()
    assert shapes[0] == shapes[1]


async def test_several_start_at_once(old: str) -> None:
    async with asyncio.timeout(60):
        applied = await asyncio.gather(*(migrate(old) for _ in range(4)))
    assert sorted(map(bool, applied)) == [False, False, False, True]
    assert await granted(old) == TOKENS


async def test_a_kill_between_two_steps(old: str, connection: "asyncpg.Connection[asyncpg.Record]") -> None:
    """The records have their owners and the tokens have no map yet: the next start goes on from there."""
    code = "import asyncio, sys; from paddock.db.migrate import migrate; asyncio.run(migrate(sys.argv[1]))"
    reading = connection.transaction()
    await reading.start()
    await connection.fetch("SELECT FROM tokens")  # which keeps everybody from changing the table
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", code, old)
    watching = await asyncpg.connect(old)
    try:
        waits = (
            "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database()"
            " AND wait_event_type = 'Lock' AND query LIKE '%ADD COLUMN grants%')"
        )
        async with asyncio.timeout(60):
            while not await watching.fetchval(waits):  # noqa: ASYNC110  the event is in the server
                await asyncio.sleep(0.02)
        process.kill()
        await process.wait()
    finally:
        await watching.close()
        if process.returncode is None:
            process.kill()
            await process.wait()
        await reading.rollback()

    async with asyncio.timeout(60):
        applied = await migrate(old)

    assert "0005_grants" in applied
    assert {key for key, (_, by_old) in (await records(old)).items() if by_old} == {
        ("core", 1),
        ("exports", 2),
        ("dumps", 3),
    }
    assert await granted(old) == TOKENS


WALK = """
SELECT c.relname, x.indisvalid FROM pg_index x JOIN pg_class c ON c.oid = x.indrelid JOIN pg_class i ON i.oid = x.indexrelid
WHERE c.relname LIKE 'job_history%' AND pg_get_indexdef(x.indexrelid) LIKE '%(group_id, id)%' ORDER BY 1
"""


async def test_jobs_are_claimed_while_indexes_of_their_history_are_made(
    old: str, connection: "asyncpg.Connection[asyncpg.Record]"
) -> None:
    await connection.execute(
        "CREATE TABLE job_history_week PARTITION OF job_history FOR VALUES FROM ('2026-01-05Z') TO ('2026-01-12Z')"
    )
    held = connection.transaction()
    await held.start()
    await connection.execute("LOCK TABLE job_history_week IN ROW EXCLUSIVE MODE")  # as whoever ends a job there
    upgrade = asyncio.create_task(migrate(old))
    worker = await asyncpg.connect(old)
    try:
        waits = """SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted AND relation = 'job_history_week'::regclass)"""
        async with asyncio.timeout(120):
            while not await worker.fetchval(waits):
                assert not upgrade.done(), upgrade.result()
                await asyncio.sleep(0.02)
        async with worker.transaction():
            await worker.execute("LOCK TABLE jobs, ONLY job_history, job_history_default IN ROW EXCLUSIVE MODE NOWAIT")
    finally:
        await worker.close()
        await held.rollback()
        async with asyncio.timeout(120):
            await upgrade

    whole = [("job_history", True), ("job_history_default", True), ("job_history_week", True)]
    assert [tuple(row) for row in await connection.fetch(WALK)] == whole
    # A kill may have come before it was recorded.
    await connection.execute("DELETE FROM schema_migrations WHERE name = '0008_walks'")
    assert await migrate(old) == ["0008_walks"]
    assert [tuple(row) for row in await connection.fetch(WALK)] == whole


FINDING = ["0012_finding", "0013_without_older_walks", "0014_about"]
OLD_JOBS = """
CREATE TABLE job_history_week PARTITION OF job_history FOR VALUES FROM ('2026-01-05Z') TO ('2026-01-12Z');
CREATE TABLE job_history_20260223 PARTITION OF job_history FOR VALUES FROM ('2026-02-23Z') TO ('2026-03-02Z');
INSERT INTO job_history (id, kind, status, priority, owner, tags, payload, turn_count, failure_count, cluster_count, lost_count,
                         error_code, created_at, completed_at, run_seconds, wait_seconds)
SELECT gen_random_uuid(), 'export', 'failed', 3, 'ada', tags, '{}', 1, 0, 0, 0, 'broken', at, at, 0, 0
FROM (VALUES ('{a,b,a}'::text[], '2026-01-06Z'::timestamptz), ('{a}', '2026-03-01Z'), ('{}', '2026-03-01Z')) AS of_old (tags, at);
INSERT INTO jobs (id, kind, status, priority, due_at, owner, tags, payload, created_at)
SELECT gen_random_uuid(), 'export', 'pending', 3, now(), 'ada', tags, '{}', now() FROM (VALUES ('{a}'::text[]), ('{}')) AS live (tags);
"""
WALKS = """
SELECT c.relname, count(*) FILTER (WHERE x.indisvalid) FROM pg_index x JOIN pg_class c ON c.oid = x.indrelid
WHERE c.relname LIKE 'job_history%' AND pg_get_indexdef(x.indexrelid) ~ '(kind, status|error_code), id\\)' GROUP BY 1 ORDER BY 1
"""


async def test_jobs_of_before_are_found_by_their_tags_too(
    old: str, connection: "asyncpg.Connection[asyncpg.Record]"
) -> None:
    await connection.execute(OLD_JOBS)
    await migrate(old)
    for _ in range(2):
        of_ended = await connection.fetch(
            "SELECT tag, kind, status, owner, error_code FROM job_history_tags ORDER BY tag"
        )
        assert [tuple(row) for row in of_ended] == [
            (tag, "export", "failed", "ada", "broken") for tag in ("a", "a", "b")
        ]
        assert [row["tag"] for row in await connection.fetch("SELECT tag FROM job_tags")] == ["a"]
        where = await connection.fetch(
            "SELECT tableoid::regclass::text, completed_at::date::text FROM job_history_tags ORDER BY completed_at"
        )
        assert [tuple(row) for row in where] == [
            ("job_history_tags_default", "2026-01-06"),
            ("job_history_tags_default", "2026-01-06"),
            ("job_history_tags_20260223", "2026-03-01"),
        ], "a week that upkeep made has one of its own for them"
        dated = ("job_history_20260223", 4)
        whole = [("job_history", 4), dated, ("job_history_default", 4), ("job_history_week", 4)]
        assert [tuple(row) for row in await connection.fetch(WALKS)] == whole
        assert await connection.fetchval("SELECT to_regclass('job_history_unhappy')") is None
        # A kill may have come before it was recorded.
        await connection.execute("DELETE FROM schema_migrations WHERE name = ANY ($1)", FINDING)
        assert await migrate(old) == FINDING


async def test_upkeep_knows_the_partitions_of_tags_that_the_upgrade_made(
    old: str, connection: "asyncpg.Connection[asyncpg.Record]"
) -> None:
    await connection.execute(OLD_JOBS)
    await migrate(old)
    async with open_database(old, durable=1, relaxed=1) as db:
        in_march = datetime(2026, 3, 1, tzinfo=UTC)
        assert await make_ahead(db, replace(TAGS, ahead=0), in_march) == 0, "it is there"
        assert await drop_expired(db, TAGS, in_march + timedelta(days=8)) == 1
    assert [row["tag"] for row in await connection.fetch("SELECT tag FROM job_history_tags ORDER BY tag")] == ["a", "b"]


async def test_workers_end_jobs_while_the_upgrade_waits_for_its_triggers(
    old: str, connection: "asyncpg.Connection[asyncpg.Record]"
) -> None:
    """It gives up after a moment and lets those pass who came after it."""
    await connection.execute(OLD_JOBS)
    await migrate(old)
    # As after a kill before the last trigger of jobs.
    await connection.execute("DROP TRIGGER jobs_tags_come ON jobs; DELETE FROM job_tags")
    await connection.execute("DELETE FROM schema_migrations WHERE name = ANY ($1)", FINDING)
    held = connection.transaction()
    await held.start()
    await connection.execute("LOCK TABLE jobs IN ROW EXCLUSIVE MODE")
    upgrade = asyncio.create_task(migrate(old))
    worker = await asyncpg.connect(old)
    try:
        waits = (
            "SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted AND relation = 'jobs'::regclass"
            " AND mode = 'ShareRowExclusiveLock')"
        )
        async with asyncio.timeout(120):
            while not await worker.fetchval(waits):
                assert not upgrade.done(), upgrade.result()
                await asyncio.sleep(0.02)
            await worker.execute("DELETE FROM jobs WHERE tags = '{}'")
    finally:
        await worker.close()
        await held.rollback()
        async with asyncio.timeout(120):
            await upgrade
    triggers = (
        "SELECT tgname FROM pg_trigger WHERE NOT tgisinternal AND tgparentid = 0 AND tgname LIKE 'job%tags%' ORDER BY 1"
    )
    made = [row["tgname"] for row in await connection.fetch(triggers)]
    assert made == ["job_history_note_tags", "jobs_tags_come", "jobs_tags_go"]
    assert [row["tag"] for row in await connection.fetch("SELECT tag FROM job_tags")] == ["a"]


async def test_more_live_jobs_than_are_locked_at_once_get_all_their_tags(
    old: str, connection: "asyncpg.Connection[asyncpg.Record]"
) -> None:
    await connection.execute(
        """INSERT INTO jobs (id, kind, status, priority, due_at, owner, tags, payload, created_at)
           SELECT gen_random_uuid(), 'export', 'pending', 3, now(), 'ada', '{a,b}', '{}', now() FROM generate_series(1, 10050)"""
    )
    await migrate(old)
    missing = (
        "SELECT count(*) FROM (SELECT t, id FROM jobs, unnest(tags) t EXCEPT SELECT tag, id FROM job_tags) missing"
    )
    assert await connection.fetchval(missing) == 0
    assert await connection.fetchval("SELECT count(*) FROM job_tags") == 20_100


async def test_exports_are_not_written_again(old: str, connection: "asyncpg.Connection[asyncpg.Record]") -> None:
    """They would be locked for as long as that takes, with the queries of all of them."""
    await connection.execute(OLD_EXPORT)
    before = await connection.fetchval("SELECT pg_relation_filenode('exports')")
    await migrate(old)
    assert await connection.fetchval("SELECT pg_relation_filenode('exports')") == before


async def test_a_version_before_that_was_killed_in_between(empty: str) -> None:
    await make_old(empty, [migration for migration in old_migrations() if migration.name != "0003_dumps"])
    applied = await migrate(empty)
    assert "dumps/0003_dumps" in applied
    assert "exports/0002_exports" not in applied
    assert await granted(empty) == TOKENS


async def test_control_planes_of_the_version_before_go_on_beside_it(
    old: str, connection: "asyncpg.Connection[asyncpg.Record]"
) -> None:
    """They read and write a column for each grant: a token made by either is the same to both."""
    await connection.execute("DELETE FROM tokens WHERE name = 'ada'")
    await migrate(old)
    await connection.execute(OLD_INSERT, "ada", hashed("pdk_ada"), *TOKENS["ada"])
    assert await granted(old) == TOKENS
    async with open_database(old, durable=1, relaxed=1) as db:
        await Tokens(db).create(everything("new", "admin"), actor="test")
        await Tokens(db).keep(everything("poor", "analyst"), "pdk_poor", actor="test")
    rows = await connection.fetch("SELECT * FROM tokens WHERE name IN ('new', 'poor')")
    assert [[row[grant] for grant in GRANTS] for row in rows] == [[["*"]] * 4] * 2


async def test_doctor_tells_missing_and_newer_migrations_and_whose_are_kept(
    old: str, connection: "asyncpg.Connection[asyncpg.Record]"
) -> None:
    await migrate(old)
    record = "INSERT INTO schema_migrations (capability, version, name, checksum) VALUES ($1, $2, $3, '')"
    async with open_core(old, Kinds(), metrics=Metrics(CollectorRegistry())) as core:

        async def finding() -> Finding:
            [found] = [found async for found in migrations_check(core, Config())]
            return found

        assert (await finding()).message.endswith(" applied, none missing.")
        await connection.execute(record, "stables", 1, "0001_stables")
        assert (await finding()).level == "ok"
        assert (await finding()).message.endswith("Tables of what is not installed here are kept: stables.")
        await connection.execute(record, "exports", 99, "0099_more")
        assert (await finding()).level == "warning"
        assert "newer release: exports/0099_more." in (await finding()).message
        await connection.execute("DELETE FROM schema_migrations WHERE capability = 'dumps'")
        assert (await finding()).level == "broken"
        assert (await finding()).message == "Not applied: dumps/0003_dumps."
