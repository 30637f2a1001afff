"""Renewing leases together: the first beat goes to the database at once, what comes meanwhile goes in one statement.

A statement's fixed cost is that of a hundred and more running jobs: many workers on a busy control plane share it.
"""

import asyncio
from collections.abc import Iterable
from datetime import timedelta
from uuid import UUID

import asyncpg

from paddock.db.pool import Database, statements

SQL = statements("paddock.jobs.sql", "sessions.sql")
MOST_TOGETHER = 100

Answer = asyncio.Future[asyncpg.Record | None]


class _Waiting:
    """The beats of one session that go out next; of several the last says whether it is dying."""

    def __init__(self) -> None:
        self.dying = False
        self.answers: list[Answer] = []


class Beats:
    def __init__(self, db: Database, lease: timedelta, claim_grace: timedelta) -> None:
        self._db = db
        self._lease = lease
        self._claim_grace = claim_grace
        self._waiting: dict[UUID, _Waiting] = {}
        self._sending: asyncio.Task[None] | None = None

    async def renew(self, session: UUID, *, dying: bool) -> asyncpg.Record | None:
        """What the session holds, its lease renewed; None when there is no such session."""
        waiting = self._waiting.setdefault(session, _Waiting())
        waiting.dying = dying
        # One for each caller: whoever gives up waiting takes nothing from the others.
        answer: Answer = asyncio.get_running_loop().create_future()
        waiting.answers.append(answer)
        if self._sending is None:
            self._sending = asyncio.create_task(self._send())
        return await answer

    async def _send(self) -> None:
        try:
            while self._waiting:
                taken = sorted(self._waiting)[:MOST_TOGETHER]
                await self._renew({session: self._waiting.pop(session) for session in taken})
        finally:
            self._sending = None

    async def _renew(self, beats: dict[UUID, _Waiting]) -> None:
        try:
            rows = await self._db.fetch(
                SQL["beat_sessions"],
                list(beats),
                [beat.dying for beat in beats.values()],
                self._lease,
                self._claim_grace,
            )
        except Exception as problem:  # whatever it is, it is the callers' to hear
            for answer in _open(beats.values()):
                answer.set_exception(problem)
            return
        found = {row["id"]: row for row in rows}
        for session, beat in beats.items():
            for answer in _open([beat]):
                answer.set_result(found.get(session))


def _open(beats: Iterable[_Waiting]) -> list[Answer]:
    return [answer for beat in beats for answer in beat.answers if not answer.done()]
