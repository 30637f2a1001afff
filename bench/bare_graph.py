"""What a person would write instead of an instance: `python -m bench.bare_graph STEP DATABASE ...` prints its figures as JSON.

load: makes the two tables, copies the files with the engine's own COPY, checkpoints. ask: 1-hop queries in this process.
frame: the whole answer as pandas. rank: PageRank on arrays in memory. open: opens the database and answers once.
"""

from __future__ import annotations

import json
import resource
import statistics
import sys
import time
import warnings
from pathlib import Path
from typing import Any

HOP = "MATCH (a:Thing)-[:TO]->(b:Thing) WHERE a.id = $id RETURN b.id"
WIDE = "MATCH (a:Thing) RETURN a.id, a.name, a.score, a.born, a.flag LIMIT {rows}"


def open_database(path: str, threads: int, pool_bytes: int, *, read_only: bool = True) -> tuple[Any, Any]:
    warnings.simplefilter("ignore", DeprecationWarning)
    import ladybug

    database = ladybug.Database(
        path, buffer_pool_size=pool_bytes, max_num_threads=threads, read_only=read_only, max_db_size=1 << 36
    )
    return database, ladybug.Connection(database)


def load(path: str, threads: int, pool_bytes: int, files: dict[str, list[str]]) -> None:
    database, connection = open_database(path, threads, pool_bytes, read_only=False)
    connection.execute(
        "CREATE NODE TABLE Thing(id INT64, name STRING, score DOUBLE, born DATE, flag BOOL, PRIMARY KEY(id))"
    )
    connection.execute("CREATE REL TABLE TO(FROM Thing TO Thing)")
    for table, names in files.items():
        connection.execute(f"COPY {table} FROM [{', '.join(map(repr, names))}] (FILE_FORMAT='parquet')")
    connection.execute("CHECKPOINT")
    connection.close()
    database.close()


def ask(connection: Any, rounds: int) -> dict[str, float]:
    samples = []
    for number in range(rounds + 20):
        started = time.perf_counter()
        connection.execute(HOP, {"id": number}).get_all()
        if number >= 20:
            samples.append(1e3 * (time.perf_counter() - started))
    return {"p50_ms": statistics.median(samples)}


def frame(connection: Any, rows: int) -> dict[str, float]:
    started = time.perf_counter()
    found = connection.execute(WIDE.format(rows=rows)).get_as_arrow(100_000).to_pandas()
    return {"seconds": time.perf_counter() - started, "rows": len(found)}


def rank(files: dict[str, list[str]], nodes: int, tolerance: float) -> dict[str, float]:
    """Power iteration on a sparse matrix."""
    import numpy as np
    import pyarrow.parquet as pq
    from scipy import sparse

    edges = pq.read_table(files["TO"])
    sources, targets = (edges.column(place).to_numpy() for place in (0, 1))
    began = _cpu()
    matrix = sparse.csr_matrix((np.ones(len(sources)), (targets, sources)), shape=(nodes, nodes))
    degree = np.bincount(sources, minlength=nodes).astype(float)
    ranks = np.full(nodes, 1 / nodes)
    for _ in range(100):
        share = np.divide(ranks, degree, out=np.zeros(nodes), where=degree > 0)
        dangling = ranks[degree == 0].sum() / nodes
        following = 0.15 / nodes + 0.85 * (matrix @ share + dangling)
        moved = np.abs(following - ranks).sum()
        ranks = following
        if moved < tolerance:
            break
    return {"cpu_seconds": _cpu() - began}


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def main() -> None:
    asked: dict[str, Any] = json.loads(sys.argv[1])
    step, path, threads, pool = asked["step"], asked["database"], asked["threads"], asked["pool_bytes"]
    began, found = time.perf_counter(), {}
    if step == "load":
        load(path, threads, pool, asked["files"])
        found["bytes"] = float(Path(path).stat().st_size)
    elif step == "rank":
        found = rank(asked["files"], asked["nodes"], asked["tolerance"])
    else:
        _, connection = open_database(path, threads, pool)
        if step == "ask":
            found = ask(connection, asked["rounds"])
        elif step == "frame":
            found = frame(connection, asked["rows"])
        else:
            connection.execute("RETURN 1").get_all()
    sys.stdout.write(json.dumps({"wall_seconds": time.perf_counter() - began, "all_cpu_seconds": _cpu(), **found}))


if __name__ == "__main__":
    main()
