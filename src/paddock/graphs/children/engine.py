"""The process that runs the users' Cypher: `python -m paddock.graphs.children.engine PARENT`.

It takes everything from itself that a statement could misuse before it reads the first one: no environment, Landlock
where the kernel has it, the database opened to read, and then no file descriptor more, no byte in any file, no core
dump, and so much memory and no more. Read-only mode alone is no sandbox: LOAD FROM and COPY TO run in it.

No variable of this process may hold an Arrow table while a statement runs: the engines find tables by the names of
Python variables.
"""

import os
import sys
import traceback
from importlib.abc import MetaPathFinder
from pathlib import Path
from typing import Any

from paddock.engines.children import sandbox


def main() -> int:
    sandbox.begin(int(sys.argv[1]))
    from paddock.graphs.children import talking

    request = talking.hear()
    try:
        slots = confined(request)
    except Exception as problem:
        traceback.print_exc()
        talking.say(request["control"], talking.ERROR, {"message": str(problem)[:2000]})
        return 0
    talking.say(request["control"], talking.READY, {})
    slots.serve()
    return 0


class NoPandas(MetaPathFinder):
    """Arrow looks for pandas when it is first given Python's values, which would take time, memory, and files that cannot
    be opened any more."""

    def find_spec(self, fullname: str, path: object, target: object = None) -> None:
        if fullname == "pandas":
            raise ModuleNotFoundError("the engine child does without", name=fullname)


def confined(request: dict[str, Any]) -> Any:
    """Ready to run statements, and able to do nothing else."""
    from paddock.child_processes.beginning import limit, open_nothing_more
    from paddock.graphs.children.adapter import GraphEngine, load_engine
    from paddock.graphs.children.slots import Slots, warm_up

    sys.meta_path.insert(0, NoPandas())
    load_engine(request["wrapper_type"])
    database = Path(request["database"])
    status = os.open("/proc/self/status", os.O_RDONLY)
    os.chdir("/")
    sandbox.forget_environment()
    # Before the database is opened: the engine's threads are held only if they are started afterwards.
    if request["landlock"]:
        sandbox.confine([database.parent], [], [])
    engine = GraphEngine(
        request["wrapper_type"],
        database,
        pool_bytes=request["pool_bytes"],
        threads=request["threads"],
        read_only=True,
    )
    warm_up(engine)
    slots = Slots(engine, request["slots"], request["properties"])
    limit(request["memory_bytes"], 0, status=status)
    os.close(status)
    open_nothing_more()
    return slots


if __name__ == "__main__":
    sys.exit(main())
