"""The server of an instance that can be held at more points than `tests/graphs/algorithms/held_server.py` knows: in its load,
by the child that loads, and by itself as long as the file `hold` beside the instances says "half fetched" (one of two files)
or "loaded" (before `current` is written)."""

import sys
import time
from pathlib import Path

from paddock.graphs import __main__ as server
from paddock.graphs import fetching, loading
from paddock.graphs.databases import Current, Databases
from tests.graphs.algorithms import held_server as held_server  # holds executions

loading.MODULE = "tests.instances.processes.held_loader"
publish = Databases.publish
link_or_copy = fetching.link_or_copy


def hold_while(folder: Path, point: str) -> None:
    hold = folder.with_name("hold")
    while hold.exists() and hold.read_text() == point:
        (folder / "held").touch()
        time.sleep(0.01)


def hold_and_publish(self: Databases, current: Current) -> None:
    hold_while(self.files.parent, "loaded")
    publish(self, current)


def hold_and_link(source: Path, target: Path) -> None:
    first = target.with_name("00000-00000.parquet")
    if target != first:
        while not first.exists():
            time.sleep(0.01)
        hold_while(target.parent.parent, "half fetched")
    link_or_copy(source, target)


fetching.link_or_copy = hold_and_link
Databases.publish = hold_and_publish  # type: ignore[method-assign]  # that is the point

if __name__ == "__main__":
    sys.exit(server.main())
