"""A PostgreSQL database to SQL and CSV: our process with its pg_dump, and our COPY, against pg_dump alone, to /dev/null.

CPU, in turn. For SQL of the clients (ours and its pg_dump together against pg_dump), for CSV of client and backend on
both sides: a COPY as CSV is more work for the server than pg_dump's.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import statistics
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import asyncpg
import psutil

from bench.environment import Env, tree_cpu
from bench.figures import Figure, at_most, shown
from bench.process import ROOT
from paddock.db.embedded import embedded_postgres
from paddock.dumps.postgres.programs import find

ROWS = 2_000_000
QUICK_ROWS = 100_000
SQL_GOAL = 1.2
CSV_GOAL = 1.5
TABLE = """
CREATE TABLE orders AS SELECT
    n AS id, n::int8 * 7919 % 1000000 AS customer, (n % 100000) / 100.0::numeric(12, 2) AS price, n / 7.0::float8 AS share,
    CASE n % 4 WHEN 0 THEN NULL ELSE 'a note on order ' || n END AS note,
    timestamptz '2026-01-01' + n * interval '1 second' AS at, n % 3 = 0 AS shipped
FROM generate_series(1, $rows) n
"""


@dataclass(frozen=True)
class Cost:
    client: float
    backend: float


async def run(env: Env) -> list[Figure]:
    with tempfile.TemporaryDirectory(prefix="paddock-bench-") as folder:
        os.chmod(folder, 0o755)
        with socket.socket() as listening:
            listening.bind(("127.0.0.1", 0))
            port = listening.getsockname()[1]
        settings = {"listen_addresses": "127.0.0.1", "port": str(port), "fsync": "off"}
        async with embedded_postgres(Path(folder) / "data", settings=settings) as server:
            connection = await asyncpg.connect(server.dsn)
            await connection.execute(TABLE.replace("$rows", str(QUICK_ROWS if env.quick else ROWS)))
            await connection.execute("CREATE ROLE reader LOGIN PASSWORD 'bench'; GRANT SELECT ON orders TO reader")
            await connection.execute("VACUUM (FREEZE, ANALYZE) orders")
            major = connection.get_server_version().major
            await connection.close()
            program = await find(None, major)
            url = f"postgresql://reader@127.0.0.1:{port}/paddock"
            return await _rounds(env, url, str(program.path), program.version, psutil.Process(server.pid))


async def _rounds(env: Env, url: str, pg_dump: str, version: str, server: psutil.Process) -> list[Figure]:
    ours = [sys.executable, "-m", "bench.dump_contender", url]
    # Under a parent of the same sort, so that the start of Python is in neither.
    commands = {
        "pg_dump": [sys.executable, "-m", "bench.dump_contender", "--alone", pg_dump, url],
        "sql": [*ours, "sql"],
        "csv": [*ours, "csv"],
        "json": [*ours, "json"],
    }
    costs: dict[str, list[Cost]] = {name: [] for name in commands}
    for _ in range(2 if env.quick else 5):
        for name, command in commands.items():
            costs[name].append(await _cost(command, server))
        env.say(
            ", ".join(f"{name} {found[-1].client:.2f} + {found[-1].backend:.2f} s" for name, found in costs.items())
        )
    return _figures(costs, version)


async def _cost(command: Sequence[str], server: psutil.Process) -> Cost:
    before = tree_cpu(server)
    process = await asyncio.create_subprocess_exec(
        *command, cwd=ROOT, env={**os.environ, "PGPASSWORD": "bench"}, stdout=asyncio.subprocess.PIPE
    )
    said, _ = await process.communicate()
    if process.returncode:
        raise RuntimeError(f"{command[-1]} ended with {process.returncode}.")
    return Cost(json.loads(said)["cpu"], tree_cpu(server) - before)


def _figures(costs: Mapping[str, Sequence[Cost]], version: str) -> list[Figure]:
    alone = costs["pg_dump"]
    note = f"pg_dump {version}"

    def whole(name: str) -> list[float]:
        return [
            (ours.client + ours.backend) / (theirs.client + theirs.backend)
            for ours, theirs in zip(costs[name], alone, strict=True)
        ]

    clients = [ours.client / theirs.client for ours, theirs in zip(costs["sql"], alone, strict=True)]
    figures = [
        at_most("SQL: CPU of clients, ours with its pg_dump / pg_dump", clients, SQL_GOAL, note=note),
        at_most("CSV: CPU of client and backend, ours / pg_dump", whole("csv"), CSV_GOAL, note=note),
        shown("JSON: CPU of client and backend, ours / pg_dump", whole("json"), "x", note=note),
    ]
    for name, found in costs.items():
        figures.append(
            shown(
                f"{name}: CPU of the client",
                [cost.client for cost in found],
                "s",
                note=f"backend {statistics.median(cost.backend for cost in found):.2f} s",
            )
        )
    return figures
