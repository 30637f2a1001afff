"""`paddock engines` against a running server."""

from tests.cli.conftest import Terminal


def test_engines_are_listed(terminal: Terminal) -> None:
    [duckdb] = terminal("engines", "list", "-o", "json").json
    assert (duckdb["name"], duckdb["type"], duckdb["unload"]) == ("duckdb", "duckdb", False)
    assert terminal("engines", "list", "-o", "name").lines == ["duckdb"]


def test_an_engine_is_checked_by_its_name_or_all_of_them(terminal: Terminal) -> None:
    one = terminal("engines", "check", "duckdb")
    assert one.code == 0
    assert "DuckDB" in one.out
    every = terminal("engines", "check", "-o", "json")
    assert every.code == 0
    assert {finding["engine"] for finding in every.json} == {"duckdb"}
    assert "query" in [finding["what"] for finding in every.json]


def test_an_engine_that_is_not_there_is_not_found(terminal: Terminal) -> None:
    missing = terminal("engines", "check", "warehouse")
    assert missing.code == 3
    assert "no such engine" in missing.err


def test_columns_are_described_without_running_the_query(terminal: Terminal) -> None:
    columns = terminal("engines", "describe", "duckdb", "SELECT 1::TINYINT AS n, 'x' AS t", "-o", "json").json[
        "columns"
    ]
    assert [(column["name"], column["type"]) for column in columns] == [("n", "INT8"), ("t", "STRING")]
    wrong = terminal("engines", "describe", "duckdb", "SELECT nothing")
    assert wrong.code != 0
    assert "nothing" in wrong.err


def test_the_first_rows_of_a_query_are_shown(terminal: Terminal) -> None:
    sql = "SELECT i AS n, NULL AS nothing FROM range(50) t(i)"
    shown = terminal("engines", "preview", "duckdb", sql, "--rows", "3")
    assert [line.split() for line in shown.lines] == [["N", "NOTHING"], ["0", "-"], ["1", "-"], ["2", "-"]]
    assert terminal("engines", "preview", "duckdb", sql, "-o", "json").json["rows"][19] == [19, None]
    assert terminal("engines", "preview", "duckdb", f"{sql} WHERE n < 0").err == "No rows.\n"
    assert terminal("engines", "preview", "duckdb", "SELECT nothing").code != 0
