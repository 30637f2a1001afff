"""How densely the neighbours of a node hang together. Direction, loops and parallel edges do not count."""

import networkit
import numpy as np

from paddock.graphs.algorithms.arrays import Graph
from paddock.graphs.algorithms.networkit_threads import prepare
from paddock.graphs.algorithms.running import Answer, Run


def kcore(graph: Graph, run: Run) -> Answer:
    prepare(run)
    if graph.nodes == 0:
        return Answer(np.zeros(0, np.int64), {"largest_core": 0})
    cores = networkit.centrality.CoreDecomposition(networkit.GraphFromCoo(graph.simple(directed=False), graph.nodes))
    cores.run()
    values = np.asarray(cores.scores()).astype(np.int64)
    return Answer(values, {"largest_core": int(values.max())})


def triangle_count(graph: Graph, run: Run) -> Answer:
    prepare(run)
    if graph.nodes == 0:
        return Answer(np.zeros(0, np.int64), {"triangles": 0})
    source, target = graph.simple(directed=False)
    share = networkit.centrality.LocalClusteringCoefficient(networkit.GraphFromCoo((source, target), graph.nodes), True)
    share.run()
    # The coefficient is the share of a node's pairs of neighbours that are neighbours themselves.
    neighbours = np.bincount(source, minlength=graph.nodes) + np.bincount(target, minlength=graph.nodes)
    pairs = neighbours * (neighbours - 1) / 2
    values = np.rint(np.asarray(share.scores()) * pairs).astype(np.int64)
    return Answer(values, {"triangles": int(values.sum()) // 3})
