"""What a look counts, what that means for a table's health, and that nothing is recommended which would do nothing."""

from typing import Any

import pytest
from pyiceberg.manifest import DataFileContent

from paddock.maintenance.catalog_settings import CatalogSettings
from paddock.maintenance.health import THRESHOLDS, health_of, issues_of, other_maintainer, recommended
from paddock.maintenance.iceberg import looking
from paddock.maintenance.iceberg.looking import describe, figures_of
from paddock.maintenance.iceberg.planning import Limits, packed_places, plan_rewrite
from paddock.maintenance.policy import PolicyDefaults, policy_of
from tests.maintenance.deletes import delete_positions
from tests.maintenance.lake import maintain, make_table, opened, some_rows

POLICY = policy_of({}, PolicyDefaults())
WELL = {"snapshots": 3, "data_files": 10, "bytes": 10_000}


def found(**figures: Any) -> dict[str, str | None]:
    """Its issues with the action that each asks for."""
    return {issue.code: issue.action for issue in issues_of({**WELL, **figures}, POLICY)}


@pytest.mark.parametrize(
    ("figures", "issues"),
    [
        ({}, {}),
        ({"rewritable_files": 4}, {}),
        ({"rewritable_files": 5, "rewritable_bytes": 10}, {"small_files": "rewrite_data_files"}),
        ({"delete_files": 4}, {}),
        ({"delete_files": 5}, {"delete_files": "rewrite_data_files"}),
        ({"delete_files": 5, "foldable_delete_files": 1}, {"delete_files": "rewrite_data_files"}),
        ({"delete_files": 5, "foldable_delete_files": 0}, {"delete_files": None}),
        ({"manifests": 100, "manifest_bytes": 100}, {"many_manifests": "rewrite_manifests"}),
        ({"manifests": 100, "manifest_bytes": 100, "mergeable_manifests": 0}, {"many_manifests": None}),
        ({"manifests": 100, "manifest_bytes": 100 * (2 << 20)}, {}),
        ({"expirable_snapshots": 20}, {"old_snapshots": "expire_snapshots"}),
        ({"metadata_bytes": 10 << 20, "expirable_snapshots": 1}, {"large_metadata": "expire_snapshots"}),
        ({"metadata_bytes": 10 << 20}, {"large_metadata": None}),
        ({"gc_disabled": True}, {"gc_disabled": None}),
    ],
)
def test_each_issue_asks_only_for_what_would_help(figures: dict[str, Any], issues: dict[str, str | None]) -> None:
    assert found(**figures) == issues


def test_health_is_that_of_the_worst_issue() -> None:
    def health(**figures: Any) -> str:
        return health_of(issues_of({**WELL, **figures}, POLICY), {**WELL, **figures})

    assert health() == "healthy"
    assert health(gc_disabled=True) == "healthy"
    assert health(delete_files=5) == "warning"
    assert health(delete_files=5, rewritable_files=int(THRESHOLDS["small_files"].critical)) == "critical"
    assert health_of([], {}) == "unknown"


def test_nothing_is_recommended_that_cannot_be_done() -> None:
    def actions(**figures: Any) -> list[str]:
        every = {**WELL, "rewritable_files": 50, "expirable_snapshots": 50, "manifests": 200, **figures}
        return [each.action for each in recommended(issues_of(every, POLICY), every, POLICY)]

    assert actions() == ["rewrite_data_files", "rewrite_manifests", "expire_snapshots"]
    assert actions(gc_disabled=True) == ["rewrite_data_files", "rewrite_manifests"]
    assert actions(engine_cannot="It has format version 3.") == ["expire_snapshots"]
    # Only an expiry frees what a rewrite leaves behind.
    assert actions(manifests=1, expirable_snapshots=0) == ["rewrite_data_files", "expire_snapshots"]
    assert actions(manifests=1, rewritable_files=0, expirable_snapshots=0) == []


def test_one_day_of_foreign_rewrites_is_no_habit() -> None:
    assert other_maintainer([[1, "2026-01-01"], [2, "2026-01-01"]]) is None
    assert other_maintainer([[1, "2026-01-01"], [2, "2026-01-03"]]) is not None


# The packing, which look and plan share


@pytest.mark.parametrize(
    ("sizes", "places"),
    [([], []), ([70], [1]), ([70] * 3, [1, 1, 1]), ([40] * 5, [2, 2, 1]), ([120, 10], [1, 1]), ([50, 50, 1], [2, 1])],
)
def test_files_are_packed_in_their_order_up_to_the_target(sizes: list[int], places: list[int]) -> None:
    packed = list(packed_places(sizes, 100))
    assert [place.stop - place.start for place in packed] == places
    assert [each for place in packed for each in sizes[place]] == sizes


def test_a_bin_is_worth_it_by_number_or_by_size() -> None:
    limits = Limits(target=100, min_input_files=5, delete_files=5)
    assert limits.is_worth_it([1] * 5)
    assert not limits.is_worth_it([1] * 4)
    assert limits.is_worth_it([25, 25])
    assert not limits.is_worth_it([60])


