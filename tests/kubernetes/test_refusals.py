"""What a real API server refuses, in the category it belongs to: its own texts, not ours."""

import asyncio
import dataclasses
from collections.abc import AsyncIterator

import pytest

from paddock.runtimes.diagnosis import Diagnosis
from paddock.runtimes.kubernetes import facts, failures
from paddock.runtimes.kubernetes.access import find_access
from paddock.runtimes.kubernetes.client import Kubernetes
from paddock.runtimes.kubernetes.errors import ApiError
from paddock.runtimes.kubernetes.resources import PODS
from tests.cluster.admin import Admin, Json, namespaces, pods
from tests.cluster.faults import Faults
from tests.cluster.namespaces import MIB, Nodes
from tests.cluster.server import Cluster
from tests.kubernetes.test_cluster_in_the_tests import pod_of

POLICIES = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
BINDINGS = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings"
WEBHOOKS = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
GROUP = "admissionregistration.k8s.io/v1"


@pytest.fixture
async def client(cluster: Cluster) -> AsyncIterator[Kubernetes]:
    made = Kubernetes(find_access({"KUBECONFIG": str(cluster.kubeconfig)}))
    yield made
    await made.close()


async def refused(client: Kubernetes, namespace: str, pod: Json) -> Diagnosis:
    with pytest.raises(ApiError) as caught:
        await client.create(PODS, namespace, pod)
    return failures.of_refusal(caught.value, f"Pod {namespace}/one")


async def test_what_it_refuses_by_itself(client: Kubernetes, admin: Admin, namespace: str, cluster: Cluster) -> None:
    bare = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "one"}}
    found = await refused(client, namespace, {**bare, "spec": {"containers": [{"name": "a", "image": "x"}]}})
    assert (found.category, found.mended_by) == ("pod_security", "operator")

    unknown = pod_of("one")
    unknown["spec"]["restartPolicies"] = "Never"
    found = await refused(client, namespace, unknown)
    assert (found.category, "restartPolicies" in found.words) == ("invalid_spec", True)

    found = await refused(client, namespace, pod_of("Not_A_Name"))
    assert (found.category, "metadata.name" in found.message) == ("invalid_spec", True)

    missing = pod_of("one")
    missing["spec"]["priorityClassName"] = "nobody-made-it"
    assert (await refused(client, namespace, missing)).category == "config_missing"

    assert (await refused(client, "nobody-made-it", pod_of("one"))).category == "namespace_missing"


async def test_what_a_quota_refuses(client: Kubernetes, admin: Admin, namespace: str) -> None:
    place = f"{namespaces(namespace)}/resourcequotas"
    quota: Json = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q"}}
    await admin.create(place, {**quota, "spec": {"hard": {"limits.cpu": "1"}}})
    await admin.until(f"{place}/q", lambda found: found.get("status", {}).get("hard"))
    assert (await refused(client, namespace, pod_of("one"))).category == "quota_needs_requests"
    await admin.patch(f"{place}/q", {"spec": {"hard": {"limits.cpu": None, "pods": "0"}}})
    await admin.until(f"{place}/q", lambda found: found["status"]["hard"] == {"pods": "0"})
    found = await refused(client, namespace, pod_of("one"))
    assert (found.category, found.verdict, found.budget) == ("quota_exceeded", "transient", "cluster")


async def test_what_a_role_does_not_allow_and_a_token_that_is_none(
    client: Kubernetes, admin: Admin, namespace: str, cluster: Cluster
) -> None:
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "nobody"}}
    await admin.create(f"{namespaces(namespace)}/serviceaccounts", account)
    token = await asyncio.to_thread(cluster.kubectl, "create", "token", "nobody", "-n", namespace)
    for said, category in ((token.strip(), "forbidden"), ("no-token-at-all", "unauthorized")):
        access = dataclasses.replace(client.access, token=said, context=cluster.ssl_context())
        other = Kubernetes(access)
        assert (await refused(other, namespace, pod_of("one"))).category == category
        await other.close()


