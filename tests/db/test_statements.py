"""Each named statement is valid on the migrated schema and runs in the pool whose durability it needs."""

import re
from importlib.resources import files

import pytest

from paddock.db.pool import Statement, open_database, statements

# Claims, beats, reports, logs and last-used times may be lost in a crash. Whatever else writes commits synchronously.
MAY_BE_LOST = {
    "claim_jobs",
    "claim_only",
    "claim_shared",
    "beat_sessions",
    "report_jobs",
    "note_unlisted",
    "note_stale_writes",
    "stamp_service",
    "append_logs",
    "touch_token",
}
# Files of parts that their module puts together; the tests of reading run what comes out.
PARTS = {"reading.sql"}
WRITES = re.compile(r"\b(INSERT INTO|DELETE FROM|(?<!FOR )(?<!DO )UPDATE \w+( \w+)? SET)\b", re.DOTALL)


def named() -> list[Statement]:
    found: list[Statement] = []
    for package in ("paddock.jobs.sql", "paddock.api.sql"):
        for item in sorted(files(package).iterdir(), key=lambda item: item.name):
            if item.name.endswith(".sql") and item.name not in PARTS:
                found.extend(statements(package, item.name).values())
    return [statement for statement in found if "{" not in statement.sql]


async def test_every_statement_is_valid_and_runs_with_the_durability_it_needs(dsn: str) -> None:
    async with open_database(dsn, durable=1, relaxed=1) as db:
        for statement in named():
            async with db.pool(statement.pool).acquire() as connection:
                await connection.prepare(statement.sql)
                commit = await connection.fetchval("SHOW synchronous_commit")
                assert commit == ("on" if statement.pool == "durable" else "off"), statement.name


@pytest.mark.parametrize("statement", named(), ids=lambda statement: statement.name)
def test_what_writes_is_durable_unless_it_may_be_lost(statement: Statement) -> None:
    folded = " ".join(line for line in statement.sql.split() if line)
    if statement.pool == "relaxed" and WRITES.search(folded):
        assert statement.name in MAY_BE_LOST


def test_what_may_be_lost_is_recognised_as_writing() -> None:
    """So that the rule above cannot rot: every exception is one it would otherwise catch."""
    caught = {statement.name for statement in named() if WRITES.search(" ".join(statement.sql.split()))}
    assert caught >= MAY_BE_LOST
