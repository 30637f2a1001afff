"""The process that loads a snapshot into a database: `python -m paddock.graphs.children.loader PARENT FD`.

It is told the tables with their files, makes the database in an empty folder, and says what it counted. Killed at any
point it leaves a folder that nobody names. The statements are ours; names in them stand in backticks.
"""

import os
import sys
import traceback
from pathlib import Path
from typing import Any

from paddock.engines.children import sandbox


def main() -> int:
    sandbox.begin(int(sys.argv[1]))
    from paddock.graphs.children import talking

    fd = int(sys.argv[2])
    request = talking.hear()
    try:
        counted = load(request, lambda facts: talking.say(fd, talking.PROGRESS, facts))
    except Exception as problem:
        from paddock.graphs.children.explaining import load_failure

        failure = load_failure(problem)
        if failure is None:
            traceback.print_exc()
            return 1
        talking.say(fd, talking.ERROR, failure.facts())
        return 0
    talking.say(fd, talking.DONE, counted)
    return 0


def load(request: dict[str, Any], tell: Any) -> dict[str, Any]:
    from paddock.child_processes.beginning import limit
    from paddock.graphs.children.adapter import GraphEngine, load_engine, run
    from paddock.graphs.children.tables import Loading

    load_engine(request["wrapper_type"])
    database, files = Path(request["database"]), Path(request["files"])
    status = os.open("/proc/self/status", os.O_RDONLY)
    sandbox.forget_environment()
    if request["landlock"]:
        sandbox.confine([], [], [], files, database.parent)
    # Relative names of our own: a folder's name may hold quotes and patterns that the engine would read.
    os.chdir(files)
    engine = GraphEngine(
        request["wrapper_type"], database, pool_bytes=request["pool_bytes"], threads=request["threads"]
    )
    # Beyond that it fails with words instead of being killed, or taking the machine's memory from everybody.
    limit(request["memory_bytes"], request["disk_bytes"], status=status)
    connection = engine.connect()
    loading = Loading(connection, request["nodes"], request["edges"], tell)
    loading.make_tables()
    loading.copy_nodes()
    loading.copy_edges()
    tell({"phase": "checking"})
    run(connection, "CHECKPOINT")
    counted = loading.count()
    connection.close()
    engine.close()
    return {**counted, "database_bytes": database.stat().st_size}


if __name__ == "__main__":
    sys.exit(main())
