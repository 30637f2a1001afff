"""Instances against a script with the same graph engine: loads, starts, 1-hop queries, answers as data frames, PageRank, what a
killed engine costs, what an idle instance holds. The graph is made by DuckDB; the script loads the very files of its snapshot.

CPU is that of the control plane and all below it: the instance's server and its children, those that have ended too.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from bench.bare_graph import HOP, WIDE
from bench.environment import Env
from bench.figures import Figure, at_most, percentile, shown
from bench.process import ROOT
from paddock.client import Client, PaddockError
from tests.graphs.running import most_resident_bytes
from tests.processes.running import Up, data_folder, running_up, wait_for

NODES = (
    "SELECT i::BIGINT AS id, 'thing ' || i AS name, (i * 7 % 1000)::DOUBLE AS score,"
    " DATE '2026-01-01' + (i % 365)::INT AS born, i % 2 = 0 AS flag FROM range({nodes}) t(i)"
)
EDGES = (
    "SELECT (i * 7919 % {nodes})::BIGINT AS source, (i * 104729 // 3 % {nodes})::BIGINT AS target"
    " FROM range({edges}) t(i)"
)
CLIENTS = 100
# Of PageRank, for both: the sum of what all nodes still move.
TOLERANCE = 1e-6


@dataclass
class Graph:
    up: Up
    client: Client
    nodes: int
    snapshot: dict[str, Any]
    files: dict[str, list[str]]

    def start(self) -> tuple[dict[str, Any], float]:
        """An instance of the snapshot, and the seconds until it runs."""
        began = time.perf_counter()
        made = self.client.instances.create(snapshot=self.snapshot["id"])
        found = self.client.instances.wait_until_running(made, 1_800)
        return found, time.perf_counter() - began

    def server_of(self, instance: dict[str, Any]) -> psutil.Process:
        facts = json.loads((self.up.data / "instances" / instance["id"] / "run.json").read_text())
        return psutil.Process(facts["pid"])

    def bare(self, instance: dict[str, Any], step: str, **more: Any) -> dict[str, float]:
        """The script, with the threads and the buffer pool of this instance."""
        with tempfile.TemporaryDirectory(prefix="bench-graph-") as folder:
            asked = {
                "step": step,
                "database": f"{folder}/graph",
                "threads": instance["cpu_cores"],
                "pool_bytes": instance["memory_gb"] << 29,
                "files": self.files,
                **more,
            }
            command = [sys.executable, "-m", "bench.bare_graph", json.dumps(asked)]
            answer = subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
            found: dict[str, float] = json.loads(answer.stdout)
            return found

    def database_of(self, instance: dict[str, Any]) -> str:
        folder = self.up.data / "instances" / instance["id"]
        return str(next(path for path in (folder / "db").rglob("*") if path.is_file() and path.stat().st_size > 10_000))


@contextmanager
def graph(nodes: int, edges: int) -> Iterator[Graph]:
    with data_folder() as data, running_up(data, "--port", "0") as up, up.client() as client:
        mapping = client.mappings.create(
            "bench",
            [
                {
                    "label": "Thing",
                    "sql": NODES.format(nodes=nodes),
                    "primary_key": {"name": "id", "type": "INT64"},
                    "properties": [
                        {"name": "name", "type": "STRING"},
                        {"name": "score", "type": "DOUBLE"},
                        {"name": "born", "type": "DATE"},
                        {"name": "flag", "type": "BOOL"},
                    ],
                }
            ],
            [
                {
                    "type": "TO",
                    "from_node": "Thing",
                    "to_node": "Thing",
                    "from_key": "source",
                    "to_key": "target",
                    "sql": EDGES.format(nodes=nodes, edges=edges),
                }
            ],
        )
        snapshot = client.snapshots.create_and_wait(mapping, engine="duckdb", timeout=1_800)
        yield Graph(up, client, nodes, snapshot, _files(data))


def _files(data: Path) -> dict[str, list[str]]:
    """The snapshot's own, which the server of this bench keeps in a folder."""
    found: dict[str, list[str]] = {"Thing": [], "TO": []}
    for path in sorted(data.rglob("*.parquet")):
        found["TO" if "edges" in path.parts or "TO" in path.parts else "Thing"].append(str(path))
    return found


async def run(env: Env) -> list[Figure]:
    return await asyncio.to_thread(_run, env)


def _run(env: Env) -> list[Figure]:
    rounds = 1 if env.quick else 3
    nodes, edges = (20_000, 100_000) if env.quick else (1_000_000, 5_000_000)
    figures = []
    with graph(500, 4_000) as small:
        figures += _small(env, small, 3 if env.quick else 9)
    with graph(nodes, edges) as large:
        figures += _loads(env, large, rounds)
        figures += _asked(env, large, rounds)
    return figures


def _small(env: Env, graph: Graph, rounds: int) -> list[Figure]:
    above, restarts, memory = [], [], []
    for _ in range(rounds):
        instance, seconds = graph.start()
        bare = graph.bare(instance, "load")["wall_seconds"]
        above.append(seconds - bare)
        memory.append(_family_memory(graph.server_of(instance)) / 2**20)
        restarts.append(_engine_restart(graph, instance))
        graph.client.instances.terminate(instance)
    env.say(f"{rounds} starts of a small graph")
    return [
        at_most("small snapshot ready to running, above the script's load", above, 1.0, "s"),
        at_most("engine killed to next answer / a bare start that answers once", restarts, 2.0),
        at_most("idle instance: memory of all its processes", memory, 220, "MiB"),
    ]


def _family_memory(server: psutil.Process) -> float:
    """Shared pages as often as they are shared."""
    return float(sum(one.memory_info().rss for one in (server, *server.children(recursive=True))))


