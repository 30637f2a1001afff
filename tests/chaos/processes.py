"""The real processes of a chaos run: PostgreSQL with its defaults, two control planes, three workers.

Each can be killed, frozen and started again. None of them outlives this process, however that ends.
"""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import AsyncExitStack
from pathlib import Path

import psutil

from paddock.db.embedded import EmbeddedPostgres, embedded_postgres

# `die_with`: SIGKILL of the chaos run itself must not leave workers behind either.
START = """
import sys
from paddock.child_processes.beginning import die_with
die_with(int(sys.argv.pop(1)))
from paddock.cli import main
main()
"""
HOST = "127.0.0.1"


class Postgres:
    """fsync is on: what was committed must survive SIGKILL."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._opened = AsyncExitStack()
        self._server: EmbeddedPostgres | None = None

    @property
    def name(self) -> str:
        return "postgres"

    @property
    def dsn(self) -> str:
        assert self._server is not None
        return self._server.dsn

    async def start(self) -> None:
        self._server = await self._opened.enter_async_context(embedded_postgres(self._folder / "data"))

    async def stop(self) -> None:
        await self._opened.aclose()
        self._server = None

    async def restart(self) -> None:
        await self.stop()
        await self.start()

    def kill(self) -> None:
        assert self._server is not None
        os.kill(self._server.pid, signal.SIGKILL)

    def kill_backend(self, pick: int) -> bool:
        """One of its processes: PostgreSQL then throws out every connection and recovers by itself."""
        backends = [p for p in self._tree() if p.pid != self._pid()]
        if not backends:
            return False
        with contextlib.suppress(psutil.NoSuchProcess):
            backends[pick % len(backends)].kill()
        return True

    def freeze(self) -> None:
        for process in self._tree():
            with contextlib.suppress(psutil.NoSuchProcess):
                process.suspend()

    def thaw(self) -> None:
        for process in reversed(self._tree()):
            with contextlib.suppress(psutil.NoSuchProcess):
                process.resume()

    def _pid(self) -> int:
        assert self._server is not None
        return self._server.pid

    def _tree(self) -> list[psutil.Process]:
        return tree(self._pid())


class Kept:
    """A `paddock` process with its log, started again when it was killed."""

    def __init__(self, name: str, folder: Path, arguments: list[str], settings: Mapping[str, str]) -> None:
        self.name = name
        self.starts = 0
        self._arguments = arguments
        self._settings = settings
        self._log = folder / f"{name}.log"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def role(self) -> str:
        return self._arguments[0]

    def start(self) -> None:
        self.starts += 1
        environment = {key: value for key, value in os.environ.items() if not key.startswith("PADDOCK_")}
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-c", START, str(os.getpid()), *self._arguments],
                env={**environment, **self._settings},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def kill(self) -> None:
        """Its main process only: what it started has to notice by itself."""
        self._running().kill()

    def kill_tree(self) -> None:
        for process in tree(self._running().pid):
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()

    def kill_child(self, pick: int) -> bool:
        children = [p for p in tree(self._running().pid) if p.pid != self._running().pid]
        if not children:
            return False
        with contextlib.suppress(psutil.NoSuchProcess):
            children[pick % len(children)].kill()
        return True

    def freeze(self, *, whole: bool) -> list[psutil.Process]:
        """SIGSTOP; with `whole` what it started too. Whoever is thawed after its lease is a zombie."""
        frozen = tree(self._running().pid) if whole else [psutil.Process(self._running().pid)]
        for process in frozen:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.suspend()
        return frozen

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    async def reap(self) -> None:
        await asyncio.to_thread(self._running().wait)

    async def stop(self, seconds: float = 30) -> bool:
        """SIGTERM; False when it did not end in time and was killed."""
        if not self.alive:
            return True
        process = self._running()
        process.terminate()
        try:
            await asyncio.to_thread(process.wait, seconds)
        except subprocess.TimeoutExpired:
            self.kill_tree()
            await self.reap()
            return False
        return True

    def lines(self, containing: str) -> Iterator[str]:
        with self._log.open(errors="replace") as log:
            yield from (line for line in log if containing in line)

    def _running(self) -> "subprocess.Popen[bytes]":
        assert self._process is not None
        return self._process


def thaw(frozen: list[psutil.Process]) -> None:
    for process in frozen:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.resume()


def tree(pid: int) -> list[psutil.Process]:
    """The process and all below it."""
    try:
        root = psutil.Process(pid)
        return [root, *root.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []
