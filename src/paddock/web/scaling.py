"""The values of a drawing of time, and its scale: where each band begins and how wide it is, in percent.

What runs is drawn to scale. A wait much longer than all the running is shortened, and says so by a break mark: three days
in the queue would leave nothing of the two seconds that follow. No band is narrower than a finger sees.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Literal

from paddock.web.words import duration

# A wait this much longer than its fair part is shortened to it.
MUCH_LONGER = 4
# The least a band is wide, in percent, and one with a break mark in it.
LEAST_SHARE, LEAST_BROKEN = 1.6, 3.0
# What a band that still grows may grow before it has to be drawn anew.
ROOM = 0.2
LEAST_ROOM = timedelta(seconds=5)
# About what a character takes, and how wide a drawing is on a screen and on a phone, in pixels.
CHARACTER, SCREEN, PHONE = 6.6, 760, 340

BandKind = Literal["wait", "outside", "run", "turns", "many", "after"]
WORKING: frozenset[str] = frozenset({"run", "turns", "many"})


@dataclass(frozen=True, slots=True)
class Band:
    """A stretch of time. `open`: it goes on. `broken`: it is drawn shorter than it was."""

    kind: BandKind
    start: datetime
    end: datetime
    story: str
    label: str = ""
    tone: str = "quiet"
    open: bool = False
    broken: bool = False
    x: float = 0.0
    width: float = 0.0

    @property
    def seconds(self) -> float:
        return max(0.0, (self.end - self.start).total_seconds())

    @property
    def length(self) -> str:
        return duration(self.seconds)

    def fits(self, text: str) -> str:
        """Where a text has room inside: on every screen, on wide ones, or nowhere."""
        needed = len(text) * CHARACTER + 10
        if self.width * PHONE / 100 >= needed:
            return "always"
        return "wide" if self.width * SCREEN / 100 >= needed else ""


@dataclass(frozen=True, slots=True)
class Mark:
    at: datetime
    event: str
    symbol: str
    tone: str
    story: str
    x: float = 0.0
    small: bool = False


@dataclass(frozen=True, slots=True)
class Growth:
    """How the last band grows: percent of the drawing for each second, up to `most`."""

    per_second: float
    most: float


@dataclass(frozen=True, slots=True)
class Drawing:
    bands: Sequence[Band]
    marks: Sequence[Mark]
    start: datetime
    end: datetime
    cleanup: Sequence[Band] = field(default=())
    growth: Growth | None = None

    @property
    def shortened(self) -> bool:
        return any(band.broken for band in self.bands)

    @property
    def kinds(self) -> list[str]:
        return list(dict.fromkeys(band.kind for band in self.bands if band.kind != "after"))


def to_scale(bands: Sequence[Band]) -> tuple[list[Band], Growth | None]:
    """Where each band begins and how wide it is, in percent."""
    seconds = [band.seconds for band in bands]
    last = bands[-1]
    room = max(LEAST_ROOM.total_seconds(), ROOM * last.seconds) if last.open else 0.0
    fair = _fair_wait(bands)
    broken = [
        band.kind not in WORKING and fair is not None and s > MUCH_LONGER * fair
        for band, s in zip(bands, seconds, strict=True)
    ]
    lengths = [fair or 0.0 if is_broken else s for is_broken, s in zip(broken, seconds, strict=True)]
    if broken[-1]:
        room = 0.0  # what is shortened does not grow
    lengths[-1] += room
    shares = _shares(lengths, [LEAST_BROKEN if is_broken else LEAST_SHARE for is_broken in broken])
    placed, x = [], 0.0
    for band, share, is_broken in zip(bands, shares, broken, strict=True):
        placed.append(replace(band, x=x, width=share, broken=is_broken))
        x += share
    if not room:
        return placed, None
    whole = placed[-1].width
    placed[-1] = replace(placed[-1], width=whole * (lengths[-1] - room) / lengths[-1])
    return placed, Growth(whole / lengths[-1], whole)


def _fair_wait(bands: Sequence[Band]) -> float | None:
    """What a shortened wait is drawn as: all of them together as long as all the running. None: nothing ran."""
    working = [band.seconds for band in bands if band.kind in WORKING]
    waits = len(bands) - len(working)
    return max(sum(working), 0.001) / waits if working and waits else None


def _shares(lengths: Sequence[float], least: Sequence[float]) -> list[float]:
    """Percentages in proportion, none below what can still be seen; the larger ones give way."""
    shrunk = min(1.0, 60 / sum(least))
    least = [share * shrunk for share in least]
    small: set[int] = set()
    while True:
        rest = 100 - sum(least[place] for place in small)
        total = sum(length for place, length in enumerate(lengths) if place not in small)
        if total <= 0:
            return [100 / len(lengths)] * len(lengths)
        shares = [least[place] if place in small else rest * length / total for place, length in enumerate(lengths)]
        more = {place for place, share in enumerate(shares) if share < least[place]} - small
        if not more:
            return shares
        small |= more


def place_of(bands: Sequence[Band], at: datetime) -> float:
    """Where a moment lies, in percent."""
    for band in bands:
        if at <= band.end:
            part = (at - band.start).total_seconds() / band.seconds if band.seconds else 1.0
            return band.x + band.width * min(1.0, max(0.0, part))
    return bands[-1].x + bands[-1].width


def placed_on(bands: Sequence[Band], band: Band) -> Band:
    x, end = place_of(bands, band.start), place_of(bands, band.end)
    return replace(band, x=x, width=max(end - x, min(LEAST_SHARE, 100 - x)))
