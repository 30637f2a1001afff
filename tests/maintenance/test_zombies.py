"""An attempt that stood still while another ended its job: it wakes, and changes nothing."""

import threading
import uuid
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog

from paddock.jobs.errors import InfrastructureError, StaleAttempt
from paddock.jobs.outcomes import Done
from paddock.maintenance.catalog_settings import CatalogSettings
from paddock.maintenance.iceberg import running
from paddock.maintenance.iceberg.committing import fence_tags
from tests.maintenance.lake import files_below, make_table, opened, rows_of, some_rows, turn_for
from tests.maintenance.points import PointLink, Points, all_is_reachable, counted, pass_point, uncounted
from tests.maintenance.points import points as points

pytestmark = pytest.mark.usefixtures("points")
OLD: dict[str, Any] = {"confirm": True, "options": {"max_snapshot_age_hours": 0, "min_input_files": 2}}


@pytest.mark.parametrize(
    ("actions", "where"),
    [
        (["rewrite_data_files"], "before commit 1"),  # its tag
        (["rewrite_data_files"], "before save 1"),
        (["rewrite_data_files"], "before commit 2"),  # its rewrite
        (["rewrite_data_files"], "before commit 3"),  # its tag goes
        (["rewrite_manifests"], "before commit 2"),
        (["expire_snapshots"], "before commit 2"),
        (["expire_snapshots"], "before save 3"),  # its first batch of deletes
        (["expire_snapshots"], "before save 4"),
    ],
)
def test_a_zombie_changes_nothing(lake: CatalogSettings, tmp_path: Path, actions: list[str], where: str) -> None:
    table = make_table(lake, 6)
    job, link, late = uuid.uuid4(), PointLink(), Points(where, hold=True)
    ends: list[object] = []

    def sleep_walk() -> None:
        try:
            with counted(late):
                ends.append(running.maintain(turn_for(table, actions, link, job=job, **OLD), lake))
        except (StaleAttempt, InfrastructureError) as end:
            ends.append(end)

    zombie = threading.Thread(target=sleep_walk)
    zombie.start()
    assert late.held.wait(60)
    link.stale = True
    heir = running.maintain(turn_for(table, actions, PointLink(link.saved), job=job, **OLD), lake)
    assert isinstance(heir, Done)
    # What others do after the heir's end must not be undone either.
    all_is_reachable(lake).append(some_rows(5000))
    before = all_is_reachable(lake)
    rows, files = rows_of(before), files_below(tmp_path / "warehouse")

    late.let_go.set()
    zombie.join(60)

    after = all_is_reachable(lake)
    # One that had only its tag left to remove returns, and its finish is refused by the fence.
    assert isinstance(ends[0], Done if where == "before commit 3" else StaleAttempt), ends
    assert rows_of(after) == rows
    assert after.metadata.refs == before.metadata.refs
    assert after.metadata.snapshots == before.metadata.snapshots
    assert files <= files_below(tmp_path / "warehouse")


