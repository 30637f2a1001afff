"""The table of Trino's errors, walked."""

import re
import zipfile
from typing import Any

import pytest

from paddock.engines.engine import QueryRefused
from paddock.engines.trino.errors import (
    TRINO_ERROR_TYPES,
    TRINO_ERRORS,
    QueryFailed,
    Wrapped,
    failure,
    plain,
    verdict_on,
)
from paddock.jobs.errors import PermanentRunnerError, TransientResourceError
from tests.trino.fetching import trino_home

# What is tried again, and whose patience it spends: all of it.
TRIED_AGAIN = {
    "ABANDONED_QUERY": "work",
    "NO_NODES_AVAILABLE": "cluster",
    "SERVER_SHUTTING_DOWN": "cluster",
    "SERVER_STARTING_UP": "cluster",
    "TOO_MANY_REQUESTS_FAILED": "work",
    "PAGE_TRANSPORT_ERROR": "work",
    "PAGE_TRANSPORT_TIMEOUT": "work",
    "REMOTE_TASK_ERROR": "work",
    "REMOTE_TASK_MISMATCH": "work",
    "REMOTE_HOST_GONE": "work",
    "QUERY_QUEUE_FULL": "cluster",
    "ADMINISTRATIVELY_PREEMPTED": "cluster",
}


def error(name: str, type_: str = "USER_ERROR", message: str = "no", **more: Any) -> dict[str, Any]:
    return {"message": message, "errorName": name, "errorType": type_, "errorCode": 1, **more}


@pytest.mark.parametrize("name", TRINO_ERRORS)
def test_each_line_of_the_table(name: str) -> None:
    problem = failure(error(name, "INTERNAL_ERROR"), "q1")

    assert re.fullmatch(r"[a-z][a-z_]+", problem.code)
    assert "no" in str(problem)
    assert "q1" in str(problem)
    if name in TRIED_AGAIN:
        assert isinstance(problem, TransientResourceError)
        assert problem.budget == TRIED_AGAIN[name]
    else:
        assert isinstance(problem, PermanentRunnerError)
        assert problem.hint


@pytest.mark.parametrize(
    ("type_", "wanted"),
    [
        ("USER_ERROR", QueryRefused),
        ("INTERNAL_ERROR", PermanentRunnerError),
        ("INSUFFICIENT_RESOURCES", PermanentRunnerError),
        ("EXTERNAL", QueryFailed),
        ("NEW_KIND", PermanentRunnerError),
    ],
)
def test_a_name_that_the_table_does_not_know_is_judged_by_its_type(type_: str, wanted: type[Exception]) -> None:
    problem = failure(error("SOMETHING_NEW", type_), None)

    assert type(problem) is wanted
    assert problem.code == "something_new"


@pytest.mark.parametrize("given", [{}, {"errorName": 7}, {"errorName": "x y<script>"}, {"message": None}])
def test_an_error_that_says_nothing_is_one_too(given: dict[str, Any]) -> None:
    problem = failure(given, None)

    assert isinstance(problem, PermanentRunnerError)
    assert problem.code == "unknown_error"


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_tables_names_are_trinos() -> None:
    """Read from the server's own class: a name with a typing error would never match."""
    home = trino_home()
    [jar] = (home / "lib").glob("*trino-spi-*.jar")
    with zipfile.ZipFile(jar) as archive:
        constants = archive.read("io/trino/spi/StandardErrorCode.class")
        types = archive.read("io/trino/spi/ErrorType.class")
    standard = {name.decode() for name in re.findall(rb"[A-Z][A-Z0-9_]{3,}", constants)}

    assert {name for name in TRINO_ERRORS if not name.startswith("HIVE_")} <= standard
    assert set(TRINO_ERROR_TYPES) <= {name.decode() for name in re.findall(rb"[A-Z][A-Z_]{3,}", types)}


def test_places_are_those_of_the_authors_text() -> None:
    sql = "SELECT a,\n  b FROM t"
    gate = Wrapped(sql, lines=1)

    def place(line: int, column: int, wrapped: Wrapped = gate, name: str = "COLUMN_NOT_FOUND") -> Any:
        where = {"lineNumber": line, "columnNumber": column}
        problem = failure(error(name, message=f"line {line}:{column}: what", errorLocation=where), None, wrapped)
        assert isinstance(problem, QueryRefused)
        if problem.line is not None:
            assert str(problem) == f"Trino: line {problem.line}:{problem.column}: what."
        return problem.line, problem.column

    assert place(3, 3) == (2, 3)
    # At the end of the wrap: at the end of the text.
    assert place(4, 1) == (2, 11)
    assert place(1, 5) == (None, None)
    assert place(3, 22, Wrapped(sql, 1, 19), "SYNTAX_ERROR") == (2, 3)
    assert place(3, 3, Wrapped(sql, 1, 19)) == (2, 3)


def test_addresses_and_secrets_do_not_get_into_messages() -> None:
    said = plain("Could not read https://h:1/v1/statement/executing/q/SLUG/3?x=1,\n\tpassword=hunter2 at s3://b/k")

    assert "SLUG" not in said
    assert "hunter2" not in said
    assert "\n" not in said
    assert len(plain("x" * 100_000)) <= 2000


def test_an_unknown_name_in_the_table_has_no_verdict_of_its_own() -> None:
    assert verdict_on("NOPE", "USER_ERROR").kind == "refused"
