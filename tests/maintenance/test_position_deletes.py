"""Rewrites apply position deletes, and drop delete files that no file needs any more; equality deletes are left alone."""

from typing import Any

import pytest
from pyiceberg.manifest import DataFileContent
from pyiceberg.table import FileScanTask, Table

from paddock.jobs.errors import PermanentRunnerError
from paddock.jobs.model import JsonObject
from paddock.jobs.outcomes import Done
from paddock.maintenance.catalog_settings import CatalogSettings
from paddock.maintenance.iceberg import writing
from paddock.maintenance.iceberg.planning import Limits, plan_rewrite
from tests.maintenance.deletes import delete_positions
from tests.maintenance.lake import Link, maintain, make_table, opened, rows_of, some_rows

REWRITE = ["rewrite_data_files"]


def now(lake: CatalogSettings) -> Table:
    return opened(lake).load_table("sales.orders")


def outcome(done: Any) -> dict[str, Any]:
    assert isinstance(done, Done)
    return dict(done.result["outcomes"][-1])


def paths(table: Table) -> list[str]:
    """Of the data files, in the order of their first id."""
    files = [file for file in table.inspect.files().to_pylist() if file["content"] == 0]
    ordered = sorted(files, key=lambda file: file["readable_metrics"]["id"]["lower_bound"])
    return [file["file_path"] for file in ordered]


def deletes(table: Table) -> int:
    return sum(file["content"] != 0 for file in table.inspect.files().to_pylist())


def test_deleted_rows_stay_deleted_and_their_delete_files_go(lake: CatalogSettings) -> None:
    table = make_table(lake, 6)
    first, second, *_ = paths(table)
    delete_positions(opened(lake), table, [(first, 0), (first, 3), (second, 9)])
    delete_positions(opened(lake), now(lake), [(first, 3), (first, 4)])
    before = now(lake)
    assert len(rows_of(before)) == 56
    assert deletes(before) == 2

    told = outcome(maintain(lake, before, REWRITE))

    after = now(lake)
    assert told["outcome"] == "success"
    assert rows_of(after) == rows_of(before)
    assert deletes(after) == 0
    assert after.inspect.files().num_rows == 1
    snapshot = after.current_snapshot()
    assert snapshot is not None
    assert snapshot.summary is not None
    assert snapshot.summary["removed-delete-files"] == "2"


def test_a_delete_file_that_a_file_left_alone_still_needs_is_kept(lake: CatalogSettings) -> None:
    table = make_table(lake, 6)
    before_last = paths(table)
    delete_positions(opened(lake), table, [(before_last[0], 0), (before_last[1], 1)])

    def replace_first(state: JsonObject) -> None:
        # One source goes meanwhile, so its bin is dropped, and with it the reason to drop the delete file.
        if (state["step"] or {}).get("pending") and link.saves == 1:
            now(lake).append(some_rows(500))
            delete_positions(opened(lake), now(lake), [(before_last[2], 2)])

    link = Link(on_save=replace_first)
    maintain(lake, now(lake), REWRITE, link)
    assert {row["id"] for row in rows_of(now(lake))} == {*range(60), *range(500, 510)} - {0, 11, 22}
    assert deletes(now(lake)) == 2


def test_a_file_whose_rows_are_all_deleted_vanishes(lake: CatalogSettings) -> None:
    table = make_table(lake, 6)
    first, *_ = paths(table)
    delete_positions(opened(lake), table, [(first, at) for at in range(10)])
    before = now(lake)
    maintain(lake, before, REWRITE)
    assert rows_of(now(lake)) == rows_of(before)
    assert {row["id"] for row in rows_of(now(lake))} == set(range(10, 60))


def test_a_new_delete_on_a_source_drops_its_bin(lake: CatalogSettings) -> None:
    table = make_table(lake, 6)
    first, *_ = paths(table)

    def delete(state: JsonObject) -> None:
        if (state["step"] or {}).get("pending") and link.saves == 1:
            delete_positions(opened(lake), now(lake), [(first, 0)])

    link = Link(on_save=delete)
    told = outcome(maintain(lake, table, REWRITE, link))
    assert told["outcome"] == "skipped"
    assert {row["id"] for row in rows_of(now(lake))} == set(range(1, 60))
    assert deletes(now(lake)) == 1


@pytest.mark.parametrize(("threshold", "taken"), [("3", True), ("4", False)])
def test_a_file_is_rewritten_for_its_deletes_alone_from_the_threshold_on(
    lake: CatalogSettings, threshold: str, taken: bool
) -> None:
    """Two small files are too few to be worth it by themselves."""
    table = make_table(lake, 2, {"paddock.delete_file_threshold": threshold})
    first, _ = paths(table)
    for at in range(3):
        delete_positions(opened(lake), now(lake), [(first, at)])
    before = now(lake)

    told = outcome(maintain(lake, before, REWRITE))

    assert told["outcome"] == ("success" if taken else "skipped")
    assert deletes(now(lake)) == (0 if taken else 3)
    assert rows_of(now(lake)) == rows_of(before)


def test_large_files_with_few_deletes_are_left_and_the_plan_says_so(lake: CatalogSettings) -> None:
    """Without bounds a delete file may be about any file of its partition, and so counts for both."""
    table = make_table(lake, 2)
    first, _ = paths(table)
    for at in range(3):
        delete_positions(opened(lake), now(lake), [(first, at)])

    def planned(delete_files: int) -> tuple[int, dict[str, int]]:
        plan = plan_rewrite(
            now(lake), Limits(target=1000, min_input_files=5, delete_files=delete_files), max_bytes=1 << 40
        )
        return plan.chosen_files, dict(plan.left)

    assert planned(4) == (0, {"few_deletes": 2})
    assert planned(3) == (2, {})


def test_what_an_equality_delete_may_apply_to_is_left(lake: CatalogSettings) -> None:
    table = make_table(lake, 6)
    delete_positions(opened(lake), table, [("x", 0)], DataFileContent.EQUALITY_DELETES)
    before = now(lake).current_snapshot()
    told = outcome(maintain(lake, now(lake), REWRITE))
    assert told["outcome"] == "skipped"
    assert "equality deletes" in told["message"]
    assert now(lake).current_snapshot() == before


def test_nothing_is_committed_when_the_scan_ignores_a_delete(
    lake: CatalogSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The positions are read a second time by ourselves: a scan that forgets them brings rows back."""
    table = make_table(lake, 6)
    first, *_ = paths(table)
    delete_positions(opened(lake), table, [(first, 0)])

    def forgets(file: Any, delete_files: Any) -> Any:
        return FileScanTask(file)

    monkeypatch.setattr(writing, "FileScanTask", forgets)
    with pytest.raises(PermanentRunnerError) as refused:
        maintain(lake, now(lake), REWRITE)
    assert refused.value.code == "rows_differ"
