"""The two ways to the database.

`durable` commits synchronously, `relaxed` does not: claims and beats may be lost in a crash (the token is null again
and the orphan's write is refused), nothing else may. Each pool has the setting fixed for its connections' life;
a session SET would stay behind on a pooled connection, whose reset query is switched off because it costs more than
half the throughput. Every named statement says which pool it belongs to.
"""

import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cache, partial
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import asyncpg

if TYPE_CHECKING:
    from prometheus_client import Counter, Histogram

PoolName = Literal["durable", "relaxed"]
DEADLOCKS = (asyncpg.DeadlockDetectedError, asyncpg.SerializationError)
DEADLOCK_TRIES = 5
# Whatever a database that is away, dying or refusing makes asyncpg raise. InternalClientError is no subclass of the
# others: a pooled connection says it ("cannot switch to state ...") between the server's last words and its close.
UNAVAILABLE = (OSError, asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError)
T = TypeVar("T")
COMMAND_SECONDS = 60
# A process that was stopped, or whose machine vanished without a word, keeps its transaction open and with it the locks
# of its rows, for hours if TCP is left to notice. No transaction here waits for anything but the database: one that
# says nothing for as long as a command may take belongs to nobody, and the database ends it.
OPEN_TRANSACTION = {"idle_in_transaction_session_timeout": f"{COMMAND_SECONDS}s"}

# Every hot statement reaches its rows by an index. Without this a table that was never analysed, or shrank to nothing,
# is read whole: 97 -> 991 us per job before the first auto-analyse. The plans are the same for all parameters.
# A bitmap reads all that match before it puts them in order, where a walk along the index stops at its limit. (A BRIN
# index has no other plan and keeps it.)
PLANNER = {
    "enable_seqscan": "off",
    "enable_bitmapscan": "off",
    "plan_cache_mode": "force_generic_plan",
    "jit": "off",
}


@dataclass(frozen=True, slots=True)
class Statement:
    name: str
    sql: str
    pool: PoolName


@cache
def statements(package: str, filename: str) -> Mapping[str, Statement]:
    """Reads a file of statements, each opened by `-- name: NAME (durable|relaxed)`."""
    text = files(package).joinpath(filename).read_text(encoding="utf-8")
    parts = re.split(r"^-- name: (\w+) \((durable|relaxed)\)\n", text, flags=re.MULTILINE)
    found: dict[str, Statement] = {}
    for name, pool, sql in zip(parts[1::3], parts[2::3], parts[3::3], strict=True):
        if name in found:
            raise ValueError(f"{filename} has two statements named {name}.")
        found[name] = Statement(name, sql.strip().rstrip(";"), "durable" if pool == "durable" else "relaxed")
    return found


class Transaction:
    """One durable transaction. Whatever must hold together is written through the same one.

    `after_commit` runs what may only be told once it is true: wake-ups, changes for the streams, metrics.
    """

    def __init__(self, connection: "asyncpg.pool.PoolConnectionProxy[asyncpg.Record]") -> None:
        self.connection = connection
        self.after_commit: list[Any] = []

    def count(self, counter: "Counter", n: float = 1) -> None:
        """Counts after the commit, and not at all when the transaction or the savepoint around it is undone."""
        self.after_commit.append(partial(counter.inc, n))

    def observe(self, histogram: "Histogram", value: float) -> None:
        """The same for a value of a histogram."""
        self.after_commit.append(partial(histogram.observe, value))

    async def fetch(self, statement: Statement | str, *arguments: object) -> list[asyncpg.Record]:
        return list(await self.connection.fetch(_sql(statement), *arguments))

    async def fetchrow(self, statement: Statement | str, *arguments: object) -> asyncpg.Record | None:
        return await self.connection.fetchrow(_sql(statement), *arguments)

    async def fetchval(self, statement: Statement | str, *arguments: object) -> Any:
        return await self.connection.fetchval(_sql(statement), *arguments)

    async def execute(self, statement: Statement | str, *arguments: object) -> str:
        return str(await self.connection.execute(_sql(statement), *arguments))

    @asynccontextmanager
    async def savepoint(self) -> AsyncIterator[None]:
        """What fails inside leaves the transaction as it was, what it wanted to tell included."""
        told = len(self.after_commit)
        try:
            async with self.connection.transaction():
                yield
        except BaseException:
            del self.after_commit[told:]
            raise


