"""A Trino that answers 503 for ever: each turn says until when the export is tried, and then it ends."""

import re
from collections.abc import AsyncIterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import orjson
import pytest

from paddock.config import load
from paddock.engines.trino import client
from paddock.exports import running
from paddock.exports.model import ExportPayload
from paddock.exports.resources import ExportResources
from paddock.jobs.errors import InfrastructureError, PermanentRunnerError, TransientResourceError
from paddock.jobs.model import AttemptId, JobId, JsonObject
from paddock.jobs.turn import Turn
from tests.trino.misbehaving import Misbehaving, status


class Saved:
    """Keeps what the turn saves, as the control plane would."""

    def __init__(self) -> None:
        self.state: JsonObject = {}

    async def save(self, state: JsonObject, *, progress: bool = True) -> None:
        assert not progress
        self.state = state

    def save_blocking(self, state: JsonObject, *, progress: bool = True) -> None:
        raise NotImplementedError

    def report(self, progress: JsonObject) -> None: ...

    def log(self, level: str, message: str, fields: Mapping[str, Any]) -> None: ...


@pytest.fixture
async def resources(
    bad: Misbehaving, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[ExportResources]:
    monkeypatch.setattr(client, "POST_PATIENCE", 0.0)
    engine = {"type": "trino", "url": bad.url, "user": "lab", "requires_role": False, "patience_seconds": 0}
    engines = orjson.dumps({"bad": engine}).decode()
    made = ExportResources(load({"PADDOCK_DATA": str(tmp_path / "data"), "PADDOCK_ENGINES": engines}, tmp_path))
    yield made
    await made.engines["bad"].close()


async def failed(resources: ExportResources, line: Saved, age: timedelta, mode: str = "direct") -> InfrastructureError:
    turn = Turn(
        id=JobId(uuid4()),
        attempt_id=AttemptId(uuid4()),
        kind="export",
        payload=ExportPayload(engine="bad", sql="SELECT 1", output="ada/one", mode=mode),  # type: ignore[arg-type]
        saved=line.state,
        owner="ada",
        link=line,
        age_seconds=age.total_seconds(),
    )
    with pytest.raises(InfrastructureError) as told:
        await running.run(turn, resources)
    return told.value


def until(problem: InfrastructureError) -> datetime:
    found = re.search(r"Paddock tries until (\d{4}-\d\d-\d\d \d\d:\d\d) UTC\.$", problem.message)
    assert found, problem.message
    return datetime.strptime(found[1], "%Y-%m-%d %H:%M").replace(tzinfo=UTC)


@pytest.mark.parametrize("mode", ["direct", "unload"])
async def test_a_server_that_is_busy_for_ever_is_given_up(
    bad: Misbehaving, resources: ExportResources, mode: str
) -> None:
    bad.trouble = {"POST /v1/statement": [status(503)] * 1000}
    line, age, tries = Saved(), timedelta(0), 0
    first = await failed(resources, line, age, mode)
    hours = (until(first) - datetime.now(UTC)).total_seconds() / 3600
    assert 3.9 < hours <= 4

    problem = first
    while isinstance(problem, TransientResourceError):
        assert (problem.code, problem.budget) == ("engine_unavailable", "cluster")
        age += timedelta(minutes=6)
        tries += 1
        problem = await failed(resources, line, age, mode)

    assert isinstance(problem, PermanentRunnerError)
    assert problem.code == "engine_unavailable"
    assert problem.message.endswith("HTTP 503. It was tried for 4 hours.")
    # Before the queue's own limit of 50.
    assert 40 <= tries <= 41


async def test_a_server_that_answered_in_between_is_tried_as_long_again(
    bad: Misbehaving, resources: ExportResources
) -> None:
    bad.trouble = {"POST /v1/statement": [status(503)] * 1000}
    line = Saved()
    await failed(resources, line, timedelta(0))
    later = await failed(resources, line, timedelta(hours=5))

    assert isinstance(later, TransientResourceError)
    assert (until(later) - datetime.now(UTC)).total_seconds() / 3600 > 3.9
