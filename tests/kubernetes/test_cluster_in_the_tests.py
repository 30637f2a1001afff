"""What the other tests here stand on: pods are scheduled, run, resized and let go for real, and the proxy misbehaves."""

import asyncio
import sys
from pathlib import Path

import aiohttp
import pytest

from tests.cluster import behaviours
from tests.cluster.admin import Admin, Json, Refused, admin_of, jobs, pods
from tests.cluster.faults import Faults
from tests.cluster.kubelet import Kubelet
from tests.cluster.losing import Losing
from tests.cluster.namespaces import MIB, Nodes
from tests.cluster.server import Cluster

WEB = "import os; from http.server import *; HTTPServer((os.environ['POD_IP'], 8080), SimpleHTTPRequestHandler).serve_forever()"


def pod_of(name: str, *command: str, memory_bytes: int = 64 * MIB, **container: object) -> Json:
    """One that restricted Pod Security admits."""
    room = {"memory": f"{memory_bytes // MIB}Mi"}
    main: Json = {
        "name": "main",
        "image": "paddock.test/paddock:1",
        "command": list(command),
        "resources": {"requests": room, "limits": room},
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }
    spec: Json = {
        "containers": [main | container],
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 10,
        "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


def is_ready(pod: Json) -> bool:
    conditions = pod["status"].get("conditions", [])
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


async def test_a_pod_is_scheduled_run_resized_and_let_go(
    cluster: Cluster, admin: Admin, namespace: str, nodes: Nodes, kubelet: Kubelet
) -> None:
    node = await nodes.add()
    probe = {"httpGet": {"path": "/", "port": 8080}}
    path = pods(namespace, "one")
    await admin.create(pods(namespace), pod_of("one", sys.executable, "-c", WEB, startupProbe=probe))
    up = await admin.until(path, is_ready)
    assert up["spec"]["nodeName"] == node
    async with aiohttp.ClientSession() as session, session.get(f"http://{up['status']['podIP']}:8080/") as answer:
        assert answer.status == 200
    logged = await asyncio.to_thread(cluster.kubectl, "logs", "--tail=1", "-n", namespace, "one")
    assert "GET / HTTP" in logged

    room = {"memory": "128Mi"}
    larger = {"containers": [{"name": "main", "resources": {"requests": room, "limits": room}}]}
    await admin.patch(f"{path}/resize", {"spec": larger}, "strategic")
    await admin.until(
        path, lambda pod: pod["status"]["containerStatuses"][0]["resources"]["limits"]["memory"] == "128Mi"
    )

    process = kubelet.process_of(up)
    await admin.delete(path)
    await admin.until_gone(path)
    assert process is not None
    assert not Path(f"/proc/{process}").exists()


async def test_a_pod_that_finds_no_room_waits_and_one_without_its_node_stays(
    admin: Admin, namespace: str, nodes: Nodes, kubelet: Kubelet
) -> None:
    await nodes.add(memory_bytes=256 * MIB)
    kubelet.choose = lambda pod: behaviours.pretend_to_run
    kubelet.keeps.add("small")
    await admin.create(pods(namespace), pod_of("small"))
    await admin.until(pods(namespace, "small"), is_ready)
    await admin.create(pods(namespace), pod_of("large", memory_bytes=224 * MIB))
    waiting = await admin.until(pods(namespace, "large"), lambda pod: pod["status"].get("conditions"))
    assert waiting["status"]["conditions"][0]["reason"] == "Unschedulable"
    assert "1 Insufficient memory" in waiting["status"]["conditions"][0]["message"]

    await admin.delete(pods(namespace, "small"))
    assert (await admin.get(pods(namespace, "small"))) is not None
    await kubelet.let_go("small")
    await admin.until(pods(namespace, "large"), is_ready)


async def test_a_job_ends_as_its_pod_does(admin: Admin, namespace: str, nodes: Nodes, kubelet: Kubelet) -> None:
    await nodes.add()
    template = pod_of("", "sh", "-c", "echo so long; exit 3")["spec"]
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "steps"}}
    await admin.create(jobs(namespace), job | {"spec": {"backoffLimit": 0, "template": {"spec": template}}})
    done = await admin.until(jobs(namespace, "steps"), lambda one: one["status"].get("failed"))
    (pod,) = await admin.list(pods(namespace))
    assert done["status"]["failed"] == 1
    assert pod["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 3
    assert kubelet.log_of(pod["metadata"]["name"]).read_text() == "so long\n"


@pytest.mark.slow
async def test_the_pods_of_a_lost_node_are_to_go_and_stay(losing: Losing) -> None:
    node = await losing.add()
    path = pods(losing.namespace, "stranded")
    await losing.admin.create(pods(losing.namespace), pod_of("stranded"))
    bound = await losing.admin.until(path, lambda pod: pod["spec"].get("nodeName"))
    assert bound["spec"]["nodeName"] == node
    losing.lose(node)
    lost = await losing.admin.until(path, lambda pod: "deletionTimestamp" in pod["metadata"])
    (target,) = [one for one in lost["status"]["conditions"] if one["type"] == "DisruptionTarget"]
    assert target["reason"] == "DeletionByTaintManager"


async def test_the_proxy_refuses_loses_cuts_and_holds(cluster: Cluster, namespace: str, faults: Faults) -> None:
    async with admin_of(cluster, faults.url) as client:
        faults.refuse(429, method="POST", retry_after=7)
        with pytest.raises(Refused, match="429"):
            await client.create(pods(namespace), pod_of("refused"))
        assert await client.get(pods(namespace, "refused")) is None

        faults.lose_answer()
        with pytest.raises(aiohttp.ClientError):
            await client.create(pods(namespace), pod_of("lost"))
        assert await client.get(pods(namespace, "lost")) is not None

        await client.create(pods(namespace), pod_of("another"))
        faults.cut_list()
        first = await client.ask("GET", pods(namespace), limit="1")
        rest = {"limit": "1", "continue": first["metadata"]["continue"]}
        with pytest.raises(aiohttp.ClientError):
            await client.ask("GET", pods(namespace), **rest)
        assert len((await client.ask("GET", pods(namespace), **rest))["items"]) == 1

        changes = client.watch(pods(namespace), "0")
        assert (await anext(changes))["type"] == "ADDED"
        assert faults.cut_watches() == 1
        with pytest.raises(aiohttp.ClientError):
            [change async for change in changes]
        faults.expire_watches()
        assert [change["object"]["code"] async for change in client.watch(pods(namespace), "0")] == [410]

        gate = faults.hold(method="DELETE")
        deleting = asyncio.create_task(client.delete(pods(namespace, "lost"), grace=0))
        await gate.wait()
        assert await client.get(pods(namespace, "lost")) is not None
        gate.release()
        await deleting
        assert await client.get(pods(namespace, "lost")) is None

        with faults.gone_away(), pytest.raises(aiohttp.ClientError):
            await client.get(pods(namespace, "another"))
        assert faults.requests[0].code == 429
