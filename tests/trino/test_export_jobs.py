"""Export jobs on a real Trino, through the whole of the product: what the unit tests of each part cannot see."""

import contextlib
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from trino import dbapi

from paddock.exports import export_files
from paddock.exports.plain import Export
from paddock.jobs import rescuing
from paddock.jobs.errors import Refused
from paddock.jobs.model import JobId, JsonObject
from tests.conftest import DatabaseClock
from tests.trino.asking import query_ended, query_info, read
from tests.trino.configuring import BUCKET, S3_KEY, S3_SECRET
from tests.trino.export_scene import ENDLESS, PLANNED, SCHEMA, TrinoScene, in_order, trino_scene, until
from tests.trino.server import TrinoServer

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

ORDERS = "SELECT orderkey, custkey, totalprice, orderdate, comment FROM orders"
FORGET = "UPDATE jobs SET saved = jsonb_set(saved, '{handle,next_uri}', to_jsonb($2::text)) WHERE id = $1"
# Seconds, all of which are waited for: enough to ask a busy Trino for the columns before it.
LIMIT = 6
NOBODY = "SELECT orderkey, comment, ARRAY[1] AS numbers FROM orders WHERE orderkey < 0"


@pytest.fixture
async def scene(trino: TrinoServer, tmp_path: Path, dsn: str) -> AsyncIterator[TrinoScene]:
    async with trino_scene(trino, tmp_path, dsn) as opened:
        yield opened


async def by_trino(scene: TrinoScene, sql: str) -> pa.Table:
    async with scene.admin() as engine:
        return await read(engine, sql)


async def exact(scene: TrinoScene, export: Export, sql: str, *key: str) -> None:
    expected = await by_trino(scene, sql)
    assert in_order(await scene.rows(export), *key).equals(in_order(expected, *key))
    assert export.rows == expected.num_rows


async def cancelled(scene: TrinoScene, query_id: str) -> None:
    info = await query_ended(scene.trino, query_id)
    assert (info["state"], info["errorCode"]["name"]) == ("FAILED", "USER_CANCELED")


# Unload.


async def test_an_unload_is_polled_from_turn_to_turn(scene: TrinoScene, clock: DatabaseClock) -> None:
    """The clock stands still: nothing is polled but what the test asks for."""
    scene.plan("hold started 1")
    async with scene.working(PLANNED):
        export = await scene.ask(ORDERS, mode="unload")
        await scene.held()
        async with scene.holding():
            scene.let_go()
            job = await scene.submitted(export)
            assert job.waiting_on == "engine"
            assert job.saved is not None
            assert job.saved["poll_count"] == 1
            await scene.sees_nothing(export)
            await scene.run_now(export.job_id)
            job = await scene.submitted(export, turns=2)
            assert job.saved is not None
            assert job.saved["poll_count"] == 2
        done = await scene.unloaded(export)

    await exact(scene, done, ORDERS, "orderkey")
    assert (await scene.job(export.job_id)).result["mode"] == "unload"
    [unload] = await scene.unloads()
    assert unload["queryId"] == job.saved["query_id"]
    assert job.saved["table"] not in await scene.tables()
    # Trino's own files and our manifest, all of them named.
    assert {name for name in scene.objects() if "/." not in name} == await scene.named(done)


async def test_an_unload_killed_everywhere_is_submitted_once(scene: TrinoScene) -> None:
    points = ["draft_saved 1", "started 1", "started 2", "sealing 1", "sealed 1"]
    scene.plan(*(f"kill {point}" for point in points))
    async with scene.working(PLANNED):
        export = await scene.ask(ORDERS, mode="unload")
        saved: JsonObject = {}
        first: JsonObject | None = None
        for number, _ in enumerate(points, 1):
            saved = (await scene.dead(export, number)).saved or {}
            first = first or saved.get("handle")
            if "update_count" in saved:
                # As after a while: Trino does not answer there any more, and the table is dropped.
                await scene.database.execute(FORGET, export.job_id, (first or {})["next_uri"])
            await scene.sees_nothing(export)
            await scene.run_now(export.job_id)
        done = await scene.unloaded(export)

    assert scene.planned() == 0
    await exact(scene, done, ORDERS, "orderkey")
    assert [query["queryId"] for query in await scene.unloads()] == [saved["query_id"]]
    assert (await scene.job(export.job_id)).result["mode"] == "unload"
    assert saved["table"] not in await scene.tables()


async def lease_ends(scene: TrinoScene, id: JobId, clock: DatabaseClock) -> None:
    async def given_back() -> bool:
        await clock.advance(seconds=9)
        await rescuing.rescue(scene.core)
        return (await scene.job(id)).status != "claimed"

    await until("the job is given back", given_back)


