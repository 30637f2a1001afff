"""The same on a REST catalog with S3: the rules hold by what the server refuses, not by what a library checks."""

import uuid
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from pyiceberg.exceptions import CommitStateUnknownException
from pyiceberg.table import Table

from paddock.jobs.errors import TransientResourceError
from paddock.jobs.model import JsonObject
from paddock.jobs.outcomes import Done
from paddock.maintenance.catalog_settings import CatalogSettings
from paddock.maintenance.iceberg import committing, running
from paddock.maintenance.iceberg.checking import findings
from paddock.maintenance.iceberg.store import Bucket
from tests.maintenance import rest
from tests.maintenance.lake import NAME, Link, maintain, make_table, opened, rows_of, some_rows, turn_for

NOW: dict[str, Any] = {"confirm": True, "options": {"max_snapshot_age_hours": 0}}
ALL = ["rewrite_data_files", "rewrite_manifests", "expire_snapshots", "remove_orphan_files"]


@pytest.fixture(scope="module")
def server() -> Iterator[rest.RestLake]:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in rest.ENVIRONMENT.items():
            patch.setenv(name, value)
        with rest.rest_lake() as running:
            yield running


@pytest.fixture
def lake(server: rest.RestLake) -> Iterator[CatalogSettings]:
    """S3 tells whole seconds, so what a test has just written would be younger than the metadata that came after it."""
    modified = Bucket.modified
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Bucket, "modified", lambda self, location: modified(self, location) + timedelta(seconds=1))
        yield server.settings
    opened(server.settings).drop_table("sales.orders")


def now(lake: CatalogSettings) -> Table:
    return opened(lake).load_table("sales.orders")


def outcomes(done: Any) -> dict[str, dict[str, Any]]:
    assert isinstance(done, Done)
    return {each["action"]: each for each in done.result["outcomes"]}


def all_is_reachable(lake: CatalogSettings) -> Table:
    table = now(lake)
    for snapshot in table.metadata.snapshots:
        table.scan(snapshot_id=snapshot.snapshot_id).to_arrow()
    return table


def test_a_whole_maintenance_changes_no_row_and_frees_what_only_old_snapshots_needed(lake: CatalogSettings) -> None:
    table = make_table(lake, 6)
    for number in range(4):
        table.overwrite(some_rows(100 * number, 30))
    table = now(lake)
    for number in range(6):
        table.append(some_rows(1000 + 10 * number))
    before = now(lake)

    told = outcomes(maintain(lake, before, ALL, **NOW))

    assert {each["outcome"] for each in told.values()} == {"success"}, told
    after = all_is_reachable(lake)
    assert rows_of(after) == rows_of(before)
    assert after.inspect.files().num_rows == 1
    assert list(after.metadata.refs) == ["main"]
    assert told["expire_snapshots"]["details"]["deleted_files"] > 10


def test_the_server_refuses_a_commit_whose_tag_was_turned_and_takes_the_holders(lake: CatalogSettings) -> None:
    table = make_table(lake, 2)
    catalog = opened(lake)
    committing.turn_fence(catalog, table, "paddock-fence-one")
    zombie = now(lake)
    committing.turn_fence(catalog, now(lake), "paddock-fence-two")
    gone = [zombie.metadata.snapshots[0].snapshot_id]
    with pytest.raises(committing.Conflict):
        committing.commit_expire(catalog, zombie, "paddock-fence-one", gone)
    # What somebody appends meanwhile does not matter to the tag.
    now(lake).append(some_rows(500))
    committing.commit_expire(catalog, now(lake), "paddock-fence-two", gone)
    assert gone[0] not in {snapshot.snapshot_id for snapshot in now(lake).metadata.snapshots}


def test_a_tag_that_somebody_sets_between_load_and_commit_is_put_back(lake: CatalogSettings) -> None:
    table = make_table(lake, 1)
    for number in range(6):
        table.overwrite(some_rows(10 * number))
    table = now(lake)
    oldest = table.metadata.snapshots[1]

    def tag(state: JsonObject) -> None:
        if (state["step"] or {}).get("expire") and link.saves == 1:
            now(lake).manage_snapshots().create_tag(oldest.snapshot_id, "audit").commit()

    link = Link(on_save=tag)
    told = outcomes(maintain(lake, table, ["expire_snapshots"], link, **NOW))["expire_snapshots"]

    assert told["alarms"] == ["ref_lost"]
    after = all_is_reachable(lake)
    assert after.metadata.refs["audit"].snapshot_id == oldest.snapshot_id
    after.append(some_rows(900))


@pytest.mark.parametrize("landed", [True, False])
@pytest.mark.parametrize("action", ["rewrite_data_files", "rewrite_manifests", "expire_snapshots"])
def test_after_a_lost_answer_the_next_attempt_looks_whether_the_commit_was_done(
    lake: CatalogSettings, monkeypatch: pytest.MonkeyPatch, action: str, landed: bool
) -> None:
    table = make_table(lake, 6)
    rows, job, link = rows_of(table), uuid.uuid4(), Link()
    catalog = type(opened(lake))
    commit, count = catalog.commit_table, 0

    def lose_the_second(self: Any, *arguments: Any) -> Any:
        nonlocal count
        count += 1
        if count != 2:
            return commit(self, *arguments)
        if landed:
            commit(self, *arguments)
        raise CommitStateUnknownException("The answer was lost.")

    monkeypatch.setattr(catalog, "commit_table", lose_the_second)
    with pytest.raises(TransientResourceError) as lost:
        running.maintain(turn_for(table, [action], link, job=job, **NOW), lake)
    assert lost.value.code == "commit_unknown"
    monkeypatch.undo()

    told = outcomes(running.maintain(turn_for(table, [action], Link(link.saved), job=job, **NOW), lake))[action]

    assert told["outcome"] == "success"
    after = all_is_reachable(lake)
    assert rows_of(after) == rows
    assert list(after.metadata.refs) == ["main"]
    ours = [each for each in after.metadata.snapshots if each.summary and each.summary["paddock.job-id"] == str(job)]
    assert len(ours) == (0 if action == "expire_snapshots" else 1)


def test_a_check_says_what_works_and_what_does_not(lake: CatalogSettings, monkeypatch: pytest.MonkeyPatch) -> None:
    make_table(lake, 1)
    assert [(each["what"], each["ok"]) for each in findings(NAME.catalog, lake, tag=True)] == [
        ("load", True),
        ("list", True),
        ("table", True),
        ("tag", True),
        ("store", True),
    ]
    assert list(now(lake).metadata.refs) == ["main"]
    monkeypatch.setenv(rest.CREDENTIAL, "test:wrongsecret")
    [problem] = findings(NAME.catalog, lake)
    assert (problem["what"], problem["ok"]) == ("load", False)
    assert "wrongsecret" not in problem["message"]
    monkeypatch.setenv(rest.CREDENTIAL, rest.ENVIRONMENT[rest.CREDENTIAL])
