"""A refresh of the schema cache: the pass, and a worker in this process that reads for it."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from paddock.background import schema_cache
from paddock.config import Config
from paddock.exports.kinds import METADATA
from paddock.exports.resources import ExportResources
from paddock.jobs import reading
from paddock.jobs.core import Core
from paddock.jobs.kinds import Kinds
from paddock.worker.local import LocalRunner
from paddock.worker.settings import Settings
from paddock.worker.supervisor import Worker
from tests.background.ticking import tick_of


@asynccontextmanager
async def worker_of(core: Core, config: Config) -> AsyncIterator[None]:
    """A worker in this process that reads whatever there is to read, from the moment it is known."""
    kinds, resources = Kinds([METADATA]), ExportResources(config)
    worker = Worker(
        link=core.link(),
        kinds=kinds,
        runners=LocalRunner(kinds, {ExportResources: resources}),
        settings=Settings(worker_id="reader", concurrency=2),
        version="test",
        metrics=core.metrics,
    )
    running = asyncio.create_task(worker.run())
    try:
        async with asyncio.timeout(60):
            while all(kind.unoffered for kind in await reading.kinds(core.db) if kind.name == METADATA.name):  # noqa: ASYNC110  it registers by itself
                await asyncio.sleep(0.02)
        yield
    finally:
        worker.stop()
        await running
        await resources.engines.close()


async def refreshed(core: Core, config: Config, **fields: Any) -> Counter[str]:
    tick = await tick_of(core, config=config, **fields)
    async with worker_of(core, config), asyncio.timeout(60):
        await schema_cache.run(tick)
    return tick.found
