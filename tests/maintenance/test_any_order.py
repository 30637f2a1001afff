"""Writers, taggers and maintenance that dies anywhere, in any order: after every step rows are as the model says, every ref reads as
it did, no file that can be reached is missing, and no tag of ours is left after the last end. A job whose table was made anew says
so and commits nothing more.

The long run tries hundreds of schedules, or as many as `TABLE_SCHEDULES` says; a seed replays: `TABLE_SEED=7`."""

import os
import random
import uuid
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import Table

from paddock.jobs.errors import PermanentRunnerError, TransientResourceError
from paddock.jobs.model import JsonObject
from paddock.maintenance.catalog_settings import CatalogSettings
from paddock.maintenance.iceberg import running
from paddock.maintenance.iceberg.store import Bucket
from tests.examples import LONG
from tests.maintenance import rest
from tests.maintenance.lake import make_table, opened, rows_of, settings_of, some_rows, turn_for
from tests.maintenance.points import Killed, PointLink, Points, all_is_reachable, counted, uncounted
from tests.maintenance.points import points as points

pytestmark = [pytest.mark.examples, pytest.mark.usefixtures("points")]
SEEDS = (
    [int(os.environ["TABLE_SEED"])]
    if "TABLE_SEED" in os.environ
    else range(int(os.environ.get("TABLE_SCHEDULES", "300" if LONG else "3")))
)
STEPS = 8
ACTIONS = ["rewrite_data_files", "rewrite_manifests", "expire_snapshots", "remove_orphan_files"]


