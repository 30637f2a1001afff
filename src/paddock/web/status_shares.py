"""The states of several jobs as one bar: `ui.parts_bar` draws it."""

from collections.abc import Mapping
from dataclasses import dataclass

# A piece is never so small that nobody sees it.
SMALLEST = 4


@dataclass(frozen=True, slots=True)
class StatusShare:
    """How many are in a state; `at` and `size` place its piece of the bar, in thousandths."""

    status: str
    n: int
    at: int
    size: int


def status_shares(counts: Mapping[str, int]) -> list[StatusShare]:
    """In the order of the counts."""
    total, before, shares = max(1, sum(counts.values())), 0, []
    for status, n in counts.items():
        shares.append(StatusShare(status, n, before * 1000 // total, max(SMALLEST, n * 1000 // total) if n else 0))
        before += n
    return shares
