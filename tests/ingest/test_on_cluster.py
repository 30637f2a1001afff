"""Runs whose steps are Jobs of a real API server and scheduler; the tests' kubelet runs their containers as processes."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from prometheus_client import CollectorRegistry

from paddock.api.app import close, create_app
from paddock.api.server import Server, listen
from paddock.config import load
from paddock.db.pool import Statement
from paddock.ingest import kinds as ingest_kinds
from paddock.ingest import on_cluster, runs
from paddock.ingest.model import Run
from paddock.jobs.bulk import BULK
from paddock.jobs.core import CoreSettings, open_core
from paddock.jobs.kinds import Kinds
from paddock.metrics import Metrics
from paddock.runtimes.kubernetes import jobs as jobs_of_steps
from tests.cluster.admin import Admin, jobs, namespaces, pods
from tests.cluster.kubelet import Kubelet
from tests.cluster.namespaces import Nodes
from tests.cluster.server import Cluster
from tests.ingest.conftest import NUMBERS, SEVENS, Bench
from tests.ingest.played_pods import StepPods
from tests.kubernetes.conftest import admin, cluster, kubelet, make_namespace, namespace, nodes
from tests.playing import until

__all__ = ["admin", "cluster", "kubelet", "make_namespace", "namespace", "nodes"]

pytestmark = pytest.mark.slow

DIGEST = f"registry.example/step@sha256:{'a' * 64}"
GIB, PLACE = 1 << 30, 257 << 20
HOME = "INSERT INTO installation (namespace, namespace_uid, home, bound_by) VALUES ('i', 'u', 'h', 'test') RETURNING id"


# Gives all it has at once, whatever it was asked for.
ALL_NUMBERS = NUMBERS.replace('int(os.environ["PADDOCK_LIMIT"])', 'config["total"]')
# Fails in its first fetch, after it said where it is.
TAP = """
import json, sys
args = dict(zip(sys.argv[1::2], sys.argv[2::2]))
after = json.load(open(args["--state"]))["after"] if "--state" in args else 0
for n in range(after + 1, 7):
    print(json.dumps({"type": "RECORD", "stream": "s", "record": {"n": n}}))
    if n % 2 == 0:
        print(json.dumps({"type": "STATE", "value": {"after": n}}))
    if n == 5 and not after:
        sys.exit(1)
