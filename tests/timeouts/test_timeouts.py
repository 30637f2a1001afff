"""Time-outs the worker should have kept and could not: the rescuer keeps them, with a head start for the worker."""

import asyncio
import dataclasses
from datetime import timedelta
from typing import TypeAlias

import asyncpg
import pytest

from paddock.api.job_json import job_json
from paddock.jobs import ending, reading, rescuing
from paddock.jobs.core import Core
from paddock.jobs.kinds import Kinds
from paddock.jobs.model import JobId
from paddock.web.timeline import draw
from paddock.why import explain
from tests.conftest import DatabaseClock
from tests.playing import Attempt, PlayedWorker, passes, read, served, submit, worker

Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"


async def running(core: Core) -> tuple[JobId, PlayedWorker, Attempt]:
    [id] = await submit(core, "timed")
    played = await worker(core)
    return id, played, await played.claim_one()


async def test_the_claim_says_what_is_left(core: Core, clock: DatabaseClock) -> None:
    _, played, attempt = await running(core)
    assert (attempt.job.turn_timeout, attempt.job.stall_timeout) == (300, 1200)
    assert (attempt.job.total_left, attempt.job.stall_left) == (3600, 1200)
    await passes(core, clock, played, attempt, minutes=2)
    await attempt.finish("again", delay_seconds=60)
    await passes(core, clock, played, minutes=1)
    again = await played.claim_one()
    assert (again.job.total_left, again.job.stall_left) == (3600 - 180, 1200 - 120)


async def test_a_turn_that_runs_too_long_is_a_transient_failure(core: Core, clock: DatabaseClock) -> None:
    id, played, attempt = await running(core)
    await passes(core, clock, played, attempt, minutes=5.5)
    assert await rescuing.keep_timeouts(core) == 0, "the worker's head start"
    await passes(core, clock, played, attempt, minutes=0.5)
    assert await rescuing.keep_timeouts(core) == 1
    job = await read(core, id)
    assert (job.status, job.failure_count, job.error_code) == ("pending", 1, "turn_timeout")
    assert await played.beat(attempt) == ["stale_attempt"]


async def test_turns_count_each_for_itself(core: Core, clock: DatabaseClock) -> None:
    id, played, attempt = await running(core)
    for _ in range(3):
        await passes(core, clock, played, attempt, minutes=4)
        await attempt.save({"n": 1})
        await attempt.finish("again")
        attempt = await played.claim_one()
    assert await rescuing.keep_timeouts(core) == 0
    assert (await read(core, id)).status == "claimed"


async def test_too_long_without_progress_over_several_turns(core: Core, clock: DatabaseClock) -> None:
    id, played, attempt = await running(core)
    for _ in range(4):
        await passes(core, clock, played, attempt, minutes=4.5)
        await attempt.finish("again", delay_seconds=60)
        await passes(core, clock, played, minutes=1)
        attempt = await played.claim_one()
    await passes(core, clock, played, attempt, minutes=2.5)
    assert await rescuing.keep_timeouts(core) == 0
    await passes(core, clock, played, attempt, minutes=0.5)
    assert await rescuing.keep_timeouts(core) == 1
    assert (await read(core, id)).error_code == "stalled"


