"""A contender in a process of its own, driven by lines: it says what happened, we say when to go on.

The process stays until its standard input closes, so that its CPU can be read after its last word.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

ROOT = Path(__file__).resolve().parent.parent


@dataclass
class ContenderProcess:
    _process: asyncio.subprocess.Process
    _errors: IO[bytes]

    @property
    def pid(self) -> int:
        return self._process.pid

    async def expect(self, event: str, *, within: float = 120.0) -> dict[str, Any]:
        """The next thing it says must be `event`."""
        assert self._process.stdout is not None
        try:
            line = await asyncio.wait_for(self._process.stdout.readline(), within)
        except TimeoutError:
            raise RuntimeError(f"It did not say {event!r} within {within:.0f} s.\n{self._complaints()}") from None
        if not line:
            raise RuntimeError(f"It ended instead of saying {event!r}.\n{self._complaints()}")
        said: dict[str, Any] = json.loads(line)
        if said["event"] != event:
            raise RuntimeError(f"It said {said} instead of {event!r}.\n{self._complaints()}")
        return said

    async def tell(self, word: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{word}\n".encode())
        await self._process.stdin.drain()

    def freeze(self) -> None:
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def _complaints(self) -> str:
        self._errors.seek(0)
        return self._errors.read().decode(errors="replace")[-4000:]


@contextlib.asynccontextmanager
async def contender(
    module: str, *arguments: str, grace: float = 10.0, environment: Mapping[str, str] | None = None
) -> AsyncIterator[ContenderProcess]:
    """Leaving the block closes its line, and kills it if it has not ended `grace` seconds later."""
    with tempfile.TemporaryFile() as errors:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            module,
            *arguments,
            cwd=ROOT,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=errors,
            limit=64 * 1024 * 1024,
            env={**os.environ, **(environment or {})},
        )
        try:
            yield ContenderProcess(process, errors)
        finally:
            assert process.stdin is not None
            process.stdin.close()
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    process.send_signal(signal.SIGCONT)
                try:
                    await asyncio.wait_for(process.wait(), grace)
                except TimeoutError:
                    process.kill()
                    await process.wait()


def say(event: str, **fields: Any) -> None:
    """In the child: one line, at once."""
    print(json.dumps({"event": event, **fields}), flush=True)


async def words() -> AsyncIterator[str]:
    """In the child: what the parent tells; ends when the parent closes the line."""
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while line := await reader.readline():
        yield line.decode().strip()
