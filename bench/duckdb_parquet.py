"""A table of DuckDB to Parquet: ours (a locked-in child, a pipe, Arrow's writer) against DuckDB's own COPY. zstd 1, one
thread, groups of 128 Ki rows.

CPU, in turn. Each export has a fresh process for DuckDB and its start is counted on both sides, for ours with what
locks it in, for COPY with what opens the same file; the process that writes our files runs on and keeps its memory, as a
worker does.

The three tables of `parquet_size`, and `lines`: narrow rows that DuckDB makes up itself. The goal is held to all four
together, by the sum of their CPU; the narrower the rows, the more the way through Arrow weighs.
"""

from __future__ import annotations

import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import uvloop

from bench.environment import Env
from bench.figures import Figure, at_least, shown
from bench.parquet_size import TABLES
from bench.process import ContenderProcess, contender, say, words
from paddock import garbage
from paddock.engines.children.duckdb import DuckdbEngine
from paddock.engines.engine import Query
from paddock.engines.settings import DuckdbSettings
from paddock.exports.writing.options import OutputOptions
from paddock.exports.writing.output import Output
from paddock.storage.drafts import Draft, new_draft_id
from paddock.storage.scratch import Scratch
from paddock.storage.store import open_store
from paddock.worker.processes import SMALL_HEAPS

GOAL = 0.85
ROWS = 2_000_000
QUICK_ROWS = 200_000
GROUP_ROWS = 128 << 10

# Read by another process, so a file; called `lines` for each.
LINES = """
CREATE TABLE lines AS SELECT
    6000000000 + n AS order_id,
    (hash(n) % 10000000)::BIGINT AS customer_id,
    (n % 50)::INTEGER AS quantity,
    (hash(n + 1) % 10000000 / 100)::DECIMAL(12, 2) AS price,
    (hash(n + 2) % 1000 / 7.0)::DOUBLE AS discount,
    n % 3 = 0 AS returned,
    ['open', 'packed', 'shipped', 'returned', NULL][(1 + hash(n + 3) % 5)::BIGINT] AS status,
    DATE '1992-01-01' + (hash(n + 4) % 12000)::INTEGER AS shipped,
    TIMESTAMP '1992-01-01' + to_microseconds(n * 1000123456) AS changed,
    CASE n % 40 WHEN 0 THEN NULL ELSE substr(
        'carefully final deposits sleep across the ironic pinto beans über Straße 東京 naïve',
        (1 + hash(n + 5) % 20)::BIGINT, (20 + hash(n + 6) % 40)::BIGINT) || n % 1000 END AS comment
FROM range($rows) t(n)
"""

COPY = """
import duckdb, sys
connection = duckdb.connect(sys.argv[1], read_only=True, config={"threads": 1})
connection.execute("SET enable_progress_bar = false")
connection.execute(
    f"COPY (SELECT * FROM lines) TO '{sys.argv[2]}'"
    " (FORMAT parquet, COMPRESSION zstd, COMPRESSION_LEVEL 1, ROW_GROUP_SIZE 131072)"
)
"""


@dataclass(frozen=True)
class Cost:
    ours: float
    copy: float
    size: float  # ours / COPY's


async def run(env: Env) -> list[Figure]:
    rows = QUICK_ROWS if env.quick else ROWS
    costs: dict[str, list[Cost]] = {}
    with tempfile.TemporaryDirectory(prefix="paddock-bench-") as folder:
        for name in ("lines", *TABLES):
            _fill(Path(folder) / name, name, rows)
            costs[name] = []
        async with contender("bench.duckdb_parquet", environment=SMALL_HEAPS) as worker:
            for number in range(2 if env.quick else 7):
                for name, found in costs.items():
                    found.append(await _round(worker, Path(folder) / name, check=number == 0))
                    env.say(f"{name}: COPY {found[-1].copy:.2f} s, ours {found[-1].ours:.2f} s")
    return _figures(costs, rows)


def _fill(folder: Path, name: str, rows: int) -> None:
    folder.mkdir()
    with duckdb.connect(str(folder / "shop.duckdb")) as shop:
        shop.execute("SET enable_progress_bar = false")
        if name == "lines":
            shop.execute(LINES.replace("$rows", str(rows)))
            return
        made = TABLES[name](random.Random(26), rows // 4)
        shop.register("made", made)
        shop.execute("CREATE TABLE lines AS SELECT made.* FROM made, range(4) ORDER BY range")


async def _round(worker: ContenderProcess, folder: Path, *, check: bool) -> Cost:
    copy = _copy(folder)
    await worker.tell(str(folder))
    exported = await worker.expect("exported")
    files = [Path(file) for file in exported["files"]]
    if check:
        _equal(folder, files)
    size = sum(file.stat().st_size for file in files)
    return Cost(exported["cpu"], copy, size / (folder / "copy.parquet").stat().st_size)


def _figures(costs: Mapping[str, Sequence[Cost]], rows: int) -> list[Figure]:
    together = zip(*costs.values(), strict=True)
    ratios = [sum(cost.copy for cost in each) / sum(cost.ours for cost in each) for each in together]
    figures = [at_least("all four tables: CPU, COPY / ours", ratios, GOAL, note=f"{rows:,} rows each")]
    for name, found in costs.items():
        figures += [
            shown(f"{name}: CPU, COPY / ours", [cost.copy / cost.ours for cost in found], "x"),
            shown(f"{name}: ours, CPU of worker and child", [cost.ours for cost in found], "s"),
            shown(f"{name}: size, ours / COPY", [cost.size for cost in found], "x"),
        ]
    return figures


def _copy(folder: Path) -> float:
    target = folder / "copy.parquet"
    target.unlink(missing_ok=True)
    before = _cpu()
    subprocess.run([sys.executable, "-P", "-c", COPY, str(folder / "shop.duckdb"), str(target)], check=True, env={})
    return _cpu() - before


async def _export(folder: Path) -> tuple[float, list[Path]]:
    settings = DuckdbSettings(database=folder / "shop.duckdb", spill_folder=folder / "spill")
    engine = DuckdbEngine("duckdb", settings)
    scratch = Scratch(folder / "scratch", 4 << 30)
    store, id = folder / "store", new_draft_id()
    try:
        before = _cpu()
        draft = Draft(open_store(str(store)), "bench", id)
        async with engine.open(Query("SELECT * FROM lines")) as stream:
            schema = pa.schema([pa.field(column.name, column.type) for column in stream.columns])
            output = Output(draft, scratch, schema, "parquet", OutputOptions(level=1), group_bytes=1 << 30)
            async for batch in stream.batches():
                await output.write(batch)
            parts = await output.close()
        # The child of this export has been waited for; the one that waits for the next has not.
        cpu = _cpu() - before
    finally:
        await engine.close()
        scratch.close()
    return cpu, [store / "bench" / id / part.name for part in parts]


def _equal(folder: Path, files: list[Path]) -> None:
    if not pq.read_table(files).equals(pq.read_table(folder / "copy.parquet").cast(pq.read_schema(files[0]))):
        raise RuntimeError("COPY wrote another table than ours.")


def _cpu() -> float:
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


async def _work() -> None:
    """`python -m bench.duckdb_parquet`: exports from each folder it is told."""
    garbage.settle()
    async for folder in words():
        cpu, files = await _export(Path(folder))
        say("exported", cpu=cpu, files=[str(file) for file in files])


if __name__ == "__main__":
    uvloop.run(_work())
