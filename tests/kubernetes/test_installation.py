"""Whose cluster it is: two installations side by side, clones, moves and namespaces that are made anew, on a real API server."""

import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from unittest.mock import create_autospec
from uuid import UUID, uuid4

import pytest
from prometheus_client import CollectorRegistry

from paddock.clock import SystemClock
from paddock.db.pool import Database
from paddock.jobs.core import Core, CoreSettings, open_core
from paddock.jobs.errors import PermanentRunnerError, Refused
from paddock.jobs.kinds import Kinds
from paddock.metrics import Metrics
from paddock.runtimes.kubernetes.access import find_access
from paddock.runtimes.kubernetes.client import Kubernetes
from paddock.runtimes.kubernetes.installation import Installation, NotOurs, home_of
from paddock.runtimes.kubernetes.owned import OwnedRuntime
from paddock.runtimes.kubernetes.pod_settings import PodSettings
from paddock.runtimes.kubernetes.runtime import KubernetesRuntime
from paddock.runtimes.runtime import Start, StartRefused
from tests.cluster.admin import Admin, namespaces, pods
from tests.cluster.namespaces import POD_SECURITY
from tests.cluster.server import Cluster
from tests.conftest import Server
from tests.kubernetes.conftest import MakeNamespace


class Side:
    """A control plane's side of the cluster: its database, and where it says that it lives."""

    def __init__(self, db: Database, client: Kubernetes, namespace: str, home: str) -> None:
        self.installation = Installation(client, namespace=namespace, home=home)
        self.installation.attach(db)

        def made(id: str) -> KubernetesRuntime:
            return KubernetesRuntime(
                client, namespace=namespace, image="paddock.test/x:1", settings=PodSettings(), installation=id
            )

        self.runtime = OwnedRuntime(self.installation, made)

    async def start(self, instance: UUID | None = None) -> Start:
        instance = instance or uuid4()
        start = Start(
            name=f"ladybug-wrapper-{instance}-1",
            instance=instance,
            generation=uuid4(),
            wrapper_type="ladybug",
            memory_bytes=1 << 30,
            cpu=1,
            disk_bytes=1 << 30,
            token_sha256="0" * 64,
            owner="ada",
        )
        assert await self.runtime.start(start)
        return start

    async def names(self) -> set[str]:
        return {found.name for found in await self.runtime.list()}

    async def adopt(self, *, fresh: bool = False) -> None:
        await self.installation.adopt(actor="token:root", reason="the tests", fresh=fresh)


@pytest.fixture
async def client(cluster: Cluster) -> AsyncIterator[Kubernetes]:
    made = Kubernetes(find_access({"KUBECONFIG": str(cluster.kubeconfig)}))
    yield made
    await made.close()


@asynccontextmanager
async def another_database(postgres: Server, settings: CoreSettings) -> AsyncIterator[Core]:
    name = f"other_{uuid4().hex[:8]}"
    dsn = await postgres.create_database(name, "paddock_template")
    async with open_core(dsn, Kinds(()), settings, metrics=Metrics(CollectorRegistry())) as opened:
        yield opened
    await postgres.drop_database(name)


async def copy_of_installation(of: Core, to: Core) -> None:
    """As a restored or cloned database has it."""
    async with of.db.transaction() as tx:
        row = await tx.fetchrow("SELECT * FROM installation")
    assert row is not None
    async with to.db.transaction() as tx:
        await tx.execute(
            "INSERT INTO installation (id, namespace, namespace_uid, home, bound_by) VALUES ($1, $2, $3, $4, $5)",
            *(row[name] for name in ("id", "namespace", "namespace_uid", "home", "bound_by")),
        )


async def test_replicas_that_start_at_once_are_one_installation(core: Core, client: Kubernetes, namespace: str) -> None:
    one, other = (Side(core.db, client, namespace, "paddock/paddock") for _ in range(2))
    assert await one.installation.check() == await other.installation.check()
    assert (await one.installation.look()).mismatch is None


async def test_two_installations_in_one_namespace_leave_each_other_alone(
    core: Core, client: Kubernetes, namespace: str, postgres: Server, settings: CoreSettings
) -> None:
    async with another_database(postgres, settings) as theirs_core:
        ours = Side(core.db, client, namespace, "paddock/paddock")
        theirs = Side(theirs_core.db, client, namespace, "paddock/second")
        mine, yours = await ours.start(), await theirs.start()
        assert await ours.names() == {mine.name}
        assert await theirs.names() == {yours.name}
        assert await ours.runtime.get(yours.name) is None
        assert await ours.runtime.delete(yours.name)
        assert await theirs.names() == {yours.name}
        with pytest.raises(StartRefused, match="belongs to the installation"):
            await ours.start(yours.instance)


async def test_a_clone_beside_the_original_does_nothing_until_somebody_decides(
    core: Core, client: Kubernetes, namespace: str, postgres: Server, settings: CoreSettings
) -> None:
    original = Side(core.db, client, namespace, "paddock/paddock")
    start = await original.start()
    async with another_database(postgres, settings) as cloned:
        await copy_of_installation(core, cloned)
        clone = Side(cloned.db, client, namespace, "staging/paddock")
        for attempt in (
            clone.start,
            clone.names,
            lambda: clone.runtime.get(start.name),
            lambda: clone.runtime.delete(start.name),
        ):
            with pytest.raises(NotOurs, match="belongs to the control plane 'paddock/paddock'"):
                await attempt()
        # Afresh: what runs there is somebody else's.
        await clone.adopt(fresh=True)
        assert await clone.names() == set()
        assert await clone.runtime.get(start.name) is None
        another = await clone.start()
        assert await clone.names() == {another.name}
        assert await original.names() == {start.name}


