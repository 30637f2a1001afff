"""Ours in its own processes: `paddock serve` and `paddock worker` as users start them, with the bench's kinds added."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import msgspec

from bench.environment import Database
from bench.process import ROOT
from paddock.api.tokens import NewToken, Tokens, everything, new_secret
from paddock.db.migrate import migrate
from paddock.db.pool import open_database

READY_WITHIN = 60.0
# Nothing is to be rescued or to expire while a machine is kept busy.
CALM = {"PADDOCK_LOG_LEVEL": "warning", "PADDOCK_LOG_FORMAT": "json"}


@dataclass(frozen=True)
class Tokened:
    admin: str
    worker: str


@dataclass
class Serve:
    url: str
    pid: int
    tokens: Tokened
    folder: Path
    database: Database
    http: aiohttp.ClientSession

    async def ask(self, method: str, path: str, body: Any = None, *, token: str | None = None, **headers: str) -> Any:
        """The answer's `data`; raises on anything but 2xx."""
        content = None if body is None else msgspec.json.encode(body)
        sent = {"Authorization": f"Bearer {token or self.tokens.admin}", "Content-Type": "application/json", **headers}
        async with self.http.request(method, self.url + path, data=content, headers=sent) as answer:
            told = await answer.read()
            if answer.status >= 300:
                raise RuntimeError(f"{method} {path}: {answer.status} {told[:500]!r}")
            decoded = msgspec.json.decode(told)
            return decoded.get("data", decoded) if isinstance(decoded, dict) else decoded


@contextlib.asynccontextmanager
async def serving(database: Database, *, first: str = "", **environment: str) -> AsyncIterator[Serve]:
    """A migrated database with tokens, and one control plane on it that answers. `first` is Python run before it."""
    tokens = await _prepared(database)
    with tempfile.TemporaryDirectory(prefix="bench-paddock-") as name:
        folder = Path(name)
        port = _free_port()
        own = {"PADDOCK_DATABASE_URL": database.dsn, "PADDOCK_PORT": str(port), "PADDOCK_HOST": "127.0.0.1"}
        async with _process(folder, "serve", {**own, **environment}, first) as process:
            url = f"http://127.0.0.1:{port}"
            # The server closes what idles for five seconds: a request on such a connection would break off.
            connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=2)
            async with aiohttp.ClientSession(connector=connector) as http:
                await _answers(http, url + "/ready", process, folder / "serve.log")
                yield Serve(url, process.pid, tokens, folder, database, http)


@contextlib.asynccontextmanager
async def working(serve: Serve, *, batch: int, in_flight: int, **environment: str) -> AsyncIterator[int]:
    """One worker with room for `in_flight` batches; yields its pid once its session is open."""
    own = {
        "PADDOCK_SERVER": serve.url,
        "PADDOCK_TOKEN": serve.tokens.worker,
        "PADDOCK_CONCURRENCY": str(batch * in_flight),
        "PADDOCK_CLAIMS_IN_FLIGHT": str(in_flight),
        "PADDOCK_WORKER_PORT": str(_free_port()),
        "PADDOCK_WORKER_ID": "bench",
    }
    async with _process(serve.folder, "worker", {**own, **environment}) as process:
        ready = f"http://127.0.0.1:{own['PADDOCK_WORKER_PORT']}/ready"
        await _answers(serve.http, ready, process, serve.folder / "worker.log")
        yield process.pid


@contextlib.asynccontextmanager
async def _process(
    folder: Path, command: str, environment: Mapping[str, str], first: str = ""
) -> AsyncIterator[asyncio.subprocess.Process]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PADDOCK_")}
    path = os.pathsep.join([str(_entry_points(folder)), str(ROOT)])
    with (folder / f"{command}.log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-c",
            f"{first}\nfrom paddock.cli import main; main()",
            command,
            cwd=folder,
            env={**kept, **CALM, "PYTHONPATH": path, **environment},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
        try:
            yield process
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.terminate()
            try:
                await asyncio.wait_for(process.wait(), 15)
            except TimeoutError:
                process.kill()
                await process.wait()


def _entry_points(folder: Path) -> Path:
    """A folder that looks like an installed package whose kinds are `bench.kinds.KINDS`."""
    installed = folder / "installed"
    facts = installed / "paddock_bench-0.dist-info"
    if not facts.exists():
        facts.mkdir(parents=True)
        (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: paddock-bench\nVersion: 0\n")
        (facts / "entry_points.txt").write_text("[paddock.kinds]\nbench = bench.kinds:KINDS\n")
    return installed


async def _prepared(database: Database) -> Tokened:
    await migrate(database.dsn)
    tokens = Tokened(new_secret(), new_secret())
    async with open_database(database.dsn, durable=1, relaxed=1) as db:
        store = Tokens(db)
        await store.keep(everything("bench", "admin"), tokens.admin, actor="bench")
        await store.keep(NewToken(name="worker", role="worker", owner="worker"), tokens.worker, actor="bench")
    return tokens


async def _answers(http: aiohttp.ClientSession, url: str, process: asyncio.subprocess.Process, log: Path) -> None:
    deadline = asyncio.get_running_loop().time() + READY_WITHIN
    while asyncio.get_running_loop().time() < deadline:
        if process.returncode is not None:
            break
        with contextlib.suppress(aiohttp.ClientError, OSError):
            async with http.get(url) as answer:
                if answer.status == 200:
                    return
        await asyncio.sleep(0.05)
    raise RuntimeError(f"{url} did not answer.\n{log.read_text()[-4000:]}")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