@pytest.mark.parametrize("share", [0.7, 0.4, 0.3, 0.1])
def test_a_look_counts_what_a_plan_would_take(lake: CatalogSettings, share: float) -> None:
    """Six files of seven tenths of the target are small, and no two of them fit together: once they were asked for for ever."""
    table = make_table(lake, 6)
    size = max(file["file_size_in_bytes"] for file in table.inspect.files().to_pylist())
    target = int(size / share)
    policy = policy_of({}, PolicyDefaults())
    values = {**policy.values, "target_file_size_bytes": target}
    figures = figures_of(table, type(policy)(values, policy.sources, {}), deep=True)
    plan = plan_rewrite(table, Limits(target, policy["min_input_files"], 5), max_bytes=1 << 40)
    assert figures["small_files"] == 6
    assert (figures["rewritable_files"], figures["rewritable_bytes"]) == (plan.chosen_files, plan.chosen_bytes)
    assert figures["data_files"] == plan.files
    assert bool(plan.bins) == (share < 0.5)


def test_a_table_is_well_after_what_was_recommended(lake: CatalogSettings) -> None:
    table = make_table(lake, 25)
    seen = describe(table, lake, deep=True)
    actions = [each["action"] for each in seen["recommended"]]
    assert actions == ["rewrite_data_files", "expire_snapshots"]
    maintain(lake, table, actions)
    after = describe(opened(lake).load_table("sales.orders"), lake, deep=True)
    assert (after["recommended"], after["health"]) == ([], "healthy")


@pytest.mark.parametrize(
    ("content", "foldable"),
    [(DataFileContent.POSITION_DELETES, 5), (DataFileContent.EQUALITY_DELETES, 0)],
)
def test_a_look_tells_deletes_that_a_rewrite_applies_from_others(
    lake: CatalogSettings, content: DataFileContent, foldable: int
) -> None:
    table = make_table(lake, 2)
    [file, _] = table.inspect.files().to_pylist()
    for at in range(5):
        table = opened(lake).load_table("sales.orders")
        delete_positions(opened(lake), table, [(file["file_path"], at)], content)
    seen = describe(opened(lake).load_table("sales.orders"), lake, deep=True)
    assert (seen["figures"]["delete_files"], seen["figures"]["foldable_delete_files"]) == (5, foldable)
    assert ("rewrite_data_files" in {each["action"] for each in seen["recommended"]}) == bool(foldable)


@pytest.mark.parametrize(("deletes", "share"), [(4, 2.0), (5, 2.0), (4, 0.1), (5, 0.1), (1, 0.4)])
def test_a_look_counts_the_deletes_that_a_plan_would_take(lake: CatalogSettings, deletes: int, share: float) -> None:
    """Of two files, one read with deletes: they are twice the target, a tenth of it, or make a good file together."""
    table = make_table(lake, 2)
    [file, _] = table.inspect.files().to_pylist()
    for at in range(deletes):
        delete_positions(opened(lake), opened(lake).load_table("sales.orders"), [(file["file_path"], at)])
    table = opened(lake).load_table("sales.orders")
    target = int(file["file_size_in_bytes"] / share)
    values = {**POLICY.values, "target_file_size_bytes": target}

    figures = figures_of(table, type(POLICY)(values, POLICY.sources, {}), deep=True)

    plan = plan_rewrite(table, Limits(target, POLICY["min_input_files"], 5), max_bytes=1 << 40)
    taken = {each.file_path for packed in plan.bins for source in packed.sources for each in source.deletes}
    assert figures["foldable_delete_files"] == len(taken)
    assert bool(taken) == (deletes == 5 or share == 0.4)


def test_a_very_large_table_is_estimated_by_its_mean_until_somebody_asks_for_it(
    lake: CatalogSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = make_table(lake, 6)
    exact = figures_of(table, POLICY, deep=True)
    monkeypatch.setattr(looking, "MOST_FILES", 5)

    guessed = figures_of(table, POLICY, deep=False)

    assert guessed["estimated"] is True
    names = ("data_files", "bytes", "records", "small_files", "rewritable_files", "rewritable_bytes")
    assert {name: guessed[name] for name in names} == {name: exact[name] for name in names}
    assert figures_of(table, POLICY, deep=True) == exact
    small = type(POLICY)({**POLICY.values, "target_file_size_bytes": 100}, POLICY.sources, {})
    assert figures_of(table, small, deep=False)["rewritable_files"] == 0


def test_an_empty_table_is_healthy(lake: CatalogSettings) -> None:
    seen = describe(make_table(lake, 0), lake, deep=True)
    assert (seen["health"], seen["recommended"], seen["figures"]["snapshots"]) == ("healthy", [], 0)


def test_a_bad_property_is_an_issue_and_no_error(lake: CatalogSettings) -> None:
    table = make_table(lake, 1, {"paddock.min_input_files": "many"})
    [issue] = describe(table, lake, deep=True)["issues"]
    assert (issue["code"], issue["severity"]) == ("bad_property", "warning")
    table.append(some_rows(100))
