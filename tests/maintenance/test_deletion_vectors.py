"""Tables of format version 3: a Puffin file stays as long as one vector in it is somebody's."""

import json
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.manifest import DataFile, ManifestContent
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadataV2, TableMetadataV3

from paddock.jobs.errors import PermanentRunnerError
from paddock.jobs.outcomes import Done
from paddock.maintenance.catalog_settings import CatalogSettings
from paddock.maintenance.paths import path_of
from tests.maintenance.deletes import commit_deletes, write_vectors
from tests.maintenance.lake import maintain, make_table, opened, rows_of

OLD: dict[str, Any] = {"confirm": True, "options": {"max_snapshot_age_hours": 0, "older_than_hours": 0}}
CLEANING = ["expire_snapshots", "remove_orphan_files"]


def now(lake: CatalogSettings) -> Table:
    return opened(lake).load_table("sales.orders")


def make_v3_table(lake: CatalogSettings, files: int) -> Table:
    """As an engine upgrades a table. PyIceberg reads such a table; its metadata is written by somebody else."""
    table = make_table(lake, files)
    metadata = json.loads(Path(path_of(table.metadata_location)).read_text())
    newer = Path(path_of(table.metadata_location)).with_name("00099-upgraded.metadata.json")
    newer.write_text(json.dumps({**metadata, "format-version": 3, "next-row-id": 0}))
    opened(lake).drop_table("sales.orders")
    return opened(lake).register_table("sales.orders", f"file://{newer}")


def delete(lake: CatalogSettings, *vectors: DataFile) -> None:
    """From now on these are main's vectors, and no others."""
    table = now(lake)
    main = table.current_snapshot()
    assert main is not None
    data = [each for each in main.manifests(table.io) if each.content == ManifestContent.DATA]
    commit_deletes(opened(lake), table, vectors, data)


def test_a_puffin_file_goes_only_when_no_vector_in_it_is_needed(
    lake: CatalogSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Metadata that a REST catalog's server would write.
    monkeypatch.setattr(TableMetadataV3, "model_dump_json", TableMetadataV2.model_dump_json)
    table = make_v3_table(lake, 4)
    first, second, third = table.inspect.data_files()["file_path"].to_pylist()[:3]
    shared = write_vectors(table, {first: [0], second: [1, 2]})
    [taken_back] = write_vectors(table, {third: [5]})
    # The first file's vector is written again elsewhere. The file with the old one still has the second's.
    [newer] = write_vectors(table, {first: [0, 3]})
    [never_committed] = write_vectors(table, {third: [6]})
    delete(lake, *shared, taken_back)
    for _ in range(4):  # of which an expiry keeps three
        delete(lake, newer, shared[1])
    before = now(lake)
    assert len(rows_of(before)) == 36

    done = maintain(lake, before, CLEANING, **OLD)

    assert isinstance(done, Done)
    assert [each["outcome"] for each in done.result["outcomes"]] == ["success", "success"]
    after = now(lake)
    assert (after.metadata.format_version, len(after.metadata.snapshots)) == (3, 3)
    assert rows_of(after) == rows_of(before)
    puffins = (shared[1], newer, taken_back, never_committed)
    assert [after.io.new_input(file.file_path).exists() for file in puffins] == [True, True, False, False]


def test_a_catalog_that_cannot_write_v3_says_so_once(lake: CatalogSettings) -> None:
    """It is no lost answer, after which it would be tried again and again."""
    table = make_v3_table(lake, 2)
    with pytest.raises(PermanentRunnerError) as refused:
        maintain(lake, table, CLEANING, **OLD)
    assert refused.value.code == "catalog_cannot"
    assert "REST" in str(refused.value.hint)
    assert now(lake).metadata_location == table.metadata_location
