"""Old snapshots go, and nothing else: no ref, no file that can be reached, nothing that a rule keeps."""

import os
import time
import uuid
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.table import Table
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.update import SetSnapshotRefUpdate

from paddock.jobs.model import JsonObject
from paddock.jobs.outcomes import Done
from paddock.maintenance.catalog_settings import CatalogSettings
from paddock.maintenance.iceberg import committing, running
from paddock.maintenance.iceberg.choosing import Retention, choose
from tests.maintenance.lake import Link, files_below, maintain, make_table, opened, rows_of, some_rows, turn_for
from tests.maintenance.points import Killed, PointLink, Points, all_is_reachable, counted, uncounted
from tests.maintenance.points import points as points

EXPIRE = ["expire_snapshots"]
NOW: dict[str, Any] = {"confirm": True, "options": {"max_snapshot_age_hours": 0}}


def now(lake: CatalogSettings) -> Table:
    return opened(lake).load_table("sales.orders")


def outcome(done: Any) -> dict[str, Any]:
    assert isinstance(done, Done)
    return dict(done.result["outcomes"][-1])


def overwritten(lake: CatalogSettings, times: int = 8) -> Table:
    """Each snapshot has files of its own."""
    table = make_table(lake, 1)
    for number in range(times):
        table.overwrite(some_rows(10 * number))
    return now(lake)


def ids(table: Table) -> list[int]:
    return [snapshot.snapshot_id for snapshot in table.metadata.snapshots]


def test_old_snapshots_go_with_the_files_that_only_they_needed(lake: CatalogSettings, tmp_path: Path) -> None:
    before = overwritten(lake)
    files = files_below(tmp_path / "warehouse")

    told = outcome(maintain(lake, before, EXPIRE, **NOW))

    after = all_is_reachable(lake)
    assert rows_of(after) == rows_of(before)
    # At least three snapshots that are no rewrites stay.
    assert ids(after) == ids(before)[-3:]
    gone = files - files_below(tmp_path / "warehouse")
    assert len(gone) == told["details"]["deleted_files"] > 10
    assert sum(name.endswith(".parquet") for name in gone) == 7
    assert told["bytes_freed"] > 0


def test_nothing_goes_before_its_time(lake: CatalogSettings) -> None:
    before = overwritten(lake, 5)
    assert outcome(maintain(lake, before, EXPIRE))["outcome"] == "skipped"
    assert ids(now(lake)) == ids(before)


def test_a_tag_that_somebody_sets_between_load_and_commit_is_put_back_with_its_files(lake: CatalogSettings) -> None:
    table = overwritten(lake)
    oldest = table.metadata.snapshots[1]
    expected = sorted(table.scan(snapshot_id=oldest.snapshot_id).to_arrow()["id"].to_pylist())
    counter = table.metadata.next_sequence_number()

    def tag(state: JsonObject) -> None:
        if (state["step"] or {}).get("expire") and "audit" not in now(lake).metadata.refs and link.saves == 1:
            now(lake).manage_snapshots().create_tag(oldest.snapshot_id, "audit").commit()

    link = Link(on_save=tag)
    told = outcome(maintain(lake, table, EXPIRE, link, **NOW))

    after = all_is_reachable(lake)
    assert told["alarms"] == ["ref_lost"]
    assert told["details"]["lost_refs"] == ["audit"]
    assert after.metadata.refs["audit"].snapshot_id == oldest.snapshot_id
    assert sorted(after.scan(snapshot_id=oldest.snapshot_id).to_arrow()["id"].to_pylist()) == expected
    # Under its old number the table's counter would fall back.
    assert after.metadata.next_sequence_number() == counter + 1
    after.append(some_rows(900))


