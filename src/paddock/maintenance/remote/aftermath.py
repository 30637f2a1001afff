"""What became of main while another engine worked: the snapshots since, with who made each, and whether their rows add up."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.snapshots import Snapshot

from paddock.maintenance.iceberg.opening import summary_of

MadeBy = Literal["ours", "foreign", "unknown"]
QUERY_ID = "trino_query_id"
# Of a job's result.
MOST_SHOWN = 50


@dataclass(frozen=True, slots=True)
class Since:
    snapshot: Snapshot
    made_by: MadeBy

    @property
    def summary(self) -> Mapping[str, str]:
        return summary_of(self.snapshot)

    def number(self, name: str) -> int:
        return number_of(self.snapshot, name)

    def json_object(self) -> dict[str, Any]:
        return {
            "snapshot_id": self.snapshot.snapshot_id,
            "made_by": self.made_by,
            "operation": self.summary.get("operation"),
        }


def number_of(snapshot: Snapshot | None, name: str) -> int:
    text = "" if snapshot is None else summary_of(snapshot).get(name, "")
    return int(text) if text.isdecimal() else 0


def made_since(metadata: TableMetadata, before: int, identity: Mapping[str, Any]) -> list[Since]:
    """Oldest first. One that carries our query's id is ours, and so is a rewrite without any mark when nobody else committed."""
    found, whole = _ancestors_until(metadata, before)
    if not whole:
        return [Since(snapshot, "unknown") for snapshot in found]
    marks = [_mark(summary_of(snapshot), identity) for snapshot in found]
    alone: MadeBy = "unknown" if "foreign" in marks else "ours"
    return [Since(snapshot, mark or alone) for snapshot, mark in zip(found, marks, strict=True)]


def ours(since: Sequence[Since]) -> list[Since]:
    return [each for each in since if each.made_by == "ours"]


def differing(metadata: TableMetadata, since: Sequence[Since]) -> Since | None:
    """A rewrite of files without deletes whose rows are not as many as before."""
    for each in since:
        parent = _parent(metadata, each.snapshot)
        has_deletes = parent is None or number_of(parent, "total-delete-files") > 0
        if each.summary.get("operation") != "replace" or has_deletes:
            continue
        if each.number("added-records") != each.number("deleted-records"):
            return each
    return None


def _mark(summary: Mapping[str, str], identity: Mapping[str, Any]) -> MadeBy | None:
    query = summary.get(QUERY_ID)
    if query is not None:
        return "ours" if query == identity.get("query_id") else "foreign"
    if summary.get("operation") != "replace" or "paddock.job-id" in summary:
        return "foreign"
    return None


def _ancestors_until(metadata: TableMetadata, before: int) -> tuple[list[Snapshot], bool]:
    """And whether `before` is among main's ancestors: not after a rollback, nor where it expired meanwhile."""
    found: list[Snapshot] = []
    main = metadata.refs.get(MAIN_BRANCH)
    snapshot = None if main is None else metadata.snapshot_by_id(main.snapshot_id)
    while snapshot is not None:
        if snapshot.snapshot_id == before:
            return found[::-1], True
        found.append(snapshot)
        snapshot = _parent(metadata, snapshot)
    return found[:MOST_SHOWN][::-1], False


def _parent(metadata: TableMetadata, snapshot: Snapshot) -> Snapshot | None:
    return None if snapshot.parent_snapshot_id is None else metadata.snapshot_by_id(snapshot.parent_snapshot_id)
