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
from paddock.dumps.database_settings import (
    DatabaseSettings,
    DuckdbDatabase,
    FileDatabase,
    PostgresDatabase,
    SqliteDatabase,
)
from paddock.dumps.model import DumpOptions, DumpPayload, Finished, counts_key
from paddock.dumps.patience import patient
from paddock.dumps.reporting import COPYING, REPORT_EVERY, Reporter, percent_of, risen
from paddock.dumps.resources import DumpResources
from paddock.dumps.settings import DumpSettings
from paddock.dumps.source import FileSource, Frozen, HasUnreadable, LiveSource
from paddock.dumps.writing import DumpDraft, PartWriter, complete, kept_draft, part_size, read_draft
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
MOST_UNREADABLE = 20
LOST = "snapshot_connection_lost"
# Bytes of JSON. Counts of more tables stand in an object: saved state has its limits, and beside them stands the draft.
MOST_TABLES = 32 << 10

DumpTurn = Turn[DumpPayload]


async def run(turn: DumpTurn, resources: DumpResources) -> Outcome:
    try:
        return await _run(turn, resources)
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


async def _run(turn: DumpTurn, resources: DumpResources) -> Outcome:
    settings = resources.database(turn.payload.database)
    if turn.payload.check:
        return await _check(turn, settings)
    if "whole" in turn.saved:
        return await _finish(turn, resources)
    if "ending" in turn.saved:
        return await _complete(turn, resources)
    if isinstance(settings, PostgresDatabase):
        return await _live(turn, resources, settings)
    return await _from_copy(turn, resources, settings)


async def _check(turn: DumpTurn, settings: DatabaseSettings) -> Outcome:
    """What stands in the way is the result: whoever asks does not wait until it is tried again."""
    try:
        if isinstance(settings, FileDatabase):
            await change_on_io(Copies(settings.copies, turn.id).check_writable)
        source = live_source(settings) if isinstance(settings, PostgresDatabase) else file_source(settings)
        await source.look(DumpOptions())
    except InfrastructureError as problem:
        return done({"problem": problem.message, "hint": problem.hint})
    return done({"problem": None, "hint": None})


async def clean(turn: DumpTurn, resources: DumpResources) -> Outcome:
    """What a dump that failed or was cancelled left: its uploads, objects and copy, by the names that it saved."""
    for key in [*turn.saved.get("old", []), *_key_of(turn.saved)]:
        await _remove_draft(resources, key)
    settings = resources.databases.get(turn.payload.database)
    if isinstance(settings, FileDatabase) and turn.cleanup_of is not None:
        await change_on_io(Copies(settings.copies, turn.cleanup_of).remove)
    return done()


async def _from_copy(turn: DumpTurn, resources: DumpResources, settings: SqliteDatabase | DuckdbDatabase) -> Outcome:
    source = file_source(settings)
    copies = Copies(settings.copies, turn.id)
    copy = await on_io(copies.find, turn.saved["copy"]) if "copy" in turn.saved else None
    if copy is None:
        try:
            copy = await _copied(turn, settings, source, copies)
        except NoRoom as lacking:
            reason = f"No room for a copy of the database: {lacking}."
            turn.report(phase="waiting", reason=reason, percent=percent_of(turn))
            return again(WAIT_FOR_DISK)
    try:
        return await _slice(turn, resources, source, copy)
    except (PermanentRunnerError, OSError) as problem:
        if await on_io(copies.find, turn.saved["copy"]) is not None:
            raise
        # No word about the source, then: the next turn copies it anew.
        raise TransientResourceError("The copy of the database is gone.", code="copy_gone") from problem


