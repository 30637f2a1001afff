"""The handlers of exports, as the control plane may load them: what does the work is imported when there is some.

On a thread: the libraries take most of a second to load, and the loop has other turns to serve meanwhile.
"""

import asyncio
import importlib
from typing import Any

from paddock.exports.model import AskPayload, ExportPayload, MetadataPayload
from paddock.exports.resources import ExportResources
from paddock.jobs.outcomes import Outcome
from paddock.jobs.turn import Turn


async def run_export(turn: Turn[ExportPayload], resources: ExportResources) -> Outcome:
    """Runs a query and writes its rows to files, or delivers them to a destination."""
    outcome: Outcome = await (await _loaded("paddock.exports.running", turn.payload.engine, resources)).run(
        turn, resources
    )
    return outcome


async def clean_export(turn: Turn[ExportPayload], resources: ExportResources) -> Outcome:
    outcome: Outcome = await (await _loaded("paddock.exports.running", turn.payload.engine, resources)).clean(
        turn, resources
    )
    return outcome


async def run_ask(turn: Turn[AskPayload], resources: ExportResources) -> Outcome:
    """Asks an engine something short: what a query gives, its first rows, what tables there are, whether it works."""
    outcome: Outcome = await (await _loaded("paddock.exports.answering", turn.payload.engine, resources)).run(
        turn, resources
    )
    return outcome


async def run_metadata(turn: Turn[MetadataPayload], workshop: ExportResources) -> Outcome:
    """Reads the names of catalogs, schemas, tables and columns of an engine."""
    outcome: Outcome = await (await _loaded("paddock.exports.schema.reading", turn.payload.engine, workshop)).run(
        turn, workshop
    )
    return outcome


# What an engine of each type is made of; another package's is loaded when it is made.
ENGINES = {
    "duckdb": "paddock.engines.children.duckdb",
    "postgres": "paddock.engines.postgres.engine",
    "sqlite": "paddock.engines.children.sqlite",
    "trino": "paddock.engines.trino.engine",
}

_whole: dict[str, Any] = {}


async def _loaded(name: str, engine: str, resources: ExportResources) -> Any:
    """The module that does the work, after all that it will import on the way."""
    settings = resources.engines.settings.get(engine)
    needed = [name] if settings is None or settings.type not in ENGINES else [ENGINES[settings.type], name]
    if not resources.config.object_store.startswith("file:") or getattr(settings, "remote", None):
        needed.insert(0, "paddock.storage.remote")
    for module in needed:
        # Not by a look into `sys.modules`: what stands there may still be half loaded by another turn.
        if module not in _whole:
            _whole[module] = await asyncio.to_thread(importlib.import_module, module)
    return _whole[name]
