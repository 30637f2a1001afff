"""The step that reads: from the database to the arrays that `scratch` describes. It runs none of the users' Cypher."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow  # noqa: F401  what the engine's answers are made of cannot be loaded any more once we are confined

from paddock.graphs.algorithms import scratch
from paddock.graphs.algorithms.confining import confine
from paddock.graphs.algorithms.reporting import Failed, Tell
from paddock.graphs.children.adapter import GraphEngine, load_engine, quoted, run, scalar

BATCH_ROWS = 1 << 16


def read(request: dict[str, Any], tell: Tell) -> dict[str, Any]:
    task, folder, database = request["task"], Path(request["scratch"]), Path(request["database"])
    load_engine(request["wrapper_type"])
    set_limits = confine(request, [database.parent], folder)
    engine = GraphEngine(
        request["wrapper_type"],
        database,
        pool_bytes=request["pool_bytes"],
        threads=request["threads"],
        read_only=True,
    )
    set_limits()
    connection = engine.connect()
    sizes = {label: _nodes(connection, label) for label in task["keys"]}
    (folder / scratch.LABELS).write_text(json.dumps(sizes))
    _read_edges(connection, task, sizes, folder, tell)
    connection.close()
    engine.close()
    return {}


def _nodes(connection: Any, label: str) -> int:
    """Offsets are counted on from 0 without a gap, as a load makes them; else numbers would mean other nodes."""
    [[count, highest]] = run(connection, f"MATCH (n:{quoted(label)}) RETURN count(*), max(offset(id(n)))").get_all()
    if count != (0 if highest is None else highest + 1):
        raise Failed("database_not_dense", f"{label} has {count:,} nodes and offsets up to {highest:,}.")
    return int(count)


def _read_edges(connection: Any, task: dict[str, Any], sizes: dict[str, int], folder: Path, tell: Tell) -> None:
    """One type after the other into files of their full size, so that only one type is ever held in memory."""
    counts = [_count(connection, edge) for edge, _source, _target in task["edges"]]
    weighted = task["weight_property"] is not None
    names = {scratch.SOURCE: np.int64, scratch.TARGET: np.int64, **({scratch.WEIGHT: np.float64} if weighted else {})}
    files = [_new_file(folder / name, dtype, sum(counts)) for name, dtype in names.items()]
    filled = 0
    for (edge, source, target), count in zip(task["edges"], counts, strict=True):
        found = _edges(connection, edge, source, target, task["weight_property"])
        starts = (_start(sizes, source), _start(sizes, target), 0)
        for file, column, start in zip(files, found.columns, starts, strict=False):
            file[filled : filled + count] = column.to_numpy() + start
        filled += count
        tell(filled / max(1, sum(counts)))


def _count(connection: Any, edge: str) -> int:
    return int(scalar(connection, f"MATCH ()-[r:{quoted(edge)}]->() RETURN count(*)"))


def _edges(connection: Any, edge: str, source: str, target: str, weight: str | None) -> Any:
    pattern = f"(a:{quoted(source)})-[r:{quoted(edge)}]->(b:{quoted(target)})"
    asked = "" if weight is None else f", CAST(r.{quoted(weight)} AS DOUBLE)"
    answer = run(connection, f"MATCH {pattern} RETURN offset(id(a)), offset(id(b)){asked}")
    found = answer.get_as_arrow(BATCH_ROWS)
    if weight is not None:
        _check_weights(edge, weight, found.column(2))
    return found


def _check_weights(edge: str, weight: str, column: Any) -> None:
    hint = "Correct them in the edge's SQL, or leave weight_property out."
    if column.null_count:
        raise Failed("weight_missing", f"{column.null_count:,} edges of {edge} have no {weight} (NULL).", hint=hint)
    values = column.to_numpy()
    unusable = int(np.count_nonzero(~(np.isfinite(values) & (values >= 0))))
    if unusable:
        message = f"{unusable:,} edges of {edge} have a {weight} that is negative, infinite or no number."
        raise Failed("weight_unusable", message, hint=hint)


def _start(sizes: dict[str, int], label: str) -> int:
    before = list(sizes)[: list(sizes).index(label)]
    return sum(sizes[name] for name in before)


def _new_file(path: Path, dtype: Any, size: int) -> Any:
    if size == 0:  # an empty file cannot be mapped
        np.save(path, np.zeros(0, dtype), allow_pickle=False)
        return np.zeros(0, dtype)
    return np.lib.format.open_memmap(path, "w+", dtype, (size,))
