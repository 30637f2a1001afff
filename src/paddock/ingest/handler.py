"""The handlers of ingest, as the control plane may load them: what does the work is imported when there is some."""

import asyncio
import importlib
from typing import Any

from paddock.ingest.model import BatchPayload, FetchPayload
from paddock.ingest.resources import IngestResources
from paddock.jobs.outcomes import Outcome
from paddock.jobs.turn import Turn


async def run_ingester(turn: Turn[FetchPayload], resources: IngestResources) -> Outcome:
    """Runs the command of a source on the machine of the worker, for one batch of records."""
    outcome: Outcome = await (await _loaded("fetching")).run(turn, resources)
    return outcome


async def run_hooks(turn: Turn[BatchPayload], resources: IngestResources) -> Outcome:
    """Runs the hooks of a source over one batch, on the machine of the worker."""
    outcome: Outcome = await (await _loaded("hooking")).run(turn, resources)
    return outcome


async def run_ingester_on_cluster(turn: Turn[FetchPayload], resources: IngestResources) -> Outcome:
    """Runs the command of a source as a Job on Kubernetes, for one batch of records."""
    outcome: Outcome = await (await _loaded("on_cluster")).run_ingester(turn, resources)
    return outcome


async def run_hooks_on_cluster(turn: Turn[BatchPayload], resources: IngestResources) -> Outcome:
    """Runs the hooks of a source over one batch as a Job on Kubernetes."""
    outcome: Outcome = await (await _loaded("on_cluster")).run_hooks(turn, resources)
    return outcome


async def clean_fetch(turn: Turn[FetchPayload], resources: IngestResources) -> Outcome:
    outcome: Outcome = await (await _loaded("on_cluster")).clean(turn, resources)
    return outcome


async def clean_hooks(turn: Turn[BatchPayload], resources: IngestResources) -> Outcome:
    outcome: Outcome = await (await _loaded("on_cluster")).clean(turn, resources)
    return outcome


async def publish_batch(turn: Turn[BatchPayload], resources: IngestResources) -> Outcome:
    """Publishes what the hooks of a batch made as Parquet, each record once."""
    outcome: Outcome = await (await _loaded("publishing")).run(turn, resources)
    return outcome


async def _loaded(name: str) -> Any:
    return await asyncio.to_thread(importlib.import_module, f"paddock.ingest.{name}")
