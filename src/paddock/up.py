"""`paddock up`: PostgreSQL, the control plane, a worker and a local object store, in one data folder.

Each of them is a process of its own, so that any of them may be killed: it is started again, and nothing is lost.
However this process ends, SIGKILL included, none of the others stays behind.

The heavy modules are imported late on purpose: the control plane's process is started first and imports its own
meanwhile.

The data folder holds `admin.token` (mode 0600), `server.json` with the address while it answers, `objects/`, and what
the embedded PostgreSQL keeps there.
"""

import asyncio
import contextlib
import fcntl
import http.client
import json
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from paddock.config import Config

LOOPBACK = "127.0.0.1"
EVERYWHERE = "0.0.0.0"  # noqa: S104  only compared with
NAMES = {"serve": "control plane", "worker": "worker"}
# What a shell sets for another server is not for ours.
NOT_INHERITED = frozenset({"PADDOCK_SERVER", "PADDOCK_TOKEN", "PADDOCK_TOKEN_FILE"})
PORTS_TRIED = 100
# A child that lived this long is started again at once; one that did not, after a pause that grows.
SETTLED = timedelta(seconds=10)
LONGEST_PAUSE = 5.0
STOP_GRACE = timedelta(seconds=30)

log = logging.getLogger(__name__)


class UpError(Exception):
    """A sentence for the person who started it."""

    code = "up"


@dataclass(frozen=True)
class Running:
    """What there is to say once it answers."""

    url: str
    data: Path
    sign_in: str | None
    seconds: float


async def up(
    config: "Config",
    *,
    with_worker: bool = True,
    pg_bin: Path | None = None,
    announce: Callable[[Running], None] = lambda _: None,
) -> None:
    """Runs until SIGINT, SIGTERM or SIGHUP."""
    began = time.monotonic()
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    data = config.data.resolve()
    make_folder(data)
    with ownership(data):
        (data / "server.json").unlink(missing_ok=True)  # of one that was killed
        port = choose_port(config)
        host = config.host or LOOPBACK
        url = f"http://{LOOPBACK if host == EVERYWHERE else host}:{port}"
        async with contextlib.AsyncExitStack() as stack:
            # Started before its database: its imports take longer than PostgreSQL does.
            plane = await stack.enter_async_context(Kept("serve", data).running())
            from paddock import log as logs

            logs.configure(config.log_level, config.log_format)
            dsn = await stack.enter_async_context(_database(config, data, pg_bin, stop))
            (data / "objects").mkdir(mode=0o700, exist_ok=True)
            secrets = await _prepare(dsn, data)
            # Postgres goes last: stopped in the reverse order of being entered, but both children need it.
            stack.push_async_callback(plane.stop)
            plane.tell(lambda _: {"database_url": dsn, "host": host, "port": port})
            await _until_ready(url, plane, stop)
            if with_worker and not stop.is_set():
                worker = await stack.enter_async_context(Kept("worker", data).running())
                worker.tell(
                    lambda n: {"server": url, "token": secrets["worker"], "worker_port": 0, "worker_id": f"local-{n}"}
                )
            if not stop.is_set():
                with _address(data, url):
                    sign_in = await asyncio.to_thread(_sign_in_link, url, secrets["admin"])
                    announce(Running(url, data, sign_in, time.monotonic() - began))
                    await stop.wait()
            log.info("Stopping.")


class Kept:
    """A process of ours that is started again when it ends. It begins to work when it is told its settings."""

    def __init__(self, role: str, data: Path) -> None:
        self.role = role
        self.first_end = asyncio.Event()
        self._data = data
        self._starts = 0
        self._settings: Callable[[int], dict[str, Any]] | None = None
        self._stopping = asyncio.Event()
        self._child = self._start()

    def tell(self, settings: Callable[[int], dict[str, Any]]) -> None:
        """Settings of its n-th start, as arguments of configuration: they rank above the environment and the file."""
        self._settings = settings
        self._child.tell({**settings(self._starts), "data": str(self._data)})

    @asynccontextmanager
    async def running(self) -> AsyncIterator["Kept"]:
        keeper = asyncio.create_task(self._keep(), name=f"keep {self.role}")
        try:
            yield self
        finally:
            await self.stop()
            keeper.cancel()
            await asyncio.gather(keeper, return_exceptions=True)

    async def stop(self) -> None:
        self._stopping.set()
        await self._child.stop()

    def _start(self) -> "Child":
        self._starts += 1
        return Child([sys.executable, "-m", "paddock.child", self.role, str(os.getpid())])

    async def _keep(self) -> None:
        pause = 0.0
        while True:
            began = time.monotonic()
            await self._child.exited.wait()
            self.first_end.set()
            if self._stopping.is_set() or self._settings is None:
                return
            lived = time.monotonic() - began
            pause = 0.0 if lived > SETTLED.total_seconds() else min(LONGEST_PAUSE, max(0.1, pause * 2))
            how = how_it_ended(self._child.returncode)
            log.warning("The %s %s after %.1f s: starting it again.", NAMES[self.role], how, lived)
            await asyncio.sleep(pause)
            self._child = self._start()
            self._child.tell({**self._settings(self._starts), "data": str(self._data)})


