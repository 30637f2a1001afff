"""Whether tables that a request names exist, before a job is made of it.

Asked of the database by a process of its own, as streams are, and only for so long: where the control plane does not
reach it, or it does not answer in time, the worker tells, and the dump fails with the same words.
"""

import asyncio

import orjson

from paddock.config import Config
from paddock.dumps import syncing
from paddock.dumps.database_settings import databases_from
from paddock.dumps.kinds import reachable
from paddock.dumps.model import DumpOptions
from paddock.dumps.settings import DumpSettings
from paddock.jobs.errors import Refused

SECONDS = 10.0
AT_ONCE = asyncio.Semaphore(2)


async def refuse_unknown_tables(config: Config, database: str, options: DumpOptions) -> None:
    if not (options.tables or options.exclude_tables) or not reachable(databases_from(config)[database]):
        return
    asked = {
        "look": True,
        "settings": config.of(DumpSettings).databases[database],
        "options": options.model_dump(mode="json"),
    }
    try:
        async with asyncio.timeout(SECONDS), AT_ONCE:
            syncing.check(await _ask_child(orjson.dumps(asked, default=str) + b"\n"))
    except Refused as told:
        if told.code == "unknown_table":
            raise
    except (TimeoutError, OSError):
        pass


async def _ask_child(line: bytes) -> bytes:
    child = syncing.start()
    try:
        await child.write(line)
        answer, _ = await syncing.first_line(child)
    finally:
        await child.end()
    return answer or b"{}"
