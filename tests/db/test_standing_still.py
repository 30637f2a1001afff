"""A process that stops in the middle of a transaction, or whose machine vanishes, keeps nobody's rows for long."""

import asyncio

import asyncpg
import pytest

from paddock.api.database_problems import UNREACHABLE, database_problem
from paddock.db.pool import UNAVAILABLE, Database, open_database


async def test_the_database_ends_what_stands_still_in_a_transaction(dsn: str) -> None:
    async with open_database(dsn, durable=2, relaxed=2) as db:
        for pool in (db.pool("durable"), db.pool("relaxed")):
            assert await pool.fetchval("SHOW idle_in_transaction_session_timeout") == "1min"


async def test_its_rows_are_free_then_and_it_hears_that_the_database_went(
    dsn: str, connection: "asyncpg.Connection[asyncpg.Record]"
) -> None:
    async def stand_still(db: Database) -> None:
        async with db.transaction() as tx:
            await tx.execute("SELECT FROM service FOR UPDATE")
            await tx.execute("SET LOCAL idle_in_transaction_session_timeout = '20ms'")
            async with asyncio.timeout(60):
                await connection.execute("SELECT FROM service FOR UPDATE")
            await tx.execute("UPDATE service SET drained = drained")

    async with open_database(dsn, durable=2, relaxed=2) as db:
        with pytest.raises(UNAVAILABLE) as caught:
            await stand_still(db)
        assert database_problem(caught.value) == UNREACHABLE
        assert await db.pool("durable").fetchval("SELECT 1") == 1
