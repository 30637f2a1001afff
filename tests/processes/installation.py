"""A PostgreSQL of their own for `paddock serve` and `paddock worker` apart, and however many of them a test starts."""

import asyncio
import threading
import urllib.error
import urllib.request
from itertools import count
from pathlib import Path

import asyncpg

from paddock.api.tokens import Tokens, everything, new_secret
from paddock.client import Client
from paddock.db.embedded import embedded_postgres
from paddock.db.migrate import migrate
from paddock.db.pool import open_database
from tests.processes.running import Process, clean_environment, wait_for

NUMBERS = count(1)


class Postgres:
    """Started and stopped by tests, on a thread of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.dsn = ""
        self._stop: asyncio.Event | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        if self._thread is not None:
            return
        ready = threading.Event()

        async def run() -> None:
            self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
            async with embedded_postgres(self.folder / "data") as server:
                self.dsn = server.dsn
                ready.set()
                await self._stop.wait()

        self._thread = threading.Thread(target=lambda: asyncio.run(run()), daemon=True)
        self._thread.start()
        assert ready.wait(60)

    def stop(self) -> None:
        if self._thread is not None and self._loop is not None and self._stop is not None:
            self._loop.call_soon_threadsafe(self._stop.set)
            self._thread.join()
            self._thread = None


class Installation:
    """A database, two tokens, and however many processes the test starts."""

    def __init__(self, folder: Path, postgres: Postgres) -> None:
        self.folder = folder
        self.postgres = postgres
        self.postgres.start()
        self.admin, self.worker_token = new_secret(), new_secret()
        self._database = f"installation_{next(NUMBERS)}"
        self.dsn = self.postgres.dsn.replace("/paddock?", f"/{self._database}?")
        asyncio.run(self._prepare())
        self._processes: list[Process] = []

    async def _prepare(self) -> None:
        connection = await asyncpg.connect(self.postgres.dsn)
        await connection.execute(f"CREATE DATABASE {self._database}")
        await connection.close()
        await migrate(self.dsn)
        async with open_database(self.dsn, durable=1, relaxed=1) as db:
            tokens = Tokens(db)
            await tokens.create(everything("admin", "admin"), actor="test", secret=self.admin)
            await tokens.create(everything("worker", "worker"), actor="test", secret=self.worker_token)

    def serve(self, port: int, **settings: str) -> Process:
        given = {"PADDOCK_DATABASE_URL": self.dsn, "PADDOCK_HOST": "127.0.0.1", **settings}
        environment = clean_environment(**given)
        return self._start("serve", "--port", str(port), environment=environment)

    def worker(self, port: int, id: str, *arguments: str) -> Process:
        environment = clean_environment(
            PADDOCK_SERVER=f"http://127.0.0.1:{port}", PADDOCK_TOKEN=self.worker_token, PADDOCK_WORKER_PORT="0"
        )
        return self._start("worker", "--id", id, *arguments, environment=environment)

    def client(self, port: int) -> Client:
        return Client(f"http://127.0.0.1:{port}", self.admin)

    def _start(self, *arguments: str, environment: dict[str, str]) -> Process:
        log = self.folder / f"{len(self._processes)}-{arguments[0]}.log"
        process = Process(*arguments, log=log, environment=environment)
        self._processes.append(process)
        return process

    def close(self) -> None:
        # Workers first: alone they would wait for their control plane.
        for process in reversed(self._processes):
            process.end()


def answer(port: int, path: str) -> int | None:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=30) as response:
            return int(response.status)
    except urllib.error.HTTPError as error:
        with error:
            return error.code
    except OSError:
        return None


def body(port: int, path: str) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=30) as response:
        return str(response.read().decode())


def until_ready(port: int, process: Process) -> None:
    def look() -> bool:
        assert process.popen.poll() is None, process.said()
        return answer(port, "/ready") == 200

    wait_for(f"port {port} is ready", look)
