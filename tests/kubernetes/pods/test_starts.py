"""One pod for each start, whatever is lost on the way; and how long a start waits for what."""

import asyncio
from uuid import UUID

import httpx2
import pytest

from paddock.config import Config
from paddock.exports.snapshot_states import Snapshot
from paddock.instances.model import SQL
from paddock.jobs.core import Core
from paddock.jobs.errors import PermanentRunnerError, TransientResourceError
from paddock.jobs.outcomes import Again
from paddock.runtimes.kubernetes.client import Kubernetes
from paddock.runtimes.kubernetes.runtime import KubernetesRuntime
from paddock.runtimes.runtime import Start, StartRefused
from tests.cluster import behaviours
from tests.cluster.admin import Admin, pods
from tests.cluster.faults import Faults
from tests.cluster.kubelet import Kubelet
from tests.cluster.namespaces import Nodes
from tests.instances.world import create, ready_snapshot
from tests.kubernetes.pods.turns import Turns, start_turns

INSTANCE = UUID("019a8b1e-4c50-7000-9d6e-6f1d3c0a51e7")
NAME = f"ladybug-wrapper-{INSTANCE}-1"
GIB = 1 << 30
FIRST, SECOND = UUID(int=7), UUID(int=8)


def start_of(number: int = 1, generation: UUID = FIRST, **fields: object) -> Start:
    told: dict[str, object] = {
        "name": f"ladybug-wrapper-{INSTANCE}-{number}",
        "instance": INSTANCE,
        "generation": generation,
        "wrapper_type": "ladybug",
        "memory_bytes": GIB,
        "cpu": 1,
        "disk_bytes": GIB,
        "token_sha256": "ab" * 32,
        "owner": "Ada Lovelace <ada@example.org>",
    }
    return Start(**{**told, **fields})  # type: ignore[arg-type]


async def only_pod(admin: Admin, namespace: str) -> str:
    [pod] = await admin.list(pods(namespace))
    return str(pod["metadata"]["uid"])


async def test_a_create_whose_answer_was_lost_made_the_pod_and_is_not_sent_again(
    runtime: KubernetesRuntime, admin: Admin, namespace: str, faults: Faults
) -> None:
    faults.lose_answer(method="POST", path="/pods")
    assert await runtime.start(start_of())
    uid = await only_pod(admin, namespace)
    # Repeated after a crash, by this or another replica.
    assert await runtime.start(start_of())
    assert await only_pod(admin, namespace) == uid
    assert [one.method for one in faults.requests if one.method == "POST"] == ["POST", "POST"]


async def test_a_create_that_never_came_there_is_said_and_can_be_tried_again(
    runtime: KubernetesRuntime, admin: Admin, namespace: str, faults: Faults
) -> None:
    faults.lose_request(method="POST", path="/pods")
    with pytest.raises(TransientResourceError) as lost:
        await runtime.start(start_of())
    assert (lost.value.code, lost.value.budget) == ("api_unavailable", "cluster")
    assert await admin.list(pods(namespace)) == []
    assert await runtime.start(start_of())


async def test_two_replicas_that_start_the_same_at_once_make_one_pod(
    runtime: KubernetesRuntime, client: Kubernetes, admin: Admin, namespace: str
) -> None:
    assert await asyncio.gather(*(runtime.start(start_of()) for _ in range(5))) == [True] * 5
    await only_pod(admin, namespace)


async def test_a_name_that_something_else_has_is_said_and_left_alone(
    runtime: KubernetesRuntime, admin: Admin, namespace: str
) -> None:
    """Of another generation, or of another installation in this namespace."""
    assert await runtime.start(start_of(generation=SECOND))
    uid = await only_pod(admin, namespace)
    with pytest.raises(StartRefused, match=f"There is another pod with the name {NAME} already"):
        await runtime.start(start_of())

    runtime.installation = "somebody-else"
    with pytest.raises(StartRefused, match="belongs to the installation the-tests"):
        await runtime.start(start_of(generation=SECOND))
    assert await runtime.get(NAME) is None
    assert await runtime.delete(NAME)
    assert await only_pod(admin, namespace) == uid


async def test_a_start_waits_until_the_pod_before_it_is_gone(
    runtime: KubernetesRuntime, admin: Admin, namespace: str, nodes: Nodes, kubelet: Kubelet
) -> None:
    await nodes.add()
    kubelet.choose = lambda _pod: behaviours.pretend_to_run
    kubelet.keeps.add(NAME)
    assert await runtime.start(start_of())
    await admin.until(pods(namespace, NAME), lambda pod: pod["status"]["phase"] == "Running")
    before = await only_pod(admin, namespace)
    assert not await runtime.delete(NAME)

    assert not await runtime.start(start_of())  # its name is still taken
    assert not await runtime.start(start_of(2, SECOND))  # an earlier start of the same instance is still ending
    assert await only_pod(admin, namespace) == before
    await kubelet.let_go(NAME)
    await admin.until_gone(pods(namespace, NAME))
    assert await runtime.start(start_of(2, SECOND))
    assert await only_pod(admin, namespace) != before


