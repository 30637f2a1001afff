"""A process that `paddock up` starts: `python -m paddock.child serve|worker PARENT`.

It is started before there is anything to do, so that its imports run beside the start of PostgreSQL; then one line on
standard input tells its settings, among them the database's address and the token, which are in no environment and
on no command line.
"""

import ctypes
import importlib
import json
import os
import signal
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from paddock.config import Config

PR_SET_PDEATHSIG = 1
MODULES = {"serve": "paddock.serve", "worker": "paddock.work"}


def die_with(parent: int) -> None:
    """SIGKILL when the thread that forked us ends; at once if that is over: then nobody would ever send the signal."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    if os.getppid() != parent:
        os._exit(0)


def main() -> int:
    role, parent = sys.argv[1], int(sys.argv[2])
    die_with(parent)
    import uvloop

    from paddock import log
    from paddock.config import load

    importlib.import_module(MODULES[role])
    line = sys.stdin.readline()
    if not line:
        return 0  # the parent gave up before it had anything to tell
    config = load(overrides=json.loads(line))
    log.configure(config.log_level, config.log_format)
    try:
        return uvloop.run(_serve(config) if role == "serve" else _work(config))
    except Exception as problem:
        return _failed(problem)


async def _serve(config: "Config") -> int:
    from paddock.serve import serve

    await serve(config)
    return 0


async def _work(config: "Config") -> int:
    from paddock.work import work

    return await work(config)


def _failed(problem: Exception) -> int:
    """What is meant for a person has a code and is a sentence; anything else is a bug, with its traceback."""
    if isinstance(getattr(problem, "code", None), str):
        sys.stderr.write(f"{problem}\n")
        return 1
    raise problem


if __name__ == "__main__":
    sys.exit(main())
