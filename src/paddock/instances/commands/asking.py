"""`paddock instances query` and `schema`."""

import dataclasses
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from paddock.amounts import number, several, size
from paddock.cli.connection import HERE, Connect, Server, open_server
from paddock.cli.errors import wrong_usage
from paddock.cli.output import Column, Item, Output, dump, field, is_terminal, show, table, write
from paddock.cli.wording import duration
from paddock.exports.commands.export import Repeated, pairs, text_of
from paddock.instances.commands.answer_files import RowCounter, Target, is_cut, target_of, write_answer
from paddock.instances.commands.naming import Name, id_of, path_of
from paddock.instances.commands.words import cell, harmless

if TYPE_CHECKING:
    from paddock.client import Client, Result

RowsForm = Literal["table", "json", "yaml", "csv"]
# How long a query is repeated that the server says may be repeated.
PATIENCE_SECONDS = 30.0
CUT = "There are more rows: --to rows.parquet takes up to 1,000,000; or narrow the query.\n"
CUT_FILE = "There are more rows: ask for them with --max-rows (at most 5,000,000), or narrow the query.\n"
NUMBERS = ("INT", "UINT", "SERIAL", "FLOAT", "DOUBLE", "DECIMAL")
EXAMPLE = 'For example: paddock instances query flights "MATCH (n) RETURN n LIMIT 5"'


def query(
    instance: Name,
    cypher: str | None = None,
    /,
    *,
    file: Annotated[Path | None, Parameter(name=["--file", "-f"], allow_leading_hyphen=True)] = None,
    param: Repeated = None,
    timeout: str | None = None,
    max_rows: int | None = None,
    to: str | None = None,
    force: Annotated[bool, Parameter(negative=())] = False,
    output: Annotated[RowsForm, Parameter(name=["--output", "-o"], help="Form of the answer.")] = "table",
    connect: Connect = HERE,
) -> int:
    """Ask an instance in Cypher.

    Parameters
    ----------
    cypher:
        The query: one statement that reads.
    file:
        Read the query from this file; - is standard input.
    param:
        A value that the query names as $name, as name=value; repeat the option for several.
    timeout:
        End it after so long: 30s, 10m. Default: 60s, at most 30m.
    max_rows:
        So many rows at most. Default: 10,000, and 1,000,000 into a Parquet or Arrow file.
    to:
        Write the rows to this file; its ending names the format: .parquet, .arrow, .csv, .json.
    force:
        Replace the file at --to.
    """
    target = None if to is None else target_of(to, force=force)
    asked: dict[str, Any] = {
        "query": _query(cypher, file),
        "parameters": pairs(param, "--param"),
        "timeout": None if timeout is None else _seconds(timeout),
        "max_rows": max_rows,
    }
    server = open_server(connect, patience=PATIENCE_SECONDS)
    id = id_of(server, instance, "running")
    if target is not None:
        return _to_file(server, id, asked, target)
    if output == "csv":
        return _csv(server, id, asked)
    found = server.ask(lambda client: client.instances.connect(id).query(**asked))
    if output != "table":
        dump(dataclasses.asdict(found), output)
        return 0
    _show_rows(found)
    return 0


def _query(cypher: str | None, file: Path | None) -> str:
    text = cypher if file is None else text_of(file)
    if text is None or not text.strip() or (cypher is not None and file is not None):
        raise wrong_usage("Say what to ask: a query or --file, one of them.", EXAMPLE)
    return text


def _seconds(timeout: str) -> float:
    try:
        return duration(timeout).total_seconds()
    except ValueError as problem:
        raise wrong_usage(str(problem)) from None


def _show_rows(found: "Result") -> None:
    if found.rows:
        write(table(*items_and_columns(found)))
    sys.stderr.write(f"{several(found.row_count, 'row')} in {found.execution_time_ms:.0f} ms\n")
    if found.truncated:
        sys.stderr.write(CUT)


def items_and_columns(found: "Result") -> tuple[list[Item], list[Column]]:
    """Cells by their places: two columns may have the same name."""
    items: list[Item] = [{str(place): value for place, value in enumerate(row)} for row in found.rows]
    named = zip(found.columns, found.column_types, strict=True)
    return items, [_column(str(place), name, type) for place, (name, type) in enumerate(named)]


def _column(place: str, name: str, type: str) -> Column:
    number = type.startswith(NUMBERS)
    return Column(harmless(name), lambda row: cell(row[place]), right=number, wide=True, named=True)


def _csv(server: Server, id: str, asked: dict[str, Any]) -> int:
    counter = RowCounter()

    def write_all(client: "Client") -> bool:
        with client.instances.connect(id).csv(**asked) as pieces:
            for piece in pieces:
                counter.count(piece)
                # A program gets the bytes as they are; on a terminal they would be obeyed.
                sys.stdout.buffer.write(harmless(piece.decode("utf-8", "replace")).encode() if is_terminal() else piece)
            return is_cut(pieces, counter, asked)

    cut = server.ask(write_all)
    sys.stdout.buffer.flush()
    if cut:
        sys.stderr.write(CUT)
    return 0


def _to_file(server: Server, id: str, asked: dict[str, Any], target: Target) -> int:
    written = server.ask(lambda client: write_answer(client.instances.connect(id), asked, target))
    sys.stdout.write(f"{target.path}   {several(written.rows, 'row')}   {size(written.bytes)}\n")
    if written.truncated:
        sys.stderr.write(CUT if target.ending.format in ("csv", "json") else CUT_FILE)
    return 0


def schema(instance: Name, /, *, output: Output = "table", connect: Connect = HERE) -> int:
    """Show the labels and edge types of an instance, with their properties."""
    server = open_server(connect)
    found = server.get(f"{path_of(server, instance, 'running')}/schema")
    if output in ("json", "yaml"):
        dump(found, output)
        return 0
    show(found["nodes"], NODES, output, name="label", none="It has no nodes.")
    show(found["edges"], EDGES, output, name="type", none="It has no edges.")
    return 0


def _properties(item: Item) -> str:
    return harmless(", ".join(f"{one['name']} {one['type']}" for one in item["properties"])) or "-"


NODES = (
    field("label"),
    Column("key", lambda node: harmless(f"{node['key']['name']} {node['key']['type']}")),
    Column("nodes", lambda node: number(node["count"]), right=True),
    Column("properties", _properties, wide=True),
)
EDGES = (
    field("type"),
    Column("from", lambda edge: harmless(edge["from"])),
    Column("to", lambda edge: harmless(edge["to"])),
    Column("edges", lambda edge: number(edge["count"]), right=True),
    Column("properties", _properties, wide=True),
)
