"""No point at which an export dies loses, doubles or half shows anything. The processes are real, and so is SIGKILL.

Each test kills several runners in a row: whatever one of them left, the next begins with it.
"""

import random
import signal
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from paddock.exports.plain import Export
from paddock.jobs import rescuing
from paddock.jobs.model import JobId
from tests.conftest import DatabaseClock
from tests.exports.any_table import array_of, by_duckdb, duckdb_types, maybe, same
from tests.exports.crash_scene import BACKWARDS, Scene, kills, scene_in, until
from tests.storage.servers import Server

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.mark.parametrize(
    "points",
    [
        ("claimed", "draft_saved", "started", "opened"),
        ("written", "uploading", "uploaded", "written 2"),
        ("streamed", "sealing", "creating_manifest", "sealed", "returned"),
    ],
    ids="-".join,
)
async def test_an_export_killed(points: Sequence[str], scene: Scene, expected: pa.Table) -> None:
    scene.plan(*kills(points))
    drafts = []
    async with scene.working():
        export = await scene.export()
        for number, _ in enumerate(points, 1):
            dead = await scene.crashed(export.job_id, number)
            drafts.append((dead.saved or {}).get("draft"))
            await scene.sees_nothing(export)
            await scene.run_now(export.job_id)
        done = await scene.completed(export)
        assert scene.scratch() == set()

    assert scene.planned() == 0
    job = await scene.job(export.job_id)
    assert job.turn_count == len(points) + 1
    assert len({*drafts, job.result["draft"]}) == len(points) + 1
    assert (await scene.rows(done)).equals(expected)
    assert (done.rows, done.files) == (expected.num_rows, 4)
    await scene.collect()
    assert scene.managed() == await scene.named(done)


async def test_an_export_that_kills_every_runner_ends(scene: Scene) -> None:
    """What each try saves before it dies is no progress, and forgives nothing."""
    points = ["draft_saved", "started", "opened", "written", "uploaded", "written"]
    scene.plan(*kills(points))
    async with scene.working():
        export = await scene.export()
        for number in range(1, len(points)):
            assert (await scene.crashed(export.job_id, number)).failure_count == number
            await scene.run_now(export.job_id)
        job = await scene.ended(export.job_id)
        assert (await scene.cleaned(export)).status == "completed"

    assert (job.status, job.error_code, job.turn_count) == ("failed", "attempts_exhausted", len(points))
    await scene.sees_nothing(export)
    await scene.collect()
    assert scene.managed() == set()


async def roll_forward(scene: Scene, points: Sequence[str], *, if_exists: str, before: pa.Table | None) -> Export:
    """An export to a destination whose runner is killed at each of the points in turn."""
    scene.plan(*kills(points))
    export = await scene.export(to="daily", if_exists=if_exists)
    drafts = set()
    for number, point in enumerate(points, 1):
        dead = await scene.crashed(export.job_id, number)
        assert dead.saved is not None
        drafts.add(dead.saved["draft"])
        await scene.sees_nothing(export)
        found = scene.delivered("daily")
        if point in ("delivered", "deleted", "forgotten", "returned"):
            assert found is not None
            assert found[0] == str(export.job_id)
        elif before is None:
            assert found is None
        else:
            assert scene.in_place(before)
        # Nothing that the next turn needs is taken for a leftover.
        await scene.collect()
        assert any(dead.saved["draft"] in name for name in scene.managed())
        assert await scene.locks() == ["destination:lake:daily"]
        await scene.run_now(export.job_id)
    done = await scene.completed(export)
    job = await scene.job(export.job_id)
    assert job.turn_count == len(points) + 1
    # Once decided, the query is not asked again.
    assert drafts == {job.result["draft"]}
    assert await scene.locks() == []
    return done


