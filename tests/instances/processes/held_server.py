"""The server of an instance that can be held at more points than `tests/graphs/algorithms/held_server.py` knows: in its load,
by the child that loads, and before `current` is written, as long as the file `hold` beside the instances says "loaded"."""

import sys
import time

from paddock.graphs import __main__ as server
from paddock.graphs import loading
from paddock.graphs.databases import Current, Databases
from tests.graphs.algorithms import held_server as held_server  # holds executions

loading.MODULE = "tests.instances.processes.held_loader"
publish = Databases.publish


def hold_and_publish(self: Databases, current: Current) -> None:
    folder = self.files.parent
    hold = folder.with_name("hold")
    while hold.exists() and hold.read_text() == "loaded":
        (folder / "held").touch()
        time.sleep(0.01)
    publish(self, current)


Databases.publish = hold_and_publish  # type: ignore[method-assign]  # that is the point

if __name__ == "__main__":
    sys.exit(server.main())
