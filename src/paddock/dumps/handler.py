"""The handlers of dumps, as the control plane may load them: what does the work is imported when there is some."""

import asyncio
import importlib
from typing import Any

from paddock.dumps.model import DumpPayload
from paddock.dumps.resources import DumpResources
from paddock.jobs.outcomes import Outcome
from paddock.jobs.turn import Turn


async def run_dump(turn: Turn[DumpPayload], resources: DumpResources) -> Outcome:
    """Dumps a whole database into one file while it stays in use."""
    outcome: Outcome = await (await _loaded()).run(turn, resources)
    return outcome


async def clean_dump(turn: Turn[DumpPayload], resources: DumpResources) -> Outcome:
    outcome: Outcome = await (await _loaded()).clean(turn, resources)
    return outcome


async def _loaded() -> Any:
    return await asyncio.to_thread(importlib.import_module, "paddock.dumps.running")
