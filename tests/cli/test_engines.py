"""`paddock engines` against a running server."""

from pathlib import Path

from paddock.cli.jobs.submitting import MOST_AT_ONCE
from paddock.jobs.enqueueing import MAX_BATCH
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


def test_what_is_not_there_is_not_found(terminal: Terminal) -> None:
    for names in (["--catalog", "nope"], ["--catalog", "local", "--schema", "nope"]):
        missing = terminal("engines", "browse", "duckdb", *names)
        assert missing.code == 3, missing.err
        assert "There is no" in missing.err
        assert "'nope'" in missing.err
    assert terminal("engines", "browse", "duckdb").code == 0


def test_a_role_that_may_not_is_refused_with_exit_code_4(terminal: Terminal, tmp_path: Path) -> None:
    made = terminal("tokens", "create", "--name", "reader", "--role", "analyst", "-o", "json").json
    file = tmp_path / "token"
    file.write_text(made["token"])
    refused = terminal("workers", "list", "--token-file", str(file))
    assert refused.code == 4, refused.err


def test_limits_are_named(terminal: Terminal, tmp_path: Path) -> None:
    for count in ("0", "1001"):
        wrong = terminal("jobs", "submit", "probe", "--count", count)
        assert wrong.code == 2
        assert "makes 1 to 1,000 jobs" in wrong.err
    payload = tmp_path / "payload.json"
    payload.write_text('{"result": "' + "x" * 1_100_000 + '"}')
    large = terminal("jobs", "submit", "probe", "--file", str(payload))
    assert large.code == 2, large.err
    assert "larger than 1,048,576 bytes" in large.err
    assert "PADDOCK_MAX_BODY_BYTES" in large.err
    told = terminal("jobs", "submit", "--help").out
    assert "1 to 1,000" in told
    assert "PADDOCK_MAX_BODY_BYTES" in told
    assert MOST_AT_ONCE == MAX_BATCH
