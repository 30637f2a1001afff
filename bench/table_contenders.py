"""`python -m bench.table_contenders WHAT FOLDER [NUMBER]`: one way of doing one thing to the table of a lake in FOLDER, in a process of
its own, which prints what it took as one line of JSON: CPU seconds, and memory over what it had before."""

from __future__ import annotations

import json
import resource
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.table import Table

from paddock.jobs.model import AttemptId, JobId, JsonObject
from paddock.jobs.turn import Turn
from paddock.maintenance.catalog_settings import CatalogSettings
from paddock.maintenance.iceberg import looking, orphans, running
from paddock.maintenance.iceberg.deleting import Spool
from paddock.maintenance.iceberg.reaching import Reach
from paddock.maintenance.iceberg.store import Listed, open_table_store
from paddock.maintenance.iceberg.working import Work
from paddock.maintenance.model import MaintenancePayload, TableName
from paddock.maintenance.policy import policy_of

NAME = TableName(catalog="lake", namespace=("bench",), name="rows")
IDENTIFIER = "bench.rows"


def settings_of(folder: Path) -> CatalogSettings:
    properties = {"uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"file://{folder}/warehouse"}
    return CatalogSettings(type="sql", properties=properties)


def opened(folder: Path) -> Catalog:
    return load_catalog("lake", **settings_of(folder).all_properties("lake"))


class NoLink:
    """Saves are made and kept by nobody."""

    async def save(self, state: JsonObject, *, progress: bool) -> None: ...

    def save_blocking(self, state: JsonObject, *, progress: bool) -> None: ...

    def report(self, progress: JsonObject) -> None: ...

    def log(self, level: str, message: str, fields: Mapping[str, Any]) -> None: ...


def turn_for(table: Table, action: str, **options: Any) -> Turn[MaintenancePayload]:
    payload = {"table": NAME, "uuid": str(table.metadata.table_uuid), "actions": [action], "options": options}
    return Turn(
        id=JobId(uuid.uuid4()),
        attempt_id=AttemptId(uuid.uuid4()),
        kind="maintenance:lake",
        payload=MaintenancePayload.model_validate({**payload, "confirm": True}),
        saved=None,
        owner="bench",
        link=NoLink(),
    )


def rewrite_ours(folder: Path, target: int) -> None:
    options = {"target_file_size_bytes": target, "min_input_files": 2} if target else {}
    running.maintain(
        turn_for(opened(folder).load_table(IDENTIFIER), "rewrite_data_files", **options), settings_of(folder)
    )


def rewrite_by_overwriting(folder: Path, _: int) -> None:
    table = opened(folder).load_table(IDENTIFIER)
    table.overwrite(table.scan().to_arrow())


def expire_ours(folder: Path, _: int) -> None:
    turn = turn_for(opened(folder).load_table(IDENTIFIER), "expire_snapshots", max_snapshot_age_hours=0)
    running.maintain(turn, settings_of(folder))


def expire_by_ids(folder: Path, _: int) -> None:
    """As PyIceberg has it, which leaves the files: those are found by what was reachable before and is not after."""
    table = opened(folder).load_table(IDENTIFIER)
    before = _reached(table)
    kept = {ref.snapshot_id for ref in table.metadata.refs.values()}
    table.maintenance.expire_snapshots().by_ids(
        [each.snapshot_id for each in table.metadata.snapshots if each.snapshot_id not in kept]
    ).commit()
    after = opened(folder).load_table(IDENTIFIER)
    for location in before - _reached(after):
        after.io.delete(location)


def _reached(table: Table) -> set[str]:
    found: set[str] = set()
    for snapshot in table.metadata.snapshots:
        found.add(snapshot.manifest_list)
        for manifest in snapshot.manifests(table.io):
            found.add(manifest.manifest_path)
            found |= {entry.data_file.file_path for entry in manifest.fetch_manifest_entry(table.io)}
    return found


def look_ours(folder: Path, _: int) -> None:
    table = opened(folder).load_table(IDENTIFIER)
    looking.figures_of(table, policy_of({}, settings_of(folder).policy), deep=True)


def look_by_inspecting(folder: Path, _: int) -> None:
    files = opened(folder).load_table(IDENTIFIER).inspect.files()
    assert files.num_rows, "it was read"


def scan(folder: Path, _: int) -> None:
    opened(folder).load_table(IDENTIFIER).scan().to_arrow()


def plan(folder: Path, _: int) -> None:
    list(opened(folder).load_table(IDENTIFIER).scan().plan_files())


def orphan_plan(folder: Path, number: int) -> None:
    """So many files listed, so many reachable: the two lists are made up as they are read."""
    table = opened(folder).load_table(IDENTIFIER)
    settings = settings_of(folder)
    real = open_table_store(table.io.properties, table.metadata.location)
    then = datetime(2020, 1, 1, tzinfo=UTC)

    class Listing:
        def modified(self, location: str) -> datetime:
            return real.modified(location)

        def list(self, location: str) -> Iterator[Listed]:
            for at in range(number):
                yield Listed(f"{table.metadata.location}/data/{at:032x}.parquet", 1, then)

        def can_delete(self, location: str) -> bool:
            return True

        def delete(self, locations: Sequence[str]) -> None:
            raise AssertionError("a plan deletes nothing")

    reach = Reach()
    for at in range(number):
        reach.files.add(f"{table.metadata.location}/data/{at:032x}.parquet")
    work = Work(turn_for(table, "remove_orphan_files"), settings, opened(folder))
    with Spool() as spool:
        found = orphans.find(work, table, Listing(), reach, spool)
        assert (found.files, spool.files) == (number, 0)


WAYS: Mapping[str, Callable[[Path, int], None]] = {
    each.__name__: each
    for each in (
        rewrite_ours,
        rewrite_by_overwriting,
        expire_ours,
        expire_by_ids,
        look_ours,
        look_by_inspecting,
        scan,
        plan,
        orphan_plan,
    )
}


def peak() -> float:
    """MiB, of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    what, folder, number = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]) if len(sys.argv) > 3 else 0
    opened(folder).load_table(IDENTIFIER)  # what every one of them needs is loaded before
    idle, began = peak(), time.process_time()
    WAYS[what](folder, number)
    print(json.dumps({"cpu": time.process_time() - began, "memory": peak() - idle}))


if __name__ == "__main__":
    main()
