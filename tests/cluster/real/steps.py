"""What the check on a real node does, in its order. Each step is one function; its docstring is what is printed."""

import asyncio
from collections.abc import Awaitable, Callable

from paddock.client import PaddockError
from paddock.client.client import Client
from tests.cluster.admin import Json, pods
from tests.cluster.real.load import load
from tests.cluster.real.looking import (
    another_answers,
    has_replicas,
    is_gone,
    nothing,
    people,
    pod_name,
    restarts,
    rolled_out,
    settled,
)
from tests.cluster.real.memory import grows, is_killed_for_memory
from tests.cluster.real.overlay import CONTROL_PLANE, HOME, INSTANCES, NEXT_IMAGE
from tests.cluster.real.scene import Scene

NODES = "SELECT range AS id, 'name ' || range % 5 AS name FROM range(1000)"
MAPPING: Json = {
    "name": "people",
    "nodes": [
        {
            "label": "Person",
            "primary_key": {"name": "id", "type": "INT64"},
            "properties": [{"name": "name", "type": "STRING"}],
            "sql": NODES,
        }
    ],
    "edges": [
        {
            "type": "KNOWS",
            "from_node": "Person",
            "to_node": "Person",
            "from_key": "one",
            "to_key": "other",
            "sql": "SELECT range AS one, range // 2 AS other FROM range(100)",
        }
    ],
}
AWAY_SECONDS = 120

Step = Callable[[Scene], Awaitable[str]]


async def applies(scene: Scene) -> str:
    """The production overlay is applied; two control planes are ready."""
    await scene.kubectl("apply", "--server-side", "-k", str(scene.overlay))
    await rolled_out(scene, "control-plane", 2)
    return await scene.kubectl("get", "pods", "-n", HOME, "-o", "wide", "--no-headers")


async def signs_in(scene: Scene) -> str:
    """The token out of the Secret is good, another is not."""
    await scene.ask("GET", "/api/jobs")
    try:
        await asyncio.to_thread(Client(f"http://{CONTROL_PLANE}:8080", "pdk_" + "x" * 32).request, "GET", "/api/jobs")
    except PaddockError as refusal:
        return f"a wrong one: {refusal.code}"
    raise AssertionError("a wrong token was good")


async def exports_from_zero(scene: Scene) -> str:
    """An export brings a worker from zero, and the worker goes when nothing is left to do."""
    await scene.until(lambda: has_replicas(scene, "export-worker", 0), "the export workers never were at zero")
    asked = {"sql": "SELECT range AS id FROM range(100000)", "engine": "local"}
    made = (await scene.ask("POST", "/api/exports", body=asked))["data"]

    async def ended() -> Json | None:
        found: Json = (await scene.ask("GET", f"/api/exports/{made['id']}"))["data"]
        return found if found["status"] in ("completed", "failed", "cancelled") else None

    done = await scene.until(ended, "the export never ended")
    assert done["status"] == "completed", done
    await scene.until(lambda: has_replicas(scene, "export-worker", 0), "the worker never went")
    return f"{done['rows']} rows" if "rows" in done else done["status"]


async def runs_an_instance(scene: Scene) -> str:
    """A graph instance becomes a pod and answers a query."""
    mapping = (await scene.ask("POST", "/api/mappings", body=MAPPING))["data"]
    asked = {"mapping_id": mapping["id"], "engine": "local", "name": "people", "cpu_cores": 1}
    made = (await scene.ask("POST", "/api/instances", body=asked))["data"]
    scene.instance = made["id"]
    running = await settled(scene, made["id"])
    assert running["status"] == "running", running
    assert await people(scene) == [[1000]]
    return str(running["pod_name"])


async def survives_an_eviction(scene: Scene) -> str:
    """Its pod is evicted; another generation answers."""
    before = await pod_name(scene)
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": before, "namespace": INSTANCES}}
    await scene.admin.ask("POST", f"{pods(INSTANCES, before)}/eviction", eviction)
    return await another_answers(scene, before)


async def dumps_by_a_job(scene: Scene) -> str:
    """A dump brings a Job of its own, which ends when the dump has."""
    made = await scene.ask("POST", "/export/dump", body={"database": "shop", "async": True})

    async def ended() -> Json | None:
        found: Json = (await scene.ask("GET", made["result"]["statusUrl"]))["result"]
        return found if found["status"] in ("completed", "failed", "cancelled") else None

    try:
        done = await scene.until(ended, "the dump never ended")
    except AssertionError as problem:
        told = await scene.kubectl("describe", "scaledjobs,jobs,pods", "-n", HOME, "-l", "app=dump-worker")
        raise AssertionError(f"{problem}\n{told[-4000:]}") from None
    assert done["status"] == "completed", done

    async def jobs_ended() -> list[Json]:
        jobs = await scene.admin.list(f"/apis/batch/v1/namespaces/{HOME}/jobs")
        return jobs if jobs and all(job["status"].get("succeeded") for job in jobs) else []

    jobs = await scene.until(jobs_ended, "the Job of the dump never ended")
    return f"{done['rowsWritten']} rows, {done['fileBytes']} bytes, Jobs: {len(jobs)}"


async def rolls_over(scene: Scene) -> str:
    """Control planes change their image while people ask; every request and every query is answered."""
    async with load(scene) as answers:
        await scene.kubectl("set", "image", "-n", HOME, "deployment/control-plane", f"control-plane={NEXT_IMAGE}")
        await rolled_out(scene, "control-plane", 2)
    assert all(set(of_one) == {200} for of_one in answers.values()), answers
    return ", ".join(f"{what}: {of_one[200]} answered" for what, of_one in answers.items())


async def outlives_its_database(scene: Scene) -> str:
    """The database is away for two minutes; nothing restarts, and what runs goes on."""
    before = await restarts(scene)
    await scene.database.stop()
    await asyncio.sleep(AWAY_SECONDS)  # as long as the liveness probe would need to kill
    await scene.database.start()
    await rolled_out(scene, "control-plane", 2)
    assert await people(scene) == [[1000]]
    after = await restarts(scene)
    assert after == before, (before, after)
    return f"restarts: {sum(after.values())}"


async def is_examined(scene: Scene) -> str:
    """`paddock doctor --cluster` runs in the control plane's pod."""
    command = ["env", "PADDOCK_SERVER=http://127.0.0.1:8080", "PADDOCK_TOKEN_FILE=/etc/paddock-tokens/root.admin"]
    command += ["paddock", "doctor", "--cluster"]
    return await scene.kubectl("exec", "-n", HOME, "deployment/control-plane", "--", *command)


async def goes_without_a_trace(scene: Scene) -> str:
    """The instance is deleted, then all that was applied; nothing is left."""
    await scene.ask("DELETE", f"/api/instances/{scene.instance}", timeout=90)
    await scene.until(lambda: nothing(scene, INSTANCES), "pods of instances are left")
    await scene.kubectl("delete", "-k", str(scene.overlay), "--wait=false", "--ignore-not-found")
    for name in (HOME, INSTANCES):
        await scene.until(lambda name=name: is_gone(scene, name), f"the namespace {name} is left")  # type: ignore[misc]
    left = await scene.kubectl("get", "pods,jobs,deployments", "--all-namespaces", "--no-headers", "--ignore-not-found")
    assert not left.strip(), left
    return "left: nothing"


STEPS: tuple[Step, ...] = (
    *(applies, signs_in, exports_from_zero, dumps_by_a_job, runs_an_instance, survives_an_eviction),
    *(rolls_over, outlives_its_database, grows, is_killed_for_memory, is_examined, goes_without_a_trace),
)