async def test_a_pod_keeps_to_the_restricted_profile_and_tells_whose_it_is(
    runtime: KubernetesRuntime, admin: Admin, namespace: str
) -> None:
    assert await runtime.start(start_of(memory_bytes=3 * GIB, cpu=2, disk_bytes=5 * GIB))
    [pod] = await admin.list(pods(namespace))
    labels, annotations, spec = pod["metadata"]["labels"], pod["metadata"]["annotations"], pod["spec"]
    assert labels["app"] == "ladybug-wrapper"
    assert labels["paddock.io/installation"] == "the-tests"
    assert labels["paddock.io/generation"] == str(FIRST)
    assert labels["paddock.io/owner"] == "Ada-Lovelace-ada-example.org"
    assert annotations["paddock.io/owner"] == "Ada Lovelace <ada@example.org>"
    assert annotations["cluster-autoscaler.kubernetes.io/safe-to-evict"] == "false"
    assert (spec["restartPolicy"], spec["automountServiceAccountToken"], spec["enableServiceLinks"]) == (
        "Never",
        False,
        False,
    )
    [container] = spec["containers"]
    assert container["resources"] == {
        "requests": {"cpu": "2", "memory": "3Gi", "ephemeral-storage": "5Gi"},
        "limits": {"memory": "3Gi", "ephemeral-storage": "5Gi"},
    }
    assert "env" not in container
    assert spec["volumes"] == [{"name": "data", "emptyDir": {"sizeLimit": "5Gi"}}]


@pytest.fixture
async def snapshot(core: Core, config: Config) -> Snapshot:
    return await ready_snapshot(core, config)


async def begun(core: Core, config: Config, ada: httpx2.AsyncClient, snapshot: Snapshot) -> tuple[Turns, str]:
    made = await create(ada, snapshot_id=str(snapshot.id))
    turns = await start_turns(core, config, made["id"])
    assert isinstance(await turns.next(), Again)
    row = await core.db.fetchrow(SQL["instance_row"], UUID(made["id"]))
    assert row is not None
    return turns, row["pod_name"]


async def until_unschedulable(admin: Admin, namespace: str, name: str) -> None:
    def told(pod: dict[str, object]) -> bool:
        return "Unschedulable" in str(pod["status"])

    await admin.until(pods(namespace, name), told)


async def test_what_no_node_is_large_enough_for_fails_once_its_two_minutes_are_over(
    core: Core, config: Config, ada: httpx2.AsyncClient, snapshot: Snapshot, admin: Admin, namespace: str, nodes: Nodes
) -> None:
    await nodes.add(memory_bytes=512 << 20)
    turns, name = await begun(core, config, ada, snapshot)
    await until_unschedulable(admin, namespace, name)

    waits = await turns.next(10)
    assert isinstance(waits, Again)
    assert "Insufficient memory" in turns.saved["progress"]["waiting_for"]
    assert isinstance(await turns.next(125), Again)
    with pytest.raises(PermanentRunnerError) as too_large:
        await turns.next(135)
    assert too_large.value.code == "STARTUP_FAILED"
    assert turns.saved["diagnosis"]["category"] == "too_large"


async def test_what_waits_for_room_is_made_anew_until_half_an_hour_is_over(
    core: Core,
    config: Config,
    ada: httpx2.AsyncClient,
    snapshot: Snapshot,
    admin: Admin,
    runtime: KubernetesRuntime,
    namespace: str,
    nodes: Nodes,
    kubelet: Kubelet,
) -> None:
    await nodes.add(memory_bytes=1500 << 20)
    kubelet.choose = lambda _pod: behaviours.pretend_to_run
    assert await runtime.start(start_of())  # takes all the room there is
    await admin.until(pods(namespace, NAME), lambda pod: pod["status"]["phase"] == "Running")
    turns, name = await begun(core, config, ada, snapshot)
    await until_unschedulable(admin, namespace, name)
    assert isinstance(await turns.next(10), Again)

    with pytest.raises(TransientResourceError) as full:
        await turns.next(140)
    assert (full.value.code, full.value.budget) == ("no_room", "cluster")
    assert await admin.get(pods(namespace, name)) is None

    assert isinstance(await turns.next(150), Again)
    await until_unschedulable(admin, namespace, name)
    assert isinstance(await turns.next(160), Again)
    await kubelet.tell_event(name, "TriggeredScaleUp", "pod triggered scale-up: [{group 1->2 (max: 4)}]", "Normal")
    assert isinstance(await turns.next(400), Again)  # a node is being added: it has ten minutes
    assert isinstance(await turns.next(700), Again)
    with pytest.raises(TransientResourceError):
        await turns.next(800)

    assert isinstance(await turns.next(1000), Again)
    await until_unschedulable(admin, namespace, name)
    assert isinstance(await turns.next(1700), Again)
    with pytest.raises(PermanentRunnerError, match=r"There is no room for the instance: .*Insufficient memory") as over:
        await turns.next(1900)
    assert over.value.code == "STARTUP_FAILED"


