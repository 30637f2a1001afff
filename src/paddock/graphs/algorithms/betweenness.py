"""Betweenness: for each node the sum, over pairs of other nodes, of the share of their shortest paths that lead through.

From each sampled node paths are followed level by level (Brandes), and the sum is scaled up to all nodes. Every node is
as likely a sample as any other, so the estimate is right on average; networkit's estimate is not, on directed graphs.
"""

from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray
from scipy import sparse

from paddock.graphs.algorithms.arrays import Graph, Numbers, Scores
from paddock.graphs.algorithms.running import Answer, Run

# Where the edges of one step start and where they end.
Step = tuple[Numbers, Numbers]


def betweenness(graph: Graph, run: Run) -> Answer:
    """Along the direction of edges; parallel edges and loops do not count."""
    samples = min(int(run.number("samples")), graph.nodes)
    figures = {"samples": samples, "exact": samples == graph.nodes}
    total = np.zeros(graph.nodes)
    if graph.nodes == 0:
        return Answer(total, figures)
    source, target = graph.simple(directed=True)
    ones = np.ones(len(source), np.int8)
    neighbours = sparse.coo_array((ones, (source, target)), shape=(graph.nodes, graph.nodes)).tocsr()
    for done, start in enumerate(_sampled(graph.nodes, samples, run), 1):
        total += _dependencies(neighbours, start)
        run.tell(done / samples)
    return Answer(total * (graph.nodes / samples), figures)


def _sampled(nodes: int, samples: int, run: Run) -> Numbers:
    if samples == nodes:
        return np.arange(nodes)
    seed = run.parameters.get("seed")
    return np.random.default_rng(None if seed is None else int(seed)).choice(nodes, samples, replace=False)


def _dependencies(neighbours: Any, start: int) -> Scores:
    """How much of the paths from `start` to all others leads through each node."""
    steps, paths = _followed(neighbours, start, np.float64)
    if not np.isfinite(paths).all():
        # More shortest paths than a double can count, as in a large grid.
        steps, paths = _followed(neighbours, start, np.longdouble)
    through = np.zeros(len(paths))
    for source, target in reversed(steps):
        np.add.at(through, source, (paths[source] / paths[target]).astype(np.float64) * (1 + through[target]))
    through[start] = 0
    return through


def _followed(neighbours: Any, start: int, number: DTypeLike) -> tuple[list[Step], NDArray[Any]]:
    """The edges of all shortest paths from `start`, step by step, and how many such paths lead to each node."""
    level = np.full(neighbours.shape[0], -1)
    paths = np.zeros(neighbours.shape[0], number)
    level[start], paths[start] = 0, 1
    reached = np.array([start])
    steps: list[Step] = []
    while len(reached):
        source, target = _edges_from(neighbours, reached)
        reached = np.unique(target[level[target] < 0])
        level[reached] = len(steps) + 1
        shortest = level[target] == len(steps) + 1
        source, target = source[shortest], target[shortest]
        with np.errstate(over="ignore"):
            np.add.at(paths, target, paths[source])
        steps.append((source, target))
    return steps, paths


def _edges_from(neighbours: Any, nodes: Numbers) -> Step:
    begin, end = neighbours.indptr[nodes], neighbours.indptr[nodes + 1]
    counts = (end - begin).astype(np.int64)
    # The places of all their edges: a run of numbers for each node.
    places = np.arange(counts.sum()) + np.repeat(begin - (np.cumsum(counts) - counts), counts)
    return np.repeat(nodes, counts), neighbours.indices[places].astype(np.int64)