async def test_a_restored_database_takes_over_as_the_successor(
    core: Core, client: Kubernetes, namespace: str, postgres: Server, settings: CoreSettings
) -> None:
    start = await Side(core.db, client, namespace, "old/paddock").start()
    async with another_database(postgres, settings) as restored:
        await copy_of_installation(core, restored)
        successor = Side(restored.db, client, namespace, "new/paddock")
        with pytest.raises(NotOurs):
            await successor.names()
        await successor.adopt()
        assert await successor.names() == {start.name}
        with pytest.raises(Refused, match="belong together already"):
            await successor.adopt()
        async with restored.db.transaction() as tx:
            audited = await tx.fetchrow("SELECT actor, reason FROM audit_log WHERE action = 'cluster_adopted'")
        assert audited is not None
        assert (audited["actor"], audited["reason"]) == ("token:root", "the tests")


async def test_in_a_namespace_that_was_made_anew_nothing_counts_as_missing(
    core: Core, client: Kubernetes, admin: Admin, make_namespace: MakeNamespace
) -> None:
    """Also right after all was well: what was believed a moment ago is asked for again before anything is called missing."""
    name = await make_namespace()
    ours = Side(core.db, client, name, "paddock/paddock")
    start = await ours.start()
    await admin.delete(pods(name, start.name), grace=0)
    await admin.delete(namespaces(name))
    await admin.until_gone(namespaces(name))
    await admin.create(namespaces(), {"metadata": {"name": name, "labels": POD_SECURITY}})
    ours.installation._looked_at = client.clock.monotonic()
    with pytest.raises(NotOurs, match="made again"):
        await ours.runtime.get(start.name)
    with pytest.raises(NotOurs):
        await ours.names()
    await ours.adopt()
    assert await ours.runtime.get(start.name) is None


async def test_in_a_namespace_that_was_deleted_a_moment_after_a_good_look_nothing_counts_as_deleted(
    core: Core, client: Kubernetes, admin: Admin, make_namespace: MakeNamespace
) -> None:
    name = await make_namespace()
    ours = Side(core.db, client, name, "paddock/paddock")
    start = await ours.start()
    await admin.delete(pods(name, start.name), grace=0)
    await admin.delete(namespaces(name))
    await admin.until_gone(namespaces(name))
    ours.installation._looked_at = client.clock.monotonic()
    with pytest.raises(NotOurs, match="is not there"):
        await ours.runtime.delete(start.name)


def test_two_machines_outside_a_cluster_are_two_homes_unless_a_release_is_named(tmp_path: Path) -> None:
    def home(machine: str, release: str = "paddock") -> str:
        (tmp_path / machine).write_text(f"{machine}\n")
        return home_of(release, tmp_path, tmp_path / machine)

    assert home("1a2b") == home("1a2b") != home("3c4d")
    assert "1a2b" not in home("1a2b")
    assert home("1a2b", "graphs") == home("3c4d", "graphs") == "outside/graphs"
    (tmp_path / "empty").write_text("\n")
    assert home_of("paddock", tmp_path, tmp_path / "empty") == f"outside:{socket.gethostname()}/paddock"
    (tmp_path / "namespace").write_text("data\n")
    assert home("1a2b") == "data/paddock"


async def test_a_binding_from_before_machines_were_told_apart_is_taken_over_once(core: Core) -> None:
    """By the first machine that comes. Another one finds that it is not its own, and so does one within a cluster."""
    before = _beside_a_namespace(core, "outside/paddock")
    id = await before.check()
    laptop, desktop = (_beside_a_namespace(core, f"outside:{machine}/paddock") for machine in ("laptop", "desktop"))
    assert (await laptop.look()).mismatch is None
    assert await laptop.check() == id
    bound = (await laptop.look()).bound
    assert bound is not None
    assert (bound.id, bound.home) == (id, "outside:laptop/paddock")
    with pytest.raises(NotOurs, match="PADDOCK_RELEASE"):
        await desktop.check()
    with pytest.raises(NotOurs):
        await _beside_a_namespace(core, "outside/graphs").check()


@pytest.mark.parametrize("home", ["data/paddock", "outside/graphs"])
async def test_a_binding_from_before_is_nobody_elses(core: Core, home: str) -> None:
    await _beside_a_namespace(core, "outside/paddock").check()
    with pytest.raises(NotOurs):
        await _beside_a_namespace(core, home).check()


def _beside_a_namespace(core: Core, home: str) -> Installation:
    """A control plane that finds its namespace in a cluster that has nothing else."""
    client = create_autospec(Kubernetes, instance=True)
    client.clock = SystemClock()
    client.get.return_value = {"metadata": {"uid": "7d6c"}}
    found = Installation(client, namespace="graphs", home=home)
    found.attach(core.db)
    return found


async def test_a_first_start_without_the_namespace_is_a_sentence(core: Core, client: Kubernetes) -> None:
    alone = Side(core.db, client, "nobody-made-it", "paddock/paddock")
    with pytest.raises(PermanentRunnerError, match="'nobody-made-it', in which instances run, is not there"):
        async with alone.runtime.alongside(lambda _id: None):
            pass