"""
FAILED = Statement(
    "test_failed", "SELECT error_code FROM jobs WHERE group_id = $1 AND error_code IS NOT NULL", "relaxed"
)
STARTED = Statement(
    "test_started",
    "SELECT count(*) FROM jobs WHERE group_id = $1 AND (saved -> 'container' ->> 'started')::boolean",
    "relaxed",
)
# Whatever is kept of jobs and of batches, as one text.
KEPT = Statement(
    "test_kept",
    "SELECT string_agg(kept, ' ') FROM (SELECT jobs::text AS kept FROM jobs UNION ALL SELECT job_history::text FROM job_history"
    " UNION ALL SELECT job_logs::text FROM job_logs UNION ALL SELECT ingest_batches::text FROM ingest_batches) AS all_of_it",
    "relaxed",
)
WAITING = Statement(
    "test_waiting",
    "SELECT count(*) FROM jobs WHERE group_id = $1 AND report ->> 'phase' = 'waiting for the cluster'",
    "relaxed",
)


class Place(Bench):
    """Sources whose steps run on the cluster."""

    pods: StepPods
    namespace: str
    url: str
    app: FastAPI

    def _configure(self) -> None:
        """The control plane knows the same sources."""
        super()._configure()
        self.app.state.plane = replace(self.app.state.plane, config=self.config)

    def image(self, name: str, text: str, hook: bool = False, **settings: Any) -> None:
        entry = {"command": self.script(name, text), "image": DIGEST, "memory": 64 << 20, "cpu": 0.1, **settings}
        if hook:
            self.hooks[name] = entry
        else:
            self.sources[name] = {"runtime": "kubernetes", **entry}
        self._configure()

    def environ(self) -> dict[str, str]:
        return {
            "PADDOCK_KUBERNETES_IMAGE": "paddock:test",
            "PADDOCK_KUBERNETES_INGEST_NAMESPACE": self.namespace,
            "PADDOCK_INGEST_TRANSFER_URL": self.url,
        }


@pytest.fixture
async def place(
    request: pytest.FixtureRequest,
    dsn: str,
    settings: CoreSettings,
    tmp_path: Path,
    cluster: Cluster,
    namespace: str,
    nodes: Nodes,
    kubelet: Kubelet,
    monkeypatch: pytest.MonkeyPatch,
) -> AsyncIterator[Place]:
    monkeypatch.setenv("KUBECONFIG", str(cluster.kubeconfig))
    # Each pod asks for 256 MiB, for the containers that are ours.
    await nodes.add(memory_bytes=getattr(request, "param", 16) * PLACE, cpu=16, disk_bytes=500 * GIB)
    config = load({"PADDOCK_DATA": str(tmp_path / "data")}, tmp_path)
    known = Kinds([*ingest_kinds.step_kinds(config), *ingest_kinds.internal_kinds(config), BULK])
    async with open_core(dsn, known, settings, metrics=Metrics(CollectorRegistry())) as core:
        async with core.db.transaction() as tx:
            await tx.execute(HOME)
        found = Place(core, tmp_path, config)
        found.namespace = namespace
        found.pods = StepPods(tmp_path / "steps")
        kubelet.choose = lambda _: found.pods.behaviour
        async with serving(found):
            yield found
    for opened in on_cluster.CLUSTERS.values():
        await opened.close()
    on_cluster.CLUSTERS.clear()


@asynccontextmanager
async def serving(place: Place) -> AsyncIterator[None]:
    """The transfer routes, at an address that the containers reach."""
    door = listen("127.0.0.1", 0)
    place.url = f"http://127.0.0.1:{door.getsockname()[1]}"
    place.app = app = create_app(place.core, place.config)
    server = Server(app, place.config)
    answering = asyncio.create_task(server.serve(sockets=[door]))
    try:
        yield
    finally:
        close(app)
        server.should_exit = True
        await answering


async def failed_with(place: Place, run: Run, code: str) -> None:
    """A try of its step failed with this, and waits for the next one."""
    async with asyncio.timeout(60):
        while await place.core.db.fetchval(FAILED, run.group_id) is None:  # noqa: ASYNC110  it is a row that comes
            await asyncio.sleep(0.05)
    assert await place.core.db.fetchval(FAILED, run.group_id) == code


async def ended_at_last(place: Place, run: Run) -> Run:
    """The next try is due at once."""
    async with place.core.db.transaction() as tx:
        await tx.execute("UPDATE jobs SET due_at = paddock_now() WHERE status = 'pending'")
    return await place.ended(run)


async def nothing_left(place: Place, admin: Admin) -> None:
    async def gone() -> bool:
        found = [await admin.ask("GET", path(place.namespace)) for path in (jobs, pods)]
        return not any(one["items"] for one in found)

    async with asyncio.timeout(60):
        while not await gone():  # noqa: ASYNC110  the API server's garbage collector takes it away
            await asyncio.sleep(0.1)


async def test_a_run_goes_through_its_containers_and_leaves_nothing(place: Place, admin: Admin) -> None:
    place.pods.ours_start = True
    place.image("sevens", SEVENS, hook=True)
    place.image("numbers", NUMBERS, config={"total": 8}, hooks=["sevens"])
    run = await place.run("numbers")
    assert (run.status, run.error) == ("completed", None)
    assert [int(row["id"]) for row in await place.rows("numbers")] == [n for n in range(1, 9) if n % 7]
    assert len(place.pods.pods) == 2, "one Job for each step"
    for pod in place.pods.pods:
        spec = pod["spec"]
        [fetch, step] = spec["initContainers"]
        [ship] = spec["containers"]
        assert [one["name"] for one in (fetch, step, ship)] == ["fetch", "step", "ship"]
        assert spec["automountServiceAccountToken"] is False
        assert step["resources"]["limits"]["memory"] == step["resources"]["requests"]["memory"]
        assert "PADDOCK_TRANSFER_TOKEN" not in str(step["env"])
    egress = [pod["metadata"]["labels"]["paddock.io/egress"] for pod in place.pods.pods]
    assert sorted(egress) == ["any", "none"]
    await nothing_left(place, admin)


async def test_out_of_memory_is_tried_at_once_with_twice_as_much(place: Place) -> None:
    ends = [{"exitCode": 137, "reason": "OOMKilled"}]
    place.pods.end_of = lambda _: ends.pop() if ends else None
    place.image("numbers", NUMBERS, config={"total": 2})
    run = await place.run("numbers")
    assert run.status == "completed"
    memory = [pod["spec"]["initContainers"][1]["resources"]["limits"]["memory"] for pod in place.pods.pods]
    assert memory == ["64Mi", "128Mi"]


async def test_a_hook_whose_container_says_bad_input_fails_its_batch_alone(place: Place) -> None:
    place.image(
        "picky", "import os, sys; sys.exit(64) if os.environ['PADDOCK_BATCH'] == '0' else None\n" + SEVENS, hook=True
    )
    place.image("numbers", NUMBERS, config={"total": 4}, batch_size=2, hooks=["picky"])
    run = await place.run("numbers")
    assert (run.status, run.failed_batches) == ("completed", 1)
    [failed] = await runs.batches(place.core.db, run, statuses=["failed"])
    assert failed.error is not None
    assert (failed.n, failed.error["code"]) == (0, "exit_code")
    assert [int(row["id"]) for row in await place.rows("numbers")] == [3, 4], "the second fetch went on after the first"


async def test_a_secret_that_a_step_prints_is_read_by_nobody(place: Place) -> None:
    """Neither the worker nor the control plane can read the Secret: the step's pod alone knows the value."""
    place.pods.secrets = {("shop", "token"): "hush-hush"}
    secrets = {"API_TOKEN": {"secret": "shop", "key": "token"}}
    printing = "import os, sys; print('key=' + os.environ['API_TOKEN']); sys.exit(64)"
    place.image("leaky", printing, hook=True, secrets=secrets)
    place.image("numbers", NUMBERS, config={"total": 1}, hooks=["leaky"])
    run = await place.run("numbers")
    assert (run.status, run.failed_batches) == ("completed", 1)
    kept = await place.core.db.fetchval(KEPT)
    assert "key=***" in kept
    assert "hush-hush" not in kept


