"""The most memory that a dump takes over an idle worker's runner, with values up to 8 MiB.

A process that has loaded what a runner has, and then dumps a database of narrow rows, of texts and of blobs from 64 KiB
to 8 MiB into a folder. BENCH_FULL_SIZE=1: 10 GB of SQLite instead of one.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import sys
import tempfile
from pathlib import Path

import apsw
import duckdb

from bench.environment import Env
from bench.figures import Figure, at_most, shown
from bench.process import ROOT
from paddock.dumps.writing import part_size

LIMIT_MB = 128
SIZES = {"sqlite": 1 << 30, "duckdb": 400 << 20}
QUICK = 60 << 20
FULL = 10 << 30

CHILD = """
import asyncio, json, sys
from pathlib import Path
import paddock.worker.runner, paddock.dumps.running
from bench.dump_job import dumped

def memory(name):
    for line in open("/proc/self/status"):
        if line.startswith(name):
            return int(line.split()[1]) / 1024

idle = memory("VmRSS")
type, path, folder, part = sys.argv[1:]
asyncio.run(dumped(type, path, "sql", Path(folder), dumps_part_bytes=int(part)))
print(json.dumps({"idle": idle, "peak": memory("VmHWM")}))
"""


async def run(env: Env) -> list[Figure]:
    figures = []
    full = {"sqlite": FULL} if os.environ.get("BENCH_FULL_SIZE") else {}
    for type, size in (dict.fromkeys(SIZES, QUICK) if env.quick else SIZES | full).items():
        # Parts grow with the database, as in a job that says nothing of them.
        part = part_size(size, None, 1)
        with tempfile.TemporaryDirectory(prefix="paddock-bench-") as folder:
            path = Path(folder) / "large.db"
            (_sqlite if type == "sqlite" else _duckdb)(path, size)
            env.say(f"{type}: {path.stat().st_size / 1e6:,.0f} MB, parts of {part / 1e6:.1f} MB")
            told = await _measured(type, path, Path(folder) / "store", part)
        limit = LIMIT_MB + 2 * part / 2**20
        over = told["peak"] - told["idle"]
        figures += [
            at_most(f"{type}: peak over idle", [over], round(limit), "MiB", note=f"{size / 1e9:.1f} GB"),
            shown(f"{type}: idle", [told["idle"]], "MiB"),
        ]
    return figures


async def _measured(type: str, path: Path, folder: Path, part: int) -> dict[str, float]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", CHILD, type, str(path), str(folder), str(part),
        cwd=ROOT, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    said, _ = await process.communicate()
    if process.returncode:
        raise RuntimeError(f"The dump of {type} ended with {process.returncode}.")
    told: dict[str, float] = json.loads(said)
    return told


def _sqlite(path: Path, size: int) -> None:
    database = apsw.Connection(str(path))
    database.execute("PRAGMA journal_mode = wal; PRAGMA synchronous = off")
    database.execute("CREATE TABLE narrow (id INTEGER PRIMARY KEY, a INT, b REAL, c TEXT)")
    database.execute("CREATE TABLE large (id INTEGER PRIMARY KEY, name TEXT, content BLOB)")
    chance = random.Random(26)
    while path.stat().st_size < size:
        with database:
            database.execute(
                "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 100000) "
                "INSERT INTO narrow(a, b, c) SELECT random(), random() / 7.0, 'some text ' || i FROM n"
            )
            for _ in range(8):
                database.execute(
                    "INSERT INTO large(name, content) VALUES (?, randomblob(?))",
                    ("x" * chance.randrange(100_000), chance.choice((64 << 10, 1 << 20, 8 << 20))),
                )
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    database.close()


def _duckdb(path: Path, size: int) -> None:
    with duckdb.connect(str(path)) as database:
        database.execute("SET threads = 1; SET enable_progress_bar = false")
        database.execute("CREATE TABLE narrow AS SELECT n AS id, hash(n) AS a, n / 7.0 AS b FROM range(3000000) t(n)")
        database.execute("CREATE TABLE large (id BIGINT, content BLOB)")
        chance = random.Random(26)
        for number in range(size // (4 << 20)):
            content = chance.randbytes(chance.choice((64 << 10, 1 << 20, 8 << 20)))
            database.execute("INSERT INTO large VALUES (?, ?)", [number, content])
