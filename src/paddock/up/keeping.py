"""The processes it starts, and starts again when they end."""

import asyncio
import contextlib
import json
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

from paddock.child_processes.spawning import ChildProcess, import_path
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
        self._notice: str | None = None
        self._stopping = asyncio.Event()
        self._child = self._start()

    def tell(self, settings: Callable[[int], dict[str, Any]]) -> None:
        """Settings of its n-th start, as arguments of configuration: they rank above the environment and the file."""
        self._settings = settings
        self._tell_all(settings)

    def _tell_all(self, settings: Callable[[int], dict[str, Any]]) -> None:
        self._write({**settings(self._starts), "data": str(self._data)})
        if self._notice is not None:
            self._write({"database_notice": self._notice})

    def _write(self, facts: dict[str, Any]) -> None:
        with contextlib.suppress(BrokenPipeError):  # it has ended: whoever keeps it notices
            self._child.stdin.write(json.dumps(facts).encode() + b"\n")
            self._child.stdin.flush()

    def notice(self, text: str | None) -> None:
        """What is wrong with its database, for as long as it is: a child that is started meanwhile is told it too."""
        self._notice = text
        if self._settings is not None:  # else it still waits for its settings, and they come first
            self._write({"database_notice": text})

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
        child = self._child
        if child.returncode is not None:
            return
        if await child.end(ask=signal.SIGTERM, grace=STOP_GRACE.total_seconds()) == -signal.SIGKILL:
            log.warning("Process %d did not stop in time and was killed.", child.pid)

    def _start(self) -> ChildProcess:
        self._starts += 1
        inherited = {name: value for name, value in os.environ.items() if name not in NOT_INHERITED}
        # In a session of its own: Ctrl-C in a terminal is for us, and we stop the others in order.
        return ChildProcess(
            [sys.executable, "-P", "-m", "paddock.child", self.role, str(os.getpid())],
            environment={**inherited, **import_path()},
            stdin=subprocess.PIPE,
            stdout=None,
            stderr=None,
        )

    async def _keep(self) -> None:
        pause = 0.0
        while True:
            began = time.monotonic()
            code = await self._child.wait()
            self.first_end.set()
            if self._stopping.is_set() or self._settings is None:
                return
            lived = time.monotonic() - began
            pause = 0.0 if lived > SETTLED.total_seconds() else min(LONGEST_PAUSE, max(0.1, pause * 2))
            log.warning("The %s %s after %.1f s: starting it again.", NAMES[self.role], how_it_ended(code), lived)
            await asyncio.sleep(pause)
            self._child.reap()
            self._child = self._start()
            self._tell_all(self._settings)


def how_it_ended(code: int) -> str:
    if code >= 0:
        return f"exited with code {code}"
    with contextlib.suppress(ValueError):
        return f"was killed by {signal.Signals(-code).name}"
    return f"was killed by signal {-code}"
