"""The most memory that a dump takes over an idle worker's runner, with values up to 8 MiB.

A process that has loaded what a runner has, and then dumps a database of narrow rows, of texts and of blobs from 64 KiB
to 8 MiB into a folder. Its memory is looked at ten times or more on the way, for it must not grow, and so are its parts:
of one size but for the last, and no more than an object store takes. BENCH_FULL_SIZE=1: 10 GB of SQLite instead of one.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import statistics
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import apsw
import duckdb

from bench.environment import Env
from bench.figures import Figure, at_most, shown
from bench.process import ROOT
from paddock.dumps.writing import part_size

LIMIT_MB = 128
# What values of 8 MiB may make of it in passing.
FLAT_MB = 24
LEAST_PART, MOST_PARTS = 5 << 20, 10_000
LOOK_EVERY = 1 << 30
SIZES = {"sqlite": 1 << 30, "duckdb": 400 << 20}
QUICK = 60 << 20
FULL = 10 << 30

CHILD = """
import asyncio, json, sys
from pathlib import Path
import paddock.worker.runner, paddock.dumps.running
from bench.dump_job import dumped
from paddock.storage.parts import Parts

def memory(name):
    for line in open("/proc/self/status"):
        if line.startswith(name):
            return int(line.split()[1]) / 1024

type, path, folder, part, every = sys.argv[1:]
sent, seen, send = [], [], Parts.send

async def looked_at(self, key, upload, number, offset, data):
    sent.append(len(data))
    if sum(sent) // int(every) > len(seen):
        seen.append(memory("VmRSS"))
    return await send(self, key, upload, number, offset, data)

Parts.send = looked_at
idle = memory("VmRSS")
asyncio.run(dumped(type, path, "sql", Path(folder), dumps_part_bytes=int(part)))
print(json.dumps({"idle": idle, "peak": memory("VmHWM"), "seen": seen, "sent": sent}))
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
            every = min(LOOK_EVERY, path.stat().st_size // 10)
            told = await _measured(type, path, Path(folder) / "store", part, every)
        _check_parts(told["sent"], part)
        limit = LIMIT_MB + 2 * part / 2**20
        over = told["peak"] - told["idle"]
        half = len(told["seen"]) // 2
        grown = statistics.median(told["seen"][-half:]) - statistics.median(told["seen"][:half])
        on_the_way = ", ".join(f"{seen - told['idle']:.0f}" for seen in told["seen"])
        figures += [
            at_most(f"{type}: peak over idle", [over], round(limit), "MiB", note=f"{size / 1e9:.1f} GB"),
            at_most(
                f"{type}: grown from its first to its second half",
                [grown],
                FLAT_MB,
                "MiB",
                note=f"over idle each {every / 1e9:.2g} GB: {on_the_way}; {len(told['sent']):,} parts of {part / 1e6:.1f} MB",
            ),
            shown(f"{type}: idle", [told["idle"]], "MiB"),
        ]
    return figures


def _check_parts(sent: Sequence[int], part: int) -> None:
    *others, last = sent
    if {*others} != {part} or not 0 < last <= part or part < LEAST_PART or len(sent) > MOST_PARTS:
        raise RuntimeError(f"{len(sent):,} parts of {part:,} bytes are none that a store takes: {sorted({*sent})[:5]}.")


async def _measured(type: str, path: Path, folder: Path, part: int, every: int) -> dict[str, Any]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", CHILD, type, str(path), str(folder), str(part), str(every),
        cwd=ROOT, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    said, _ = await process.communicate()
    if process.returncode:
        raise RuntimeError(f"The dump of {type} ended with {process.returncode}.")
    told: dict[str, Any] = json.loads(said)
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
