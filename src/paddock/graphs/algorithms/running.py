"""What an algorithm's function is given besides the graph, and what it gives back."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paddock.graphs.algorithms.arrays import Numbers
from paddock.graphs.algorithms.reporting import Tell
from paddock.graphs.algorithms.table import Value


@dataclass(frozen=True)
class Answer:
    """`sizes` is how many nodes each group has, largest first, where the values are numbers of groups."""

    values: NDArray[Any]
    figures: Mapping[str, Any]
    sizes: Numbers | None = None


def _nobody(_done: float) -> None: ...


@dataclass(frozen=True)
class Run:
    parameters: Mapping[str, Value] = field(default_factory=dict)
    threads: int = 1
    tell: Tell = _nobody

    def number(self, name: str) -> float:
        value = self.parameters[name]
        assert isinstance(value, int | float), "validated before"
        return value

    def text(self, name: str) -> str:
        return str(self.parameters[name])


def largest_first(members: NDArray[Any]) -> tuple[Numbers, Numbers]:
    """Groups numbered anew by size, those of one size by their first node; and their sizes."""
    _groups, first, group, sizes = np.unique(members, return_index=True, return_inverse=True, return_counts=True)
    order = np.lexsort((first, -sizes))
    number = np.empty(len(order), np.int64)
    number[order] = np.arange(len(order))
    return number[group], sizes[order].astype(np.int64)
