"""The shape of the figures tables: their buckets in time, and their histograms of run and wait time."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import cache

from paddock.db.pool import Statement, statements

SQL = statements("paddock.jobs.sql", "figures.sql")

# Upper bounds in seconds of the histograms of run and wait time; a last bucket holds what is longer.
BOUNDS = (
    *(0.01, 0.02, 0.05, 0.1, 0.2, 0.5),
    *(1.0, 2.0, 5.0, 10.0, 20.0, 30.0),
    *(60.0, 120.0, 300.0, 600.0, 1200.0, 1800.0),
    *(3600.0, 7200.0, 14400.0, 28800.0, 86400.0),
)
# How long the buckets of each width, in seconds, are kept. They begin at multiples of it since ZERO.
KEPT: Mapping[int, timedelta] = {10: timedelta(hours=1), 60: timedelta(days=1), 600: timedelta(weeks=1)}
ZERO = datetime(2000, 1, 1, tzinfo=UTC)


def filled(name: str) -> Statement:
    return spelled_out(SQL[name])


@cache
def spelled_out(statement: Statement) -> Statement:
    """A statement with its histograms spelled out: one count for each bound, and one beyond the last."""
    places = range(len(BOUNDS) + 1)
    text = statement.sql
    for what in ("run", "wait"):
        counted = ", ".join(f"count(*) FILTER (WHERE {what}_bucket = {place})" for place in places)
        summed = ", ".join(f"sum({what}_histogram[{place + 1}])::bigint" for place in places)
        text = text.replace(f"{{count_{what}}}", f"ARRAY[{counted}]").replace(f"{{sum_{what}}}", f"ARRAY[{summed}]")
    return Statement(statement.name, text, statement.pool)


def percentile(histogram: Sequence[int], share: float) -> float | None:
    """The value below which `share` of the counted lie, by straight lines between the bounds; None: nothing counted."""
    wanted = share * sum(histogram)
    if wanted <= 0:
        return None
    below = 0
    for place, n in enumerate(histogram):
        if n and below + n >= wanted:
            low = BOUNDS[place - 1] if place else 0.0
            high = BOUNDS[place] if place < len(BOUNDS) else low
            return low + (high - low) * (wanted - below) / n
        below += n
    return BOUNDS[-1]
