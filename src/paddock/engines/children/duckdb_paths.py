"""Which files of remote sources a query reads, told from its parsed text before it runs.

Every path has to be seen here: what is not fetched would be missing from the result, and where a pattern finds other
files nobody would notice. So a path that the query computes is refused, and so is one that could find fetched files
without naming their source.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from paddock.engines.children.duckdb_gate import TABLE_FUNCTIONS, nodes
from paddock.engines.children.wire import Failure

FILE_FUNCTIONS = frozenset(
    name for name in TABLE_FUNCTIONS if name.startswith(("read_", "parquet_")) or name in ("glob", "sniff_csv")
)
PARQUET_FUNCTIONS = frozenset({"read_parquet", "parquet_scan"})
ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
GLOB = re.compile(r"[*?\[]")

# What has to be there of a path's files, the least first.
NAMES, COLUMNS, WHOLE = "names", "columns", "whole"
NEEDS = (NAMES, COLUMNS, WHOLE)


# No dataclass: what that loads would be paid by the start of every query's process.
class Path(NamedTuple):
    text: str
    # To know the query's columns. Those of Parquet files are the first one's; the names of all may be columns too.
    to_describe: str = WHOLE


def remote_paths(
    tree: Any, parameters: Mapping[str, Any], sources: Sequence[str], *, describe: bool = False
) -> dict[str, str]:
    """What the text reads of these sources, and what of it is needed to run it, or only to describe it."""
    found = [path for node in nodes(tree) for path in _paths(node, parameters)]
    needed: dict[str, str] = {}
    for path in found:
        _refuse_address(path.text, sources)
        if "/" in path.text and path.text.partition("/")[0] in sources:
            needs = path.to_describe if describe else WHOLE
            needed[path.text] = max(needs, needed.get(path.text, NAMES), key=NEEDS.index)
    if needed:
        for path in found:
            _refuse_unclear(path.text)
    return needed


def _paths(node: dict[str, Any], parameters: Mapping[str, Any]) -> Iterator[Path]:
    if node.get("type") == "BASE_TABLE" and "schema_name" not in node:
        name = str(node["table_name"])
        yield Path(name, COLUMNS if name.lower().endswith(".parquet") else WHOLE)
    elif node.get("type") == "TABLE_FUNCTION":
        function = str(node["function"]["function_name"]).lower()
        if function in FILE_FUNCTIONS:
            parquet = function in PARQUET_FUNCTIONS
            for number, text in enumerate(_texts(function, node["function"].get("children", []), parameters)):
                yield Path(text, (NAMES if number else COLUMNS) if parquet else WHOLE)


def _texts(function: str, given: Sequence[dict[str, Any]], parameters: Mapping[str, Any]) -> Iterator[str]:
    """Of its first argument that has no name: a text, or a list of them."""
    positional = [_uncast(one) for one in given if one.get("type") != "COMPARE_EQUAL"][:1]
    lists = [one.get("children", []) for one in positional if one.get("function_name") == "list_value"]
    for one in [_uncast(item) for item in lists[0]] if lists else positional:
        match one.get("class"):
            case "CONSTANT":
                value = one["value"].get("value")
            case "PARAMETER":
                value = parameters.get(one["identifier"])
            case _:
                raise Failure(
                    "path_computed",
                    f"The query computes the path that {function} is given. What it reads of remote sources is fetched "
                    f"before it runs: write the whole path, or pass it as a parameter, {function}($path).",
                    hint="A path, a pattern, a list of them, and parameters are known before; this engine has remote "
                    "sources, so that every path it reads has to be.",
                    refused=True,
                )
        if isinstance(value, str):
            yield value


def _uncast(node: dict[str, Any]) -> dict[str, Any]:
    while node.get("class") == "CAST":
        node = node["child"]
    return node


def _refuse_address(path: str, sources: Sequence[str]) -> None:
    if ADDRESS.match(path):
        raise Failure(
            "remote_denied",
            f"'{path}' is an address; a query names what it reads by the name of a remote source.",
            hint=f"Write a path that begins with {' or '.join(f'{name}/' for name in sources)}.",
            refused=True,
        )


def _refuse_unclear(path: str) -> None:
    """Fetched files lie beside those of the first root: `./lake/*` or `*/*` would find the ones that happen to be there."""
    first, slash, _ = path.partition("/")
    if slash and first and (GLOB.search(first) or not {".", ".."}.isdisjoint(path.split("/"))):
        raise Failure(
            "path_denied",
            f"'{path}' might mean files of a remote source, which this query reads too.",
            hint="Begin it with the name of a folder, or with that of the source.",
            refused=True,
        )
