"""Everything of the check on a real node: control plane, node, KEDA, PostgreSQL and S3 beside it, and our image applied."""

import asyncio
import contextlib
import os
import secrets as randomness
import subprocess
import tempfile
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import asyncpg

from paddock.client.client import Client
from paddock.db.embedded import embedded_postgres
from tests.cluster.admin import Admin, Json, admin_of, namespaces, nodes
from tests.cluster.certificates import write_keys
from tests.cluster.keeper import ControlPlane, die_with_parent
from tests.cluster.programs import KEDA, definitions, keda_operator
from tests.cluster.real import node as real_node
from tests.cluster.real.forwarding import forwarded, service_forwarded
from tests.cluster.real.node import GATEWAY, Node
from tests.cluster.real.overlay import CONTROL_PLANE, DATABASE_PORT, HOME, IMAGE, NEXT_IMAGE, secrets, write_overlay
from tests.cluster.server import Cluster
from tests.ports import free_ports
from tests.storage.servers import Server, seaweed


class Database:
    """PostgreSQL that pods reach, and that can be taken away for a while."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._stack = contextlib.AsyncExitStack()
        self.passwords = {role: randomness.token_hex(12) for role in ("paddock_app", "paddock_scaler", "shop_reader")}
        self.dsn = ""

    async def start(self) -> None:
        settings = {"listen_addresses": GATEWAY, "port": str(DATABASE_PORT), "password_encryption": "scram-sha-256"}
        server = await self._stack.enter_async_context(embedded_postgres(self._folder, settings=settings))
        self.dsn = server.dsn

    async def stop(self) -> None:
        await self._stack.aclose()

    async def make_roles(self) -> None:
        connection = await asyncpg.connect(self.dsn)
        try:
            for role, password in self.passwords.items():
                await connection.execute(f"CREATE ROLE {role} LOGIN PASSWORD '{password}'")
            await connection.execute("ALTER DATABASE paddock OWNER TO paddock_app")
            await connection.execute("ALTER SCHEMA public OWNER TO paddock_app")
            await connection.execute("GRANT pg_read_all_data TO shop_reader")
            await connection.execute("CREATE DATABASE shop")
        finally:
            await connection.close()
        shop = await asyncpg.connect(self.dsn, database="shop")
        try:
            await shop.execute(
                "CREATE TABLE orders AS SELECT n AS id, 'order ' || n AS name FROM generate_series(1, 1000) n"
            )
        finally:
            await shop.close()


@dataclass
class Scene:
    cluster: Cluster
    admin: Admin
    node: Node
    database: Database
    client: Client
    # An administrator's.
    token: str
    overlay: Path
    # The id of the instance that the steps make.
    instance: str = ""

    async def kubectl(self, *arguments: str, text: str | None = None) -> str:
        return await asyncio.to_thread(self.cluster.kubectl, *arguments, text=text)

    async def ask(self, method: str, path: str, **more: Any) -> Json:
        answer: Json = await asyncio.to_thread(self.client.request, method, path, **more)
        return answer

    async def until(self, look: Callable[[], Any], otherwise: str, seconds: float = 240) -> Any:
        """What `look` gives once it is true; it may be a coroutine function."""
        end = asyncio.get_running_loop().time() + seconds
        while not (found := await look()):
            if asyncio.get_running_loop().time() > end:
                raise AssertionError(otherwise)
            await asyncio.sleep(0.3)
        return found


@contextlib.asynccontextmanager
async def scene(image: Path) -> AsyncIterator[Scene]:
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    async with contextlib.AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="paddock-real-")))
        folder.chmod(0o755)
        (folder / "plane").mkdir()
        plane = ControlPlane(folder / "plane", controllers=["*"])
        stack.callback(plane.stop)
        await asyncio.to_thread(plane.start)
        cluster = Cluster(plane.folder, plane.url, plane.token, {})
        admin = await stack.enter_async_context(admin_of(cluster))
        # What pods are told is the API server.
        await stack.enter_async_context(forwarded("10.0.0.1", 443, lambda: [("127.0.0.1", plane.port)]))
        node = Node(folder / "node", cluster.kubeconfig)
        stack.callback(node.stop)
        await asyncio.to_thread(node.start, lambda: " Ready" in cluster.kubectl("get", "nodes"))
        # Where the file system of the machine tells nothing of itself the kubelet reports no room for files.
        room = {"status": {"capacity": {"ephemeral-storage": "50Gi"}}}
        await admin.patch(f"{nodes(real_node.NAME)}/status", room)
        await asyncio.to_thread(node.load, image, [IMAGE, NEXT_IMAGE])

        database = Database(folder / "postgres")
        await database.start()
        stack.push_async_callback(database.stop)
        await database.make_roles()
        store = stack.enter_context(seaweed())
        await stack.enter_async_context(_reachable(store))
        _start_keda(cluster, folder / "keda", stack)

        tokens = {name: f"pdk_{randomness.token_urlsafe(24)}" for name in ("admin", "worker", "dumper")}
        write_overlay(folder / "overlay", store.url)
        await admin.create(namespaces(), {"metadata": {"name": HOME}})
        environ = dict(store.environ) | {"AWS_ENDPOINT_URL": _seen_from_pods(store)}
        for secret in secrets(database.passwords, environ, tokens):
            await admin.create(f"{namespaces(HOME)}/secrets", secret)
        await stack.enter_async_context(service_forwarded(admin, HOME, "control-plane", CONTROL_PLANE, 8080))
        client = Client(f"http://{CONTROL_PLANE}:8080", tokens["admin"])
        stack.callback(client.close)
        yield Scene(cluster, admin, node, database, client, tokens["admin"], folder / "overlay")


def _seen_from_pods(store: Server) -> str:
    return store.endpoint.replace("127.0.0.1", GATEWAY)


@contextlib.asynccontextmanager
async def _reachable(store: Server) -> AsyncIterator[None]:
    port = int(store.endpoint.rpartition(":")[2])
    async with forwarded(GATEWAY, port, lambda: [("127.0.0.1", port)]):
        yield


def _start_keda(cluster: Cluster, folder: Path, stack: contextlib.AsyncExitStack) -> None:
    """Its operator alone: it brings the first worker and takes the last one, and does all of ScaledJobs."""
    write_keys(folder)
    for name, copy in (("server.crt", "tls.crt"), ("server.key", "tls.key")):
        (folder / copy).write_bytes((folder / name).read_bytes())
    cluster.kubectl("apply", "--server-side", "-f", str(definitions(KEDA)))
    cluster.kubectl("create", "namespace", "keda")
    health, metrics = free_ports(2)
    environ = {
        "PATH": os.environ["PATH"],
        "KUBECONFIG": str(cluster.kubeconfig),
        "WATCH_NAMESPACE": HOME,
        "POD_NAMESPACE": "keda",
        "KEDA_CLUSTER_OBJECT_NAMESPACE": "keda",
    }
    command = [
        str(keda_operator()), "--leader-elect=false", "--enable-prometheus-metrics=false", "--metrics-bind-address=0",
        f"--health-probe-bind-address=127.0.0.1:{health}", f"--metrics-service-bind-address=127.0.0.1:{metrics}",
        f"--cert-dir={folder}", "--enable-webhook-patching=false", "--enable-apiservice-patching=false",
    ]  # fmt: skip
    with (folder / "keda.log").open("ab") as log:
        keda = subprocess.Popen(command, env=environ, stdout=log, stderr=log, preexec_fn=die_with_parent)  # noqa: PLW1509  it starts long before it could matter

    def stop() -> None:
        keda.kill()
        keda.wait()

    stack.callback(stop)
