"""Instances as processes of this machine, one folder for each.

Promises
- A start that is repeated, after a crash too, leaves one process: the first one holds the folder's lock, and any other
  ends without a word. One that was overtaken by a delete or by a newer start finds its folder gone or another generation
  meant, and ends.
- Starts and deletes of one instance come one after the other, and a start that was overtaken by either changes nothing:
  numbers rise, and the highest that was taken away is remembered.
- No handle to a process is needed: a control plane that was killed and started again finds what runs by its folder.
- A process is signalled only through a pidfd whose process was compared with what the folder says; ids are used again.
- Nothing outlives the keeper: each process watches it by itself.
"""

import asyncio
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import UUID

from paddock.child_processes.spawning import ChildProcess, import_path, inherited
from paddock.runtimes import keeper as keeping
from paddock.runtimes.folders import InstanceFolder, forget_long_gone, remove_set_aside
from paddock.runtimes.keeper import ProcessId
from paddock.runtimes.machine import memory_tree, oom_kills, usable_memory
from paddock.runtimes.runtime import Address, CannotGrow, Found, Look, NoRoom, RuntimeWords, Start, State, Usage, Why

PROTOCOL = 1
HOST = "127.0.0.1"
# Of the machine's memory, for all instances together.
SHARE = 0.7
# How long one may take to end by itself: its queries get two seconds.
GRACE = timedelta(seconds=5)
COMMAND = (sys.executable, "-m", "paddock.graphs")


