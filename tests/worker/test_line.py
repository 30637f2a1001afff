"""A control plane that is away, slow, forgetful or unfriendly."""

import asyncio
from datetime import timedelta

import msgspec
import pytest

from paddock.clock import ManualClock
from paddock.jobs import wire
from paddock.jobs.link import LinkDown, LinkRefused
from paddock.worker.outbox import Outbox
from paddock.worker.patience import PatientCalls
from tests.worker.conftest import Start, is_running
from tests.worker.plane import Plane, until


async def test_a_claim_whose_answer_was_lost_is_repeated_and_its_jobs_run_once(plane: Plane, start: Start) -> None:
    jobs = [plane.add("noop") for _ in range(5)]
    plane.lose_answers["claim"] = 2
    start()
    await until(lambda: all(job.status == "completed" for job in jobs))

    first, second, third = plane.sent("claim")[:3]
    assert first.claim_id == second.claim_id == third.claim_id
    assert {job.turn_count for job in jobs} == {1}


async def test_every_claim_has_an_id_of_its_own(plane: Plane, start: Start) -> None:
    start(concurrency=1, submitted_concurrency=1)
    for _ in range(3):
        job = plane.add("noop")
        await until(lambda job=job: job.status == "completed")  # type: ignore[misc]

    claims = [claim.claim_id for claim in plane.sent("claim") if claim.limit]
    assert len(set(claims)) == len(claims)


async def test_a_finish_whose_answer_was_lost_is_repeated(plane: Plane, start: Start) -> None:
    job = plane.add("noop")
    plane.lose_answers["finish"] = 2
    running = start()
    await until(lambda: plane.calls["finish"] == 3 and len(running.worker.holding) == 0)

    assert job.status == "completed"


async def test_running_jobs_survive_an_outage_of_many_lease_lengths(plane: Plane, start: Start) -> None:
    plane.lease_seconds = 0.4
    blocking = plane.add("blocking_pid")
    running = start()
    await until(lambda: blocking.status == "completed")
    # However slow this test is, the job cannot end before the outage.
    plane.outage("finish")
    job = plane.add("late", seconds=0.5)
    await until(lambda: is_running(job))
    plane.outage()
    failed = plane.calls["beat"] + 10
    await until(lambda: plane.calls["beat"] > failed and plane.calls["finish"] > 1)
    assert not job.ended
    assert not running.worker.ready
    plane.back()
    await until(lambda: job.status == "completed")

    assert job.turn_count == 1
    await until(lambda: running.worker.ready)


async def test_an_outcome_waits_through_hours_of_outage(plane: Plane) -> None:
    """The clock is the test's: ten thousand seconds take no time."""
    clock = ManualClock()
    line = PatientCalls(clock, timedelta(seconds=10))
    away, tries, settled = True, 0, list[str]()

    async def send(items: list[wire.ReleaseItem]) -> wire.Verdicts:
        nonlocal tries
        tries += 1
        if away:
            raise LinkDown("away")
        return wire.Verdicts(verdicts=[wire.ItemVerdict(id=item.id, verdict="accepted") for item in items])

    outbox: Outbox[wire.ReleaseItem] = Outbox(line, send, lambda pairs: settled.extend(v.verdict for _, v in pairs))
    job = plane.add("noop")
    outbox.put(wire.ReleaseItem(id=job.id, attempt_id=job.id))
    await clock.advance(10_000)
    assert not settled
    assert 1_000 <= tries <= 2_100, "it goes on asking, at most about every ten seconds"
    away = False
    await clock.advance(11)

    assert settled == ["accepted"]


async def test_the_first_answer_wakes_the_other_questions(plane: Plane) -> None:
    clock = ManualClock()
    line = PatientCalls(clock, timedelta(seconds=1_000))
    away = True

    async def question() -> str:
        if away:
            raise LinkDown("away")
        return "answer"

    patient = asyncio.create_task(line.ask(question))
    await clock.advance(2_000)
    away = False
    await line.ask(question)
    await clock.advance(1)

    assert patient.done(), "it did not wait for its own pause to end"


