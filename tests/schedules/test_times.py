"""The next time of a schedule, through every trick of the calendar."""

from datetime import UTC, datetime, timedelta

import pytest

from paddock.jobs.errors import Refused
from paddock.jobs.timing import checked, next_time


def cron(expression: str, timezone: str, now: str) -> str:
    at = next_time(every=None, cron=expression, timezone=timezone, before=None, now=datetime.fromisoformat(now))
    assert at.tzinfo is UTC
    return at.isoformat()


@pytest.mark.parametrize(
    ("expression", "now", "expected"),
    [
        # 02:30 does not exist in Berlin on 29 March 2026: run behind the gap, once.
        ("30 2 * * *", "2026-03-28T12:00:00+00:00", "2026-03-29T01:00:00+00:00"),
        ("30 2 * * *", "2026-03-29T01:00:00+00:00", "2026-03-30T00:30:00+00:00"),
        # 02:30 comes twice on 25 October 2026: run the first time only.
        ("30 2 * * *", "2026-10-24T12:00:00+00:00", "2026-10-25T00:30:00+00:00"),
        ("30 2 * * *", "2026-10-25T00:30:00+00:00", "2026-10-26T01:30:00+00:00"),
        ("30 2 * * *", "2026-10-25T00:45:00+00:00", "2026-10-26T01:30:00+00:00"),
        # Between the two: the wall clock reads 02:15 again, and the run of 02:30 is over.
        ("30 2 * * *", "2026-10-25T01:15:00+00:00", "2026-10-26T01:30:00+00:00"),
        # An hourly schedule runs every hour of both days.
        ("0 * * * *", "2026-10-25T00:30:00+00:00", "2026-10-25T01:00:00+00:00"),
        ("0 * * * *", "2026-10-25T01:00:00+00:00", "2026-10-25T02:00:00+00:00"),
        ("0 * * * *", "2026-03-29T00:59:59+00:00", "2026-03-29T01:00:00+00:00"),
        ("*/20 * * * *", "2026-10-25T00:45:00.5+00:00", "2026-10-25T01:00:00+00:00"),
        ("0 9 29 2 *", "2026-01-01T00:00:00+00:00", "2028-02-29T08:00:00+00:00"),
    ],
)
def test_cron_in_berlin(expression: str, now: str, expected: str) -> None:
    assert cron(expression, "Europe/Berlin", now) == expected


def test_cron_never_answers_a_time_that_is_not_ahead() -> None:
    """A year of minutes around both changes, in zones that change by an hour, by half of one, and the other way round."""
    for timezone in ("Europe/Berlin", "Australia/Lord_Howe", "America/Santiago"):
        for start in ("2026-03-28", "2026-04-04", "2026-09-05", "2026-10-03", "2026-10-24"):
            now = datetime.fromisoformat(f"{start}T00:00:00+00:00")
            for _ in range(48 * 4):
                for expression in ("30 2 * * *", "*/7 * * * *", "15 1,2,3 * * *"):
                    at = next_time(every=None, cron=expression, timezone=timezone, before=None, now=now)
                    assert now < at <= now + timedelta(hours=26)
                now += timedelta(minutes=15)


def test_an_interval_keeps_its_phase_and_makes_up_for_nothing() -> None:
    due, every = datetime(2026, 1, 1, 0, 0, 7, tzinfo=UTC), timedelta(seconds=10)
    for late in (0.0, 0.1, 9.9, 10.0, 3_605.0):
        now = due + timedelta(seconds=late)
        at = next_time(every=every, cron=None, timezone="UTC", before=due, now=now)
        assert now < at <= now + every
        assert (at - due) % every == timedelta(0)


@pytest.mark.parametrize(
    ("every", "cron_text", "timezone", "says"),
    [
        (None, None, "UTC", "either an interval"),
        (timedelta(seconds=10), "* * * * *", "UTC", "either an interval"),
        (timedelta(milliseconds=10), None, "UTC", "between a second"),
        (timedelta(days=400), None, "UTC", "between a second"),
        (None, "61 * * * *", "UTC", "not a cron expression"),
        (None, "* * * *", "UTC", "not a cron expression"),
        (None, "0 0 30 2 *", "UTC", "not a cron expression"),
        (None, "0 0 * 2 MON#5", "Mars/Olympus", "no time zone"),
        (None, "* * * * *", "../../etc/passwd", "no time zone"),
        (None, "* * * * *", "", "no time zone"),
        (None, "*" * 201, "UTC", "at most 200"),
    ],
)
def test_what_cannot_be_kept_is_refused_with_a_sentence(
    every: timedelta | None, cron_text: str | None, timezone: str, says: str
) -> None:
    with pytest.raises(Refused, match=says) as refused:
        checked(every=every, cron=cron_text, timezone=timezone, now=datetime(2026, 1, 1, tzinfo=UTC))
    assert refused.value.status == 422
