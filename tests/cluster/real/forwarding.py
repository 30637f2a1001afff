"""Stands for kube-proxy: the address of a Service is one of this machine's, and what comes there goes to a ready address
of its EndpointSlices."""

import asyncio
import contextlib
import itertools
import subprocess
from collections.abc import AsyncIterator, Callable, Sequence

from tests.cluster.admin import Admin

LOOK_SECONDS = 0.5

Addresses = Callable[[], Sequence[tuple[str, int]]]


@contextlib.asynccontextmanager
async def forwarded(address: str, port: int, to: Addresses) -> AsyncIterator[None]:
    subprocess.run(["ip", "address", "replace", f"{address}/32", "dev", "lo"], check=True)
    turns = itertools.count()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        ready = to()
        try:
            host, there = ready[next(turns) % len(ready)]
            answering, asking = await asyncio.open_connection(host, there)
        except (OSError, ZeroDivisionError):
            writer.close()
            return
        await asyncio.gather(_pump(reader, asking), _pump(answering, writer))

    server = await asyncio.start_server(handle, address, port)
    try:
        yield
    finally:
        server.close()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while chunk := await reader.read(1 << 16):
            writer.write(chunk)
            await writer.drain()
    except OSError:
        pass
    finally:
        writer.close()


@contextlib.asynccontextmanager
async def service_forwarded(admin: Admin, namespace: str, service: str, address: str, port: int) -> AsyncIterator[None]:
    ready: list[tuple[str, int]] = []
    following = asyncio.create_task(_follow(admin, namespace, service, port, ready))
    try:
        async with forwarded(address, port, lambda: ready):
            yield
    finally:
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)


async def _follow(admin: Admin, namespace: str, service: str, port: int, ready: list[tuple[str, int]]) -> None:
    path = f"/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices"
    while True:
        found = await admin.list(path, labelSelector=f"kubernetes.io/service-name={service}")
        ready[:] = [
            (address, port)
            for one in found
            for endpoint in one.get("endpoints") or []
            if endpoint.get("conditions", {}).get("ready")
            for address in endpoint["addresses"]
        ]
        await asyncio.sleep(LOOK_SECONDS)
