import asyncpg
import pytest

from paddock.engines.engine import QueryRefused
from paddock.engines.postgres.errors import SQLSTATES, translated, verdict
from paddock.jobs.errors import InfrastructureError, PermanentRunnerError, TransientResourceError, UserMistake

MEANINGS: dict[str, type[InfrastructureError]] = {
    "refused": QueryRefused,
    "failed": PermanentRunnerError,
    "transient": TransientResourceError,
}


def _error(sqlstate: str, message: str = "no") -> asyncpg.PostgresError:
    return asyncpg.PostgresError.new({"S": "ERROR", "C": sqlstate, "M": message})


@pytest.mark.parametrize("prefix", SQLSTATES)
def test_each_line_of_the_table_says_what_its_errors_become(prefix: str) -> None:
    found = translated("shop", _error(prefix.ljust(5, "0")))
    wanted = SQLSTATES[prefix]
    assert type(found) is (UserMistake if wanted.mistake else MEANINGS[wanted.meaning])
    assert found.code == wanted.code
    assert "shop" in found.message


@pytest.mark.parametrize(
    ("sqlstate", "message", "code"),
    [
        ("57P01", "terminating connection due to administrator command", "engine_unavailable"),
        ("57P03", "the database system is starting up", "engine_unavailable"),
        ("53300", "sorry, too many clients already", "engine_overloaded"),
        ("40001", "canceling statement due to conflict with recovery", "engine_conflict"),
        ("57014", "canceling statement due to statement timeout", "query_timeout"),
        ("57014", "canceling statement due to user request", "query_cancelled"),
        ("42501", 'query would be affected by row-level security policy for table "t"', "row_security"),
        ("42501", "permission denied for table t", "access_denied"),
        ("42P01", 'relation "t" does not exist', "query_refused"),
        ("22012", "division by zero", "query_failed"),
        ("XX000", "cache lookup failed", "query_failed"),
        ("P0001", "raised by a function", "query_failed"),
    ],
)
def test_errors_as_they_come(sqlstate: str, message: str, code: str) -> None:
    assert verdict(sqlstate, message).code == code
    assert translated("shop", _error(sqlstate, message)).code == code


@pytest.mark.parametrize("problem", [ConnectionResetError(), TimeoutError(), asyncpg.InterfaceError("closed")])
def test_a_lost_connection_is_a_reason_to_try_again(problem: Exception) -> None:
    assert isinstance(translated("shop", problem), TransientResourceError)


def test_our_own_mistakes_are_not_dressed_up() -> None:
    with pytest.raises(ZeroDivisionError):
        translated("shop", ZeroDivisionError())
