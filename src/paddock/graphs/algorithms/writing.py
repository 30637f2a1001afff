"""The step that writes: from one value for each node to a property in a copy of the database.

Nobody else opens the copy. Killed anywhere, this leaves one that nobody will ever open; when it says that it is done, the
copy is one file.
"""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from paddock.graphs.algorithms import scratch
from paddock.graphs.algorithms.confining import confine
from paddock.graphs.algorithms.reporting import Tell
from paddock.graphs.algorithms.table import ALGORITHMS
from paddock.graphs.children.adapter import GraphEngine, load_engine, quoted, run

BATCH = "batch.parquet"
# Rows that are set in one transaction: what a transaction changes is held in memory.
BATCH_ROWS = 1 << 18
# How much of the step is done when the property is filled; the rest is the checkpoint's.
FILLED = 0.9
GROUP = {"components": "component", "communities": "community"}


def write(request: dict[str, Any], tell: Tell) -> dict[str, Any]:
    task, folder = request["task"], Path(request["scratch"])
    copy = Path(request["copy"])
    load_engine(request["wrapper_type"])
    set_limits = confine(request, [], folder, copy.parent)
    # The name of a file stands in a statement, and that of a folder may hold what the engine would read as a pattern.
    os.chdir(folder)
    engine = GraphEngine(request["wrapper_type"], copy, pool_bytes=request["pool_bytes"], threads=request["threads"])
    set_limits()
    connection = engine.connect()
    sizes = scratch.label_sizes(folder)
    _fill_all(connection, task, sizes, tell)
    run(connection, "CHECKPOINT")
    figures = _figures(connection, task, sizes, json.loads(Path(scratch.FIGURES).read_text()))
    connection.close()
    engine.close()
    return figures


def _fill_all(connection: Any, task: dict[str, Any], sizes: dict[str, int], tell: Tell) -> None:
    for label, name in task["replaces"]:
        run(connection, f"ALTER TABLE {quoted(label)} DROP {quoted(name)}")
    values = np.load(scratch.VALUES, mmap_mode="r", allow_pickle=False) if sum(sizes.values()) else np.zeros(0)
    start = 0
    for label, size in sizes.items():
        run(connection, f"ALTER TABLE {quoted(label)} ADD {quoted(task['property'])} {task['type']}")
        for done in _fill(connection, task, label, values[start : start + size]):
            tell(FILLED * (start + done) / len(values))
        start += size


def _fill(connection: Any, task: dict[str, Any], label: str, values: NDArray[Any]) -> Iterator[int]:
    """Yields how many are done. Nodes are found by their key, the one way that is fast in both engines."""
    node, key, name = quoted(label), quoted(task["keys"][label]["name"]), quoted(task["property"])
    found = run(connection, f"MATCH (n:{node}) RETURN offset(id(n)), n.{key}").get_as_arrow(BATCH_ROWS)
    offsets, keys = found.column(0).to_numpy(), found.column(1)
    # Both engines read a UUID or a date of a file as text.
    same = f"CAST(key AS {task['keys'][label]['type']})"
    for begin in range(0, len(offsets), BATCH_ROWS):
        part = slice(begin, begin + BATCH_ROWS)
        pq.write_table(pa.table({"key": keys[part], "value": values[offsets[part]]}), BATCH, compression="none")
        run(connection, f"LOAD FROM '{BATCH}' MATCH (n:{node}) WHERE n.{key} = {same} SET n.{name} = value")
        yield min(begin + BATCH_ROWS, len(offsets))


def _figures(connection: Any, task: dict[str, Any], sizes: dict[str, int], figures: dict[str, Any]) -> dict[str, Any]:
    """With the keys of the largest nodes in place of their numbers."""
    groups = ALGORITHMS[task["algorithm"]].groups
    largest = figures.pop("largest")
    if groups is not None:
        named = [{GROUP[groups]: number, "nodes": size} for number, size in largest]
    else:
        nodes = _nodes(connection, task, sizes, {number for number, _value in largest})
        named = [{**nodes[number], "value": value} for number, value in largest]
    return {"figures": figures, "largest": named}


def _nodes(
    connection: Any, task: dict[str, Any], sizes: dict[str, int], numbers: set[int]
) -> dict[int, dict[str, Any]]:
    """Label and key of the nodes with these numbers."""
    found, start = {}, 0
    for label, size in sizes.items():
        offsets = [number - start for number in numbers if start <= number < start + size]
        if offsets:
            key = quoted(task["keys"][label]["name"])
            question = f"MATCH (n:{quoted(label)}) WHERE offset(id(n)) IN $offsets RETURN offset(id(n)), n.{key}"
            for offset, value in run(connection, question, {"offsets": offsets}).get_all():
                found[start + offset] = {"label": label, "key": value if isinstance(value, int) else str(value)}
        start += size
    return found