async def _slice(turn: DumpTurn, resources: DumpResources, source: FileSource, copy: Copy) -> Outcome:
    frozen = await source.open(copy.path, copy.point_in_time, turn.payload.options)
    try:
        began = time.monotonic()
        return await _dump(
            turn, resources, frozen, lambda: time.monotonic() - began >= resources.config.of(DumpSettings).slice_seconds
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
    await turn.save({**turn.saved, "point_in_time": stated(point_in_time), "percent": risen(turn, COPYING)})
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
            self._turn.report(phase="copying", percent=percent_of(self._turn), restarts=self._turn.saved["restarts"])
        if now - self._saved >= SAVE_EVERY:
            self._saved = now
            percent = risen(self._turn, COPYING * copied / total if total else COPYING)
            await self._turn.save({**self._turn.saved, "copied": copied, "percent": percent}, progress=copied > 0)


async def _live(turn: DumpTurn, resources: DumpResources, settings: PostgresDatabase) -> Outcome:
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
            return await _dump(turn, patient(resources, turn), frozen, lambda: False, draft=draft)
        finally:
            await frozen.close()
    except TransientResourceError as problem:
        if problem.code == LOST:
            turn.log.warning("The snapshot was lost; the dump starts over.", error=problem.message)
            await turn.save({**turn.saved, "lost": problem.message}, progress=False)
            return again(GIVE_WAY)
        raise


async def _dump(
    turn: DumpTurn,
    resources: DumpResources,
    frozen: Frozen,
    over: Callable[[], bool],
    *,
    draft: str | None = None,
) -> Outcome:
    payload = turn.payload
    source = resources.database(payload.database).type
    about = {"dump": payload.dump_id, "database": payload.database, "source": source}
    composer = Composer(frozen, payload.format, payload.options, single=payload.single, about=about)
    chosen = await _draft_of(turn, resources, composer, draft)
    if chosen.cursor is None:
        _warn_of_unreadable(turn, frozen)

    async def save(kept: JsonObject) -> None:
        await turn.save({**turn.saved, "draft": kept, "percent": reporter.percent})

    reporter = Reporter(turn, composer)
    writer = PartWriter(resources.store, resources.parts, composer, chosen, save, reporter)
    if not await writer.write(over):
        return again(GIVE_WAY)
    tables = composer.rows(reporter.at)
    ending = _ending(turn, composer, chosen, writer.size, tables)
    if ending["tables"] is None:
        await resources.store.put(counts_key(chosen.key), orjson.dumps(tables))
    # With the last part and all that is known of the file: whoever comes after us only completes it.
    await turn.save({**turn.saved, "draft": kept_draft(chosen), "ending": ending, "percent": reporter.percent})
    reporter.tell("completing")
    return await _complete(turn, resources)


def _warn_of_unreadable(turn: DumpTurn, frozen: Frozen) -> None:
    for table in frozen.unreadable if isinstance(frozen, HasUnreadable) else ():
        turn.log.warning(
            "A table's rows cannot be read: JSON and CSV lack it, SQL has what it is stored in.", table=table
        )


def _missing(turn: DumpTurn, frozen: Frozen) -> list[str]:
    """Tables that the file lacks. SQL has what they are stored in, and the other formats are the database itself."""
    if turn.payload.format not in ("json", "csv") or not isinstance(frozen, HasUnreadable):
        return []
    return list(frozen.unreadable[:MOST_UNREADABLE])


def _ending(turn: DumpTurn, composer: Composer, draft: DumpDraft, size: int, tables: dict[str, int]) -> JsonObject:
    assert draft.cursor is not None
    return {
        "key": draft.key,
        "size": size,
        "part_size": draft.part_size,
        "digest": draft.cursor.digest,
        "rows": sum(tables.values()) if len(tables) == len(composer.tables) else None,
        "table_count": len(composer.tables),
        "tables": tables if len(orjson.dumps(tables)) <= MOST_TABLES else None,
        "point_in_time": stated(composer.frozen.point_in_time),
        "restarts": turn.saved.get("restarts", 0),
        "file_name": f"{turn.payload.database}_{turn.payload.dump_id}.{composer.extension}",
        "media_type": composer.media_type,
        "unreadable": _missing(turn, composer.frozen),
    }


async def _complete(turn: DumpTurn, resources: DumpResources) -> Outcome:
    ending, draft = turn.saved["ending"], await read_draft(resources.store, turn.saved["draft"])
    whole = await complete(resources.store, resources.parts, draft, ending["size"])
    finished = Finished(**ending, etag=whole.etag, objects=whole.objects)
    # What the file was made from is not needed any more, and would not fit beside it.
    kept: JsonObject = {
        name: turn.saved[name] for name in ("restarts", "point_in_time", "old", "percent") if name in turn.saved
    }
    await turn.save(kept | {"whole": finished.model_dump()})
    return await _finish(turn, resources)


async def _finish(turn: DumpTurn, resources: DumpResources) -> Outcome:
    """All that is not the file goes, then the job ends: a kill in between does this again."""
    finished = Finished.model_validate(turn.saved["whole"])
    for key in turn.saved.get("old", []):
        await _remove_draft(resources, key)
    await resources.store.delete_below(_states_below(finished.key))
    settings = resources.database(turn.payload.database)
    if isinstance(settings, FileDatabase):
        await change_on_io(Copies(settings.copies, turn.id).remove)
    # `bytes` is what people read of any result.
    return done({**finished.model_dump(), "bytes": finished.size})


async def _draft_of(turn: DumpTurn, resources: DumpResources, composer: Composer, fresh: str | None) -> DumpDraft:
    kept = turn.saved.get("draft")
    if kept is not None and fresh is None:
        found = await read_draft(resources.store, kept)
        if found.upload is not None and found.identity == composer.identity:
            return found
    id = fresh or secrets.token_hex(8)
    size = part_size(composer.frozen.size, resources.config.of(DumpSettings).part_bytes, resources.parts.least)
    draft = DumpDraft(id, f"{turn.payload.prefix}/{id}.{composer.extension}", size, composer.identity)
    # The key first: from then on whoever comes after us finds what we are about to begin.
    await turn.save(_given_up(turn.saved, keep_copy=True) | {"draft": kept_draft(draft)}, progress=False)
    for key in turn.saved["old"]:
        await _remove_draft(resources, key)
    draft.upload = await resources.parts.begin(draft.key)
    try:
        await turn.save({**turn.saved, "old": [], "draft": kept_draft(draft)}, progress=False)
    except StaleAttempt:
        with suppress(InfrastructureError):
            await resources.parts.abort(draft.key)
        raise
    return draft


def _given_up(saved: JsonObject, *, keep_copy: bool = False) -> JsonObject:
    """The state without its draft, whose key is remembered until it is removed. The first draft is no restart."""
    began = bool(saved.get("draft")) or ("copy" in saved and not keep_copy)
    left = {
        "restarts": saved.get("restarts", 0) + began,
        "old": [*saved.get("old", []), *_key_of(saved)],
    }
    kept = ("point_in_time", "lost", "gone", "percent", *(["copy"] if keep_copy else []))
    return left | {name: saved[name] for name in kept if name in saved}


def _key_of(saved: JsonObject) -> list[str]:
    begun = saved.get("whole") or saved.get("draft")
    return [begun["key"]] if begun else []


async def _remove_draft(resources: DumpResources, key: str) -> None:
    await resources.parts.abort(key)
    await resources.store.delete([key, counts_key(key)])
    await resources.store.delete_below(key)
    await resources.store.delete_below(_states_below(key))


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
