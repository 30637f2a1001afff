"""Containers as Jobs on a real API server: taken over after a kill, refused in words, and gone without a trace."""

from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta

import pytest

from paddock.jobs.errors import PermanentRunnerError, TransientResourceError, UserMistake
from paddock.jobs.model import JsonObject
from paddock.runtimes.kubernetes.access import find_access
from paddock.runtimes.kubernetes.client import Kubernetes
from paddock.runtimes.kubernetes.jobs import clean_container
from tests.cluster import behaviours
from tests.cluster.admin import Admin, jobs, namespaces, pods
from tests.cluster.kubelet import Kubelet
from tests.cluster.namespaces import MIB, Nodes
from tests.cluster.server import Cluster
from tests.kubernetes.attempts import MINE, THEIRS, Killed, Work


@pytest.fixture
async def client(cluster: Cluster) -> AsyncIterator[Kubernetes]:
    made = Kubernetes(find_access({"KUBECONFIG": str(cluster.kubeconfig)}))
    yield made
    await made.close()


@pytest.fixture
def work(namespace: str, client: Kubernetes) -> Work:
    return Work(namespace, client)


async def test_it_runs_tells_its_log_and_leaves_nothing(
    work: Work, admin: Admin, namespace: str, nodes: Nodes, kubelet: Kubelet
) -> None:
    await nodes.add()
    assert await work.run() == "well\ndone\n"
    assert work.link.lines == ["well", "done"]
    await admin.until_gone(jobs(namespace, work.name))


async def test_killed_at_any_save_the_next_attempt_takes_over_the_one_job(
    work: Work, admin: Admin, namespace: str, nodes: Nodes, kubelet: Kubelet
) -> None:
    await nodes.add()
    names, kills = set[str](), 0
    while True:
        work.link.dies_after = 0
        try:
            await work.run()
        except Killed:
            kills += 1
            names.add(work.name)
            if work.link.saved["container"]["over"]:
                break
    # The name, that it was made, that it started, that it was over.
    assert kills >= 3
    assert names == {f"step-{work.id}-1"}
    assert await clean(work)
    await admin.until_gone(jobs(namespace, work.name))


async def clean(work: Work) -> bool:
    while not await clean_container(work.turn(), work.spec.namespace, work.cluster):
        pass
    return True


async def test_a_failed_step_is_the_users_and_its_log_is_told_before_it_goes(
    work: Work, admin: Admin, namespace: str, nodes: Nodes, kubelet: Kubelet
) -> None:
    await nodes.add()
    work.running("sh", "-c", "echo what I saw; exit 64")
    problem = await work.fails()
    assert (type(problem), problem.code) == (UserMistake, "exit_code")
    assert "what I saw" in work.link.lines
    await admin.until_gone(jobs(namespace, work.name))
    # Tried by a person, it is another try.
    work.running("sh", "-c", "exit 75")
    problem = await work.fails()
    assert (problem.code, work.name) == ("exit_code", f"step-{work.id}-2")
    assert isinstance(problem, TransientResourceError)
    assert problem.budget == "work"


async def test_out_of_memory_is_tried_at_once_with_twice_as_much_up_to_its_bound(
    work: Work, nodes: Nodes, kubelet: Kubelet
) -> None:
    await nodes.add()
    kubelet.choose = lambda _pod: behaviours.oom_killed
    work.spec = replace(
        work.spec,
        containers=[replace(work.spec.containers[0], memory_bytes=64 * MIB)],
        memory_most=128 * MIB,
    )
    problem = await work.fails()
    assert (type(problem), problem.code) == (UserMistake, "out_of_memory")
    assert (work.link.saved["container"]["try"], work.link.saved["container"]["memory_bytes"]) == (2, 128 * MIB)


async def test_a_quota_that_is_used_up_is_found_in_the_events_of_a_job_without_a_pod(
    work: Work, admin: Admin, namespace: str
) -> None:
    quota = {"metadata": {"name": "none"}, "spec": {"hard": {"pods": "0"}}}
    await admin.create(f"{namespaces(namespace)}/resourcequotas", {"apiVersion": "v1", "kind": "ResourceQuota"} | quota)
    await admin.until(f"{namespaces(namespace)}/resourcequotas/none", lambda found: found.get("status", {}).get("hard"))
    work.later = timedelta(seconds=20)
    problem = await work.fails()
    assert (type(problem), problem.code) == (TransientResourceError, "quota_exceeded")
    assert "exceeded quota: none" in work.diagnosis["words"]


async def test_what_finds_no_node_is_told_apart(work: Work, nodes: Nodes, admin: Admin, namespace: str) -> None:
    await nodes.add(memory_bytes=512 * MIB)
    work.later = timedelta(minutes=11)
    large = replace(work.spec.containers[0], memory_bytes=4096 * MIB)
    work.spec = replace(work.spec, containers=[large])
    problem = await work.fails()
    assert (type(problem), problem.code) == (PermanentRunnerError, "too_large")

    other = Work(namespace, work.cluster.client)
    other.later = work.later
    selective = other.spec.settings.model_copy(update={"node_selector": {"disk": "none-has-it"}})
    other.spec = replace(other.spec, settings=selective)
    assert (await other.fails()).code == "no_matching_node"


