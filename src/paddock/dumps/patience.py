"""A store that is away is waited for: what a live dump reads of its database cannot be asked for twice.

Everything that is asked of the store waits, also what begins and what tidies up: one question that does not would cost
the snapshot. What ends the waiting is the stall.
"""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from inspect import iscoroutinefunction
from typing import Any, cast

from paddock.dumps.model import DumpPayload
from paddock.dumps.reporting import percent_of
from paddock.dumps.resources import DumpResources
from paddock.jobs.errors import TransientResourceError
from paddock.jobs.turn import Turn
from paddock.storage.failures import UploadGone
from paddock.storage.parts import Parts
from paddock.storage.store import Store

PAUSE = 5.0


def patient(resources: DumpResources, turn: Turn[DumpPayload]) -> DumpResources:
    """The same resources with a store that only answers."""
    waiting = DumpResources(resources.config)
    waiting.store = cast("Store", _Patient(resources.store, turn))
    waiting.parts = cast("Parts", _Patient(resources.parts, turn))
    return waiting


class _Patient:
    """Whatever it stands for, with every `async` method asked again until the store is back."""

    def __init__(self, of: object, turn: Turn[DumpPayload]) -> None:
        self._of, self._turn = of, turn

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._of, name)
        return partial(self._patiently, found) if iscoroutinefunction(found) else found

    async def _patiently(self, ask: Callable[..., Awaitable[Any]], *args: Any, **options: Any) -> Any:
        while True:
            try:
                return await ask(*args, **options)
            except UploadGone:
                raise
            except TransientResourceError as problem:
                self._turn.log.warning("The store is away; waiting for it.", error=problem.message)
                self._turn.report(phase="waiting", reason=problem.message, percent=percent_of(self._turn))
                await asyncio.sleep(PAUSE)
