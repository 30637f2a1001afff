"""Parts of one size, sent one after another, and a cursor from which any other process goes on.

The cursor is saved after each part and says where the chunk begins in which the next part begins, and how much of that
chunk is in earlier parts. Nothing of a chunk is kept: it is rendered again, and has the same bytes. One part is under way
while the next is being filled, so two parts is all the memory this takes.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass, field
from io import BytesIO

import orjson

from paddock.dumps.composing import Composer, Position, Written
from paddock.dumps.digesting import PartDigest
from paddock.dumps.earlier_cursors import spelled_out
from paddock.jobs.errors import PermanentRunnerError
from paddock.jobs.model import JsonObject
from paddock.storage.parts import Parts, Whole
from paddock.storage.store import Store
from paddock.storage.threads import on_io

LEAST_PART = 8 << 20
MOST_PARTS = 9_000
ROLL = 200
# A cursor that is larger goes into an object of its own.
LARGEST_CURSOR = 8 << 10


@dataclass(frozen=True, slots=True)
class Cursor:
    # The next part, and the digest over all before it.
    part: int
    digest: str
    # Where the chunk begins in which that part begins, what the file has before that chunk, and how much of the chunk
    # is in earlier parts.
    position: Position
    start: Written
    shipped: int = 0


@dataclass(slots=True)
class DumpDraft:
    """One try to write the file, under a key that no other try has."""

    id: str
    key: str
    part_size: int
    identity: str
    upload: str | None = None
    cursor: Cursor | None = None
    # Of the parts since the last roll; before, they are in `rolled` objects `state-1`, `state-2`, …
    etags: list[str] = field(default_factory=list)
    rolled: int = 0


# Saves the draft as `kept_draft` wrote it down.
Save = Callable[[JsonObject], Awaitable[None]]
Told = Callable[[Position, int], None]


class PartWriter:
    def __init__(
        self, store: Store, parts: Parts, composer: Composer, draft: DumpDraft, save: Save, told: Told
    ) -> None:
        self._store, self._parts, self._composer, self._draft = store, parts, composer, draft
        self._save, self._told = save, told
        self._under_way: tuple[asyncio.Task[str], Cursor] | None = None
        # Of the whole file, once it is written.
        self.size = 0
        self._cursor_object: str | None = None

    async def write(self, over: Callable[[], bool]) -> bool:
        """Whether all parts are there. Gives way, when its time is over, after a part: then nothing is done twice."""
        try:
            return await self._write(over)
        finally:
            if self._under_way is not None:
                self._under_way[0].cancel()
                await asyncio.wait([self._under_way[0]])

    async def _write(self, over: Callable[[], bool]) -> bool:
        size = self._draft.part_size
        cursor = self._draft.cursor or Cursor(1, "", self._composer.first, Written(size))
        part, digest, start, skip = cursor.part, PartDigest(size, cursor.digest), cursor.start, cursor.shipped
        position: Position | None = cursor.position
        # Its bytes leave it without being copied.
        buffer = BytesIO()
        while position is not None:
            chunk = await self._composer.render(position, start)
            left, skip = memoryview(chunk.data)[skip:], 0
            # Never more than a part: a chunk can be a row of many.
            while (missing := size - buffer.tell()) <= len(left):
                buffer.write(left[:missing])
                await on_io(digest.add, left[:missing])
                data, buffer, left = buffer.getvalue(), BytesIO(), left[missing:]
                await self._send(data, Cursor(part + 1, digest.value, position, start, len(chunk.data) - len(left)))
                del data
                part += 1
                if over():
                    await self._settle()
                    return False
            buffer.write(left)
            await on_io(digest.add, left)
            written = (part - 1) * size + buffer.tell()
            position, start = chunk.next, Written(size, written, digest.value)
            self._told(chunk.at, written)
            # Not held while the next one is made.
            del chunk, left
        data = buffer.getvalue()
        self.size = (part - 1) * size + len(data)
        if data or part == 1:
            await self._send(data, Cursor(part + 1, digest.value, {}, start))
        await self._settle(last=True)
        return True

    async def _send(self, data: bytes, after: Cursor) -> None:
        await self._settle()
        if after.part > MOST_PARTS + 999:
            raise PermanentRunnerError(
                "The dump needs more parts than an object store takes.",
                code="too_many_parts",
                hint="Set dumps.part_bytes to a larger size for this database, then retry.",
            )
        number = after.part - 1
        offset = (number - 1) * self._draft.part_size
        upload = self._draft.upload or ""
        sending = self._parts.send(self._draft.key, upload, number, offset, data)
        self._under_way = (asyncio.ensure_future(sending), after)

    async def _settle(self, *, last: bool = False) -> None:
        """Waits for the part under way, then saves. The last one the caller saves, with what ends the file."""
        if self._under_way is None:
            return
        task, after = self._under_way
        etag = await asyncio.shield(task)
        self._under_way = None
        draft = self._draft
        draft.etags = [*draft.etags, etag]
        draft.cursor = after
        if last:
            return
        if len(draft.etags) >= ROLL:
            await self._store.put(f"{self._states}/state-{draft.rolled + 1}", orjson.dumps(draft.etags))
            draft.rolled, draft.etags = draft.rolled + 1, []
        kept = kept_draft(draft)
        before, self._cursor_object = self._cursor_object, await self._put_aside(kept)
        await self._save(kept)
        if before is not None:
            await self._store.delete([before])

    async def _put_aside(self, kept: JsonObject) -> str | None:
        body = orjson.dumps(kept["cursor"])
        if len(body) <= LARGEST_CURSOR:
            return None
        name = f"cursor-{kept['cursor']['part']}"
        kept["cursor"] = {"object": name}
        await self._store.put(f"{self._states}/{name}", body)
        return f"{self._states}/{name}"

    @property
    def _states(self) -> str:
        return states_of(self._draft)


async def complete(store: Store, parts: Parts, draft: DumpDraft, size: int) -> Whole:
    """From parts to the file. May be repeated, as long as the objects with the ETags are there."""
    etags: list[str] = []
    for number in range(1, draft.rolled + 1):
        etags += orjson.loads(await store.read(f"{states_of(draft)}/state-{number}"))
    return await parts.complete(draft.key, draft.upload or "", [*etags, *draft.etags], size)


def states_of(draft: DumpDraft) -> str:
    return f"{draft.key.rpartition('/')[0]}/{draft.id}"


def part_size(size: int, asked: int | None, least: int) -> int:
    """As facts about outputs have it: at most three times the source, and some parts to spare."""
    return max(least, asked or max(LEAST_PART, -(-3 * size // MOST_PARTS)))


def kept_draft(draft: DumpDraft) -> JsonObject:
    cursor = draft.cursor
    return {
        "id": draft.id,
        "key": draft.key,
        "part_size": draft.part_size,
        "identity": draft.identity,
        "upload": draft.upload,
        "etags": draft.etags,
        "rolled": draft.rolled,
        "cursor": None
        if cursor is None
        else {
            "part": cursor.part,
            "digest": cursor.digest,
            "position": cursor.position,
            "start": asdict(cursor.start),
            "shipped": cursor.shipped,
        },
    }


async def read_draft(store: Store, kept: JsonObject) -> DumpDraft:
    draft = DumpDraft(
        kept["id"],
        kept["key"],
        kept["part_size"],
        kept["identity"],
        kept["upload"],
        None,
        kept["etags"],
        kept["rolled"],
    )
    found = kept["cursor"]
    if found is not None and "object" in found:
        found = orjson.loads(await store.read(f"{states_of(draft)}/{found['object']}"))
    if found is not None:
        found = spelled_out(found)
        draft.cursor = Cursor(
            found["part"], found["digest"], found["position"], Written(**found["start"]), found["shipped"]
        )
    return draft
