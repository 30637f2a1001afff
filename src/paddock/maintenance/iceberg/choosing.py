"""Which snapshots go. Whatever any rule keeps is kept: every ref, what the table's and each ref's own retention keeps, at least
three snapshots that are no rewrites, and the newest of each streaming writer, which reads its place from there.

Ages count back from the time of the current metadata file by the store's clock: a late one keeps more.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import SnapshotRef, SnapshotRefType
from pyiceberg.table.snapshots import Operation, Snapshot

from paddock.maintenance.iceberg.opening import summary_of
from paddock.maintenance.model import is_removable

LEAST_KEPT = 3
AGE, LEAST = "history.expire.max-snapshot-age-ms", "history.expire.min-snapshots-to-keep"


@dataclass(frozen=True, slots=True)
class Retention:
    max_age: timedelta
    min_to_keep: int


@dataclass(frozen=True, slots=True)
class Choice:
    gone: tuple[int, ...]
    # Past their max-ref-age: told, and removed only where a request names them.
    old_refs: tuple[str, ...]


def choose(metadata: TableMetadata, retention: Retention, at: datetime, remove_refs: tuple[str, ...] = ()) -> Choice:
    refs = {name: ref for name, ref in metadata.refs.items() if name not in remove_refs or not is_removable(name)}
    known = {snapshot.snapshot_id: snapshot for snapshot in metadata.snapshots}
    kept = {ref.snapshot_id for ref in refs.values()}
    reached: set[int] = set()
    for ref in refs.values():
        if ref.snapshot_ref_type == SnapshotRefType.BRANCH:
            line = list(_line(known, ref.snapshot_id))
            reached.update(snapshot.snapshot_id for snapshot in line)
            kept.update(_of_branch(line, ref, metadata.properties, retention, at))
    now = int(at.timestamp() * 1000)
    age = _milliseconds(retention.max_age)
    kept.update(
        snapshot.snapshot_id
        for snapshot in metadata.snapshots
        # Staged, or rolled back: nobody's, and yet somebody may want it for as long as any other.
        if snapshot.snapshot_id not in reached and now - snapshot.timestamp_ms < _longest(age, metadata.properties)
    )
    kept.update(_of_writers(metadata, now, 2 * age))
    gone = tuple(snapshot.snapshot_id for snapshot in metadata.snapshots if snapshot.snapshot_id not in kept)
    return Choice(gone, tuple(_old_refs(metadata, now)))


def _of_branch(
    line: list[Snapshot], ref: SnapshotRef, properties: Mapping[str, str], retention: Retention, at: datetime
) -> Iterator[int]:
    """Of a branch, newest first."""
    now = int(at.timestamp() * 1000)
    age = max(_longest(_milliseconds(retention.max_age), properties), ref.max_snapshot_age_ms or 0)
    least = max(retention.min_to_keep, ref.min_snapshots_to_keep or 1, _number(properties, LEAST) or 1)
    written = 0
    for number, snapshot in enumerate(line):
        is_rewrite = snapshot.summary is not None and snapshot.summary.operation == Operation.REPLACE
        written += not is_rewrite
        if number < least or now - snapshot.timestamp_ms < age or (not is_rewrite and written <= LEAST_KEPT):
            yield snapshot.snapshot_id


def _of_writers(metadata: TableMetadata, now: int, age: int) -> Iterator[int]:
    newest: dict[str, Snapshot] = {}
    for snapshot in sorted(metadata.snapshots, key=lambda each: each.timestamp_ms):
        for writer in _writers(summary_of(snapshot)):
            newest[writer] = snapshot
    yield from (snapshot.snapshot_id for snapshot in newest.values() if now - snapshot.timestamp_ms < age)


def _writers(summary: Mapping[str, str]) -> Iterator[str]:
    if "flink.job-id" in summary:
        yield f"flink {summary['flink.job-id']} {summary.get('flink.operator-id', '')}"
    if "spark.sql.streaming.queryId" in summary:
        yield f"spark {summary['spark.sql.streaming.queryId']}"
    yield from (f"kafka {name}" for name in summary if name.startswith("kafka.connect.offsets."))


def _old_refs(metadata: TableMetadata, now: int) -> Iterator[str]:
    known = {snapshot.snapshot_id: snapshot for snapshot in metadata.snapshots}
    for name, ref in metadata.refs.items():
        snapshot = known.get(ref.snapshot_id)
        limit = ref.max_ref_age_ms
        if is_removable(name) and limit is not None and snapshot is not None and now - snapshot.timestamp_ms > limit:
            yield name


def _line(known: Mapping[int, Snapshot], id: int | None) -> Iterator[Snapshot]:
    while id is not None and (snapshot := known.get(id)) is not None:
        yield snapshot
        id = snapshot.parent_snapshot_id


def _longest(age: int, properties: Mapping[str, str]) -> int:
    return max(age, _number(properties, AGE) or 0)


def _number(properties: Mapping[str, str], name: str) -> int | None:
    text = properties.get(name, "")
    return int(text) if text.isdecimal() else None


def _milliseconds(age: timedelta) -> int:
    return int(age.total_seconds() * 1000)
