"""`rewrite_manifests`: the same files in fewer manifests, of about 8 MiB each. Delete manifests stay as they are.

It is a REPLACE snapshot that removes and adds nothing. The files and rows of the new manifests are counted against those of the old
ones, and nothing is committed that differs.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from pyiceberg.manifest import ManifestContent, ManifestFile
from pyiceberg.table import Table
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.snapshots import SnapshotSummaryCollector

from paddock.jobs.errors import PermanentRunnerError
from paddock.maintenance.iceberg.committing import TRIES, Conflict, NewSnapshot, commit_replace
from paddock.maintenance.iceberg.manifests import manifests_of
from paddock.maintenance.iceberg.opening import translated
from paddock.maintenance.iceberg.replacing import MANIFEST_BYTES, merged, together
from paddock.maintenance.iceberg.rewriting import properties_of, settle_pending
from paddock.maintenance.iceberg.working import Work, conflict_error
from paddock.maintenance.model import Action, Outcome

ACTION: Action = "rewrite_manifests"


@dataclass(frozen=True, slots=True)
class Merge:
    kept: list[ManifestFile]
    groups: list[list[ManifestFile]]

    @property
    def before(self) -> int:
        return len(self.kept) + sum(map(len, self.groups))

    @property
    def after(self) -> int:
        return len(self.kept) + len(self.groups)


def plan_merge(table: Table) -> Merge:
    main = table.metadata.snapshot_by_id(table.metadata.refs[MAIN_BRANCH].snapshot_id)
    assert main is not None, "a ref names a snapshot that is there"
    return merge_of(manifests_of(main, table.io))


def merge_of(manifests: Sequence[ManifestFile]) -> Merge:
    kept: list[ManifestFile] = []
    small: list[ManifestFile] = []
    for manifest in manifests:
        is_small = manifest.content == ManifestContent.DATA and manifest.manifest_length < MANIFEST_BYTES // 2
        (small if is_small else kept).append(manifest)
    groups: list[list[ManifestFile]] = []
    for group in together(small):
        # Deleted files are not written again, and a manifest of nothing cannot be written.
        if len(group) > 1 and any(each.has_added_files() or each.has_existing_files() for each in group):
            groups.append(group)
        else:
            kept += group
    return Merge(kept, groups)


def plan(work: Work, table: Table) -> Outcome:
    with translated(work.payload.table.catalog):
        merge = plan_merge(table)
    return Outcome(
        action=ACTION,
        outcome="success" if merge.groups else "skipped",
        message=f"{merge.before:,} manifests -> {merge.after:,}.",
        files_before=merge.before,
        files_after=merge.after,
    )


def rewrite_manifests(work: Work) -> Outcome:
    settle_pending(work)
    done = (work.state["step"] or {}).get("commits")
    if done:
        return _outcome(done[-1]["before"], done[-1]["after"])
    for left in reversed(range(TRIES)):
        table = work.load()
        with translated(work.payload.table.catalog):
            merge = plan_merge(table)
            if not merge.groups:
                return Outcome(action=ACTION, outcome="skipped", message=f"{merge.before:,} manifests are few enough.")
            new = _new_snapshot(work, table, merge)
        work.step(pending={"snapshot_id": new.id, "before": merge.before, "after": merge.after})
        work.save(progress=False)
        try:
            commit_replace(work.catalog, table, work.tag, new)
            return _outcome(merge.before, merge.after)
        except Conflict as conflict:
            if not left:
                raise conflict_error(work.payload, conflict) from conflict
            work.after_conflict(work.load())
    raise AssertionError("unreachable")


def _new_snapshot(work: Work, table: Table, merge: Merge) -> NewSnapshot:
    id = table.metadata.new_snapshot_id()
    made = [
        merged(table, group, frozenset(), SnapshotSummaryCollector(), id, f"{work.name}-{id}-m{number}")
        for number, group in enumerate(merge.groups)
    ]
    _check(merge, made)
    properties = {
        **properties_of(work, ACTION),
        "manifests-created": str(len(made)),
        "manifests-kept": str(len(merge.kept)),
        "manifests-replaced": str(merge.before - len(merge.kept)),
    }
    return NewSnapshot(id, [*merge.kept, *made], SnapshotSummaryCollector(), properties, work.name)


def _check(merge: Merge, made: list[ManifestFile]) -> None:
    def live(manifests: list[ManifestFile]) -> tuple[int, int]:
        files = sum((each.added_files_count or 0) + (each.existing_files_count or 0) for each in manifests)
        rows = sum((each.added_rows_count or 0) + (each.existing_rows_count or 0) for each in manifests)
        return files, rows

    old = [manifest for group in merge.groups for manifest in group]
    counted = all(each.added_files_count is not None and each.existing_files_count is not None for each in old)
    if counted and live(old) != live(made):
        raise PermanentRunnerError(
            f"{live(old)[0]:,} files stood in the manifests, and {live(made)[0]:,} would stand in the new ones. "
            "Nothing was committed.",
            code="rows_differ",
            hint="Look at the table with the engine that wrote it, and tell us.",
        )


def _outcome(before: int, after: int) -> Outcome:
    return Outcome(
        action=ACTION,
        outcome="success",
        message=f"{before:,} manifests became {after:,}.",
        files_before=before,
        files_after=after,
    )
