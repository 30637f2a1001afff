"""The server's side of its children: start one, hear its frames, and know how it ended.

Frames come from a process that may have been taken over by a hostile statement, so each is bounded and checked.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import structlog

from paddock.child_processes.frames import HEADER
from paddock.child_processes.spawning import ChildProcess, import_path, large_pipe, readable
from paddock.graphs.children.talking import DONE, ERROR, MOST_FRAME_BYTES, PROGRESS

READ_BYTES = 1 << 20
LAST_WORDS = 2_000

log = structlog.get_logger("paddock.graphs")


class ChildDied(Exception):
    """It ended before it said all that it should. `status` as of ChildProcess.returncode."""

    def __init__(self, status: int, last_words: str) -> None:
        how = f"by signal {-status}" if status < 0 else f"with status {status}"
        super().__init__(f"The process ended {how}.")
        self.status = status
        self.last_words = last_words


class ChildLied(Exception):
    """It sent what no child of ours sends."""


class ChildFailed(Exception):
    """What it said instead of an answer."""

    def __init__(self, facts: dict[str, Any]) -> None:
        super().__init__(str(facts.get("message", "")))
        self.facts = facts


class Family:
    """The children that live now, for what they take together."""

    def __init__(self) -> None:
        self._members: set[ChildProcess] = set()

    def start(self, module: str, arguments: Sequence[str], fds: Sequence[int]) -> ChildProcess:
        child = ChildProcess(
            # -P: the folder we are in is no place to import from.
            [sys.executable, "-P", "-m", module, str(os.getpid()), *arguments],
            environment=import_path(),
            stdin=subprocess.PIPE,
            pass_fds=fds,
        )
        self._members.add(child)
        child.when_ended(lambda: self._members.discard(child))
        return child

    def memory_bytes(self) -> int:
        return sum(resident_bytes(pid) for pid in (os.getpid(), *(child.pid for child in self._members)))

    async def run(
        self,
        module: str,
        request: dict[str, Any],
        progress: Callable[[dict[str, Any]], None],
        started: Callable[[ChildProcess], None] = lambda child: None,
    ) -> dict[str, Any]:
        """A child that does one thing. Cancelled, it is gone before the caller goes on."""
        ours, theirs = large_pipe()
        try:
            child = self.start(module, [str(theirs)], [theirs])
        except OSError:
            os.close(ours)
            raise
        finally:
            os.close(theirs)
        try:
            started(child)
            await child.write(json.dumps(request).encode() + b"\n")
            return await _hear_out(child, ours, progress)
        finally:
            await child.end()
            os.close(ours)


async def _hear_out(child: ChildProcess, pipe: int, progress: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    while True:
        frame = await read_frame(pipe)
        if frame is None:
            status = await child.wait()
            log.warning("graph_child_died", pid=child.pid, status=status, stderr=child.last_words[-LAST_WORDS:])
            raise ChildDied(status, child.last_words)
        kind, facts = frame[0], read_facts(frame[1])
        if kind == DONE:
            return facts
        if kind == ERROR:
            raise ChildFailed(facts)
        if kind != PROGRESS:
            raise ChildLied(f"A frame {kind!r} came out of turn.")
        progress(facts)


async def read_frame(pipe: int) -> tuple[bytes, bytes] | None:
    """None at the end of the pipe, even in the middle of a frame."""
    header = await _read(pipe, HEADER.size)
    if header is None:
        return None
    kind, length = HEADER.unpack(header)
    if length > MOST_FRAME_BYTES:
        raise ChildLied(f"A frame of {length:,} bytes was announced.")
    body = await _read(pipe, length)
    return None if body is None else (kind, body)


async def _read(pipe: int, length: int) -> bytes | None:
    parts, missing = [], length
    while missing:
        try:
            part = os.read(pipe, min(missing, READ_BYTES))
        except BlockingIOError:
            await readable(pipe)
            continue
        if not part:
            return None
        parts.append(part)
        missing -= len(part)
    return b"".join(parts)


def read_facts(body: bytes) -> dict[str, Any]:
    try:
        facts = json.loads(body)
    except ValueError:
        raise ChildLied("A frame is not JSON.") from None
    if not isinstance(facts, dict):
        raise ChildLied("A frame is no JSON object.")
    return facts


def resident_bytes(pid: int) -> int:
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except (OSError, IndexError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


def cpu_ticks(pid: int) -> int:
    """What the process has used of the processor; 0 when it is gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0
    return int(fields[11]) + int(fields[12])
