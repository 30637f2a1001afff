"""One turn of a dump.

A database in a file is copied first, in one turn; the copy outlives every process, so all else is done in slices of some
seconds, each from where the last one saved. PostgreSQL's snapshot lives only as long as its connection: it is dumped in
one turn, and a loss begins anew.

Killed on any line, this leaves what its saved state names and nothing else: the copy's name, the draft's key and its
upload are saved before they are used or, for the upload's id, known by the key. What makes the file real is the
transaction that ends the job. Pages copied and parts sent are progress; names are none, for every try begins with some.
"""

import secrets
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta

import orjson

from paddock.dumps.composing import Composer, stated
from paddock.dumps.copies import Copies, Copy, NoRoom
from paddock.dumps.model import DumpPayload, Finished, counts_key
from paddock.dumps.patience import patient
from paddock.dumps.reporting import REPORT_EVERY, Reporter
from paddock.dumps.settings import DuckdbDatabase, FileDatabase, PostgresDatabase, SqliteDatabase
from paddock.dumps.source import FileSource, Frozen, LiveSource
from paddock.dumps.workshop import DumpWorkshop
from paddock.dumps.writing import Draft, PartWriter, complete, kept_draft, part_size, read_draft
from paddock.jobs.errors import InfrastructureError, PermanentRunnerError, StaleAttempt, TransientResourceError
from paddock.jobs.model import JsonObject
from paddock.jobs.outcomes import Outcome, again, done, permanent
from paddock.jobs.turn import Turn
from paddock.storage.failures import NO_ROOM, UploadGone, disk_full
from paddock.storage.threads import change_on_io, on_io

GIVE_WAY = timedelta(milliseconds=100)
WAIT_FOR_DISK = timedelta(seconds=30)
# While pages are copied: often enough for people, and for the stall to see that it goes on.
SAVE_EVERY = 5.0
LIVE_RESTARTS = 3
# So many uploads of one dump may vanish: then it is a rule of the bucket, and no accident.
MOST_GONE = 5
LOST = "snapshot_connection_lost"
# Bytes of JSON. Counts of more tables stand in an object: saved state has its limits, and beside them stands the draft.
MOST_TABLES = 32 << 10

DumpTurn = Turn[DumpPayload]


async def run(turn: DumpTurn, workshop: DumpWorkshop) -> Outcome:
    try:
        return await _run(turn, workshop)
    except UploadGone as problem:
        # Somebody removed it: a rule of the bucket, or a person. The next turn begins another.
        gone = turn.saved.get("gone", 0) + 1
        await turn.save(_given_up(turn.saved, keep_copy=True) | {"gone": gone, "lost": problem.message}, progress=False)
        if gone < MOST_GONE:
            raise
        return permanent(
            "upload_keeps_vanishing",
            f"The upload of the dump was removed {gone} times before it was whole. {problem.message}",
            hint="See whether a lifecycle rule of the bucket, or something else that tidies up, aborts uploads that are "
            "younger than a dump takes; then retry.",
        )


async def _run(turn: DumpTurn, workshop: DumpWorkshop) -> Outcome:
    settings = workshop.database(turn.payload.database)
    if "whole" in turn.saved:
        return await _finish(turn, workshop)
    if "ending" in turn.saved:
        return await _complete(turn, workshop)
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
        try:
            copy = await _copied(turn, settings, source, copies)
        except NoRoom as lacking:
            turn.report(phase="waiting", reason=f"No room for a copy of the database: {lacking}.")
            return again(WAIT_FOR_DISK)
    try:
        return await _slice(turn, workshop, source, copy)
    except (PermanentRunnerError, OSError) as problem:
        if await on_io(copies.find, turn.saved["copy"]) is not None:
            raise
        # No word about the source, then: the next turn copies it anew.
        raise TransientResourceError("The copy of the database is gone.", code="copy_gone") from problem


async def _slice(turn: DumpTurn, workshop: DumpWorkshop, source: FileSource, copy: Copy) -> Outcome:
    frozen = await source.open(copy.path, copy.point_in_time, turn.payload.options)
    try:
        began = time.monotonic()
        return await _dump(
            turn, workshop, frozen, lambda: time.monotonic() - began >= workshop.config.dumps_slice_seconds
        )
    finally:
        await frozen.close()