def test_where_the_catalog_refuses_to_take_a_lost_tag_back_its_files_stay(
    lake: CatalogSettings, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    table = overwritten(lake)
    oldest = table.metadata.snapshots[1]
    own = {entry["file_path"] for entry in table.inspect.files(oldest.snapshot_id).to_pylist()}

    def tag(state: JsonObject) -> None:
        if (state["step"] or {}).get("expire") and link.saves == 1:
            now(lake).manage_snapshots().create_tag(oldest.snapshot_id, "audit").commit()

    def refuse(*arguments: Any) -> None:
        raise committing.Conflict("not here")

    monkeypatch.setattr("paddock.maintenance.iceberg.expiring.put_back", refuse)
    link = Link(on_save=tag)
    told = outcome(maintain(lake, table, EXPIRE, link, **NOW))

    assert told["alarms"] == ["ref_lost"]
    assert {path.removeprefix("file://") for path in own} <= files_below(tmp_path / "warehouse")
    assert oldest.manifest_list.removeprefix("file://") in files_below(tmp_path / "warehouse")


def test_a_tag_that_its_owner_drops_after_the_commit_stays_dropped(lake: CatalogSettings) -> None:
    table = overwritten(lake)
    table.manage_snapshots().create_tag(table.metadata.snapshots[-1].snapshot_id, "mine").commit()

    def drop(state: JsonObject) -> None:
        # Before the first batch of deletes: the commit has been made.
        if "deleted_files" in (state["step"] or {}) and "mine" in now(lake).metadata.refs:
            now(lake).manage_snapshots().remove_tag("mine").commit()

    told = outcome(maintain(lake, now(lake), EXPIRE, Link(on_save=drop), **NOW))
    assert told["alarms"] == []
    assert list(now(lake).metadata.refs) == ["main"]


def test_every_ref_is_kept_whatever_its_age(lake: CatalogSettings) -> None:
    table = overwritten(lake)
    first, second = table.metadata.snapshots[1], table.metadata.snapshots[2]
    table.manage_snapshots().create_tag(first.snapshot_id, "audit").create_branch(second.snapshot_id, "dev").commit()

    maintain(lake, now(lake), EXPIRE, **NOW)

    after = all_is_reachable(lake)
    assert set(after.metadata.refs) == {"main", "audit", "dev"}
    assert {first.snapshot_id, second.snapshot_id} <= set(ids(after))


def test_a_refs_own_retention_keeps_more(lake: CatalogSettings) -> None:
    table = overwritten(lake)
    keep = SetSnapshotRefUpdate(
        ref_name="main",
        type=SnapshotRefType.BRANCH,
        snapshot_id=table.metadata.refs["main"].snapshot_id,
        min_snapshots_to_keep=6,
        max_snapshot_age_ms=None,
        max_ref_age_ms=None,
    )
    committing.commit(opened(lake), table, (), (keep,))

    maintain(lake, now(lake), EXPIRE, **NOW)

    assert ids(now(lake)) == ids(table)[-6:]
    assert now(lake).metadata.refs["main"].min_snapshots_to_keep == 6


def test_a_ref_past_its_age_is_named_and_kept_though_nothing_else_is_old(lake: CatalogSettings) -> None:
    table = overwritten(lake)
    old = SetSnapshotRefUpdate(
        ref_name="march",
        type=SnapshotRefType.TAG,
        snapshot_id=ids(table)[0],
        min_snapshots_to_keep=None,
        max_snapshot_age_ms=None,
        max_ref_age_ms=1,
    )
    committing.commit(opened(lake), table, (), (old,))

    told = outcome(maintain(lake, now(lake), EXPIRE))["message"]

    assert told == "No snapshot is old enough to go. Past their max-ref-age: march (name them in remove_refs)."
    assert "march" in now(lake).metadata.refs


@pytest.mark.parametrize(
    ("name", "value", "left"),
    [("history.expire.min-snapshots-to-keep", "5", 5), ("history.expire.max-snapshot-age-ms", "86400000", 9)],
)
def test_what_the_table_says_about_its_history_is_kept(lake: CatalogSettings, name: str, value: str, left: int) -> None:
    table = make_table(lake, 1, {name: value})
    for number in range(8):
        table.overwrite(some_rows(10 * number))
    assert len(ids(now(lake))) > left or name.endswith("ms")
    before = len(ids(now(lake)))
    maintain(lake, now(lake), EXPIRE, **NOW)
    assert len(ids(now(lake))) == (before if name.endswith("ms") else left)


@pytest.mark.parametrize(
    "writer",
    [
        {"flink.job-id": "j1", "flink.operator-id": "o1"},
        {"spark.sql.streaming.queryId": "q1"},
        {"kafka.connect.offsets.topic.group": "{}"},
    ],
)
def test_the_newest_snapshot_of_each_streaming_writer_is_kept(lake: CatalogSettings, writer: dict[str, str]) -> None:
    """The writer reads from there how far it has come; without it, it would begin anew."""
    table = make_table(lake, 1)
    table.append(some_rows(10), snapshot_properties=writer)
    table.append(some_rows(20), snapshot_properties=writer)
    written = ids(now(lake))
    for number in range(6):
        now(lake).append(some_rows(100 + 10 * number))
    before = now(lake)
    late = datetime.now(UTC) + timedelta(hours=30)
    gone = choose(before.metadata, Retention(timedelta(hours=24), 1), late).gone
    assert written[2] not in gone
    assert written[1] in gone
    assert written[2] in choose(before.metadata, Retention(timedelta(hours=24), 1), late + timedelta(hours=24)).gone


def test_a_table_whose_garbage_is_not_ours_is_left_alone(lake: CatalogSettings, tmp_path: Path) -> None:
    table = make_table(lake, 1, {"gc.enabled": "false"})
    for number in range(6):
        table.overwrite(some_rows(10 * number))
    files = files_below(tmp_path / "warehouse")
    for action in ("expire_snapshots", "remove_orphan_files"):
        told = outcome(maintain(lake, now(lake), [action], confirm=True, options={"older_than_hours": 0}))
        assert told["outcome"] == "skipped"
        assert "gc.enabled" in told["message"]
    assert files <= files_below(tmp_path / "warehouse")


def test_a_file_that_is_used_again_before_its_batch_is_kept(lake: CatalogSettings) -> None:
    """Somebody puts an expired file back into the table, as add_files does, between the commit and the deletes."""
    table = overwritten(lake)
    [old] = table.inspect.files(table.metadata.snapshots[0].snapshot_id).to_pylist()

    def add(state: JsonObject) -> None:
        if "deleted_files" in (state["step"] or {}) and link.saves == 2:
            now(lake).add_files([old["file_path"]])

    link = Link(on_save=add)
    told = outcome(maintain(lake, table, EXPIRE, link, **NOW))
    assert told["details"]["kept_candidates"] == 1
    assert len(rows_of(all_is_reachable(lake))) == 20


def test_without_the_metadata_that_had_the_snapshots_nothing_is_deleted(lake: CatalogSettings, tmp_path: Path) -> None:
    """A table that keeps one older metadata file: whether a ref was lost can no longer be told."""
    table = overwritten(lake)

    def no_batch(state: JsonObject) -> None:
        assert "deleted_files" not in (state["step"] or {}), "nothing may be deleted"

    with table.transaction() as change:
        change.set_properties({"write.metadata.previous-versions-max": "1"})
    replaced = committing.commit_expire

    def and_another(*arguments: Any) -> None:
        replaced(*arguments)
        for number in range(2):
            with now(lake).transaction() as change:
                change.set_properties({"note": str(number)})

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("paddock.maintenance.iceberg.expiring.commit_expire", and_another)
        told = outcome(maintain(lake, now(lake), EXPIRE, Link(on_save=no_batch), **NOW))
    assert "no longer in the table's log" in told["message"]
    assert told["details"]["deleted_files"] == 0


def test_a_dry_run_says_exactly_what_would_go_and_changes_nothing(lake: CatalogSettings, tmp_path: Path) -> None:
    table = overwritten(lake)
    files = files_below(tmp_path / "warehouse")
    planned = outcome(maintain(lake, table, EXPIRE, Link(), dry_run=True, **NOW))
    assert files_below(tmp_path / "warehouse") == files
    assert now(lake).metadata == table.metadata

    maintain(lake, table, EXPIRE, **NOW)

    gone = files - files_below(tmp_path / "warehouse")
    # The real one keeps what its fence tag holds, which is main's, and so the same.
    assert {path.removeprefix("file://") for path in planned["details"]["paths"]} == gone


def test_a_dry_run_of_a_table_that_nobody_writes_to_stands_for_the_real_one(
    lake: CatalogSettings, tmp_path: Path
) -> None:
    """The real one begins with a commit, from whose time ages count."""
    table = overwritten(lake)
    yesterday = time.time() - 86400
    os.utime(table.metadata_location.removeprefix("file://"), (yesterday, yesterday))
    planned = outcome(maintain(lake, table, EXPIRE, Link(), dry_run=True, **NOW))
    files = files_below(tmp_path / "warehouse")

    done = outcome(maintain(lake, table, EXPIRE, **NOW))

    assert planned["details"]["expired_snapshots"] == done["details"]["expired_snapshots"] > 0
    gone = files - files_below(tmp_path / "warehouse")
    assert {path.removeprefix("file://") for path in planned["details"]["paths"]} == gone


def test_a_file_that_stands_in_several_manifests_is_counted_once(lake: CatalogSettings, tmp_path: Path) -> None:
    table = make_table(lake, 4)
    maintain(lake, table, ["rewrite_manifests"])
    for number in range(4):
        now(lake).overwrite(some_rows(10 * number))
    files = files_below(tmp_path / "warehouse")

    told = outcome(maintain(lake, now(lake), EXPIRE, **NOW))

    assert told["details"]["deleted_files"] == len(files - files_below(tmp_path / "warehouse")) > 4


@pytest.mark.usefixtures("points")
@pytest.mark.parametrize("where", ["before delete 2", "after delete 2"])
def test_the_files_that_two_attempts_delete_are_counted_once(lake: CatalogSettings, tmp_path: Path, where: str) -> None:
    """The first are data, the second manifests, which lead to data, and the third lists."""
    table = overwritten(lake)
    files, job, link = files_below(tmp_path / "warehouse"), uuid.uuid4(), PointLink()
    with counted(Points(where)), pytest.raises(Killed):
        running.maintain(turn_for(table, EXPIRE, link, job=job, **NOW), lake)

    told = outcome(running.maintain(turn_for(table, EXPIRE, PointLink(link.saved), job=job, **NOW), lake))

    assert told["details"]["deleted_files"] == len(files - files_below(tmp_path / "warehouse"))


# Refs that a request names


def tagged(lake: CatalogSettings, *places: int) -> Table:
    table = overwritten(lake)
    for place in places:
        now(lake).manage_snapshots().create_tag(ids(table)[place], f"tag{place}").commit()
    return now(lake)


def test_a_ref_that_a_request_names_goes_with_its_snapshot(lake: CatalogSettings) -> None:
    table = tagged(lake, 1, 2)
    options = {**NOW["options"], "remove_refs": ["tag1", "nobody"]}
    told = outcome(maintain(lake, table, EXPIRE, confirm=True, options=options))
    after = all_is_reachable(lake)
    assert told["details"]["removed_refs"] == ["tag1"]
    assert set(after.metadata.refs) == {"main", "tag2"}
    assert ids(table)[1] not in ids(after)
    assert told["alarms"] == []


def test_a_ref_that_a_request_names_goes_though_no_snapshot_is_old(lake: CatalogSettings) -> None:
    table = tagged(lake, 1)
    planned = outcome(maintain(lake, table, EXPIRE, Link(), dry_run=True, options={"remove_refs": ["tag1"]}))
    assert planned["details"]["removed_refs"] == ["tag1"]
    told = outcome(maintain(lake, table, EXPIRE, options={"remove_refs": ["tag1"]}))
    assert told["outcome"] == "success"
    assert "tag1" in told["message"]
    assert list(now(lake).metadata.refs) == ["main"]
    assert ids(now(lake)) == ids(table)


def test_main_is_never_a_ref_to_remove(lake: CatalogSettings) -> None:
    """Without it nothing would hold the table's own history."""
    table = overwritten(lake)
    late = datetime.now(UTC) + timedelta(days=1)
    retention = Retention(timedelta(hours=0), 1)
    assert choose(table.metadata, retention, late, ("main",)) == choose(table.metadata, retention, late)
    for name in ("main", "paddock-fence-of-somebody"):
        with pytest.raises(ValueError, match="never removed"):
            turn_for(table, EXPIRE, Link(), options={"remove_refs": [name]})


# Lost refs, by attempts that die


def lose_tags(lake: CatalogSettings, table: Table, *places: int) -> PointLink:
    """A link whose first save of the expiry has somebody set tags, so that the commit takes them."""

    def tag(state: JsonObject) -> None:
        if (state["step"] or {}).get("expire") and link.saves == 1:
            with uncounted():
                for place in places:
                    now(lake).manage_snapshots().create_tag(ids(table)[place], f"tag{place}").commit()

    link = PointLink(on_save=tag)
    return link


@pytest.mark.usefixtures("points")
@pytest.mark.parametrize("where", ["after commit 2", "after commit 3", "after commit 4"])
def test_the_next_attempt_puts_back_what_is_left_of_the_lost_refs(lake: CatalogSettings, where: str) -> None:
    """The snapshot of one is the newest that went, by whose absence an attempt knows that the commit was done."""
    table = overwritten(lake)
    newest, older = -4, -6
    link, job = lose_tags(lake, table, older, newest), uuid.uuid4()
    with counted(Points(where)), pytest.raises(Killed):
        running.maintain(turn_for(table, EXPIRE, link, job=job, **NOW), lake)

    told = outcome(running.maintain(turn_for(table, EXPIRE, PointLink(link.saved), job=job, **NOW), lake))

    after = all_is_reachable(lake)
    assert set(after.metadata.refs) == {"main", f"tag{newest}", f"tag{older}"}
    assert told["alarms"] == ["ref_lost"]
    assert set(told["details"]["lost_refs"]) == {f"tag{newest}", f"tag{older}"}
    assert rows_of(after) == rows_of(table)


@pytest.mark.usefixtures("points")
@pytest.mark.parametrize("where", ["after commit 2", "after commit 3"])
def test_a_cleanup_puts_lost_refs_back_and_tells(lake: CatalogSettings, where: str) -> None:
    table = overwritten(lake)
    link, job = lose_tags(lake, table, -4, -6), uuid.uuid4()
    with counted(Points(where)), pytest.raises(Killed):
        running.maintain(turn_for(table, EXPIRE, link, job=job, **NOW), lake)

    done = running.clean_up(turn_for(table, EXPIRE, PointLink(link.saved), job=job, cleanup=True, **NOW), lake)

    assert isinstance(done, Done)
    [told] = done.result["cut_short"]
    assert (told["action"], told["outcome"], told["error"]) == ("expire_snapshots", "failed", "cut_short")
    assert told["alarms"] == ["ref_lost"]
    assert set(all_is_reachable(lake).metadata.refs) == {"main", "tag-4", "tag-6"}


@pytest.mark.usefixtures("points")
def test_a_cleanup_of_an_expiry_that_never_landed_changes_nothing(lake: CatalogSettings) -> None:
    table = overwritten(lake)
    link, job = PointLink(), uuid.uuid4()
    with counted(Points("before commit 2")), pytest.raises(Killed):
        running.maintain(turn_for(table, EXPIRE, link, job=job, **NOW), lake)
    done = running.clean_up(turn_for(table, EXPIRE, PointLink(link.saved), job=job, cleanup=True, **NOW), lake)
    assert isinstance(done, Done)
    assert "cut_short" not in done.result
    after = now(lake)
    assert ids(after) == ids(table)
    assert list(after.metadata.refs) == ["main"]


@pytest.mark.usefixtures("points")
def test_a_ref_that_was_put_back_and_that_its_owner_dropped_then_stays_dropped(lake: CatalogSettings) -> None:
    table = overwritten(lake)
    link, job = lose_tags(lake, table, -4, -6), uuid.uuid4()
    with counted(Points("before delete 1")), pytest.raises(Killed):
        running.maintain(turn_for(table, EXPIRE, link, job=job, **NOW), lake)
    now(lake).manage_snapshots().remove_tag("tag-4").commit()

    told = outcome(running.maintain(turn_for(table, EXPIRE, PointLink(link.saved), job=job, **NOW), lake))

    assert set(all_is_reachable(lake).metadata.refs) == {"main", "tag-6"}
    assert told["alarms"] == ["ref_lost"]
