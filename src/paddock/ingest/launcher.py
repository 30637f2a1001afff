"""The program between a worker and a command of a source: it starts the command, and nothing of it stays behind.

Run by its path with `python -I -S`, so it imports only what comes with Python. It is the sub-reaper of all that the command
starts: whoever leaves its parent becomes a child of ours and is killed at the end. The first line of standard input says
what to start; the word `stop` after it asks the command to end; the end of standard input means that the worker is gone.
What became of the command is one line of JSON on the descriptor that it was told.
"""

import contextlib
import ctypes
import errno
import json
import os
import resource
import select
import signal
import subprocess
import sys
import time
from typing import Any

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36


def main() -> None:
    asked = json.loads(_first_line())
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    report: dict[str, object] = {}
    try:
        child = _start(asked, libc)
    except OSError as problem:
        report = {"problem": errno.errorcode.get(problem.errno or 0, "EIO"), "message": str(problem)}
    else:
        report = _watch(child, asked["timeout"], asked["grace"])
    _kill_all()
    os.write(asked["report"], json.dumps(report).encode() + b"\n")


def _first_line() -> bytes:
    """Read byte by byte: what comes after it is for `_watch`."""
    line = b""
    while not line.endswith(b"\n"):
        byte = os.read(0, 1)
        if not byte:
            sys.exit(0)
        line += byte
    return line


def _start(asked: dict[str, Any], libc: ctypes.CDLL) -> "subprocess.Popen[bytes]":
    def prepare() -> None:
        libc.prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_DFL)
        for what, value in ((resource.RLIMIT_DATA, asked["memory"]), (resource.RLIMIT_FSIZE, asked["file"])):
            hard = resource.getrlimit(what)[1]
            most = value if hard == resource.RLIM_INFINITY else min(value, hard)
            resource.setrlimit(what, (most, most))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

    messages = asked.get("messages")
    child = subprocess.Popen(
        asked["command"],
        env=asked["environment"],
        cwd=asked["folder"],
        stdin=subprocess.DEVNULL,
        stdout=messages,
        stderr=subprocess.STDOUT if messages is None else 1,
        start_new_session=True,
        preexec_fn=prepare,  # noqa: PLW1509  # this process has one thread
    )
    if messages is not None:
        # Only the command holds it now: its end is the end of the messages.
        os.close(messages)
    return child


def _watch(child: "subprocess.Popen[bytes]", timeout: float, grace: float) -> dict[str, object]:
    """Until it ends, runs out of its time, is told to stop, or nobody is left who wants it."""
    ended = os.pidfd_open(child.pid)
    deadline = time.monotonic() + timeout
    stopped = None
    while True:
        ready, _, _ = select.select([ended] if stopped else [ended, 0], [], [], max(0.0, deadline - time.monotonic()))
        if ended in ready:
            break
        if 0 in ready and not os.read(0, 4096):
            break
        if stopped is not None:
            break
        stopped = "told" if 0 in ready else "timeout"
        deadline = time.monotonic() + grace
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGTERM)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    code = child.wait()
    return {"exit": code, "stopped": stopped}


def _kill_all() -> None:
    """Whatever the command started and left becomes our child, one generation after the other."""
    while True:
        for pid in _children():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            return


def _children() -> list[int]:
    with open(f"/proc/self/task/{os.getpid()}/children") as file:
        return [int(pid) for pid in file.read().split()]


if __name__ == "__main__":
    main()
