"""The processes it starts, and starts again when they end."""

import asyncio
import contextlib
import json
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

from paddock.stopping import cancel

NAMES = {"serve": "control plane", "worker": "worker"}
# What a shell sets for another server is not for ours.
NOT_INHERITED = frozenset({"PADDOCK_SERVER", "PADDOCK_TOKEN", "PADDOCK_TOKEN_FILE"})
# A child that lived this long is started again at once; one that did not, after a pause that grows.
SETTLED = timedelta(seconds=10)
LONGEST_PAUSE = 5.0
STOP_GRACE = timedelta(seconds=30)

log = logging.getLogger(__name__)


class Kept:
    """A process of ours that is started again when it ends. It begins to work when it is told its settings."""

    def __init__(self, role: str, data: Path) -> None:
        self.role = role
        self.first_end = asyncio.Event()
        self._data = data
        self._starts = 0
        self._settings: Callable[[int], dict[str, Any]] | None = None
        self._stopping = asyncio.Event()
        self._child = self._start()

    def tell(self, settings: Callable[[int], dict[str, Any]]) -> None:
        """Settings of its n-th start, as arguments of configuration: they rank above the environment and the file."""
        self._settings = settings
        self._child.tell({**settings(self._starts), "data": str(self._data)})

    @asynccontextmanager
    async def running(self) -> AsyncIterator["Kept"]:
        keeper = asyncio.create_task(self._keep(), name=f"keep {self.role}")
        try:
            yield self
        finally:
            await self.stop()
            await cancel(keeper)

    async def stop(self) -> None:
        self._stopping.set()
        await self._child.stop()

    def _start(self) -> "Child":
        self._starts += 1
        return Child([sys.executable, "-m", "paddock.child", self.role, str(os.getpid())])

    async def _keep(self) -> None:
        pause = 0.0
        while True:
            began = time.monotonic()
            await self._child.exited.wait()
            self.first_end.set()
            if self._stopping.is_set() or self._settings is None:
                return
            lived = time.monotonic() - began
            pause = 0.0 if lived > SETTLED.total_seconds() else min(LONGEST_PAUSE, max(0.1, pause * 2))
            how = how_it_ended(self._child.returncode)
            log.warning("The %s %s after %.1f s: starting it again.", NAMES[self.role], how, lived)
            await asyncio.sleep(pause)
            self._child = self._start()
            self._child.tell({**self._settings(self._starts), "data": str(self._data)})


class Child:
    """Forked and waited for by a thread of its own: the death signal is tied to the thread that forked, and this one
    stays in waitpid() until the child has ended."""

    def __init__(self, command: list[str]) -> None:
        self.exited = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._started = threading.Event()
        self._problem: OSError | None = None
        self._process: subprocess.Popen[bytes] | None = None
        threading.Thread(target=self._live, args=(command,), name=command[3], daemon=True).start()
        self._started.wait()  # milliseconds: the time of a fork and an exec
        if self._problem is not None:
            raise self._problem

    def _live(self, command: list[str]) -> None:
        inherited = {name: value for name, value in os.environ.items() if name not in NOT_INHERITED}
        try:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                env={**inherited, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
                start_new_session=True,  # Ctrl-C in a terminal is for us: we stop the others in order
            )
        except OSError as problem:
            self._problem = problem
            return
        finally:
            self._started.set()
        self._process.wait()
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody is left to be told
            self._loop.call_soon_threadsafe(self.exited.set)

    def tell(self, settings: dict[str, Any]) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it has ended: whoever keeps it notices
            self._process.stdin.write(json.dumps(settings).encode() + b"\n")
            self._process.stdin.flush()

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def returncode(self) -> int:
        assert self._process is not None
        assert self._process.returncode is not None, "it has ended"
        return self._process.returncode

    async def stop(self) -> None:
        assert self._process is not None
        if self.exited.is_set():
            return
        self._process.terminate()
        try:
            async with asyncio.timeout(STOP_GRACE.total_seconds()):
                await self.exited.wait()
        except TimeoutError:
            log.warning("Process %d did not stop in time and is killed.", self._process.pid)
            self._process.kill()
            await self.exited.wait()


def how_it_ended(code: int) -> str:
    if code >= 0:
        return f"exited with code {code}"
    with contextlib.suppress(ValueError):
        return f"was killed by {signal.Signals(-code).name}"
    return f"was killed by signal {-code}"
