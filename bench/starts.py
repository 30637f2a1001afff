"""CPU time of starts: `paddock --help`, a runner with all kinds, and a DuckDB engine's child, each to its end.

A runner and a child end by themselves when nobody is at the other end of their socket, which they see once they are ready.
`BENCH_BEFORE=/path/to/another/checkout/src` measures that code too, in turns with this one: the ratio is the figure.
"""

from __future__ import annotations

import os
import socket
import statistics
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from bench.environment import Env
from bench.figures import Figure, at_most

HERE = Path(__file__).resolve().parent.parent / "src"
GOAL = 1.05


def cpu_seconds(command: Sequence[str], source: Path, pass_fds: Sequence[int] = ()) -> float:
    for fd in pass_fds:
        os.set_inheritable(fd, True)
    environment = {**os.environ, "PYTHONPATH": str(source)}
    quiet = [(os.POSIX_SPAWN_OPEN, fd, os.devnull, os.O_RDWR, 0) for fd in (0, 1, 2)]
    pid = os.posix_spawn(command[0], list(command), environment, file_actions=quiet)
    used = os.wait4(pid, 0)[2]
    return used.ru_utime + used.ru_stime


def help_of_paddock(source: Path) -> float:
    return cpu_seconds([sys.executable, "-m", "paddock.cli", "--help"], source)


def runner(source: Path) -> float:
    ours, theirs = socket.socketpair()
    ours.close()
    deadline = os.memfd_create("deadline")
    os.ftruncate(deadline, 4096)
    with theirs:
        command = [sys.executable, "-m", "paddock.worker.runner", "--fd", str(theirs.fileno())]
        command += [
            "--supervisor",
            str(os.getpid()),
            "--deadline",
            str(deadline),
            "--kinds",
            "paddock.known_kinds:worker_kinds",
        ]
        command += ["--resources", "paddock.known_kinds:worker_resources"]
        try:
            return cpu_seconds(command, source, [theirs.fileno(), deadline])
        finally:
            os.close(deadline)


def engine_child(source: Path) -> float:
    ours, theirs = socket.socketpair()
    ours.close()
    with theirs:
        command = [sys.executable, "-P", "-m", "paddock.engines.children.duckdb_child", str(os.getpid())]
        return cpu_seconds([*command, str(theirs.fileno())], source, [theirs.fileno()])


STARTS: dict[str, Callable[[Path], float]] = {
    "paddock --help": help_of_paddock,
    "a runner": runner,
    "a DuckDB child": engine_child,
}


async def run(env: Env) -> list[Figure]:
    rounds = 3 if env.quick else 25
    before = os.environ.get("BENCH_BEFORE")
    sources = [HERE] if before is None else [HERE, Path(before).resolve()]
    figures = []
    for name, start in STARTS.items():
        times: dict[Path, list[float]] = {source: [] for source in sources}
        for number in range(rounds + 1):
            for source in sources if number % 2 else reversed(sources):
                seconds = start(source)
                if number:  # the first one compiles and reads the disk
                    times[source].append(seconds * 1000)
        if before is not None:
            earlier = statistics.median(times[sources[1]])
            ratios = [ours / theirs for ours, theirs in zip(*times.values(), strict=True)]
            figures.append(at_most(f"{name}: CPU / that of the code before", ratios, GOAL))
            figures.append(Figure(f"{name}: CPU of the code before", earlier, "ms"))
        figures.append(Figure(f"{name}: CPU", statistics.median(times[HERE]), "ms"))
        env.say(f"{name}: {rounds} starts")
    return figures
