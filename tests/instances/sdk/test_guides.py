"""What the guides show is what happens."""

import ast
import re
from pathlib import Path
from typing import Any

import pytest

from paddock.client import Client, GraphConnection
from tests.instances.flights import notebook_cells
from tests.processes.running import Up

pytestmark = pytest.mark.slow

DOCS = Path(__file__).parents[3] / "docs"
QUESTION = re.compile(r"^## (\d+\. .+?)\n.*?```cypher\n(.+?)```\n\n```text\n(.+?)```", re.MULTILINE | re.DOTALL)
QUESTIONS = QUESTION.findall((DOCS / "cypher.md").read_text("utf-8"))


def test_there_are_ten_questions() -> None:
    assert len(QUESTIONS) == 10


@pytest.mark.parametrize(("question", "query", "shown"), QUESTIONS, ids=[question for question, *_ in QUESTIONS])
def test_the_answer_is_the_one_that_is_shown(conn: GraphConnection, question: str, query: str, shown: str) -> None:
    from paddock.cli.output import rendered, table
    from paddock.instances.commands.asking import items_and_columns

    found = conn.query(query, {"from": "XHY"} if "$from" in query else None)
    assert rendered(table(*items_and_columns(found))) == shown


def test_the_cells_of_the_notebook_run_in_order(
    flights: Up, client: Client, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "paddock-data").symlink_to(flights.data)
    seen: dict[str, Any] = {}
    answers = [run_cell(cell, seen) for cell in notebook_cells(DOCS / "notebooks" / "flights.ipynb")]
    assert answers[0] == (["Airport", "Airline"], ["ROUTE", "SERVES"])
    assert answers[1] == 2000
    assert list(seen["busiest"]["origin"][:2]) == ["KJR", "KFD"]
    assert list(seen["on_time"]["airports"]) == [5, 58, 1112, 822, 2]
    assert answers[-2]["a.code"][0] == "KFD"
    assert [one for one in client.instances.list(q="notebook") if one["status"] != "stopping"] == []


def run_cell(code: str, names: dict[str, Any]) -> Any:
    """As a notebook does: the value of a last line that is an expression."""
    tree = ast.parse(code)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, "cell", "exec"), names)
    if last is None:
        return None
    assert isinstance(last, ast.Expr)
    return eval(compile(ast.Expression(last.value), "cell", "eval"), names)