@pytest.mark.parametrize(
    ("if_exists", "points"),
    [
        ("error", ("decided", "copied", "publishing", "delivered", "returned")),
        ("replace", ("previous_kept", "copying", "copied", "delivering")),
    ],
)
async def test_a_first_delivery_killed(if_exists: str, points: Sequence[str], scene: Scene, expected: pa.Table) -> None:
    async with scene.working():
        done = await roll_forward(scene, points, if_exists=if_exists, before=None)

    assert (await scene.rows(done)).equals(expected)
    assert scene.in_place(expected)
    assert scene.at_destination("daily") == scene.named_at_destination("daily")
    assert scene.managed() == await scene.named(done)


@pytest.mark.parametrize(
    "points",
    [
        ("decided", "previous_kept", "copying", "copied"),
        ("delivering", "publishing", "delivered", "deleted", "forgotten"),
    ],
    ids="-".join,
)
async def test_a_delivery_over_an_earlier_one_killed(points: Sequence[str], scene: Scene, expected: pa.Table) -> None:
    async with scene.working():
        earlier = await scene.completed(await scene.export(to="daily", sql=BACKWARDS))
        before = await scene.rows(earlier)
        # Somebody else's, beside ours.
        (scene.folder / "lake" / "daily" / "README#1").write_text("not Paddock's")
        done = await roll_forward(scene, points, if_exists="replace", before=before)

    assert (await scene.rows(done)).equals(expected)
    assert scene.in_place(expected)
    assert scene.at_destination("daily") == scene.named_at_destination("daily") | {"README#1"}
    assert scene.managed() == await scene.named(done, earlier)


