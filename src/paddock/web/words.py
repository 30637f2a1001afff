"""Times, durations, numbers and states as a person reads them: the filters of the templates.

`FILTERS` is what the templates know. Each takes None and answers with an empty text, so that a template need not ask.
"""

import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import orjson
from markupsafe import Markup, escape

from paddock.api.pagination import encode

TIME = re.compile(r"(\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,6})?(?:Z|\+00:00))")
UNITS = ((86_400, "d"), (3_600, "h"), (60, "min"))

# What the status of a job is called in front of people.
STATUS_WORDS: Mapping[str, str] = {"claimed": "running", "submitted": "waiting outside"}


def moment(value: datetime | str | None) -> datetime | None:
    if isinstance(value, str):
        return datetime.fromisoformat(value) if value else None
    return value


def exact(at: datetime | str | None) -> str:
    found = moment(at)
    return "" if found is None else found.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def machine(at: datetime | str | None) -> str:
    """For the `datetime` of a <time>, which scripts read."""
    found = moment(at)
    return "" if found is None else found.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def ago(at: datetime | str | None) -> str:
    """'3 min ago', 'in 20 s'. times.js says it in the same words."""
    found = moment(at)
    if found is None:
        return ""
    seconds = (datetime.now(UTC) - found).total_seconds()
    if int(seconds) == 0:
        return "now"
    return f"{_rough(seconds)} ago" if seconds > 0 else f"in {_rough(-seconds, 0.5)}"


def _rough(seconds: float, more: float = 0) -> str:
    """What is to come is rounded: what was asked to be kept for 7 d ends 'in 7 d', and not a moment later in 6."""
    for size, unit in UNITS:
        if seconds >= size:
            return f"{int(seconds / size + more)} {unit}"
    return f"{int(seconds)} s"


def duration(value: float | timedelta | None) -> str:
    """Two units at most: 12 ms, 0.4 s, 12 s, 3 min 5 s, 2 h 5 min, 4 d 3 h."""
    if value is None:
        return ""
    seconds = value.total_seconds() if isinstance(value, timedelta) else float(value)
    if seconds <= 0:
        return "0 s"
    if seconds < 0.0995:
        return f"{max(1, round(seconds * 1000))} ms"
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    seconds = round(seconds)
    sizes = (*UNITS, (1, "s"))
    for place, (size, unit) in enumerate(UNITS):
        if seconds >= size:
            whole, rest = divmod(seconds, size)
            smaller, smaller_unit = sizes[place + 1]
            return f"{whole} {unit} {rest // smaller} {smaller_unit}" if rest >= smaller else f"{whole} {unit}"
    return f"{seconds} s"


def number(value: float | None) -> str:
    """1,284,110 and 0.25: as many digits as say something."""
    if value is None:
        return ""
    if isinstance(value, int) or value == int(value):
        return f"{int(value):,}"
    if 0 < value < 0.005:
        return "<0.01"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:,.1f}" if abs(value) >= 10 else f"{value:.2f}"


def size(count: float | None) -> str:
    if count is None:
        return ""
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if abs(count) < 1000 or unit == "TB":
            break
        count /= 1000
    return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"


def percent(share: float | None) -> str:
    """0.034 -> 3.4 %."""
    if share is None:
        return ""
    return f"{share * 100:.0f} %" if share >= 0.1 or share == 0 else f"{share * 100:.1f} %"


def plural(count: float, one: str, many: str | None = None) -> str:
    """'1 job', '3 jobs', 'no jobs'."""
    words = one if count == 1 else many or f"{one}s"
    return f"{'no' if count == 0 else number(count)} {words}"


def listed(words: Any, last: str = "and") -> str:
    """'a, b and c'."""
    found = [str(word) for word in words]
    return f"{', '.join(found[:-1])} {last} {found[-1]}" if len(found) > 1 else "".join(found)


def status_word(status: str) -> str:
    return STATUS_WORDS.get(status, status)


def short_id(id: object) -> str:
    """Ids of one minute begin alike: both ends, or two jobs of a list look the same."""
    text = str(id)
    return f"{text[:8]}…{text[-4:]}" if len(text) > 16 else text


def prose(text: str | None) -> Markup:
    """A sentence as `paddock why` and our hints write them: `commands` between ticks, and times as times.js shows them."""
    parts = (text or "").split("`")
    if len(parts) % 2 == 0:
        parts = [text or ""]
    return Markup("").join(
        Markup("<code>{}</code>").format(part) if place % 2 else _timed(part) for place, part in enumerate(parts)
    )


def _timed(text: str) -> Markup:
    parts = TIME.split(text)
    drawn = Markup('<time datetime="{}" data-time="exact">{}</time>')
    return Markup("").join(
        drawn.format(machine(part), exact(part)) if place % 2 and _exists(part) else escape(part)
        for place, part in enumerate(parts)
    )


def with_plain_times(text: str | None) -> str:
    """The same where no markup may stand: a title, an aria-label."""
    return TIME.sub(lambda found: exact(found[1]) if _exists(found[1]) else found[1], text or "")


def _exists(time: str) -> bool:
    """Whoever wrote the text may have written of the 30th of February."""
    try:
        return moment(time) is not None
    except (ValueError, OverflowError):
        return False


def wall(at: datetime | None, zone: str) -> str:
    """The wall clock of a zone: 'Mon 2026-11-16 02:30 CET'."""
    return "" if at is None else f"{at.astimezone(ZoneInfo(zone)):%a %Y-%m-%d %H:%M:%S %Z}".replace(":00 ", " ", 1)


def right(head: str) -> tuple[str, str]:
    """The head of a column of numbers, for ui.table."""
    return head, "right"


def pretty(value: Any) -> str:
    return orjson.dumps(orjson.loads(encode(value)), option=orjson.OPT_INDENT_2).decode()


FILTERS: Mapping[str, Callable[..., Any]] = {
    "ago": ago,
    "duration": duration,
    "exact": exact,
    "listed": listed,
    "machine": machine,
    "number": number,
    "percent": percent,
    "plural": plural,
    "pretty": pretty,
    "prose": prose,
    "right": right,
    "short_id": short_id,
    "size": size,
    "status_word": status_word,
    "wall": wall,
    "with_plain_times": with_plain_times,
}
