"""What people and autoscalers see with SQL: a stable interface, and all that its role may see."""

import contextlib
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import TypeAlias

import asyncpg
import pytest

from paddock.db.migrate import migrate
from paddock.jobs.core import Core
from tests.conftest import DatabaseClock, Server
from tests.playing import submit, worker

Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"

COLUMNS = {
    "job_queue": "id kind status priority owner claimed_by claimed_at visible_at updated_at turn_count attempt_count "
    "error_code error_message",
    "export_jobs": "id status owner claimed_by claimed_at visible_at updated_at created_at completed_at snapshot_id "
    "entity_type entity_name engine starburst_role starburst_query_id next_uri poll_count submitted_at row_count "
    "size_bytes attempt_count error_code error_message",
}


@pytest.mark.parametrize("view", COLUMNS)
async def test_the_columns_are_these(connection: Connection, view: str) -> None:
    statement = await connection.prepare(f"SELECT * FROM {view}")
    assert [column.name for column in statement.get_attributes()] == COLUMNS[view].split()


async def test_the_queue_is_what_lives(core: Core, clock: DatabaseClock, connection: Connection) -> None:
    claimed, waiting, ended = await submit(core, n=3)
    played = await worker(core, "w1")
    await played.claim_one()
    await core.cancel([ended], actor="ann")
    rows = {row["id"]: row for row in await connection.fetch("SELECT * FROM job_queue")}
    assert set(rows) == {claimed, waiting}
    assert (rows[claimed]["status"], rows[claimed]["claimed_by"], rows[claimed]["attempt_count"]) == (
        "claimed",
        "w1",
        1,
    )
    lease = await connection.fetchval("SELECT expires_at FROM sessions")
    assert (rows[claimed]["visible_at"], rows[waiting]["visible_at"]) == (lease, clock.at)


async def test_the_backlog_is_what_workers_are_needed_for(
    core: Core, clock: DatabaseClock, connection: Connection
) -> None:
    await submit(core, n=4)
    await submit(core, "other")
    await submit(core, delay=timedelta(days=1))
    played = await worker(core)
    await (await played.claim_one("plain")).finish()
    await (await played.claim_one("plain")).finish("again", delay_seconds=3600, waiting_on="query")
    await played.claim_one("plain")
    backlog = "SELECT paddock_backlog($1)"
    assert await connection.fetchval(backlog, ["plain"]) == 3, "running, waiting outside, due"
    assert await connection.fetchval(backlog, ["plain", "other"]) == 4
    assert await connection.fetchval(backlog, ["nonesuch"]) == 0


async def test_a_paused_kind_wakes_nobody_but_what_waits_outside_is_looked_at(
    core: Core, clock: DatabaseClock, connection: Connection
) -> None:
    both = "SELECT ARRAY[paddock_backlog($1), paddock_unfinished($1)]"
    await submit(core, n=3)
    await submit(core, "other")
    await core.pause("plain", actor="ann")
    assert await connection.fetchval(both, ["plain"]) == [0, 0]
    assert await connection.fetchval(both, ["plain", "plain", "other"]) == [1, 1], "a kind named twice counts once"
    await core.resume("plain", actor="ann")
    played = await worker(core)
    await (await played.claim_one("plain")).finish("again", delay_seconds=3600, waiting_on="query")
    await played.claim_one("plain")
    await core.pause("plain", actor="ann")
    assert await connection.fetchval(both, ["plain"]) == [2, 2], "one waits outside, one runs; the third is held back"


async def test_a_scaler_of_one_worker_for_each_job_counts_what_a_worker_waits_with(
    core: Core, clock: DatabaseClock, connection: Connection
) -> None:
    await submit(core, n=3)
    await submit(core, delay=timedelta(days=1))
    played = await worker(core)
    await (await played.claim_one("plain")).finish("again", delay_seconds=3600)
    await (await played.claim_one("plain")).finish("transient")
    assert await connection.fetchval("SELECT paddock_backlog('{plain}')") == 1, "due; neither of those that began"
    assert await connection.fetchval("SELECT paddock_unfinished('{plain}')") == 3
    await clock.advance(minutes=90)
    assert await connection.fetchval("SELECT paddock_backlog('{plain}')") == 3
    assert await connection.fetchval("SELECT paddock_unfinished('{plain}')") == 3, "due ones that began count once"


