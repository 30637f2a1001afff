"""Everything an explanation looks at, as the API answers it. What the caller may not see (None) is not guessed at."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from paddock.why.words import Quote, Words, moment

Facts = Mapping[str, Any]

# A beat is every 10 s: a report or beat this much older is worth a word.
SILENT = timedelta(seconds=30)


@dataclass(frozen=True)
class Case:
    job: Facts
    timeline: Sequence[Facts]
    kind: Facts | None
    workers: Sequence[Facts] | None
    state: Facts | None
    now: datetime
    # The job that does what this one ordered, where it only orders work.
    ordered: Facts | None = None

    @property
    def name(self) -> str:
        return f"This {self.job['kind']} job" if self.job.get("cleanup_of") is None else "This cleanup"

    def time(self, name: str) -> datetime | None:
        return moment(self.job.get(name))

    @property
    def due_at(self) -> datetime:
        return self.time("due_at") or self.time("visible_at") or self.now

    @property
    def due_in(self) -> timedelta:
        return self.due_at - self.now

    @property
    def offering(self) -> list[Facts] | None:
        """Live workers that take this kind; None when the caller may not see workers."""
        if self.workers is None:
            return None
        return [worker for worker in self.workers if worker.get("live", True) and self.job["kind"] in worker["kinds"]]

    @property
    def error(self) -> Words:
        message = str(self.job.get("error_message") or "").strip()
        code = f" [{self.job['error_code']}]" if self.job.get("error_code") else ""
        end = "" if message.endswith((".", "!", "?")) else "."
        return (Quote(message) if message else "no message", f"{end}{code}")

    def last(self, event: str) -> Facts | None:
        return next((entry for entry in reversed(self.timeline) if entry.get("event") == event), None)


def reason(entry: Facts) -> str:
    error = entry.get("error") or {}
    return str(error.get("message") or entry.get("reason") or error.get("code") or "no reason given").rstrip(".")