async def test_a_delivery_to_s3_killed(
    s3_server: Server, tmp_path: Path, files: Path, dsn: str, expected: pa.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in s3_server.environ.items():
        monkeypatch.setenv(name, value)
    points = ("previous_kept", "copied", "delivering", "delivered", "deleted")
    async with scene_in(tmp_path, files, dsn, f"{s3_server.url}/{uuid4()}") as scene, scene.working():
        earlier = await scene.completed(await scene.export(to="daily", sql=BACKWARDS))
        before = await scene.rows(earlier)
        done = await roll_forward(scene, points, if_exists="replace", before=before)

        assert (await scene.rows(done)).equals(expected)
        assert scene.in_place(expected)
        assert scene.at_destination("daily") == scene.named_at_destination("daily")


async def lease_ends(scene: Scene, id: JobId, clock: DatabaseClock) -> None:
    """Nobody says that a worker died: its job comes back when its session does not beat."""

    async def given_back() -> bool:
        await clock.advance(seconds=9)
        await rescuing.rescue(scene.core)
        return (await scene.job(id)).status == "pending"

    await until("the job is given back", given_back)


async def test_a_worker_killed_while_it_uploads(clock: DatabaseClock, scene: Scene, expected: pa.Table) -> None:
    scene.plan("worker uploaded 1")
    async with scene.doomed_worker() as doomed:
        export = await scene.export()
        assert await doomed.wait() == -signal.SIGKILL
    await scene.sees_nothing(export)
    await lease_ends(scene, export.job_id, clock)
    async with scene.working():
        done = await scene.completed(export)

    assert (await scene.rows(done)).equals(expected)
    await scene.collect()
    assert scene.managed() == await scene.named(done)
    assert scene.scratch() == set()


async def test_a_worker_killed_while_it_delivers(clock: DatabaseClock, scene: Scene, expected: pa.Table) -> None:
    async with scene.doomed_worker() as doomed:
        earlier = await scene.completed(await scene.export(to="daily", sql=BACKWARDS))
        before = await scene.rows(earlier)
        scene.plan("worker copied 1", "kill delivered 1")
        export = await scene.export(to="daily", if_exists="replace")
        assert await doomed.wait() == -signal.SIGKILL
    assert scene.in_place(before)
    await lease_ends(scene, export.job_id, clock)
    async with scene.working():
        await scene.crashed(export.job_id, 2)
        await scene.sees_nothing(export)
        assert scene.in_place(expected)
        await scene.run_now(export.job_id)
        done = await scene.completed(export)

    assert scene.in_place(expected)
    assert scene.at_destination("daily") == scene.named_at_destination("daily")
    await scene.collect()
    assert scene.managed() == await scene.named(earlier, done)


DIRECT: tuple[str, ...] = (
    "claimed",
    "draft_saved",
    "started",
    "opened",
    "written",
    "written 2",
    "uploading",
    "uploaded",
    "uploaded 2",
)
DIRECT += ("streamed", "sealing", "creating_manifest", "sealed", "returned")
FORWARD = ("decided", "previous_kept", "copying", "copied", "delivering", "publishing", "delivered", "forgotten")
REPEATED = 8_000


@st.composite
def tables(draw: st.DrawFn) -> pa.Table:
    """Of every type. Few rows, or the same ones over and over until they fill several files."""
    types = draw(st.lists(duckdb_types, min_size=1, max_size=8))
    rows = draw(st.integers(0, 12))
    times = draw(st.sampled_from([1, REPEATED]))
    columns = {
        f"c{number}": pa.chunked_array(
            [array_of(draw(st.lists(maybe(values), min_size=rows, max_size=rows)), type)] * times
        )
        for number, (type, values) in enumerate(types)
    }
    noise = random.Random(rows)
    columns["id"] = pa.array(range(rows * times), pa.int64())
    columns["noise"] = pa.array([noise.randbytes(20) for _ in range(rows * times)], pa.binary())
    return pa.table(columns)


def equal(found: pa.Table, table: pa.Table) -> bool:
    """To the bit. Rows come over and over: the first are looked at, the others are to be encoded as those are."""
    plain = ["id", "noise"]
    if not found.select(plain).equals(table.select(plain)):
        return False
    found, table = found.drop_columns(plain), table.drop_columns(plain)
    period = table.num_rows // REPEATED * 100 or table.num_rows or 1
    first = _encoded(found.slice(0, period))
    return same(found.slice(0, period), table.slice(0, period)) and all(
        _encoded(part := found.slice(start, period)) == first or same(part, table.slice(start, period))
        for start in range(period, table.num_rows, period)
    )


def _encoded(part: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, part.schema) as stream:
        stream.write_table(part.combine_chunks())
    return bytes(sink.getvalue())


@settings(
    max_examples=4,
    deadline=None,
    # A failure is told with its plan; to look for a smaller one would take minutes.
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)
@given(tables(), st.lists(st.sampled_from([*DIRECT, *FORWARD]), max_size=3), st.booleans())
async def test_any_table_killed_anywhere_reads_back_equal(
    scene: Scene, files: Path, table: pa.Table, points: list[str], delivered: bool
) -> None:
    name = uuid4().hex
    pq.write_table(table, files / f"{name}.parquet")
    scene.plan(*kills(points))
    async with scene.working():
        sql = f"SELECT * FROM '{name}.parquet' ORDER BY id"
        export = await scene.export(sql=sql, to=name if delivered else None)
        # A point that is not on the way of this export is not reached, nor are those planned behind it.
        for number in count(1):
            if (await scene.crashed_or_ended(export.job_id, number)).ended:
                break
            await scene.sees_nothing(export)
            await scene.collect()
            await scene.run_now(export.job_id)
        done = await scene.completed(export)

    found = await scene.rows(done)
    assert found.schema.types == [by_duckdb(type) for type in table.schema.types]
    assert equal(found, table)
    if delivered:
        there = scene.delivered(name)
        assert there is not None
        assert there[1].schema.equals(found.schema)
        assert equal(there[1], table)
        assert scene.at_destination(name) == scene.named_at_destination(name)
    await scene.collect()
    mine = {file for file in scene.managed() if str(done.id) in file}
    assert mine == await scene.named(done)
