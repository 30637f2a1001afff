"""Copies of databases whose dumps ended without anybody who could remove them.

A worker looks when it starts and every hour: a dump whose copy is on its machine may have gone on, and ended, on another.
Another Paddock's jobs are not known to ours, and so its copies stay.
"""

import asyncio
from uuid import UUID

import structlog

from paddock.config import Config
from paddock.dumps import copies
from paddock.dumps.database_settings import FileDatabase, databases_from
from paddock.jobs import wire
from paddock.jobs.link import LinkDown, LinkRefused
from paddock.worker.link import HttpLink

# What the control plane takes in one question.
ASKED_AT_ONCE = 1_000

log = structlog.get_logger()


async def remove_old_copies(config: Config, link: HttpLink) -> None:
    folders = [database.copies for database in databases_from(config).values() if isinstance(database, FileDatabase)]
    kept = {name: folder for folder in folders for name in copies.jobs_with_copies(folder)}
    names = list(kept)
    try:
        for start in range(0, len(names), ASKED_AT_ONCE):
            question = wire.Jobs(ids=[UUID(name) for name in names[start : start + ASKED_AT_ONCE]])
            for id in (await link.ended(question)).ids:
                log.info("dump_copy_removed", job=str(id))
                await asyncio.to_thread(copies.remove, kept[str(id)], str(id))
    except (LinkDown, LinkRefused) as problem:
        log.warning("dump_copies_kept", reason=str(problem))