class Model:
    """What others did to the table, and so what must be there."""

    def __init__(self, lake: CatalogSettings, seed: int) -> None:
        self.lake = lake
        self.chance = random.Random(seed)
        make_table(lake, 3)
        self.main = set(range(30))
        self.refs: dict[str, set[int]] = {}
        self.next = 30
        self.steps: list[str] = []
        # Tables that had the name before, and the metadata file that the last change by others made.
        self.replaced = 0
        self.written = ""

    def table(self) -> Table:
        return opened(self.lake).load_table("sales.orders")

    def write(self) -> None:
        often = [self.append, self.append, self.append, self.overwrite, self.delete, self.tag, self.untag]
        change = self.chance.choice([*often, self.roll_back, self.make_anew])
        self.steps.append(change.__name__)
        change()
        self.written = self.table().metadata_location

    def append(self) -> None:
        self.table().append(some_rows(self.next))
        self.main |= set(range(self.next, self.next + 10))
        self.next += 10

    def overwrite(self) -> None:
        if not self.main:  # PyIceberg warns where it finds nothing to take away
            self.append()
            return
        self.table().overwrite(some_rows(self.next))
        self.main = set(range(self.next, self.next + 10))
        self.next += 10

    def delete(self) -> None:
        if self.main:
            gone = self.chance.choice(sorted(self.main))
            self.table().delete(f"id = {gone}")
            self.main.discard(gone)

    def tag(self) -> None:
        table = self.table()
        snapshot = self.chance.choice(table.metadata.snapshots)
        held = set(table.scan(snapshot_id=snapshot.snapshot_id).to_arrow()["id"].to_pylist())
        name = f"tag{len(self.refs)}-{self.next}-{len(self.steps)}"
        make = table.manage_snapshots()
        make = (
            make.create_branch(snapshot.snapshot_id, name)
            if self.chance.random() < 0.3
            else make.create_tag(snapshot.snapshot_id, name)
        )
        make.commit()
        self.refs[name] = held

    def untag(self) -> None:
        if self.refs:
            name = self.chance.choice(sorted(self.refs))
            table = self.table()
            is_branch = table.metadata.refs[name].snapshot_ref_type.value == "branch"
            change = table.manage_snapshots()
            (change.remove_branch(name) if is_branch else change.remove_tag(name)).commit()
            del self.refs[name]

    def roll_back(self) -> None:
        table = self.table()
        main = table.current_snapshot()
        parent = None if main is None else table.metadata.snapshot_by_id(main.parent_snapshot_id or -1)
        if parent is not None:
            self.main = set(table.scan(snapshot_id=parent.snapshot_id).to_arrow()["id"].to_pylist())
            table.manage_snapshots().rollback_to_snapshot(parent.snapshot_id).commit()

    def make_anew(self) -> None:
        """Drop and create: another table under the same name, at the same location where the catalog has it so."""
        opened(self.lake).drop_table("sales.orders")
        make_table(self.lake, 0).append(some_rows(self.next))
        self.main, self.refs = set(range(self.next, self.next + 10)), {}
        self.next += 10
        self.replaced += 1

    def maintain(self) -> None:
        """A job whose attempts die, or see a write at a save, until one of them ends it or it is cancelled."""
        actions = self.chance.sample(ACTIONS, self.chance.randint(1, 4))
        job, table, replaced = uuid.uuid4(), self.table(), self.replaced
        saved: JsonObject = {}
        self.steps.append(f"maintain {actions}")
        if self.chance.random() < 0.3:  # while it waits
            self.write()
        for left in reversed(range(4)):
            link = PointLink(saved, on_save=self.meddle if self.chance.random() < 0.5 else None)
            at = self.chance.randint(0, 30) if left else None
            try:
                with counted(Points(at)):
                    running.maintain(turn_for(table, actions, link, job=job, **OLD), self.lake)
                assert self.replaced == replaced, self.told
                return
            except PermanentRunnerError as problem:
                if problem.code != "table_replaced" or self.replaced == replaced:
                    problem.add_note(self.told)
                    raise
                self.steps.append(problem.code)
                saved = link.saved
                break
            except Killed:
                self.steps.append(f"killed at {at}")
            except TransientResourceError as problem:
                self.steps.append(problem.code)
            saved = link.saved
            if self.chance.random() < 0.2:
                self.steps.append("cancelled")
                break
        running.clean_up(turn_for(table, actions, PointLink(saved), job=job, cleanup=True), self.lake)
        if self.replaced > replaced:
            assert self.table().metadata_location == self.written, self.told

    def meddle(self, state: JsonObject) -> None:
        if self.chance.random() < 0.3:
            with uncounted():
                self.write()

    def check(self) -> None:
        table = all_is_reachable(self.lake)
        assert {row["id"] for row in rows_of(table)} == self.main, self.told
        found = set(table.metadata.refs) - {"main"}
        assert found == set(self.refs), self.told
        for name, ids in self.refs.items():
            held = table.scan(snapshot_id=table.metadata.refs[name].snapshot_id).to_arrow()["id"].to_pylist()
            assert set(held) == ids, self.told

    @property
    def told(self) -> str:
        return " -> ".join(self.steps)


OLD: dict[str, Any] = {
    "confirm": True,
    "options": {"max_snapshot_age_hours": 0, "min_input_files": 2, "older_than_hours": 0},
}


@pytest.mark.parametrize("seed", SEEDS)
def test_nothing_is_lost_in_any_order(tmp_path: Path, seed: int) -> None:
    play(Model(settings_of(tmp_path), seed))


def play(model: Model) -> None:
    for _ in range(STEPS):
        try:
            (model.maintain if model.chance.random() < 0.4 else model.write)()
        except CommitFailedException:
            pytest.fail(f"a writer was refused: {model.steps}")
        model.check()


@pytest.fixture(scope="module")
def server() -> Iterator[rest.RestLake]:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in rest.ENVIRONMENT.items():
            patch.setenv(name, value)
        with rest.rest_lake() as running:
            yield running


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS[:2])
def test_nothing_is_lost_on_a_rest_catalog_and_s3(
    server: rest.RestLake, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # S3 tells whole seconds, so what a test has just written would be younger than the metadata that came after it.
    modified = Bucket.modified
    monkeypatch.setattr(Bucket, "modified", lambda self, location: modified(self, location) + timedelta(seconds=1))
    try:
        play(Model(server.settings, seed))
    finally:
        opened(server.settings).drop_table("sales.orders")
