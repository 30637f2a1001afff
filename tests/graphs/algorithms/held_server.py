"""The server of an instance whose executions can be held: its children are `held_child`, and it waits by itself as long as the
file `hold` says "copied" (the database, which is not written yet), "switching" or "switched" (`current` names the new one)."""

import asyncio
import sys
import time
from pathlib import Path
from typing import Any

from paddock.graphs import __main__ as server
from paddock.graphs.algorithms import executions
from paddock.graphs.databases import Current, Databases
from paddock.graphs.engines import Engines

executions.MODULE = "tests.graphs.algorithms.held_child"
start_engine = Engines.start
copy, publish = Databases.copy, Databases.publish


def hold_while(self: Databases, point: str) -> None:
    hold = self.files.with_name("hold")
    while hold.exists() and hold.read_text() == point:
        hold.with_name("held").touch()
        time.sleep(0.01)


def copy_and_hold(self: Databases, source: int, target: int) -> Path:
    place = copy(self, source, target)
    hold_while(self, "copied")
    return place


def publish_and_hold(self: Databases, current: Current) -> None:
    publish(self, current)
    hold_while(self, "switched")


async def hold_and_start(self: Engines, database: Path, properties: Any) -> Any:
    hold = database.parent.parent.parent / "hold"
    while hold.exists() and hold.read_text() == "switching":
        (hold.parent / "held").touch()
        await asyncio.sleep(0.01)
    return await start_engine(self, database, properties)


Engines.start = hold_and_start  # type: ignore[method-assign]  # that is the point
Databases.copy = copy_and_hold  # type: ignore[method-assign]
Databases.publish = publish_and_hold  # type: ignore[method-assign]

if __name__ == "__main__":
    sys.exit(server.main())
