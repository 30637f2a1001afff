"""An attempt that dies anywhere: the next one ends the job, and every row, every ref and every file that can be reached is there."""

import uuid
from pathlib import Path
from typing import Any

import pytest

from paddock.jobs.outcomes import Done
from paddock.maintenance.catalog_settings import CatalogSettings
from paddock.maintenance.iceberg import running
from tests.maintenance.lake import make_table, rows_of, turn_for
from tests.maintenance.points import Killed, PointLink, Points, all_is_reachable, counted, put_back
from tests.maintenance.points import points as points

pytestmark = pytest.mark.usefixtures("points")
OLD: dict[str, Any] = {"confirm": True, "options": {"max_snapshot_age_hours": 0, "min_input_files": 2}}


def attempt(settings: CatalogSettings, table: Any, actions: list[str], link: PointLink, job: uuid.UUID) -> Any:
    return running.maintain(turn_for(table, actions, link, job=job, **OLD), settings)


@pytest.mark.parametrize(
    ("actions", "first"),
    [(["rewrite_data_files", "rewrite_manifests"], 2), (["expire_snapshots"], 6)],
    ids=["rewrites", "expiry"],
)
def test_the_next_attempt_ends_what_one_that_died_anywhere_began(
    lake: CatalogSettings, tmp_path: Path, actions: list[str], first: int
) -> None:
    folder = tmp_path
    table = make_table(lake, first + 2)
    table.manage_snapshots().create_tag(table.metadata.snapshots[1].snapshot_id, "audit").commit()
    rows = rows_of(table)
    with put_back(folder), counted(Points()) as whole:
        attempt(lake, table, actions, PointLink(), uuid.uuid4())
    assert len(whole.passed) > 10

    for at, name in enumerate(whole.passed):
        job = uuid.uuid4()
        with put_back(folder):
            link = PointLink()
            with counted(Points(at)), pytest.raises(Killed):
                attempt(lake, table, actions, link, job)
            done = attempt(lake, table, actions, PointLink(link.saved), job)

            after = all_is_reachable(lake)
            assert rows_of(after) == rows, name
            assert set(after.metadata.refs) == {"main", "audit"}, name
            assert isinstance(done, Done)
            assert [each["outcome"] for each in done.result["outcomes"]] == ["success"] * len(actions), name
            made = [each for each in after.metadata.snapshots if each.summary and each.summary["paddock.job-id"]]
            assert len(made) == (len(actions) if first == 2 else 0), name


def test_a_cleanup_after_an_attempt_that_died_anywhere_takes_the_tag_and_tells_what_landed(
    lake: CatalogSettings, tmp_path: Path
) -> None:
    table = make_table(lake, 4)
    rows = rows_of(table)
    with put_back(tmp_path), counted(Points()) as whole:
        attempt(lake, table, ["rewrite_data_files"], PointLink(), uuid.uuid4())

    for at, name in enumerate(whole.passed):
        job, link = uuid.uuid4(), PointLink()
        with put_back(tmp_path):
            with counted(Points(at)), pytest.raises(Killed):
                attempt(lake, table, ["rewrite_data_files"], link, job)
            done = running.clean_up(
                turn_for(table, ["rewrite_data_files"], PointLink(link.saved), job=job, cleanup=True), lake
            )

            after = all_is_reachable(lake)
            assert rows_of(after) == rows
            assert list(after.metadata.refs) == ["main"], name
            assert isinstance(done, Done)
            landed = [
                each.snapshot_id for each in after.metadata.snapshots if each.summary and each.summary["paddock.job-id"]
            ]
            assert [each["snapshot_id"] for each in done.result["snapshots"]] == landed
