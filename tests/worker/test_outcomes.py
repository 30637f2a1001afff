"""How a turn ends, whatever its handler does."""

from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import msgspec
import pytest

from paddock.jobs import wire
from paddock.jobs.errors import PermanentRunnerError
from paddock.jobs.model import NewEvent, NewJob
from paddock.jobs.outcomes import done
from paddock.worker.ending import encoded_state, item_for
from tests.worker.conftest import Start
from tests.worker.plane import Plane, PlaneJob, until

SLOW = pytest.mark.slow


async def ended(plane: Plane, start: Start, kind: str, **payload: Any) -> PlaneJob:
    job = plane.add(kind, **payload)
    start()
    await until(lambda: job.outcomes or job.releases)
    return job


async def test_a_handler_gets_its_payload_its_saved_state_and_its_resources(plane: Plane, start: Start) -> None:
    job = plane.add("echo", word="hi")
    job.saved = {"cursor": 3}
    start()
    await until(lambda: job.status == "completed")

    assert job.result == {"said": {"word": "hi"}, "saved": {"cursor": 3}, "turn": 1, "greeting": "hello", "n": 7}


async def test_a_blocking_handler_runs_in_a_process_that_is_used_again(plane: Plane, start: Start) -> None:
    start()
    first = plane.add("blocking_pid")
    await until(lambda: first.status == "completed")
    second = plane.add("blocking_pid")
    await until(lambda: second.status == "completed")

    assert first.result == second.result
    assert first.saved == {"pid": first.result}


@pytest.mark.parametrize(
    ("error", "outcome", "code", "message"),
    [
        ("transient", "transient", "no_nodes", "No nodes."),
        ("permanent", "permanent", "role_denied", "Role denied."),
        ("value", "transient", "unclassified_error", "ValueError: bad thing with password=***"),
        ("closed", "transient", "unclassified_error", "GeneratorExit: done"),
        pytest.param("odd", "transient", "unclassified_error", "Odd: odd", marks=SLOW),
        pytest.param("interrupt", "transient", "unclassified_error", "KeyboardInterrupt: ", marks=SLOW),
        pytest.param("exit", "transient", "unclassified_error", "SystemExit: 3", marks=SLOW),
        pytest.param("cancelled", "transient", "unclassified_error", "CancelledError: ", marks=SLOW),
        pytest.param("nul", "transient", "unclassified_error", "RuntimeError: a\\x00b\\ud800c", marks=SLOW),
    ],
)
async def test_every_exception_has_a_meaning(
    plane: Plane, start: Start, error: str, outcome: str, code: str, message: str
) -> None:
    plane.away = set()
    job = await ended(plane, start, "raises", error=error)

    item = job.outcomes[0]
    assert (item.outcome, item.error and item.error.code, item.error and item.error.message) == (outcome, code, message)
    assert item.unclassified == (code == "unclassified_error")
    assert item.error is not None
    assert "in raises" in (item.error.traceback or "")
    assert "hunter2" not in (item.error.traceback or "")


async def test_an_exception_that_cannot_be_told_ends_its_turn_too(plane: Plane, start: Start) -> None:
    item = (await ended(plane, start, "raises", error="speechless")).outcomes[0]

    assert item.error is not None
    assert item.error.message == "Speechless: <Odd in __str__>"


async def test_a_transient_error_names_its_budget_delay_and_hint(plane: Plane, start: Start) -> None:
    item = (await ended(plane, start, "raises", error="transient")).outcomes[0]

    assert (item.budget, item.delay_seconds) == ("cluster", 7.0)
    assert item.error is not None
    assert item.error.hint == "Wait."


async def test_a_kind_may_make_unclassified_errors_permanent(plane: Plane, start: Start) -> None:
    job = await ended(plane, start, "raises_permanent", error="value")

    assert job.status == "failed"


async def test_error_texts_are_bounded(plane: Plane, start: Start) -> None:
    item = (await ended(plane, start, "raises", error="long")).outcomes[0]

    assert item.error is not None
    assert len(item.error.message) == 4_000
    assert len(item.error.traceback or "") <= 16_000