async def test_a_slot_is_free_only_after_the_finish_was_acknowledged(plane: Plane, start: Start) -> None:
    plane.hanging["finish"] = asyncio.Event()
    jobs = [plane.add("noop") for _ in range(6)]
    start(concurrency=2)
    await until(lambda: plane.calls["finish"] == 1 and plane.calls["beat"] > 3)
    assert [job.status for job in jobs].count("claimed") == 2, "two handlers have returned; their slots are not free"
    plane.hanging["finish"].set()
    await until(lambda: all(job.status == "completed" for job in jobs))


async def test_the_control_plane_is_never_asked_for_more_than_there_is_room_for(plane: Plane, start: Start) -> None:
    jobs = [plane.add("late", seconds=0.02) for _ in range(60)]
    jobs += [plane.add("alone", seconds=0.01) for _ in range(5)]
    jobs += [plane.add("late", submitted=True, seconds=0.01) for _ in range(5)]
    most, most_alone, most_submitted = 0, 0, 0
    start(concurrency=5, submitted_concurrency=2, claims_in_flight=3)
    while not all(job.status == "completed" for job in jobs):
        held = [job for job in jobs if job.attempt_id]
        most = max(most, sum(not job.submitted for job in held))
        most_alone = max(most_alone, sum(job.kind == "alone" for job in held))
        most_submitted = max(most_submitted, sum(job.submitted for job in held))
        await asyncio.sleep(0.001)

    assert (most, most_alone, most_submitted) == (5, 1, 2)


async def test_a_kind_that_was_full_is_asked_for_again_while_another_poll_waits(plane: Plane, start: Start) -> None:
    start(concurrency=5)
    first = plane.add("alone", seconds=0.3)
    await until(lambda: first.attempt_id)
    await until(lambda: any(claim.limits.get("alone") == 0 for claim in plane.sent("claim")))
    second = plane.add("alone", seconds=0)

    await until(lambda: second.status == "completed")


async def test_a_control_plane_that_forgot_the_session_gets_a_new_one_and_the_jobs_go_on(
    plane: Plane, start: Start
) -> None:
    job = plane.add("late", seconds=1)
    start()
    await until(lambda: is_running(job))
    plane.sessions.clear()
    await until(lambda: job.status == "completed")
    another = plane.add("noop")
    await until(lambda: another.status == "completed")

    assert plane.calls["register"] == 2
    assert job.turn_count == 1


async def test_a_worker_starts_before_its_control_plane(plane: Plane, start: Start) -> None:
    plane.outage()
    start()
    await until(lambda: plane.calls["register"] > 2)
    plane.back()
    job = plane.add("noop")
    await until(lambda: job.status == "completed")


