"""Commits, all of them: what stands on PyIceberg's commit path stands here, on its public names as 0.12 has them.

Every commit of an attempt asserts the table's uuid, main, and the attempt's own fence tag: whoever lost the job also lost that
tag to the next attempt, and the catalog itself refuses what comes late. An answer that was lost is neither success nor failure
(`CommitUnknown`): the next attempt turns the fence first, so that nothing late can land, and then looks.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import cast

import pyiceberg.exceptions as theirs
from pyiceberg.avro.codecs import AvroCompressionCodec
from pyiceberg.catalog import Catalog
from pyiceberg.manifest import ManifestFile, write_manifest_list
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRef, SnapshotRefType
from pyiceberg.table.snapshots import Operation, Snapshot, SnapshotSummaryCollector, Summary, update_snapshot_summaries
from pyiceberg.table.update import (
    AddSnapshotUpdate,
    AssertRefSnapshotId,
    AssertTableUUID,
    RemovePartitionStatisticsUpdate,
    RemoveSnapshotRefUpdate,
    RemoveSnapshotsUpdate,
    SetSnapshotRefUpdate,
    TableRequirement,
    TableUpdate,
)

from paddock.jobs.errors import InfrastructureError, PermanentRunnerError, StaleAttempt, TransientResourceError
from paddock.maintenance.iceberg.opening import said, translate
from paddock.maintenance.model import FENCE_PREFIX

FENCE_AGE_MS = int(timedelta(days=1).total_seconds() * 1000)
TRIES = 5


class Conflict(Exception):
    """The catalog refused a commit, because the table is not as the commit says: nothing of it was done."""


class CommitUnknown(TransientResourceError):
    """Nobody knows whether the commit was done."""

    code = "commit_unknown"


def commit(
    catalog: Catalog, table: Table, requirements: Sequence[TableRequirement], updates: Sequence[TableUpdate]
) -> None:
    requirements = (AssertTableUUID(uuid=table.metadata.table_uuid), *requirements)
    try:
        catalog.commit_table(table, tuple(requirements), tuple(updates))
    except (theirs.CommitFailedException, theirs.BadRequestError, theirs.NoSuchTableError) as refused:
        # A table that is gone is told by whoever loads it again.
        raise Conflict(said(refused)) from refused
    except (InfrastructureError, StaleAttempt):
        raise
    except (theirs.UnauthorizedError, theirs.ForbiddenError) as refused:
        raise translate(refused, catalog.name) from refused
    except NotImplementedError as cannot:
        # Raised while PyIceberg writes the metadata file itself, as it does for every catalog but REST.
        raise PermanentRunnerError(
            f"Catalog '{catalog.name}' cannot take a commit to {'.'.join(table.name())}, which has format version "
            f"{table.metadata.format_version}: {said(cannot)}",
            code="catalog_cannot",
            hint="Name a REST catalog for it, whose server writes the metadata.",
        ) from cannot
    except Exception as lost:
        if type(lost) is ValueError:
            # PyIceberg's word for a snapshot or ref that an update names and that is gone. Kinds of ValueError are something
            # else: an answer that cannot be read says nothing about the commit.
            raise Conflict(said(lost)) from lost
        raise CommitUnknown(
            f"Catalog '{catalog.name}' did not say whether a commit was done: {said(lost)}",
            hint="The next attempt looks whether it was.",
            budget="cluster",
        ) from lost


# The fence


def fence_tags(metadata: TableMetadata) -> list[str]:
    return [name for name in metadata.refs if name.startswith(FENCE_PREFIX)]


def set_check_tag(catalog: Catalog, table: Table, tag: str, left_over: Iterable[str]) -> None:
    """Beside the fence that an attempt may have there, and in the place of what is left of other checks."""
    removals = (RemoveSnapshotRefUpdate(ref_name=name) for name in left_over)
    commit(catalog, table, (), (*removals, _fence(table, tag)))


def remove_check_tag(catalog: Catalog, table: Table, tag: str) -> None:
    remove_tags(catalog, table, [tag])


def turn_fence(catalog: Catalog, table: Table, tag: str) -> None:
    """Takes the tags of all other attempts away and sets this one's, in one commit."""
    others = [name for name in fence_tags(table.metadata) if name != tag]
    commit(catalog, table, (), (*(RemoveSnapshotRefUpdate(ref_name=name) for name in others), _fence(table, tag)))


