"""The socket between a supervisor and one of its runners: length-prefixed frames, each a JSON list of messages.

What is sent in one turn of the loop goes as one frame: a batch of a hundred jobs costs one write and one read.
"""

import asyncio
import socket
import struct
from collections.abc import Callable
from typing import Any, Literal
from uuid import UUID

import msgspec

from paddock.jobs import wire

HEADER = struct.Struct("!I")
CHUNK = 256 * 1024


# One object, so that it is known as the default and left out.
ABSENT = msgspec.Raw()


class Start(msgspec.Struct, tag="start"):
    job: wire.ClaimedJob


class Stop(msgspec.Struct, tag="stop"):
    attempt_id: UUID


class Saved(msgspec.Struct, tag="saved", omit_defaults=True):
    attempt_id: UUID
    verdict: str
    message: str | None = None


class Ended(msgspec.Struct, tag="ended", omit_defaults=True, kw_only=True):
    """A `wire.FinishItem` whose result and saved state pass through the supervisor unread."""

    id: UUID
    attempt_id: UUID
    outcome: Literal["done", "again", "transient", "permanent"]
    result: msgspec.Raw = ABSENT
    error: wire.Error | None = None
    saved: msgspec.Raw = ABSENT
    progress: bool = True
    delay_seconds: float | None = None
    waiting_on: str | None = None
    budget: Literal["work", "cluster"] = "work"
    unclassified: bool = False
    events: list[wire.Event] = []
    follow_ups: list[wire.FollowUp] = []

    def item(self) -> wire.FinishItem:
        return wire.FinishItem(
            id=self.id,
            attempt_id=self.attempt_id,
            outcome=self.outcome,
            # A copy: the bytes here are a window on the whole frame.
            result=self.result.copy() if self.result else None,
            error=self.error,
            saved=self.saved.copy() if self.saved else None,
            progress=self.progress,
            delay_seconds=self.delay_seconds,
            waiting_on=self.waiting_on,
            budget=self.budget,
            unclassified=self.unclassified,
            events=self.events,
            follow_ups=self.follow_ups,
        )


class Stopped(msgspec.Struct, tag="stopped"):
    attempt_id: UUID


class SaveAsked(msgspec.Struct, tag="save"):
    id: UUID
    attempt_id: UUID
    saved: msgspec.Raw
    progress: bool


class Reported(msgspec.Struct, tag="report"):
    attempt_id: UUID
    progress: dict[str, Any]


class Logged(msgspec.Struct, tag="log", omit_defaults=True):
    attempt_id: UUID
    lines: str
    dropped_bytes: int = 0


ToRunner = Start | Stop | Saved
FromRunner = Ended | Stopped | SaveAsked | Reported | Logged

to_runner = msgspec.json.Decoder(list[ToRunner])
from_runner = msgspec.json.Decoder(list[FromRunner])
_encode = msgspec.json.Encoder().encode


class Pipe:
    """One end of the socket, on the running loop. Reads until the other end is gone, then says so once."""

    def __init__(
        self,
        end: socket.socket,
        receive: Callable[[bytes], None],
        closed: Callable[[], None],
    ) -> None:
        end.setblocking(False)
        self._socket = end
        self._receive = receive
        self._closed = closed
        self._loop = asyncio.get_running_loop()
        self._read = bytearray()
        self._messages: list[bytes] = []
        self._unsent = bytearray()
        self._open = True
        self._loop.add_reader(end, self._readable)

    def send(self, message: ToRunner | FromRunner) -> None:
        """Encodes now: the caller may change what it sent. After the other end is gone it goes nowhere."""
        if not self._messages:
            self._loop.call_soon(self._flush)
        self._messages.append(_encode(message))

    def close(self) -> None:
        if self._open:
            self._flush()
            self._open = False
            self._loop.remove_reader(self._socket)
            self._loop.remove_writer(self._socket)
            self._socket.close()

    def drain(self) -> None:
        """Reads all that has arrived."""
        while self._open and self._readable():
            pass

    def _flush(self) -> None:
        if not self._messages or not self._open:
            return
        body = b"[" + b",".join(self._messages) + b"]"
        self._messages.clear()
        waits = bool(self._unsent)
        self._unsent += HEADER.pack(len(body))
        self._unsent += body
        if not waits:
            self._write()

    def _write(self) -> None:
        try:
            sent = self._socket.send(self._unsent)
        except (BlockingIOError, InterruptedError):
            sent = 0
        except OSError:
            self._unsent.clear()  # the reader will see that the other end is gone
            self._loop.remove_writer(self._socket)
            return
        del self._unsent[:sent]
        if self._unsent:
            self._loop.add_writer(self._socket, self._write)
        else:
            self._loop.remove_writer(self._socket)

    def _readable(self) -> bool:
        try:
            data = self._socket.recv(CHUNK)
        except (BlockingIOError, InterruptedError):
            return False
        except OSError:
            data = b""
        if not data:
            self.close()
            self._closed()
            return False
        self._read += data
        self._split()
        return True

    def _split(self) -> None:
        frames, start, buffer = [], 0, self._read
        while len(buffer) - start >= HEADER.size:
            (length,) = HEADER.unpack_from(buffer, start)
            end = start + HEADER.size + length
            if len(buffer) < end:
                break
            frames.append(bytes(buffer[start + HEADER.size : end]))
            start = end
        del buffer[:start]
        for frame in frames:
            self._receive(frame)
