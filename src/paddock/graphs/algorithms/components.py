"""Which nodes hang together."""

import numpy as np
from scipy import sparse
from scipy.sparse import csgraph

from paddock.graphs.algorithms.arrays import Graph
from paddock.graphs.algorithms.running import Answer, Run, largest_first


def wcc(graph: Graph, run: Run) -> Answer:
    return _components(graph, "weak")


def scc(graph: Graph, run: Run) -> Answer:
    return _components(graph, "strong")


def _components(graph: Graph, connection: str) -> Answer:
    if graph.nodes == 0:
        return Answer(np.zeros(0, np.int64), {"components": 0})
    # Ones whatever the weights are: an edge of weight 0 connects, too.
    ones = np.ones(graph.edges, np.int8)
    matrix = sparse.coo_array((ones, (graph.source, graph.target)), shape=(graph.nodes, graph.nodes))
    _count, members = csgraph.connected_components(matrix.tocsr(), directed=True, connection=connection)
    values, sizes = largest_first(members)
    return Answer(values, {"components": len(sizes)}, sizes)