class Child:
    """Forked and waited for by a thread of its own: the death signal is tied to the thread that forked, and this one
    stays in waitpid() until the child has ended."""

    def __init__(self, command: list[str]) -> None:
        self.exited = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._started = threading.Event()
        self._problem: OSError | None = None
        self._process: subprocess.Popen[bytes] | None = None
        threading.Thread(target=self._live, args=(command,), name=command[3], daemon=True).start()
        self._started.wait()  # milliseconds: the time of a fork and an exec
        if self._problem is not None:
            raise self._problem

    def _live(self, command: list[str]) -> None:
        inherited = {name: value for name, value in os.environ.items() if name not in NOT_INHERITED}
        try:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                env={**inherited, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
                start_new_session=True,  # Ctrl-C in a terminal is for us: we stop the others in order
            )
        except OSError as problem:
            self._problem = problem
            return
        finally:
            self._started.set()
        self._process.wait()
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody is left to be told
            self._loop.call_soon_threadsafe(self.exited.set)

    def tell(self, settings: dict[str, Any]) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it has ended: whoever keeps it notices
            self._process.stdin.write(json.dumps(settings).encode() + b"\n")
            self._process.stdin.flush()

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def returncode(self) -> int:
        assert self._process is not None
        assert self._process.returncode is not None, "it has ended"
        return self._process.returncode

    async def stop(self) -> None:
        assert self._process is not None
        if self.exited.is_set():
            return
        self._process.terminate()
        try:
            async with asyncio.timeout(STOP_GRACE.total_seconds()):
                await self.exited.wait()
        except TimeoutError:
            log.warning("Process %d did not stop in time and is killed.", self._process.pid)
            self._process.kill()
            await self.exited.wait()


def how_it_ended(code: int) -> str:
    if code >= 0:
        return f"exited with code {code}"
    with contextlib.suppress(ValueError):
        return f"was killed by {signal.Signals(-code).name}"
    return f"was killed by signal {-code}"


@asynccontextmanager
async def _database(config: "Config", data: Path, pg_bin: Path | None, stop: asyncio.Event) -> AsyncIterator[str]:
    """The one that is configured, or an embedded one, which is started again if it dies."""
    if config.database_url is not None:
        yield config.database_url.get_secret_value()
        return
    from paddock.db.embedded import embedded_postgres

    async with contextlib.AsyncExitStack() as stack:
        postgres = await stack.enter_async_context(embedded_postgres(data, pg_bin=pg_bin))
        dsn = postgres.dsn

        async def keep() -> None:
            nonlocal postgres
            while True:
                await postgres.died.wait()
                log.error("PostgreSQL ended by itself (see %s): starting it again.", data / "postgres.log")
                await stack.aclose()
                postgres = await stack.enter_async_context(embedded_postgres(data, pg_bin=pg_bin))
                if postgres.dsn != dsn:
                    log.error("PostgreSQL has another address now, which the control plane does not know: stopping.")
                    stop.set()
                    return

        keeper = asyncio.create_task(keep(), name="keep postgres")
        try:
            yield dsn
        finally:
            keeper.cancel()
            await asyncio.gather(keeper, return_exceptions=True)


async def _prepare(dsn: str, data: Path) -> dict[str, str]:
    """A migrated database, and a token for the person and one for the worker that it accepts."""
    from paddock.api.tokens import Tokens, everything, new_secret
    from paddock.db.migrate import migrate
    from paddock.db.pool import open_database

    await migrate(dsn)
    secrets = {}
    async with open_database(dsn, durable=1, relaxed=1) as db:
        tokens = Tokens(db)
        for role, name in (("admin", "admin"), ("worker", "local worker")):
            file = data / f"{role}.token"
            secret = _read(file) or new_secret()
            if not await tokens.keep(everything(name, role), secret, actor="paddock up"):  # type: ignore[arg-type]
                secret = new_secret()
                await tokens.create(everything(name, role), actor="paddock up", secret=secret)  # type: ignore[arg-type]
            write_private(file, secret + "\n")
            secrets[role] = secret
    return secrets


