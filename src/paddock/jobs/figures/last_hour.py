"""How each kind fared in the last hour, from the figures alone."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from paddock.db.pool import Database, statements
from paddock.jobs.figures.histograms import ZERO

SQL = statements("paddock.jobs.sql", "last_hour.sql")
PART, PARTS = timedelta(minutes=2), 30


@dataclass(frozen=True, slots=True)
class EndCounts:
    """How many completed and how many failed; `parts` the same in steps of two minutes, oldest first."""

    completed: int = 0
    failed: int = 0
    parts: Sequence[tuple[int, int]] = ((0, 0),) * PARTS

    @property
    def n(self) -> int:
        return self.completed + self.failed

    @property
    def failure_share(self) -> float | None:
        return self.failed / self.n if self.n else None


async def ended_by_kind(db: Database) -> dict[str, EndCounts]:
    """Only kinds of which anything ended. The minute under way is in it."""
    now = await db.fetchval(SQL["clock"])
    since = ZERO + (now - ZERO) // PART * PART + PART - PARTS * PART
    counts: dict[str, list[list[int]]] = {}
    for row in await db.fetch(SQL["ended_by_kind"], since, since + PARTS * PART):
        parts = counts.setdefault(row["kind"], [[0, 0] for _ in range(PARTS)])
        parts[(row["bucket"] - since) // PART][row["status"] == "failed"] += row["n"]
    return {
        kind: EndCounts(sum(part[0] for part in parts), sum(part[1] for part in parts), [(a, b) for a, b in parts])
        for kind, parts in counts.items()
    }
