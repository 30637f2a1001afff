"""Algorithms that put nodes into communities. Edges count in both directions, parallel ones by their summed weight."""

from typing import Any

import networkit
import numpy as np

from paddock.graphs.algorithms.arrays import Graph
from paddock.graphs.algorithms.networkit_threads import prepare
from paddock.graphs.algorithms.running import Answer, Run, largest_first


def louvain(graph: Graph, run: Run) -> Answer:
    prepare(run)
    if graph.nodes == 0:
        return Answer(np.zeros(0, np.int64), {"communities": 0, "modularity": 0.0})
    made = _undirected(graph)
    resolution = run.number("resolution")
    found = networkit.community.PLM(made, False, resolution, "none" if run.threads == 1 else "balanced")
    found.run()
    # Asked once: a second getPartition() of one object is a segmentation fault.
    partition = found.getPartition()
    modularity = networkit.community.Modularity().getQuality(partition, made) if made.totalEdgeWeight() else 0.0
    values, sizes = largest_first(np.asarray(partition.getVector()))
    return Answer(values, {"communities": len(sizes), "modularity": float(modularity)}, sizes)


def label_propagation(graph: Graph, run: Run) -> Answer:
    prepare(run)
    if graph.nodes == 0:
        return Answer(np.zeros(0, np.int64), {"communities": 0, "iterations": 0})
    found = networkit.community.PLP(_undirected(graph), 0, int(run.number("max_iterations")))
    found.run()
    values, sizes = largest_first(np.asarray(found.getPartition().getVector()))
    return Answer(values, {"communities": len(sizes), "iterations": found.numberOfIterations()}, sizes)


def _undirected(graph: Graph) -> Any:
    source, target, weight = graph.undirected()
    return networkit.GraphFromCoo((weight, (source, target)), graph.nodes, weighted=True)
