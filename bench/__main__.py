"""`python -m bench [NAME...] [--quick]`: runs benchmarks, prints their tables, keeps their figures."""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Awaitable, Callable
from typing import cast

import uvloop
from rich.console import Console

from bench.environment import Env, environment
from bench.figures import RESULTS_MARKDOWN, Figure, show, store

BENCHMARKS = (
    "throughput",
    "latency",
    "slices",
    "enqueue",
    "beats",
    "queries",
    "finding_jobs",
    "pages",
    "scaling",
    "memory",
    "starts",
    "stale_writer",
    "parquet_size",
    "duckdb_parquet",
    "postgres_parquet",
    "trino_pages",
    "trino_export",
    "many_exports",
    "export_latency",
    "dump_sqlite",
    "dump_postgres",
    "dump_keyset",
    "dump_memory",
    "dump_neighbours",
    "graphs",
    "ingest",
    "ingest_backpressure",
    "background_passes",
    "background_idle",
    "kubernetes_pods",
    "scraping",
    "schema_merging",
    "schema_reading",
    "tables",
)

Benchmark = Callable[[Env], Awaitable[list[Figure]]]


async def run(names: list[str], *, quick: bool) -> bool:
    """Answers whether no goal was missed."""
    console = Console()
    missed = 0
    for name in names:
        benchmark = cast(Benchmark, importlib.import_module(f"bench.{name}").run)
        # A server of its own for each: none inherits another's bloat, and a run of one equals a run of all.
        async with environment(quick=quick, say=lambda line: console.print(f"  {line}", style="dim")) as env:
            figures = await benchmark(env)
            store(name, figures, postgres=env.postgres_version, quick=quick)
        show(console, name, figures)
        missed += sum(figure.met is False for figure in figures)
    console.print(f"Written to {RESULTS_MARKDOWN.parent.name}/{RESULTS_MARKDOWN.name}; goals missed: {missed}.")
    return missed == 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"any of: {', '.join(BENCHMARKS)} (default: all)")
    parser.add_argument("--quick", action="store_true", help="a smoke run: few samples, small tables")
    options = parser.parse_args()
    if unknown := sorted(set(options.names) - set(BENCHMARKS)):
        parser.error(f"There is no benchmark {', '.join(unknown)}. There are: {', '.join(BENCHMARKS)}.")
    reached = uvloop.run(run(options.names or list(BENCHMARKS), quick=options.quick))
    return 0 if reached or options.quick else 1


if __name__ == "__main__":
    sys.exit(main())
