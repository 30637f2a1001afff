"""What is read from the table after another engine worked on it: who made each snapshot, and whether rows went missing."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from pyiceberg.manifest import ManifestFile
from pyiceberg.table import Table
from pyiceberg.table.snapshots import SnapshotSummaryCollector

from paddock.engines.rewriting import Ended, Started, TableStatement, Tell
from paddock.jobs.errors import PermanentRunnerError, TransientResourceError
from paddock.jobs.model import JsonObject
from paddock.jobs.outcomes import Done
from paddock.maintenance.catalog_settings import CatalogSettings
from paddock.maintenance.iceberg import committing, running
from tests.maintenance.lake import Link, make_table, opened, some_rows, turn_for

OLD: dict[str, Any] = {"confirm": True, "options": {"max_snapshot_age_hours": 0}}


class PlayedEngine:
    """Does to the table what a test wants an engine to have done: none that runs here loses rows."""

    name = "cluster"
    type = "spark"

    def __init__(self, work: Callable[[], None]) -> None:
        self.work = work

    def run(self, statement: TableStatement, limit: timedelta, started: Started, tell: Tell) -> None:
        started({"query_id": "q1"})
        self.work()

    def rows(self, sql: str) -> list[list[object]]:
        return []

    def end(self, identity: JsonObject) -> Ended | None:
        return "closed"

    def close(self) -> None: ...


def by_engine(lake: CatalogSettings) -> CatalogSettings:
    return lake.model_copy(update={"rewrites": "cluster", "engine_catalog": "lake"}).with_engine("spark")


def now(lake: CatalogSettings) -> Table:
    return opened(lake).load_table("sales.orders")


def replace(lake: CatalogSettings, **summary: str) -> int:
    """A rewrite of the same files whose summary says this."""
    table = now(lake)
    main, id = table.current_snapshot(), table.metadata.new_snapshot_id()
    assert main is not None
    manifests: list[ManifestFile] = main.manifests(table.io)
    properties = {name.replace("_", "-") if name != "trino_query_id" else name: text for name, text in summary.items()}
    new = committing.NewSnapshot(id, manifests, SnapshotSummaryCollector(), properties, f"engine-{id}")
    committing.commit_replace(opened(lake), table, None, new)
    return id


def run(lake: CatalogSettings, work: Callable[[], None], link: Link | None = None) -> Any:
    turn = turn_for(now(lake), ["rewrite_data_files", "expire_snapshots"], link or Link(), **OLD)
    return running.maintain(turn, by_engine(lake), PlayedEngine(work))


def test_rows_that_differ_stop_everything_and_keep_the_snapshot_before(lake: CatalogSettings) -> None:
    before = make_table(lake, 3).metadata.current_snapshot_id
    link = Link()

    with pytest.raises(PermanentRunnerError) as failed:
        run(lake, lambda: (replace(lake, added_records="29", deleted_records="30"), None)[1], link)

    assert failed.value.code == "rows_differ"
    rewritten, expired = link.saved["outcomes"]
    assert rewritten["alarms"] == ["rows_differ"]
    assert (expired["outcome"], expired["message"]) == ("skipped", "Not begun, because rewrite_data_files failed.")
    [kept] = [name for name in now(lake).metadata.refs if name != "main"]
    assert kept.startswith("paddock-keep-")
    assert now(lake).metadata.refs[kept].snapshot_id == before


def test_as_many_rows_as_before_are_well(lake: CatalogSettings) -> None:
    make_table(lake, 3)
    done = run(lake, lambda: (replace(lake, added_records="30", deleted_records="30"), None)[1])
    assert isinstance(done, Done)
    assert list(now(lake).metadata.refs) == ["main"]


@pytest.mark.parametrize(
    ("rewrites", "append", "made_by"),
    [
        ([{}], False, ["ours"]),  # the only one while we ran
        ([{"trino_query_id": "q1"}], True, ["foreign", "ours"]),
        ([{"trino_query_id": "q2"}], False, ["foreign"]),
        ([{}], True, ["foreign", "unknown"]),
        ([{"trino_query_id": "q2"}, {}], False, ["foreign", "unknown"]),
    ],
)
def test_each_snapshot_since_has_its_maker(
    lake: CatalogSettings, rewrites: list[dict[str, str]], append: bool, made_by: list[str]
) -> None:
    make_table(lake, 3)

    def work() -> None:
        if append:
            now(lake).append(some_rows(900))
        for summary in rewrites:
            replace(lake, **summary)

    done = run(lake, work)

    assert isinstance(done, Done)
    since = done.result["outcomes"][0]["details"]["since"]
    assert [each["made_by"] for each in since] == made_by


def test_after_a_rollback_nobody_can_tell(lake: CatalogSettings) -> None:
    table = make_table(lake, 3)
    first = table.metadata.snapshots[0].snapshot_id

    def work() -> None:
        now(lake).manage_snapshots().set_current_snapshot(first).commit()
        replace(lake)

    since = run(lake, work).result["outcomes"][0]["details"]["since"]
    assert {each["made_by"] for each in since} == {"unknown"}


def test_where_nobody_knows_whether_the_engine_is_done_nothing_else_begins(
    lake: CatalogSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The failure was ours, and the engine does not answer the question."""
    make_table(lake, 3)
    link = Link()

    def work() -> None:
        raise PermanentRunnerError("Trino answered with an address that is not its own.", code="engine_foreign_address")

    def end(self: PlayedEngine, identity: JsonObject) -> Ended | None:
        raise TransientResourceError("Nobody answers.", code="engine_unavailable")

    monkeypatch.setattr(PlayedEngine, "end", end)
    with pytest.raises(PermanentRunnerError):
        run(lake, work, link)

    assert [each["outcome"] for each in link.saved["outcomes"]] == ["failed", "skipped"]
    assert link.saved["remote"]["identity"] == {"query_id": "q1"}
