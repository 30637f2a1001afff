"""Two real control planes on one database and one cluster. One is killed, or stands still and wakes late, in the middle of a start
and of a stop: one pod runs, then none is left, and no row."""

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from uuid import UUID, uuid4

import pytest

from paddock.config import Config
from paddock.exports.snapshot_states import Snapshot
from paddock.instances import removing
from paddock.jobs.core import Core, CoreSettings, open_core
from paddock.known_kinds import all_kinds
from tests.cluster.admin import Admin, Json, pods
from tests.cluster.faults import Faults, Gate, faults_before
from tests.cluster.server import Cluster
from tests.instances.world import ready_snapshot, until, until_gone, until_status
from tests.ports import free_ports
from tests.processes.conftest import installation, server
from tests.processes.installation import Installation, until_ready
from tests.processes.running import Process
from tests.storage.servers import Server

__all__ = ["installation", "server"]

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("pretending")]


@dataclass
class Replica:
    port: int
    faults: Faults
    process: Process


class Replicas:
    """Each has a way of its own to the API server, so that it is known whose call is held."""

    def __init__(self, installation: Installation, config: Config, cluster: Cluster, namespace: str) -> None:
        self.all: list[Replica] = []
        self._installation, self._cluster = installation, cluster
        self._settings = {
            "PADDOCK_RUNTIME": "kubernetes",
            "PADDOCK_KUBERNETES_IMAGE": "paddock.test/paddock:1",
            "PADDOCK_KUBERNETES_INSTANCE_NAMESPACE": namespace,
            "PADDOCK_OBJECT_STORE": config.object_store,
        }

    def start(self, faults: Faults, port: int) -> Process:
        kubeconfig = self._installation.folder / f"kubeconfig-{port}"
        kubeconfig.write_text(self._cluster.kubeconfig.read_text().replace(self._cluster.url, faults.url))
        data = str(self._installation.folder / f"data-{port}")
        return self._installation.serve(port, PADDOCK_DATA=data, KUBECONFIG=str(kubeconfig), **self._settings)

    async def add(self, stack: AsyncExitStack, cluster: Cluster, port: int) -> None:
        faults = await stack.enter_async_context(faults_before(cluster))
        self.all.append(Replica(port, faults, self.start(faults, port)))

    async def ready(self) -> None:
        for one in self.all:
            await asyncio.to_thread(until_ready, one.port, one.process)

    def hold(self, method: str, *, after: bool) -> list[Gate]:
        return [one.faults.hold(method=method, path="/pods", times=None, after=after) for one in self.all]

    async def at(self, gates: list[Gate]) -> Replica:
        """Who came to a gate first."""
        waits = [asyncio.create_task(gate.wait()) for gate in gates]
        done, others = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        for task in others:
            task.cancel()
        found = next(number for number, task in enumerate(waits) if task in done)
        await waits[found]
        return self.all[found]

    async def again(self, replica: Replica) -> None:
        """Another process in its place."""
        replica.process = self.start(replica.faults, replica.port)
        await asyncio.to_thread(until_ready, replica.port, replica.process)


@pytest.fixture
def config(config: Config, s3_server: Server, monkeypatch: pytest.MonkeyPatch) -> Config:
    for name, value in s3_server.environ.items():
        monkeypatch.setenv(name, value)
    return config.model_copy(update={"object_store": f"{s3_server.url}/{uuid4()}"})


@pytest.fixture
async def core(installation: Installation, settings: CoreSettings, config: Config) -> AsyncIterator[Core]:
    async with open_core(installation.dsn, all_kinds(config), settings) as opened:
        yield opened


@pytest.fixture
async def snapshot(core: Core, config: Config) -> Snapshot:
    return await ready_snapshot(core, config)


@pytest.fixture
async def replicas(
    installation: Installation, snapshot: Snapshot, config: Config, cluster: Cluster, namespace: str
) -> AsyncIterator[Replicas]:
    async with AsyncExitStack() as stack:
        made = Replicas(installation, config, cluster, namespace)
        for port in free_ports(2):
            await made.add(stack, cluster, port)
        await made.ready()
        yield made
        for one in made.all:
            if one.process.popen.poll() is None:
                one.process.signal(signal.SIGCONT)
                one.process.signal(signal.SIGKILL)
                one.process.popen.wait()


