"""A SQLite database to SQL, JSON and CSV: our renderer as a whole process against the `sqlite3` command, to /dev/null.

CPU of the process and its start, in turn. `narrow` has few columns and many rows, `wide` thirty mixed ones, `blobs` 8 to
64 KiB each. The command's `.dump` loses text after NUL and small floats, its `-csv` cuts floats to 15 digits and its
`-json` writes blobs as broken text; ours does not, and is measured doing it right.

Beside it the whole job: copy, render, parts with their digests, into a folder.
"""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import apsw

from bench.dump_job import dumped
from bench.environment import Env
from bench.figures import Figure, at_least, shown

BYTES = 200 << 20
QUICK_BYTES = 10 << 20
FORMATS = {"sql": ".dump", "json": "-json", "csv": "-csv"}
GOALS = {"sql": 1.5, "json": 1.6, "csv": 1.1}
BLOB_GOAL = 0.8

NARROW = """
INSERT INTO t SELECT i, abs(random()) % 1000000, (abs(random()) % 1000000) / 100.0,
    CASE i % 4 WHEN 0 THEN 'open' WHEN 1 THEN 'shipped' WHEN 2 THEN 'returned' END, 1700000000 + i
FROM n
"""
TABLES: Mapping[str, tuple[str, str]] = {
    "narrow": ("CREATE TABLE t (id INTEGER PRIMARY KEY, customer INT, price REAL, status TEXT, at INT)", NARROW),
    "wide": (
        "CREATE TABLE t (id INTEGER PRIMARY KEY, " + ", ".join(f"c{n}" for n in range(29)) + ")",
        "INSERT INTO t SELECT i, "
        + ", ".join(
            (
                "abs(random()) % 100000",
                "(abs(random()) % 1000000) / 997.0",
                "hex(randomblob(8))",
                "'it''s number ' || i % 1000",
                "NULL",
            )[n % 5]
            for n in range(29)
        )
        + " FROM n",
    ),
    "blobs": (
        "CREATE TABLE t (id INTEGER PRIMARY KEY, name TEXT, content BLOB)",
        "INSERT INTO t SELECT i, 'file ' || i, randomblob(8192 + abs(random()) % 57344) FROM n",
    ),
}


async def run(env: Env) -> list[Figure]:
    command = shutil.which("sqlite3")
    if command is None:
        raise RuntimeError("The peer is missing: install the sqlite3 command (Debian: apt-get install sqlite3).")
    version = subprocess.run([command, "--version"], capture_output=True, text=True, check=True).stdout.split()[0]
    ratios: dict[tuple[str, str], list[tuple[float, float]]] = {}
    jobs: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory(prefix="paddock-bench-") as folder:
        for name in TABLES:
            fill(Path(folder) / f"{name}.db", name, QUICK_BYTES if env.quick else BYTES)
        for _ in range(2 if env.quick else 5):
            for name in TABLES:
                path = Path(folder) / f"{name}.db"
                for format in FORMATS:
                    theirs, ours = _theirs(command, path, format), _ours(path, format)
                    ratios.setdefault((name, format), []).append((theirs, ours))
                    env.say(f"{name} {format}: sqlite3 {theirs:.2f} s, ours {ours:.2f} s")
                jobs.setdefault(name, []).append(await dumped("sqlite", path, "sql", Path(folder) / "store"))
    return _figures(ratios, jobs, version)


def _figures(
    measured: Mapping[tuple[str, str], Sequence[tuple[float, float]]], jobs: Mapping[str, Sequence[float]], version: str
) -> list[Figure]:
    figures = []
    for (name, format), rounds in measured.items():
        what = f"{name}, {format}: CPU, sqlite3 {FORMATS[format]} / ours"
        values = [theirs / ours for theirs, ours in rounds]
        note = f"sqlite3 {version}"
        if name != "blobs":
            figures.append(at_least(what, values, GOALS[format], note=note))
        elif format == "sql":
            figures.append(at_least(what, values, BLOB_GOAL, note=note))
        else:
            figures.append(shown(what, values, "x", note=f"{note}, whose output is not right here"))
    for name, seconds in jobs.items():
        figures.append(shown(f"{name}, sql: whole job, CPU", seconds, "s"))
    for (name, format), rounds in measured.items():
        figures.append(shown(f"{name}, {format}: ours, CPU", [ours for _, ours in rounds], "s"))
    return figures


def fill(path: Path, name: str, size: int) -> None:
    create, insert = TABLES[name]
    database = apsw.Connection(str(path))
    database.execute("PRAGMA journal_mode = wal; PRAGMA synchronous = off")
    database.execute(create)
    step = 200 if name == "blobs" else 20_000
    first = 1
    while path.stat().st_size < size:
        with database:
            database.execute(
                "WITH RECURSIVE n(i) AS (SELECT ?1 UNION ALL SELECT i + 1 FROM n WHERE i < ?1 + ?2 - 1) " + insert,
                (first, step),
            )
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        first += step
    database.close()


def _theirs(command: str, path: Path, format: str) -> float:
    words = (
        [command, str(path), ".dump"] if format == "sql" else [command, FORMATS[format], str(path), "SELECT * FROM t"]
    )
    return _cpu_of(words)


def _ours(path: Path, format: str) -> float:
    return _cpu_of([sys.executable, "-m", "paddock.dumps.sqlite.render", str(path), "--format", format])


def _cpu_of(words: Sequence[str]) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with open(os.devnull, "wb") as nowhere:
        subprocess.run(words, stdout=nowhere, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
