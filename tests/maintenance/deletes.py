"""Position deletes, as engines write them that merge on read: PyIceberg reads them, and cannot write them."""

import uuid
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
    write_manifest_list,
)
from pyiceberg.table import Table
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.snapshots import Operation, Snapshot, Summary
from pyiceberg.table.update import AddSnapshotUpdate, SetSnapshotRefUpdate
from pyiceberg.typedef import Record

from paddock.maintenance.iceberg import committing
from paddock.maintenance.iceberg.replacing import DeleteManifestWriter
from paddock.maintenance.paths import path_of

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
    main, id = table.current_snapshot(), metadata.new_snapshot_id()
    assert main is not None
    provider, codec = table.location_provider(), committing.compression_of(metadata)
    output = table.io.new_output(provider.new_metadata_location(f"{id}-deletes.avro"))
    with DeleteManifestWriter(metadata.spec(), metadata.schema(), output, id, codec) as writer:
        writer.add(ManifestEntry.from_args(status=ManifestEntryStatus.ADDED, snapshot_id=id, data_file=file))
    listed = provider.new_metadata_location(f"snap-{id}.avro")
    number = metadata.next_sequence_number()
    with write_manifest_list(2, table.io.new_output(listed), id, main.snapshot_id, number, codec) as lists:
        lists.add_manifests([*main.manifests(table.io), writer.to_manifest_file()])
    snapshot = Snapshot(
        snapshot_id=id,
        parent_snapshot_id=main.snapshot_id,
        sequence_number=number,
        manifest_list=listed,
        summary=Summary(operation=Operation.DELETE),
        schema_id=metadata.current_schema_id,
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
    return path