async def test_an_export_is_told_while_it_runs_and_after_without_its_capability_url(
    core: Core, clock: DatabaseClock, connection: Connection
) -> None:
    [id] = await submit(core)
    attempt = await (await worker(core, "w1")).claim_one()
    saved = '{"query_id": "q1", "poll_count": 3, "handle": {"next_uri": "https://trino/v1/statement/hunter2"}}'
    await connection.execute("UPDATE jobs SET kind = 'export', saved = $1, report = '{\"rows\": 7}'", saved)
    [live] = await connection.fetch("SELECT * FROM export_jobs")
    told = ("id", "status", "claimed_by", "starburst_query_id", "next_uri", "poll_count", "row_count")
    assert [live[name] for name in told] == [id, "claimed", "w1", "q1", "********", 3, 7]

    await connection.execute("UPDATE jobs SET kind = 'plain'")
    await attempt.finish(result={"query_id": "q1", "rows": 8, "bytes": 9})
    await connection.execute("UPDATE job_history SET kind = 'export'")
    [ended] = await connection.fetch("SELECT * FROM export_jobs")
    kept = ("id", "status", "starburst_query_id", "next_uri", "row_count", "size_bytes")
    assert [ended[name] for name in kept] == [id, "completed", "q1", None, 8, 9]
    assert "hunter2" not in f"{live} {ended}"


@contextlib.asynccontextmanager
async def connected_as(postgres: Server, role: str) -> AsyncIterator[Connection]:
    """To a database that was migrated after its operator had made the role."""
    owner = await asyncpg.connect(postgres.dsn)
    await owner.execute(f"CREATE ROLE {role}")
    dsn = await postgres.create_database(f"for_{role}")
    await migrate(dsn)
    connection = await asyncpg.connect(dsn)
    await connection.execute(f"SET ROLE {role}")
    yield connection
    await connection.close()
    await postgres.drop_database(f"for_{role}")
    await owner.execute(f"DROP ROLE {role}")
    await owner.close()


@pytest.fixture
async def as_reader(postgres: Server) -> AsyncIterator[Connection]:
    async with connected_as(postgres, "paddock_reader") as connection:
        yield connection


@pytest.fixture
async def as_scaler(postgres: Server) -> AsyncIterator[Connection]:
    async with connected_as(postgres, "paddock_scaler") as connection:
        yield connection


RELATIONS = """
SELECT relname, has_table_privilege(oid, 'SELECT') AS reads,
       has_table_privilege(oid, 'INSERT, UPDATE, DELETE, TRUNCATE') AS writes
FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p', 'v', 'm')
"""


async def test_the_scaler_calls_two_functions_and_reads_nothing(as_scaler: Connection) -> None:
    assert not [row["relname"] for row in await as_scaler.fetch(RELATIONS) if row["reads"] or row["writes"]]
    assert await as_scaler.fetchval("SELECT paddock_backlog('{plain}')") == 0
    assert await as_scaler.fetchval("SELECT paddock_unfinished('{plain}')") == 0
    for refused in ("paddock_work('{plain}', true)", "paddock_draining()", "count(*) FROM job_queue"):
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await as_scaler.fetch(f"SELECT {refused}")


async def test_the_reader_sees_these_and_nothing_else(as_reader: Connection) -> None:
    relations = await as_reader.fetch(RELATIONS)
    assert {row["relname"] for row in relations if row["reads"]} == set(COLUMNS)
    assert not [row["relname"] for row in relations if row["writes"]]
    for view in COLUMNS:
        assert await as_reader.fetch(f"SELECT * FROM {view}") == []
    assert await as_reader.fetchval("SELECT paddock_backlog('{plain}')") == 0
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        await as_reader.fetch("SELECT saved FROM jobs")
