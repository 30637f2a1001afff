"""Running handlers on a loop, without processes."""

import asyncio
from typing import Any
from uuid import UUID, uuid4

import msgspec
import pytest

from paddock.jobs import wire
from paddock.worker.resources import Resources
from paddock.worker.turns import Turns
from tests.worker.kinds import KINDS, Greeter
from tests.worker.plane import until


class Listener:
    """An owner that writes down what it hears, and accepts every save."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, Any]] = []
        self.turns: Turns

    def ended(self, item: wire.FinishItem) -> None:
        self.heard.append(("ended", item))

    def stopped(self, attempt_id: UUID) -> None:
        self.heard.append(("stopped", attempt_id))

    def save(self, item: wire.SaveItem) -> None:
        self.turns.saved(item.attempt_id, "accepted", None)

    def report(self, attempt_id: UUID, progress: dict[str, Any]) -> None:
        self.heard.append(("report", progress))

    def log(self, attempt_id: UUID, lines: str, dropped_bytes: int = 0) -> None: ...


def job(kind: str, **payload: Any) -> wire.ClaimedJob:
    return wire.ClaimedJob(
        id=uuid4(),
        attempt_id=uuid4(),
        kind=kind,
        payload=msgspec.Raw(msgspec.json.encode(payload)),
        owner="tester",
        turn_count=1,
    )


@pytest.fixture
async def listener() -> Listener:
    listener = Listener()
    listener.turns = Turns(KINDS, Resources({Greeter: Greeter("hi")}), listener)
    return listener


async def test_a_stop_that_comes_with_the_start_is_answered(listener: Listener) -> None:
    claimed = job("forever")
    listener.turns.start(claimed)
    listener.turns.stop(claimed.attempt_id)
    await until(lambda: listener.heard)

    assert listener.heard == [("stopped", claimed.attempt_id)]


async def test_a_stop_that_comes_after_the_end_changes_nothing(listener: Listener) -> None:
    claimed = job("noop")
    listener.turns.start(claimed)
    await until(lambda: listener.heard)
    listener.turns.stop(claimed.attempt_id)
    await asyncio.sleep(0)

    assert [what for what, _ in listener.heard] == ["ended"]


async def test_a_missing_resource_is_said_in_words() -> None:
    listener = Listener()
    listener.turns = Turns(KINDS, Resources(), listener)
    listener.turns.start(job("echo"))
    await until(lambda: listener.heard)

    error = listener.heard[0][1].error
    assert error.code == "resource_missing"
    assert "needs a Greeter" in error.message


async def test_a_cleanup_this_version_does_not_have_fails_for_good(listener: Listener) -> None:
    claimed = job("noop")
    claimed.cleanup_of = uuid4()
    listener.turns.start(claimed)
    await until(lambda: listener.heard)

    item = listener.heard[0][1]
    assert (item.outcome, item.error.code) == ("permanent", "no_cleanup")


async def test_a_report_is_what_it_was_when_it_was_made(listener: Listener) -> None:
    listener.turns.start(job("reports"))
    await until(lambda: listener.heard[-1:] and listener.heard[-1][0] == "ended")

    assert [progress["percent"] for what, progress in listener.heard if what == "report"] == list(range(100))
