"""A PostgreSQL table to Parquet: ours against psycopg's rows, ADBC and connectorx. CPU of the exporting process, each
contender in a process of its own, in turn; the server's CPU is shown beside it."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import asyncpg
import psutil
import pyarrow.parquet as pq

from bench.environment import Env, tree_cpu
from bench.figures import Figure, at_least, shown
from bench.postgres_contenders import CONTENDERS, PASSWORD_VARIABLE
from bench.process import ROOT
from paddock.db.embedded import embedded_postgres

ROWS = 800_000
QUICK_ROWS = 50_000
GOALS = {"psycopg": 2.2, "adbc": 0.95, "connectorx": 0.75}
PASSWORD = "bench"

TABLE = """
CREATE TABLE orders AS SELECT
    6000000000 + n AS order_id,
    (hashint8(n)::int8 + 2147483648) % 10000000 AS customer_id,
    n % 50 AS quantity,
    ((n * 7919::int8) % 10000000 / 100.0)::numeric(12,2) AS price,
    round(((n * 31) % 1000 / 7.0)::numeric, 6)::float8 AS discount,
    n % 3 = 0 AS returned,
    (ARRAY['open', 'packed', 'shipped', 'returned', NULL])[1 + n % 5] AS status,
    date '1992-01-01' + n % 12000 AS shipped,
    timestamp '1992-01-01' + make_interval(secs => n * 1000.123456) AS changed,
    CASE n % 40 WHEN 0 THEN NULL WHEN 1 THEN 'said "no", two' || chr(10) || 'lines' WHEN 2 THEN ''
         ELSE substr('carefully final deposits sleep across the ironic pinto beans über Straße 東京 naïve', 1 + n % 20, 20 + n % 60)
         END AS comment
FROM generate_series(1, $rows) AS n
"""


@dataclass(frozen=True)
class Cost:
    cpu: float
    server: float
    wall: float
    rss: float


async def run(env: Env) -> list[Figure]:
    with tempfile.TemporaryDirectory(prefix="paddock-bench-") as folder:
        Path(folder).chmod(0o755)
        with socket.socket() as listening:
            listening.bind(("127.0.0.1", 0))
            port = listening.getsockname()[1]
        # A server of its own: ours takes no superuser for a login, and the others' drivers want TCP as well.
        settings = {"listen_addresses": "127.0.0.1", "port": str(port), "fsync": "off"}
        async with embedded_postgres(Path(folder) / "data", settings=settings) as server:
            await _fill(server.dsn, QUICK_ROWS if env.quick else ROWS)
            url = f"postgresql://reader@127.0.0.1:{port}/paddock"
            return await _rounds(env, url, psutil.Process(server.pid), Path(folder))


async def _fill(dsn: str, rows: int) -> None:
    connection = await asyncpg.connect(dsn)
    await connection.execute(TABLE.replace("$rows", str(rows)))
    await connection.execute(f"CREATE ROLE reader LOGIN PASSWORD '{PASSWORD}'; GRANT SELECT ON orders TO reader")
    await connection.execute("VACUUM (FREEZE, ANALYZE) orders")
    await connection.close()


async def _rounds(env: Env, url: str, server: psutil.Process, folder: Path) -> list[Figure]:
    costs: dict[str, list[Cost]] = {name: [] for name in CONTENDERS}
    for number in range(2 if env.quick else 7):
        names = list(CONTENDERS) if number % 2 == 0 else ["ours", *reversed(list(CONTENDERS)[1:])]
        for name in names:
            costs[name].append(await _export(name, url, server, folder))
        env.say(", ".join(f"{name} {costs[name][-1].cpu:.2f} s" for name in names))
        if number == 0:
            _equal(folder, names)
    return _figures(costs)


def _equal(folder: Path, names: Sequence[str]) -> None:
    expected = pq.read_table(folder / "psycopg.parquet")
    for name in names:
        if not pq.read_table(folder / f"{name}.parquet").equals(expected):
            raise RuntimeError(f"{name} wrote another table than psycopg.")


async def _export(name: str, url: str, server: psutil.Process, folder: Path) -> Cost:
    environment = {**os.environ, PASSWORD_VARIABLE: PASSWORD, "BENCH_TABLE": str(folder / "ours.parquet")}
    command = [sys.executable, "-m", "bench.postgres_contenders", name, url, str(folder / f"{name}.parquet")]
    before = tree_cpu(server)
    process = await asyncio.create_subprocess_exec(*command, cwd=ROOT, env=environment, stdout=asyncio.subprocess.PIPE)
    said, _ = await process.communicate()
    if process.returncode:
        raise RuntimeError(f"{name} ended with {process.returncode}.")
    return Cost(server=tree_cpu(server) - before, **json.loads(said))


def _figures(costs: Mapping[str, Sequence[Cost]]) -> list[Figure]:
    mine = costs["ours"]

    def ratios(name: str) -> list[float]:
        return [theirs.cpu / ours.cpu for theirs, ours in zip(costs[name], mine, strict=True)]

    figures = [at_least(f"CPU, {name} / ours", ratios(name), goal) for name, goal in GOALS.items()]
    figures += [
        shown("CPU, connectorx with the whole result in memory / ours", ratios("connectorx_whole"), "x"),
        shown(
            "CPU, no decoding at all / ours",
            ratios("limit"),
            "x",
            note="COPY BINARY drained, Parquet written from memory: a native decoder would come near it",
        ),
    ]
    for name, found in costs.items():
        figures += [
            shown(f"{name}: CPU", [cost.cpu for cost in found], "s"),
            shown(f"{name}: server's CPU", [cost.server for cost in found], "s"),
            shown(f"{name}: memory", [cost.rss for cost in found], "MiB"),
        ]
    return figures