async def test_a_kind_may_say_that_a_stall_is_the_end(
    core: Core, clock: DatabaseClock, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    final = dataclasses.replace(core.kinds["timed"], stall_fails="Nothing came in time.")
    monkeypatch.setattr(core, "kinds", Kinds(final if kind.name == "timed" else kind for kind in core.kinds))
    await connection.execute("UPDATE kinds SET turn_timeout = NULL")
    id, played, attempt = await running(core)
    await passes(core, clock, played, attempt, minutes=21)
    assert await rescuing.keep_timeouts(core) == 1
    job = await read(core, id)
    assert (job.status, job.error_code, job.error_message) == ("failed", "stalled", "Nothing came in time.")


async def test_a_save_begins_the_stall_anew(core: Core, clock: DatabaseClock, connection: Connection) -> None:
    await connection.execute("UPDATE kinds SET turn_timeout = NULL")
    id, played, attempt = await running(core)
    await passes(core, clock, played, attempt, minutes=19)
    await attempt.save({"n": 1})
    await passes(core, clock, played, attempt, minutes=19)
    assert await rescuing.keep_timeouts(core) == 0
    await passes(core, clock, played, attempt, minutes=2)
    assert await rescuing.keep_timeouts(core) == 1
    assert (await read(core, id)).error_code == "stalled"


async def test_what_is_saved_without_progress_does_not(
    core: Core, clock: DatabaseClock, connection: Connection
) -> None:
    await connection.execute("UPDATE kinds SET turn_timeout = NULL")
    id, played, attempt = await running(core)
    await passes(core, clock, played, attempt, minutes=10)
    await attempt.save({"draft": 1}, progress=False)
    await attempt.finish("again", saved={"draft": 1}, progress=False)
    attempt = await played.claim_one()
    assert attempt.job.stall_left == 600
    await passes(core, clock, played, attempt, minutes=9)
    await attempt.save({"draft": 2}, progress=False)
    await passes(core, clock, played, attempt, minutes=2)
    assert await rescuing.keep_timeouts(core) == 1
    assert (await read(core, id)).error_code == "stalled"


async def test_a_try_after_a_stall_has_its_whole_time(core: Core, clock: DatabaseClock, connection: Connection) -> None:
    await connection.execute("UPDATE kinds SET turn_timeout = NULL, total_timeout = NULL")
    _, played, attempt = await running(core)
    await passes(core, clock, played, attempt, minutes=21)
    assert await rescuing.keep_timeouts(core) == 1
    await passes(core, clock, played, minutes=10)
    again = await played.claim_one()
    assert again.job.stall_left == 1200


async def test_time_not_claimed_is_no_stall(core: Core, clock: DatabaseClock, connection: Connection) -> None:
    await connection.execute("UPDATE kinds SET total_timeout = NULL")
    id, played, attempt = await running(core)
    await attempt.finish("again", delay_seconds=3600 * 5)
    await clock.advance(minutes=299)
    await passes(core, clock, played, minutes=1)
    await played.claim_one()
    assert await rescuing.keep_timeouts(core) == 0
    assert (await read(core, id)).status == "claimed"


async def test_too_long_in_all_fails_the_job_that_runs(
    core: Core, clock: DatabaseClock, connection: Connection
) -> None:
    await connection.execute("UPDATE kinds SET turn_timeout = NULL, stall_timeout = NULL")
    id, played, attempt = await running(core)
    await passes(core, clock, played, attempt, minutes=60.5)
    assert await rescuing.keep_timeouts(core) == 0
    await passes(core, clock, played, attempt, minutes=0.5)
    assert await rescuing.keep_timeouts(core) == 1
    job = await read(core, id)
    assert (job.status, job.error_code, job.ended_by) == ("failed", "timed_out", None)
    [cleanup] = await connection.fetch("SELECT * FROM jobs")
    assert cleanup["after_attempt"] == attempt.job.attempt_id, "it may still be running"
    assert await attempt.finish() == "stale_attempt"
    assert await attempt.release() == "stale_attempt"
    assert [a.job.cleanup_of for a in await played.claim()] == [id]


async def test_too_long_in_all_fails_the_job_that_waits(core: Core, clock: DatabaseClock) -> None:
    id, played, attempt = await running(core)
    await attempt.finish("again", delay_seconds=3600 * 5, waiting_on="query")
    await passes(core, clock, played, minutes=60)
    assert await rescuing.keep_timeouts(core) == 0
    await clock.advance(seconds=1)
    assert await rescuing.keep_timeouts(core) == 1
    assert (await read(core, id)).error_code == "timed_out"
    await played.beat()
    assert [a.job.cleanup_of for a in await played.claim()] == [id]


async def test_a_job_that_was_never_claimed_is_not_too_long(core: Core, clock: DatabaseClock) -> None:
    [id] = await submit(core, "timed")
    await clock.advance(timedelta(days=3))
    await served(core, clock, seconds=30)
    assert await rescuing.keep_timeouts(core) == 0
    assert (await read(core, id)).status == "pending"


async def test_the_cleanup_after_the_last_of_too_many_time_outs_waits_for_the_attempt(
    core: Core, clock: DatabaseClock, connection: Connection
) -> None:
    """The worker lives and may still run the handler: nobody enters what it is still at."""
    await connection.execute("UPDATE kinds SET failure_limit = 0")
    id, played, attempt = await running(core)
    await passes(core, clock, played, attempt, minutes=6)
    await rescuing.keep_timeouts(core)
    assert (await read(core, id)).error_code == "attempts_exhausted"
    other = await worker(core, "other")
    assert await other.claim() == []
    await passes(core, clock, played, attempt, minutes=2)
    await other.beat()
    assert await other.claim() == []
    await attempt.release()
    assert [a.job.cleanup_of for a in await other.claim()] == [id]


@pytest.mark.parametrize("last_word", [None, "Nothing came in time."])
async def test_the_story_of_a_turn_that_was_ended_for_good_has_no_other_turn(
    core: Core, clock: DatabaseClock, connection: Connection, monkeypatch: pytest.MonkeyPatch, last_word: str | None
) -> None:
    """One claim, ended by the rescuer: the timeline, `why` and the drawing tell of that, and of no turn beside it."""
    await connection.execute("UPDATE kinds SET failure_limit = 0")
    if last_word is not None:
        await connection.execute("UPDATE kinds SET turn_timeout = NULL")
        final = dataclasses.replace(core.kinds["timed"], stall_fails=last_word)
        monkeypatch.setattr(core, "kinds", Kinds([final]))
    id, played, attempt = await running(core)
    await passes(core, clock, played, attempt, minutes=6 if last_word is None else 21)
    assert await rescuing.keep_timeouts(core) == 1

    story = await reading.timeline(core.db, id)
    assert [entry["event"] for entry in story] == ["enqueued", "claimed", "timed_out"]
    code = "turn_timeout" if last_word is None else "stalled"
    assert (story[-1]["reason"], story[-1]["attempt_id"]) == (code, attempt.job.attempt_id)
    job = await read(core, id)
    told = explain(job_json(job, core.kinds), story, now=clock.at)
    assert [step.text for step in told.steps][2:] == [f"ended for taking too long ({code})"]
    drawing = draw(job, await reading.timeline_of(core.db, job), clock.at)
    assert [band.kind for band in drawing.bands] == ["run"]
    assert f"then it was ended for taking too long: {code}." in drawing.bands[0].story


async def test_only_what_was_ended_is_counted(core: Core, clock: DatabaseClock, connection: Connection) -> None:
    """The worker ends its job between the rescuer's look and its write."""
    await connection.execute("UPDATE kinds SET turn_timeout = NULL, stall_timeout = NULL")
    _, played, attempt = await running(core)
    await passes(core, clock, played, attempt, minutes=61)
    async with core.db.transaction() as tx:
        await tx.execute("SELECT FROM jobs WHERE id = $1 FOR UPDATE", attempt.id)
        keeping = asyncio.create_task(rescuing.keep_timeouts(core))
        async with asyncio.timeout(60):
            while not await connection.fetchval("SELECT count(*) FROM pg_locks WHERE NOT granted"):
                pass
        await ending.end(core, tx, [ending.Ending(attempt.id, attempt.job.attempt_id, "completed")], own=True)
    assert await keeping == 0
    assert core.metrics.rescued.known() == []


async def test_a_cleanup_that_runs_too_long_is_tried_again_and_then_given_up(
    core: Core, clock: DatabaseClock, connection: Connection
) -> None:
    await connection.execute("UPDATE kinds SET failure_limit = 1, backoff_first = '1 s'")
    _, played, attempt = await running(core)
    await attempt.finish("permanent")
    for status in ("pending", None):
        cleanup = await played.claim_one()
        await passes(core, clock, played, cleanup, minutes=6)
        assert await rescuing.keep_timeouts(core) == 1
        assert await connection.fetchval("SELECT status FROM jobs") == status
        await passes(core, clock, played, minutes=0.5)
