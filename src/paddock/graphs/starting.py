"""How the process of an instance begins: it takes the lock of its folder, or it ends without a word.

The runtime made the folder and wrote `meant.json` before it started us. A start that was repeated after a crash finds the
lock held, one that was overtaken by a delete or a newer start finds the folder gone or another generation meant. In
each case somebody else is responsible, so nothing is said and nothing is left behind.
"""

import fcntl
import json
import os
from pathlib import Path
from typing import Literal

import msgspec

PROTOCOL = 1


class Start(msgspec.Struct, frozen=True):
    """The line on standard input, or the argument of a pod."""

    protocol: int
    id: str
    generation: str
    name: str
    wrapper_type: Literal["ladybug", "ryugraph"]
    memory_bytes: int
    cpu: int
    disk_bytes: int
    token_sha256: str
    folder: str
    host: str = "127.0.0.1"
    port: int = 0
    keeper_pid: int | None = None
    keeper_started: str | None = None
    # `off` is for tests of what the limits hold alone.
    landlock: Literal["where_there", "off"] = "where_there"
    # Nobody else has this folder, this address or this control group.
    in_pod: bool = False


def make_folder(start: Start) -> None:
    """In a pod there is nobody else to make it."""
    folder = Path(start.folder)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "lock").touch(mode=0o600)
    replace(folder / "meant.json", json.dumps({"generation": start.generation, "name": start.name}))


def take_folder(start: Start) -> int | None:
    """The descriptor that holds the lock as long as this process lives; None: this start is not meant any more."""
    folder = Path(start.folder)
    try:
        lock = os.open(folder / "lock", os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        meant = json.loads((folder / "meant.json").read_bytes())
    except (OSError, ValueError):
        os.close(lock)
        return None
    if meant.get("generation") != start.generation:
        os.close(lock)
        return None
    return lock


def write_run(start: Start, port: int) -> None:
    """Tells the runtime where we answer."""
    facts = {
        "pid": os.getpid(),
        "pid_started": process_started(os.getpid()),
        "port": port,
        "generation": start.generation,
        "name": start.name,
        "protocol": PROTOCOL,
    }
    replace(Path(start.folder) / "run.json", json.dumps(facts))


def replace(path: Path, text: str) -> None:
    """All of it or nothing, also after the machine lost its power."""
    draft = path.with_name(path.name + ".new")
    with draft.open("w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)


def process_started(pid: int) -> str | None:
    """When the kernel started that process, in its own ticks: with the pid, this names a process for ever. None: gone."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    # The name in parentheses may hold anything; the fields are counted from behind it.
    return stat.rpartition(")")[2].split()[19]
