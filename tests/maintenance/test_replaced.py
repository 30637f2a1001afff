"""A table that is dropped, or dropped and made again under its name, while a job is at work on it: the job says so, and nothing of
the new table is touched."""

import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException, NoSuchTableError

from paddock.jobs.errors import PermanentRunnerError
from paddock.jobs.outcomes import Done
from paddock.maintenance.catalog_settings import CatalogSettings
from paddock.maintenance.iceberg import running
from tests.maintenance.lake import files_below, make_table, opened, rows_of, some_rows, turn_for
from tests.maintenance.points import Killed, PointLink, Points, all_is_reachable, counted, put_back, uncounted
from tests.maintenance.points import points as points

pytestmark = pytest.mark.usefixtures("points")
OLD: dict[str, Any] = {
    "confirm": True,
    "options": {"max_snapshot_age_hours": 0, "min_input_files": 2, "older_than_hours": 0},
}


class Meanwhile(Points):
    """Somebody else does something at one of the points."""

    def __init__(self, at: str, do: Callable[[], None]) -> None:
        super().__init__()
        self.place = at
        self.do = do

    def point(self, name: str) -> None:
        super().point(name)
        if self.passed[-1] == self.place:
            with uncounted():
                self.do()


def replace(lake: CatalogSettings) -> None:
    """By one at the same location, as catalogs make it."""
    opened(lake).drop_table("sales.orders")
    make_table(lake, 0).append(some_rows(500))


@pytest.mark.parametrize(
    "actions", [["rewrite_data_files", "expire_snapshots"], ["rewrite_manifests", "remove_orphan_files"]], ids=" ".join
)
def test_a_table_that_is_made_anew_is_not_touched_wherever_the_job_is(
    lake: CatalogSettings, tmp_path: Path, actions: list[str]
) -> None:
    table = make_table(lake, 5)
    (tmp_path / "warehouse" / "sales" / "orders" / "data" / "left-behind.parquet").touch()

    def meanwhile() -> None:
        replace(lake)
        files.update(files_below(tmp_path / "warehouse"))

    places = points_of(lake, tmp_path, table, actions)
    assert "before delete 1" in places
    for place in places:
        files: set[str] = set()
        with put_back(tmp_path):
            assert end_of(lake, table, actions, place, meanwhile) == "table_replaced", place

            after = all_is_reachable(lake)
            assert [row["id"] for row in rows_of(after)] == list(range(500, 510)), place
            assert list(after.metadata.refs) == ["main"], place
            metadata = {path for path in files_below(tmp_path / "warehouse") if path.endswith(".json")}
            assert metadata <= files, f"{place}: somebody committed to the new table"


@pytest.mark.parametrize("refusal", [CommitFailedException, NoSuchTableError])
def test_a_table_that_is_dropped_before_a_commit_is_told_as_gone(
    lake: CatalogSettings, tmp_path: Path, refusal: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A REST catalog refuses with another error than one in SQL."""
    table, actions = make_table(lake, 3), ["rewrite_data_files"]
    commit_table = SqlCatalog.commit_table

    def refused(self: SqlCatalog, *arguments: Any) -> Any:
        try:
            return commit_table(self, *arguments)
        except CommitFailedException as said:
            raise refusal(str(said)) from None

    monkeypatch.setattr(SqlCatalog, "commit_table", refused)
    places = [place for place in points_of(lake, tmp_path, table, actions) if place.startswith("before commit")]
    assert len(places) == 3
    for place in places:
        with put_back(tmp_path):
            gone = end_of(lake, table, actions, place, lambda: opened(lake).drop_table("sales.orders"))
            assert gone == "unknown_table", place


def test_a_cleanup_ends_though_its_table_is_made_anew_meanwhile(lake: CatalogSettings, tmp_path: Path) -> None:
    table, job, killed = make_table(lake, 4), uuid.uuid4(), PointLink()
    with counted(Points("before delete 1")), pytest.raises(Killed):
        running.maintain(turn_for(table, ["expire_snapshots"], killed, job=job, **OLD), lake)

    def clean_up(points: Points) -> Any:
        turn = turn_for(table, ["expire_snapshots"], PointLink(killed.saved), job=job, cleanup=True)
        with counted(points):
            return running.clean_up(turn, lake)

    with put_back(tmp_path):
        clean_up(whole := Points())
    for place in (name for name in whole.passed if name.startswith("before")):
        with put_back(tmp_path):
            done = clean_up(Meanwhile(place, lambda: replace(lake)))
            assert isinstance(done, Done), place
            assert "dropped and created again" in done.result["note"], place
            assert list(opened(lake).load_table("sales.orders").metadata.refs) == ["main"], place


def points_of(lake: CatalogSettings, folder: Path, table: Any, actions: list[str]) -> list[str]:
    """Those before a job saves, commits or deletes something."""
    with put_back(folder), counted(Points()) as whole:
        running.maintain(turn_for(table, actions, PointLink(), **OLD), lake)
    return [name for name in whole.passed if name.startswith("before")]


def end_of(
    lake: CatalogSettings, table: Any, actions: list[str], place: str, meanwhile: Callable[[], None]
) -> str | None:
    """How a job ends for which that happened, once its cleanup has ended too."""
    job, link, code = uuid.uuid4(), PointLink(), None
    with counted(Meanwhile(place, meanwhile)):
        try:
            running.maintain(turn_for(table, actions, link, job=job, **OLD), lake)
        except PermanentRunnerError as ended:
            code = ended.code
    cleaned = running.clean_up(turn_for(table, actions, PointLink(link.saved), job=job, cleanup=True), lake)
    assert isinstance(cleaned, Done), place
    return code
