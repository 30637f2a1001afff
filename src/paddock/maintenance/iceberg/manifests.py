"""Manifests, read as a stream: a list of all entries of a large table would take a hundred times the memory.

`AvroFile` is read with PyIceberg's own whole schema of an entry, because a projected one fails on maps.
"""

from collections.abc import Iterator

from pyiceberg.avro.file import AvroFile
from pyiceberg.io import FileIO
from pyiceberg.manifest import (
    DEFAULT_READ_VERSION,
    MANIFEST_ENTRY_SCHEMAS,
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    read_manifest_list,
)
from pyiceberg.table.snapshots import Snapshot


def manifests_of(snapshot: Snapshot, io: FileIO) -> list[ManifestFile]:
    return list(read_manifest_list(io.new_input(snapshot.manifest_list)))


def entries_of(manifest: ManifestFile, io: FileIO, *, deleted: bool = False) -> Iterator[ManifestEntry]:
    """Its entries with what they inherit from the manifest; those that were deleted only when asked for."""
    with AvroFile[ManifestEntry](
        io.new_input(manifest.manifest_path),
        MANIFEST_ENTRY_SCHEMAS[DEFAULT_READ_VERSION],
        read_types={-1: ManifestEntry, 2: DataFile},
        read_enums={0: ManifestEntryStatus, 101: FileFormat, 134: DataFileContent},
    ) as reader:
        for entry in reader:
            if deleted or entry.status != ManifestEntryStatus.DELETED:
                yield _complete(entry, manifest)


def _complete(entry: ManifestEntry, manifest: ManifestFile) -> ManifestEntry:
    """As the table specification has it: a null snapshot and, of what was added, null sequence numbers are the manifest's."""
    if entry.snapshot_id is None and manifest.added_snapshot_id is not None:
        entry.snapshot_id = manifest.added_snapshot_id
    if manifest.sequence_number == 0 or entry.status == ManifestEntryStatus.ADDED:
        if entry.sequence_number is None:
            entry.sequence_number = manifest.sequence_number
        if entry.file_sequence_number is None:
            entry.file_sequence_number = manifest.sequence_number
    entry.data_file.spec_id = manifest.partition_spec_id
    return entry
