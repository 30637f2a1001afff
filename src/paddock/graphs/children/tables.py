"""Tables from definitions, and files into tables."""

from collections.abc import Callable, Sequence
from typing import Any

from paddock.declared_types import Type, parse
from paddock.graphs.children.adapter import quoted, run, scalar
from paddock.graphs.children.decimals import rewritten
from paddock.graphs.children.explaining import TableProblem
from paddock.graphs.problems import LoadFailed

Tell = Callable[[dict[str, Any]], None]


class Loading:
    def __init__(
        self, connection: Any, nodes: Sequence[dict[str, Any]], edges: Sequence[dict[str, Any]], tell: Tell
    ) -> None:
        self._connection = connection
        self._nodes = nodes
        self._edges = edges
        self._tell = tell

    def make_tables(self) -> None:
        self._tell({"phase": "schema"})
        for table in self._nodes:
            self._run(table["label"], "schema", node_table(table))
        for table in self._edges:
            self._run(table["type"], "schema", edge_table(table))

    def copy_nodes(self) -> None:
        self._tell({"phase": "nodes"})
        for table in self._nodes:
            types = [table["key"]["type"], *(column["type"] for column in table["properties"])]
            self._copy(table["label"], table, types, "")

    def copy_edges(self) -> None:
        self._tell({"phase": "edges"})
        keys = {table["label"]: table["key"]["type"] for table in self._nodes}
        for table in self._edges:
            types = [keys[table["from"]], keys[table["to"]], *(column["type"] for column in table["properties"])]
            # An edge whose end is missing is skipped here and counted afterwards.
            self._copy(table["type"], table, types, " (ignore_errors=true)")

    def count(self) -> dict[str, Any]:
        """What is there must be what the manifest says, less the edges that were skipped."""
        nodes = {table["label"]: self._counted(table["label"], "nodes") for table in self._nodes}
        edges = {table["type"]: self._counted(table["type"], "edges") for table in self._edges}
        for table in self._nodes:
            if nodes[table["label"]] != table["rows"]:
                raise _counts_differ(table["label"], table["rows"], nodes[table["label"]])
        for table in self._edges:
            if edges[table["type"]] > table["rows"]:
                raise _counts_differ(table["type"], table["rows"], edges[table["type"]])
        dangling = {table["type"]: table["rows"] - edges[table["type"]] for table in self._edges}
        return {
            "counts": {"nodes": nodes, "edges": edges},
            "dangling_edges": {type: missing for type, missing in dangling.items() if missing},
        }

    def _counted(self, name: str, section: str) -> int:
        pattern = f"(n:{quoted(name)})" if section == "nodes" else f"()-[n:{quoted(name)}]->()"
        return int(scalar(self._connection, f"MATCH {pattern} RETURN count(*)"))

    def _copy(self, name: str, table: dict[str, Any], types: Sequence[str], options: str) -> None:
        """One COPY for all files of a table."""
        parsed = [parse(type) for type in types]
        files = [rewritten(file, parsed) if any(map(has_decimal, parsed)) else file for file in table["files"]]
        if files:
            # A literal list: the names are ours and hold nothing that would need an escape.
            self._run(name, "copy", f"COPY {quoted(name)} FROM {files!r}{options}")
        self._tell({"table": name, "done": table["rows"]})

    def _run(self, name: str, doing: str, statement: str) -> None:
        try:
            run(self._connection, statement)
        except (RuntimeError, MemoryError) as problem:
            raise TableProblem(name, doing, str(problem)) from problem


def node_table(table: dict[str, Any]) -> str:
    columns = [_column(column) for column in (table["key"], *table["properties"])]
    return (
        f"CREATE NODE TABLE {quoted(table['label'])}({', '.join(columns)}, PRIMARY KEY({quoted(table['key']['name'])}))"
    )


def edge_table(table: dict[str, Any]) -> str:
    columns = [f"FROM {quoted(table['from'])} TO {quoted(table['to'])}", *map(_column, table["properties"])]
    return f"CREATE REL TABLE {quoted(table['type'])}({', '.join(columns)})"


def _column(column: dict[str, Any]) -> str:
    return f"{quoted(column['name'])} {engine_type(parse(column['type']))}"


def engine_type(type: Type) -> str:
    """The same words but for lists."""
    if type.name == "LIST":
        return f"{engine_type(type.inner[0])}[]"
    if type.name == "MAP":
        return f"MAP({engine_type(type.inner[0])}, {engine_type(type.inner[1])})"
    if type.name == "STRUCT":
        fields = zip(type.fields, type.inner, strict=True)
        return f"STRUCT({', '.join(f'{quoted(name)} {engine_type(inner)}' for name, inner in fields)})"
    return str(type)


def has_decimal(type: Type) -> bool:
    return type.name == "DECIMAL" or any(map(has_decimal, type.inner))


def _counts_differ(name: str, wanted: int, found: int) -> LoadFailed:
    return LoadFailed(
        "counts_differ",
        f"{name}: the snapshot has {wanted:,} rows, the graph has {found:,}.",
        "Make the snapshot again; if it comes back, report it.",
    )
