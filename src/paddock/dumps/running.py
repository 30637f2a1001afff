"""One turn of a dump.

A database in a file is copied first, in one turn; the copy outlives every process, so all else is done in slices of some
seconds, each from where the last one saved. PostgreSQL's snapshot lives only as long as its connection: it is dumped in
one turn, and a loss begins anew.

Killed on any line, this leaves what its saved state names and nothing else: the copy's name, the draft's key and its
upload are saved before they are used or, for the upload's id, known by the key. What makes the file real is the
transaction that ends the job. Pages copied and parts sent are progress; names are none, for every try begins with some.
"""

import asyncio
import secrets
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import TypeVar

from paddock.dumps.composing import Composer, Position, stated
from paddock.dumps.copies import Copies, Copy
from paddock.dumps.model import DumpPayload, Finished
from paddock.dumps.settings import DuckdbDatabase, FileDatabase, PostgresDatabase, SqliteDatabase
from paddock.dumps.source import FileSource, Frozen, LiveSource
from paddock.dumps.workshop import DumpWorkshop
from paddock.dumps.writing import Draft, PartWriter, Sending, complete, kept_draft, part_size, read_draft
from paddock.jobs.errors import InfrastructureError, StaleAttempt, TransientResourceError
from paddock.jobs.model import JsonObject
from paddock.jobs.outcomes import Outcome, again, done, permanent
from paddock.jobs.turn import Turn
from paddock.storage.failures import UploadGone
from paddock.storage.parts import Parts, Whole
from paddock.storage.threads import change_on_io, on_io

GIVE_WAY = timedelta(milliseconds=100)
WAIT_FOR_DISK = timedelta(seconds=30)
# While pages are copied: often enough for people, and for the stall to see that it goes on.
SAVE_EVERY = 5.0
REPORT_EVERY = 0.5
LIVE_RESTARTS = 3
STORE_PAUSE = 5.0
LOST = "snapshot_connection_lost"

DumpTurn = Turn[DumpPayload]
Answer = TypeVar("Answer")


async def run(turn: DumpTurn, workshop: DumpWorkshop) -> Outcome:
    try:
        return await _run(turn, workshop)
    except UploadGone:
        # Somebody removed it: a rule of the bucket, or a person. The next turn begins another.
        await turn.save(_given_up(turn.saved, keep_copy=True), progress=False)
        raise


async def _run(turn: DumpTurn, workshop: DumpWorkshop) -> Outcome:
    settings = workshop.database(turn.payload.database)
    if "whole" in turn.saved:
        return await _finish(turn, workshop)
    if "ending" in turn.saved:
        return await _complete(turn, workshop, workshop.parts)
    if isinstance(settings, PostgresDatabase):
        return await _live(turn, workshop, settings)
    return await _from_copy(turn, workshop, settings)


async def clean(turn: DumpTurn, workshop: DumpWorkshop) -> Outcome:
    """What a dump that failed or was cancelled left: its uploads, objects and copy, by the names that it saved."""
    for key in [*turn.saved.get("old", []), *_key_of(turn.saved)]:
        await _remove_draft(workshop, key)
    settings = workshop.databases.get(turn.payload.database)
    if isinstance(settings, FileDatabase) and turn.cleanup_of is not None:
        await change_on_io(Copies(settings.copies, turn.cleanup_of).remove)
    return done()


async def _from_copy(turn: DumpTurn, workshop: DumpWorkshop, settings: SqliteDatabase | DuckdbDatabase) -> Outcome:
    source = file_source(settings)
    copies = Copies(settings.copies, turn.id)
    copy = await on_io(copies.find, turn.saved["copy"]) if "copy" in turn.saved else None
    if copy is None:
        size = await on_io(_size, settings)
        lacking = await on_io(copies.lacking, size, settings.work_bytes)
        if lacking is not None:
            turn.report(phase="waiting", reason=f"No room for a copy of the database: {lacking}.")
            return again(WAIT_FOR_DISK)
        copy = await _copied(turn, source, copies)
    frozen = await source.open(copy.path, copy.point_in_time, turn.payload.options)
    try:
        began = time.monotonic()
        return await _dump(
            turn, workshop, frozen, lambda: time.monotonic() - began >= workshop.config.dumps_slice_seconds
        )
    finally:
        await frozen.close()


async def _copied(turn: DumpTurn, source: FileSource, copies: Copies) -> Copy:
    """A new copy is a new point in time: what was begun with another is given up."""
    name, before = secrets.token_hex(8), turn.saved.get("copy")
    await turn.save(_given_up(turn.saved) | {"copy": name}, progress=False)
    path = await change_on_io(copies.place, name, before)
    saved_at = reported_at = 0.0

    async def progress(copied: int, total: int) -> None:
        nonlocal saved_at, reported_at
        now = time.monotonic()
        if now - reported_at >= REPORT_EVERY:
            reported_at = now
            percent = round(100 * copied / total, 1) if total else 100.0
            turn.report(phase="copying", percent=percent, restarts=turn.saved["restarts"])
        if now - saved_at >= SAVE_EVERY:
            saved_at = now
            await turn.save({**turn.saved, "copied": copied}, progress=copied > 0)

    try:
        point_in_time = await source.copy(path, progress)
        copy = await change_on_io(copies.mark, name, point_in_time)
        await turn.save({**turn.saved, "point_in_time": stated(point_in_time)})
    except (StaleAttempt, InfrastructureError):
        await change_on_io(copies.drop, name)
        raise
    return copy


