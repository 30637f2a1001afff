"""What the overview of an operator shows, read once for all who look at the same time.

It is the same for everybody, it is asked for every few seconds by every open page, and none of it is younger than
the last pass over the figures: so each reading is remembered for a second, and what is drawn from it for three.
`glances(request)` is the app's one.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, TypeVar

from starlette.requests import Request

from paddock.api import auditing
from paddock.capability import each
from paddock.jobs import reading
from paddock.jobs.core import Core
from paddock.jobs.events import DELIVERY_KIND
from paddock.jobs.figures import alarms, overviews
from paddock.jobs.figures.hanging import Hanging, hanging
from paddock.jobs.figures.overviews import Counts, KindSeen, VersionChange, WorkerSeen
from paddock.jobs.figures.trends import RANGES, ErrorGroup, Trend, Trends, error_groups, progress
from paddock.jobs.schedule_runs import FailedSchedule, failed_schedules
from paddock.web.judging import Clause

REMEMBERED_SECONDS = 1.0
# A job that hangs does so for minutes.
HANGING_SECONDS = 15.0
SCHEDULES_SECONDS = 5.0
HOUR = timedelta(hours=1)
MARKED = ("pause", "resume", "drain_on", "drain_off")
MOST_CHANGES = 20
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Glance:
    now: datetime
    counted_to: datetime | None
    counts: Counts
    kinds: list[KindSeen]
    workers: list[WorkerSeen]
    errors: list[ErrorGroup]
    retried_deliveries: int
    retried_since: datetime | None
    hanging: list[Hanging]
    failed_schedules: list[FailedSchedule]
    dismissed: Mapping[str, datetime]


class Glances:
    def __init__(self, core: Core) -> None:
        self._db = core.db
        self._kinds = core.kinds
        self._trends = Trends(core.db)
        self._kept: dict[str, tuple[float, Any]] = {}
        self._locks: dict[str, asyncio.Lock] = {}

    async def shared(self, key: str, read: Callable[[], Awaitable[T]], seconds: float = REMEMBERED_SECONDS) -> T:
        async with self._locks.setdefault(key, asyncio.Lock()):
            at, found = self._kept.get(key, (float("-inf"), None))
            if time.monotonic() - at >= seconds:
                found = await read()
                self._kept[key] = time.monotonic(), found
            kept: T = found
            return kept

    def forget(self) -> None:
        """Somebody changed what is seen here: they see it at once."""
        self._kept.pop("now", None)

    async def now(self) -> Glance:
        return await self.shared("now", self._now)

    async def errors(self, name: str) -> list[ErrorGroup]:
        return await self.shared(f"errors {name}", lambda: error_groups(self._db, RANGES[name].length))

    async def trend(self, name: str) -> Trend:
        return await self._trends.read(name)

    async def changes(self, name: str, since: datetime) -> list[dict[str, Any]]:
        """Pauses, resumes and drains, newest first."""
        return await self.shared(
            f"changes {name}", lambda: auditing.of_actions(self._db, MARKED, since=since, limit=MOST_CHANGES)
        )

    async def versions(self, name: str, since: datetime) -> list[VersionChange]:
        return await self.shared(f"versions {name}", lambda: overviews.version_changes(self._db, since))

    async def alarms(self) -> list[Clause]:
        """What the capabilities have to say."""
        return await self.shared("alarms", self._alarms)

    async def _alarms(self) -> list[Clause]:
        return [clause for _, clauses in each("alarms") for clause in await clauses(self._db)]

    async def _now(self) -> Glance:
        at, counted_to = await progress(self._db)
        retried, retried_since = await overviews.retried(self._db, DELIVERY_KIND)
        return Glance(
            now=at,
            counted_to=counted_to,
            counts=await reading.counts(self._db),
            kinds=await reading.kinds(self._db),
            workers=await reading.workers(self._db),
            errors=await self.errors("1h"),
            retried_deliveries=retried,
            retried_since=retried_since,
            hanging=await self.shared("hanging", lambda: hanging(self._db), HANGING_SECONDS),
            failed_schedules=await self.shared(
                "schedules", lambda: failed_schedules(self._db, self._kinds), SCHEDULES_SECONDS
            ),
            dismissed=await alarms.dismissed(self._db),
        )


def glances(request: Request) -> Glances:
    state = request.app.state
    found: Glances | None = getattr(state, "glances", None)
    if found is None:
        found = state.glances = Glances(state.plane.core)
    return found