async def test_an_image_that_cannot_be_had_stops_the_run(place: Place) -> None:
    """Every batch would fail alike."""
    missing = {"waiting": {"reason": "ErrImageNeverPull", "message": "Container image is not present"}}
    place.pods.end_of = lambda hook: missing if hook == "gone" else None
    place.image("gone", SEVENS, hook=True)
    place.image("numbers", ALL_NUMBERS, config={"total": 4}, batch_size=2, hooks=["gone"])
    run = await place.run("numbers")
    assert run.status == "failed"
    assert run.error is not None
    assert run.error["code"] == "image_unavailable"
    assert {batch.status for batch in await runs.batches(place.core.db, run)} <= {"failed", "cancelled"}


async def test_outputs_that_arrived_count_whatever_became_of_their_job(place: Place) -> None:
    place.pods.lose_ship = True
    place.image("numbers", NUMBERS, config={"total": 3})
    run = await place.run("numbers")
    assert (run.status, len(place.pods.pods)) == ("completed", 1)
    assert [int(row["id"]) for row in await place.rows("numbers")] == [1, 2, 3]


@pytest.mark.parametrize("place", [2], indirect=True)
async def test_on_a_full_cluster_no_more_is_made_than_one_beyond_its_places(place: Place, admin: Admin) -> None:
    """Two places: two run, a third waits for a place, and the fourth slot of the worker waits before it makes a Job."""
    place.pods.held_hooks = True
    place.image("sevens", SEVENS, hook=True)
    place.image("numbers", ALL_NUMBERS, config={"total": 4}, batch_size=1, hooks=["sevens"])
    run = await place.start("numbers")
    async with place.worker():
        async with asyncio.timeout(60):
            while not await place.core.db.fetchval(WAITING, run.group_id):  # noqa: ASYNC110  it is a row that comes
                await asyncio.sleep(0.05)
        made = (await admin.ask("GET", jobs(place.namespace)))["items"]
        assert len([job for job in made if not job["status"].get("conditions")]) <= 3
        place.pods.gate("step").set()
        ended = await place.when(run, lambda now: not now.live)
    assert (ended.status, len(place.pods.pods)) == ("completed", 5), "one Job for each step"


