"""Files that nothing leads to go; whatever speaks for a file keeps it."""

import gzip
import os
import time
from pathlib import Path
from typing import Any

import pytest

from paddock.jobs.errors import PermanentRunnerError
from paddock.jobs.outcomes import Done
from paddock.maintenance.catalog_settings import CatalogSettings
from tests.maintenance.lake import files_below, maintain, make_table, opened, some_rows
from tests.maintenance.points import all_is_reachable

ORPHANS = ["remove_orphan_files"]


def outcome(done: Any) -> dict[str, Any]:
    assert isinstance(done, Done)
    return dict(done.result["outcomes"][-1])


def old(path: Path, days: float = 4) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists():
        path.write_bytes(b"x")
    at = time.time() - 86400 * days
    os.utime(path, (at, at))
    return path


@pytest.fixture
def home(lake: CatalogSettings, tmp_path: Path) -> Path:
    """Of a table whose files are all old."""
    make_table(lake, 8)
    home = tmp_path / "warehouse" / "sales" / "orders"
    for path in files_below(home):
        old(Path(path), 30)
    return home


def test_only_old_files_with_a_writers_name_that_nothing_leads_to_go(lake: CatalogSettings, home: Path) -> None:
    orphans = {
        old(home / "data" / "a.parquet"),
        old(home / "metadata" / "b-m0.avro"),
        old(home / "data" / "x=1" / "c.puffin"),
    }
    kept = {
        old(home / "data" / "young.parquet", 2),
        old(home / "data" / "readme.txt"),
        old(home / "data" / "_temporary" / "d.parquet"),
        old(home / "data" / ".hidden.parquet"),
        old(home.parent / "orders_backup" / "data" / "e.parquet"),
        old(home / "metadata" / "version-hint.text"),
    }

    told = outcome(maintain(lake, all_is_reachable(lake), ORPHANS))

    assert told["details"]["deleted_files"] == 3
    assert not any(path.exists() for path in orphans)
    assert all(path.exists() for path in kept)
    all_is_reachable(lake)


def test_a_file_that_metadata_names_by_another_scheme_is_kept() -> None:
    from paddock.maintenance.paths import Paths

    reached = Paths()
    reached.add("s3a://lake/sales/orders//data/city=a%20b/1.parquet")
    assert "s3://lake/sales/orders/data/city=a b/1.parquet" in reached
    assert "s3://lake/sales/orders/data/city=a b/2.parquet" not in reached


def test_statistics_files_are_reachable(lake: CatalogSettings, home: Path) -> None:
    from pyiceberg.table.statistics import StatisticsFile

    puffin = old(home / "metadata" / "stats.puffin")
    table = all_is_reachable(lake)
    snapshot = table.current_snapshot()
    assert snapshot is not None
    with table.update_statistics() as update:
        update.set_statistics(
            StatisticsFile(
                snapshot_id=snapshot.snapshot_id,
                statistics_path=f"file://{puffin}",
                file_size_in_bytes=1,
                file_footer_size_in_bytes=1,
                blob_metadata=[],
            )
        )
    maintain(lake, all_is_reachable(lake), ORPHANS)
    assert puffin.exists()


def test_metadata_of_another_table_under_the_location_refuses_all_of_it(lake: CatalogSettings, home: Path) -> None:
    orphan = old(home / "data" / "a.parquet")
    old(home / "nested" / "metadata" / "00000-x.metadata.json").write_text('{"table-uuid": "another"}')
    with pytest.raises(PermanentRunnerError) as refused:
        maintain(lake, all_is_reachable(lake), ORPHANS)
    assert refused.value.code == "location_shared"
    assert orphan.exists()


def test_a_known_table_inside_or_around_refuses_and_its_files_are_never_looked_at(
    lake: CatalogSettings, home: Path
) -> None:
    nested = old(home / "nested" / "data" / "n.parquet")
    others = [f"file://{home}/nested"]
    with pytest.raises(PermanentRunnerError) as refused:
        maintain(lake, all_is_reachable(lake), ORPHANS, other_locations=others)
    assert refused.value.code == "location_shared"
    maintain(lake, all_is_reachable(lake), ORPHANS, other_locations=others, confirm=True)
    assert nested.exists()


def test_more_than_a_fifth_is_refused_until_somebody_confirms(lake: CatalogSettings, home: Path) -> None:
    orphans = [old(home / "data" / f"{number}.parquet") for number in range(11)]
    with pytest.raises(PermanentRunnerError) as refused:
        maintain(lake, all_is_reachable(lake), ORPHANS)
    assert refused.value.code == "too_many_orphans"
    assert all(path.exists() for path in orphans)
    maintain(lake, all_is_reachable(lake), ORPHANS, confirm=True)
    assert not any(path.exists() for path in orphans)
    all_is_reachable(lake)


