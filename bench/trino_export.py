"""A whole export from Trino to Parquet: ours against the official client, `pa.array` and Arrow's Parquet writer.

CPU of the exporting process, each in one of its own, in turn, from a server that has its answers ready. Ours includes
what the other leaves out: the gate's query, checksums, reading the file back, the manifest. Its process keeps its memory
as a worker's does.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet as pq

from bench.environment import Env
from bench.figures import Figure, at_least, shown
from bench.process import ContenderProcess, contender
from paddock.worker.processes import SMALL_HEAPS


@dataclass(frozen=True)
class Load:
    name: str
    goal: float
    shape: str
    way: str
    rows: int
    at_once: int


@dataclass(frozen=True)
class Cost:
    cpu: float
    wall: float
    rss: float


# 1 MB in a page of the coordinator, 8 MB in a segment, as Trino's defaults are.
LOADS = (
    Load("flat, 1 MB pages", 6, "flat", "direct", 200_000, 6_000),
    Load("flat, 8 MB segments", 6, "flat", "spooled", 200_000, 50_000),
    Load("nested, 1 MB pages", 4.5, "nested", "direct", 30_000, 2_800),
    Load("nested, 8 MB segments", 4.5, "nested", "spooled", 30_000, 22_000),
)


async def run(env: Env) -> list[Figure]:
    figures = []
    for load in LOADS:
        rows = load.rows // 10 if env.quick else load.rows
        async with contender("bench.trino_server", f"{load.shape}:{rows}:{load.at_once}") as server:
            ready = await server.expect("ready")
            async with (
                contender("bench.trino_contenders", "official", ready["url"]) as official,
                contender("bench.trino_contenders", "ours", ready["url"], environment=SMALL_HEAPS) as ours,
            ):
                await official.expect("ready")
                await ours.expect("ready")
                costs = await _rounds(env, load, official, ours)
        figures += _figures(load, costs, rows, ready["bytes"][load.shape])
    return figures


async def _rounds(env: Env, load: Load, official: ContenderProcess, ours: ContenderProcess) -> list[tuple[Cost, Cost]]:
    """The first round is not counted: a worker runs on."""
    costs = []
    for number in range(3 if env.quick else 6):
        with tempfile.TemporaryDirectory(prefix="paddock-bench-") as name:
            folder = Path(name)
            cost = (await _export(official, load, folder / "official"), await _export(ours, load, folder / "ours"))
            if number == 0:
                _equal(folder)
                continue
        costs.append(cost)
        env.say(f"{load.name}: official {cost[0].cpu:.2f} s, ours {cost[1].cpu:.2f} s")
    return costs


async def _export(process: ContenderProcess, load: Load, folder: Path) -> Cost:
    folder.mkdir()
    await process.tell(f"SELECT * FROM {load.shape}.{load.way}\t{folder}")
    said = await process.expect("exported")
    return Cost(said["cpu"], said["wall"], said["rss"])


def _equal(folder: Path) -> None:
    theirs, ours = (_read(folder / name) for name in ("official", "ours"))
    # As text: NaN equals itself there.
    if theirs.num_rows != ours.num_rows or str(theirs.to_pylist()) != str(ours.to_pylist()):
        raise RuntimeError("The two did not write the same rows.")


def _read(folder: Path) -> pq.Table:
    return pq.read_table(sorted(folder.rglob("*.parquet")))


def _figures(load: Load, costs: Sequence[tuple[Cost, Cost]], rows: int, size: int) -> list[Figure]:
    return [
        at_least(
            f"{load.name}: CPU, official client + PyArrow / ours",
            [theirs.cpu / ours.cpu for theirs, ours in costs],
            load.goal,
            note=f"{rows:,} rows, {size / 1e6:.0f} MB of JSON",
        ),
        shown(f"{load.name}: time, official / ours", [theirs.wall / ours.wall for theirs, ours in costs], "x"),
        shown(f"{load.name}: ours", [rows / ours.cpu / 1e3 for _, ours in costs], "krows/cpu-s"),
        shown(f"{load.name}: official", [rows / theirs.cpu / 1e3 for theirs, _ in costs], "krows/cpu-s"),
        shown(f"{load.name}: ours, memory", [ours.rss for _, ours in costs], "MiB"),
        shown(f"{load.name}: official, memory", [theirs.rss for theirs, _ in costs], "MiB"),
    ]
