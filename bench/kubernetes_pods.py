"""Many pods on a real API server: what listing them costs beside other clients, and reconciling them with as many rows beside
reading the same list and nothing more; how soon a start goes on; and what an instance's life and an idle control plane ask of
the API server.

CPU of this process, for reconciliation PostgreSQL's too; the API server's own is the same for all. The clients of others are
measured where they are installed: `pip install kubernetes kubernetes-asyncio lightkube`.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import os
import re
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from itertools import chain, repeat
from typing import Any
from uuid import UUID

import aiohttp
import asyncpg
import orjson
import psutil
from prometheus_client import REGISTRY

from bench.background_passes import INSTANCES, opened
from bench.environment import Env
from bench.figures import Figure, at_most, missing, shown
from paddock.background import reconciliation, records
from paddock.background.ticks import Budget, Tick
from paddock.config import Config
from paddock.instances.starting import PAUSES
from paddock.jobs.core import Core
from paddock.runtimes.kubernetes.access import find_access
from paddock.runtimes.kubernetes.client import PAGE, Kubernetes
from paddock.runtimes.kubernetes.manifest import INSTALLATION, pod_of
from paddock.runtimes.kubernetes.pacing import Pacing
from paddock.runtimes.kubernetes.pod_settings import PodSettings
from paddock.runtimes.kubernetes.resources import PODS
from paddock.runtimes.kubernetes.runtime import KubernetesRuntime
from paddock.runtimes.runtime import Start
from tests.cluster import behaviours
from tests.cluster.admin import Admin, admin_of, pods
from tests.cluster.namespaces import Nodes, new_namespace
from tests.cluster.server import Cluster, shared_cluster

OURS = "the-bench"
AT_ONCE = 16
GIB = 1 << 30
ROUNDS = 5
# So many instances that nobody asks, and how often reconciliation lists their pods.
IDLE, PASS_SECONDS = 20, 300.0
_RESOURCE = re.compile(r'resource="(pods|events)"')


async def run(env: Env) -> list[Figure]:
    with shared_cluster() as cluster:
        async with admin_of(cluster) as admin:
            return [
                *await _listing(env, cluster, admin),
                *await _reconciliation(env, cluster, admin),
                *await _requests(cluster, admin),
                *await _going_on(env, cluster, admin),
                *await _idle(env, cluster, admin),
            ]


@dataclass(frozen=True, slots=True)
class Named:
    """A start, and so a pod."""

    id: UUID
    generation: UUID
    name: str


def _start(named: Named) -> Start:
    return Start(
        name=named.name,
        instance=named.id,
        generation=named.generation,
        wrapper_type="ladybug",
        memory_bytes=GIB,
        cpu=1,
        disk_bytes=GIB,
        token_sha256="ab" * 32,
        owner="owner",
    )


@contextlib.asynccontextmanager
async def running_pods(admin: Admin, starts: Sequence[Named]) -> AsyncIterator[str]:
    """The namespace of a pod for each, as they are while they run."""
    async with new_namespace(admin) as namespace:
        node = await Nodes(admin, namespace).add(memory_bytes=len(starts) * 2 * GIB, cpu=10**6, pods=10**6)
        waiting = list(starts)

        async def make() -> None:
            while waiting:
                manifest = pod_of(
                    _start(waiting.pop()), image="paddock.test/paddock:1", installation=OURS, settings=PodSettings()
                )
                manifest["spec"]["nodeName"] = node
                made = await admin.create(pods(namespace), manifest)
                status = {"status": behaviours.running(made, "127.0.0.1")}
                await admin.patch(f"{pods(namespace, made['metadata']['name'])}/status", status, "strategic")

        await asyncio.gather(*(make() for _ in range(AT_ONCE)))
        try:
            yield namespace
        finally:
            await admin.ask("DELETE", pods(namespace), {"gracePeriodSeconds": 0})


@contextlib.asynccontextmanager
async def _client(cluster: Cluster) -> AsyncIterator[Kubernetes]:
    """Its pace is for a server that others use too; here it would only lengthen the run."""
    made = Kubernetes(find_access({"KUBECONFIG": str(cluster.kubeconfig)}))
    made.pacing = Pacing(made.clock, made.metrics, rate=1e6, burst=1e6)
    try:
        yield made
    finally:
        await made.close()


async def _cpu(work: Callable[[], Awaitable[object]], seconds: float) -> float:
    """Of this process, for one."""
    await work()
    done, began, until = 0, time.process_time(), time.perf_counter() + seconds
    while time.perf_counter() < until or not done:
        await work()
        done += 1
    return (time.process_time() - began) / done


# Listing


async def _listing(env: Env, cluster: Cluster, admin: Admin) -> list[Figure]:
    count = 200 if env.quick else 2_000
    name = f"{count:,} pods listed in pages: CPU"
    starts = [Named(UUID(int=n), UUID(int=n), f"ladybug-wrapper-{UUID(int=n)}-1") for n in range(1, count + 1)]
    figures = []
    async with running_pods(admin, starts) as namespace, _client(cluster) as client:
        ours = partial(_ours, client, namespace, count)
        contenders: tuple[tuple[str, str, Contender, float], ...] = (
            ("the official client", "kubernetes", _official, 0.25),
            ("kubernetes_asyncio", "kubernetes_asyncio", _asyncio_client, 0.2),
            ("lightkube", "lightkube", _lightkube, 1.1),
        )
        for told, module, contender, goal in contenders:
            try:
                importlib.import_module(module)
            except ImportError:
                figures.append(missing(f"{name} / {told}", "x", f"<= {goal:g} x"))
                continue
            async with contender(cluster, namespace, count) as theirs:
                ratios = []
                for _ in range(1 if env.quick else ROUNDS):
                    seconds = 0.5 if env.quick else 3
                    our, their = await _cpu(ours, seconds), await _cpu(theirs, seconds)
                    ratios.append(our / their)
                    env.say(f"{told}: {1e3 * our:.0f} ms, theirs {1e3 * their:.0f} ms")
            figures.append(at_most(f"{name} / {told}", ratios, goal))
        figures.append(shown(name, [await _cpu(ours, 0.5 if env.quick else 3)], "s"))
    return figures


async def _ours(client: Kubernetes, namespace: str, count: int) -> None:
    _check(len(await client.list(PODS, namespace)), count)


def _check(found: int, count: int) -> None:
    if found != count:
        raise RuntimeError(f"{found} pods were listed, and there are {count}.")


Contender = Callable[[Cluster, str, int], contextlib.AbstractAsyncContextManager[Callable[[], Awaitable[object]]]]


@contextlib.asynccontextmanager
async def _official(cluster: Cluster, namespace: str, count: int) -> AsyncIterator[Callable[[], Awaitable[object]]]:
    kubernetes: Any = importlib.import_module("kubernetes")
    kubernetes.config.load_kube_config(str(cluster.kubeconfig))
    api = kubernetes.client.CoreV1Api()

    async def work() -> None:
        after, found = None, 0
        while True:
            page = api.list_namespaced_pod(namespace, limit=PAGE, _continue=after)
            found, after = found + len(page.items), page.metadata._continue
            if not after:
                return _check(found, count)

    yield work


@contextlib.asynccontextmanager
async def _asyncio_client(
    cluster: Cluster, namespace: str, count: int
) -> AsyncIterator[Callable[[], Awaitable[object]]]:
    kubernetes: Any = importlib.import_module("kubernetes_asyncio")
    await kubernetes.config.load_kube_config(str(cluster.kubeconfig))
    async with kubernetes.client.ApiClient() as session:
        api = kubernetes.client.CoreV1Api(session)

        async def work() -> None:
            after: str | None = None
            found = 0
            while True:
                more: dict[str, str] = {} if after is None else {"_continue": after}
                page = await api.list_namespaced_pod(namespace, limit=PAGE, **more)
                found, after = found + len(page.items), page.metadata._continue
                if not after:
                    return _check(found, count)

        yield work


@contextlib.asynccontextmanager
async def _lightkube(cluster: Cluster, namespace: str, count: int) -> AsyncIterator[Callable[[], Awaitable[object]]]:
    lightkube: Any = importlib.import_module("lightkube")
    resources: Any = importlib.import_module("lightkube.resources.core_v1")
    client = lightkube.AsyncClient(lightkube.KubeConfig.from_file(str(cluster.kubeconfig)))

    async def work() -> None:
        found = 0
        async for _ in client.list(resources.Pod, namespace=namespace, chunk_size=PAGE):
            found += 1
        _check(found, count)

    yield work


# Reconciliation


async def _reconciliation(env: Env, cluster: Cluster, admin: Admin) -> list[Figure]:
    count = 300 if env.quick else 10_000
    async with env.database("pods") as database, opened(database) as (core, config), _client(cluster) as client:
        async with database.connect() as connection:
            rows = await connection.fetch(INSTANCES, count)
            # Old enough that a pod that is missing would count.
            await connection.execute("ANALYZE instances")
        async with running_pods(admin, [_named(row) for row in rows]) as namespace, _bare(cluster) as session:
            runtime = KubernetesRuntime(
                client, namespace=namespace, image="x", settings=PodSettings(), installation=OURS
            )
            reconciled = partial(_reconciled, core, config, runtime)
            bare = partial(_bare_list, session, cluster, namespace, count)
            ratios, grown = [], []
            for _ in range(1 if env.quick else ROUNDS):
                ours, more = await _measured(env, reconciled)
                theirs, _ = await _measured(env, bare)
                ratios.append(ours / theirs)
                grown.append(more / 1e6)
                env.say(f"{count:,} pods and rows: {ours:.2f} s, their list alone {theirs:.2f} s")
    name = f"reconciliation of {count:,} pods and rows"
    return [
        at_most(f"{name}: CPU / a bare paged GET + orjson of the same list", ratios, 2.5),
        at_most(f"{name}: memory of the process more than before", grown, 60, "MB"),
    ]


def _named(row: asyncpg.Record) -> Named:
    return Named(UUID(str(row["id"])), row["generation"], row["pod_name"])


async def _reconciled(core: Core, config: Config, runtime: KubernetesRuntime) -> None:
    tick = Tick(core=core, config=config, now=await records.now(core.db), budget=Budget(timedelta(hours=1)))
    await reconciliation.run(tick, runtime=runtime)
    if tick.found:
        raise RuntimeError(f"It found {dict(tick.found)}: there was nothing to find.")


@contextlib.asynccontextmanager
async def _bare(cluster: Cluster) -> AsyncIterator[aiohttp.ClientSession]:
    context = ssl.create_default_context(cafile=str(cluster.ca_file))
    headers = {"Authorization": f"Bearer {cluster.token}"}
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=context), headers=headers) as session:
        yield session


async def _bare_list(session: aiohttp.ClientSession, cluster: Cluster, namespace: str, count: int) -> None:
    after, found = "", 0
    while True:
        query = {
            "limit": str(PAGE),
            "labelSelector": f"{INSTALLATION}={OURS}",
            **({"continue": after} if after else {}),
        }
        async with session.get(cluster.url + pods(namespace), params=query) as answer:
            page = orjson.loads(await answer.read())
        found, after = found + len(page["items"]), page["metadata"].get("continue", "")
        if not after:
            return _check(found, count)


async def _measured(env: Env, work: Callable[[], Awaitable[object]]) -> tuple[float, float]:
    """CPU seconds of one, PostgreSQL's among them, and by how many bytes the process was larger at most meanwhile."""
    await work()
    process = psutil.Process()
    before = most = process.memory_info().rss
    async with env.measure([os.getpid()]) as measurement:
        task = asyncio.ensure_future(work())
        while not task.done():
            await asyncio.wait([task], timeout=0.05)
            most = max(most, process.memory_info().rss)
        await task
    # One tick of the CPU's clock at least.
    return max(measurement.usage.cpu, 0.01), float(most - before)


