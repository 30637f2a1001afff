"""A figure, the file of figures, and the page made from it."""

from __future__ import annotations

import json
import os
import platform
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import psutil
from rich.console import Console
from rich.table import Table

FOLDER = Path(__file__).resolve().parent
RESULTS_JSON = FOLDER / "results.json"
RESULTS_MARKDOWN = FOLDER / "RESULTS.md"
PEERS = (
    "paddock", "pgqueuer", "procrastinate", "asyncpg", "psycopg", "uvloop", "pyarrow", "duckdb", "trino", "connectorx",
    "adbc-driver-postgresql", "pyiceberg",
)  # fmt: skip


@dataclass(frozen=True)
class Figure:
    """One measured value. `goal` is the sentence it is held to, `met` says whether it was; both None when the value
    is only there to be seen. A value of None means that the contender could not be measured yet."""

    name: str
    value: float | None
    unit: str
    goal: str | None = None
    met: bool | None = None
    rounds: tuple[float, ...] = ()
    note: str | None = None


def at_least(name: str, rounds: Sequence[float], goal: float, unit: str = "x", *, note: str | None = None) -> Figure:
    value = statistics.median(rounds)
    return Figure(name, value, unit, f">= {goal:g} {unit}", value >= goal, tuple(rounds), note)


def at_most(name: str, rounds: Sequence[float], goal: float, unit: str = "x", *, note: str | None = None) -> Figure:
    value = statistics.median(rounds)
    return Figure(name, value, unit, f"<= {goal:g} {unit}", value <= goal, tuple(rounds), note)


def shown(name: str, rounds: Sequence[float], unit: str, *, note: str | None = None) -> Figure:
    return Figure(name, statistics.median(rounds), unit, rounds=tuple(rounds), note=note)


def missing(name: str, unit: str, goal: str) -> Figure:
    return Figure(name, None, unit, goal, None, note="not measured yet")


def percentile(samples: Iterable[float], share: float) -> float:
    ordered = sorted(samples)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def versions(postgres: str) -> dict[str, str]:
    found = {"python": platform.python_version(), "postgresql": postgres}
    for package in PEERS:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def machine() -> dict[str, Any]:
    return {
        "cores": os.cpu_count(),
        "memory_gib": round(psutil.virtual_memory().total / 2**30),
        "system": f"{platform.system()} {platform.machine()}",
    }


def store(benchmark: str, figures: list[Figure], *, postgres: str, quick: bool) -> None:
    """Replaces the rows of one benchmark and keeps all others."""
    kept = [row for row in _rows() if row["benchmark"] != benchmark]
    context = {"quick": quick, "machine": machine(), "versions": versions(postgres)}
    new = [{"benchmark": benchmark, **asdict(figure), **context} for figure in figures]
    RESULTS_JSON.write_text(json.dumps(kept + new, indent=1) + "\n")
    RESULTS_MARKDOWN.write_text(page(kept + new))


def _rows() -> list[dict[str, Any]]:
    if not RESULTS_JSON.exists():
        return []
    rows: list[dict[str, Any]] = json.loads(RESULTS_JSON.read_text())
    return rows


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    if value == 0 or abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def _verdict(met: bool | None) -> str:
    return {True: "yes", False: "**no**", None: ""}[met]


def page(rows: list[dict[str, Any]]) -> str:
    lines = [
        "# Benchmark results",
        "",
        "Made by `python -m bench [NAME...]`; a run of one benchmark replaces its rows only. The machine is small and",
        "shared: trust the ratios, which come from interleaved rounds in one run (the value is the median), not the",
        "rates. fsync, full_page_writes and synchronous_commit are on.",
    ]
    for benchmark in sorted({row["benchmark"] for row in rows}):
        mine = [row for row in rows if row["benchmark"] == benchmark]
        context = mine[0]
        quick = " --quick" if context["quick"] else ""
        host = context["machine"]
        packages = ", ".join(f"{name} {number}" for name, number in sorted(context["versions"].items()))
        lines += [
            "",
            f"## {benchmark}",
            "",
            f"`python -m bench {benchmark}{quick}` on {host['cores']} cores, {host['memory_gib']} GiB,"
            f" {host['system']}; {packages}." + (" A quick run: too few samples to hold anyone to." if quick else ""),
            "",
            "| what | value | unit | goal | met | rounds | |",
            "|---|---|---|---|---|---|---|",
        ]
        for row in mine:
            rounds = ", ".join(_number(value) for value in row["rounds"]) if len(row["rounds"]) > 1 else ""
            cells = (row["name"], _number(row["value"]), row["unit"], row["goal"] or "", _verdict(row["met"]), rounds)
            lines.append("| " + " | ".join((*cells, row["note"] or "")) + " |")
    return "\n".join(lines) + "\n"


def table(benchmark: str, figures: list[Figure]) -> Table:
    shown_table = Table(title=benchmark, title_justify="left")
    for column in ("what", "value", "unit", "goal", "met", "note"):
        shown_table.add_column(column, justify="right" if column == "value" else "left")
    colours = {True: "[green]yes[/]", False: "[red]no[/]", None: ""}
    for figure in figures:
        shown_table.add_row(
            figure.name,
            _number(figure.value),
            figure.unit,
            figure.goal or "",
            colours[figure.met],
            figure.note or "",
        )
    return shown_table


def show(console: Console, benchmark: str, figures: list[Figure]) -> None:
    console.print(table(benchmark, figures))
