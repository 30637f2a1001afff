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

from paddock import amounts
from paddock.amounts import listed
from paddock.api.pagination import encode

TIME = re.compile(r"(\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,6})?(?:Z|\+00:00))")

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
    for size, unit in amounts.UNITS[:-1]:
        if seconds >= size:
            return f"{int(seconds / size + more)} {unit}"
    return f"{int(seconds)} s"


def duration(value: float | timedelta | None) -> str:
    return "" if value is None else amounts.span(value)


def number(value: float | None) -> str:
    return "" if value is None else amounts.number(value)


def size(count: float | None) -> str:
    return "" if count is None else amounts.size(count)


def percent(share: float | None) -> str:
    """0.034 -> 3.4 %."""
    if share is None:
        return ""
    return f"{share * 100:.0f} %" if share >= 0.1 or share == 0 else f"{share * 100:.1f} %"


def plural(count: float, one: str, many: str | None = None) -> str:
    """'1 job', '3 jobs', 'no jobs'."""
    return f"no {many or f'{one}s'}" if count == 0 else amounts.several(count, one, many)


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
