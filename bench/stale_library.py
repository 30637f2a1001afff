"""What the stale-writer probe needs of a library, and what its worker processes share."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime

import asyncpg

from bench.environment import Database
from bench.process import say, words

LEASE_SECONDS = 4
"""After this long without a beat a worker counts as dead; beats come several times as often."""

LEDGER = "CREATE TABLE ledger (worker text NOT NULL, ended_at timestamptz NOT NULL DEFAULT clock_timestamp())"


@dataclass(frozen=True)
class Seen:
    """The job as the library's tables have it."""

    open: bool
    record: str
    owner: str | None
    lease: datetime | None


@dataclass(frozen=True)
class Library:
    name: str
    module: str
    install: Callable[[Database], Awaitable[None]]
    """Schema, ledger and one job."""
    rescue: Callable[[Database], Awaitable[None]]
    """Whatever the library documents to take a job from a dead worker; nothing if its workers do that themselves."""
    look: Callable[[Database], Awaitable[Seen]]


class ToldToFail(Exception):
    pass


async def body(dsn: str, worker: str) -> None:
    """The handler: says that it runs, does as it is told, and leaves a row in the ledger as its side effect."""
    say("running")
    async for word in words():
        connection = await asyncpg.connect(dsn)
        await connection.execute("INSERT INTO ledger (worker) VALUES ($1)", worker)
        await connection.close()
        if word == "fail":
            raise ToldToFail("told to fail")
        return


def reporting(finish: Callable[..., Awaitable[None]]) -> Callable[..., Awaitable[None]]:
    """The library's own finishing call, which also says what it answered."""

    async def reported(*arguments: object, **options: object) -> None:
        try:
            await finish(*arguments, **options)
        except Exception as error:
            say("written", error=str(error.__cause__ or error).splitlines()[0])
            raise
        say("written", error=None)

    return reported
