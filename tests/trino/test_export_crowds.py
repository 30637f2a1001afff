"""Many export jobs on a real Trino at once, in one worker."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from paddock.exports.plain import Export
from tests.trino.asking import ROLES, alone, make_roles
from tests.trino.export_scene import ENDLESS, TrinoScene, trino_scene, until
from tests.trino.server import TrinoServer

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture
async def scene(trino: TrinoServer, tmp_path: Path, dsn: str) -> AsyncIterator[TrinoScene]:
    usual = {"source": "graph-olap-export-worker"}
    secured = {**usual, "requires_role": True, "role_catalog": "hivesec"}
    async with trino_scene(trino, tmp_path, dsn, many=usual, secured=secured) as opened:
        yield opened


async def all_completed(scene: TrinoScene, exports: list[Export], seconds: float = 300) -> list[Export]:
    async def look() -> bool:
        rows = await scene.database.fetch("SELECT status, error_message FROM job_history WHERE cleanup_of IS NULL")
        assert {row["status"] for row in rows} <= {"completed"}, [row["error_message"] for row in rows][:3]
        return len(rows) == len(exports)

    await until(f"{len(exports)} exports are done", look, seconds)
    return [await scene.look(export) for export in exports]


async def test_fifty_jobs_with_fifty_roles_at_once_and_each_query_has_its_own(scene: TrinoScene) -> None:
    async with scene.admin(user="admin", role_catalog="hivesec") as admin:
        with alone(scene.trino):
            await make_roles(admin)
    async with scene.working(concurrency=50):
        exports = [
            await scene.ask(f"SELECT {number} AS n", engine="secured", role=role) for number, role in enumerate(ROLES)
        ]
        done = await all_completed(scene, exports)

    carried = await scene.queries(source="graph-olap-export-worker")
    for number, export in enumerate(done):
        assert (await scene.rows(export)).to_pylist() == [{"n": number}]
        job = str(export.job_id)
        own = {query["queryId"]: query["session"] for query in carried if query["session"].get("traceToken") == job}
        # What asked for the columns, and the export itself.
        assert len(own) == 2
        assert (await scene.job(export.job_id)).result["query_id"] in own
        for session in own.values():
            assert session["catalogRoles"] == {"hivesec": {"type": "ROLE", "role": ROLES[number]}}
            assert session["user"] == "lab"
            assert session["clientTags"] == ["graph-olap-export"]
            assert session["clientInfo"] == job


@pytest.mark.parametrize("count", [100, pytest.param(500, marks=pytest.mark.long)])
async def test_hundreds_of_tiny_exports_at_once_in_one_worker(scene: TrinoScene, count: int) -> None:
    """Trino runs twelve of them at a time."""
    exports = await asyncio.gather(
        *(scene.ask(f"SELECT {number} AS n, 'x' AS x", engine="many") for number in range(count))
    )
    async with scene.working(concurrency=count):
        done = await all_completed(scene, exports)

    for number, export in enumerate(done):
        assert (await scene.rows(export)).to_pylist() == [{"n": number, "x": "x"}]
    jobs = [await scene.job(export.job_id) for export in done]
    assert {job.turn_count for job in jobs} == {1}
    assert len({job.result["query_id"] for job in jobs}) == count


async def test_what_a_resource_group_lets_wait_is_exported_in_the_end(scene: TrinoScene) -> None:
    count = 12
    async with scene.working(concurrency=count):
        async with scene.holding():
            exports = [await scene.ask(f"SELECT {number} AS n") for number in range(count)]

            async def all_queued() -> bool:
                states = [query["state"] for query in await scene.queries()]
                return states.count("QUEUED") == count

            await until("all of them wait", all_queued)
            assert {(await scene.job(export.job_id)).status for export in exports} == {"claimed"}
        done = await all_completed(scene, exports)
    assert [(await scene.rows(export)).to_pylist() for export in done] == [[{"n": n}] for n in range(count)]


async def test_a_resource_group_sees_every_query_however_little_memory_the_worker_has(scene: TrinoScene) -> None:
    """The group runs one at a time. Each export asks for its columns first: all of them wait to do so before the first
    of the exports' own queries is there, and the first of those never ends."""
    count = 6

    async def states(own: bool) -> list[str]:
        return [query["state"] for query in await scene.queries() if ("LIMIT 0" not in query["query"]) == own]

    async with scene.working(environment={"PADDOCK_EXPORT_MEMORY_BYTES": "16777216"}, concurrency=count):
        async with scene.holding():
            exports = [await scene.ask(ENDLESS) for _ in range(count)]

            async def asking() -> bool:
                return (await states(own=False)).count("QUEUED") == count

            await until("all wait to ask for their columns", asking)

        async def queued() -> bool:
            found = await states(own=True)
            return found.count("RUNNING") == 1 and found.count("QUEUED") == count - 1

        await until("one of them runs, and all others wait in the group", queued)
        for export in exports:
            await scene.cancel(export)
        for export in exports:
            await scene.cleaned(export)
    assert not {"RUNNING", "QUEUED"} & {*await states(own=True)}