def test_a_file_of_a_commit_that_is_made_meanwhile_is_kept(lake: CatalogSettings, home: Path) -> None:
    """Written long ago, committed after the plan and before the batch."""
    from tests.maintenance.lake import Link

    table = all_is_reachable(lake)
    [file] = table.inspect.files().to_pylist()[:1]
    late = old(home / "data" / "late.parquet")
    late.write_bytes(Path(file["file_path"].removeprefix("file://")).read_bytes())
    old(late)

    def commit(state: dict[str, Any]) -> None:
        if "deleted_files" in (state["step"] or {}):
            opened(lake).load_table("sales.orders").add_files([f"file://{late}"])

    told = outcome(maintain(lake, table, ORPHANS, Link(on_save=commit)))
    assert told["details"] == {"deleted_files": 0, "kept_candidates": 1}
    assert late.exists()


def test_orphans_are_never_removed_after_a_failure(
    lake: CatalogSettings, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    orphan = old(home / "data" / "a.parquet")

    def fail(*arguments: Any) -> None:
        raise PermanentRunnerError("It is broken.", code="broken")

    monkeypatch.setattr("paddock.maintenance.iceberg.rewriting.write_bin", fail)
    from tests.maintenance.lake import Link

    link = Link()
    with pytest.raises(PermanentRunnerError) as failed:
        maintain(lake, all_is_reachable(lake), ["rewrite_data_files", "expire_snapshots", "remove_orphan_files"], link)
    assert failed.value.code == "broken"
    outcomes = {each["action"]: each["outcome"] for each in link.saved["outcomes"]}
    assert outcomes == {
        "rewrite_data_files": "failed",
        "expire_snapshots": "skipped",
        "remove_orphan_files": "skipped",
    }
    assert orphan.exists()
    all_is_reachable(lake).append(some_rows(500))


def test_the_plan_of_a_table_that_nobody_writes_to_stands_for_the_real_run(lake: CatalogSettings, home: Path) -> None:
    orphan = old(home / "data" / "a.parquet")
    planned = outcome(maintain(lake, all_is_reachable(lake), ORPHANS, dry_run=True))
    assert [path.removeprefix("file://") for path in planned["details"]["paths"]] == [str(orphan)]
    assert outcome(maintain(lake, all_is_reachable(lake), ORPHANS))["details"]["deleted_files"] == 1


@pytest.mark.parametrize("name", ["00000-old.gz.metadata.json", "00000-old.metadata.json.gz"])
def test_old_metadata_of_this_table_is_no_other_tables_though_it_is_compressed(
    lake: CatalogSettings, home: Path, name: str
) -> None:
    table = all_is_reachable(lake)
    own = home / "metadata" / name
    text = f'{{"format-version": 2, "table-uuid": "{table.metadata.table_uuid}", "location": "x"}}'
    own.write_bytes(gzip.compress(text.encode()))
    old(own)
    maintain(lake, table, ORPHANS)
    assert not own.exists()
    own.write_bytes(gzip.compress(text.replace(str(table.metadata.table_uuid), "another").encode()))
    old(own)
    with pytest.raises(PermanentRunnerError) as refused:
        maintain(lake, table, ORPHANS)
    assert refused.value.code == "location_shared"


def test_a_table_in_paddocks_own_store_is_refused_by_the_work_too(lake: CatalogSettings, home: Path) -> None:
    from paddock.maintenance.iceberg import running
    from tests.maintenance.lake import Link, turn_for

    before = all_is_reachable(lake)
    with pytest.raises(PermanentRunnerError) as refused:
        running.maintain(turn_for(before, ORPHANS, Link()), lake, None, f"file://{home.parent}")
    assert refused.value.code == "managed_store"
    assert all_is_reachable(lake).metadata == before.metadata


@pytest.mark.parametrize(
    ("table", "store", "overlaps"),
    [
        ("s3://b/x/t", "s3://b/x", True),
        ("s3a://b/x/t", "s3://b/x?endpoint=http://127.0.0.1:9000", True),
        ("s3n://b", "s3://b/x", True),
        ("s3://b/xy", "s3://b/x", False),
        ("s3://other/x", "s3://b/x", False),
        ("gcs://b/x/t", "gs://b/x", True),
        ("abfss://c@account.dfs.core.windows.net/x/t", "az://c/x?endpoint=http://127.0.0.1", True),
        ("abfss://d@account.dfs.core.windows.net/x/t", "az://c/x", False),
        ("gs://b/x", "s3://b/x", False),
        ("/data/x/t", "file:///data/x", True),
        ("file:/data/x/../y", "file:///data/y", True),
    ],
)
def test_paddocks_own_store_is_known_however_it_is_written(table: str, store: str, overlaps: bool) -> None:
    from paddock.maintenance.paths import overlapping_stores

    assert overlapping_stores(table, store) is overlaps
