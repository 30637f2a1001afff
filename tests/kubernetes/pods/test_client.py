"""The client against a server that has too much to do, breaks lines, or is away."""

import asyncio
import base64
import dataclasses
import json
import os
from pathlib import Path

import pytest
import yaml
from prometheus_client import REGISTRY, CollectorRegistry, generate_latest

from paddock.clock import ManualClock
from paddock.config import ConfigError
from paddock.runtimes.kubernetes.access import Access, find_access
from paddock.runtimes.kubernetes.client import Kubernetes
from paddock.runtimes.kubernetes.errors import ApiError
from paddock.runtimes.kubernetes.metrics import KubernetesMetrics
from paddock.runtimes.kubernetes.pacing import Pacing
from paddock.runtimes.kubernetes.resources import NAMESPACES, PODS, Resource
from paddock.runtimes.kubernetes.watching import NamespaceWatch
from tests.cluster.admin import Admin, pods
from tests.cluster.faults import Faults
from tests.cluster.server import Cluster
from tests.kubernetes.test_cluster_in_the_tests import pod_of


class QuickClock:
    """Sleeps take no time, and are noted."""

    def __init__(self) -> None:
        self.now = 0.0
        self.slept: list[float] = []

    def monotonic(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds
        await asyncio.sleep(0)


@pytest.fixture
def clock() -> QuickClock:
    return QuickClock()


@pytest.fixture
def client(client: Kubernetes, clock: QuickClock) -> Kubernetes:
    client.clock = clock
    client.pacing = Pacing(clock, client.metrics)
    return client


async def test_after_429_no_create_of_the_process_is_sent_until_its_time_and_reads_go_on(
    client: Kubernetes, clock: QuickClock, admin: Admin, namespace: str, faults: Faults
) -> None:
    faults.refuse(429, method="POST", path="/pods", retry_after=60)
    with pytest.raises(ApiError) as refused:
        await client.create(PODS, namespace, pod_of("one"))
    assert (refused.value.code, refused.value.retry_after) == (429, 60)
    for _ in range(5):
        clock.now += 10
        with pytest.raises(ApiError):
            await client.create(PODS, namespace, pod_of("two"))
        assert await client.list(PODS, namespace) == []
    assert [one.method for one in faults.requests].count("POST") == 1

    clock.now += 11
    await client.create(PODS, namespace, pod_of("two"))
    [made] = await admin.list(pods(namespace))
    assert made["metadata"]["name"] == "two"


async def test_reads_and_deletes_are_repeated_and_an_unknown_field_is_refused(
    client: Kubernetes, clock: QuickClock, admin: Admin, namespace: str, faults: Faults
) -> None:
    with pytest.raises(ApiError) as unknown:
        await client.create(PODS, namespace, {**pod_of("one"), "specs": {}})
    assert unknown.value.code == 400
    assert 'unknown field "specs"' in unknown.value.message
    made = await client.create(PODS, namespace, pod_of("one"))

    faults.refuse(503, method="GET", times=2)
    assert await client.get(PODS, namespace, "one") is not None
    faults.lose_request(method="GET", times=2)
    assert await client.get(PODS, namespace, "one") is not None
    faults.refuse(500, method="GET", times=3)
    with pytest.raises(ApiError) as broken:
        await client.get(PODS, namespace, "one")
    assert broken.value.code == 500
    assert sum(clock.slept) < 10

    faults.lose_answer(method="DELETE")
    await client.delete(PODS, namespace, "one", uid=made["metadata"]["uid"], grace_seconds=0)
    assert await admin.get(pods(namespace, "one")) is None


async def test_a_list_whose_second_page_does_not_come_is_an_error_and_no_shorter_list(
    client: Kubernetes, namespace: str, faults: Faults, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(5):
        await client.create(PODS, namespace, pod_of(f"p{number}"))
    monkeypatch.setattr("paddock.runtimes.kubernetes.client.PAGE", 2)
    page = await client.list_page(PODS, namespace, limit=2)
    assert [one["metadata"]["name"] for one in page.items] == ["p0", "p1"]
    faults.cut_list(times=None)
    with pytest.raises(ApiError):
        await client.list_page(PODS, namespace, limit=2, after=page.after)


def restarted(reason: str) -> float:
    return REGISTRY.get_sample_value("paddock_kubernetes_watch_restarts_total", {"reason": reason}) or 0


async def test_the_watch_survives_a_cut_line_and_a_version_that_is_too_old(
    client: Kubernetes, namespace: str, faults: Faults
) -> None:
    watch = NamespaceWatch(client, PODS, namespace, {})
    gone = restarted("gone")
    told: asyncio.Queue[tuple[str, bool]] = asyncio.Queue()

    def changed(before: dict[str, object] | None, now: dict[str, object] | None) -> None:
        found = now or before or {}
        told.put_nowait((str(dict(found["metadata"])["name"]), now is not None))  # type: ignore[call-overload]

    watch.changed = changed

    async def until_told(name: str, there: bool) -> None:
        async with asyncio.timeout(60):
            while await told.get() != (name, there):
                pass

    async with watch.running():
        first = await client.create(PODS, namespace, pod_of("first"))
        await until_told("first", True)
        faults.cut_watches()
        await client.create(PODS, namespace, pod_of("second"))
        await until_told("second", True)
        faults.expire_watches()
        faults.cut_watches()
        await client.delete(PODS, namespace, "first", uid=first["metadata"]["uid"], grace_seconds=0)
        await until_told("first", False)
        assert watch.get("first") is None
        assert watch.get("second") is not None
        # The deletion may have come by the old watch still.
        async with asyncio.timeout(60):
            while restarted("gone") != gone + 1:  # noqa: ASYNC110  it is a counter
                await asyncio.sleep(0.01)


async def test_it_does_what_the_roles_of_deploy_allow_and_no_more(client: Kubernetes, namespace: str) -> None:
    """Else no test with this client would say anything of them."""
    with pytest.raises(ApiError) as refused:
        await client.create(Resource("/api/v1", "secrets"), namespace, {"metadata": {"name": "x"}})
    assert refused.value.code == 403
    assert f"system:serviceaccount:{namespace}:control-plane" in refused.value.message


async def test_twenty_calls_a_second_and_forty_at_once() -> None:
    clock = ManualClock()
    metrics = KubernetesMetrics(CollectorRegistry())
    pacing = Pacing(clock, metrics)
    done: list[int] = []

    async def call(number: int) -> None:
        await pacing.turn()
        done.append(number)

    async with asyncio.TaskGroup() as group:
        for number in range(100):
            group.create_task(call(number))
        await clock.settle()
        assert len(done) == 40
        await clock.advance(1.01)
        assert len(done) == 60
        await clock.advance(2)
        assert len(done) == 100
        for number in range(100, 130):
            group.create_task(call(number))
        await clock.settle()
        assert len(done) == 100  # what was spent is not there yet
        await clock.advance(1)
        assert len(done) == 120
        await clock.advance(1)
    assert done == sorted(done)


def test_every_metric_is_there_at_0_from_the_start() -> None:
    registry = CollectorRegistry()
    KubernetesMetrics(registry)
    shown = generate_latest(registry).decode()
    assert 'paddock_kubernetes_requests_total{code="201",resource="pods",verb="create"} 0.0' in shown
    assert 'paddock_kubernetes_requests_total{code="none",resource="pods",verb="watch"} 0.0' in shown
    assert 'paddock_kubernetes_request_seconds_count{verb="delete"} 0.0' in shown
    assert 'paddock_kubernetes_watch_restarts_total{reason="gone"} 0.0' in shown
    assert "paddock_kubernetes_throttled_seconds_total 0.0" in shown


class Files:
    """Kubeconfigs of the test's cluster, with other users."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self._read = yaml.safe_load(cluster.kubeconfig.read_text())
        self._folder = folder
        self.token = cluster.token
        self.certificate, self.key = cluster.admin_certificate

    def write(self, user: dict[str, object], name: str = "config") -> dict[str, str]:
        [context] = self._read["contexts"]
        told = {**self._read, "users": [{"name": context["context"]["user"], "user": user}]}
        path = self._folder / name
        path.write_text(yaml.safe_dump(told))
        return {"KUBECONFIG": str(path)}


async def reaches(access: Access) -> bool:
    client = Kubernetes(access)
    try:
        return await client.get(NAMESPACES, None, "default") is not None
    except ApiError as refused:
        if refused.code not in (401, 403):
            raise
        return False
    finally:
        await client.close()


async def test_a_token_a_token_file_a_client_certificate_and_an_exec_plugin_are_taken(
    cluster: Cluster, tmp_path: Path
) -> None:
    files = Files(cluster, tmp_path)
    assert not await reaches(find_access(files.write({})))
    assert await reaches(find_access(files.write({"token": files.token})))
    (tmp_path / "token").write_text("not the token")
    access = find_access(files.write({"tokenFile": "token"}))
    assert not await reaches(access)
    (tmp_path / "token").write_text(files.token)  # it was rotated
    assert await reaches(access)
    inside = {
        "client-certificate-data": base64.b64encode(files.certificate.read_bytes()).decode(),
        "client-key-data": base64.b64encode(files.key.read_bytes()).decode(),
    }
    assert await reaches(find_access(files.write(dict(inside))))
    plugin = tmp_path / "plugin"
    credential = {"kind": "ExecCredential", "status": {"token": files.token}}
    plugin.write_text(f"#!/bin/sh\necho >> {tmp_path}/calls\necho '{json.dumps(credential)}'\n")
    plugin.chmod(0o700)
    access = find_access(
        files.write({"exec": {"command": "./plugin", "apiVersion": "client.authentication.k8s.io/v1"}})
    )
    assert await reaches(access)
    assert await reaches(access)
    assert (tmp_path / "calls").read_text().count("\n") == 1
    assert files.token not in repr(access)


async def test_inside_a_cluster_the_service_accounts_token_is_read_for_each_call(
    cluster: Cluster, tmp_path: Path
) -> None:
    (tmp_path / "ca.crt").write_text(cluster.ca_file.read_text())
    (tmp_path / "token").write_text("rotated away")
    host, _, port = cluster.url.removeprefix("https://").partition(":")
    access = find_access({"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": port}, service_account=tmp_path)
    assert not await reaches(access)
    (tmp_path / "token").write_text(cluster.token)
    assert await reaches(access)
    (tmp_path / "token").unlink()
    with pytest.raises(ApiError, match="cannot be read"):
        await Kubernetes(access, clock=QuickClock()).get(NAMESPACES, None, "default")


@pytest.mark.parametrize(
    ("content", "context", "sentence"),
    [
        (None, None, "there is neither a service account in .* nor a kubeconfig at"),
        ("{", None, "is not YAML"),
        ("contexts: []", None, "has no current-context"),
        ("contexts: []", "lab", "has no context 'lab'"),
        ("contexts: [{name: lab, context: {cluster: gone}}]", "lab", "names the cluster 'gone'"),
    ],
)
def test_what_leads_to_no_cluster_is_a_sentence(
    tmp_path: Path, content: str | None, context: str | None, sentence: str
) -> None:
    path = tmp_path / "config"
    if content is not None:
        path.write_text(content)
    with pytest.raises(ConfigError, match=sentence):
        find_access({"KUBECONFIG": str(path)}, context, service_account=tmp_path / "none")


def test_several_files_are_one_and_the_first_that_names_a_thing_has_it(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    one.write_text(
        "current-context: lab\ncontexts: [{name: lab, context: {cluster: c, user: u}}]\nusers: [{name: u, user: {token: first}}]"
    )
    two.write_text(
        "clusters: [{name: c, cluster: {server: 'http://127.0.0.1:1'}}]\nusers: [{name: u, user: {token: second}}]"
    )
    access = find_access({"KUBECONFIG": os.pathsep.join([str(one), str(two)])})
    assert (access.server, access.token) == ("http://127.0.0.1:1", "first")
    assert dataclasses.replace(access).called == "the context 'lab'"
