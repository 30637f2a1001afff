"""`paddock instances query` and `schema` against a running graph."""

import csv
import gzip
import io
import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from paddock.client import Result
from paddock.instances.commands.answer_files import RowCounter
from paddock.instances.commands.asking import items_and_columns
from paddock.instances.commands.words import harmless
from tests.cli.conftest import Terminal

pytestmark = pytest.mark.slow

TWO = (
    "MATCH (a:Airport)-[r:ROUTE]->(b:Airport) RETURN a.code AS code, r.flights AS flights ORDER BY flights DESC LIMIT 2"
)
ALL = "MATCH (a:Airport) RETURN a.code AS code, a.city AS city"


def test_a_query_prints_a_table(terminal: Terminal) -> None:
    said = terminal("instances", "query", "flights", TWO)
    assert said.code == 0
    assert [line.split() for line in said.lines] == [["code", "flights"], ["KFD", "1854"], ["KJR", "500"]]
    assert said.err.startswith("2 rows in ")


def test_json_and_csv_are_for_programs(terminal: Terminal) -> None:
    said = terminal("instances", "query", "flights", TWO, "-o", "json")
    assert said.json["rows"] == [["KFD", 1854], ["KJR", 500]]
    assert said.err == ""
    said = terminal("instances", "query", "flights", TWO, "-o", "csv")
    assert said.out == '"code","flights"\n"KFD",1854\n"KJR",500\n'


def test_no_rows_are_no_table(terminal: Terminal) -> None:
    said = terminal("instances", "query", "flights", "MATCH (a:Airport {code: 'none'}) RETURN a")
    assert (said.code, said.out) == (0, "")
    assert said.err.startswith("0 rows")


def test_parameters_and_files_of_queries(terminal: Terminal, tmp_path: Path) -> None:
    (tmp_path / "question.cypher").write_text("MATCH (a:Airport {code: $code}) RETURN a.city")
    said = terminal(
        *("instances", "query", "flights", "-f", str(tmp_path / "question.cypher"), "--param", "code=KFD", "-o", "json")
    )
    assert said.json["rows"] == [["Nekadulo"]]


def test_rows_become_parquet(terminal: Terminal, tmp_path: Path) -> None:
    said = terminal("instances", "query", "flights", ALL, "--to", str(tmp_path / "all.parquet"))
    assert said.code == 0, said.err
    assert said.out.startswith(f"{tmp_path / 'all.parquet'}   2,000 rows   ")
    assert pq.read_table(tmp_path / "all.parquet").num_rows == 2000
    assert [path.name for path in tmp_path.iterdir()] == ["all.parquet"]


def test_rows_become_csv_and_json(terminal: Terminal, tmp_path: Path) -> None:
    assert terminal("instances", "query", "flights", ALL, "--to", str(tmp_path / "all.csv.gz")).code == 0
    rows = list(csv.reader(io.StringIO(gzip.decompress((tmp_path / "all.csv.gz").read_bytes()).decode())))
    assert len(rows) == 2001
    assert terminal("instances", "query", "flights", TWO, "--to", str(tmp_path / "two.json")).code == 0
    assert json.loads((tmp_path / "two.json").read_text())["rows"] == [["KFD", 1854], ["KJR", 500]]


def test_nothing_is_overwritten_unasked(terminal: Terminal, tmp_path: Path) -> None:
    mine = tmp_path / "mine.parquet"
    mine.write_text("precious")
    said = terminal("instances", "query", "flights", ALL, "--to", str(mine))
    assert said.code == 2
    assert "--force" in said.err
    assert mine.read_text() == "precious"
    assert terminal("instances", "query", "flights", ALL, "--to", str(mine), "--force").code == 0
    assert pq.read_table(mine).num_rows == 2000


def test_a_query_that_fails_leaves_no_file(terminal: Terminal, tmp_path: Path) -> None:
    said = terminal("instances", "query", "flights", "MATCH (a:Nothing) RETURN a", "--to", str(tmp_path / "a.parquet"))
    assert said.code == 2
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["rows", "rows.xlsx", "rows.parquet.gz"])
def test_an_ending_that_says_nothing_is_refused(terminal: Terminal, tmp_path: Path, name: str) -> None:
    said = terminal("instances", "query", "flights", ALL, "--to", str(tmp_path / name))
    assert said.code == 2
    assert ".parquet" in said.err