def test_a_zombie_that_turns_the_fence_late_does_not_stop_the_holder(
    lake: CatalogSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes the holder's tag away before it stops at its own save; the holder turns the fence again and goes on."""
    table = make_table(lake, 6)
    rows, job = rows_of(table), uuid.uuid4()
    load = SqlCatalog.load_table

    def gated_load(self: SqlCatalog, identifier: Any) -> Any:
        pass_point("before load")
        return load(self, identifier)

    monkeypatch.setattr(SqlCatalog, "load_table", gated_load)
    # It stands still before it loads the table for its tag, and so sees the holder's, which it then takes away.
    late, early = Points("before load 2", hold=True), Points("before commit 2", hold=True)
    zombie_link, link = PointLink(), PointLink()
    ends: dict[str, object] = {}

    def run(name: str, own: PointLink, gate: Points) -> None:
        try:
            with counted(gate):
                ends[name] = running.maintain(turn_for(table, ["rewrite_data_files"], own, job=job, **OLD), lake)
        except (StaleAttempt, InfrastructureError) as end:
            ends[name] = end

    zombie = threading.Thread(target=run, args=("zombie", zombie_link, late))
    zombie.start()
    assert late.held.wait(60)
    zombie_link.stale = True
    holder = threading.Thread(target=run, args=("holder", link, early))
    holder.start()
    assert early.held.wait(60)
    late.let_go.set()
    zombie.join(60)
    assert not fence_tags(opened(lake).load_table("sales.orders").metadata)
    early.let_go.set()
    holder.join(60)

    assert isinstance(ends["zombie"], StaleAttempt)
    assert isinstance(ends["holder"], Done), ends
    after = all_is_reachable(lake)
    assert rows_of(after) == rows
    assert list(after.metadata.refs) == ["main"]
    assert after.inspect.files().num_rows == 1


@pytest.mark.parametrize("actions", [["rewrite_data_files"], ["rewrite_manifests"], ["expire_snapshots"]])
def test_a_zombie_whose_job_was_cleaned_up_commits_nothing_although_main_did_not_move(
    lake: CatalogSettings, actions: list[str]
) -> None:
    """Nothing but the tag stands between it and the table."""
    table = make_table(lake, 6)
    job, link, late = uuid.uuid4(), PointLink(), Points("before commit 2", hold=True)
    ends: list[object] = []

    def sleep_walk() -> None:
        try:
            with counted(late):
                ends.append(running.maintain(turn_for(table, actions, link, job=job, **OLD), lake))
        except (StaleAttempt, InfrastructureError) as end:
            ends.append(end)

    zombie = threading.Thread(target=sleep_walk)
    zombie.start()
    assert late.held.wait(60)
    link.stale = True
    running.clean_up(turn_for(table, actions, PointLink(link.saved), job=job, cleanup=True, **OLD), lake)
    before = all_is_reachable(lake)

    late.let_go.set()
    zombie.join(60)

    assert isinstance(ends[0], StaleAttempt), ends
    after = all_is_reachable(lake)
    assert after.metadata.snapshots == before.metadata.snapshots
    assert list(after.metadata.refs) == ["main"]


def test_a_zombie_does_not_put_back_a_ref_that_its_owner_has_dropped_since(lake: CatalogSettings) -> None:
    """Only the fence stands between it and the table: ref and snapshot are absent, as they were when it began its commit."""
    table = make_table(lake, 8)
    oldest, job = table.metadata.snapshots[0].snapshot_id, uuid.uuid4()

    def tag(state: dict[str, Any]) -> None:
        if (state["step"] or {}).get("expire") and link.saves == 1:
            with uncounted():
                opened(lake).load_table("sales.orders").manage_snapshots().create_tag(oldest, "mine").commit()

    link, late = PointLink(on_save=tag), Points("before commit 3", hold=True)
    ends: list[object] = []

    def sleep_walk() -> None:
        try:
            with counted(late):
                ends.append(running.maintain(turn_for(table, ["expire_snapshots"], link, job=job, **OLD), lake))
        except (StaleAttempt, InfrastructureError) as end:
            ends.append(end)

    zombie = threading.Thread(target=sleep_walk)
    zombie.start()
    assert late.held.wait(60)
    link.stale = True
    running.maintain(turn_for(table, ["expire_snapshots"], PointLink(link.saved), job=job, **OLD), lake)
    held = all_is_reachable(lake)
    assert set(held.metadata.refs) == {"main", "mine"}
    held.manage_snapshots().remove_tag("mine").commit()
    running.maintain(turn_for(table, ["expire_snapshots"], PointLink(), **OLD), lake)
    assert all_is_reachable(lake).metadata.snapshot_by_id(oldest) is None

    late.let_go.set()
    zombie.join(60)

    assert isinstance(ends[0], StaleAttempt), ends
    assert list(opened(lake).load_table("sales.orders").metadata.refs) == ["main"]
