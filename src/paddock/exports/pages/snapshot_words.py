"""A snapshot in words: how it stands in one sentence, and each part with how far it is."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from paddock.exports.snapshot_states import Snapshot, SnapshotPart
from paddock.web.progress import Progress, reported
from paddock.web.status_shares import StatusShare, status_shares
from paddock.web.words import duration, plural, size

SECTIONS = {"nodes": "node", "edges": "edge"}


@dataclass(frozen=True, slots=True)
class PartProgress:
    part: SnapshotPart
    progress: Progress | None

    @property
    def live(self) -> bool:
        return self.part.status in ("pending", "claimed", "submitted")


def parts_with_progress(parts: Sequence[SnapshotPart]) -> list[PartProgress]:
    return [PartProgress(part, reported(part.report) if part.report else None) for part in parts]


def sentence(snapshot: Snapshot, parts: Sequence[SnapshotPart]) -> str:
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


def bar(parts: Sequence[SnapshotPart]) -> list[StatusShare]:
    counts = Counter(part.status for part in parts)
    order = ("completed", "failed", "cancelled", "claimed", "submitted", "pending")
    return status_shares({status: counts[status] for status in order if counts[status]})


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
