"""A process that `paddock up` starts: `python -m paddock.child serve|worker PARENT`.

It is started before there is anything to do, so that its imports run beside the start of PostgreSQL; then one line on
standard input tells its settings, among them the database's address and the token, which are in no environment and
on no command line.
"""

import ctypes
import gc
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


def import_quickly(module: str) -> None:
    """A quarter less CPU: no garbage is looked for while there is none, and structlog goes without rich, which it
    would load for tracebacks of a form that we do not use."""
    gc.disable()
    sys.modules["rich"] = None  # type: ignore[assignment]  # the documented way to make an import fail
    importlib.import_module("structlog")
    del sys.modules["rich"]
    importlib.import_module(module)
    gc.enable()
    gc.freeze()


def main() -> int:
    role, parent = sys.argv[1], int(sys.argv[2])
    die_with(parent)
    import_quickly(MODULES[role])
    import uvloop

    from paddock import log
    from paddock.config import load

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
