"""`expire_snapshots`: old snapshots go, and then the files that only they needed.

A tag that somebody sets between our load and our commit is lost by the commit, on every catalog. So before the first delete the
refs are compared with those of the metadata that the commit replaced, and a lost one is put back while its files are still there.
What may be deleted is what that metadata reaches and the current one does not: after a crash nothing else has to be known.
"""

from collections.abc import Sequence
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta

from pyiceberg.manifest import ManifestFile
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata

from paddock.amounts import several, size
from paddock.maintenance.iceberg.choosing import Choice, Retention, choose
from paddock.maintenance.iceberg.committing import (
    TRIES,
    Conflict,
    commit_expire,
    lost_refs,
    put_back,
)
from paddock.maintenance.iceberg.deleting import Deleted, Spool, delete
from paddock.maintenance.iceberg.manifests import entries_of, manifests_of
from paddock.maintenance.iceberg.opening import translated
from paddock.maintenance.iceberg.reaching import Reach, read_metadata, statistics_of
from paddock.maintenance.iceberg.store import TableStore, open_table_store
from paddock.maintenance.iceberg.working import Work, conflict_error
from paddock.maintenance.model import Action, Outcome, is_removable
from paddock.maintenance.paths import Paths
from paddock.maintenance.policy import policy_of

ACTION: Action = "expire_snapshots"
# Of a dry run.
MOST_PATHS, PATHS_SIZE = 500, 90_000
CUT_SHORT = "cut_short"
GC_OFF = "The table says gc.enabled=false: its files may be another table's too, and nothing is deleted."


def expire_snapshots(work: Work) -> Outcome:
    table = work.load()
    if not garbage_is_ours(table):
        return Outcome(action=ACTION, outcome="skipped", message=GC_OFF)
    if not has_landed(work, table) and _commit(work) is None:
        step = work.state["step"] or {}
        removed = step.get("removed_refs", [])
        return Outcome(
            action=ACTION,
            outcome="success" if removed else "skipped",
            message=_nothing(step.get("old_refs", ()), removed),
            details={"removed_refs": removed},
        )
    return _clean(work)


