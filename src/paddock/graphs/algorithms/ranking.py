"""Algorithms that give each node a score: PageRank and degree."""

import numpy as np

from paddock.graphs.algorithms.arrays import Graph, Scores
from paddock.graphs.algorithms.running import Answer, Run


def pagerank(graph: Graph, run: Run) -> Answer:
    """Nodes without a way out give what they have to all nodes alike. Parallel edges count as often as they are there.

    A weighted edge is taken in proportion to its weight; a node whose weights are all 0 has no way out."""
    damping, tolerance = run.number("damping"), run.number("tolerance")
    limit = int(run.number("max_iterations"))
    if graph.nodes == 0:
        return Answer(np.zeros(0), {"iterations": 0, "converged": True})
    out = np.bincount(graph.source, graph.weight, graph.nodes)
    dangling = out == 0
    share = np.divide(1.0, out, out=np.zeros(graph.nodes), where=~dangling)
    rank = np.full(graph.nodes, 1 / graph.nodes)
    iterations, change = 0, np.inf
    while iterations < limit and change >= tolerance:
        before = rank
        rank = damping * _passed_on(graph, before * share)
        # What is missing from 1 came to nodes without a way out, or was kept back for starting anew.
        rank += (damping * before[dangling].sum() + (1 - damping)) / graph.nodes
        change = float(np.abs(rank - before).sum())
        iterations += 1
        run.tell(iterations / limit)
    return Answer(rank, {"iterations": iterations, "converged": change < tolerance})


def _passed_on(graph: Graph, shares: Scores) -> Scores:
    """What reaches each node; `shares` is what each node gives along one edge of weight 1."""
    flow = shares[graph.source]
    if graph.weight is not None:
        flow *= graph.weight
    reached: Scores = np.bincount(graph.target, flow, graph.nodes)  # type: ignore[assignment]  # sums of floats are floats
    return reached


def degree(graph: Graph, run: Run) -> Answer:
    direction = run.text("direction")
    ends = {"outgoing": [graph.source], "incoming": [graph.target], "both": [graph.source, graph.target]}[direction]
    counted = sum(np.bincount(end, graph.weight, graph.nodes) for end in ends)
    return Answer(np.asarray(counted), {"edges": graph.edges})
