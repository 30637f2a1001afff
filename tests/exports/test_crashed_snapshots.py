"""A snapshot is ready once, and whole, whenever its jobs, or whoever ends its group, die."""

import pyarrow as pa
import pytest

from paddock.db.pool import Transaction
from paddock.exports import mappings, snapshot_states, snapshots
from paddock.exports.mapping import Definition
from paddock.exports.mappings import NewMapping
from paddock.exports.snapshot_states import Snapshot, SnapshotPart
from paddock.exports.snapshots import NewSnapshot
from paddock.jobs.errors import Refused
from paddock.jobs.model import Group
from paddock.storage.store import open_store
from tests.exports.crash_scene import Scene, read_files

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

MAPPING = {
    "nodes": [
        {
            "label": "Person",
            "sql": "SELECT id, name FROM 'rows.parquet' ORDER BY id",
            "primary_key": {"name": "id", "type": "INT64"},
            "properties": [{"name": "name", "type": "STRING"}],
        },
        {
            "label": "Few",
            "sql": "SELECT id FROM 'rows.parquet' WHERE id < 7 ORDER BY id",
            "primary_key": {"name": "id", "type": "INT64"},
        },
    ],
    "edges": [
        {
            "type": "KNOWS",
            "from_node": "Person",
            "to_node": "Few",
            "sql": "SELECT id, id % 7, amount FROM 'rows.parquet' ORDER BY id",
            "from_key": "person",
            "to_key": "few",
            "properties": [{"name": "amount", "type": "DECIMAL(12,2)"}],
        }
    ],
}


async def test_a_snapshot_whose_last_job_is_killed_before_its_finish(
    scene: Scene, expected: pa.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended: list[Group] = []
    group_ended = snapshots.group_ended

    async def counted(tx: Transaction, group: Group) -> None:
        ended.append(group)
        if len(ended) == 1:
            raise ConnectionError("The control plane died here.")
        await group_ended(tx, group)

    monkeypatch.setattr(snapshots, "group_ended", counted)
    scene.plan("kill returned 3")
    core = scene.core
    definition = Definition.model_validate(MAPPING)
    mapping = await mappings.create(core, NewMapping(owner="ada", name="m", definition=definition), actor="ada")
    new = NewSnapshot(owner="ada", mapping_id=mapping.id, engine="local", role=None)

    async def parts() -> dict[str, SnapshotPart]:
        return {part.name: part for part in await snapshot_states.parts(core.db, made)}

    async def look(status: str) -> Snapshot:
        found = await snapshot_states.get(core.db, made.id)
        assert found is not None
        assert found.status == status
        if status != "ready":
            with pytest.raises(Refused, match="only a ready one"):
                await snapshot_states.manifest(core.db, found)
        return found

    # One after another: the edges are last.
    async with scene.working(concurrency=1):
        made = await snapshots.create(core, new, actor="ada")
        last = (await parts())["KNOWS"].job_id
        await scene.crashed(last, 1)
        assert {part.name: part.status for part in (await parts()).values()} == {
            "Person": "completed",
            "Few": "completed",
            "KNOWS": "pending",
        }
        assert (await parts())["KNOWS"].manifest is None
        await look("creating")
        assert ended == []
        await scene.run_now(last)
        assert (await scene.ended(last)).status == "completed"

    # All jobs are done, but what their group's end makes of it is not.
    await look("creating")
    assert await core.finish_group_hooks() == 1
    ready = await look("ready")
    assert await core.finish_group_hooks() == 0
    assert len(ended) == 2
    assert (ready.node_counts, ready.edge_counts) == (
        {"Person": expected.num_rows, "Few": 7},
        {"KNOWS": expected.num_rows},
    )

    manifest = await snapshot_states.manifest(core.db, ready, open_store(scene.config.object_store))
    objects = scene.folder / "data" / "objects"
    found = {
        part["name"]: read_files(
            objects, [(file["key"], file["rows"], file["bytes"], file["sha256"]) for file in part["files"]]
        )
        for part in manifest["parts"]
    }
    assert found["Person"].equals(expected.select(["id", "name"]))
    assert found["Few"].column("id").to_pylist() == list(range(7))
    assert found["KNOWS"].column("person").equals(expected.column("id"))
    assert found["KNOWS"].column("few").to_pylist() == [id % 7 for id in range(expected.num_rows)]
    assert found["KNOWS"].column("amount").equals(expected.column("amount"))
    named = {file["key"] for part in manifest["parts"] for file in part["files"]}
    named |= {part["manifest"] for part in manifest["parts"]}
    assert ready.size_bytes == sum(file["bytes"] for part in manifest["parts"] for file in part["files"])
    assert scene.managed() > named
    await scene.collect()
    assert scene.managed() == named