async def test_a_worker_killed_while_it_polls_and_another_polls_on(scene: TrinoScene, clock: DatabaseClock) -> None:
    scene.plan("hold started 1", "worker started 4")
    async with scene.doomed_worker() as doomed:
        export = await scene.ask(ORDERS, mode="unload")
        await scene.held()
        async with scene.holding():
            scene.let_go()

            async def polled_to_death() -> bool:
                """A turn ends where a query only waits; it is polled on until the plan's point is reached."""
                with contextlib.suppress(Refused):
                    await scene.run_now(export.job_id)
                return doomed.returncode is not None

            await until("the worker is dead", polled_to_death)
            assert await doomed.wait() == -signal.SIGKILL
            [unload] = await scene.unloads()
            assert unload["state"] == "QUEUED"
            await lease_ends(scene, export.job_id, clock)
    async with scene.working():
        done = await scene.unloaded(export)

    await exact(scene, done, ORDERS, "orderkey")
    assert [query["queryId"] for query in await scene.unloads()] == [unload["queryId"]]


async def test_a_cancelled_unload_stops_its_query_and_leaves_nothing(scene: TrinoScene, clock: DatabaseClock) -> None:
    async with scene.working():
        export = await scene.ask(ENDLESS, mode="unload")
        saved = (await scene.submitted(export)).saved
        assert saved is not None
        await scene.cancel(export)
        assert (await scene.cleaned(export)).status == "completed"

    await cancelled(scene, saved["query_id"])
    assert saved["table"] not in await scene.tables()
    assert scene.objects() == set()
    assert (await scene.look(export)).status == "cancelled"


@pytest.mark.parametrize("engine", ["warehouse", "paged"])
async def test_a_cancelled_direct_export_stops_its_query_and_leaves_nothing(scene: TrinoScene, engine: str) -> None:
    async with scene.working():
        export = await scene.ask(ENDLESS, engine=engine)

        async def runs() -> str | None:
            query = ((await scene.job(export.job_id)).saved or {}).get("query_id")
            return query if query is not None and await scene.runs(query) else None

        query_id = await until("its query runs", runs)
        await scene.cancel(export)
        assert (await scene.cleaned(export)).status == "completed"

    await cancelled(scene, query_id)
    assert scene.objects() == set()
    assert (await scene.look(export)).status == "cancelled"


@pytest.mark.parametrize("mode", ["unload", "direct"])
async def test_a_runner_killed_after_the_post_and_before_the_query_is_saved(mode: str, scene: TrinoScene) -> None:
    """Trino runs nothing before it is asked for: what nobody knows of is nothing."""
    scene.plan("kill posted 1")
    async with scene.working(PLANNED):
        export = await scene.ask(ORDERS, mode=mode)
        dead = (await scene.dead(export, 1)).saved or {}
        assert ("draft" in dead, "handle" in dead) == (True, False)
        await scene.run_now(export.job_id)
        done = await scene.unloaded(export)

    job = await scene.job(export.job_id)
    assert (job.result["mode"], job.result["draft"] != dead["draft"]) == (mode, True)
    await exact(scene, done, ORDERS, "orderkey")
    ran = await scene.unloads() if mode == "unload" else [q for q in await scene.queries() if q["query"] == ORDERS]
    assert [query["queryId"] for query in ran] == [job.result["query_id"]]
    if mode == "unload":
        assert not {dead["table"], f"paddock_{job.result['draft']}"} & set(await scene.tables())


@pytest.mark.parametrize("mode", ["unload", "direct"])
async def test_the_time_in_the_queue_counts_for_the_proof_of_the_query_too(mode: str, scene: TrinoScene) -> None:
    async with scene.working():
        async with scene.holding():
            export = await scene.ask(ORDERS, mode=mode, max_duration_seconds=LIMIT)
            job = await scene.ended(export.job_id)
        assert (await scene.cleaned(export)).status == "completed"

    assert (job.error_code, (job.saved or {}).get("query_id")) == ("export_too_long", None)
    assert job.error_message == f"Export job exceeded maximum duration ({LIMIT}s)"
    [proof] = [query for query in await scene.queries() if ORDERS in query["query"]]
    await cancelled(scene, proof["queryId"])


@pytest.mark.parametrize("mode", ["unload", "direct"])
async def test_an_export_that_takes_too_long(mode: str, scene: TrinoScene) -> None:
    async with scene.working():
        export = await scene.ask(ENDLESS, mode=mode, max_duration_seconds=LIMIT)
        job = await scene.polled(export)
        assert (job.status, job.error_code) == ("failed", "export_too_long")
        assert job.error_message == f"Export job exceeded maximum duration ({LIMIT}s)"
        assert (await scene.cleaned(export)).status == "completed"

    assert job.saved is not None
    await cancelled(scene, job.saved["query_id"])
    assert scene.objects() == set()


