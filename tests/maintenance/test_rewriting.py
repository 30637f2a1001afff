"""Small files become few, and the rows stay as they are, whoever writes meanwhile."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, StringType

from paddock.jobs.errors import PermanentRunnerError
from paddock.jobs.model import JsonObject
from paddock.jobs.outcomes import Done
from paddock.maintenance.catalog_settings import CatalogSettings
from paddock.maintenance.iceberg import running
from paddock.maintenance.iceberg.planning import Limits, check_engine, plan_rewrite
from tests.maintenance.lake import Link, maintain, make_table, opened, rows_of, some_rows, turn_for

REWRITE = ["rewrite_data_files"]
LIMITS = Limits(target=1 << 29, min_input_files=2, delete_files=5)


def now(lake: CatalogSettings) -> Table:
    return opened(lake).load_table("sales.orders")


def outcome(done: Any) -> dict[str, Any]:
    assert isinstance(done, Done)
    [only] = done.result["outcomes"]
    return dict(only)


def files(table: Table) -> int:
    return int(table.inspect.files().num_rows)


@pytest.mark.parametrize("version", ["1", "2"])
def test_many_small_files_become_one_with_the_same_rows(lake: CatalogSettings, version: str) -> None:
    before = make_table(lake, 12, {"format-version": version})

    told = outcome(maintain(lake, before, REWRITE))

    after = now(lake)
    assert told["outcome"] == "success"
    assert (told["files_before"], told["files_after"]) == (12, 1)
    assert rows_of(after) == rows_of(before)
    assert files(after) == 1
    snapshot = after.current_snapshot()
    assert snapshot is not None
    assert snapshot.summary is not None
    assert snapshot.summary.operation.value == "replace"
    assert snapshot.summary["paddock.action"] == "rewrite_data_files"
    assert snapshot.summary["total-data-files"] == "1"
    assert snapshot.summary["total-records"] == "120"
    assert list(after.metadata.refs) == ["main"]


def test_new_files_keep_the_sequence_number_that_the_plan_was_made_of(lake: CatalogSettings) -> None:
    """Otherwise a delete that was committed meanwhile would not apply to them."""
    before = make_table(lake, 6)
    started = before.metadata.next_sequence_number() - 1
    maintain(lake, before, REWRITE)
    entries = now(lake).inspect.entries().to_pylist()
    [added] = [entry for entry in entries if entry["status"] == 1]
    assert added["sequence_number"] == started


def test_partitions_stay_apart_and_files_of_an_older_spec_keep_it(lake: CatalogSettings) -> None:
    table = make_table(lake, 6)
    with table.update_spec() as spec:
        spec.add_field("city", IdentityTransform(), "city")
    for number in range(6):
        table.append(some_rows(100 + 10 * number))
    before = now(lake)

    told = outcome(maintain(lake, before, REWRITE))

    after = now(lake)
    assert rows_of(after) == rows_of(before)
    found = after.inspect.files().to_pylist()
    assert {file["spec_id"] for file in found} == {0, 1}
    assert told["files_after"] == len(found) == 1 + len({row["city"] for row in rows_of(before)})
    # Read by partition: a row in a file of another partition would be missed.
    for city in ("city 1", "city 6"):
        expected = [row for row in rows_of(before) if row["city"] == city]
        assert (
            sorted(after.scan(row_filter=f"city = '{city}'").to_arrow().to_pylist(), key=lambda row: row["id"])
            == expected
        )


def test_a_column_dropped_and_added_again_under_its_name_stays_empty_in_old_rows(lake: CatalogSettings) -> None:
    table = make_table(lake, 6)
    with table.update_schema() as schema:
        schema.delete_column("city")
    with now(lake).update_schema() as schema:
        schema.add_column("city", StringType())
    before = now(lake)
    assert all(row["city"] is None for row in rows_of(before))

    maintain(lake, before, REWRITE)

    assert files(now(lake)) == 1
    assert rows_of(now(lake)) == rows_of(before)


def test_columns_that_were_renamed_widened_or_added_are_found_by_their_ids(lake: CatalogSettings) -> None:
    schema = pa.schema([pa.field("id", pa.int32()), pa.field("name", pa.string())])
    catalog = opened(lake)
    catalog.create_namespace("sales")
    table = catalog.create_table("sales.orders", schema)
    table.append(pa.table({"id": pa.array([1, 2], pa.int32()), "name": ["a", "b"]}))
    with table.update_schema() as change:
        change.rename_column("name", "title")
        change.update_column("id", LongType())
        change.add_column("more", StringType())
    for number in range(6):
        now(lake).append(pa.table({"id": pa.array([10 + number], pa.int64()), "title": ["c"], "more": ["d"]}))
    before = now(lake)

    maintain(lake, before, REWRITE)

    assert files(now(lake)) == 1
    assert rows_of(now(lake)) == rows_of(before)


def test_nested_columns_survive(lake: CatalogSettings) -> None:
    rows = pa.table(
        {
            "id": pa.array([1, 2], pa.int64()),
            "tags": pa.array([["a", None], None], pa.list_(pa.string())),
            "place": pa.array([{"x": 1, "y": None}, None], pa.struct([("x", pa.int32()), ("y", pa.string())])),
            "counts": pa.array([[("a", 1)], []], pa.map_(pa.string(), pa.int64())),
        }
    )
    catalog = opened(lake)
    catalog.create_namespace("sales")
    table = catalog.create_table("sales.orders", rows.schema)
    for _ in range(6):
        table.append(rows)
    before = now(lake)
    expected = before.scan().to_arrow().to_pylist()

    maintain(lake, before, REWRITE)

    assert files(now(lake)) == 1
    assert now(lake).scan().to_arrow().to_pylist() == expected


def test_what_somebody_appends_before_the_commit_is_kept(lake: CatalogSettings) -> None:
    table = make_table(lake, 6)

    def append(state: JsonObject) -> None:
        if (state["step"] or {}).get("pending") and link.saves == 1:
            now(lake).append(some_rows(1000))

    link = Link(on_save=append)
    told = outcome(maintain(lake, table, REWRITE, link))

    assert told["outcome"] == "success"
    assert {row["id"] for row in rows_of(now(lake))} == {*range(60), *range(1000, 1010)}
    assert files(now(lake)) == 2


def test_a_source_that_somebody_deletes_before_the_commit_stays_deleted(lake: CatalogSettings) -> None:
    table = make_table(lake, 6)

    def delete(state: JsonObject) -> None:
        if (state["step"] or {}).get("pending") and link.saves == 1:
            now(lake).delete("id >= 10 and id < 20")

    link = Link(on_save=delete)
    told = outcome(maintain(lake, table, REWRITE, link))

    assert told["outcome"] == "skipped"
    assert "left" in told["message"]
    assert {row["id"] for row in rows_of(now(lake))} == {*range(10), *range(20, 60)}
    assert files(now(lake)) == 5


def test_a_table_that_changes_under_every_commit_is_tried_again_later(lake: CatalogSettings) -> None:
    table = make_table(lake, 6)

    def append(state: JsonObject) -> None:
        if (state["step"] or {}).get("pending"):
            now(lake).append(some_rows(1000, 1))

    from paddock.jobs.errors import TransientResourceError

    with pytest.raises(TransientResourceError) as refused:
        maintain(lake, table, REWRITE, Link(on_save=append))
    assert refused.value.code == "commit_conflict"
    assert files(now(lake)) == 6 + 5


@pytest.mark.parametrize("at", [1, 3], ids=["the fence is turned", "the tag goes"])
def test_a_write_in_the_moment_of_a_tags_commit_does_not_fail_the_job(
    lake: CatalogSettings, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    table, commits, do = make_table(lake, 6), list[int](), SqlCatalog.commit_table

    def commit(self: SqlCatalog, *arguments: Any) -> Any:
        commits.append(len(commits) + 1)
        if len(commits) == at:
            raise CommitFailedException("Table has been updated by another process")
        return do(self, *arguments)

    monkeypatch.setattr(SqlCatalog, "commit_table", commit)
    assert outcome(maintain(lake, table, REWRITE))["outcome"] == "success"
    assert commits == [1, 2, 3, 4]
    assert list(now(lake).metadata.refs) == ["main"]


def test_nothing_is_committed_when_rows_are_missing(lake: CatalogSettings, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader that loses rows is caught by the footers of the sources."""
    table = make_table(lake, 6)
    whole = pq.ParquetFile.iter_batches

    def loses_one(self: pq.ParquetFile, *arguments: Any, **options: Any) -> Any:
        yield from (batch.slice(1) for batch in whole(self, *arguments, **options))

    monkeypatch.setattr(pq.ParquetFile, "iter_batches", loses_one)
    with pytest.raises(PermanentRunnerError) as refused:
        maintain(lake, table, REWRITE)
    assert refused.value.code == "rows_differ"
    assert now(lake).current_snapshot() == table.current_snapshot()


