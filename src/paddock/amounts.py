"""Lengths of time, sizes and counts as people read them: pages, commands and messages say them alike."""

from collections.abc import Iterable
from datetime import timedelta

UNITS = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))


def span(length: float | timedelta) -> str:
    """Two units at most: 12 ms, 0.4 s, 12 s, 3 min 5 s, 2 h 5 min, 4 d 3 h."""
    seconds = length.total_seconds() if isinstance(length, timedelta) else float(length)
    if seconds <= 0:
        return "0 s"
    if seconds < 0.0995:
        return f"{max(1, round(seconds * 1000))} ms"
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    place = next(place for place, (size, _) in enumerate(UNITS) if whole >= size)
    size, unit = UNITS[place]
    count, rest = divmod(whole, size)
    if place + 1 < len(UNITS):
        smaller, smaller_unit = UNITS[place + 1]
        if rest >= smaller:
            return f"{count} {unit} {rest // smaller} {smaller_unit}"
    return f"{count} {unit}"


def size(count: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if abs(count) < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"


def gibibytes(count: int) -> str:
    """`10 GiB`, as the settings count them; less than a tenth of one is told in MiB."""
    if count < 1024**3 // 10:
        return f"{count / 1024**2:,.0f} MiB"
    return f"{count / 1024**3:,.1f}".removesuffix(".0") + " GiB"


def number(value: float) -> str:
    """1,284,110 and 0.25: as many digits as say something."""
    if isinstance(value, int) or value == int(value):
        return f"{int(value):,}"
    if 0 < value < 0.005:
        return "<0.01"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:,.1f}" if abs(value) >= 10 else f"{value:.2f}"


def several(count: float, one: str, many: str | None = None) -> str:
    """'1 job', '3 jobs', '0 jobs'."""
    return f"{number(count)} {one if count == 1 else many or f'{one}s'}"


def listed(words: Iterable[object], last: str = "and") -> str:
    """'a, b and c'."""
    found = [str(word) for word in words]
    return f"{', '.join(found[:-1])} {last} {found[-1]}" if len(found) > 1 else "".join(found)