async def test_a_policy_that_denies_and_a_webhook_that_is_down(
    client: Kubernetes, admin: Admin, namespace: str
) -> None:
    only_here = {"matchLabels": {"kubernetes.io/metadata.name": namespace}}
    rule: Json = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
    hook = {
        "name": "down.example.com",
        "clientConfig": {"url": "https://127.0.0.1:9/"},
        "rules": [rule],
        "namespaceSelector": only_here,
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "timeoutSeconds": 2,
    }
    metadata = {"name": f"down-{namespace}"}
    webhook: Json = {"apiVersion": GROUP, "kind": "ValidatingWebhookConfiguration", "metadata": metadata}
    await admin.create(WEBHOOKS, {**webhook, "webhooks": [hook]})
    try:
        found = await until_refused(client, namespace, "webhook_unavailable")
        assert (found.verdict, "down.example.com" in found.words) == ("transient", True)
    finally:
        await admin.delete(f"{WEBHOOKS}/down-{namespace}")

    policy: Json = {"apiVersion": GROUP, "kind": "ValidatingAdmissionPolicy", "metadata": {"name": f"no-{namespace}"}}
    validations = [{"expression": "false", "message": "not on a Wednesday"}]
    match = {"resourceRules": [rule], "namespaceSelector": only_here}
    await admin.create(POLICIES, {**policy, "spec": {"matchConstraints": match, "validations": validations}})
    binding: Json = {"apiVersion": GROUP, "kind": "ValidatingAdmissionPolicyBinding"}
    spec = {"policyName": f"no-{namespace}", "validationActions": ["Deny"]}
    await admin.create(BINDINGS, {**binding, "metadata": {"name": f"no-{namespace}"}, "spec": spec})
    try:
        found = await until_refused(client, namespace, "admission_denied")
        assert "not on a Wednesday" in found.words
    finally:
        await admin.delete(f"{POLICIES}/no-{namespace}")


async def until_refused(client: Kubernetes, namespace: str, category: str) -> Diagnosis:
    """A rule takes effect a moment after it was made."""
    async with asyncio.timeout(60):
        while True:
            try:
                await client.create(
                    PODS, namespace, pod_of(f"one-{asyncio.get_running_loop().time()}".replace(".", "-"))
                )
            except ApiError as problem:
                found = failures.of_refusal(problem, "Pod")
                if found.category == category:
                    return found
            await asyncio.sleep(0.05)


async def test_a_namespace_that_is_being_deleted(client: Kubernetes, admin: Admin, namespace: str) -> None:
    """Held there by a finalizer of a pod."""
    kept = pod_of("kept")
    kept["metadata"]["finalizers"] = ["tests.example/held"]
    await admin.create(pods(namespace), kept)
    await admin.delete(namespaces(namespace))
    await admin.until(namespaces(namespace), lambda found: found["metadata"].get("deletionTimestamp"))
    found = await refused(client, namespace, pod_of("one"))
    await admin.patch(pods(namespace, "kept"), {"metadata": {"finalizers": None}})
    assert found.category == "namespace_terminating"


async def test_a_gate_is_waited_for_without_a_clock_and_a_preemption_is_nobodys_fault(
    admin: Admin, namespace: str, nodes: Nodes
) -> None:
    gated = pod_of("gated")
    gated["spec"]["schedulingGates"] = [{"name": "tests.example/held"}]
    await admin.create(pods(namespace), gated)
    path = pods(namespace, "gated")
    held = await admin.until(path, lambda pod: pod.get("status", {}).get("conditions"))
    assert failures.diagnose(facts.of_pod(held)) is None  # type: ignore[arg-type]
    waits = failures.waiting(held)  # type: ignore[arg-type]
    assert waits is not None
    assert waits.clock is None

    await nodes.add(memory_bytes=256 * MIB)
    await admin.create(pods(namespace), pod_of("victim", memory_bytes=200 * MIB))
    await admin.until(pods(namespace, "victim"), lambda pod: pod["spec"].get("nodeName"))
    place = "/apis/scheduling.k8s.io/v1/priorityclasses"
    high = {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": namespace},
        "value": 1000,
    }
    await admin.create(place, high)
    try:
        wanted = pod_of("wanted", memory_bytes=200 * MIB)
        wanted["spec"]["priorityClassName"] = namespace
        await admin.create(pods(namespace), wanted)
        taken = await admin.until(
            pods(namespace, "victim"),
            lambda pod: any(one["type"] == "DisruptionTarget" for one in pod["status"].get("conditions", [])),
        )
    finally:
        await admin.delete(f"{place}/{namespace}")
    found = failures.diagnose(facts.of_pod(taken))  # type: ignore[arg-type]
    assert found is not None
    assert (found.category, found.verdict) == ("preempted", "transient")


async def test_a_server_that_wants_fewer_requests_or_breaks(cluster: Cluster, faults: Faults, namespace: str) -> None:
    access = find_access({"KUBECONFIG": str(cluster.kubeconfig)})
    client = Kubernetes(dataclasses.replace(access, server=faults.url))
    faults.refuse(500, method="POST", path="/pods", message="etcdserver: leader changed")
    assert (await refused(client, namespace, pod_of("one"))).category == "api_unavailable"
    faults.refuse(429, method="POST", path="/pods", retry_after=1)
    assert (await refused(client, namespace, pod_of("one"))).category == "throttled"
    await client.close()
