"""A scrape of the control plane with all its series, and one while its database is away."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from bench.environment import Database, Env
from bench.figures import Figure, percentile
from bench.paddock_processes import Serve, serving
from paddock.db.embedded import embedded_postgres


async def run(env: Env) -> list[Figure]:
    scrapes = 30 if env.quick else 200
    with tempfile.TemporaryDirectory(prefix="bench-", ignore_cleanup_errors=True) as folder:
        Path(folder).chmod(0o755)
        server = embedded_postgres(Path(folder) / "postgres")
        own = await server.__aenter__()
        there = True
        try:
            async with serving(Database("paddock", own.dsn)) as serve:
                with_it = await _scrapes(serve, scrapes)
                await server.__aexit__(None, None, None)
                there = False
                without = await _scrapes(serve, scrapes)
        finally:
            if there:
                await server.__aexit__(None, None, None)
    return [
        _figure("a scrape with all series", with_it, 20),
        _figure("a scrape while the database is away", without, 50),
    ]


async def _scrapes(serve: Serve, count: int) -> list[float]:
    samples = []
    for _ in range(count):
        began = time.perf_counter()
        async with serve.http.get(serve.url + "/metrics") as answer:
            text = await answer.text()
            if answer.status != 200 or "background_job_health_status" not in text:
                raise RuntimeError(f"/metrics answered {answer.status}.")
        samples.append(1e3 * (time.perf_counter() - began))
    return samples


def _figure(name: str, samples: list[float], goal: float) -> Figure:
    slow = percentile(samples, 0.95)
    note = f"p50 {percentile(samples, 0.5):.1f} ms"
    return Figure(f"{name}: p95", slow, "ms", f"< {goal:g} ms", slow < goal, note=note)
