"""A snapshot in words: how it stands in one sentence, and each part with how far it is."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from paddock.exports.snapshot_states import Part, Snapshot
from paddock.web.progress import Progress, reported
from paddock.web.words import duration, plural, size

SECTIONS = {"nodes": "node", "edges": "edge"}


@dataclass(frozen=True, slots=True)
class Shown:
    part: Part
    progress: Progress | None

    @property
    def live(self) -> bool:
        return self.part.status in ("pending", "claimed", "submitted")


def shown(parts: Sequence[Part]) -> list[Shown]:
    return [Shown(part, reported(part.report) if part.report else None) for part in parts]


def sentence(snapshot: Snapshot, parts: Sequence[Part]) -> str:
    """After its state, which stands before it as a badge."""
    counts = Counter(part.status for part in parts)
    done, total = counts["completed"], len(parts)
    match snapshot.status:
        case "ready":
            nodes, edges = (sum((found or {}).values()) for found in (snapshot.node_counts, snapshot.edge_counts))
            took = (snapshot.ended_at - snapshot.created_at) if snapshot.ended_at else None
            amounts = f"{plural(nodes, 'node')} and {plural(edges, 'edge')}, {size(snapshot.size_bytes or 0)}"
            return f"{amounts}. It was ready {duration(took)} after it was asked for." if took else f"{amounts}."
        case "failed" | "cancelled":
            return f"{done} of {plural(total, 'part')} completed; it has no manifest."
        case "deleting":
            return "Its files are being removed; then it is gone."
    return f"{done} of {plural(total, 'part')} done{', ' + str(counts['claimed']) + ' running' if counts['claimed'] else ''}."


@dataclass(frozen=True, slots=True)
class Bar:
    """One state of its parts: `at` and `size` place its piece of the bar, in thousandths."""

    status: str
    n: int
    at: int
    size: int


def bar(parts: Sequence[Part]) -> list[Bar]:
    counts = Counter(part.status for part in parts)
    total, before, pieces = max(1, len(parts)), 0, []
    for status in ("completed", "failed", "cancelled", "claimed", "submitted", "pending"):
        n = counts[status]
        if n:
            pieces.append(Bar(status, n, before * 1000 // total, max(4, n * 1000 // total)))
        before += n
    return pieces


@dataclass(frozen=True, slots=True)
class Form:
    """What is asked for with a new snapshot."""

    engine: str = ""
    role: str = ""
    name: str = ""
    description: str = ""
    catalog: str = ""
    schema: str = ""
    ttl: str = ""
    mode: str = ""
    problems: Mapping[str, str] = field(default_factory=dict)
