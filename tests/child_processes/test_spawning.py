"""A child dies with its parent, takes its group along, and is gone when its end was waited for."""

import asyncio
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from paddock.child_processes.spawning import LAST_WORDS_BYTES, ChildProcess, inherited, launched

SHELL, SLEEP = "/bin/sh", "/bin/sleep"
PARENT = """
import asyncio, sys
from paddock.child_processes.spawning import ChildProcess, launched

async def main():
    child = ChildProcess(launched(["/bin/sleep", "1000"]), environment={})
    while open(f"/proc/{child.pid}/comm").read() != "sleep\\n":
        await asyncio.sleep(0.01)
    print(child.pid, flush=True)
    await child.wait()

asyncio.run(main())
"""


async def until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not true():  # noqa: ASYNC110  nobody tells us when a process is gone
            await asyncio.sleep(0.01)


def gone(pid: int) -> bool:
    """Also when it ended and its parent, which is not us, has not reaped it yet."""
    try:
        return ") Z " in Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return True


def shell(script: str) -> ChildProcess:
    return ChildProcess([SHELL, "-c", script], environment=inherited("PATH"), stdout=subprocess.PIPE)


async def all_output(child: ChildProcess) -> str:
    said = b""
    while piece := await child.read(1024):
        said += piece
    return said.decode()


@pytest.fixture(params=["pidfd", "thread"])
def watched(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """By both ways to hear of an end: the second is for systems without the first."""
    if request.param == "thread":
        monkeypatch.delattr(os, "pidfd_open")


async def test_a_program_dies_with_a_killed_parent() -> None:
    with subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        pid = int(await asyncio.to_thread(parent.stdout.readline))
        parent.kill()
    await until(lambda: gone(pid))


@pytest.mark.usefixtures("watched")
async def test_what_a_child_started_is_killed_with_it() -> None:
    child = shell("sleep 1000 & echo $!; wait")
    sleeper = int(await child.read(100))

    assert await child.end() == -signal.SIGKILL

    assert not Path(f"/proc/{child.pid}").exists()
    await until(lambda: gone(sleeper))


@pytest.mark.usefixtures("watched")
async def test_what_a_child_left_behind_is_killed_when_it_ends_by_itself() -> None:
    child = shell("sleep 1000 & echo $!; exit 3")
    sleeper = int(await child.read(100))

    assert await child.wait() == 3

    await until(lambda: gone(sleeper))
    await child.end()


@pytest.mark.usefixtures("watched")
async def test_a_child_that_nobody_waits_for_is_reaped() -> None:
    child = shell("exit 3")
    await until(lambda: not Path(f"/proc/{child.pid}").exists())
    assert child.returncode == 3
    await child.end()


async def test_a_child_may_stay_in_our_group() -> None:
    ours = ChildProcess([SLEEP, "1000"], environment={}, own_group=False)
    own = ChildProcess([SLEEP, "1000"], environment={})
    assert (os.getpgid(ours.pid), os.getpgid(own.pid)) == (os.getpgrp(), own.pid)
    assert [await ours.end(), await own.end()] == [-signal.SIGKILL] * 2


async def test_a_child_sees_only_what_it_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET", "hush")
    monkeypatch.setenv("HARMLESS", "known")
    given = inherited("HARMLESS", "NOT_THERE") | {"GIVEN": "too"}
    child = ChildProcess(["/usr/bin/env"], environment=given, stdout=subprocess.PIPE)
    assert (await all_output(child)).split() == ["HARMLESS=known", "GIVEN=too"]
    await child.end()


async def test_a_program_starts_within_its_limits() -> None:
    limits = {resource.RLIMIT_NOFILE: 17, resource.RLIMIT_CORE: 0}
    command = launched([SHELL, "-c", "ulimit -n; ulimit -Hn; ulimit -c"], limits=limits)
    child = ChildProcess(command, environment={}, stdout=subprocess.PIPE)
    assert (await all_output(child)).split() == ["17", "17", "0"]
    await child.end()


async def test_last_words_are_kept_and_nobody_is_held_up_by_the_others() -> None:
    child = shell("head -c 1000000 /dev/zero >&2; echo goodbye >&2; exit 1")
    assert await child.wait() == 1
    assert child.last_words.endswith("\0goodbye\n")
    assert len(child.last_words) == LAST_WORDS_BYTES
    await child.end()


async def test_a_child_is_asked_before_it_is_killed() -> None:
    child = shell("trap 'echo bye >&2; exit 5' TERM; echo ready; while :; do sleep 0.01; done")
    assert await child.read(100) == b"ready\n"
    assert await child.end(ask=signal.SIGTERM, grace=60) == 5
    assert child.last_words == "bye\n"


async def test_who_is_cancelled_goes_on_only_when_the_child_is_gone() -> None:
    child = shell("trap '' TERM; echo ready; while :; do sleep 0.01; done")
    assert await child.read(100) == b"ready\n"
    ending = asyncio.create_task(child.end(ask=signal.SIGTERM, grace=3600))
    await asyncio.sleep(0)

    ending.cancel()
    await asyncio.sleep(0)
    ending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await ending

    assert child.returncode == -signal.SIGKILL
    assert not Path(f"/proc/{child.pid}").exists()


async def test_a_dead_child_is_written_to_without_harm() -> None:
    child = ChildProcess([SLEEP, "1000"], environment={}, stdin=subprocess.PIPE)
    writing = asyncio.create_task(child.write(b"x" * 1_000_000))
    await asyncio.sleep(0)
    child.kill()
    await writing
    await child.end()


async def test_a_program_that_is_not_there() -> None:
    with pytest.raises(FileNotFoundError):
        ChildProcess(["/nowhere/to/be/found"], environment={})
