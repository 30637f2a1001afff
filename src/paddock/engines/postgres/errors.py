"""What PostgreSQL's error codes mean to an export: one table, the most specific prefix wins.

Anything not in it fails at once: trying again would only repeat it.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import asyncpg

from paddock.engines.engine import QueryRefused
from paddock.engines.postgres.text import place
from paddock.jobs.errors import InfrastructureError, PermanentRunnerError, TransientResourceError, UserMistake
from paddock.jobs.model import Budget

Meaning = Literal["refused", "failed", "transient"]


@dataclass(frozen=True, slots=True)
class ErrorMeaning:
    meaning: Meaning
    code: str
    hint: str | None = None
    budget: Budget = "work"
    # Of a failure: the query's own, and so of whoever wrote it.
    mistake: bool = False


_UNAVAILABLE = ErrorMeaning(
    "transient", "engine_unavailable", "Paddock tries again; see whether the server runs.", budget="cluster"
)

SQLSTATES: Mapping[str, ErrorMeaning] = {
    # the server, the network, its resources
    "08": _UNAVAILABLE,
    "57P": _UNAVAILABLE,
    "58": ErrorMeaning(
        "transient", "engine_unavailable", "The server met an error of its system: see its log.", "cluster"
    ),
    "53": ErrorMeaning("transient", "engine_overloaded", "The server has no room left for this query.", "cluster"),
    "53200": ErrorMeaning("transient", "engine_overloaded", "The server has no memory left for this query.", "cluster"),
    # other transactions
    "40": ErrorMeaning("transient", "engine_conflict", "Another transaction, or a standby's replay, stood against it."),
    "55P03": ErrorMeaning("transient", "lock_timeout", "Somebody holds a lock on a table of the query."),
    "57014": ErrorMeaning("failed", "query_cancelled", "Somebody cancelled the query at the server."),
    # the login
    "28": ErrorMeaning("failed", "login_refused", "Check user, password and pg_hba.conf for this engine."),
    "3D000": ErrorMeaning("failed", "no_such_database", "Check the database in the engine's url."),
    "42501": ErrorMeaning("refused", "access_denied", "Ask for the grant to this engine's login."),
    # the text
    "42": ErrorMeaning("refused", "query_refused"),
    "0A000": ErrorMeaning("refused", "query_refused"),
    "25006": ErrorMeaning("refused", "not_a_query", "An export only reads: write one SELECT that changes nothing."),
    "3F000": ErrorMeaning("refused", "query_refused"),
    "42P18": ErrorMeaning("refused", "query_refused", "Say the parameter's type, for example :day::date."),
    # its values
    "22": ErrorMeaning("failed", "query_failed", mistake=True),
    "54": ErrorMeaning("failed", "query_failed", "The query goes beyond a limit of PostgreSQL.", mistake=True),
}
_OTHER = ErrorMeaning("failed", "query_failed")
_LONGEST = 5
_TIMEOUT = ErrorMeaning(
    "failed",
    "query_timeout",
    "Make the query cheaper, or raise statement_timeout_seconds of this engine.",
)
_ROW_SECURITY = ErrorMeaning(
    "refused",
    "row_security",
    "The policy would leave rows out. If it is meant to choose them, set row_security = true for this engine; "
    "else ALTER ROLE ... BYPASSRLS for its login.",
)


def verdict(sqlstate: str, message: str = "") -> ErrorMeaning:
    if sqlstate == "57014" and "statement timeout" in message:
        return _TIMEOUT
    if sqlstate == "42501" and "row-level security" in message:
        return _ROW_SECURITY
    for length in range(_LONGEST, 1, -1):
        if (found := SQLSTATES.get(sqlstate[:length])) is not None:
            return found
    return _OTHER


def translated(engine: str, problem: BaseException, sql: str | None = None, skipped: int = 0) -> InfrastructureError:
    """`sql` is the text in which the server counts, when it is the caller's own; `skipped` what we put in front."""
    if isinstance(problem, asyncpg.PostgresError):
        return _translated(engine, problem, sql, skipped)
    if isinstance(problem, (OSError, asyncpg.InterfaceError, TimeoutError, asyncio.IncompleteReadError, EOFError)):
        return TransientResourceError(
            f"Engine '{engine}' did not answer: {type(problem).__name__}.",
            code=_UNAVAILABLE.code,
            hint=_UNAVAILABLE.hint,
            budget=_UNAVAILABLE.budget,
        )
    raise problem


def _translated(engine: str, problem: asyncpg.PostgresError, sql: str | None, skipped: int) -> InfrastructureError:
    sqlstate = str(getattr(problem, "sqlstate", None) or "08000")
    message = str(getattr(problem, "message", None) or problem).strip()
    found = verdict(sqlstate, message)
    hint = found.hint or getattr(problem, "hint", None)
    sentence = f"PostgreSQL ('{engine}') says: {message}" + ("" if message.endswith(".") else ".")
    if found.meaning == "transient":
        return TransientResourceError(sentence, code=found.code, hint=hint, budget=found.budget)
    if found.meaning == "failed":
        return (UserMistake if found.mistake else PermanentRunnerError)(sentence, code=found.code, hint=hint)
    line, column = _where(problem, sql, skipped)
    return QueryRefused(sentence, code=found.code, hint=hint, line=line, column=column)


def _where(problem: asyncpg.PostgresError, sql: str | None, skipped: int) -> tuple[int | None, int | None]:
    position = str(getattr(problem, "position", None) or "")
    if sql is None or not position.isdigit() or int(position) <= skipped:
        return None, None
    return place(sql, int(position) - skipped)
