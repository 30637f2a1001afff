"""A runner ends itself, with all it started, when the time passed that its supervisor wrote down, and only then."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from uuid import uuid4

import psutil
import pytest

from paddock.worker.guarding import Deadline, Guard, shared_memory
from tests.processes.running import alive

# Guards one turn and starts a child, says so, and goes on until it is killed or told that the turn is over.
RUNNER = """
import subprocess, sys, uuid
from paddock.worker.guarding import Deadline, Guard
guard, attempt = Guard(Deadline(int(sys.argv[1]))), uuid.uuid4()
guard.begin(attempt)
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
print(child.pid, flush=True)
sys.stdin.readline()
guard.over(attempt)
print("over", flush=True)
sys.stdin.readline()
child.kill()
"""


@pytest.fixture
def memory() -> Iterator[int]:
    fd = shared_memory()
    yield fd
    os.close(fd)


def test_it_ends_with_what_it_started_once_the_time_has_passed_and_not_while_it_is_moved(memory: int) -> None:
    deadline = Deadline(memory)
    deadline.write(time.monotonic() + 60)
    with running(memory) as runner:
        child = psutil.Process(int(line(runner)))
        deadline.write(time.monotonic() + 120)
        assert runner.poll() is None
        deadline.write(time.monotonic() - 0.001)
        assert runner.wait(60) == -signal.SIGKILL
        psutil.wait_procs([child], timeout=20)
        assert not alive(child)


def test_without_such_a_turn_the_time_means_nothing(memory: int) -> None:
    deadline = Deadline(memory)
    deadline.write(time.monotonic() + 60)
    with running(memory) as runner:
        line(runner)
        tell(runner)
        assert line(runner) == "over"
        deadline.write(time.monotonic() - 1)
        tell(runner)
        assert runner.wait(60) == 0


def test_a_time_that_nobody_wrote_is_none(memory: int) -> None:
    guard = Guard(Deadline(memory))
    guard._running.add(uuid4())
    assert not guard.passed()
    Deadline(memory).write(time.monotonic())
    assert guard.passed()


def running(memory: int) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-c", RUNNER, str(memory)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        pass_fds=[memory],
        start_new_session=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )


def line(runner: "subprocess.Popen[str]") -> str:
    assert runner.stdout is not None
    return runner.stdout.readline().strip()


def tell(runner: "subprocess.Popen[str]") -> None:
    assert runner.stdin is not None
    runner.stdin.write("\n")
    runner.stdin.flush()