# How soon a start goes on


async def _going_on(env: Env, cluster: Cluster, admin: Admin) -> list[Figure]:
    """From the moment at which a bare watch hears that a pod is up, to the poll of its start that does, in polls."""
    count = 5 if env.quick else 40
    late = []
    async with new_namespace(admin) as namespace, _client(cluster) as client:
        await Nodes(admin, namespace).add(memory_bytes=count * 2 * GIB, cpu=10**6, pods=10**6)
        runtime = KubernetesRuntime(client, namespace=namespace, image="x", settings=PodSettings(), installation=OURS)
        async with runtime.alongside(lambda _: None):
            for number in range(1, count + 1):
                named = Named(UUID(int=number), UUID(int=number), f"ladybug-wrapper-{UUID(int=number)}-1")
                await runtime.start(_start(named))
                place = pods(namespace, named.name)
                pod = await admin.until(place, lambda found: found["spec"].get("nodeName"))
                heard = asyncio.create_task(_heard_up(admin, namespace, pod))
                polled = asyncio.create_task(_polled_up(runtime, named.name))
                await asyncio.sleep(0.2)  # the bare watch is open by then
                await admin.patch(f"{place}/status", {"status": behaviours.running(pod, "127.0.0.1")}, "strategic")
                at, pause = await polled
                late.append(max(0.0, at - await heard) / pause)
    name = "a pod is up: until its start goes on, p50, later than a bare watch hears it"
    return [at_most(name, late, 1, "polls")]