def plan(work: Work, table: Table) -> Outcome:
    """Exact for the snapshot that it was made of. Ages count from now: the real run begins with a commit of its own, the fence's,
    and counts from that."""
    if not garbage_is_ours(table):
        return Outcome(action=ACTION, outcome="skipped", message=GC_OFF)
    choice = chosen(work, table, at=datetime.now(UTC))
    refs = _refs_to_remove(work, table)
    if not choice.gone:
        return Outcome(
            action=ACTION,
            outcome="success" if refs else "skipped",
            message=_nothing(choice.old_refs, refs),
            details={"removed_refs": refs},
        )
    after = _without(table.metadata, set(choice.gone))
    reach = Reach()
    with Spools() as spools:
        with translated(work.payload.table.catalog):
            reach.add(after, table.io)
            find_candidates(spools, after, table.metadata, reach, table)
        paths = [path for spool in spools.in_order for path in spool.first(MOST_PATHS, PATHS_SIZE // 3)][:MOST_PATHS]
        files, freed = spools.files, spools.bytes
    return Outcome(
        action=ACTION,
        outcome="success",
        message=f"{several(len(choice.gone), 'snapshot')} would go, and {several(files, 'file')}: {size(freed)} freed.",
        bytes_freed=freed,
        details={
            "expired_snapshots": len(choice.gone),
            "deleted_files": files,
            "removed_refs": refs,
            "paths": paths,
        },
    )


def _without(metadata: TableMetadata, gone: set[int]) -> TableMetadata:
    """As it will be once these snapshots went."""
    return metadata.model_copy(
        update={
            "snapshots": [each for each in metadata.snapshots if each.snapshot_id not in gone],
            "statistics": [each for each in metadata.statistics if each.snapshot_id not in gone],
            "partition_statistics": [each for each in metadata.partition_statistics if each.snapshot_id not in gone],
        }
    )


def garbage_is_ours(table: Table) -> bool:
    return table.metadata.properties.get("gc.enabled", "true").strip().lower() != "false"


def chosen(work: Work, table: Table, at: datetime | None = None) -> Choice:
    """Of ages that count back from the current metadata file's time, or from `at` where that is later."""
    options = work.payload.options
    policy = policy_of(table.metadata.properties, work.settings.policy)
    hours = options.max_snapshot_age_hours
    age = timedelta(hours=24 * policy["max_snapshot_age_days"] if hours is None else hours)
    with translated(work.payload.table.catalog):
        written = store_of(table).modified(table.metadata_location)
    retention = Retention(age, options.min_snapshots_to_keep or 1)
    return choose(table.metadata, retention, max(written, at or written), options.remove_refs)


def _refs_to_remove(work: Work, table: Table) -> list[str]:
    return [name for name in work.payload.options.remove_refs if name in table.metadata.refs and is_removable(name)]


def store_of(table: Table) -> TableStore:
    return open_table_store(table.io.properties, table.metadata.location)


def has_landed(work: Work, table: Table) -> bool:
    """Whether an earlier attempt's commit was done: the fence was turned since, so it will not be any more. Once that is saved it
    is not asked again, for a lost ref that was put back brings its snapshot with it."""
    pending = (work.state["step"] or {}).get("expire")
    return pending is not None and ("lost" in pending or table.metadata.snapshot_by_id(pending["newest"]) is None)


def _commit(work: Work) -> Choice | None:
    """None: no snapshot goes, whether or not a ref did."""
    for left in reversed(range(TRIES)):
        table = work.load()
        choice = chosen(work, table)
        refs = _refs_to_remove(work, table)
        if not choice.gone and not refs:
            work.step(old_refs=choice.old_refs)
            return None
        times = {snapshot.snapshot_id: snapshot.timestamp_ms for snapshot in table.metadata.snapshots}
        if choice.gone:
            newest = max(choice.gone, key=lambda id: times[id])
            pending = {"newest": newest, "snapshots": len(choice.gone), "removed_refs": refs}
            work.step(expire=pending, old_refs=choice.old_refs)
        else:
            work.step(removed_refs=refs, old_refs=[name for name in choice.old_refs if name not in refs])
        work.save(progress=False)
        try:
            commit_expire(work.catalog, table, work.tag, choice.gone, refs)
            return choice if choice.gone else None
        except Conflict as conflict:
            if not left:
                raise conflict_error(work.payload, conflict) from conflict
            work.after_conflict(work.load())
    raise AssertionError("unreachable")


def _nothing(old: Sequence[str], removed: Sequence[str]) -> str:
    told = f" Refs that are removed: {', '.join(removed)}." if removed else ""
    left = [name for name in old if name not in removed]
    told += f" Past their max-ref-age: {', '.join(left)} (name them in remove_refs)." if left else ""
    return f"No snapshot is old enough to go.{told}"


def _clean(work: Work) -> Outcome:
    repaired, step = put_lost_refs_back(work), work.state["step"]
    deleted = Deleted(step.get("deleted"))
    if repaired is None:
        note = "Their files stay: the metadata that had them is no longer in the table's log."
        return _outcome(work, deleted, step["expire"].get("lost", []), note=note)
    replaced, lost = repaired
    table, reach = work.load(), Reach()
    with Spools() as spools:
        with translated(work.payload.table.catalog):
            reach.add_table(table)
            for name, is_back in lost.items():
                if not is_back:  # the catalog refused: then its files stay, whatever its metadata says
                    _reach_ref(reach, replaced, name, table)
            find_candidates(spools, table.metadata, replaced, reach, table)
        for part, spool in zip(("data", "manifests", "lists"), spools.in_order, strict=True):
            delete(work, store_of(table), reach, spool, deleted, part)
    return _outcome(work, deleted, sorted(lost))


def end_cut_short(work: Work) -> Outcome | None:
    """For a job that ended in the middle of this: refs that its commit took are put back, and no more files are deleted. None: it
    had committed nothing."""
    if not has_landed(work, work.load()):
        return None
    repaired, step = put_lost_refs_back(work), work.state["step"]
    expire, deleted = step["expire"], Deleted(step.get("deleted"))
    lost = sorted(repaired[1]) if repaired is not None else expire.get("lost", [])
    parts = [
        "The job ended before this action did.",
        f"{several(expire['snapshots'], 'snapshot')} went, and {several(deleted.files, 'file')} were deleted.",
        "Other files that only those needed are orphans now.",
        _lost_refs_sentence(lost),
    ]
    return Outcome(
        action=ACTION,
        outcome="failed",
        error=CUT_SHORT,
        message=" ".join(part for part in parts if part),
        bytes_freed=deleted.bytes,
        details={
            "expired_snapshots": expire["snapshots"],
            "deleted_files": deleted.files,
            "removed_refs": expire["removed_refs"],
            "lost_refs": lost,
        },
        alarms=["ref_lost"] if lost else [],
    )


def put_lost_refs_back(work: Work) -> tuple[TableMetadata, dict[str, bool]] | None:
    """The metadata that our commit replaced, and each ref that it took away unmeant with whether that is back. None: that metadata
    is gone, and nobody can tell.

    What is to be put back is saved before the first is: the snapshot of a lost ref may be the one that tells whether the commit
    was done, and the next attempt would find it and think that it was not."""
    expire, table = work.state["step"]["expire"], work.load()
    try:
        with translated(work.payload.table.catalog, FileNotFoundError):
            if "lost" not in expire:
                found = replaced_metadata(table, expire["newest"])
                if found is None:
                    return None
                location, replaced, made = found
                expire = {
                    **expire,
                    "replaced": location,
                    "lost": sorted(lost_refs(replaced, made, expire["removed_refs"])),
                }
                work.step(expire=expire)
                if expire["lost"]:
                    work.save(progress=False)
            else:
                replaced = read_metadata(expire["replaced"], table.io)
    except FileNotFoundError:
        return None
    return replaced, {name: _put_back_once(work, name, replaced) for name in expire["lost"]}


def _put_back_once(work: Work, name: str, replaced: TableMetadata) -> bool:
    """Saved for each: its owner may drop it again before the next attempt."""
    expire = work.state["step"]["expire"]
    done = expire.get("put_back", [])
    if name in done:
        return True
    is_back = _is_put_back(work, name, replaced)
    if is_back:
        work.step(expire={**expire, "put_back": [*done, name]})
        work.save(progress=False)
    return is_back


def replaced_metadata(table: Table, newest: int) -> tuple[str, TableMetadata, TableMetadata] | None:
    """The newest metadata of the log that still has the snapshot, and the one that took its place."""
    made = table.metadata
    if made.snapshot_by_id(newest) is not None:
        return None
    for entry in reversed(table.metadata.metadata_log):
        older = read_metadata(entry.metadata_file, table.io)
        if older.snapshot_by_id(newest) is not None:
            return entry.metadata_file, older, made
        made = older
    return None


def _is_put_back(work: Work, name: str, replaced: TableMetadata) -> bool:
    for _ in range(TRIES):
        table = work.load()
        if name in table.metadata.refs:
            return True
        try:
            put_back(work.catalog, table, work.tag, name, replaced.refs[name], replaced)
            return True
        except Conflict as conflict:
            work.turn.log.warning("ref_not_put_back", ref=name, problem=str(conflict))
            work.after_conflict(work.load())
    return False


def _reach_ref(reach: Reach, replaced: TableMetadata, name: str, table: Table) -> None:
    id = replaced.refs[name].snapshot_id
    kept = [snapshot for snapshot in replaced.snapshots if snapshot.snapshot_id == id]
    reach.add(replaced.model_copy(update={"snapshots": kept}), table.io)


class Spools(ExitStack):
    """Data and statistics first: what is left of a crash can still be found by the manifests and lists that name it."""

    def __init__(self) -> None:
        super().__init__()
        self.data, self.manifests, self.lists = self.in_order = tuple(self.enter_context(Spool()) for _ in range(3))

    @property
    def files(self) -> int:
        return sum(spool.files for spool in self.in_order)

    @property
    def bytes(self) -> int:
        return sum(spool.bytes for spool in self.in_order)


def find_candidates(
    spools: Spools, current: TableMetadata, replaced: TableMetadata, reach: Reach, table: Table
) -> None:
    """What the snapshots that went led to and nothing leads to any more."""
    here = {snapshot.snapshot_id for snapshot in current.snapshots}
    seen: set[str] = set()
    # One file may be in many manifests.
    spooled = Paths()
    for snapshot in replaced.snapshots:
        if snapshot.snapshot_id in here:
            continue
        try:
            found = manifests_of(snapshot, table.io)
        except FileNotFoundError:
            found = []  # an earlier attempt had come to its list, and so had deleted all that it names
        for manifest in found:
            if manifest.manifest_path in reach.manifests or manifest.manifest_path in seen:
                continue
            seen.add(manifest.manifest_path)
            _spool_files(manifest, table, reach, spools.data, spooled)
            if manifest.manifest_path not in reach.files:
                spools.manifests.add(manifest.manifest_path, manifest.manifest_length)
        if snapshot.manifest_list not in reach.files:
            spools.lists.add(snapshot.manifest_list, 0)
    for path in statistics_of(replaced):
        if path not in reach.files:
            spools.data.add(path, 0)


def _spool_files(manifest: ManifestFile, table: Table, reach: Reach, data: Spool, spooled: Paths) -> None:
    try:
        for entry in entries_of(manifest, table.io):
            file = entry.data_file
            if file.file_path not in reach.files and file.file_path not in spooled:
                data.add(file.file_path, file.file_size_in_bytes)
                spooled.add(file.file_path)
    except FileNotFoundError:
        pass  # deleted by an earlier attempt, after all that it names


def _lost_refs_sentence(lost: Sequence[str]) -> str:
    return f"Refs that were set meanwhile: {', '.join(lost)}; they were put back, or their files kept." if lost else ""


def _outcome(work: Work, deleted: Deleted, lost: list[str], note: str = "") -> Outcome:
    expire = work.state["step"]["expire"]
    parts = [
        f"{expire['snapshots']:,} snapshots went, {deleted.files:,} files were deleted.",
        note,
        _lost_refs_sentence(lost),
    ]
    return Outcome(
        action=ACTION,
        outcome="success",
        message=" ".join(part for part in parts if part),
        bytes_freed=deleted.bytes,
        details={
            "expired_snapshots": expire["snapshots"],
            "deleted_files": deleted.files,
            "kept_candidates": deleted.kept,
            "removed_refs": expire["removed_refs"],
            "lost_refs": lost,
        },
        alarms=["ref_lost"] if lost else [],
    )