def _fence(table: Table, tag: str) -> SetSnapshotRefUpdate:
    return SetSnapshotRefUpdate(
        ref_name=tag,
        type=SnapshotRefType.TAG,
        snapshot_id=table.metadata.refs[MAIN_BRANCH].snapshot_id,
        max_ref_age_ms=FENCE_AGE_MS,
        max_snapshot_age_ms=None,
        min_snapshots_to_keep=None,
    )


def set_tag(catalog: Catalog, table: Table, tag: str | None, name: str, snapshot_id: int) -> None:
    """One that nothing takes away again. `tag` is the attempt's own fence."""
    update = SetSnapshotRefUpdate(
        ref_name=name,
        type=SnapshotRefType.TAG,
        snapshot_id=snapshot_id,
        max_ref_age_ms=None,
        max_snapshot_age_ms=None,
        min_snapshots_to_keep=None,
    )
    commit(catalog, table, asserted(table, tag, ()), (update,))


def remove_tags(catalog: Catalog, table: Table, tags: Iterable[str]) -> None:
    updates = [RemoveSnapshotRefUpdate(ref_name=name) for name in tags if name in table.metadata.refs]
    if updates:
        commit(catalog, table, (), updates)


def asserted(table: Table, tag: str | None, refs: Iterable[str] = (MAIN_BRANCH,)) -> list[TableRequirement]:
    """That these refs, and the attempt's own tag, are where they were when the table was loaded. A tag that is gone already is
    a conflict: asserting that it is missing would pass."""
    names = dict.fromkeys([*refs, *([tag] if tag is not None else [])])
    missing = [name for name in names if name not in table.metadata.refs]
    if missing:
        raise Conflict(f"The table has no ref '{missing[0]}'.")
    return [AssertRefSnapshotId(ref=name, snapshot_id=table.metadata.refs[name].snapshot_id) for name in names]


# REPLACE snapshots


@dataclass(frozen=True, slots=True)
class NewSnapshot:
    id: int
    manifests: Sequence[ManifestFile]
    collected: SnapshotSummaryCollector
    properties: Mapping[str, str]
    # Of the file names that it writes.
    name: str


def commit_replace(catalog: Catalog, table: Table, tag: str | None, new: NewSnapshot) -> None:
    """The same rows in other files, on main as the table was loaded."""
    metadata, main = table.metadata, table.metadata.refs[MAIN_BRANCH]
    parent = metadata.snapshot_by_id(main.snapshot_id)
    assert parent is not None, "a ref names a snapshot that is there"
    sequence_number = metadata.next_sequence_number()
    path = table.location_provider().new_metadata_location(f"snap-{new.id}-0-{new.name}.avro")
    with write_manifest_list(
        format_version=metadata.format_version,
        output_file=table.io.new_output(path),
        snapshot_id=new.id,
        parent_snapshot_id=parent.snapshot_id,
        sequence_number=sequence_number,
        avro_compression=compression_of(metadata),
    ) as writer:
        writer.add_manifests(list(new.manifests))
    snapshot = Snapshot(
        snapshot_id=new.id,
        parent_snapshot_id=parent.snapshot_id,
        sequence_number=sequence_number if metadata.format_version > 1 else 0,
        manifest_list=path,
        summary=_summary(new, parent),
        schema_id=metadata.current_schema_id,
    )
    # Never before the table's last change, should this machine's clock be late.
    snapshot = snapshot.model_copy(update={"timestamp_ms": max(snapshot.timestamp_ms, metadata.last_updated_ms)})
    commit(catalog, table, asserted(table, tag), (AddSnapshotUpdate(snapshot=snapshot), _moved(main, new.id)))


