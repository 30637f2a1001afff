"""When a schedule runs next: by interval or by cron, in its own time zone, whatever daylight saving does."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from paddock.jobs.errors import Refused

SHORTEST, LONGEST = timedelta(seconds=1), timedelta(days=366)


def next_time(
    *, every: timedelta | None, cron: str | None, timezone: str, before: datetime | None, now: datetime
) -> datetime:
    """The first time after `now`. Missed ones are left out: whoever is late runs once.

    An interval keeps its phase: `before` is a time at which it was due. Cron runs at the wall clock of its zone: a time
    that the change to summer time leaves out is moved behind the gap, one that comes twice is taken once.
    """
    if every is not None:
        if before is None or before > now:
            return now + every
        return before + every * ((now - before) // every + 1)
    assert cron is not None
    times = CronSim(cron, now.astimezone(ZoneInfo(timezone)))
    for time in times:
        # In the repeated hour cronsim can answer with the first of two equal wall times, which lies behind us.
        if time.astimezone(UTC) > now:
            return time.astimezone(UTC)
    raise StopIteration


def checked(*, every: timedelta | None, cron: str | None, timezone: str, now: datetime) -> datetime:
    """The first run of a new schedule, or a sentence that says why it can have none."""
    if (every is None) == (cron is None):
        raise invalid("every", "A schedule has either an interval (`every`) or a `cron` expression.")
    if every is not None and not SHORTEST <= every <= LONGEST:
        raise invalid("every", "The interval must lie between a second and 366 days.")
    try:
        ZoneInfo(timezone)
    except (KeyError, ValueError, OSError):
        raise invalid("timezone", f"There is no time zone '{timezone[:50]}'; use a name like Europe/Berlin.") from None
    if cron is not None and len(cron) > 200:
        raise invalid("cron", "A cron expression has at most 200 characters.")
    try:
        return next_time(every=every, cron=cron, timezone=timezone, before=None, now=now)
    except CronSimError as problem:
        raise invalid("cron", f"'{cron}' is not a cron expression: {problem}. An example: 30 2 * * 1-5.") from None
    except (StopIteration, RuntimeError, OverflowError):
        raise invalid("cron", f"'{cron}' never comes true.") from None


def upcoming(
    *, every: timedelta | None, cron: str | None, timezone: str, first: datetime, count: int
) -> list[datetime]:
    """The next times of a schedule that is due at `first`; fewer when cron comes true no more."""
    times = [first]
    try:
        while len(times) < count:
            times.append(next_time(every=every, cron=cron, timezone=timezone, before=times[-1], now=times[-1]))
    except (StopIteration, RuntimeError, OverflowError):
        pass
    return times


def invalid(field: str, message: str) -> Refused:
    return Refused("invalid_schedule", message, status=422, details={"fields": [{"field": field, "message": message}]})
