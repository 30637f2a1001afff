"""Every file that a table's metadata can still lead to. What is reachable is never deleted.

Manifests are read as a stream, each once, and what is kept of a file is a hash of its path.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from pyiceberg.io import FileIO
from pyiceberg.serializers import FromInputFile
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata

from paddock.maintenance.iceberg.manifests import entries_of, manifests_of
from paddock.maintenance.paths import Paths


@dataclass
class Reach:
    """What metadata reaches; more metadata can be added, and manifests that were read already are not read again."""

    files: Paths = field(default_factory=Paths)
    lists: set[str] = field(default_factory=set)
    manifests: set[str] = field(default_factory=set)

    def add_table(self, table: Table) -> None:
        self.files.add(table.metadata_location)
        self.files.add(f"{table.metadata.location}/metadata/version-hint.text")
        self.add(table.metadata, table.io)

    def add(self, metadata: TableMetadata, io: FileIO) -> None:
        for logged in metadata.metadata_log:
            self.files.add(logged.metadata_file)
        for path in statistics_of(metadata):
            self.files.add(path)
        for snapshot in metadata.snapshots:
            if snapshot.manifest_list in self.lists:
                continue
            for manifest in manifests_of(snapshot, io):
                if manifest.manifest_path not in self.manifests:
                    self.files.add(manifest.manifest_path)
                    # Those that an entry calls deleted are reached by older snapshots, or by nobody.
                    for entry in entries_of(manifest, io):
                        self.files.add(entry.data_file.file_path)
                    self.manifests.add(manifest.manifest_path)
            self.files.add(snapshot.manifest_list)
            self.lists.add(snapshot.manifest_list)


def statistics_of(metadata: TableMetadata) -> Iterator[str]:
    for each in (*metadata.statistics, *metadata.partition_statistics):
        yield each.statistics_path


def read_metadata(location: str, io: FileIO) -> TableMetadata:
    return FromInputFile.table_metadata(io.new_input(location))
