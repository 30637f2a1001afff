"""Found by chaos: between a dying server's last words and the close of its connection asyncpg raises something that is
none of its documented errors. It ended the notifier of that replica for good, and was answered with a 500."""

import asyncio
from collections.abc import Iterator

import asyncpg
import pytest

from paddock.api.database_problems import database_away
from paddock.db.pool import Database, Statement
from paddock.jobs.wakeups import Notifier, Wake
from tests.properties.rows import NEVER

DYING = asyncpg.InternalClientError("cannot switch to state 12; another operation (2) is in progress")


class Dying(Database):
    """Fails once, then takes what it is given."""

    def __init__(self) -> None:
        self.answers: Iterator[Exception] = iter([DYING])
        self.sent = asyncio.Event()

    async def execute(self, statement: Statement, *arguments: object) -> str:
        for problem in self.answers:
            raise problem
        self.sent.set()
        return ""


@pytest.mark.parametrize("problem", [DYING, asyncpg.ConnectionDoesNotExistError(), ConnectionResetError()])
def test_a_dying_connection_is_a_database_that_is_away(problem: Exception) -> None:
    assert database_away(problem)


async def test_the_notifier_outlives_a_dying_connection() -> None:
    db = Dying()
    notifier = Notifier(db)
    running = asyncio.create_task(notifier.run())
    notifier.wake([Wake("plain", 3, NEVER, 0.0)])
    await asyncio.sleep(0.05)
    notifier.wake([Wake("plain", 3, NEVER, 0.0)])
    async with asyncio.timeout(60):
        await db.sent.wait()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
