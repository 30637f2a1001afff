"""`paddock export` and `paddock exports` against a running server."""

import re
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.cli.conftest import Terminal, interrupted
from tests.processes.running import Up

SQL = "SELECT i AS n FROM range(3) t(i)"


@pytest.fixture
def made(terminal: Terminal) -> str:
    said = terminal("export", SQL, "-o", "name")
    assert said.code == 0
    return said.out.strip()


def test_a_query_becomes_the_file_that_its_ending_names(terminal: Terminal, tmp_path: Path) -> None:
    parquet, lines = tmp_path / "n.parquet", tmp_path / "n.jsonl"
    assert terminal("export", SQL, "--to", str(parquet)).lines[-1].startswith(f"{parquet}   3 rows")
    assert pq.read_table(parquet).to_pydict() == {"n": [0, 1, 2]}
    assert terminal("export", SQL, "--to", str(lines)).code == 0
    assert lines.read_text() == '{"n":0}\n{"n":1}\n{"n":2}\n'


def test_nothing_is_written_over_unless_told(terminal: Terminal, tmp_path: Path) -> None:
    mine = tmp_path / "n.csv"
    mine.write_text("mine")
    refused = terminal("export", SQL, "--to", str(mine))
    assert (refused.code, mine.read_text()) == (2, "mine")
    assert "--force" in refused.err
    assert terminal("export", SQL, "--to", str(mine), "--force").code == 0
    assert mine.read_text().splitlines() == ['"n"', "0", "1", "2"]


def test_a_query_comes_from_a_file_with_its_parameters(terminal: Terminal, tmp_path: Path) -> None:
    query = tmp_path / "query.sql"
    query.write_text("SELECT $least + 1 AS n")
    assert (
        terminal("export", "-f", str(query), "--param", "least=41", "--format", "csv", "--to", "-").out == '"n"\n42\n'
    )


@pytest.mark.parametrize("words", [(), (SQL, "--table", "t"), (SQL, "--param", "least")])
def test_what_makes_no_sense_is_said_before_anything_is_asked(terminal: Terminal, words: tuple[str, ...]) -> None:
    assert terminal("export", *words).code == 2


def test_a_failed_export_exits_1_and_leaves_no_file(terminal: Terminal, tmp_path: Path) -> None:
    failed = terminal("export", "SELECT nothing", "--to", str(tmp_path / "n.parquet"))
    assert failed.code == 1
    assert "nothing" in failed.err
    assert list(tmp_path.iterdir()) == []


def test_ctrl_c_tells_how_to_go_on_and_how_to_stop_it(up: Up, terminal: Terminal, tmp_path: Path) -> None:
    endless = "SELECT sum(a.range * b.range) AS n FROM range(10000000) a, range(1000000) b"
    said = interrupted(up, tmp_path, "claimed", "export", endless, "--to", "n.parquet")
    [export] = re.findall(r"paddock exports cancel (\S+)", said)
    assert terminal("exports", "cancel", export).out == f"{export} is being cancelled.\n"
    assert terminal("exports", "watch", export).code == 1
    again = terminal("exports", "cancel", export)
    assert (again.code, "cancelled" in again.err) == (4, True)
    assert re.search(r"paddock exports download \S+ --to n.parquet", said)
    assert "Traceback" not in said
    assert [path.name for path in tmp_path.iterdir()] == ["said"]


def test_a_mistake_is_told_with_its_place(terminal: Terminal) -> None:
    failed = terminal("export", "SELECT 1 AS n,\n  nothing AS m")
    assert "Line 2, column 3." in failed.err
    export = terminal("exports", "list", "-o", "name").lines[0]
    assert "Change line 2 of its query, at column 3: nothing AS m" in terminal("why", export).out


def test_why_takes_what_a_job_made(terminal: Terminal, made: str) -> None:
    told = terminal("why", made)
    assert told.code == 0, told.err
    assert "This export job completed" in told.lines[0]
    assert terminal("why", made[:-2], "-o", "json").json["status"] == "completed"
    assert terminal("why", "the one of yesterday").code == 3


def test_an_export_is_listed_shown_watched_and_downloaded_later(terminal: Terminal, made: str, tmp_path: Path) -> None:
    assert made in terminal("exports", "list", "-o", "name").lines
    shown = terminal("exports", "show", made)
    assert "completed" in shown.out
    assert "part-00000.parquet" in shown.out
    assert terminal("exports", "watch", made).code == 0
    assert terminal("exports", "download", made, "--to", str(tmp_path / "n.parquet")).code == 0
    assert pq.read_table(tmp_path / "n.parquet").num_rows == 3


def test_a_removed_export_is_gone(terminal: Terminal, made: str) -> None:
    assert terminal("exports", "rm", made).out == f"{made} is being deleted.\n"
    assert terminal("exports", "download", made, "--to", "-").code in (3, 4)
    assert terminal("exports", "rm", "01a1eb97-0000-7000-8000-000000000000").code == 3
