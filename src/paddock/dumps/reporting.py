"""What people see of a dump while it is made."""

import time

from paddock.dumps.composing import Composer, Position, stated
from paddock.dumps.model import DumpPayload
from paddock.jobs.model import JsonObject
from paddock.jobs.turn import Turn

REPORT_EVERY = 0.5
# What the copy of a file counts for, in percent of the whole.
COPYING = 20.0


def risen(turn: Turn[DumpPayload], percent: float) -> float:
    """To be saved as `percent`. Only what is saved is told, and it never falls: not after a kill, and not for a new copy
    or a new draft, which begin anew."""
    return max(percent_of(turn), min(99.9, round(percent, 1)))


def percent_of(turn: Turn[DumpPayload]) -> float:
    return float(turn.saved.get("percent", 0.0))


class Reporter:
    """What people see, now and then; and where the file is."""

    def __init__(self, turn: Turn[DumpPayload], composer: Composer) -> None:
        self._turn, self._composer = turn, composer
        self._reported = -REPORT_EVERY
        self._began: tuple[float, float] | None = None
        self.at, self._size = composer.first, 0

    def __call__(self, at: Position, size: int) -> None:
        self.at, self._size = at, size
        if time.monotonic() - self._reported >= REPORT_EVERY:
            self.tell("dumping")

    @property
    def percent(self) -> float:
        """Of the whole, the copy included."""
        before = COPYING if "copy" in self._turn.saved else 0.0
        written = self._composer.progress(self.at).get("percent", 0.0)
        return risen(self._turn, before + (100 - before) * written / 100)

    def tell(self, phase: str) -> None:
        self._reported = time.monotonic()
        progress = self._composer.progress(self.at)
        self._turn.report(
            phase=phase,
            **{**progress, "percent": percent_of(self._turn)},
            bytes=self._size,
            point_in_time=stated(self._composer.frozen.point_in_time),
            restarts=self._turn.saved.get("restarts", 0),
            **self._left(self._reported, progress.get("percent")),
        )

    def _left(self, now: float, percent: float | None) -> JsonObject:
        """By how fast it went in this turn."""
        if percent is None:
            return {}
        if self._began is None:
            self._began = (now, percent)
        seconds, share = now - self._began[0], percent - self._began[1]
        return {"eta_seconds": round((100 - percent) / share * seconds)} if share > 0 else {}