class Database:
    def __init__(self, durable: "asyncpg.Pool[asyncpg.Record]", relaxed: "asyncpg.Pool[asyncpg.Record]") -> None:
        self._pools: Mapping[PoolName, asyncpg.Pool[asyncpg.Record]] = {"durable": durable, "relaxed": relaxed}

    def pool(self, name: PoolName) -> "asyncpg.Pool[asyncpg.Record]":
        return self._pools[name]

    async def fetch(self, statement: Statement, *arguments: object) -> Sequence[asyncpg.Record]:
        return await self._pools[statement.pool].fetch(statement.sql, *arguments)

    async def fetchrow(self, statement: Statement, *arguments: object) -> asyncpg.Record | None:
        return await self._pools[statement.pool].fetchrow(statement.sql, *arguments)

    async def fetchval(self, statement: Statement, *arguments: object) -> Any:
        return await self._pools[statement.pool].fetchval(statement.sql, *arguments)

    async def execute(self, statement: Statement, *arguments: object) -> str:
        return str(await self._pools[statement.pool].execute(statement.sql, *arguments))

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Transaction]:
        async with self._pools["durable"].acquire() as connection:
            tx = Transaction(connection)
            async with connection.transaction():
                yield tx
        for told in tx.after_commit:
            told()

    @asynccontextmanager
    async def single(self) -> AsyncIterator[Transaction]:
        """For one writing statement, which is a transaction by itself: two round trips less."""
        async with self._pools["durable"].acquire() as connection:
            tx = Transaction(connection)
            yield tx
        for told in tx.after_commit:
            told()

    async def repeated(self, write: Callable[[Transaction], Awaitable[T]], *, alone: bool = False) -> T:
        """Deadlocks are nobody's fault: the database picked one of two transactions, which simply goes again.
        With `alone` it writes by one statement."""
        for tries_left in reversed(range(DEADLOCK_TRIES)):
            try:
                async with self.single() if alone else self.transaction() as tx:
                    return await write(tx)
            except DEADLOCKS:
                if not tries_left:
                    raise
        raise AssertionError("unreachable")

    async def close(self) -> None:
        for pool in self._pools.values():
            await pool.close()


@asynccontextmanager
async def open_database(dsn: str, *, durable: int = 10, relaxed: int = 10) -> AsyncIterator[Database]:
    pools = [
        await _pool(dsn, "durable", "on", durable),
        await _pool(dsn, "relaxed", "off", relaxed),
    ]
    database = Database(*pools)
    try:
        yield database
    finally:
        for pool in pools:
            pool.terminate()


async def _pool(dsn: str, name: str, synchronous_commit: str, size: int) -> "asyncpg.Pool[asyncpg.Record]":
    return await asyncpg.create_pool(
        dsn,
        min_size=1,
        max_size=size,
        reset=_keep,
        command_timeout=COMMAND_SECONDS,
        server_settings={
            "application_name": f"paddock {name}",
            "synchronous_commit": synchronous_commit,
            "timezone": "UTC",
            **OPEN_TRANSACTION,
            **PLANNER,
        },
    )


async def _keep(connection: object) -> None:
    """In place of the pool's reset: nothing here leaves state on a connection."""


def column(values: Iterable[Any]) -> list[Any]:
    """An argument of unnest. One that holds nothing but nulls is sent empty: unnest pads the shorter arrays with null,
    and encoding a null costs the driver as much as encoding a value."""
    listed = list(values)
    return [] if all(value is None for value in listed) else listed


def _sql(statement: Statement | str) -> str:
    return statement if isinstance(statement, str) else statement.sql