def _engine_restart(graph: Graph, instance: dict[str, Any]) -> float:
    connection = graph.client.instances.connect(instance)
    connection.query_scalar("RETURN 1")
    engine = next(one for one in graph.server_of(instance).children() if "children.engine" in " ".join(one.cmdline()))
    engine.kill()
    began = time.perf_counter()

    def answers() -> bool:
        try:
            return bool(connection.query_scalar("RETURN 1") == 1)
        except PaddockError:
            return False

    wait_for("the next engine answers", answers)
    seconds = time.perf_counter() - began
    bare = graph.bare(instance, "open", database=graph.database_of(instance))
    return seconds / bare["wall_seconds"]


def _loads(env: Env, graph: Graph, rounds: int) -> list[Figure]:
    walls, cpus = [], []
    serve = graph.up.child("serve")
    for _ in range(rounds):
        before = _cpu(serve)
        instance, seconds = graph.start()
        ours = _cpu(serve) - before
        bare = graph.bare(instance, "load")
        walls.append(seconds / bare["wall_seconds"])
        cpus.append(ours / bare["all_cpu_seconds"])
        env.say(f"load: {seconds:.1f} s, script {bare['wall_seconds']:.1f} s")
        graph.client.instances.terminate(instance)
    return [
        at_most("load, snapshot ready to running: CPU / that of the script", cpus, 1.15),
        shown("the same, wall", walls, "x"),
    ]


def _asked(env: Env, graph: Graph, rounds: int) -> list[Figure]:
    instance, _ = graph.start()
    connection = graph.client.instances.connect(instance)
    database = graph.database_of(instance)
    rows = min(graph.nodes, 1_000_000)
    hops: list[float] = []
    frames: list[float] = []
    ranks: list[float] = []
    memory: list[float] = []
    serve = graph.up.child("serve")
    for _ in range(rounds):
        samples = []
        for number in range(220):
            began = time.perf_counter()
            connection.query(HOP, {"id": number})
            samples.append(1e3 * (time.perf_counter() - began))
        bare = graph.bare(instance, "ask", database=database, rounds=200)["p50_ms"]
        hops.append(statistics.median(samples[20:]) - bare)

        before, began = _forget_peak(serve), time.perf_counter()
        table = connection.query_arrow(WIDE.format(rows=rows), max_rows=rows)
        found = len(table.to_pandas())
        seconds = time.perf_counter() - began
        if found != rows:
            raise RuntimeError(f"{found} of {rows} rows came.")
        memory.append((most_resident_bytes(serve.pid) - before) / 2**20)
        frames.append(seconds / graph.bare(instance, "frame", database=database, rows=rows)["seconds"])

        cpu = _cpu(serve)
        connection.algo.pagerank(write_property=f"rank_{len(ranks)}", tolerance=TOLERANCE)
        used = _cpu(serve) - cpu
        ranks.append(used / graph.bare(instance, "rank", nodes=graph.nodes, tolerance=TOLERANCE)["cpu_seconds"])
        env.say(f"asked: {hops[-1]:.1f} ms above, frame {frames[-1]:.1f} x, PageRank {ranks[-1]:.1f} x")
    return [
        at_most("1-hop query through the control plane, p50 above the engine in process", hops, 5, "ms"),
        at_most(f"{rows:,} rows x 5 to pandas / in process", frames, 2.5),
        at_most("the same: memory of serve at its peak, above before", memory, 30, "MiB"),
        at_most("PageRank, request to property: CPU / the computation on arrays", ranks, 9),
        *_crowd(env, graph, instance, rounds),
    ]


def _cpu(serve: psutil.Process) -> float:
    """Of the control plane and of all that runs below it, the servers of instances and their children too, those that have ended
    among them: each of those is counted by whoever was told of its end."""
    total = 0.0
    for one in (serve, *serve.children(recursive=True)):
        with suppress(psutil.NoSuchProcess):
            times = one.cpu_times()
            total += times.user + times.system + times.children_user + times.children_system
    return total


def _forget_peak(process: psutil.Process) -> int:
    """What it holds; from here on its peak is counted anew."""
    Path(f"/proc/{process.pid}/clear_refs").write_text("5")
    return int(process.memory_info().rss)


def _crowd(env: Env, graph: Graph, instance: dict[str, Any], rounds: int) -> list[Figure]:
    """The slowest of many clients, while nothing loads and while another instance does, in turn."""
    ratios: list[float] = []
    each = 5 if env.quick else 20
    for _ in range(rounds):
        calm = _p99(graph, instance, each)
        other = graph.client.instances.create(snapshot=graph.snapshot["id"])
        busy = _p99(graph, instance, each)
        status = graph.client.instances.get(other)["status"]
        graph.client.instances.terminate(other)
        if status == "starting" or env.quick:
            ratios.append(busy / calm)
        else:
            env.say(f"100 clients: the other instance was {status} before they were done, and the round does not count")
    if not ratios:
        raise RuntimeError(
            "The other instance was never still loading when the clients were done: take a larger graph."
        )
    return [at_most(f"{CLIENTS} clients while another instance loads: p99 / the same with none", ratios, 3)]


def _p99(graph: Graph, instance: dict[str, Any], each: int) -> float:
    def ask(number: int) -> list[float]:
        samples = []
        with graph.up.client() as client:
            connection = client.instances.connect(instance["id"])
            for turn in range(each):
                began = time.perf_counter()
                try:
                    connection.query(HOP, {"id": number * each + turn})
                except PaddockError as problem:
                    if problem.status != 429:
                        raise
                    continue
                samples.append(time.perf_counter() - began)
        return samples

    with ThreadPoolExecutor(CLIENTS) as pool:
        return percentile([one for many in pool.map(ask, range(CLIENTS)) for one in many], 0.99)