async def _copied(
    turn: DumpTurn, settings: SqliteDatabase | DuckdbDatabase, source: FileSource, copies: Copies
) -> Copy:
    """A new copy is a new point in time: what was begun with another is given up."""
    if "copy" in turn.saved:
        # First: what a killed try left may be just the room that is lacking.
        await change_on_io(copies.drop, turn.saved["copy"])
    name, size = secrets.token_hex(8), await on_io(_size, settings)
    room = await change_on_io(copies.reserve, name, size, settings.work_bytes)
    try:
        await turn.save(_given_up(turn.saved) | {"copy": name}, progress=False)
        point_in_time = await source.copy(room.file, _Copying(turn))
        copy = await change_on_io(copies.mark, name, point_in_time)
    except (StaleAttempt, InfrastructureError, OSError) as problem:
        await change_on_io(copies.drop, name)
        if isinstance(problem, OSError) and problem.errno in NO_ROOM:
            raise disk_full("where the database is copied to") from problem
        raise
    finally:
        await change_on_io(room.free)
    # Marked, it counts: who claimed the job meanwhile may be dumping it. It is no longer ours to drop.
    await turn.save({**turn.saved, "point_in_time": stated(point_in_time)})
    return copy


class _Copying:
    """Told of each piece that is copied; tells people now and then, and the stall that it goes on."""

    def __init__(self, turn: DumpTurn) -> None:
        self._turn = turn
        self._saved = self._reported = 0.0

    async def __call__(self, copied: int, total: int) -> None:
        now = time.monotonic()
        if now - self._reported >= REPORT_EVERY:
            self._reported = now
            percent = round(100 * copied / total, 1) if total else 100.0
            self._turn.report(phase="copying", percent=percent, restarts=self._turn.saved["restarts"])
        if now - self._saved >= SAVE_EVERY:
            self._saved = now
            await self._turn.save({**self._turn.saved, "copied": copied}, progress=copied > 0)


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
            return await _dump(turn, patient(workshop, turn), frozen, lambda: False, draft=draft)
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
) -> Outcome:
    payload = turn.payload
    source = workshop.database(payload.database).type
    about = {"dump": payload.dump_id, "database": payload.database, "source": source}
    composer = Composer(frozen, payload.format, payload.options, single=payload.single, about=about)
    chosen = await _draft_of(turn, workshop, composer, draft)

    async def save(kept: JsonObject) -> None:
        await turn.save({**turn.saved, "draft": kept})

    reporter = Reporter(turn, composer)
    writer = PartWriter(workshop.store, workshop.parts, composer, chosen, save, reporter)
    if not await writer.write(over):
        return again(GIVE_WAY)
    tables = composer.rows(reporter.at)
    ending = _ending(turn, composer, chosen, writer.size, tables)
    if ending["tables"] is None:
        await workshop.store.put(counts_key(chosen.key), orjson.dumps(tables))
    # With the last part and all that is known of the file: whoever comes after us only completes it.
    await turn.save({**turn.saved, "draft": kept_draft(chosen), "ending": ending})
    reporter.tell("completing")
    return await _complete(turn, workshop)


def _ending(turn: DumpTurn, composer: Composer, draft: Draft, size: int, tables: dict[str, int]) -> JsonObject:
    assert draft.cursor is not None
    return {
        "key": draft.key,
        "size": size,
        "part_size": draft.part_size,
        "digest": draft.cursor.digest,
        "rows": sum(tables.values()),
        "table_count": len(tables),
        "tables": tables if len(orjson.dumps(tables)) <= MOST_TABLES else None,
        "point_in_time": stated(composer.frozen.point_in_time),
        "restarts": turn.saved.get("restarts", 0),
        "file_name": f"{turn.payload.database}_{turn.payload.dump_id}.{composer.extension}",
        "media_type": composer.media_type,
    }


async def _complete(turn: DumpTurn, workshop: DumpWorkshop) -> Outcome:
    ending, draft = turn.saved["ending"], await read_draft(workshop.store, turn.saved["draft"])
    whole = await complete(workshop.store, workshop.parts, draft, ending["size"])
    finished = Finished(**ending, etag=whole.etag, objects=whole.objects)
    # What the file was made from is not needed any more, and would not fit beside it.
    kept: JsonObject = {name: turn.saved[name] for name in ("restarts", "point_in_time", "old") if name in turn.saved}
    await turn.save(kept | {"whole": finished.model_dump()})
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
    kept = ("point_in_time", "lost", "gone", *(["copy"] if keep_copy else []))
    return left | {name: saved[name] for name in kept if name in saved}


def _key_of(saved: JsonObject) -> list[str]:
    begun = saved.get("whole") or saved.get("draft")
    return [begun["key"]] if begun else []


async def _remove_draft(workshop: DumpWorkshop, key: str) -> None:
    await workshop.parts.abort(key)
    await workshop.store.delete([key, counts_key(key)])
    await workshop.store.delete_below(key)
    await workshop.store.delete_below(_states_below(key))


def _states_below(key: str) -> str:
    folder, _, name = key.rpartition("/")
    return f"{folder}/{name.partition('.')[0]}"


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