def test_a_table_without_a_snapshot_is_left_alone(lake: CatalogSettings) -> None:
    table = make_table(lake, 0)
    told = outcome(maintain(lake, table, REWRITE))
    assert told["outcome"] == "skipped"
    assert not now(lake).metadata.refs


def test_a_table_made_anew_under_its_name_is_not_touched(lake: CatalogSettings) -> None:
    table = make_table(lake, 6)
    opened(lake).drop_table("sales.orders")
    make_table(lake, 6)
    with pytest.raises(PermanentRunnerError) as refused:
        maintain(lake, table, REWRITE)
    assert refused.value.code == "table_replaced"
    assert files(now(lake)) == 6


def test_a_table_that_was_dropped_is_an_error_for_people(lake: CatalogSettings) -> None:
    table = make_table(lake, 1)
    opened(lake).drop_table("sales.orders")
    with pytest.raises(PermanentRunnerError) as refused:
        maintain(lake, table, REWRITE)
    assert refused.value.code == "unknown_table"


def test_files_are_named_after_job_and_attempt_and_written_as_the_table_says(
    lake: CatalogSettings, tmp_path: Path
) -> None:
    table = make_table(lake, 6, {"write.parquet.compression-codec": "snappy"})
    turn = turn_for(table, REWRITE, Link())
    running.maintain(turn, lake)
    [file] = now(lake).inspect.files().to_pylist()
    assert file["file_path"].endswith(f"/{turn.id}-{turn.attempt_id}-00000.parquet")
    path = file["file_path"].removeprefix("file://")
    assert pq.read_metadata(path).row_group(0).column(0).compression == "SNAPPY"


