"""A process that `paddock up` starts: `python -m paddock.child serve|worker PARENT`.

It is started before there is anything to do, so that its imports run beside the start of PostgreSQL; then one line on
standard input tells its settings, among them the database's address and the token, which are in no environment and
on no command line. Later lines tell a control plane what is wrong with its database: {"database_notice": "..."}.
"""

import json
import os
import sys
from typing import TYPE_CHECKING

from paddock.child_processes.beginning import die_with, import_quickly

if TYPE_CHECKING:
    from paddock.config import Config
    from paddock.serve import DatabaseNotice

MODULES = {"serve": "paddock.serve", "worker": "paddock.work"}


def main() -> int:
    role, parent = sys.argv[1], int(sys.argv[2])
    die_with(parent)
    import_quickly(MODULES[role])
    import uvloop

    from paddock import log
    from paddock.config import load

    with open(0, "rb", buffering=0, closefd=False) as stdin:  # unbuffered: what comes later is for `_read_notices`
        line = stdin.readline()
    if not line:
        return 0  # the parent gave up before it had anything to tell
    config = load(overrides=json.loads(line))
    log.configure(config.log_level, config.log_format)
    try:
        return uvloop.run(_serve(config, parent) if role == "serve" else _work(config))
    except Exception as problem:
        return _failed(problem)


async def _serve(config: "Config", parent: int) -> int:
    from datetime import timedelta

    from paddock.runtimes.keeper import keep_by
    from paddock.serve import DatabaseNotice, serve

    keep_by(parent)
    notice = DatabaseNotice()
    _read_notices(notice)
    # Its instances stop with it, and whoever pressed Ctrl-C waits.
    await serve(config, notice=notice, queries_end_within=timedelta(0))
    return 0


def _read_notices(notice: "DatabaseNotice") -> None:
    import asyncio

    loop, unread = asyncio.get_running_loop(), bytearray()

    def read() -> None:
        some = os.read(0, 64 * 1024)
        if not some:
            loop.remove_reader(0)
        unread.extend(some)
        *lines, rest = unread.split(b"\n")
        unread[:] = rest
        for line in lines:
            notice.text = json.loads(line)["database_notice"]

    loop.add_reader(0, read)


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
