"""The graph of an execution in memory, as algorithms take it: node numbers at both ends of each edge."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from paddock.graphs.algorithms import scratch

Numbers = NDArray[np.int64]
Scores = NDArray[np.float64]


@dataclass(frozen=True)
class Graph:
    nodes: int
    source: Numbers
    target: Numbers
    weight: Scores | None = None

    @property
    def edges(self) -> int:
        return len(self.source)

    def simple(self, *, directed: bool) -> tuple[Numbers, Numbers]:
        """Each pair of neighbours once, without loops. Undirected, the smaller number comes first."""
        source, target, _weight = self._merged(np.ones(self.edges), directed=directed, loops=False)
        return source, target

    def undirected(self) -> tuple[Numbers, Numbers, Scores]:
        """Each pair of neighbours once, loops too, with the sum of the weights of all edges between them."""
        weight = np.ones(self.edges) if self.weight is None else self.weight
        return self._merged(weight, directed=False, loops=True)

    def _merged(self, weight: Scores, *, directed: bool, loops: bool) -> tuple[Numbers, Numbers, Scores]:
        """Done here and not by networkit, which corrupts the heap when it removes double edges itself."""
        source, target = self.source, self.target
        if not directed:
            source, target = np.minimum(source, target), np.maximum(source, target)
        if not loops:
            kept = source != target
            source, target, weight = source[kept], target[kept], weight[kept]
        merged = sparse.coo_array((weight, (source, target)), shape=(self.nodes, self.nodes)).tocsr().tocoo()
        return merged.row.astype(np.int64), merged.col.astype(np.int64), merged.data


def load(folder: Path) -> Graph:
    weight = folder / scratch.WEIGHT
    return Graph(
        sum(scratch.label_sizes(folder).values()),
        np.load(folder / scratch.SOURCE, allow_pickle=False),
        np.load(folder / scratch.TARGET, allow_pickle=False),
        np.load(weight, allow_pickle=False) if weight.exists() else None,
    )


def write_answer(folder: Path, values: NDArray[Any], figures: Mapping[str, Any]) -> None:
    np.save(folder / scratch.VALUES, values, allow_pickle=False)
    (folder / scratch.FIGURES).write_text(json.dumps(figures))
