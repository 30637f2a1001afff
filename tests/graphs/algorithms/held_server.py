"""The server of an instance whose executions can be held: its children are `held_child`, and before a switch it waits as
long as the file `hold` says "switching"."""

import asyncio
import sys
from pathlib import Path
from typing import Any

from paddock.graphs import __main__ as server
from paddock.graphs.algorithms import executions
from paddock.graphs.engines import Engines

executions.MODULE = "tests.graphs.algorithms.held_child"
start_engine = Engines.start


async def hold_and_start(self: Engines, database: Path, properties: Any) -> Any:
    hold = database.parent.parent.parent / "hold"
    while hold.exists() and hold.read_text() == "switching":
        (hold.parent / "held").touch()
        await asyncio.sleep(0.01)
    return await start_engine(self, database, properties)


Engines.start = hold_and_start  # type: ignore[method-assign]  # that is the point

if __name__ == "__main__":
    sys.exit(server.main())