async def test_a_bad_token_loses_no_running_job(plane: Plane, start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("paddock.worker.patience.REFUSED_PAUSE", 0.1)
    # However slow this test is, the job cannot end before.
    plane.refuse["finish"] = LinkRefused("no", 401)
    job = plane.add("late", seconds=0.3)
    start()
    await until(lambda: is_running(job))
    for operation in ("claim", "beat", "release", "save"):
        plane.refuse[operation] = LinkRefused("no", 401)
    await until(lambda: plane.calls["finish"] > 2)
    assert not job.ended
    plane.refuse.clear()
    await until(lambda: job.status == "completed")


async def test_an_item_put_just_as_a_flush_ends_is_not_forgotten(plane: Plane) -> None:
    items = [wire.ReleaseItem(id=job.id, attempt_id=job.id) for job in (plane.add("noop") for _ in range(5))]
    settled: list[wire.ReleaseItem] = []

    async def send(batch: list[wire.ReleaseItem]) -> wire.Verdicts:
        return wire.Verdicts(verdicts=[wire.ItemVerdict(id=item.id, verdict="accepted") for item in batch])

    def settle(pairs: list[tuple[wire.ReleaseItem, wire.ItemVerdict]]) -> None:
        settled.extend(item for item, _ in pairs)
        if len(settled) < len(items):
            # Runs after the flush's last look, before anybody hears that its task is done.
            asyncio.get_running_loop().call_soon(outbox.put, items[len(settled)])

    outbox: Outbox[wire.ReleaseItem] = Outbox(PatientCalls(ManualClock(), timedelta(seconds=1)), send, settle)
    outbox.put(items[0])
    await until(lambda: len(settled) == len(items))


async def test_one_unreadable_outcome_does_not_hold_up_the_others(plane: Plane) -> None:
    settled: dict[str, str] = {}

    async def send(items: list[wire.FinishItem]) -> wire.Verdicts:
        if any(item.result == "bad" for item in items):
            raise LinkRefused("unreadable", 422)
        return wire.Verdicts(verdicts=[wire.ItemVerdict(id=item.id, verdict="accepted") for item in items])

    outbox: Outbox[wire.FinishItem] = Outbox(
        PatientCalls(ManualClock(), timedelta(seconds=1)),
        send,
        lambda pairs: settled.update({str(item.result): verdict.verdict for item, verdict in pairs}),
    )
    for number in range(20):
        job = plane.add("noop")
        result = "bad" if number == 13 else str(number)
        outbox.put(wire.FinishItem(id=job.id, attempt_id=job.id, outcome="done", result=result))
    await until(lambda: len(settled) == 20)

    assert settled.pop("bad") == "refused"
    assert set(settled.values()) == {"accepted"}


async def test_a_refused_result_becomes_a_failure_and_not_an_endless_job(plane: Plane, start: Start) -> None:
    job = plane.add("echo", word="hi")
    plane.refuse["finish"] = LinkRefused("too large", 413)
    plane.refuse_once.add("finish")
    start()
    await until(lambda: job.status == "failed")

    assert job.error is not None
    assert job.error.code == "invalid_result"


async def test_outcomes_gather_while_one_is_on_its_way(plane: Plane, start: Start) -> None:
    plane.hanging["finish"] = asyncio.Event()
    first = plane.add("noop")
    running = start(concurrency=50)
    await until(lambda: plane.calls["finish"] == 1)
    others = [plane.add("noop") for _ in range(40)]
    await until(lambda: all(job.attempt_id for job in others) and _all_over(running.worker))
    plane.hanging["finish"].set()
    await until(lambda: all(job.status == "completed" for job in [first, *others]))

    assert [len(message.items) for message in plane.sent("finish")] == [1, 40]


def _all_over(worker: object) -> bool:
    return all(attempt.over for attempt in worker.holding)  # type: ignore[attr-defined]


@pytest.mark.slow
async def test_a_quiet_worker_takes_nothing_new_until_told(plane: Plane, start: Start) -> None:
    plane.quiet = True
    running = start(long_poll=timedelta(seconds=0.3))
    await until(lambda: running.worker._session.quiet)
    await until(lambda: plane.sent("claim")[-1].limit == 0)
    job = plane.add("noop")
    asked = plane.calls["claim"] + 3
    await until(lambda: plane.calls["claim"] > asked)
    assert job.status == "pending"
    plane.quiet = False

    await until(lambda: job.status == "completed")


async def test_claims_that_come_back_empty_too_soon_do_not_spin(plane: Plane, start: Start) -> None:
    start(long_poll=timedelta(0), poll_interval=timedelta(seconds=0.2))
    await until(lambda: plane.calls["beat"] >= 5)

    assert plane.calls["claim"] < 20


def test_messages_name_nothing_that_is_at_its_default() -> None:
    claim = wire.Claimed(jobs=[])
    assert msgspec.json.encode(claim) == b'{"jobs":[]}'
