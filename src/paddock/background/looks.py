"""One pass of reconciliation: what it looks at, what it saw, what it leaves alone and what it leaves to the next."""

from dataclasses import dataclass, field
from datetime import datetime, timedelta

from paddock.background.ticks import MOST_NOTED, Tick
from paddock.jobs.model import JsonObject
from paddock.pass_metrics import pass_metrics
from paddock.runtimes.runtime import Runtime


@dataclass
class Look:
    """One pass."""

    tick: Tick
    runtime: Runtime
    # By the runtime's clock.
    now: datetime
    # What the last pass noted.
    notes: JsonObject
    pods: int = 0
    # Old ones that no instance names, those among them that are beyond what is kept in mind too.
    unnamed: int = 0
    youngest: timedelta | None = None
    # Those of the notes that this pass has looked at again, whatever it found.
    looked_at: set[str] = field(default_factory=set)

    def skip(self, reason: str, **fields: object) -> None:
        self.tick.count(f"skipped_{reason}")
        pass_metrics().reconciliation_skipped(reason).inc()
        self.tick.log.info("reconciliation_skipped", reason=reason, **fields)

    def looks_at(self, *keys: str) -> None:
        self.looked_at.update(key for key in keys if key in self.notes)

    def note(self, key: str, value: object) -> None:
        """For the next pass."""
        if len(self.tick.notes) < MOST_NOTED:
            self.tick.notes[key] = value