def make_folder(data: Path) -> None:
    """As the embedded PostgreSQL does it: private, but its account must be able to pass when we are root."""
    missing = [folder for folder in (data, *data.parents) if not folder.exists()]
    for folder in reversed(missing):
        try:
            folder.mkdir(0o700, exist_ok=True)
        except OSError as problem:
            raise UpError(
                f"{folder} cannot be made: {problem.strerror}. Choose a data folder with --data DIR."
            ) from None
        if os.geteuid() == 0:
            folder.chmod(0o711)


@contextmanager
def ownership(data: Path) -> Iterator[None]:
    """At most one `up` for each folder; the lock goes with the process, however it ends."""
    try:
        lock = os.open(data / "up.lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as problem:
        raise UpError(f"{data} cannot be used: {problem.strerror}. Choose a data folder with --data DIR.") from None
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UpError(_in_use(data)) from None
        yield
    finally:
        os.close(lock)


def _in_use(data: Path) -> str:
    where = ""
    with contextlib.suppress(OSError, ValueError, KeyError):
        told = json.loads((data / "server.json").read_text("utf-8"))
        where = f" at {told['url']} (process {told['pid']})"
    return (
        f"A Paddock is running on {data} already{where}: use that one, stop it, or choose another folder (--data DIR)."
    )


def choose_port(config: "Config") -> int:
    """The one that was asked for; else 8080 or the next that is free."""
    host = config.host or LOOPBACK
    if config.source("port") != "default":
        if config.port and not _is_free(host, config.port):
            raise UpError(f"Port {config.port} is taken by another program: choose one with --port N.")
        return config.port or _any_port(host)
    for port in range(config.port, config.port + PORTS_TRIED):
        if _is_free(host, port):
            return port
    return _any_port(host)


def _is_free(host: str, port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True


def _any_port(host: str) -> int:
    with socket.socket() as probe:
        probe.bind((host, 0))
        return int(probe.getsockname()[1])


async def _until_ready(url: str, plane: Kept, stop: asyncio.Event) -> None:
    while not stop.is_set() and not await asyncio.to_thread(_answers, url):
        if plane.first_end.is_set():
            raise UpError("The control plane ended before it was ready; what it said is above.")
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), 0.05)


def _answers(url: str) -> bool:
    try:
        return _ask(url, "GET", "/ready")[0] == 200
    except (OSError, http.client.HTTPException):
        return False


def _sign_in_link(url: str, secret: str) -> str | None:
    """None when there is none to be had: the token works as well."""
    try:
        status, answer = _ask(url, "POST", "/api/tokens/self/sign-in-link", secret)
        told = json.loads(answer)["data"]
    except (OSError, ValueError, KeyError, http.client.HTTPException):
        return None
    link = str(told.get("url") or told.get("path") or "") if status < 300 else ""
    return (link if "://" in link else url + link) if link else None


def _ask(url: str, method: str, path: str, secret: str | None = None) -> tuple[int, bytes]:
    """Ten lines instead of a client library: it would cost half of the start."""
    host, _, port = url.removeprefix("http://").rpartition(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=5)
    try:
        headers = {"Content-Type": "application/json", **({"Authorization": f"Bearer {secret}"} if secret else {})}
        connection.request(method, path, body="{}" if method == "POST" else None, headers=headers)
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()


@contextmanager
def _address(data: Path, url: str) -> Iterator[None]:
    """`server.json` exists exactly while it answers; readers check the process too, in case this one is killed."""
    file = data / "server.json"
    told: dict[str, Any] = {"url": url, "pid": os.getpid()}
    temporary = data / "server.json.new"
    temporary.write_text(json.dumps(told) + "\n", "utf-8")
    temporary.replace(file)
    try:
        yield
    finally:
        file.unlink(missing_ok=True)


def _read(file: Path) -> str | None:
    try:
        return file.read_text("utf-8").strip() or None
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as problem:
        raise UpError(f"{file} cannot be read: {problem}.") from None


def write_private(file: Path, content: str) -> None:
    """Mode 0600 from its first moment, and whole or not at all."""
    temporary = file.with_name(f"{file.name}.new")
    temporary.unlink(missing_ok=True)
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as opened:
        opened.write(content)
    temporary.replace(file)
