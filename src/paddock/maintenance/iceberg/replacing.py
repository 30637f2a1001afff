"""The manifests of a REPLACE snapshot: those of main, with some files taken out and others put in.

A bin whose source is gone, or has a delete that its writing did not know, is dropped from the commit: its rows are as somebody else
left them, and the file that was written for it is an orphan.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count

from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    ManifestWriter,
    ManifestWriterV2,
    write_manifest,
)
from pyiceberg.table import Table
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.snapshots import SnapshotSummaryCollector

from paddock.maintenance.iceberg.committing import NewSnapshot, compression_of
from paddock.maintenance.iceberg.manifests import entries_of, manifests_of
from paddock.maintenance.iceberg.planning import Deletes, Plan, read_deletes
from paddock.maintenance.iceberg.writing import Written

MANIFEST_BYTES = 8 << 20


@dataclass
class Replacement:
    """What a commit would do to main as it is now."""

    manifests: list[ManifestFile]
    # Of main, those that hold sources.
    touched: set[str]
    # Delete files that no file of main needs once the bins are committed.
    useless: frozenset[str] = frozenset()
    kept: list[Written] = field(default_factory=list)
    dropped: list[Written] = field(default_factory=list)

    @property
    def removed(self) -> frozenset[str]:
        return frozenset(path for each in self.kept for path in each.bin.paths)


def check_bins(table: Table, plan: Plan, written: Sequence[Written]) -> Replacement:
    """Which bins may still be committed on main as it is now."""
    main = table.metadata.snapshot_by_id(table.metadata.refs[MAIN_BRANCH].snapshot_id)
    assert main is not None, "a ref names a snapshot that is there"
    manifests = manifests_of(main, table.io)
    sources = {source.file.file_path: source for each in written for source in each.bin.sources}
    places = {source.manifest_path for source in sources.values()}
    found: dict[str, str] = {}
    for manifest in manifests:
        # One that was read for the plan and held no source still holds none: manifests do not change.
        passed = manifest.manifest_path in plan.known_manifests and manifest.manifest_path not in places
        if manifest.content == ManifestContent.DATA and not passed:
            for entry in entries_of(manifest, table.io):
                if entry.data_file.file_path in sources:
                    found[entry.data_file.file_path] = manifest.manifest_path
    new_deletes = Deletes(read_deletes(table.io, manifests, plan.known_manifests))
    replacement = Replacement(manifests, set())
    for each in written:
        there = all(path in found for path in each.bin.paths)
        changed = any(new_deletes.of(source.file, source.sequence_number) for source in each.bin.sources)
        (replacement.kept if there and not changed else replacement.dropped).append(each)
    replacement.touched = {found[path] for path in replacement.removed}
    replacement.useless = _useless_deletes(table, manifests, replacement.removed)
    return replacement


def _useless_deletes(table: Table, manifests: Sequence[ManifestFile], removed: frozenset[str]) -> frozenset[str]:
    """Position deletes that apply to none of the files that stay. A new file needs none: they name files by their paths."""
    deletes = Deletes(read_deletes(table.io, manifests))
    positions = {each.file.file_path for each in deletes.all if each.file.content == DataFileContent.POSITION_DELETES}
    needed: set[str] = set()
    for manifest in manifests if positions else ():
        if manifest.content == ManifestContent.DATA:
            for entry in entries_of(manifest, table.io):
                if entry.data_file.file_path not in removed:
                    found = deletes.of(entry.data_file, entry.sequence_number or 0)
                    needed.update(file.file_path for file in found)
    return frozenset(positions - needed)


def new_snapshot(
    table: Table, plan: Plan, replacement: Replacement, *, id: int, name: str, properties: dict[str, str]
) -> NewSnapshot:
    """Writes the manifests that change."""
    names = (f"{name}-{id}-m{number}" for number in count())
    collected = SnapshotSummaryCollector()
    # What holds no live file any more is told by the snapshot that deleted them, and by no later one.
    manifests = [
        manifest
        for manifest in replacement.manifests
        if manifest.manifest_path not in replacement.touched
        and (manifest.has_added_files() or manifest.has_existing_files())
    ]
    touched = [manifest for manifest in replacement.manifests if manifest.manifest_path in replacement.touched]
    manifests += [merged(table, some, replacement.removed, collected, id, next(names)) for some in together(touched)]
    if replacement.useless:
        manifests = [
            _without_useless(table, manifest, replacement.useless, collected, id, names)
            if manifest.content == ManifestContent.DELETES
            else manifest
            for manifest in manifests
        ]
    added = [(each.file, plan.sequence_number) for each in replacement.kept if each.file is not None]
    for spec_id in sorted({file.spec_id for file, _ in added}):
        mine = [(file, number) for file, number in added if file.spec_id == spec_id]
        manifests.append(_of_added(table, spec_id, mine, collected, id, next(names)))
    return NewSnapshot(id, manifests, collected, properties, name)


def together(manifests: Sequence[ManifestFile]) -> Iterator[list[ManifestFile]]:
    """Those that may be written as one: of one spec, and of a size that is read at once."""
    at_hand: list[ManifestFile] = []
    for manifest in sorted(manifests, key=lambda each: each.partition_spec_id):
        size = sum(each.manifest_length for each in at_hand) + manifest.manifest_length
        if at_hand and (at_hand[0].partition_spec_id != manifest.partition_spec_id or size > MANIFEST_BYTES):
            yield at_hand
            at_hand = []
        at_hand.append(manifest)
    if at_hand:
        yield at_hand


def merged(
    table: Table,
    manifests: Sequence[ManifestFile],
    removed: frozenset[str],
    collected: SnapshotSummaryCollector,
    id: int,
    name: str,
) -> ManifestFile:
    """Their files but those, which are noted as deleted by this snapshot."""
    metadata, spec_id = table.metadata, manifests[0].partition_spec_id
    with _writer(table, spec_id, id, name, manifests[0].content) as writer:
        for entry in (entry for manifest in manifests for entry in entries_of(manifest, table.io)):
            if entry.data_file.file_path in removed:
                collected.remove_file(entry.data_file, metadata.schema(), metadata.specs()[spec_id])
                writer.delete(entry)
            else:
                writer.existing(entry)
    return writer.to_manifest_file()


def _without_useless(
    table: Table,
    manifest: ManifestFile,
    useless: frozenset[str],
    collected: SnapshotSummaryCollector,
    id: int,
    names: Iterator[str],
) -> ManifestFile:
    if not any(entry.data_file.file_path in useless for entry in entries_of(manifest, table.io)):
        return manifest
    return merged(table, [manifest], useless, collected, id, next(names))


def _of_added(
    table: Table,
    spec_id: int,
    files: Iterable[tuple[DataFile, int]],
    collected: SnapshotSummaryCollector,
    id: int,
    name: str,
) -> ManifestFile:
    metadata = table.metadata
    with _writer(table, spec_id, id, name) as writer:
        for file, sequence_number in files:
            collected.add_file(file, metadata.schema(), metadata.specs()[spec_id])
            writer.add(
                ManifestEntry.from_args(
                    status=ManifestEntryStatus.ADDED,
                    snapshot_id=id,
                    sequence_number=sequence_number if metadata.format_version > 1 else None,
                    data_file=file,
                )
            )
    return writer.to_manifest_file()


class DeleteManifestWriter(ManifestWriterV2):
    """A manifest of delete files, which PyIceberg has no writer for."""

    def content(self) -> ManifestContent:
        return ManifestContent.DELETES

    @property
    def _meta(self) -> dict[str, str]:
        return {**super()._meta, "content": "deletes"}


def _writer(
    table: Table, spec_id: int, id: int, name: str, content: ManifestContent = ManifestContent.DATA
) -> ManifestWriter:
    if content == ManifestContent.DELETES:
        return DeleteManifestWriter(
            table.metadata.specs()[spec_id],
            table.metadata.schema(),
            table.io.new_output(table.location_provider().new_metadata_location(f"{name}.avro")),
            id,
            compression_of(table.metadata),
        )
    return write_manifest(
        format_version=table.metadata.format_version,
        spec=table.metadata.specs()[spec_id],
        schema=table.metadata.schema(),
        output_file=table.io.new_output(table.location_provider().new_metadata_location(f"{name}.avro")),
        snapshot_id=id,
        avro_compression=compression_of(table.metadata),
    )