async def test_a_worker_that_comes_after_a_killed_one_takes_its_job_over(place: Place) -> None:
    """The first one stops while `step` runs; the second finds the Job, and there is only one."""
    place.pods.held = {"step"}
    place.image("numbers", NUMBERS, config={"total": 3})
    run = await place.start("numbers")
    async with place.worker():
        await until(lambda: bool(place.pods.pods))
    place.pods.gate("step").set()
    ended = await place.ended(run)
    assert (ended.status, len(place.pods.pods)) == ("completed", 1)


async def test_a_cancelled_run_takes_its_jobs_with_it(place: Place, admin: Admin) -> None:
    place.pods.held = {"step"}
    place.image("numbers", NUMBERS, config={"total": 3})
    run = await place.start("numbers")
    async with place.worker():
        await until(lambda: bool(place.pods.pods))
        await runs.cancel(place.core, run, actor="ann")
        ended: Run = await place.when(run, lambda now: not now.live)
        assert ended.status == "cancelled"
        await nothing_left(place, admin)


async def test_what_a_tap_said_before_it_failed_is_published_up_to_its_last_state(place: Place) -> None:
    place.image("tap", TAP, protocol="singer")
    run = await place.run("tap")
    assert (run.status, run.error, len(place.pods.pods)) == ("completed", None, 2)
    assert [json.loads(row["data"])["n"] for row in await place.rows("tap")] == [1, 2, 3, 4, 5, 6]


async def test_a_job_that_somebody_deletes_while_its_step_runs_is_made_once_more(place: Place, admin: Admin) -> None:
    place.pods.held = {"step"}
    place.image("numbers", NUMBERS, config={"total": 3})
    run = await place.start("numbers")
    async with place.worker():
        async with asyncio.timeout(60):
            while not await place.core.db.fetchval(STARTED, run.group_id):  # noqa: ASYNC110  it is a row that changes
                await asyncio.sleep(0.05)
        [job] = (await admin.ask("GET", jobs(place.namespace)))["items"]
        await admin.delete(jobs(place.namespace, job["metadata"]["name"]))
        await failed_with(place, run, "vanished")
    place.pods.gate("step").set()
    ended = await ended_at_last(place, run)
    assert (ended.status, len(place.pods.pods)) == ("completed", 2)
    assert [int(row["id"]) for row in await place.rows("numbers")] == [1, 2, 3]


async def test_a_quota_that_leaves_no_room_is_waited_for(
    place: Place, admin: Admin, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the events of the Job tell: it has no pod, and is looked at again once it is old enough."""
    monkeypatch.setattr(jobs_of_steps, "NO_POD_AFTER", timedelta(0))
    quotas = f"{namespaces(place.namespace)}/resourcequotas"
    spec = {"metadata": {"name": "none"}, "spec": {"hard": {"pods": "0"}}}
    await admin.create(quotas, {"apiVersion": "v1", "kind": "ResourceQuota", **spec})
    await admin.until(f"{quotas}/none", lambda found: found.get("status", {}).get("hard"))
    place.image("numbers", NUMBERS, config={"total": 3})
    run = await place.start("numbers")
    async with place.worker():
        await failed_with(place, run, "quota_exceeded")
    assert place.pods.pods == []
    await admin.delete(f"{quotas}/none")
    ended = await ended_at_last(place, run)
    assert (ended.status, len(place.pods.pods)) == ("completed", 1)
    await nothing_left(place, admin)
