"""What a receiver's answer means, and what it can verify."""

import hashlib
import hmac
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from paddock.jobs.outcomes import Done, PermanentFailure, TransientFailure
from paddock.jobs.webhooks import delivering
from paddock.jobs.webhooks.outbound import HttpAnswer

NOW = datetime(2026, 11, 15, 12, 0, tzinfo=UTC)


def outcome(status: int, **headers: str) -> Any:
    return delivering.meaning(HttpAnswer(status, headers), NOW)


@pytest.mark.parametrize("status", [200, 201, 202, 204, 299])
def test_any_2xx_is_a_delivery(status: int) -> None:
    assert outcome(status) == Done({"status": status})


@pytest.mark.parametrize("status", [408, 425, 429, 500, 502, 503, 504, 599])
def test_what_may_pass_is_tried_again(status: int) -> None:
    assert isinstance(outcome(status), TransientFailure)


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (301, "webhook_redirected"),
        (302, "webhook_redirected"),
        (308, "webhook_redirected"),
        (400, "webhook_refused"),
        (401, "webhook_refused"),
        (404, "webhook_refused"),
        (410, "webhook_gone"),
        (422, "webhook_refused"),
    ],
)
def test_what_will_not_pass_is_not_tried_again(status: int, code: str) -> None:
    failure = outcome(status)
    assert isinstance(failure, PermanentFailure)
    assert failure.error.code == code
    assert str(status) in failure.error.message
    assert failure.error.hint


@pytest.mark.parametrize(
    ("asked", "delay"),
    [
        ("0", timedelta(0)),
        ("120", timedelta(seconds=120)),
        ("3600", timedelta(hours=1)),
        ("86400", timedelta(hours=1)),
        ("9" * 400, timedelta(hours=1)),
        ("Sun, 15 Nov 2026 12:02:00 GMT", timedelta(minutes=2)),
        ("Sun, 15 Nov 2026 12:02:00 -0000", timedelta(minutes=2)),
        ("Sun, 15 Nov 2026 11:00:00 GMT", timedelta(0)),
        ("Mon, 16 Nov 2026 12:00:00 GMT", timedelta(hours=1)),
        ("Mon, 01 Jan 0001 00:00:00 +2359", timedelta(0)),
        ("-5", None),
        ("soon", None),
        ("٣", None),
        ("", None),
    ],
)
def test_a_receiver_may_say_when_within_an_hour(asked: str, delay: timedelta | None) -> None:
    assert outcome(503, **{"Retry-After": asked}).delay == delay


def test_the_signature_covers_the_time_and_every_byte_of_the_body() -> None:
    body = delivering.event_body(
        {
            "id": UUID(int=7),
            "type": "job.completed",
            "subject": "jobs/7",
            "version": 3,
            "at": NOW,
            "data": '{"name": "Müller"}',
        }
    )
    sent = delivering.headers(UUID(int=7), "job.completed", 1_763_208_000, body, "whsec")

    assert body == (
        b'{"id":"00000000-0000-0000-0000-000000000007","type":"job.completed","subject":"jobs/7","version":3,'
        b'"at":"2026-11-15T12:00:00Z","data":{"name": "M\xc3\xbcller"}}'
    )
    expected = hmac.digest(b"whsec", b"1763208000." + body, hashlib.sha256).hex()
    assert sent["Paddock-Signature"] == f"v1={expected}"
    assert sent["Paddock-Timestamp"] == "1763208000"
    assert delivering.signature("whsec", 1_763_208_001, body) != expected
    assert delivering.signature("whsec", 1_763_208_000, body + b" ") != expected
    assert delivering.signature("other", 1_763_208_000, body) != expected
