"""A process that keeps the local runtime's part of the protocol and does nothing else: it takes the lock, tells its port, and
ends with its keeper. A file `hold` in the folder above keeps it from telling; SIGTERM is ignored where there is `deaf`."""

import fcntl
import json
import os
import select
import signal
import socket
import sys
import time
from pathlib import Path


def started(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]


def main() -> None:
    told = json.loads(sys.stdin.readline())
    folder = Path(told["folder"])
    if (folder.parent / "deaf").exists():
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        lock = os.open(folder / "lock", os.O_RDWR)
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        meant = json.loads((folder / "meant.json").read_text())
    except (OSError, ValueError):
        sys.exit(0)
    if meant["generation"] != told["generation"]:
        sys.exit(0)
    print("begun", told["name"], flush=True)
    while (folder.parent / "hold").exists():
        time.sleep(0.01)
    listening = socket.create_server(("127.0.0.1", 0))
    run = {"pid": os.getpid(), "pid_started": started(os.getpid()), "port": listening.getsockname()[1]}
    draft = folder / "run.json.new"
    draft.write_text(json.dumps({**run, "generation": told["generation"], "name": told["name"], "protocol": 1}))
    draft.replace(folder / "run.json")
    keeper = os.pidfd_open(told["keeper_pid"])
    if started(told["keeper_pid"]) != told["keeper_started"]:
        sys.exit(0)
    select.select([keeper], [], [])


main()
