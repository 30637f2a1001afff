"""What a worker's token reaches: jobs of its kinds and sessions that offer no others, and never what runs inside `serve`.

The fence alone does not keep a token to its kinds: whoever learns an attempt's id (a timeline shows it) passes it. And
whoever learns the id of a session would speak for its worker: a beat that lists nothing gives its jobs back, one that says
that it is dying ends it, and any keeps a dead worker's jobs from the others.
"""

from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING
from uuid import UUID

import asyncpg

from paddock.db.pool import Database, statements

if TYPE_CHECKING:
    from paddock.jobs.kinds import Kinds

SQL = statements("paddock.jobs.sql", "fencing.sql")
SESSIONS = statements("paddock.jobs.sql", "sessions.sql")
MOST_REMEMBERED = 50_000


class JobKinds:
    """The kinds of the jobs that workers write to. A job's kind never changes, so what was seen once, mostly at the
    claim, is remembered: a write costs no look-up of its own then."""

    def __init__(self, db: Database, kinds: "Kinds") -> None:
        self._db = db
        self._kinds = kinds
        # By the number of the job's id; None: it runs inside.
        self._known: dict[int, str | None] = {}

    def remember(self, claimed: Sequence[asyncpg.Record]) -> None:
        names = {name: self._outside(name) for name in {row["kind"] for row in claimed}}
        self._keep((row["id"].int, names[row["kind"]]) for row in claimed)

    async def out_of_reach(self, ids: Iterable[UUID], token_kinds: Collection[str] | None) -> set[int]:
        """Those of the jobs (by number) that a token may not write to; `token_kinds` None: it is for all kinds outside.
        Jobs that nobody knows are not among them: the fence turns them away."""
        kinds: dict[int, str | None] = {}
        missing: list[UUID] = []
        for id in ids:
            if id.int in self._known:
                kinds[id.int] = self._known[id.int]
            else:
                missing.append(id)
        if missing:
            looked_up = {row["id"].int: row["kind"] for row in await self._db.fetch(SQL["kinds_of_jobs"], missing)}
            self._keep(looked_up.items())
            kinds |= looked_up
        return {
            number
            for number, kind in kinds.items()
            if kind is None or (token_kinds is not None and kind not in token_kinds)
        }

    def _outside(self, name: str) -> str | None:
        kind = self._kinds.get(name)
        return None if kind is not None and kind.internal else name

    def _keep(self, kinds: Iterable[tuple[int, str | None]]) -> None:
        if len(self._known) > MOST_REMEMBERED:
            self._known.clear()
        self._known.update(kinds)


class SessionKinds:
    """The kinds that sessions offer. They are settled when a session is opened, so each is looked up once, with its first
    claim or beat here."""

    def __init__(self, db: Database, kinds: "Kinds") -> None:
        self._db = db
        self._kinds = kinds
        # None: it offers a kind that runs inside.
        self._known: dict[UUID, frozenset[str] | None] = {}

    async def within_reach(self, session: UUID, token_kinds: Collection[str] | None) -> bool:
        """Whether a token may speak for this session; `token_kinds` None: it is for all kinds outside. One that nobody
        knows is not kept from it: to register again is right for whoever names it."""
        if session not in self._known:
            row = await self._db.fetchrow(SESSIONS["session"], session)
            if row is None:
                return True
            if len(self._known) > MOST_REMEMBERED:
                self._known.clear()
            self._known[session] = self._outside(row["kinds"])
        offered = self._known[session]
        return offered is not None and (token_kinds is None or offered.issubset(token_kinds))

    def _outside(self, names: Sequence[str]) -> frozenset[str] | None:
        internal = any((kind := self._kinds.get(name)) is not None and kind.internal for name in names)
        return None if internal else frozenset(names)
