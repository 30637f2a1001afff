"""`paddock stats`: how much ran and failed, and how long it waited, by kind.

The API tells one figure of one kind in steps; here the steps of a span become one number. Counts add up. Times do not:
a span's percentiles cannot be had from those of its steps, which are estimates from histograms themselves. Shown are the
median of the steps' medians and the 95th percentile of their 95th percentiles, each step weighing as many jobs as it
had. The latter is mostly too high, and can be far too low where a few steps were slow throughout and all others had a tail.
"""

import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Annotated, Any

from cyclopts import Parameter

from paddock.amounts import number, span
from paddock.cli.connection import HERE, Connect, Server, open_server
from paddock.cli.errors import NOT_FOUND, CommandFailed, wrong_usage
from paddock.cli.output import Column, Form, Item, Output, dump, field, is_terminal, table, write
from paddock.cli.wording import clock_time, duration, iso

TIMES = {"wait_p50": 0.5, "wait_p95": 0.95, "duration_p50": 0.5, "duration_p95": 0.95}


@dataclass(frozen=True)
class Figures:
    kind: str | None
    completed: int
    failed: int
    per_second: float
    wait_p50: float | None = None
    wait_p95: float | None = None
    duration_p50: float | None = None
    duration_p95: float | None = None


def stats(
    *,
    kind: str | None = None,
    within: Annotated[str, Parameter(name=["--range", "-r"])] = "1h",
    output: Output = "table",
    connect: Connect = HERE,
) -> int:
    """Show by kind how many jobs completed and failed in a span of time, how long they waited and ran, and their errors.

    Parameters
    ----------
    kind:
        Of this kind only.
    within:
        The last minute to seven days: 15m, 1h, 7d.
    """
    try:
        length = iso(duration(within))
    except (ValueError, OverflowError):
        raise wrong_usage(f"'{within}' is no duration: write 15m, 1h or 7d.") from None
    server = open_server(connect)
    errors = series(server, "errors", kind, length)
    every = [figures(server, name, length) for name in _kinds(server, kind)]
    found = {
        "since": errors["points"][0]["at"],
        "range": length,
        "kinds": [asdict(one) for one in every if one.completed or one.failed],
        "total": asdict(figures(server, kind, length)),
        "errors": errors["codes"],
    }
    _show(found, output)
    return 0


def _kinds(server: Server, kind: str | None) -> list[str]:
    known = [str(one["name"]) for one in server.pages("/api/kinds", None) if not one["housekeeping"]]
    if kind is None:
        return known
    if kind not in known:
        raise CommandFailed(
            f"There is no kind '{kind}' to count.", hint=f"There are {', '.join(known)}.", exit_code=NOT_FOUND
        )
    return [kind]


def series(server: Server, metric: str, kind: str | None, length: str) -> Item:
    found: Item = server.get("/api/stats", metric=metric, kind=kind, range=length)
    return found


def figures(server: Server, kind: str | None, length: str) -> Figures:
    """What is known of one kind, or of all together."""
    throughput = series(server, "throughput", kind, length)
    width = duration(throughput["width"]).total_seconds()
    completed = [point["value"] * width for point in throughput["points"]]
    failed = [point["value"] for point in series(server, "failures", kind, length)["points"]]
    ended = [a + b for a, b in zip(completed, failed, strict=True)]
    times = _times(server, kind, length, ended) if any(ended) else {}
    rate = sum(completed) / (width * len(completed))
    return Figures(kind, round(sum(completed)), round(sum(failed)), rate, **times)


def _times(server: Server, kind: str | None, length: str, weights: Sequence[float]) -> dict[str, float | None]:
    known = {}
    for metric, share in TIMES.items():
        points = series(server, metric, kind, length)["points"]
        known[metric] = weighted(
            [
                # A step may have cancelled jobs alone: they waited too, and no figure counts them.
                (point["value"], max(weight, 1))
                for point, weight in zip(points, weights, strict=True)
                if point["value"] is not None
            ],
            share,
        )
    return known


def weighted(values: Sequence[tuple[float, float]], share: float) -> float | None:
    """The least value that this share of the weight does not exceed."""
    wanted = share * sum(weight for _, weight in values)
    passed = 0.0
    for value, weight in sorted(values):
        passed += weight
        if passed >= wanted:
            return value
    return None


def _show(found: dict[str, Any], output: Form) -> None:
    kinds = found["kinds"]
    if output == "name":
        sys.stdout.writelines(f"{one['kind']}\n" for one in kinds)
    elif output != "table":
        dump(found, output)
    elif not kinds:
        sys.stderr.write(f"No job ended since {clock_time(found['since'])} UTC.\n")
    else:
        if is_terminal():
            sys.stdout.write(f"Jobs that ended since {clock_time(found['since'])} UTC\n\n")
        write(table([*kinds, {**found["total"], "kind": "all"}] if len(kinds) > 1 else kinds, COLUMNS))
        if found["errors"]:
            sys.stdout.write("\n")
            write(table(found["errors"], ERRORS))


def shown_rate(per_second: float) -> str:
    for factor, unit in ((1, "s"), (60, "min")):
        if per_second * factor >= 1:
            return f"{per_second * factor:,.1f}/{unit}"
    return f"{per_second * 3600:,.1f}/h"


def _short(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else span(seconds)


def _seconds(name: str, title: str) -> Column:
    return Column(title, lambda one: _short(one[name]), right=True)


COLUMNS: Sequence[Column] = (
    field("kind"),
    Column("completed", lambda one: number(one["completed"]), right=True),
    Column("rate", lambda one: shown_rate(one["per_second"]), right=True),
    Column("failed", lambda one: number(one["failed"]), right=True),
    _seconds("wait_p50", "wait p50"),
    _seconds("wait_p95", "wait p95"),
    _seconds("duration_p50", "run p50"),
    _seconds("duration_p95", "run p95"),
)
ERRORS: Sequence[Column] = (
    field("code", "error"),
    field("kind"),
    Column("failed", lambda error: number(error["n"]), right=True),
    field("last_job"),
)