class LocalRuntime:
    words = RuntimeWords("Process", "this machine")
    grows = False

    def __init__(self, root: Path, command: Sequence[str] = COMMAND) -> None:
        self.root = root.absolute()
        self._command = tuple(command)

    async def start(self, start: Start) -> bool:
        folder = InstanceFolder(self.root, start.instance)
        with folder.alone() as alone:
            return alone and await self._start(folder, start)

    async def _start(self, folder: InstanceFolder, start: Start) -> bool:
        """Whoever asks for it may have slept for long. A start with a lower number than the one that is meant would end that, and
        one that was taken away would come back: both change nothing, and whoever asks again learns that it is over."""
        generation, number = str(start.generation), _number_of(start.name)
        meant = folder.read("meant.json")
        if number <= folder.taken_away() or number < _number_of(str(meant.get("name", ""))):
            return False
        folder.make()
        if meant.get("generation") != generation:
            if not _is_loaded(folder):  # what is loaded already needs no more than it has
                self._check_disk(start)
            # From here on a process of the generation before that begins late ends by itself.
            folder.write("meant.json", {"generation": generation, "name": start.name})
        if any(process.alive for process in folder.processes(generation)):
            return True
        earlier = [process for process in folder.all_processes() if process.alive]
        if earlier:
            _end(folder, earlier, GRACE)
            return False
        folder.forget("stopping")
        await self._spawn(folder, start)
        return True

    def _check_disk(self, start: Start) -> None:
        free = shutil.disk_usage(self.root).free
        if free < start.disk_bytes:
            raise NoRoom(
                "disk", f"{start.disk_bytes:,} bytes of disk are needed in {self.root}, and {free:,} are free."
            )

    async def _spawn(self, folder: InstanceFolder, start: Start) -> None:
        keeper, generation = keeping.keeper(), str(start.generation)
        spawned = folder.read("spawned.json")
        if spawned.get("generation") != generation:
            spawned = {"generation": generation, "processes": []}
        folder.forget("ended.json")
        if folder.read("run.json").get("generation") != generation:
            # Not of this one: what runs for it, and nobody has noted yet, may just have written it.
            folder.forget("run.json")
        with (folder.path / "log").open("ab") as log:
            child = ChildProcess(
                self._command,
                environment={**import_path(), **inherited("PATH", "LANG", "LD_LIBRARY_PATH")},
                stdin=subprocess.PIPE,
                stdout=log.fileno(),
                stderr=log.fileno(),
                folder=str(folder.path),
            )
        spawned["processes"] = [*spawned["processes"][-9:], [child.pid, keeping.started_of(child.pid) or ""]]
        spawned.update(keeper=[keeper.pid, keeper.started], oom_kills=oom_kills())
        folder.write("spawned.json", spawned)
        child.when_ended(lambda: _note_end(folder, generation, child))
        await child.write(json.dumps(_line(start, folder, keeper)).encode() + b"\n")
        with contextlib.suppress(BrokenPipeError):
            child.stdin.close()

    @contextlib.asynccontextmanager
    async def alongside(self, changed: Callable[[UUID], None]) -> AsyncIterator[None]:
        """Nobody hears of an end here: the proxy that is refused finds out, and the pass."""
        yield

    async def get(self, name: str, look: Look = "now") -> Found | None:
        instance = _instance_of(name)
        return None if instance is None else self._read_start(InstanceFolder(self.root, instance), instance, name)

    def _read_start(self, folder: InstanceFolder, instance: UUID, name: str | None) -> Found | None:
        """None too for a start that is meant and of which no process was ever started."""
        meant, spawned, run = folder.read("meant.json"), folder.read("spawned.json"), folder.read("run.json")
        generation = meant.get("generation")
        if generation is None or (name is not None and meant.get("name") != name):
            return None
        if spawned.get("generation") != generation and run.get("generation") != generation:
            return None
        state, address, why = self._state(folder, generation)
        return Found(
            name=meant["name"],
            uid=generation,
            instance=instance,
            generation=UUID(generation),
            state=state,
            made_at=_changed(folder.path / "meant.json"),
            address=address,
            why=why,
        )

    def _state(self, folder: InstanceFolder, generation: str) -> tuple[State, Address | None, Why | None]:
        run = folder.read("run.json")
        if run.get("generation") == generation and ProcessId(int(run["pid"]), str(run["pid_started"])).alive:
            return "up", Address(HOST, int(run["port"])), None
        if any(process.alive for process in folder.processes(generation)):
            return "starting", None, None
        with folder.locked() as free:
            if not free:
                return "starting", None, None  # started by somebody who was killed before it could be noted
        return "ended", None, _why(folder, generation)

    async def list(self, after: str = "", limit: int = 100) -> Sequence[Found]:
        found = []
        for path in self.root.iterdir() if self.root.is_dir() else ():
            try:
                instance = UUID(path.name)
            except ValueError:
                continue
            one = self._read_start(InstanceFolder(self.root, instance), instance, None)
            if one is not None and one.name > after:
                found.append(one)
        return sorted(found, key=lambda one: one.name)[:limit]

    async def logs(self, name: str) -> str | None:
        found = await self.get(name)
        return None if found is None else InstanceFolder(self.root, found.instance).tail_of_log()

    async def release(self, name: str, uid: str) -> None:
        """The database in its folder is what a reopened instance begins from."""

    async def grow(self, name: str, uid: str, memory_bytes: int) -> bool:
        raise CannotGrow(f"{self.words.thing} cannot get more memory while it runs: reopen it with more.")

    async def take_back(self, name: str, uid: str, memory_bytes: int) -> None:
        """It has what it began with."""

    async def delete(
        self, name: str, uid: str | None = None, grace: timedelta | None = None, *, keep_loaded: bool = False
    ) -> bool:
        instance = _instance_of(name)
        if instance is None:
            return True
        folder = InstanceFolder(self.root, instance)
        with folder.alone() as alone:
            if not alone:
                return False
            return await self._delete(folder, name, uid, GRACE if grace is None else grace, keep_loaded=keep_loaded)

    async def _delete(
        self, folder: InstanceFolder, name: str, uid: str | None, grace: timedelta, *, keep_loaded: bool
    ) -> bool:
        meant = folder.read("meant.json")
        if _number_of(str(meant.get("name", ""))) > _number_of(name):
            return True
        if uid is not None and meant.get("generation") != uid:
            return True
        if alive := [process for process in folder.all_processes() if process.alive]:
            _end(folder, alive, grace)
            return False
        with folder.locked() as free:
            if free:
                folder.remember_taken_away(_number_of(name))
                if keep_loaded and _is_loaded(folder) and not _ever_ran(folder, name):
                    # A process of it that nobody noted finds that it is not meant.
                    folder.forget("meant.json", "stopping")
                    return True
                with contextlib.suppress(FileNotFoundError):
                    await asyncio.to_thread(shutil.rmtree, folder.set_aside(), ignore_errors=True)
                forget_long_gone(self.root)
            return free

    async def usage(self, name: str) -> Usage | None:
        found = await self.get(name)
        if found is None or found.state != "up":
            return None
        run = InstanceFolder(self.root, found.instance).read("run.json")
        return Usage(memory_tree(int(run["pid"]))) if "pid" in run else None

    async def memory_bytes(self) -> int | None:
        return int(usable_memory() * SHARE)

    def place(self) -> str:
        """The id of this folder, so that a database can tell it from every other."""
        self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        remove_set_aside(self.root)
        forget_long_gone(self.root)
        file = self.root / "place"
        with contextlib.suppress(FileExistsError), file.open("x") as new:
            new.write(os.urandom(16).hex())
        return file.read_text().strip()