def test_more_than_ten_bins_take_ten_commits_at_most(lake: CatalogSettings) -> None:
    table = make_table(lake, 0)
    with table.update_spec() as spec:
        spec.add_field("id", IdentityTransform(), "id")
    for _number in range(2):
        now(lake).append(some_rows(0, 23))
    before = now(lake)
    told = outcome(maintain(lake, before, REWRITE, options={"min_input_files": 2}))
    assert told["files_after"] == 23
    assert 1 < len(told["details"]["snapshots"]) <= 10
    assert len(rows_of(now(lake))) == 46


def test_what_is_past_max_bytes_waits_for_the_next_time(lake: CatalogSettings) -> None:
    table = make_table(lake, 0)
    with table.update_spec() as spec:
        spec.add_field("city", IdentityTransform(), "city")
    payload = pa.array([f"{number:07d}" * 20 for number in range(20_000)])
    rows = pa.table(
        {
            "id": pa.array(range(20_000), pa.int64()),
            "city": payload.take(pa.array([0, 1] * 10_000)),
            "price": pa.array([1.5] * 20_000),
        }
    )
    for _ in range(6):
        now(lake).append(rows)
    told = outcome(maintain(lake, now(lake), REWRITE, options={"max_bytes": 1 << 20}))
    assert told["outcome"] == "success"
    assert len(rows_of(now(lake))) == 120_000


def test_max_bytes_takes_the_partition_with_most_small_files_and_leaves_the_others(lake: CatalogSettings) -> None:
    table = make_table(lake, 0)
    with table.update_spec() as spec:
        spec.add_field("city", IdentityTransform(), "city")
    for city, files in (("few", 3), ("many", 5), ("some", 4)):
        for number in range(files):
            rows = {"id": [number], "city": [city], "price": [1.0]}
            now(lake).append(pa.Table.from_pydict(rows, schema=some_rows(0).schema))
    table = now(lake)
    whole = plan_rewrite(table, LIMITS, max_bytes=1 << 30)
    assert [len(each.sources) for each in whole.bins] == [5, 4, 3]

    plan = plan_rewrite(table, LIMITS, max_bytes=whole.bins[0].bytes + 1)

    assert [len(each.sources) for each in plan.bins] == [5]
    assert plan.left["next_time"] == 7
    # One partition that is larger than the limit is rewritten all the same: it would wait for ever.
    assert len(plan_rewrite(table, LIMITS, max_bytes=1).bins) == 1


@pytest.mark.parametrize("action", ["rewrite_data_files", "expire_snapshots"])
def test_without_a_fence_no_tag_is_set_and_the_result_says_so(lake: CatalogSettings, action: str) -> None:
    """For catalogs that have no tags."""
    unfenced = lake.model_copy(update={"fence": False})
    table = make_table(lake, 6)
    seen: list[set[str]] = []
    link = Link(on_save=lambda state: seen.append(set(now(lake).metadata.refs)))

    done = maintain(unfenced, table, [action], link, confirm=True, options={"max_snapshot_age_hours": 0})

    assert isinstance(done, Done)
    assert done.result["unfenced"] is True
    assert done.result["outcomes"][0]["outcome"] == "success"
    assert seen
    assert all(refs == {"main"} for refs in seen)
    assert rows_of(now(lake)) == rows_of(table)


@pytest.mark.parametrize(("engine", "refuses"), [("embedded", True), ("trino", True), ("spark", False)])
def test_a_v3_table_is_refused_before_any_work_and_spark_is_named(
    lake: CatalogSettings, engine: str, refuses: bool
) -> None:
    table = make_table(lake, 2)
    newer = table.metadata.model_copy(update={"format_version": 3})
    table.metadata = newer
    if not refuses:
        check_engine(table, engine)
        return
    with pytest.raises(PermanentRunnerError) as refused:
        check_engine(table, engine)
    assert refused.value.code == "engine_cannot"
    assert "Spark can" in str(refused.value.hint)


def test_manifests_without_a_living_file_go_with_a_merge_and_are_left_alone_without_one(lake: CatalogSettings) -> None:
    table = make_table(lake, 4)
    table.delete("id = 3")
    rows = rows_of(now(lake))
    told = outcome(maintain(lake, now(lake), ["rewrite_manifests"]))
    assert (told["outcome"], told["files_after"]) == ("success", 1)
    assert rows_of(now(lake)) == rows

    for gone in ("id = 4", "id >= 0"):
        now(lake).delete(gone)
    assert outcome(maintain(lake, now(lake), ["rewrite_manifests"]))["outcome"] == "skipped"
    assert rows_of(now(lake)) == []
