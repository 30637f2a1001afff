"""What a query answers, as rows, tables and frames."""

import io
import sys
from collections.abc import Iterator
from typing import Any

import httpx2
import pyarrow as pa
import pytest

from paddock.client import Client, GraphConnection, MissingPackage, NotOneRow, ResultTruncated
from paddock.client.results import CsvAnswer
from tests.instances.sdk.answering import ID, Answers, data, instance

TABLE = pa.table({"code": ["KFD", "ABC"], "flights": pa.array([3, None], pa.int64())})


def result(rows: list[list[Any]], truncated: bool = False) -> dict[str, Any]:
    return {
        "columns": ["code", "flights"],
        "column_types": ["STRING", "INT64"],
        "rows": rows,
        "row_count": len(rows),
        "execution_time_ms": 1.5,
        "truncated": truncated,
    }


def arrow_stream(table: pa.Table, *, truncated: bool = False, piece: int = 7) -> Iterator[bytes]:
    """As an instance sends it, torn into small pieces by the line."""
    sink = io.BytesIO()
    told = {"row_count": str(table.num_rows), "truncated": "true" if truncated else "false"}
    with pa.ipc.new_stream(sink, table.schema) as writer:
        for batch in table.to_batches():
            writer.write_batch(batch, custom_metadata=told)
    content = sink.getvalue()
    return (content[start : start + piece] for start in range(0, len(content), piece))


@pytest.fixture
def opened() -> Iterator[list[Client]]:
    clients: list[Client] = []
    yield clients
    for client in clients:
        client.close()


def graph(opened: list[Client], *answers: Any) -> tuple[GraphConnection, Answers]:
    server = Answers([data(instance("running")), *answers])
    opened.append(server.client())
    return opened[-1].instances.connect(ID), server


def arrow(table: pa.Table, **how: Any) -> Any:
    headers = {"Content-Type": "application/vnd.apache.arrow.stream"}
    return lambda _: httpx2.Response(200, content=arrow_stream(table, **how), headers=headers)


def test_rows_are_read_as_dicts_or_lists(opened: list[Client]) -> None:
    conn, server = graph(opened, data(result([["KFD", 3], ["ABC", None]])))
    found = conn.query("MATCH …", {"n": 1}, timeout=2.5, max_rows=10)
    assert list(found) == [{"code": "KFD", "flights": 3}, {"code": "ABC", "flights": None}]
    assert found.rows[0] == ["KFD", 3]
    assert len(found) == 2
    assert server.body() == {"query": "MATCH …", "parameters": {"n": 1}, "timeout_ms": 2500, "max_rows": 10}


def test_one_row_and_one_value(opened: list[Client]) -> None:
    conn, _ = graph(opened, data(result([["KFD", 3]])), data(result([["KFD", 3]])), data(result([])))
    assert conn.query_one("…") == {"code": "KFD", "flights": 3}
    assert conn.query_scalar("…") == "KFD"
    assert conn.query_one("…") is None
    assert conn.query_scalar("…") is None


def test_more_than_one_row_is_not_one(opened: list[Client]) -> None:
    conn, _ = graph(opened, data(result([["KFD", 3], ["ABC", 1]])))
    with pytest.raises(NotOneRow):
        conn.query_one("…")


def test_an_arrow_stream_becomes_a_table(opened: list[Client]) -> None:
    conn, server = graph(opened, arrow(TABLE))
    assert conn.query_arrow("…").equals(TABLE)
    assert server.asked[-1].headers["Accept"] == "application/vnd.apache.arrow.stream"


def test_no_rows_are_a_table_with_columns(opened: list[Client]) -> None:
    conn, _ = graph(opened, arrow(TABLE.slice(0, 0)))
    assert conn.query_arrow("…").schema == TABLE.schema


def test_a_cut_answer_warns(opened: list[Client]) -> None:
    conn, _ = graph(opened, arrow(TABLE, truncated=True))
    with pytest.warns(ResultTruncated, match="cut at 2 rows") as caught:
        conn.query_df("…")
    assert caught[0].filename == __file__


def test_a_frame_is_pandas_or_what_is_named(opened: list[Client]) -> None:
    import polars

    conn, _ = graph(opened, arrow(TABLE))
    frame = conn.query_df("…")
    assert type(frame).__module__.startswith("pandas")
    assert list(frame["code"]) == ["KFD", "ABC"]
    assert isinstance(conn.query_df("…", library="polars"), polars.DataFrame)


@pytest.mark.parametrize(("total", "type"), [(7, "int64"), (2**70, "object")])
def test_a_sum_of_integers_is_an_integer_where_it_fits(opened: list[Client], total: int, type: str) -> None:
    field = pa.field("total", pa.decimal128(38, 0), metadata={"paddock": "integer"})
    conn, _ = graph(opened, arrow(pa.table([pa.array([total], field.type)], schema=pa.schema([field]))))
    frame = conn.query_df("…")
    assert (str(frame["total"].dtype), int(frame["total"][0])) == (type, total)


def test_without_pandas_it_is_polars(opened: list[Client], monkeypatch: pytest.MonkeyPatch) -> None:
    import polars

    monkeypatch.setitem(sys.modules, "pandas", None)
    conn, _ = graph(opened, arrow(TABLE))
    assert isinstance(conn.query_df("…"), polars.DataFrame)


def test_without_either_the_command_that_installs_one_is_named(
    opened: list[Client], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    monkeypatch.setitem(sys.modules, "polars", None)
    conn, _ = graph(opened, arrow(TABLE))
    with pytest.raises(MissingPackage, match="python -m pip install pandas"):
        conn.query_df("…")
    with pytest.raises(MissingPackage, match="python -m pip install polars"):
        conn.query_df("…", library="polars")


def test_a_notebook_shows_values_as_text(opened: list[Client]) -> None:
    conn, _ = graph(opened, data(result([["<script>", None]], truncated=True)))
    shown = conn.query("…")._repr_html_()
    assert "&lt;script&gt;" in shown
    assert "<script" not in shown
    assert "cut" in shown


def test_the_client_needs_neither_arrow_nor_a_frame_until_they_are_asked_for() -> None:
    import subprocess

    code = "import sys, paddock.client; print({'pyarrow', 'pandas', 'polars', 'rich', 'IPython'} & set(sys.modules))"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ended.stdout.strip() == "set()"


@pytest.mark.parametrize(
    ("told", "found", "truncated"),
    [("3 of 5", 5, True), ("5 of 5", 5, False), (None, None, None), ("", None, None), ("some of many", None, None)],
)
def test_a_csv_knows_from_its_head_whether_it_was_cut(
    told: str | None, found: int | None, truncated: bool | None
) -> None:
    answer = CsvAnswer(iter([b"a\n", b"1\n"]), told)
    assert (answer.rows_found, answer.truncated) == (found, truncated)
    assert b"".join(answer) == b"a\n1\n"
