"""Table maintenance against what PyIceberg does by itself, each in a process of its own, on the same lake put back before each round.

CPU is that of the process after everything is loaded; memory its peak over what it had then. BENCH_FULL_SIZE=1: rewrites of 0.5, 2 and
8 GB, which need 20 GB of disk; otherwise of 64 and 256 MB.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
from pyiceberg.conversions import to_bytes
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.typedef import Record
from pyiceberg.types import LongType, NestedField, StringType

from bench.environment import Env
from bench.figures import Figure, at_least, at_most, shown
from bench.process import ROOT
from bench.table_contenders import IDENTIFIER, opened

MIB = 1 << 20
FILE_ROWS = 1_000
COLUMNS = 30
Told = dict[str, float]


async def run(env: Env) -> list[Figure]:
    figures: list[Figure] = []
    with tempfile.TemporaryDirectory(prefix="paddock-bench-") as held:
        for part in (rewrites, expiries, looks, orphan_plans, memories):
            folder = Path(held) / part.__name__
            folder.mkdir()
            figures += await part(env, folder)
            shutil.rmtree(folder, ignore_errors=True)
    return figures


async def rewrites(env: Env, folder: Path) -> list[Figure]:
    figures = []
    files, rounds = (40, 1) if env.quick else (500, 5)
    for name, partitions in (("flat", 1), ("in 50 partitions", 50)):
        lake = Lake(folder / name.replace(" ", "-"))
        env.say(f"{files} small files, {name}")
        lake.make(files, partitions)
        took = await lake.rounds(rounds, "rewrite_by_overwriting", "rewrite_ours")
        figures.append(
            at_least(
                f"{files} small files, {name}: CPU of overwrite(scan) / ours",
                ratios(took, "rewrite_by_overwriting", "rewrite_ours", "cpu"),
                1.5,
            )
        )
        before = await lake.rounds(rounds, "scan", "plan")
        await lake.run("rewrite_ours")
        lake.keep()
        after = await lake.rounds(rounds, "scan", "plan")
        for what in ("scan", "plan"):
            gained = [b["cpu"] / a["cpu"] for b, a in zip(before[what], after[what], strict=True)]
            figures.append(shown(f"{files} small files, {name}: CPU of a {what} before / after", gained, "x"))
    return figures


async def expiries(env: Env, folder: Path) -> list[Figure]:
    snapshots, rounds = (40, 1) if env.quick else (500, 3)
    lake = Lake(folder / "lake")
    env.say(f"{snapshots} snapshots")
    lake.make(snapshots, 1)
    # All of them but the last lead to files that nothing else needs.
    lake.overwrite()
    took = await lake.rounds(rounds, "expire_by_ids", "expire_ours")
    goal = f"{snapshots} snapshots with their files: CPU of by_ids and plain reachability / ours"
    return [at_least(goal, ratios(took, "expire_by_ids", "expire_ours", "cpu"), 4)]


async def looks(env: Env, folder: Path) -> list[Figure]:
    files, rounds = (2_000, 1) if env.quick else (100_000, 3)
    lake = Lake(folder / "lake")
    env.say(f"{files:,} files of {COLUMNS} columns")
    lake.make_entries(files)
    took = await lake.rounds(rounds, "look_by_inspecting", "look_ours")
    name = f"a look at {files:,} files x {COLUMNS} columns"
    return [
        at_least(f"{name}: CPU of inspect.files() / ours", ratios(took, "look_by_inspecting", "look_ours", "cpu"), 3),
        at_least(
            f"{name}: memory of inspect.files() / ours", ratios(took, "look_by_inspecting", "look_ours", "memory"), 8
        ),
    ]


async def orphan_plans(env: Env, folder: Path) -> list[Figure]:
    number = 20_000 if env.quick else 1_000_000
    lake = Lake(folder / "lake")
    lake.make(1, 1)
    env.say(f"{number:,} listed, {number:,} reachable")
    told = await lake.run("orphan_plan", number)
    name = f"orphan plan, {number:,} listed x {number:,} reachable: memory"
    return [at_most(name, [told["memory"]], 64, "MiB", note=f"{told['cpu']:.1f} s of CPU")]


async def memories(env: Env, folder: Path) -> list[Figure]:
    sizes = (500, 2_000, 8_000) if os.environ.get("BENCH_FULL_SIZE") else (64, 256)
    figures, peaks = [], []
    for megabytes in (16,) if env.quick else sizes:
        lake = Lake(folder / str(megabytes))
        env.say(f"a rewrite of {megabytes:,} MB")
        lake.make_large(megabytes)
        told = await lake.run("rewrite_ours", 128 * MIB)
        peaks.append(told["memory"])
        figures.append(at_most(f"rewrite of {megabytes:,} MB: peak over idle", [told["memory"]], 300, "MiB"))
        shutil.rmtree(lake.folder)
    if len(peaks) > 1:
        grown = 100 * (max(peaks) / peaks[0] - 1)
        figures.append(at_most("growth of the peak from the smallest to the largest", [grown], 10, "%"))
    return figures


class Lake:
    """A table, and how it was before a round changed it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.kept = folder.with_name(f"{folder.name}-kept")
        folder.mkdir(parents=True)

    def make(self, files: int, partitions: int) -> None:
        catalog = opened(self.folder)
        catalog.create_namespace("bench")
        schema = Schema(
            NestedField(1, "id", LongType()), NestedField(2, "part", LongType()), NestedField(3, "text", StringType())
        )
        spec = (
            PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "part")) if partitions > 1 else PartitionSpec()
        )
        table = catalog.create_table(IDENTIFIER, schema, partition_spec=spec)
        for number in range(files):
            table.append(rows_of(number, FILE_ROWS, number % partitions))
        self.keep()

    def overwrite(self) -> None:
        opened(self.folder).load_table(IDENTIFIER).overwrite(rows_of(0, FILE_ROWS, 0))
        self.keep()

    def make_large(self, megabytes: int) -> None:
        """Files of about 16 MB that hardly compress."""
        catalog, chance = opened(self.folder), random.Random(26)
        catalog.create_namespace("bench")
        schema = pa.schema([("id", pa.int64()), ("content", pa.large_binary())])
        table = catalog.create_table(IDENTIFIER, schema)
        for number in range(max(2, megabytes // 16)):
            ids = pa.array(range(number * 16_000, (number + 1) * 16_000), pa.int64())
            content = pa.array([chance.randbytes(1_000) for _ in range(16_000)], pa.large_binary())
            table.append(pa.table([ids, content], schema=schema))

    def make_entries(self, files: int) -> None:
        """Entries of manifests; the files themselves are not there, and nobody looks."""
        catalog = opened(self.folder)
        catalog.create_namespace("bench")
        fields = [NestedField(number + 1, f"column_{number}", LongType()) for number in range(COLUMNS)]
        table = catalog.create_table(IDENTIFIER, Schema(*fields))
        counts = dict.fromkeys(range(1, COLUMNS + 1), FILE_ROWS)
        bounds = {number: to_bytes(LongType(), number) for number in counts}
        with table.transaction() as change, change.update_snapshot().fast_append() as append:
            for number in range(files):
                file = DataFile.from_args(
                    content=DataFileContent.DATA,
                    file_path=f"{table.metadata.location}/data/{number:032x}.parquet",
                    file_format=FileFormat.PARQUET,
                    partition=Record(),
                    record_count=FILE_ROWS,
                    file_size_in_bytes=100_000,
                    column_sizes=counts,
                    value_counts=counts,
                    null_value_counts=counts,
                    nan_value_counts={},
                    lower_bounds=bounds,
                    upper_bounds=bounds,
                )
                file.spec_id = 0
                append.append_data_file(file)
        self.keep()

    def keep(self) -> None:
        shutil.rmtree(self.kept, ignore_errors=True)
        shutil.copytree(self.folder, self.kept)

    def put_back(self) -> None:
        shutil.rmtree(self.folder)
        shutil.copytree(self.kept, self.folder)

    async def rounds(self, rounds: int, *ways: str) -> dict[str, list[Told]]:
        """Interleaved, each on the table as it was kept."""
        took: dict[str, list[Told]] = {way: [] for way in ways}
        for _ in range(rounds):
            for way in ways:
                took[way].append(await self.run(way))
                self.put_back()
        return took

    async def run(self, way: str, number: int = 0) -> Told:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "bench.table_contenders", way, str(self.folder), str(number),
            cwd=ROOT, stdout=asyncio.subprocess.PIPE,
        )  # fmt: skip
        said, _ = await process.communicate()
        if process.returncode:
            raise RuntimeError(f"{way} ended with {process.returncode}.")
        told: Told = json.loads(said.splitlines()[-1])
        return told


def rows_of(number: int, count: int, partition: int) -> pa.Table:
    ids = range(number * count, (number + 1) * count)
    columns = [
        pa.array(ids, pa.int64()),
        pa.array([partition] * count, pa.int64()),
        pa.array([f"text of row {id * 7919 % 100_003}" for id in ids]),
    ]
    return pa.table(columns, names=["id", "part", "text"])


def ratios(took: dict[str, list[Told]], theirs: str, ours: str, what: str) -> Sequence[float]:
    # What hardly grew at all is taken for a MiB.
    return [
        a[what] / max(b[what], 1.0 if what == "memory" else 0.001)
        for a, b in zip(took[theirs], took[ours], strict=True)
    ]
