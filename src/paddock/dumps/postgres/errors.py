"""What goes wrong with a server or pg_dump, and what it means for a dump."""

import asyncio
import re
import ssl

import asyncpg

from paddock.config import ConfigError
from paddock.engines.postgres.errors import verdict
from paddock.jobs.errors import InfrastructureError, PermanentRunnerError, TransientResourceError

PROBLEMS = (asyncpg.PostgresError, asyncpg.InterfaceError, OSError, TimeoutError, asyncio.IncompleteReadError)

_HINTS = {
    "access_denied": "Grant the login what it lacks (pg_read_all_data reads everything), or leave the table out.",
    "row_security": "The policy would leave rows out. ALTER ROLE ... BYPASSRLS for this database's login.",
    "login_refused": "Check user, password and pg_hba.conf for this database.",
    "no_such_database": "Check the database in the url.",
    "lock_timeout": "Somebody holds a lock on a table; lock_timeout_seconds says how long to wait for it.",
    "zstd_missing": "The pg_dump of this worker is older than 16 or was built without zstd. Leave compress out, and it packs "
    "with gzip; or name one that has zstd (pg_dump of this database).",
    "engine_overloaded": "The server has no room left; for many tables raise max_locks_per_transaction.",
}


def lost(why: str) -> TransientResourceError:
    return TransientResourceError(
        f"The snapshot is lost: {why}",
        code="snapshot_connection_lost",
        hint="The dump starts over, at a new point in time.",
    )


def row_security(table: str) -> PermanentRunnerError:
    return PermanentRunnerError(
        f"Row-level security would leave out rows of table '{table}'.",
        code="row_security",
        hint=_HINTS["row_security"],
    )


def unreachable(problem: BaseException) -> InfrastructureError:
    """Before there was a connection."""
    if isinstance(problem, (ConfigError, asyncpg.ClientConfigurationError)):
        return PermanentRunnerError(str(problem), code="database_misconfigured")
    if isinstance(problem, ssl.SSLCertVerificationError):
        return _no_tls(str(problem.verify_message))
    if "rejected SSL upgrade" in str(problem):
        return _no_tls("the server does not speak it")
    if isinstance(problem, asyncpg.PostgresError):
        return said(problem)
    return TransientResourceError(
        f"PostgreSQL did not answer: {type(problem).__name__}.",
        code="database_unavailable",
        hint="The dump waits until it does. Check the url of this database, and that workers reach its server.",
        budget="cluster",
    )


def _no_tls(why: str) -> PermanentRunnerError:
    return PermanentRunnerError(
        f"The server has no TLS that can be trusted: {why}.",
        code="database_tls",
        hint="Check ssl and ca_file of this database, and the server's certificate.",
    )


def said(problem: BaseException, table: str | None = None) -> InfrastructureError:
    """Of a connection that there was. A dump is permanently refused only where trying again cannot help."""
    if not isinstance(problem, asyncpg.PostgresError):
        return lost(f"the connection broke ({type(problem).__name__}).")
    sqlstate = str(getattr(problem, "sqlstate", None) or "08000")
    message = str(getattr(problem, "message", None) or problem).strip()
    sentence = f"PostgreSQL says: {message}" + ("" if message.endswith(".") else ".")
    if sqlstate == "54000" or "invalid memory alloc request size" in message:
        where = f" A row of table '{table}' is larger than that." if table else ""
        return PermanentRunnerError(
            sentence + where, code="value_too_large", hint="No more than 1 GB of text can be one row."
        )
    found = verdict(sqlstate, message)
    if found.code == "engine_unavailable":
        return lost(message)
    code = "query_refused" if found.code == "not_a_query" else found.code
    hint = _HINTS.get(code)
    if found.meaning == "transient":
        return TransientResourceError(
            sentence, code=code.replace("engine_", "database_"), hint=hint, budget=found.budget
        )
    return PermanentRunnerError(sentence, code=code, hint=hint)


# pg_dump tells only by words. Its own are English, for we ask for that; a server's may not be, so that what is not known
# here counts as a loss, which is tried again and then reported with the same words.
_REFUSALS = (
    (re.compile(r"row-level security"), "row_security"),
    (re.compile(r"permission denied|must be (?:owner|superuser|member)"), "access_denied"),
    (re.compile(r"no matching (?:tables|schemas) were found"), "unknown_table"),
    (re.compile(r"server version mismatch"), "pg_dump_missing"),
    (re.compile(r"compression specification|unrecognized compression|for option -Z/--compress"), "zstd_missing"),
    (re.compile(r"SSL support is not compiled in"), "pg_dump_missing"),
    (re.compile(r"password authentication failed|no password supplied|no pg_hba.conf entry"), "login_refused"),
    (re.compile(r"invalid memory alloc request size|cannot enlarge string buffer"), "value_too_large"),
)
_LOCK = re.compile(r"lock timeout")
_PREFIX = re.compile(r"^pg_dump: (?:error|detail|hint): ", re.MULTILINE)


def pg_dump_said(status: int, words: str) -> InfrastructureError:
    words = " ".join(_PREFIX.sub("", words).split())[-2_000:]
    if status < 0:
        return lost(f"pg_dump was ended by signal {-status}.")
    sentence = f"pg_dump says: {words}" if words else f"pg_dump ended with status {status} and said nothing."
    for pattern, code in _REFUSALS:
        if pattern.search(words):
            return PermanentRunnerError(sentence, code=code, hint=_HINTS.get(code))
    if _LOCK.search(words):
        return TransientResourceError(sentence, code="lock_timeout", hint=_HINTS["lock_timeout"])
    return lost(sentence)
