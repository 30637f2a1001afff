"""The process that renders one streamed dump, or looks for tables: `python -m paddock.dumps.child PARENT`.

One line on standard input says which database and how; one line on standard output says that it begins, or why not, and
after it come the bytes of the dump and nothing else. Whoever reads them takes them for whole only if this process ends
with 0: what breaks later ends it with 1 and a word on standard error.
"""

import asyncio
import os
import secrets
import shutil
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from fcntl import LOCK_EX, LOCK_NB, flock
from pathlib import Path
from typing import IO, Any, cast

import orjson

from paddock.child_processes.beginning import die_with
from paddock.dumps.composing import Composer
from paddock.dumps.copies import OF_STREAM, Copies, NoRoom, name_of_stream
from paddock.dumps.database_settings import DATABASE, DatabaseSettings, FileDatabase, PostgresDatabase
from paddock.dumps.model import DumpOptions, Format
from paddock.dumps.source import FileSource, Frozen, LiveSource
from paddock.jobs.errors import InfrastructureError, TransientResourceError
from paddock.jobs.model import JobId

LOCK = "held"
YOUNGEST = 60.0


async def render(asked: dict[str, Any], out: IO[bytes]) -> int:
    settings = DATABASE.validate_python(asked["settings"])
    format, options = cast("Format", asked["format"]), DumpOptions.model_validate(asked["options"])
    begun = False
    try:
        async with opened(settings, format, options, asked.get("copy") or name_of_stream()) as frozen:
            composer = Composer(frozen, format, options, single=asked["single"], about={"database": asked["database"]})
            out.write(orjson.dumps({"begins": True}) + b"\n")
            begun = True
            async for chunk in composer.chunks():
                out.write(chunk)
                out.flush()
    except (InfrastructureError, OSError) as problem:
        if begun:
            sys.stderr.write(f"{problem}\n")
            return 1
        out.write(orjson.dumps({"error": _problem_json(problem)}) + b"\n")
        out.flush()
    return 0


async def look(asked: dict[str, Any], out: IO[bytes]) -> int:
    """One line: whether the tables asked for are there, or why that cannot be told."""
    try:
        await _source(DATABASE.validate_python(asked["settings"])).look(DumpOptions.model_validate(asked["options"]))
        found: dict[str, Any] = {"begins": True}
    except (InfrastructureError, OSError) as problem:
        found = {"error": _problem_json(problem)}
    out.write(orjson.dumps(found) + b"\n")
    return 0


def _source(settings: DatabaseSettings) -> FileSource | LiveSource:
    from paddock.dumps.running import file_source, live_source

    return live_source(settings) if isinstance(settings, PostgresDatabase) else file_source(settings)


def _problem_json(problem: InfrastructureError | OSError) -> dict[str, Any]:
    if isinstance(problem, OSError):
        message = f"The database cannot be copied: {problem.strerror or type(problem).__name__}."
        return {"code": "source_unavailable", "message": message, "hint": None, "transient": True}
    transient = isinstance(problem, TransientResourceError)
    return {"code": problem.code, "message": problem.message, "hint": problem.hint, "transient": transient}


@asynccontextmanager
async def opened(settings: DatabaseSettings, format: Format, options: DumpOptions, copy: str) -> AsyncIterator[Frozen]:
    from paddock.dumps.running import file_source, live_source

    if isinstance(settings, PostgresDatabase):
        frozen = await live_source(settings).open(format, options, secrets.token_hex(8))
        try:
            yield frozen
        finally:
            await frozen.close()
        return
    source = file_source(settings)
    with copied(settings, copy) as target:
        frozen = await source.open(target, await source.copy(target, _quietly), options)
        try:
            yield frozen
        finally:
            await frozen.close()


async def _quietly(done: int, total: int) -> None:
    """Nobody is told."""


@contextmanager
def copied(settings: FileDatabase, name: str) -> Iterator[Path]:
    """A place for a copy that goes with this process. Whoever kills it removes the copy; if that one was killed too, the
    next stream does."""
    remove_abandoned(settings.copies)
    copies = Copies(settings.copies, cast("JobId", name))
    try:
        room = copies.reserve("copy", settings.path.stat().st_size, settings.work_bytes)
    except NoRoom as lacking:
        raise TransientResourceError(f"There is no room for a copy: {lacking}.", code="no_room") from None
    lock = os.open(room.file.with_name(LOCK), os.O_CREAT | os.O_RDWR, 0o600)
    try:
        flock(lock, LOCK_EX)
        yield room.file
    finally:
        copies.remove()
        room.free()
        os.close(lock)


def remove_abandoned(folder: Path) -> None:
    """Not what was made just now: its lock may not be held yet."""
    for own in folder.glob(f"{OF_STREAM}*"):
        with suppress(OSError):
            if time.time() - own.stat().st_mtime < YOUNGEST:
                continue
            lock = os.open(own / LOCK, os.O_CREAT | os.O_RDWR, 0o600)
            try:
                flock(lock, LOCK_EX | LOCK_NB)
                shutil.rmtree(own, ignore_errors=True)
            finally:
                os.close(lock)


def main() -> int:
    die_with(int(sys.argv[1]))
    asked = orjson.loads(sys.stdin.buffer.readline())
    with os.fdopen(os.dup(sys.stdout.fileno()), "wb", buffering=0) as out:
        # Whatever a library prints is not part of a dump.
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
        return asyncio.run((look if asked.get("look") else render)(asked, out))


if __name__ == "__main__":
    sys.exit(main())
