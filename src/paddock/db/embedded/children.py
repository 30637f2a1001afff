"""PostgreSQL's programs as processes that end with their owner, however that ends."""

import asyncio
import concurrent.futures
import contextlib
import os
import signal
import subprocess
import threading
from collections.abc import Sequence

from paddock.child_processes.spawning import launched
from paddock.db.embedded.errors import EmbeddedPostgresError, FolderUnreachable
from paddock.db.embedded.place import Place, open_file

_UNREACHABLE = 97

# Runs in the launcher of a program. SIGINT must not arrive ignored or blocked, as it is under `nohup ... &`.
_BECOME_THE_ACCOUNT = """
import signal
signal.signal(signal.SIGINT, signal.SIG_DFL)
signal.pthread_sigmask(signal.SIG_SETMASK, [])
os.umask(0o077)
if os.geteuid() != {uid}:
    os.setgroups([])
    os.setgid({gid})
    os.setuid({uid})
for path in {needed}:
    parents = [path]
    while parents[0] != os.path.dirname(parents[0]):
        parents.insert(0, os.path.dirname(parents[0]))
    for parent in parents:
        if not os.access(parent, os.X_OK):
            print(parent, file=sys.stderr)
            sys.exit({unreachable})
"""


class Child:
    """A PostgreSQL program, forked and waited for by a thread of its own.

    The death signal is tied to the thread that forked, not to the process. This thread stays in waitpid() until
    the child has ended, so postgres cannot be shut down by a thread pool that shrinks.
    """

    def __init__(self, place: Place, program: str, *arguments: str, stdin: bytes = b"") -> None:
        self.program = program
        self.exited = asyncio.Event()
        self.died = asyncio.Event()
        self.stopping = False
        self._loop = asyncio.get_running_loop()
        self._output = open_file(place.log_file, os.O_RDWR | os.O_APPEND, 0o600)
        self._output_start = os.fstat(self._output).st_size
        path = str(place.pg_bin / program)
        become = _BECOME_THE_ACCOUNT.format(
            uid=place.account.uid,
            gid=place.account.gid,
            needed=[str(place.data_dir), path],
            unreachable=_UNREACHABLE,
        )
        command = launched([path, *arguments], death_signal=signal.SIGINT, first=become)
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


async def run(place: Place, program: str, *arguments: str, stdin: bytes = b"") -> None:
    child = Child(place, program, *arguments, stdin=stdin)
    try:
        await child.exited.wait()
        if child.returncode != 0:
            raise failure(place, child)
    finally:
        if not child.exited.is_set():
            child.signal(signal.SIGKILL)
        child.close()


def failure(place: Place, child: Child) -> EmbeddedPostgresError:
    lines = child.output()
    if child.returncode == _UNREACHABLE and lines:
        return FolderUnreachable(
            f"PostgreSQL would run as the user {place.account.name!r}, who may not enter {lines[-1]}. Choose a data "
            f"folder that this user can reach (--data DIR, for example --data /var/lib/paddock) and PostgreSQL "
            f"programs outside that folder (--pg-bin DIR), or run Paddock as an ordinary user instead of root."
        )
    said = "\n".join(lines[-5:])
    return EmbeddedPostgresError(f"{child.program} ended ({child.returncode}); see {place.log_file}. It said:\n{said}")
