"""What a sentence is made of: text, and parts that a page shows in a way of its own. A terminal shows each as its text."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal


@dataclass(frozen=True)
class Since:
    """How long ago something was, which grows: '3 min'."""

    at: datetime
    text: str


@dataclass(frozen=True)
class Until:
    """How soon something will be: 'in 3 min'."""

    at: datetime
    text: str


@dataclass(frozen=True)
class Quote:
    """The message of an error: whoever raised it wrote it, and it may be long."""

    text: str


@dataclass(frozen=True)
class Place:
    """What a terminal is told to type and a page has a place for, or what a page says elsewhere."""

    name: Literal["run_now", "cancel", "retry", "retried", "log", "watch", "traceback", "ordered"]
    text: str


Part = str | Since | Until | Quote | Place
Words = tuple[Part, ...]


def plain(words: Iterable[Part]) -> str:
    return "".join(part if isinstance(part, str) else part.text for part in words)


def since(at: datetime, now: datetime) -> Since:
    return Since(at, span(now - at))


def until(at: datetime, now: datetime) -> Until:
    return Until(at, f"in {span(at - now)}")


def moment(value: object) -> datetime | None:
    if isinstance(value, datetime):
        return value
    try:
        return datetime.fromisoformat(value) if isinstance(value, str) and value else None
    except ValueError:
        return None  # infinity


def span(length: timedelta) -> str:
    seconds = max(0.0, length.total_seconds())
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.0f} h" if seconds < 172_800 else f"{seconds / 86_400:.0f} d"


def times(n: int) -> str:
    return {1: "once", 2: "twice"}.get(n, f"{n} times")


def s(n: int) -> str:
    return "" if n == 1 else "s"