async def _live(turn: DumpTurn, workshop: DumpWorkshop, settings: PostgresDatabase) -> Outcome:
    """Each turn is a new snapshot, and so a new draft; store failures are waited out inside, to keep it."""
    saved = _given_up(turn.saved)
    if saved["restarts"] > LIVE_RESTARTS:
        return permanent(
            "snapshot_lost",
            f"The snapshot of '{turn.payload.database}' was lost {saved['restarts']} times: its worker or its "
            f"connection did not live long enough for the whole dump. {turn.saved.get('lost', '')}".rstrip(),
            hint="See why workers or connections end (timeouts on the way, restarts), then retry. A smaller dump "
            "(tables) needs less time.",
        )
    draft = secrets.token_hex(8)
    source = live_source(settings)
    try:
        frozen = await source.open(turn.payload.format, turn.payload.options, draft)
        try:
            await turn.save({**saved, "point_in_time": stated(frozen.point_in_time)}, progress=False)
            return await _dump(turn, workshop, frozen, lambda: False, draft=draft, patient=True)
        finally:
            await frozen.close()
    except TransientResourceError as problem:
        if problem.code == LOST:
            turn.log.warning("The snapshot was lost; the dump begins anew.", error=problem.message)
            await turn.save({**turn.saved, "lost": problem.message}, progress=False)
            return again(GIVE_WAY)
        raise


async def _dump(
    turn: DumpTurn,
    workshop: DumpWorkshop,
    frozen: Frozen,
    over: Callable[[], bool],
    *,
    draft: str | None = None,
    patient: bool = False,
) -> Outcome:
    payload = turn.payload
    source = workshop.database(payload.database).type
    about = {"dump": payload.dump_id, "database": payload.database, "source": source}
    composer = Composer(frozen, payload.format, payload.options, single=payload.single, about=about)
    chosen = await _draft_of(turn, workshop, composer, draft)
    parts: Sending = PatientParts(workshop.parts, turn) if patient else workshop.parts

    async def save(kept: JsonObject) -> None:
        await turn.save({**turn.saved, "draft": kept})

    reporter = _Reporter(turn, composer)
    writer = PartWriter(workshop.store, parts, composer, chosen, save, reporter)
    if not await writer.write(over):
        return again(GIVE_WAY)
    ending = _ending(turn, composer, chosen, writer.size, composer.rows(reporter.at))
    # With the last part and all that is known of the file: whoever comes after us only completes it.
    await turn.save({**turn.saved, "draft": kept_draft(chosen), "ending": ending})
    reporter.tell("completing")
    return await _complete(turn, workshop, parts)


def _ending(turn: DumpTurn, composer: Composer, draft: Draft, size: int, tables: dict[str, int]) -> JsonObject:
    assert draft.cursor is not None
    return {
        "key": draft.key,
        "size": size,
        "part_size": draft.part_size,
        "digest": draft.cursor.digest,
        "rows": sum(tables.values()),
        "tables": tables,
        "point_in_time": stated(composer.frozen.point_in_time),
        "restarts": turn.saved.get("restarts", 0),
        "file_name": f"{turn.payload.database}_{turn.payload.dump_id}.{composer.extension}",
        "media_type": composer.media_type,
    }


async def _complete(turn: DumpTurn, workshop: DumpWorkshop, parts: Sending) -> Outcome:
    ending = turn.saved["ending"]
    whole = await complete(workshop.store, parts, await read_draft(workshop.store, turn.saved["draft"]), ending["size"])
    finished = Finished(**ending, etag=whole.etag, objects=whole.objects)
    await turn.save({**turn.saved, "whole": finished.model_dump()})
    return await _finish(turn, workshop)


async def _finish(turn: DumpTurn, workshop: DumpWorkshop) -> Outcome:
    """All that is not the file goes, then the job ends: a kill in between does this again."""
    finished = Finished.model_validate(turn.saved["whole"])
    for key in turn.saved.get("old", []):
        await _remove_draft(workshop, key)
    await workshop.store.delete_below(_states_below(finished.key))
    settings = workshop.database(turn.payload.database)
    if isinstance(settings, FileDatabase):
        await change_on_io(Copies(settings.copies, turn.id).remove)
    return done(finished.model_dump())


