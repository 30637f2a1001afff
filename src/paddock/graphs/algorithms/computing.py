"""The step that computes: from the arrays of `arrays` to one value for each node. No graph engine is loaded here."""

import importlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paddock.graphs.algorithms import arrays
from paddock.graphs.algorithms.confining import confine
from paddock.graphs.algorithms.reporting import Tell
from paddock.graphs.algorithms.running import Answer, Run
from paddock.graphs.algorithms.table import ALGORITHMS

LARGEST = 20
DTYPES = {"INT64": np.int64, "DOUBLE": np.float64}


def compute(request: dict[str, Any], tell: Tell) -> dict[str, Any]:
    task, folder = request["task"], Path(request["scratch"])
    module, _, name = (ALGORITHMS[task["algorithm"]].function or "").partition(":")
    function = getattr(importlib.import_module(module), name)
    set_limits = confine(request, [], folder)
    set_limits()
    # A result that comes out the same again is worth more than the other cores.
    threads = request["threads"] if task["parameters"].get("seed") is None else 1
    graph = arrays.load(folder)
    answer: Answer = function(graph, Run(task["parameters"], threads, tell))
    values = answer.values.astype(DTYPES[task["type"]])
    largest = largest_nodes(values) if answer.sizes is None else largest_groups(answer.sizes)
    arrays.write_answer(folder, values, {**answer.figures, "largest": largest})
    return {"nodes": graph.nodes, "edges": graph.edges}


def largest_nodes(values: NDArray[Any]) -> list[tuple[int, float]]:
    """Number and value, largest first; of equal ones the first node comes first."""
    order = np.argsort(-values, kind="stable")[:LARGEST]
    return [(int(number), values[number].item()) for number in order]


def largest_groups(sizes: arrays.Numbers) -> list[tuple[int, int]]:
    """Number of the group and how many nodes it has. Groups are numbered by size already."""
    return [(number, int(size)) for number, size in enumerate(sizes[:LARGEST])]