def compression_of(metadata: TableMetadata) -> AvroCompressionCodec:
    # PyIceberg itself takes the table's word for it, which may be `gzip`, and its type knows fewer.
    return cast("AvroCompressionCodec", metadata.properties.get("write.avro.compression-codec", "gzip"))


def _moved(main: SnapshotRef, snapshot_id: int) -> SetSnapshotRefUpdate:
    """main on another snapshot, with its retention as it was."""
    return SetSnapshotRefUpdate(
        ref_name=MAIN_BRANCH,
        type=SnapshotRefType.BRANCH,
        snapshot_id=snapshot_id,
        min_snapshots_to_keep=main.min_snapshots_to_keep,
        max_snapshot_age_ms=main.max_snapshot_age_ms,
        max_ref_age_ms=main.max_ref_age_ms,
    )


def _summary(new: NewSnapshot, parent: Snapshot) -> Summary:
    # PyIceberg adds totals up for its own operations only, and these do not differ in that.
    counted = update_snapshot_summaries(
        Summary(operation=Operation.OVERWRITE, **new.collected.build()),
        parent.summary.additional_properties if parent.summary is not None else None,
    )
    return Summary(operation=Operation.REPLACE, **{**counted.additional_properties, **new.properties})


# Snapshots that go


def commit_expire(
    catalog: Catalog, table: Table, tag: str | None, snapshots: Sequence[int], remove_refs: Sequence[str] = ()
) -> None:
    """One update for all of them. Every ref that is known is asserted; one that somebody sets meanwhile is not, and is lost by
    this, on every catalog: `lost_refs` finds it before anything is deleted."""
    gone = set(snapshots)
    updates: list[TableUpdate] = [RemoveSnapshotRefUpdate(ref_name=name) for name in remove_refs]
    updates += [
        RemovePartitionStatisticsUpdate(snapshot_id=each.snapshot_id)
        for each in table.metadata.partition_statistics
        if each.snapshot_id in gone
    ]
    if snapshots:
        updates.append(RemoveSnapshotsUpdate(snapshot_ids=list(snapshots)))
    commit(catalog, table, asserted(table, tag, table.metadata.refs), updates)


def lost_refs(replaced: TableMetadata, made: TableMetadata, removed: Iterable[str]) -> dict[str, SnapshotRef]:
    """Refs that a commit took away and nobody meant it to."""
    meant = set(removed)
    return {
        name: ref
        for name, ref in replaced.refs.items()
        if name not in made.refs and name not in meant and not name.startswith(FENCE_PREFIX)
    }


def put_back(
    catalog: Catalog, table: Table, tag: str | None, name: str, ref: SnapshotRef, replaced: TableMetadata
) -> None:
    """A ref that an expiry took away, and its snapshot; only by who holds the fence, for its owner may drop it again. The snapshot gets the next sequence number: under its old one the
    table's counter would fall back, and later writers would repeat numbers."""
    updates: list[TableUpdate] = []
    metadata = table.metadata
    if metadata.snapshot_by_id(ref.snapshot_id) is None:
        lost = replaced.snapshot_by_id(ref.snapshot_id)
        assert lost is not None, "a ref names a snapshot that is there"
        known = lost.parent_snapshot_id is not None and metadata.snapshot_by_id(lost.parent_snapshot_id) is not None
        fields = {
            "sequence_number": metadata.next_sequence_number() if metadata.format_version > 1 else 0,
            "parent_snapshot_id": lost.parent_snapshot_id if known else None,
        }
        updates.append(AddSnapshotUpdate(snapshot=lost.model_copy(update=fields)))
    updates.append(
        SetSnapshotRefUpdate(
            ref_name=name,
            type=ref.snapshot_ref_type,
            snapshot_id=ref.snapshot_id,
            min_snapshots_to_keep=ref.min_snapshots_to_keep,
            max_snapshot_age_ms=ref.max_snapshot_age_ms,
            max_ref_age_ms=ref.max_ref_age_ms,
        )
    )
    absent = AssertRefSnapshotId(ref=name, snapshot_id=None)
    commit(catalog, table, (*asserted(table, tag, ()), absent), updates)
