"""Each named statement is valid on the migrated schema and runs in the pool whose durability it needs."""

from importlib.resources import files

import pytest

from paddock.db.pool import Statement, open_database, statements

# Claims, beats, reports and reads may be lost in a crash. Whatever is not listed here commits synchronously.
MAY_BE_LOST = {
    "claim_jobs",
    "claim_only",
    "beat_session",
    "report_jobs",
    "note_unlisted",
    "note_stale_writes",
    "stamp_service",
}
# Parts that their module puts together; the tests of reading run what comes out.
PARTS = {"reading.sql"}


def named() -> list[Statement]:
    folder = files("paddock.jobs.sql")
    names = sorted(item.name for item in folder.iterdir() if item.name.endswith(".sql") and item.name not in PARTS)
    return [statement for name in names for statement in statements("paddock.jobs.sql", name).values()]


WHOLE = [statement for statement in named() if "{" not in statement.sql]


async def test_every_statement_is_valid_and_runs_with_the_durability_it_needs(dsn: str) -> None:
    async with open_database(dsn, durable=1, relaxed=1) as db:
        for statement in WHOLE:
            async with db.pool(statement.pool).acquire() as connection:
                await connection.prepare(statement.sql)
                commit = await connection.fetchval("SHOW synchronous_commit")
                assert commit == ("on" if statement.pool == "durable" else "off"), statement.name


@pytest.mark.parametrize("statement", WHOLE, ids=lambda statement: statement.name)
def test_what_writes_is_durable_unless_it_may_be_lost(statement: Statement) -> None:
    writes = any(word in statement.sql.upper() for word in ("INSERT INTO", "UPDATE ", "DELETE FROM"))
    locks = "FOR UPDATE" in statement.sql.upper()
    if statement.pool == "relaxed" and writes and not locks:
        assert statement.name in MAY_BE_LOST