async def test_a_refusal_that_may_pass_is_waited_for_in_words_and_a_token_that_stays_refused_is_not(
    core: Core, config: Config, ada: httpx2.AsyncClient, snapshot: Snapshot, runtime: KubernetesRuntime, faults: Faults
) -> None:
    made = await create(ada, snapshot_id=str(snapshot.id))
    turns = await start_turns(core, config, made["id"])
    message = 'pods "x" is forbidden: exceeded quota: q, requested: limits.memory=1Gi, used: 0, limited: 0'
    faults.refuse(403, method="POST", path="/pods", message=message, reason="Forbidden")
    with pytest.raises(TransientResourceError) as full:
        await turns.next()
    assert (full.value.code, full.value.budget) == ("quota_exceeded", "cluster")
    assert turns.saved["progress"]["waiting_for"].startswith("another try: The quota of the namespace leaves no room")

    faults.refuse(401, method="POST", path="/pods", times=3, reason="Unauthorized")
    for _ in range(2):
        with pytest.raises(TransientResourceError) as unknown:
            await turns.next()
        assert unknown.value.code == "unauthorized"
    with pytest.raises(PermanentRunnerError) as refused:
        await turns.next()
    assert refused.value.code == "STARTUP_FAILED"
    assert turns.saved["diagnosis"]["category"] == "unauthorized"


async def test_an_image_that_cannot_be_had_fails_the_start_at_once_and_a_missing_secret_after_a_minute(
    core: Core,
    config: Config,
    ada: httpx2.AsyncClient,
    snapshot: Snapshot,
    admin: Admin,
    runtime: KubernetesRuntime,
    namespace: str,
    nodes: Nodes,
    kubelet: Kubelet,
) -> None:
    await nodes.add()
    kubelet.choose = lambda _pod: behaviours.waiting("ErrImagePull", "manifest unknown")
    turns, name = await begun(core, config, ada, snapshot)
    await admin.until(pods(namespace, name), lambda pod: "ErrImagePull" in str(pod["status"]))
    with pytest.raises(PermanentRunnerError) as missing:
        await turns.next(1)
    assert missing.value.code == "STARTUP_FAILED"
    assert turns.saved["diagnosis"]["category"] == "image_unavailable"
    assert "manifest unknown" in turns.saved["diagnosis"]["words"]

    kubelet.choose = lambda _pod: behaviours.waiting("CreateContainerConfigError", 'secret "x" not found')
    turns, name = await begun(core, config, ada, snapshot)
    await admin.until(pods(namespace, name), lambda pod: "CreateContainerConfigError" in str(pod["status"]))
    assert isinstance(await turns.next(10), Again)
    assert isinstance(await turns.next(69), Again)
    with pytest.raises(PermanentRunnerError):
        await turns.next(72)
    assert turns.saved["diagnosis"]["category"] == "config_missing"


async def test_one_that_never_begins_on_its_node_is_made_anew_three_times(
    core: Core,
    config: Config,
    ada: httpx2.AsyncClient,
    snapshot: Snapshot,
    admin: Admin,
    namespace: str,
    nodes: Nodes,
    kubelet: Kubelet,
) -> None:
    await nodes.add()
    kubelet.choose = lambda _pod: behaviours.pull
    turns, name = await begun(core, config, ada, snapshot)
    at = 0
    for time in range(1, 4):
        await admin.until(pods(namespace, name), lambda pod: "ContainerCreating" in str(pod["status"]))
        await kubelet.tell_event(name, "FailedMount", "MountVolume.SetUp failed for volume")
        assert isinstance(await turns.next(at + 10), Again)
        assert isinstance(await turns.next(at + 300), Again)
        with pytest.raises(TransientResourceError if time < 3 else PermanentRunnerError) as late:
            await turns.next(at + 320)
        assert late.value.code == ("volume_or_network" if time < 3 else "STARTUP_FAILED")
        at += 400
        if time < 3:
            await admin.until_gone(pods(namespace, name))
            assert isinstance(await turns.next(at), Again)
