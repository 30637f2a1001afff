"""What handlers log: taken in batches, fenced like every other write, committed asynchronously, and bounded.

A batch may be repeated after a lost answer: (attempt, seq) is stored once. What a crash of PostgreSQL takes with it
(a fraction of a second) is lost; a job's outcome never depends on its log. Upkeep keeps the last 256 KiB per job.
"""

import base64
import binascii
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol
from uuid import UUID

import asyncpg

from paddock.db.pool import Database, statements
from paddock.jobs.errors import Refused
from paddock.jobs.filtering import EPOCH, GREATEST_ID
from paddock.jobs.model import JobId

SQL = statements("paddock.jobs.sql", "logs.sql")
KEPT_BYTES = 256 * 1024
MOST_LINES = 64 * 1024
MOST_ITEMS = 1_000
LARGEST = 2**63 - 1
ROWS_AT_ONCE = 20
END_OF_TIME = datetime(9999, 1, 1, tzinfo=EPOCH.tzinfo)


class LogItem(Protocol):
    """As it comes over the wire."""

    @property
    def id(self) -> UUID: ...

    @property
    def attempt_id(self) -> UUID: ...

    @property
    def seq(self) -> int: ...

    @property
    def lines(self) -> str: ...

    @property
    def dropped_bytes(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Chunk:
    at: datetime
    attempt_id: UUID
    seq: int
    lines: str
    dropped_bytes: int


@dataclass(frozen=True, slots=True)
class Tail:
    """`after` is where the next look goes on. `cut`: there is more than fitted, before (a tail) or after it."""

    chunks: Sequence[Chunk]
    after: str | None
    cut: bool

    @property
    def dropped_bytes(self) -> int:
        return sum(chunk.dropped_bytes for chunk in self.chunks)


async def append(db: Database, items: Sequence[LogItem]) -> int:
    """Returns how many were stored; a stale attempt's and repeated ones are not."""
    taken = [item for item in items[:MOST_ITEMS] if 0 <= item.seq <= LARGEST]
    if not taken:
        return 0
    texts = [_bounded(item) for item in taken]
    async with db.pool("relaxed").acquire() as connection, connection.transaction():
        await connection.execute(SQL["lock_attempts"].sql, [item.attempt_id for item in taken])
        stored = await connection.fetch(
            SQL["append_logs"].sql,
            [item.id for item in taken],
            [item.attempt_id for item in taken],
            [item.seq for item in taken],
            [text for text, _ in texts],
            [dropped for _, dropped in texts],
        )
    return len(stored)


async def tail(db: Database, job: JobId, after: str | None = None, limit_bytes: int = KEPT_BYTES) -> Tail:
    """The end of a job's log; with `after` what came since, oldest first."""
    place = (END_OF_TIME, GREATEST_ID, LARGEST) if after is None else _read_place(after)
    statement = SQL["logs_before"] if after is None else SQL["logs_after"]
    chunks: list[Chunk] = []
    size, cut = 0, False
    while not cut:
        rows = await db.fetch(statement, job, *place, ROWS_AT_ONCE)
        for row in rows:
            size += len(row["lines"].encode())
            if chunks and size > limit_bytes:
                cut = True
                break
            chunks.append(_chunk(row))
            place = (row["at"], row["attempt_id"], row["seq"])
        if len(rows) < ROWS_AT_ONCE:
            break
    if after is None:
        chunks.reverse()
    return Tail(chunks, _write_place(chunks[-1]) if chunks else after, cut)


def _bounded(item: LogItem) -> tuple[str, int]:
    content = item.lines.replace("\0", "\ufffd").encode("utf-8", "replace")
    kept = content[:MOST_LINES].decode("utf-8", "ignore")
    dropped = min(max(0, item.dropped_bytes), LARGEST - len(content))
    return kept, dropped + max(0, len(content) - MOST_LINES)


def _chunk(row: asyncpg.Record) -> Chunk:
    return Chunk(row["at"], row["attempt_id"], row["seq"], row["lines"], row["dropped_bytes"])


def _write_place(chunk: Chunk) -> str:
    microseconds = (chunk.at - EPOCH) // timedelta(microseconds=1)
    content = struct.pack(">q16sq", microseconds, chunk.attempt_id.bytes, chunk.seq)
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()


def _read_place(after: str) -> tuple[datetime, UUID, int]:
    try:
        content = base64.b64decode(after + "=" * (-len(after) % 4), altchars=b"-_", validate=True)
        microseconds, attempt, seq = struct.unpack(">q16sq", content)
        return EPOCH + timedelta(microseconds=microseconds), UUID(bytes=attempt), seq
    except (binascii.Error, ValueError, struct.error, OverflowError):
        raise Refused(
            "bad_cursor",
            "This place in the log is not one of ours.",
            hint="Use `after` of the answer before.",
            status=400,
        ) from None
