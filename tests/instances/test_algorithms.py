"""An execution of an algorithm is a job of the core, bound to one generation."""

import asyncio
from typing import Any
from uuid import UUID

import httpx2
import pytest
from aiohttp import web

from paddock.config import Config
from paddock.jobs.core import Core
from paddock.jobs.model import JobId
from tests.instances.fake_runtime import FakeRuntime
from tests.instances.world import code_of, events_of, ready_snapshot, running, until, until_idle

pytestmark = pytest.mark.usefixtures("at_work")


class Algorithms:
    """What the instance does with executions."""

    def __init__(self) -> None:
        self.status: dict[str, Any] = {"status": "running", "percent": 10, "phase": "computing"}
        self.refuses: tuple[int, str] | None = None
        self.begun: list[dict[str, Any]] = []
        self.cancelled: list[str] = []

    def install(self, runtime: FakeRuntime, id: str) -> None:
        instance = runtime.of(id)
        instance.behaviour.routes["POST /algo/pagerank"] = self.start
        answer = instance._answer

        async def with_executions(request: web.Request) -> web.StreamResponse:
            if request.path.startswith("/algo/executions/"):
                if request.path.endswith("/cancel"):
                    self.cancelled.append(request.path.split("/")[3])
                return instance._json({"data": self.status})
            return await answer(request)

        instance._answer = with_executions  # type: ignore[method-assign]  # routes with an id in them

    async def start(self, request: web.Request) -> web.Response:
        if self.refuses is not None:
            status, code = self.refuses
            error = {"code": code, "message": "No.", "details": {"fields": [{"field": "damping", "message": "No."}]}}
            return web.json_response({"error": error}, status=status)
        self.begun.append(await request.json())
        return web.json_response({"data": self.status}, status=202)


@pytest.fixture
def algorithms() -> Algorithms:
    return Algorithms()


@pytest.fixture
async def made(
    core: Core, config: Config, runtime: FakeRuntime, ada: httpx2.AsyncClient, algorithms: Algorithms
) -> dict[str, Any]:
    made = await running(core, ada, await ready_snapshot(core, config))
    instance = runtime.of(made["id"])
    await instance.close()
    algorithms.install(runtime, made["id"])
    await instance.serve()
    return made


async def test_it_runs_is_seen_and_completes(
    core: Core, ada: httpx2.AsyncClient, made: dict[str, Any], algorithms: Algorithms
) -> None:
    path = f"/api/instances/{made['id']}/algo"
    begun = await ada.post(f"{path}/pagerank", json={"damping": 0.9})
    assert begun.status_code == 202, begun.text
    execution = begun.json()["data"]
    assert execution["algorithm"] == "pagerank"
    assert algorithms.begun == [{"damping": 0.9, "execution_id": execution["execution_id"], "owner": "ada"}]
    locked = (await ada.get(f"/api/instances/{made['id']}/lock")).json()["data"]
    assert (locked["locked"], locked["holder"], locked["algorithm"]) == (True, "ada", "pagerank")
    second = await ada.post(f"{path}/pagerank", json={})
    assert code_of(second) == (409, "RESOURCE_LOCKED")
    assert second.json()["error"]["details"]["execution_id"] == execution["execution_id"]

    algorithms.status = {"status": "completed", "result": {"nodes": 10, "property": "pagerank"}}

    async def ended() -> dict[str, Any] | None:
        found: dict[str, Any] = (await ada.get(f"{path}/executions/{execution['execution_id']}")).json()["data"]
        return found if found["status"] == "completed" else None

    assert (await until("it completes", ended))["result"] == {"nodes": 10, "property": "pagerank"}
    assert (await ada.get(f"/api/instances/{made['id']}/lock")).json()["data"] == {"locked": False}
    listed = (await ada.get(f"{path}/executions")).json()["data"]
    assert [one["execution_id"] for one in listed] == [execution["execution_id"]]
    assert (await events_of(core, made["id"]))[-1] == "algorithm_completed"


@pytest.mark.parametrize(
    ("status", "code"), [(422, "invalid"), (422, "unknown_algorithm"), (409, "property_of_mapping")]
)
async def test_what_the_instance_refuses_is_refused_at_once(
    core: Core, ada: httpx2.AsyncClient, made: dict[str, Any], algorithms: Algorithms, status: int, code: str
) -> None:
    algorithms.refuses = (status, code)
    answer = await ada.post(f"/api/instances/{made['id']}/algo/pagerank", json={"damping": 7})
    assert code_of(answer) == (status, code)
    assert answer.json()["error"]["details"]["fields"][0]["field"] == "damping"
    await until_idle(core)
    assert "algorithm_failed" not in await events_of(core, made["id"])


async def test_a_name_that_is_no_name_never_reaches_the_instance(ada: httpx2.AsyncClient, made: dict[str, Any]) -> None:
    for name in ("Page%20Rank", "..%2Fload", "1", "x" * 80):
        answer = await ada.post(f"/api/instances/{made['id']}/algo/{name}", json={})
        assert answer.status_code in (404, 422), answer.text