def _line(start: Start, folder: InstanceFolder, keeper: ProcessId) -> dict[str, object]:
    return {
        "protocol": PROTOCOL,
        "id": str(start.instance),
        "generation": str(start.generation),
        "name": start.name,
        "wrapper_type": start.wrapper_type,
        "memory_bytes": start.memory_bytes,
        "cpu": start.cpu,
        "disk_bytes": start.disk_bytes,
        "token_sha256": start.token_sha256,
        "folder": str(folder.path),
        "host": HOST,
        "port": 0,
        "keeper_pid": keeper.pid,
        "keeper_started": keeper.started,
        "landlock": "where_there",
    }


def _is_loaded(folder: InstanceFolder) -> bool:
    return (folder.path / "current").exists()


def _ever_ran(folder: InstanceFolder, name: str) -> bool:
    """Whether a process was ever noted for this start."""
    meant = folder.read("meant.json")
    return meant.get("name") == name and bool(folder.processes(str(meant.get("generation"))))


def _note_end(folder: InstanceFolder, generation: str, child: ChildProcess) -> None:
    """Evidence for whoever finds it gone; one that ended because another holds the lock tells nothing."""
    with contextlib.suppress(OSError):
        if folder.read("meant.json").get("generation") == generation and child.returncode:
            folder.write("ended.json", {"generation": generation, "returncode": child.returncode})


def _why(folder: InstanceFolder, generation: str) -> Why:
    spawned, ended = folder.read("spawned.json"), folder.read("ended.json")
    if (keeper := spawned.get("keeper")) and not ProcessId(int(keeper[0]), str(keeper[1])).alive:
        return "keeper_gone"
    killed = ended.get("generation") == generation and ended.get("returncode") == -signal.SIGKILL
    return "out_of_memory" if killed and oom_kills() > spawned.get("oom_kills", 0) else "exited"


def _end(folder: InstanceFolder, alive: Sequence[ProcessId], grace: timedelta) -> None:
    """SIGTERM at first, SIGKILL once the grace is over. How long it is over is told by a file: others may go on with it."""
    marker = folder.path / "stopping"
    try:
        asked = time.time() - marker.stat().st_mtime
    except FileNotFoundError:
        marker.touch()
        asked = -1.0
    if asked < 0:
        _signal(alive, signal.SIGTERM)
    elif asked > grace.total_seconds():
        _signal(alive, signal.SIGKILL)


def _signal(processes: Sequence[ProcessId], number: signal.Signals) -> None:
    for process in processes:
        try:
            handle = os.pidfd_open(process.pid)
        except OSError:
            continue
        try:
            # Compared after the handle was taken: what it stands for cannot change any more.
            if process.alive:
                with contextlib.suppress(ProcessLookupError):
                    signal.pidfd_send_signal(handle, number)
        finally:
            os.close(handle)


def _instance_of(name: str) -> UUID | None:
    """`ladybug-wrapper-{id}-{n}`"""
    text = name.partition("-wrapper-")[2].rpartition("-")[0]
    try:
        return UUID(text)
    except ValueError:
        return None


def _number_of(name: str) -> int:
    number = name.rpartition("-")[2]
    return int(number) if number.isdecimal() else 0


def _changed(path: Path) -> datetime:
    try:
        return datetime.fromtimestamp(path.stat().st_mtime, UTC)
    except FileNotFoundError:
        return datetime.now(UTC)
