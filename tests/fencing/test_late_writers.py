"""Whoever lost its job can change nothing, and learns it."""

from paddock.jobs.core import Core
from tests.conftest import DatabaseClock
from tests.playing import read, served, submit, worker


async def test_a_worker_that_slept_through_its_lease_cannot_finish(core: Core, clock: DatabaseClock) -> None:
    [id] = await submit(core)
    sleeper = await (await worker(core, "sleeper")).claim_one()
    await served(core, clock, seconds=90)
    heir = await (await worker(core, "heir")).claim_one()

    assert await sleeper.finish(result="late") == "stale_attempt"
    assert await heir.finish(result="mine") == "accepted"
    job = await read(core, id)
    assert (job.status, job.result, job.lost_count) == ("completed", "mine", 1)


async def test_a_finish_repeated_after_a_lost_answer_is_its_own(core: Core) -> None:
    await submit(core)
    attempt = await (await worker(core)).claim_one()
    assert await attempt.finish(result=1) == "accepted"
    assert await attempt.finish(result=1) == "already_yours"


async def test_a_finish_after_a_release_is_late_and_not_a_repetition(core: Core) -> None:
    [id] = await submit(core)
    attempt = await (await worker(core)).claim_one()
    assert await attempt.release() == "accepted"
    assert await attempt.release() == "already_yours"
    assert await attempt.finish(result=1) == "stale_attempt"
    assert (await read(core, id)).status == "pending"


async def test_a_cancelled_attempt_is_told_so_by_every_write(core: Core) -> None:
    [id] = await submit(core)
    played = await worker(core)
    attempt = await played.claim_one()
    assert (await core.cancel([id], actor="ann"))[id] == "cancelled"
    assert await played.beat(attempt) == ["cancelled"]
    assert await attempt.save({"n": 1}) == "cancelled"
    assert await attempt.finish() == "cancelled"
    assert (await read(core, id)).status == "cancelled"
