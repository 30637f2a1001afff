"""Beats that come while another is on its way go to the database in one statement."""

import asyncio
from typing import Any
from uuid import uuid4

import asyncpg
import pytest

from paddock.jobs.core import Core
from paddock.jobs.link import SessionUnknown
from paddock.jobs.wire import Beat
from tests.playing import submit, worker


class Database:
    """Lets a test hold a statement back, and sees what each statement was about."""

    def __init__(self, core: Core) -> None:
        self.beats: list[list[Any]] = []
        self.open = asyncio.Event()
        self.problem: Exception | None = None
        self._fetch = core.db.fetch

    async def fetch(self, statement: Any, *arguments: Any) -> Any:
        if statement.name == "beat_sessions":
            self.beats.append(arguments[0])
            await self.open.wait()
            if self.problem is not None:
                raise self.problem
        return await self._fetch(statement, *arguments)


@pytest.fixture
def held(core: Core, monkeypatch: pytest.MonkeyPatch) -> Database:
    database = Database(core)
    monkeypatch.setattr(core.db, "fetch", database.fetch)
    return database


async def until_beaten(held: Database, times: int) -> None:
    while len(held.beats) < times:  # noqa: ASYNC110  what it waits for is in another task
        await asyncio.sleep(0)


async def test_the_first_goes_at_once_and_the_others_together(core: Core, held: Database) -> None:
    await submit(core, n=2)
    first, second, third = [await worker(core, name) for name in ("first", "second", "third")]
    [one] = await second.claim(limit=1)
    [other] = await third.claim(limit=1)
    await core.cancel([other.id], actor="ann")

    leading = asyncio.create_task(first.beat())
    await until_beaten(held, 1)
    following = [asyncio.create_task(beat) for beat in (second.beat(one), second.beat(one), third.beat(other))]
    unknown = asyncio.create_task(core.link().beat(uuid4(), Beat(holding=[])))
    await asyncio.sleep(0)
    held.open.set()

    assert await leading == []
    assert [await beat for beat in following] == [["accepted"], ["accepted"], ["cancelled"]]
    with pytest.raises(SessionUnknown):
        await unknown
    assert [len(sessions) for sessions in held.beats] == [1, 3]


async def test_who_stops_waiting_takes_nothing_from_the_others(core: Core, held: Database) -> None:
    patient = await worker(core)
    leading = asyncio.create_task(patient.beat())
    await until_beaten(held, 1)
    impatient, follower = asyncio.create_task(patient.beat()), asyncio.create_task(patient.beat())
    await asyncio.sleep(0)
    impatient.cancel()
    held.open.set()
    assert await leading == await follower == []


async def test_a_database_that_is_away_is_everybodys_problem_and_nobodys_for_ever(core: Core, held: Database) -> None:
    beating = await worker(core)
    held.problem = asyncpg.ConnectionDoesNotExistError("gone")
    held.open.set()
    answers = await asyncio.gather(beating.beat(), beating.beat(), return_exceptions=True)
    assert [type(answer) for answer in answers] == [asyncpg.ConnectionDoesNotExistError] * 2
    held.problem = None
    assert await beating.beat() == []
