"""The process of one instance, from its first line to its end.

It ends when it is told to (SIGTERM), when the process it belongs to is gone, and when its folder is gone: it must not
stay behind whatever kills whoever started it.
"""

import asyncio
import contextlib
import os
import signal
import socket
import stat
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import structlog
import uvicorn
import uvloop

from paddock import log as logs
from paddock.graphs.app import create_app
from paddock.graphs.instance import Instance
from paddock.graphs.starting import Start, make_folder, process_started, take_folder, write_run

GRACE_SECONDS = 2.0
LOOK_SECONDS = 5.0
MOST_LINE = 1 << 20
MOST_LOG = 1 << 20

log = structlog.get_logger("paddock.graphs")


def run(told: str | None = None) -> int:
    """What it is, is told as an argument or on standard input."""
    line = sys.stdin.buffer.readline(MOST_LINE) if told is None else told.encode()
    if not line:
        return 0  # whoever started us gave up before it had anything to tell
    start = msgspec.json.decode(line, type=Start)
    if start.in_pod:
        make_folder(start)
    lock = take_folder(start)
    if lock is None:
        return 0
    logs.configure("info", "json")
    try:
        return uvloop.run(_serve(start))
    finally:
        os.close(lock)


async def _serve(start: Start) -> int:
    instance = Instance(start)
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    with _listening(start.host, start.port) as door:
        server = Server(
            uvicorn.Config(
                create_app(instance),
                log_config=None,
                access_log=False,
                server_header=False,
                date_header=False,
                lifespan="off",
                ws="none",
                # Longer than those who ask keep a connection: one that is closed while they use it looks like a failure.
                timeout_keep_alive=90,
                timeout_graceful_shutdown=int(GRACE_SECONDS),
            )
        )
        instance.reopen()
        answering = asyncio.create_task(server.serve(sockets=[door]))
        write_run(start, door.getsockname()[1])
        log.info("instance_started", name=start.name, generation=start.generation)
        watching = [asyncio.create_task(stop.wait()), asyncio.create_task(_until_unwanted(start))]
        await asyncio.wait([answering, *watching], return_when=asyncio.FIRST_COMPLETED)
        for task in watching:
            task.cancel()
        log.info("instance_stopping", name=start.name)
        closing = asyncio.create_task(instance.close(GRACE_SECONDS))
        server.should_exit = True
        await asyncio.gather(answering, closing, return_exceptions=True)
    return 0


class Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """They are the process's own."""
        yield


@contextlib.contextmanager
def _listening(host: str, port: int) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as door:
        door.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        door.bind((host, port))
        # Before run.json names the port: whoever finds it there and asks at once waits, and is not refused.
        door.listen()
        door.setblocking(False)
        yield door


async def _until_unwanted(start: Start) -> None:
    """Returns when the keeper has ended or the folder is gone."""
    gone = asyncio.Event()
    pidfd = _keeper(start)
    if pidfd is not None:
        asyncio.get_running_loop().add_reader(pidfd, gone.set)
    elif start.keeper_pid is not None:
        return
    try:
        while Path(start.folder, "lock").exists():  # noqa: ASYNC240  one look, every few seconds
            shorten_log(sys.stderr.fileno())
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(gone.wait(), LOOK_SECONDS)
                return
    finally:
        if pidfd is not None:
            asyncio.get_running_loop().remove_reader(pidfd)
            os.close(pidfd)


def shorten_log(fd: int) -> None:
    """The log is begun anew when it is full. Nothing to do where it is no file of ours but a pipe or a terminal."""
    found = os.fstat(fd)
    if stat.S_ISREG(found.st_mode) and found.st_size > MOST_LOG:
        os.ftruncate(fd, 0)
        os.lseek(fd, 0, os.SEEK_SET)
        log.warning("log_begun_anew", bytes=found.st_size)


def _keeper(start: Start) -> int | None:
    """Its pidfd; None: there is none, or it is gone already and its number may be another's."""
    if start.keeper_pid is None:
        return None
    try:
        pidfd = os.pidfd_open(start.keeper_pid)
    except OSError:
        return None
    if start.keeper_started is not None and process_started(start.keeper_pid) != start.keeper_started:
        os.close(pidfd)
        return None
    return pidfd
