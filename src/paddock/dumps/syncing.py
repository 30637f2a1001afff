"""Dumps streamed by the control plane itself, for small databases: `GET /export/dump` and its kin.

A process of its own renders, so that nothing here waits for a database; this passes on what it writes. Bounded in number,
in time and by how fast its reader reads. An answer that cannot be brought to its end is broken off, never ended: what
looks whole is whole.
"""

import asyncio
import os
import subprocess
import sys
from collections.abc import Coroutine, Mapping
from contextlib import suppress
from typing import Any

import orjson
import structlog
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from paddock.child_processes.spawning import ChildProcess, enlarge
from paddock.dumps import copies
from paddock.dumps.database_settings import DATABASE, FileDatabase
from paddock.jobs.errors import Refused
from paddock.jobs.model import JsonObject
from paddock.log import scrub

AT_ONCE = 2
LEAST_RATE = 64 * 1024
RATE_WINDOW = 60.0
READ = 256 * 1024

log = structlog.get_logger()


class Slot:
    """Given back once, at the latest when nobody has it any more."""

    def __init__(self, slots: "Slots") -> None:
        self._slots: Slots | None = slots

    def release(self) -> None:
        if self._slots is not None:
            self._slots.taken -= 1
            self._slots = None

    def __del__(self) -> None:
        self.release()


class Slots:
    def __init__(self, most: int) -> None:
        self.most, self.taken = most, 0

    def take(self) -> Slot | None:
        if self.taken >= self.most:
            return None
        self.taken += 1
        return Slot(self)


SLOTS = Slots(AT_ONCE)


class Streamed(Response):
    def __init__(
        self, slot: Slot, asked: JsonObject, *, longest: float, media_type: str, headers: Mapping[str, str]
    ) -> None:
        super().__init__(None, 200, headers, media_type)
        del self.headers["content-length"]
        self._slot, self._asked, self._longest = slot, {**asked, "copy": copies.name_of_stream()}, longest
        self._started = asyncio.Event()
        self._sent = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        child: ChildProcess | None = None
        try:
            async with asyncio.timeout(self._longest):
                child = start()
                await self._relay(child, receive, send)
        except TimeoutError:
            self._gave_up("it took longer than dumps_sync_max_seconds")
            if not self._started.is_set():
                raise Refused(
                    "stream_timed_out", "The export took too long to begin.", hint=POST_INSTEAD, status=503
                ) from None
        finally:
            if child is not None:
                await uninterrupted(child.end())
                await uninterrupted(asyncio.to_thread(_remove_copy, self._asked))
            self._slot.release()

    async def _relay(self, child: ChildProcess, receive: Receive, send: Send) -> None:
        """Ends with the child, with the reader, or with patience. Without its last message an answer is a broken one."""
        working = {
            asyncio.create_task(self._pass_on(child, send)): "",
            asyncio.create_task(_gone(receive)): "its reader went away",
            asyncio.create_task(self._too_slow()): f"less than {LEAST_RATE:,} bytes a second for {RATE_WINDOW:g} s",
        }
        try:
            done, _ = await asyncio.wait(working, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
            if all(working[task] for task in done):
                self._gave_up(next(working[task] for task in done))
        finally:
            for task in working:
                task.cancel()
            await asyncio.gather(*working, return_exceptions=True)

    async def _pass_on(self, child: ChildProcess, send: Send) -> None:
        await child.write(orjson.dumps(self._asked, default=str) + b"\n")
        begins, data = await first_line(child)
        if not begins:
            await child.wait()
            raise RuntimeError(f"The process of a streamed export ended before it began: {child.last_words.strip()}")
        check(begins)
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        self._started.set()
        while data := data or await child.read(READ):
            await send({"type": "http.response.body", "body": data, "more_body": True})
            self._sent += len(data)
            data = b""
        if await child.wait() == 0:
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        else:
            self._gave_up(f"its process ended with {child.returncode}: {child.last_words.strip()}")

    async def _too_slow(self) -> None:
        await self._started.wait()
        before = -1.0 * LEAST_RATE * RATE_WINDOW
        while self._sent - before >= LEAST_RATE * RATE_WINDOW:
            before = self._sent
            await asyncio.sleep(RATE_WINDOW)

    def _gave_up(self, why: str) -> None:
        log.warning("stream_broken_off", database=self._asked["database"], sent=self._sent, why=scrub(why, limit=2000))


POST_INSTEAD = 'Send POST /export/dump {"async": true} instead, and download the file when it is there.'


def check(line: bytes) -> None:
    error = orjson.loads(line).get("error")
    if error is None:
        return
    status = 404 if error["code"] == "unknown_table" else 503 if error["transient"] else 400
    raise Refused(error["code"], error["message"], hint=error["hint"] if status != 404 else None, status=status)


def start() -> ChildProcess:
    """In a group of its own: pg_dump goes with it."""
    child = ChildProcess(
        [sys.executable, "-P", "-m", "paddock.dumps.child", str(os.getpid())],
        # A database's settings may name variables, and libpq has its own.
        environment=dict(os.environ),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    enlarge(child.stdout.fileno())
    return child


async def first_line(child: ChildProcess) -> tuple[bytes, bytes]:
    """The line, which is empty if there is none, and what came with it of the rest."""
    said = b""
    while b"\n" not in said:
        data = await child.read(READ)
        if not data:
            return b"", b""
        said += data
    line, _, rest = said.partition(b"\n")
    return line, rest


async def uninterrupted(work: Coroutine[Any, Any, object]) -> None:
    ending = asyncio.ensure_future(work)
    while not ending.done():
        with suppress(asyncio.CancelledError, TimeoutError):
            await asyncio.shield(ending)


def _remove_copy(asked: JsonObject) -> None:
    """A process that was killed, because its reader went away, could not do it itself."""
    settings = DATABASE.validate_python(asked["settings"])
    if isinstance(settings, FileDatabase):
        copies.remove(settings.copies, asked["copy"])


async def _gone(receive: Receive) -> None:
    message: Message = {"type": ""}
    while message["type"] != "http.disconnect":
        message = await receive()
