"""Whether tables that a request names exist, before a job is made of it.

Asked of the database by a process of its own, as streams are, and only for so long: where the control plane does not
reach it, or it does not answer in time, the worker tells, and the dump fails with the same words.
"""

import asyncio

import orjson

from paddock.config import Config
from paddock.dumps import syncing
from paddock.dumps.kinds import reachable
from paddock.dumps.model import DumpOptions
from paddock.dumps.settings import databases_from
from paddock.jobs.errors import Refused

SECONDS = 10.0
AT_ONCE = asyncio.Semaphore(2)


async def refuse_unknown_tables(config: Config, database: str, options: DumpOptions) -> None:
    if not (options.tables or options.exclude_tables) or not reachable(databases_from(config)[database]):
        return
    asked = {"look": True, "settings": config.dumps_databases[database], "options": options.model_dump(mode="json")}
    try:
        async with asyncio.timeout(SECONDS), AT_ONCE:
            syncing.check(await _asked(orjson.dumps(asked, default=str) + b"\n"))
    except Refused as told:
        if told.code == "unknown_table":
            raise
    except (TimeoutError, OSError):
        pass


async def _asked(line: bytes) -> bytes:
    child = await syncing.start()
    try:
        answer, _ = await child.communicate(line)
    finally:
        await syncing.end(child)
    return answer or b"{}"