async def test_system_exit_in_a_blocking_handler_is_a_failure_and_not_the_end_of_its_process(
    plane: Plane, start: Start
) -> None:
    start()
    first = plane.add("blocking_pid")
    await until(lambda: first.status == "completed")
    exits = plane.add("raises_blocking")
    await until(lambda: exits.outcomes)
    second = plane.add("blocking_pid")
    await until(lambda: second.status == "completed")

    assert exits.outcomes[0].error is not None
    assert exits.outcomes[0].error.message == "SystemExit: 3"
    assert first.result == second.result


async def test_a_stale_attempt_raised_by_the_handler_ends_silently(plane: Plane, start: Start) -> None:
    job = await ended(plane, start, "raises", error="stale")

    assert not job.outcomes
    assert [item.reason for item in job.releases] == ["stopped"]


async def test_a_payload_its_kind_does_not_take_fails_for_good_and_names_the_field(plane: Plane, start: Start) -> None:
    job = await ended(plane, start, "strict", number="many secrets")

    assert job.status == "failed"
    assert job.error is not None
    assert job.error.code == "invalid_payload"
    assert "number" in job.error.message
    assert "many secrets" not in job.error.message


async def test_what_is_no_outcome_fails_for_good(plane: Plane, start: Start) -> None:
    job = await ended(plane, start, "bad_outcome")

    assert job.error is not None
    assert (job.status, job.error.code) == ("failed", "bad_outcome")


@pytest.mark.parametrize("what", ["object", *(pytest.param(what, marks=SLOW) for what in ("surrogate", "huge"))])
async def test_a_result_that_cannot_be_sent_fails_for_good(plane: Plane, start: Start, what: str) -> None:
    job = await ended(plane, start, "bad_result", what=what)

    assert job.error is not None
    assert (job.status, job.error.code) == ("failed", "invalid_result")


@dataclass
class Share:
    share: float


@pytest.mark.parametrize("number", [2**100, -(2**63) - 1, float("nan"), float("inf"), float("-inf")])
def test_a_number_that_would_not_arrive_as_it_is_is_refused(number: float) -> None:
    job = wire.ClaimedJob(
        id=uuid4(), attempt_id=uuid4(), kind="k", payload=msgspec.Raw(b"{}"), owner="ann", turn_count=1
    )
    for outcome in (
        done(number),
        done({"rows": [1, {"share": number}]}),
        done((Share(number),)),
        done(events=[NewEvent("a.b", "x", {"share": number})]),
        done(follow_ups=[NewJob("k", {"share": number})]),
    ):
        item = item_for(job, outcome)
        assert item.error is not None
        assert (item.outcome, item.error.code) == ("permanent", "invalid_result")
    with pytest.raises(PermanentRunnerError, match="64 bits") as refused:
        encoded_state({"rows": [number]})
    assert refused.value.code == "invalid_saved"
    assert item_for(job, done({"none": None, "numbers": [2**64 - 1, -(2**63), 1e300, 0.1]})).outcome == "done"


async def test_events_and_follow_ups_arrive(plane: Plane, start: Start) -> None:
    job = plane.add("parent")
    start()
    await until(lambda: job.status == "completed")

    assert [event.type for event in job.outcomes[-1].events] == ["parent.done"]
    assert [(item.outcome, item.progress) for item in job.outcomes] == [
        ("again", True),
        ("again", False),
        ("done", True),
    ]
    assert [child.kind for child in plane.jobs.values() if child.parent_id == job.id] == ["late"]


async def test_saved_state_that_is_too_large_is_the_handlers_fault(plane: Plane, start: Start) -> None:
    job = await ended(plane, start, "saves_too_much")

    assert job.error is not None
    assert (job.status, job.error.code) == ("failed", "invalid_saved")


async def test_saves_of_one_turn_keep_their_order(plane: Plane, start: Start) -> None:
    job = await ended(plane, start, "saves_at_once")

    assert job.status == "completed"
    assert [message.items[0].saved["number"] for message in plane.sent("save")] == list(range(20))