def test_a_cut_answer_says_where_the_rest_is(terminal: Terminal, tmp_path: Path) -> None:
    said = terminal("instances", "query", "flights", ALL, "--max-rows", "3")
    assert len(said.lines) == 4
    assert "--to rows.parquet" in said.err
    said = terminal("instances", "query", "flights", ALL, "--max-rows", "3", "-o", "csv")
    assert "--to rows.parquet" in said.err
    said = terminal("instances", "query", "flights", ALL, "--max-rows", "3", "--to", str(tmp_path / "a.parquet"))
    assert "--max-rows" in said.err


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (["query", "flights", "MATCH (a:Airport RETURN a"], 2, "Parser exception"),
        (["query", "flights", "CREATE (:Airport {code: 'X'})"], 2, ""),
        (["query", "nothing", "RETURN 1"], 3, "There is no instance 'nothing'"),
        (["query", "flights"], 2, "Say what to ask"),
        (["query", "flights", "  "], 2, "Say what to ask"),
        (["query", "flights", "RETURN 1", "--timeout", "soon"], 2, "no duration"),
        (["query", "flights", "RETURN $x", "--param", "x"], 2, "name=value"),
        (["show", "019a8b1e-4c40-7000-9d6e-6f1d3c0a51e7"], 3, ""),
        (["create"], 2, "either a mapping or --snapshot"),
        (["create", "nothing"], 3, "There is no mapping 'nothing'"),
        (["share", "flights", "--revoke"], 2, "from whom"),
        (["algo", "flights", "shortest_path"], 2, "two ends"),
    ],
)
def test_what_is_refused_has_its_exit_code(terminal: Terminal, words: list[str], code: int, told: str) -> None:
    said = terminal("instances", *words)
    assert (said.code, said.out) == (code, "")
    assert told in said.err


def test_a_query_that_takes_too_long_fails(terminal: Terminal) -> None:
    endless = "MATCH (a:Airport)-[:ROUTE*1..6]->(b:Airport) RETURN count(*)"
    assert terminal("instances", "query", "flights", endless, "--timeout", "1s").code == 1


def test_the_schema_names_labels_and_types(terminal: Terminal) -> None:
    said = terminal("instances", "schema", "flights")
    assert said.lines[1].split()[:6] == ["Airport", "code", "STRING", "2,000", "city", "STRING,"]
    assert any(line.split()[:3] == ["ROUTE", "Airport", "Airport"] for line in said.lines)


def test_values_are_shown_and_never_obeyed(terminal: Terminal) -> None:
    said = terminal("instances", "query", "flights", "RETURN $text AS t", "--param", 'text="\\u001b[31mred\\nline"')
    assert said.lines[1:] == ["\\x1b[31mred⏎line"]


def test_columns_of_one_name_are_both_shown() -> None:
    found = Result(["n", "n"], ["INT64", "INT64"], [[1, 2]], 1, 0.1, False)
    items, columns = items_and_columns(found)
    assert [column.cell(items[0]) for column in columns] == ["1", "2"]


def test_control_characters_are_pictures() -> None:
    assert harmless("a\x1b]0;x\x07\u202eb\tc\n") == "a\\x1b]0;x\\x07\\x202eb\tc\n"


@pytest.mark.parametrize("size", [1, 2, 3, 7, 100])
def test_rows_of_a_csv_are_counted_whatever_is_in_quotes(size: int) -> None:
    text = b'"a","b"\n"x\ny",1\n"say ""hi""\n",\n,3\n'
    counter = RowCounter()
    for start in range(0, len(text), size):
        counter.count(text[start : start + size])
    assert counter.rows == 3


@pytest.mark.parametrize(("most", "told"), [(3, True), (2_000, False)])
def test_a_csv_says_that_it_was_cut_and_only_then(terminal: Terminal, tmp_path: Path, most: int, told: bool) -> None:
    file = tmp_path / "some.csv"
    said = terminal("instances", "query", "flights", ALL, "--max-rows", str(most), "--to", str(file))
    assert len(file.read_text().splitlines()) == most + 1
    assert ("There are more rows" in said.err) is told