async def test_no_rows_make_a_typed_empty_file(scene: TrinoScene) -> None:
    """Even where the runner dies with the manifest written."""
    scene.plan("kill sealing 1", "kill sealed 1")
    async with scene.working(PLANNED):
        export = await scene.ask(NOBODY, mode="unload")
        for number in (1, 2):
            await scene.dead(export, number)
            await scene.run_now(export.job_id)
        done = await scene.unloaded(export)

    await is_empty(scene, done)


async def test_no_rows_in_a_bucket(
    trino: TrinoServer, tmp_path: Path, dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    endpoint = f"http://127.0.0.1:{trino.ports.s3}"
    known = {"AWS_ACCESS_KEY_ID": S3_KEY, "AWS_SECRET_ACCESS_KEY": S3_SECRET, "AWS_REGION": "us-east-1"}
    for name, value in {**known, "AWS_ENDPOINT_URL": endpoint, "AWS_ALLOW_HTTP": "true"}.items():
        monkeypatch.setenv(name, value)
    place = f"s3://{BUCKET}/{tmp_path.name}"
    bucket = {"unload_catalog": "hive_s3", "unload_schema": SCHEMA, "unload_location": place}
    async with trino_scene(trino, tmp_path, dsn, store=place, bucket=bucket) as scene:
        async with scene.working():
            done = await scene.unloaded(await scene.ask(NOBODY, engine="bucket", mode="unload"))
            some = await scene.unloaded(await scene.ask(ORDERS, engine="bucket", mode="unload"))

        await is_empty(scene, done)
        await exact(scene, some, ORDERS, "orderkey")


async def is_empty(scene: TrinoScene, export: Export) -> None:
    found = await scene.rows(export)
    assert (export.rows, export.files, found.num_rows) == (0, 1, 0)
    assert found.schema.equals((await by_trino(scene, NOBODY)).schema)
    job = await scene.job(export.job_id)
    assert job.result["mode"] == "unload"
    assert len(await scene.unloads()) in (1, 2)


async def test_what_hive_cannot_write_goes_directly_and_says_so(scene: TrinoScene) -> None:
    async with scene.working():
        sql = "SELECT orderkey, CAST(orderdate AS timestamp(6)) AS at FROM orders"
        done = await scene.completed(await scene.ask(sql, mode="unload"))
        job = await scene.job(done.job_id)

        async def said() -> bool:
            return "Hive cannot write column 'at' (timestamp(6)) exactly." in await scene.log(done.job_id)

        await until("the job's log says why", said)
    assert job.result["mode"] == "direct"
    assert job.result["direct_because"] == "Hive cannot write column 'at' (timestamp(6)) exactly."
    _, manifest = await export_files.manifest_of(scene.config, done)
    assert manifest.facts["direct_because"] == job.result["direct_because"]
    await exact(scene, done, sql, "orderkey")
    assert await scene.unloads() == []


async def test_an_unload_is_delivered_as_parquet(scene: TrinoScene) -> None:
    async with scene.working():
        target = {"name": "lake", "prefix": "daily"}
        done = await scene.unloaded(await scene.ask(ORDERS, mode="unload", destination=target))

    names = scene.named_at_destination("daily") - {"_manifest.json"}
    assert names == {f"{done.job_id}-{number}.parquet" for number in range(len(names))}
    files = [pq.read_table(scene.folder / "lake" / "daily" / name) for name in names]
    assert in_order(pa.concat_tables(files), "orderkey").equals(in_order(await scene.rows(done), "orderkey"))


# Direct.

LINES = "SELECT * FROM lineitem ORDER BY orderkey, linenumber"


async def test_direct_and_spooled_rows_are_those_of_the_official_client(scene: TrinoScene) -> None:
    async with scene.working():
        paged = await scene.completed(await scene.ask(LINES, engine="paged"))
        spooled = await scene.completed(await scene.ask(LINES))

    found = await scene.rows(paged)
    assert found.equals(await scene.rows(spooled))
    with dbapi.connect(host="127.0.0.1", port=scene.trino.ports.http, user="lab", catalog="tpch", schema="tiny") as db:
        expected = db.cursor().execute(LINES).fetchall()
    assert list(zip(*found.to_pydict().values(), strict=True)) == [tuple(row) for row in expected]


async def test_a_runner_killed_in_the_middle_leaves_no_query_behind(scene: TrinoScene) -> None:
    """The scene's queries run one at a time: were the first not stopped, the second would never start."""
    sql = "SELECT custkey, name, address, comment FROM tpch.sf1.customer"
    scene.plan("kill written 1")
    async with scene.working(PLANNED):
        export = await scene.ask(sql, engine="paged")
        first = (await scene.dead(export, 1)).saved
        assert first is not None
        assert (await query_info(scene.trino, first["query_id"]))["state"] in ("RUNNING", "FINISHING")
        await scene.sees_nothing(export)
        await scene.run_now(export.job_id)
        done = await scene.completed(export)

    await cancelled(scene, first["query_id"])
    assert (await scene.job(done.job_id)).result["draft"] != first["draft"]
    await exact(scene, done, sql, "custkey")
