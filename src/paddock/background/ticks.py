"""What a pass is given, and how it walks through a list that may be long.

Items come in keyset pages; each is acted on in a transaction of its own, and one that fails is logged, counted and left to
the next pass. Where the budget ends the place is kept and the next pass begins there: a hundred items that always fail
stand in nobody's way.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import islice
from typing import Any, Protocol, TypeVar

import structlog

from paddock.config import Config
from paddock.db.pool import Transaction
from paddock.jobs.core import Core
from paddock.jobs.errors import StaleAttempt
from paddock.jobs.model import JsonObject

PAGE = 100


# What one pass may leave for the next.
MOST_NOTED = 1_000


def carried(own: JsonObject, before: JsonObject, looked_at: Collection[str]) -> JsonObject:
    """The notes of a pass that did not look at everything: its own, and those before it of what it did not look at. What it
    is about may be gone by then, so there are never more than so many, and the oldest go first."""
    kept = {key: known for key, known in before.items() if key not in looked_at and key not in own}
    return dict(islice((own | kept).items(), MOST_NOTED))


class Item(Protocol):
    """`place` is what the next page begins after, as JSON."""

    @property
    def place(self) -> Any: ...


T = TypeVar("T", bound=Item)
Page = Callable[[Any, int], Awaitable[Sequence[T]]]


class GiveBack(Exception):
    """This process stops, and the rest of the pass is for another one: nothing failed."""


class Budget:
    """How long a pass may take."""

    def __init__(self, length: timedelta, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._until = monotonic() + length.total_seconds()

    @property
    def left(self) -> float:
        return self._until - self._monotonic()

    @property
    def over(self) -> bool:
        return self.left <= 0


async def _save_nothing(_state: JsonObject) -> None:
    """Of a pass that nobody runs as a job."""


async def _always_ours(_tx: Transaction) -> None:
    """Nobody takes over a pass that nobody runs as a job."""


@dataclass
class Tick:
    """`now` is the database's clock. `cursor` is where the last pass stopped, `left_at` where this one did."""

    core: Core
    config: Config
    now: datetime
    budget: Budget
    cursor: JsonObject | None = None
    # What the last pass left for this one, and this one leaves for the next.
    notes: JsonObject = field(default_factory=dict)
    force: bool = False
    # The engine that a person asked to be read again; None: all that are due.
    engine: str | None = None
    by_hand: bool = False
    # What this very pass saved before its replica died.
    saved: JsonObject = field(default_factory=dict)
    save: Callable[[JsonObject], Awaitable[None]] = _save_nothing
    # Raises in a transaction of a pass that another replica has taken over, and keeps it ours until that ends.
    still_ours: Callable[[Transaction], Awaitable[None]] = _always_ours
    log: Any = field(default_factory=structlog.get_logger)
    found: Counter[str] = field(default_factory=Counter)
    left_at: JsonObject | None = None
    # Where what it came for was not there yet: the next scheduled pass is due so long after this one, or sooner.
    again_in: timedelta | None = None

    def count(self, name: str, n: int = 1) -> None:
        if n:
            self.found[name] += n

    async def walk(
        self,
        step: str,
        page: "Page[T]",
        act: Callable[[T], Awaitable[object]],
        failed: Callable[[T, Exception], None] | None = None,
        *,
        at_once: int = 1,
    ) -> None:
        """Acts on each item, so many of them at once. A pass that begins where the last one stopped passes over the steps
        before."""
        if not self.begins(step):
            return
        after = None if self.cursor is None else self.cursor.get("after")
        self.cursor = None
        while True:
            items = await page(after, PAGE)
            for first in range(0, len(items), at_once):
                if self.budget.over:
                    self.left_at = {"step": step, "after": after}
                    return
                some = items[first : first + at_once]
                await asyncio.gather(*(self._act(step, item, act, failed) for item in some))
                after = some[-1].place
            if len(items) < PAGE:
                return

    def begins(self, step: str) -> bool:
        """Whether this pass has anything to do with the step: none stopped before it, and the last pass not behind it."""
        return self.left_at is None and (self.cursor is None or self.cursor.get("step") == step)

    async def _act(
        self,
        step: str,
        item: T,
        act: Callable[[T], Awaitable[object]],
        failed: Callable[[T, Exception], None] | None,
    ) -> None:
        try:
            await act(item)
        except StaleAttempt:
            raise
        except Exception as problem:  # it is this item's own; a database that is away fails the next page
            self.count("failures")
            self.log.warning("item_failed", step=step, item=item.place, error=f"{type(problem).__name__}: {problem}")
            if failed is not None:
                failed(item, problem)