async def create(installation: Installation, replica: Replica, snapshot: Snapshot) -> str:
    with installation.client(replica.port) as client:
        made = await asyncio.to_thread(
            client.request, "POST", "/api/instances", body={"snapshot_id": str(snapshot.id), "memory_gb": 1}
        )
    return str(made["data"]["id"])


async def stand_still(core: Core, replica: Replica) -> None:
    """Where no transaction of it is open: what it would hold in the database is not what is asked about here."""
    while True:
        replica.process.signal(signal.SIGSTOP)
        held = await open_transactions(core)
        for _ in range(5):
            await asyncio.sleep(0.05)
            held &= await open_transactions(core)
        if not held:
            return
        replica.process.signal(signal.SIGCONT)
        await asyncio.sleep(0.1)


async def open_transactions(core: Core) -> set[tuple[int, object]]:
    rows = await core.db.pool("durable").fetch(
        "SELECT pid, xact_start FROM pg_stat_activity WHERE datname = current_database()"
        " AND xact_start IS NOT NULL AND pid <> pg_backend_pid()"
    )
    return {(row["pid"], row["xact_start"]) for row in rows}


async def only_pod(admin: Admin, namespace: str) -> Json:
    [pod] = await admin.list(pods(namespace))
    return pod


def let_go(gates: list[Gate]) -> None:
    for gate in gates:
        gate.release()


async def test_one_that_is_killed_in_the_middle_of_a_start_and_of_a_stop_leaves_its_work_to_the_other(
    core: Core, installation: Installation, snapshot: Snapshot, replicas: Replicas, admin: Admin, namespace: str
) -> None:
    gates = replicas.hold("POST", after=True)
    id = await create(installation, replicas.all[0], snapshot)
    killed = await replicas.at(gates)
    killed.process.signal(signal.SIGKILL)  # the pod is made, and it never heard of it
    made = await only_pod(admin, namespace)
    let_go(gates)
    await replicas.again(killed)
    found = await until_status(core, id, "running", "failed")
    assert (found.status, found.generation_number) == ("running", 1), found.error
    assert (await only_pod(admin, namespace))["metadata"]["uid"] == made["metadata"]["uid"]

    gates = replicas.hold("DELETE", after=True)
    assert await removing.stop(core, UUID(id), actor="ada", reason=None)
    killed = await replicas.at(gates)
    killed.process.signal(signal.SIGKILL)
    let_go(gates)
    await until_gone(core, id)
    assert await admin.list(pods(namespace)) == []


async def test_one_that_stood_still_in_the_middle_and_wakes_late_changes_nothing(
    core: Core, installation: Installation, snapshot: Snapshot, replicas: Replicas, admin: Admin, namespace: str
) -> None:
    """What it had begun to ask for reaches the API server when the other has long done it."""
    gates = replicas.hold("POST", after=False)
    id = await create(installation, replicas.all[0], snapshot)
    asleep = await replicas.at(gates)
    await stand_still(core, asleep)
    own = gates[replicas.all.index(asleep)]
    let_go([gate for gate in gates if gate is not own])
    assert (await until_status(core, id, "running", "failed")).status == "running"
    made = await only_pod(admin, namespace)
    own.release()
    asleep.process.signal(signal.SIGCONT)

    async def told_that_it_was_there() -> bool:
        came = [one for one in asleep.faults.requests if (one.method, one.code) == ("POST", 409)]
        return bool(came)

    await until("its create was refused", told_that_it_was_there)
    await asyncio.to_thread(until_ready, asleep.port, asleep.process)
    assert (await only_pod(admin, namespace))["metadata"]["uid"] == made["metadata"]["uid"]
    assert (await until_status(core, id, "running", "failed")).status == "running"
    assert await removing.stop(core, UUID(id), actor="ada", reason=None)
    await until_gone(core, id)
    assert await admin.list(pods(namespace)) == []