async def _heard_up(admin: Admin, namespace: str, pod: dict[str, Any]) -> float:
    async for event in admin.watch(pods(namespace), pod["metadata"]["resourceVersion"]):
        found = event["object"]
        if found["metadata"]["name"] == pod["metadata"]["name"] and found["status"].get("phase") == "Running":
            return time.perf_counter()
    raise RuntimeError("The watch ended.")


async def _polled_up(runtime: KubernetesRuntime, name: str) -> tuple[float, float]:
    """When, and the pause before that poll: they are the start's own."""
    pause = 0.0
    for pause in chain(PAUSES, repeat(PAUSES[-1])):
        await asyncio.sleep(pause)
        found = await runtime.get(name, "polled")
        if found is not None and found.state == "up":
            return time.perf_counter(), pause
    raise AssertionError("it polls until then")


# Requests


async def _requests(cluster: Cluster, admin: Admin) -> list[Figure]:
    """What the runtime asks for one start, its look at it, and its end. The tests count a whole life with its control plane."""
    async with new_namespace(admin) as namespace, _client(cluster) as client:
        await Nodes(admin, namespace).add()
        runtime = KubernetesRuntime(client, namespace=namespace, image="x", settings=PodSettings(), installation=OURS)
        named = Named(UUID(int=1), UUID(int=2), f"ladybug-wrapper-{UUID(int=1)}-1")
        before = await _counted(cluster)
        if not await runtime.start(_start(named)):
            raise RuntimeError("It was not started.")
        await runtime.get(named.name, "closely")
        looks = 0
        while not await runtime.delete(named.name, grace=timedelta(0)):
            looks += 1
            await asyncio.sleep(0.05)
        asked = await _counted(cluster) - before
    return [at_most("requests by the server's counter: a pod's start, one close look, its end", [asked], 15, "")]


