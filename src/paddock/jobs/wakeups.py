"""How replicas tell each other: one channel, debounced with a leading edge, outside every transaction that works.

A NOTIFY in the enqueue transaction takes a cluster-wide lock and costs 8 x the throughput; so the first message
goes at once on a connection of its own kind and what follows within 5 ms goes together. A message that is lost
(the process dies between commit and NOTIFY) delays a waiting worker until the next sweep, nothing more.
"""

import asyncio
import contextlib
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from uuid import UUID

import asyncpg
import msgspec
import structlog

from paddock.db.pool import UNAVAILABLE, Database, Statement
from paddock.jobs.model import JobId

CHANNEL = "paddock"
QUIET_SECONDS = 0.005
CHANGES_SECONDS = 1.0
MOST_CHANGES = 180
# PostgreSQL takes less than 8,000 bytes. Wake-ups go first, then losses, then as many changes as there is room for.
MOST_BYTES = 7_500
WAKE_BYTES = 3_500
MOST_LOSSES = 25
LOSS_BYTES, CHANGE_BYTES = 80, 39
NOTIFY = Statement("notify", "SELECT pg_notify('paddock', $1)", "relaxed")
log = structlog.get_logger()


class Wake(msgspec.Struct, frozen=True, array_like=True):
    """Something of this kind and lane is due in `due_in` seconds."""

    kind: str
    lane: int
    due_at: datetime
    due_in: float
    n: int = 1


class Message(msgspec.Struct, omit_defaults=True):
    replica: str
    wakes: list[Wake] = []
    # Sessions and their attempts that lost their job.
    lost: list[tuple[UUID, UUID]] = []
    changed: list[str] = []
    # More jobs changed than can be listed.
    overflow: bool = False
    # What was due all along may be claimed now.
    look: bool = False


class Notifier:
    """Gathers what this replica has to tell and sends it."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self.replica = uuid.uuid4().hex[:12]
        self._wakes: dict[tuple[str, int], Wake] = {}
        self._lost: set[tuple[UUID, UUID]] = set()
        self._changed: set[JobId] = set()
        self._overflow = False
        self._look = False
        self._stirred = asyncio.Event()
        self._encoder = msgspec.json.Encoder()

    def wake(self, wakes: Iterable[Wake]) -> None:
        for wake in wakes:
            key = (wake.kind, wake.lane)
            known = self._wakes.get(key)
            self._wakes[key] = wake if known is None else _merged(known, wake)
            self._stirred.set()

    def look(self) -> None:
        self._look = True
        self._stirred.set()

    def cancelled(self, sessions: Mapping[UUID, Sequence[UUID]]) -> None:
        self._lost.update((session, attempt) for session, attempts in sessions.items() for attempt in attempts)
        if self._lost:
            self._stirred.set()

    def changed(self, ids: Iterable[JobId]) -> None:
        """Not urgent: these go along with the next message, once a second at the latest."""
        if self._overflow:
            return
        self._changed.update(ids)
        if len(self._changed) > MOST_CHANGES:
            self._changed.clear()
            self._overflow = True

    async def run(self) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                # Not wait_for, here and below: before Python 3.12 it swallows a cancel that comes with the event.
                async with asyncio.timeout(CHANGES_SECONDS):
                    await self._stirred.wait()
            self._stirred.clear()
            message = self._message()
            if message is not None:
                await self._send(message)
                await asyncio.sleep(QUIET_SECONDS)

    def _message(self) -> Message | None:
        if not (self._wakes or self._lost or self._changed or self._overflow or self._look):
            return None
        message = Message(replica=self.replica, look=self._look)
        self._look = False
        left = MOST_BYTES
        while self._wakes and left > MOST_BYTES - WAKE_BYTES:
            wake = self._wakes.pop(next(iter(self._wakes)))
            message.wakes.append(wake)
            left -= len(self._encoder.encode(wake)) + 1
        while self._lost and len(message.lost) < MOST_LOSSES:
            message.lost.append(self._lost.pop())
            left -= LOSS_BYTES
        message.overflow = self._overflow or len(self._changed) * CHANGE_BYTES > left
        if not message.overflow:
            message.changed = [str(id) for id in self._changed]
        self._changed.clear()
        self._overflow = False
        if self._wakes or self._lost:
            self._stirred.set()
        return message

    async def _send(self, message: Message) -> None:
        try:
            await self._db.execute(NOTIFY, self._encoder.encode(message).decode())
        except UNAVAILABLE as problem:
            log.warning("notify_failed", problem=str(problem))
            # The sweep finds the jobs and the beat tells the losses; who watches changes elsewhere must start over.
            self._overflow = True


class Listener:
    """Hears the other replicas on a connection outside the pools, and comes back when it breaks."""

    def __init__(
        self, dsn: str, replica: str, on_message: Callable[[Message], None], on_gap: Callable[[], None]
    ) -> None:
        self._dsn = dsn
        self._replica = replica
        self._on_message = on_message
        self._on_gap = on_gap
        self._decoder = msgspec.json.Decoder(Message)
        # Set once it has listened, or could not, for the first time: before that nothing can have been missed.
        self.begun = asyncio.Event()

    async def run(self) -> None:
        while True:
            try:
                await self._listen()
            except UNAVAILABLE as problem:
                log.warning("listener_lost", problem=str(problem))
            self._on_gap()
            self.begun.set()
            await asyncio.sleep(1)

    async def _listen(self) -> None:
        connection = await asyncpg.connect(self._dsn, server_settings={"application_name": "paddock listener"})
        lost = asyncio.Event()
        try:
            connection.add_termination_listener(lambda _: lost.set())
            await connection.add_listener(CHANNEL, self._receive)
            self._on_gap()
            self.begun.set()
            while not lost.is_set():
                # A dead peer is noticed by asking: a listener that nobody answers would wait for ever.
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(30):
                        await lost.wait()
                if not lost.is_set():
                    await connection.fetchval("SELECT 1", timeout=10)
        finally:
            connection.terminate()

    def _receive(self, connection: object, pid: int, channel: str, payload: object) -> None:
        try:
            message = self._decoder.decode(str(payload))
        except msgspec.MsgspecError:
            log.warning("notification_not_understood")
            return
        if message.replica != self._replica:
            self._on_message(message)


def _merged(one: Wake, other: Wake) -> Wake:
    return Wake(one.kind, one.lane, min(one.due_at, other.due_at), min(one.due_in, other.due_in), one.n + other.n)
