"""What doctor makes of what a cluster says of itself: each a sentence, and what is not as it should be with something to do."""

import dataclasses
import os
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import pytest

from paddock.cluster import examining
from paddock.doctor.findings import Finding
from paddock.jobs.core import Core
from paddock.jobs.figures import overviews
from paddock.runtimes.kubernetes.access import Access
from paddock.runtimes.kubernetes.client import Kubernetes
from tests.conftest import DatabaseClock
from tests.playing import submit

NOW = datetime(2026, 11, 18, 12, tzinfo=UTC)


def level(findings: Sequence[Finding], text: str) -> str:
    [found] = findings
    assert text in found.message
    assert found.level == "ok" or found.what_to_do
    return found.level


@pytest.mark.parametrize(
    ("major", "minor", "expected"), [("1", "36", "ok"), ("1", "33+", "ok"), ("1", "32", "warning"), ("", "", "warning")]
)
def test_the_version(major: str, minor: str, expected: str) -> None:
    told = {"gitVersion": "v1.x", "major": major, "minor": minor}
    assert level([examining._version(told, "https://here")], "https://here") == expected


@pytest.mark.parametrize(
    ("labels", "expected", "text"),
    [
        ({examining.LEVEL: "restricted"}, "ok", "enforces Pod Security restricted"),
        ({examining.LEVEL: "baseline"}, "warning", "enforces Pod Security baseline"),
        ({}, "warning", "of no level"),
    ],
)
def test_pod_security(labels: dict[str, str], expected: str, text: str) -> None:
    assert level([examining._security({"metadata": {"labels": labels}}, "graphs")], text) == expected


def quota(hard: dict[str, str], used: dict[str, str]) -> dict[str, Any]:
    return {"status": {"hard": hard, "used": used}}


@pytest.mark.parametrize(
    ("quotas", "expected", "text"),
    [
        ([], "ok", "No quota bounds graphs"),
        ([quota({"secrets": "3"}, {})], "ok", "No quota bounds graphs"),
        ([quota({"requests.memory": "10Gi", "pods": "50"}, {"requests.memory": "3Gi"})], "ok", "room for 7 more"),
        ([quota({"limits.cpu": "2500m"}, {"limits.cpu": "500m"}), quota({"pods": "9"}, {})], "ok", "room for 2 more"),
        ([quota({"count/pods": "5"}, {"count/pods": "5"})], "warning", "no room for another"),
        ([quota({"pods": "5"}, {"pods": "7"})], "warning", "no room for another"),
    ],
)
def test_the_room_of_the_quotas(quotas: list[dict[str, Any]], expected: str, text: str) -> None:
    assert level(list(examining._room(quotas, "graphs")), text) == expected


@pytest.mark.parametrize(("ahead", "expected"), [(0, "ok"), (10, "ok"), (-11, "warning"), (11, "warning")])
def test_the_clock(ahead: int, expected: str) -> None:
    there = format_datetime(datetime.fromtimestamp(NOW.timestamp() + ahead, UTC), usegmt=True)
    assert level([examining._clock(there, NOW)], "clock") == expected


def test_a_clock_that_is_not_told() -> None:
    assert level([examining._clock(None, NOW)], "does not say what time it is") == "warning"


@pytest.mark.parametrize(("hours", "expected"), [(1, "ok"), (3, "warning"), (None, "broken")])
def test_the_age_of_the_token(tmp_path: Path, hours: int | None, expected: str) -> None:
    file = tmp_path / "token"
    if hours is not None:
        file.write_text("x")
        at = time.time() - hours * 3600
        os.utime(file, (at, at))
    access = dataclasses.replace(Access("https://here", None, "here"), token_file=file)
    assert level(list(examining._token(Kubernetes(access))), "token") == expected
    assert list(examining._token(Kubernetes(dataclasses.replace(access, token_file=None)))) == []


async def test_the_scaler_against_the_workers_that_came_of_it(core: Core, clock: DatabaseClock) -> None:
    assert [finding async for finding in examining._scaler(core)] == []
    await overviews.declare_scaled(core.db, ["plain"])
    await submit(core)
    assert (
        level([one async for one in examining._scaler(core)], "A scaler is told 1 (1 for one job each) for plain")
        == "ok"
    )
    await clock.advance(minutes=2)
    assert level([one async for one in examining._scaler(core)], "brought no worker for 2 min") == "warning"
