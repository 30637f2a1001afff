"""What a database that is away, or that refuses, is told to people as: a 503 that says which, never a bug of ours."""

from collections.abc import Sequence
from dataclasses import dataclass

import asyncpg

RETRY_SECONDS = 5


@dataclass(frozen=True, slots=True)
class DatabaseProblem:
    code: str
    message: str
    hint: str


AWAY = (
    asyncpg.PostgresConnectionError,
    asyncpg.OperatorInterventionError,  # shutting down, starting up, a statement that was ended
    asyncpg.InsufficientResourcesError,  # connections, memory, disk
    asyncpg.PostgresSystemError,  # its files
    asyncpg.IdleInTransactionSessionTimeoutError,  # this process stood still in the middle of a transaction
    asyncpg.InternalClientError,  # a connection between the server's last words and its close
    asyncpg.ReadOnlySQLTransactionError,  # the standby, during a failover
    OSError,  # refused, reset, no socket, no such host, timed out
)
UNREACHABLE = DatabaseProblem(
    "database_unavailable",
    "Paddock cannot reach its database at the moment.",
    "Ask again in a few seconds; nothing that was accepted is lost.",
)


def _refused(message: str, remedy: str) -> DatabaseProblem:
    return DatabaseProblem("database_refused", message, f"{remedy} Nothing that was accepted is lost.")


# The first that fits says it.
REFUSALS: Sequence[tuple[type[Exception] | tuple[type[Exception], ...], DatabaseProblem]] = (
    (
        asyncpg.DiskFullError,
        _refused("Paddock's database has no disk space left.", "Free some where PostgreSQL keeps its data."),
    ),
    (
        asyncpg.OutOfMemoryError,
        _refused("Paddock's database is out of memory.", "Ask again, or give PostgreSQL more."),
    ),
    (
        asyncpg.ReadOnlySQLTransactionError,
        _refused(
            "Paddock's database is read-only at the moment.",
            "It is a standby, or default_transaction_read_only is on: wait for the failover, or switch it off.",
        ),
    ),
    (
        (asyncpg.QueryCanceledError, asyncpg.LockNotAvailableError),
        _refused(
            "Paddock's database ended a statement before it was done.",
            "Ask again; if it stays so, look at statement_timeout and lock_timeout of Paddock's role.",
        ),
    ),
    (
        asyncpg.InvalidAuthorizationSpecificationError,
        _refused(
            "Paddock's database refuses its user or password.",
            "Correct PADDOCK_DATABASE_URL, then start Paddock again.",
        ),
    ),
    (
        asyncpg.InsufficientPrivilegeError,
        _refused(
            "Paddock's database denies its role what it needs.",
            "Grant the role CONNECT on the database and all rights on its schema.",
        ),
    ),
    (
        asyncpg.InvalidCatalogNameError,
        _refused("Paddock's database is not there any more.", "Restore it, or correct PADDOCK_DATABASE_URL."),
    ),
    (
        asyncpg.PostgresSystemError,
        _refused("Paddock's database cannot read or write its files.", "PostgreSQL's log tells more."),
    ),
)


def database_away(error: BaseException) -> bool:
    """It may come back by itself: whoever starts waits for it."""
    if isinstance(error, AWAY):
        return True
    # asyncpg says this with the same type as for wrong use; only the text tells them apart.
    return isinstance(error, asyncpg.InterfaceError) and "clos" in str(error)


def database_problem(error: BaseException) -> DatabaseProblem | None:
    """None: the error is no matter of the database's, so a bug."""
    for kind, problem in REFUSALS:
        if isinstance(error, kind):
            return problem
    return UNREACHABLE if database_away(error) else None
