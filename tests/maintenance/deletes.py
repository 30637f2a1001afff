"""Position deletes and deletion vectors, as engines write them that merge on read: PyIceberg reads them, and cannot write them."""

import json
import struct
import uuid
import zlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.catalog import Catalog
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    write_manifest_list,
)
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadataV3
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.snapshots import Operation, Snapshot, Summary
from pyiceberg.table.update import AddSnapshotUpdate, SetSnapshotRefUpdate
from pyiceberg.typedef import Record
from pyroaring import BitMap

from paddock.maintenance.iceberg import committing
from paddock.maintenance.iceberg.planning import PATH_FIELD
from paddock.maintenance.iceberg.replacing import DeleteManifestWriter
from paddock.maintenance.paths import path_of

BLOB = {"type": "deletion-vector-v1", "fields": [PATH_FIELD - 1], "snapshot-id": -1, "sequence-number": -1}
SCHEMA = pa.schema(
    [
        pa.field("file_path", pa.string(), nullable=False, metadata={"PARQUET:field_id": "2147483546"}),
        pa.field("pos", pa.int64(), nullable=False, metadata={"PARQUET:field_id": "2147483545"}),
    ]
)


def delete_positions(
    catalog: Catalog,
    table: Table,
    rows: list[tuple[str, int]],
    content: DataFileContent = DataFileContent.POSITION_DELETES,
) -> str:
    """Commits a delete file for these (file, position) pairs; its location."""
    metadata = table.metadata
    path = f"{metadata.location}/data/{uuid.uuid4()}-deletes.parquet"
    columns = [pa.array([file for file, _ in rows], pa.string()), pa.array([at for _, at in rows], pa.int64())]
    pq.write_table(pa.Table.from_arrays(columns, schema=SCHEMA), path_of(path))
    file = DataFile.from_args(
        content=content,
        file_path=path,
        file_format=FileFormat.PARQUET,
        partition=Record(),
        record_count=len(rows),
        file_size_in_bytes=Path(path_of(path)).stat().st_size,
        equality_ids=[1] if content == DataFileContent.EQUALITY_DELETES else None,
    )
    file.spec_id = 0
    main = table.current_snapshot()
    assert main is not None
    commit_deletes(catalog, table, [file], main.manifests(table.io))
    return path


def commit_deletes(catalog: Catalog, table: Table, files: Iterable[DataFile], kept: Sequence[ManifestFile]) -> None:
    """A snapshot of main's manifests that are kept, and one of these delete files."""
    metadata, main = table.metadata, table.current_snapshot()
    id = metadata.new_snapshot_id()
    assert main is not None
    provider, codec = table.location_provider(), committing.compression_of(metadata)
    output = table.io.new_output(provider.new_metadata_location(f"{id}-deletes.avro"))
    with DeleteManifestWriter(metadata.spec(), metadata.schema(), output, id, codec) as writer:
        for file in files:
            writer.add(ManifestEntry.from_args(status=ManifestEntryStatus.ADDED, snapshot_id=id, data_file=file))
    listed = provider.new_metadata_location(f"snap-{id}.avro")
    number = metadata.next_sequence_number()
    with write_manifest_list(2, table.io.new_output(listed), id, main.snapshot_id, number, codec) as lists:
        lists.add_manifests([*kept, writer.to_manifest_file()])
    snapshot = Snapshot(
        snapshot_id=id,
        parent_snapshot_id=main.snapshot_id,
        sequence_number=number,
        manifest_list=listed,
        summary=Summary(operation=Operation.DELETE),
        schema_id=metadata.current_schema_id,
        first_row_id=metadata.next_row_id if isinstance(metadata, TableMetadataV3) else None,
        added_rows=0 if isinstance(metadata, TableMetadataV3) else None,
    )
    moved = SetSnapshotRefUpdate(
        ref_name="main",
        type=SnapshotRefType.BRANCH,
        snapshot_id=id,
        max_ref_age_ms=None,
        max_snapshot_age_ms=None,
        min_snapshots_to_keep=None,
    )
    committing.commit(catalog, table, (), (AddSnapshotUpdate(snapshot=snapshot), moved))


def write_vectors(table: Table, vectors: Mapping[str, Sequence[int]]) -> list[DataFile]:
    """One Puffin file with a deletion vector for each of these data files, and what a manifest says of each."""
    path = f"{table.metadata.location}/data/{uuid.uuid4()}-deletes.puffin"
    content, blobs = b"PFA1", []
    for data_file, positions in vectors.items():
        vector = b"\xd1\xd3\x39\x64" + struct.pack("<qi", 1, 0) + BitMap(positions).serialize()
        blob = struct.pack(">i", len(vector)) + vector + struct.pack(">I", zlib.crc32(vector))
        about = {"referenced-data-file": data_file, "cardinality": str(len(positions))}
        blobs.append({**BLOB, "offset": len(content), "length": len(blob), "properties": about})
        content += blob
    footer = json.dumps({"blobs": blobs}).encode()
    content += b"PFA1" + footer + struct.pack("<i", len(footer)) + bytes(4) + b"PFA1"
    with table.io.new_output(path).create() as stream:
        stream.write(content)
    made = []
    for positions in vectors.values():
        file = DataFile.from_args(
            content=DataFileContent.POSITION_DELETES,
            file_path=path,
            file_format=FileFormat.PUFFIN,
            partition=Record(),
            record_count=len(positions),
            file_size_in_bytes=len(content),
        )
        file.spec_id = 0
        made.append(file)
    return made