async def _idle(env: Env, cluster: Cluster, admin: Admin) -> list[Figure]:
    """What is asked while nothing happens: the watch's own lists, and one for each pass of reconciliation. By the client's own
    counter: the server's counts what its controllers ask too, which is more than that."""
    seconds = 15.0 if env.quick else PASS_SECONDS + 60
    asked = []
    for count in (0, IDLE):
        starts = [Named(UUID(int=n), UUID(int=n), f"ladybug-wrapper-{UUID(int=n)}-1") for n in range(1, count + 1)]
        async with running_pods(admin, starts) as namespace, _client(cluster) as client:
            runtime = KubernetesRuntime(
                client, namespace=namespace, image="x", settings=PodSettings(), installation=OURS
            )
            async with runtime.alongside(lambda _: None):
                while not runtime.watch.synced:  # noqa: ASYNC110  it is no event
                    await asyncio.sleep(0.05)
                before = _asked()
                await asyncio.sleep(seconds)
                for _ in range(int(seconds // PASS_SECONDS)):
                    _check(len(await runtime.list(limit=PAGE)), count)
                asked.append(_asked() - before)
                env.say(f"{count} idle instances: {asked[-1]} requests in {seconds:.0f} s")
    alone, more = asked[0], max(0, asked[1] - asked[0])
    return [
        at_most(
            "requests of the client, watches among them: one idle instance and hour",
            [more / IDLE * 3600 / seconds],
            0,
            "",
        ),
        at_most(
            "requests of the client, watches among them: one idle control plane and minute",
            [alone * 60 / seconds],
            2,
            "",
        ),
    ]


def _asked() -> int:
    """Of this process, whatever came of it."""
    name = "paddock_kubernetes_requests_total"
    return int(sum(one.value for metric in REGISTRY.collect() for one in metric.samples if one.name == name))


async def _counted(cluster: Cluster) -> int:
    """Of pods and their events, whoever asked, but for watches and what the scheduler writes."""
    async with _bare(cluster) as session, session.get(f"{cluster.url}/metrics") as answer:
        text = await answer.text()
    total = 0.0
    for line in text.splitlines():
        ours = 'group="",' in line and 'subresource=""' in line and 'verb="WATCH"' not in line
        if line.startswith("apiserver_request_total{") and ours and _RESOURCE.search(line):
            total += float(line.rpartition(" ")[2])
    return int(total)