async def test_cancel_stops_it_in_the_instance(
    core: Core, ada: httpx2.AsyncClient, made: dict[str, Any], algorithms: Algorithms
) -> None:
    path = f"/api/instances/{made['id']}/algo"
    execution = (await ada.post(f"{path}/pagerank", json={})).json()["data"]["execution_id"]
    cancelled = await ada.post(f"{path}/executions/{execution}/cancel")
    assert (cancelled.status_code, cancelled.json()["data"]["status"]) == (200, "cancelled")
    await until_idle(core)
    assert algorithms.cancelled == [execution]
    assert code_of(await ada.post(f"{path}/executions/{execution}/cancel")) == (409, "already_finished")


async def test_one_that_fails_says_why(
    core: Core, ada: httpx2.AsyncClient, made: dict[str, Any], algorithms: Algorithms
) -> None:
    path = f"/api/instances/{made['id']}/algo"
    algorithms.status = {"status": "failed", "error": {"code": "out_of_memory", "message": "It needs more memory."}}
    execution = (await ada.post(f"{path}/pagerank", json={})).json()["data"]["execution_id"]
    await until_idle(core)
    found = (await ada.get(f"{path}/executions/{execution}")).json()["data"]
    assert (found["status"], found["error"]["code"]) == ("failed", "out_of_memory")
    assert (await events_of(core, made["id"]))[-1] == "algorithm_failed"


async def test_one_that_the_instance_never_ends_is_given_up_and_stopped(
    core: Core, ada: httpx2.AsyncClient, made: dict[str, Any], algorithms: Algorithms
) -> None:
    path = f"/api/instances/{made['id']}/algo"
    execution = (await ada.post(f"{path}/pagerank", json={"timeout_ms": 60_000})).json()["data"]["execution_id"]
    await core.db.pool("durable").execute(
        "UPDATE jobs SET started_at = started_at - interval '2 minutes' - interval '1 second'"
        " WHERE kind = 'instance_algorithm'"
    )
    await until_idle(core)
    found = (await ada.get(f"{path}/executions/{execution}")).json()["data"]
    assert (found["status"], found["error"]["code"]) == ("failed", "QUERY_TIMEOUT")
    assert algorithms.cancelled == [execution]
    assert (await ada.get(f"/api/instances/{made['id']}/lock")).json()["data"] == {"locked": False}


async def test_the_history_is_newest_first_in_pages_for_all_who_may_see_the_instance(
    core: Core,
    ada: httpx2.AsyncClient,
    bob: httpx2.AsyncClient,
    made: dict[str, Any],
    algorithms: Algorithms,
) -> None:
    path = f"/api/instances/{made['id']}/algo"
    algorithms.status = {"status": "completed", "result": {}}
    begun = []
    for _ in range(3):
        begun.append((await ada.post(f"{path}/pagerank", json={})).json()["data"]["execution_id"])
        await until_idle(core)
    assert (await bob.get(f"{path}/executions")).status_code == 404
    assert (await ada.put(f"/api/instances/{made['id']}/grants/bob")).status_code in (200, 204)
    first = (await bob.get(f"{path}/executions", params={"limit": 2})).json()
    after = {"limit": 2, "cursor": first["next_cursor"]}
    second = (await bob.get(f"{path}/executions", params=after)).json()
    listed = [one["execution_id"] for one in (*first["data"], *second["data"])]
    assert listed == begun[::-1]
    assert code_of(await bob.post(f"{path}/pagerank", json={})) == (403, "not_yours")
    assert (await bob.post(f"{path}/executions/{begun[0]}/cancel")).status_code == 403


async def test_deleting_the_instance_ends_its_execution(
    core: Core, ada: httpx2.AsyncClient, made: dict[str, Any], algorithms: Algorithms
) -> None:
    execution = (await ada.post(f"/api/instances/{made['id']}/algo/pagerank", json={})).json()["data"]["execution_id"]
    assert (await ada.delete(f"/api/instances/{made['id']}")).status_code == 200
    await until_idle(core)
    job = await core.job(JobId(UUID(execution)))
    assert job is not None
    assert job.status == "cancelled"


async def test_a_new_generation_ends_what_ran_on_the_old_one(
    core: Core, ada: httpx2.AsyncClient, made: dict[str, Any], algorithms: Algorithms
) -> None:
    execution = (await ada.post(f"/api/instances/{made['id']}/algo/pagerank", json={})).json()["data"]["execution_id"]
    assert (await ada.post(f"/api/instances/{made['id']}/reopen")).status_code == 202

    async def ended() -> bool:
        job = await core.job(JobId(UUID(execution)))
        return job is not None and job.error_code == "instance_restarted"

    await until("the execution failed", ended)


async def test_only_one_of_many_at_once_runs(
    core: Core, ada: httpx2.AsyncClient, made: dict[str, Any], algorithms: Algorithms
) -> None:
    path = f"/api/instances/{made['id']}/algo/pagerank"
    answers = await asyncio.gather(*(ada.post(path, json={}) for _ in range(8)))
    assert sorted(answer.status_code for answer in answers) == [202] + [409] * 7
    assert len(algorithms.begun) == 1
