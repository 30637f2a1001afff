"""What is done with a query's text before Trino sees it."""

import datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddock.engines.engine import QueryRefused
from paddock.engines.trino.lexing import bind, bounded, one_query, tokens
from paddock.engines.trino.literals import literal, quoted_name


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT 1",
        " select 1 ; ",
        "-- why\n/* and * how */ WITH t AS (SELECT 1) TABLE t",
        "VALUES 1",
        "TABLE nation",
    ],
)
def test_queries_begin_as_queries_do(sql: str) -> None:
    assert one_query(sql) == sql.rstrip().removesuffix(";").rstrip()


@pytest.mark.parametrize(
    ("sql", "inside"),
    [
        ("((SELECT 1))", "  SELECT 1"),
        ("-- all\n(SELECT ')' -- of it\n);", "-- all\n SELECT ')' -- of it"),
        ("(SELECT 1) UNION (SELECT 2)", "(SELECT 1) UNION (SELECT 2)"),
        ("(SELECT 1) LIMIT 2", "(SELECT 1) LIMIT 2"),
        ("(SELECT 1", "(SELECT 1"),
    ],
)
def test_parentheses_around_all_of_it_are_taken_off_and_every_column_stays(sql: str, inside: str) -> None:
    assert one_query(sql) == inside


@pytest.mark.parametrize(
    "sql",
    [
        "",
        " ;",
        "-- SELECT",
        "/* SELECT",
        "ANALYZE t",
        "CALL f(x)",
        "INSERT INTO t TABLE u",
        "'SELECT'",
        '"select"',
        "1",
    ],
)
def test_other_texts_are_refused_before_they_are_sent(sql: str) -> None:
    with pytest.raises(QueryRefused):
        one_query(sql)


def test_names_are_bound_by_trino_and_values_never_stand_in_the_text() -> None:
    sql = "SELECT ':a', \":a\", x -- :a\n /* :a */ FROM t WHERE x = :a AND y = :bb AND z = :a"

    bound = bind(sql, {"a": "it's", "bb": 2})

    assert bound == (
        "EXECUTE IMMEDIATE 'SELECT '':a'', \":a\", x -- :a\n /* :a */ FROM t WHERE x = ?  AND y = ?   AND z = ? '"
        " USING 'it''s', 2, 'it''s'"
    )


def test_without_parameters_the_text_is_left_alone() -> None:
    assert bind("SELECT :a", {}) == "SELECT :a"


@pytest.mark.parametrize(("sql", "code"), [("SELECT :a, :b", "parameter_missing"), ("SELECT ':a'", "parameter_unused")])
def test_each_name_has_a_value_and_each_value_a_name(sql: str, code: str) -> None:
    with pytest.raises(QueryRefused) as told:
        bind(sql, {"a": 1})
    assert told.value.code == code


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        (None, "NULL"),
        (True, "TRUE"),
        ("a'b\\", "'a''b\\'"),
        (-5, "-5"),
        (2**80, f"DECIMAL '{2**80}'"),
        (0.1, "DOUBLE '0.1'"),
        (float("nan"), "nan()"),
        (float("-inf"), "-infinity()"),
        (Decimal("1E+2"), "DECIMAL '100'"),
        (b"\x00\xff", "X'00ff'"),
        (datetime.date(2024, 2, 29), "DATE '2024-02-29'"),
        (datetime.datetime(2024, 2, 29, 1, 2, 3, 4), "TIMESTAMP '2024-02-29 01:02:03.000004'"),  # noqa: DTZ001
        (
            datetime.datetime(2024, 2, 29, 1, tzinfo=datetime.timezone(datetime.timedelta(hours=1))),
            "TIMESTAMP '2024-02-29 00:00:00.000000 UTC'",
        ),
        (UUID(int=1), "UUID '00000000-0000-0000-0000-000000000001'"),
        ([1, "a"], "ARRAY[1, 'a']"),
    ],
)
def test_values_as_literals(value: Any, wanted: str) -> None:
    assert literal("x", value) == wanted


@pytest.mark.parametrize("value", [{"a": 1}, object(), Decimal("NaN")])
def test_a_value_without_a_literal_is_refused(value: Any) -> None:
    with pytest.raises(QueryRefused) as told:
        literal("x", value)
    assert told.value.code == "parameter_type"


def test_names_are_quoted() -> None:
    assert quoted_name("a", 'b"c') == '"a"."b""c"'


@given(st.text(alphabet="'\"`-/*$:ab \n()\\", max_size=60))
def test_tokens_are_the_whole_text_and_nothing_else(sql: str) -> None:
    assert "".join(token.text for token in tokens(sql)) == sql


@given(st.text(max_size=40))
def test_a_text_never_leaves_its_literal(value: str) -> None:
    found = list(tokens(literal("x", value)))
    assert [token.kind for token in found] == ["string"]


def test_who_says_how_many_rows() -> None:
    assert bounded("SELECT 1 LIMIT 3")
    assert bounded("SELECT 1 FETCH FIRST 3 ROWS ONLY")
    assert not bounded("SELECT 'limit 3' FROM (SELECT 1 LIMIT 3) -- limit")