async def _draft_of(turn: DumpTurn, workshop: DumpWorkshop, composer: Composer, fresh: str | None) -> Draft:
    kept = turn.saved.get("draft")
    if kept is not None and fresh is None:
        found = await read_draft(workshop.store, kept)
        if found.upload is not None and found.identity == composer.identity:
            return found
    id = fresh or secrets.token_hex(8)
    size = part_size(composer.frozen.size, workshop.config.dumps_part_bytes, workshop.parts.least)
    draft = Draft(id, f"{turn.payload.prefix}/{id}.{composer.extension}", size, composer.identity)
    # The key first: from then on whoever comes after us finds what we are about to begin.
    await turn.save(_given_up(turn.saved, keep_copy=True) | {"draft": kept_draft(draft)}, progress=False)
    for key in turn.saved["old"]:
        await _remove_draft(workshop, key)
    draft.upload = await workshop.parts.begin(draft.key)
    try:
        await turn.save({**turn.saved, "old": [], "draft": kept_draft(draft)}, progress=False)
    except StaleAttempt:
        with suppress(InfrastructureError):
            await workshop.parts.abort(draft.key)
        raise
    return draft


def _given_up(saved: JsonObject, *, keep_copy: bool = False) -> JsonObject:
    """The state without its draft, whose key is remembered until it is removed. The first draft is no restart."""
    began = bool(saved.get("draft")) or ("copy" in saved and not keep_copy)
    left = {
        "restarts": saved.get("restarts", 0) + began,
        "old": [*saved.get("old", []), *_key_of(saved)],
    }
    kept = ("copy", "point_in_time", "lost") if keep_copy else ("point_in_time", "lost")
    return left | {name: saved[name] for name in kept if name in saved}


def _key_of(saved: JsonObject) -> list[str]:
    return [saved["draft"]["key"]] if saved.get("draft") else []


async def _remove_draft(workshop: DumpWorkshop, key: str) -> None:
    await workshop.parts.abort(key)
    await workshop.store.delete([key])
    await workshop.store.delete_below(key)
    await workshop.store.delete_below(_states_below(key))


def _states_below(key: str) -> str:
    folder, _, name = key.rpartition("/")
    return f"{folder}/{name.partition('.')[0]}"


class _Reporter:
    """What people see, now and then; and where the file is."""

    def __init__(self, turn: DumpTurn, composer: Composer) -> None:
        self._turn, self._composer = turn, composer
        self._reported = -REPORT_EVERY
        self._began: tuple[float, float] | None = None
        self.at, self._size = composer.first, 0

    def __call__(self, at: Position, size: int) -> None:
        self.at, self._size = at, size
        if time.monotonic() - self._reported >= REPORT_EVERY:
            self.tell("dumping")

    def tell(self, phase: str) -> None:
        self._reported = time.monotonic()
        progress = self._composer.progress(self.at)
        self._turn.report(
            phase=phase,
            **progress,
            bytes=self._size,
            point_in_time=stated(self._composer.frozen.point_in_time),
            restarts=self._turn.saved.get("restarts", 0),
            **self._left(self._reported, progress.get("percent")),
        )

    def _left(self, now: float, percent: float | None) -> JsonObject:
        """By how fast it went in this turn."""
        if percent is None:
            return {}
        if self._began is None:
            self._began = (now, percent)
        seconds, share = now - self._began[0], percent - self._began[1]
        return {"eta_seconds": round((100 - percent) / share * seconds)} if share > 0 else {}


class PatientParts:
    """A store that is away is waited for: what is being dumped cannot be asked twice. The stall ends it."""

    def __init__(self, parts: Parts, turn: DumpTurn) -> None:
        self._parts, self._turn = parts, turn

    async def send(self, key: str, upload: str, number: int, offset: int, data: bytes) -> str:
        return await self._patiently(lambda: self._parts.send(key, upload, number, offset, data))

    async def complete(self, key: str, upload: str, etags: Sequence[str], size: int) -> Whole:
        return await self._patiently(lambda: self._parts.complete(key, upload, etags, size))

    async def _patiently(self, ask: Callable[[], Awaitable[Answer]]) -> Answer:
        while True:
            try:
                return await ask()
            except UploadGone:
                raise
            except TransientResourceError as problem:
                self._turn.log.warning("The store is away; waiting for it.", error=problem.message)
                self._turn.report(phase="waiting", reason=problem.message)
                await asyncio.sleep(STORE_PAUSE)


def file_source(settings: SqliteDatabase | DuckdbDatabase) -> FileSource:
    if isinstance(settings, SqliteDatabase):
        from paddock.dumps.sqlite.source import SqliteSource

        return SqliteSource(settings)
    from paddock.dumps.duckdb.source import DuckdbSource

    return DuckdbSource(settings)


def live_source(settings: PostgresDatabase) -> LiveSource:
    from paddock.dumps.postgres.source import PostgresSource

    return PostgresSource(settings)


def _size(settings: SqliteDatabase | DuckdbDatabase) -> int:
    """Of the file and its log; what cannot be opened is told by who copies it."""
    total = 0
    for suffix in ("", "-wal", ".wal"):
        with suppress(OSError):
            total += settings.path.with_name(settings.path.name + suffix).stat().st_size
    return total