async def test_no_room_is_waited_for_by_trying_again(work: Work, nodes: Nodes, admin: Admin, namespace: str) -> None:
    await nodes.add(memory_bytes=512 * MIB)
    others = Work(namespace, work.cluster.client)
    others.spec = replace(others.spec, containers=[replace(others.spec.containers[0], memory_bytes=400 * MIB)])
    await admin.create(jobs(namespace), _manifest(others))
    await admin.until(jobs(namespace, f"{others.spec.name}-1"), lambda job: job.get("status", {}).get("active"))
    work.later = timedelta(minutes=11)
    problem = await work.fails()
    assert (type(problem), problem.code) == (TransientResourceError, "no_room")
    assert "No preemption victims found" in work.diagnosis["words"]


def _manifest(work: Work) -> JsonObject:
    from paddock.runtimes.kubernetes.job_manifest import job_of

    net = timedelta(minutes=30)
    return job_of(work.spec, job=str(work.id), number=1, installation=MINE, memory_bytes=400 * MIB, net=net)


async def test_a_namespace_that_is_not_there_is_said_at_once(work: Work) -> None:
    work.spec = replace(work.spec, namespace="nobody-made-it")
    problem = await work.fails()
    assert (type(problem), problem.code) == (PermanentRunnerError, "namespace_missing")


async def test_a_name_that_the_api_refuses_is_shown_with_its_field(work: Work) -> None:
    work.spec = replace(work.spec, name="Step_1")
    problem = await work.fails()
    assert (type(problem), problem.code) == (PermanentRunnerError, "invalid_spec")
    assert "metadata.name" in problem.message


async def test_a_job_that_somebody_deleted_is_made_anew(
    work: Work, admin: Admin, namespace: str, nodes: Nodes, kubelet: Kubelet
) -> None:
    await nodes.add()
    kubelet.choose = lambda _pod: behaviours.hold
    work.link.dies_after = 1  # once it is made
    with pytest.raises(Killed):
        await work.run()
    work.link.dies_after = None
    await admin.delete(jobs(namespace, work.name), grace=0)
    await admin.until_gone(jobs(namespace, work.name))
    problem = await work.fails()
    assert (type(problem), problem.code) == (TransientResourceError, "vanished")
    kubelet.choose = lambda _pod: behaviours.run
    assert await work.run() == "well\ndone\n"


async def test_what_takes_longer_than_it_may_is_ended_with_its_log(
    work: Work, admin: Admin, namespace: str, nodes: Nodes, kubelet: Kubelet
) -> None:
    await nodes.add()
    work.running("sh", "-c", "echo still here; exec sleep 1000")
    work.later = timedelta(minutes=6)
    problem = await work.fails()
    assert (type(problem), problem.code) == (UserMistake, "deadline_exceeded")
    await admin.until_gone(jobs(namespace, work.name))
    for pod in await admin.list(pods(namespace)):
        await admin.until_gone(pods(namespace, pod["metadata"]["name"]))


async def test_a_job_of_another_installation_is_never_touched(
    work: Work, admin: Admin, namespace: str, nodes: Nodes
) -> None:
    """The same name, which no two jobs of ours have: a database that was cloned."""
    clone = Work(namespace, work.cluster.client, installation=THEIRS)
    clone.id, clone.spec = work.id, work.spec
    await admin.create(jobs(namespace), _manifest(work))
    problem = await clone.fails()
    assert problem.code == "name_taken"
    assert MINE in problem.message
    assert await clean(clone)
    assert await admin.get(jobs(namespace, f"{work.spec.name}-1")) is not None


@pytest.mark.parametrize("reason", ["ImagePullBackOff", "InvalidImageName"])
async def test_an_image_that_cannot_be_had_ends_it_at_once(
    work: Work, nodes: Nodes, kubelet: Kubelet, reason: str
) -> None:
    await nodes.add()
    said = 'Back-off pulling image "paddock.test/step:1": ErrImagePull: not found'
    kubelet.choose = lambda _pod: behaviours.waiting(reason, said)
    problem = await work.fails()
    assert (type(problem), problem.code) == (PermanentRunnerError, "image_unavailable")
    assert said in work.diagnosis["words"]


async def test_a_deadline_before_it_started_is_no_room(work: Work, admin: Admin, namespace: str) -> None:
    """The control plane's own deadline, which removes the pod with its evidence."""
    work.link.dies_after = 1
    with pytest.raises(Killed):
        await work.run()
    work.link.dies_after = None
    await admin.patch(jobs(namespace, work.name), {"spec": {"activeDeadlineSeconds": 1}})
    problem = await work.fails()
    assert (type(problem), problem.code) == (TransientResourceError, "no_room")


async def test_an_eviction_is_nobodys_fault(
    work: Work, admin: Admin, namespace: str, nodes: Nodes, kubelet: Kubelet
) -> None:
    await nodes.add()
    kubelet.choose = lambda _pod: behaviours.pretend_to_run
    work.link.dies_after = 2
    with pytest.raises(Killed):
        await work.run()  # it started
    work.link.dies_after = None
    [pod] = await admin.list(pods(namespace))
    name = pod["metadata"]["name"]
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
    await admin.ask("POST", f"{pods(namespace, name)}/eviction", eviction)
    problem = await work.fails()
    assert (type(problem), problem.code) == (TransientResourceError, "evicted")
    assert isinstance(problem, TransientResourceError)
    assert problem.budget == "cluster"
