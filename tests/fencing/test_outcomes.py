"""The four ways a turn ends, what each spends, and when enough is enough."""

from datetime import timedelta

import asyncpg
import pytest

from paddock.jobs import wire
from paddock.jobs.core import Core
from tests.conftest import DatabaseClock
from tests.playing import Attempt, PlayedWorker, read, served, submit, worker


async def fail(played: PlayedWorker, clock: DatabaseClock, kind: str, times: int, **fields: object) -> Attempt:
    """Fails the one job so often; waits out the backoff each time."""
    attempt = None
    for _ in range(times):
        await clock.advance(minutes=6)
        await played.beat()
        attempt = await played.claim_one(kind)
        assert await attempt.finish("transient", **fields) == "accepted"
    assert attempt is not None
    return attempt


async def test_done_keeps_the_result_and_moves_the_job_to_history(
    core: Core, clock: DatabaseClock, connection: "asyncpg.Connection[asyncpg.Record]"
) -> None:
    [id] = await submit(core)
    await clock.advance(seconds=2)
    attempt = await (await worker(core)).claim_one()
    await clock.advance(seconds=3)
    await attempt.finish(result={"rows": 7})
    job = await read(core, id)
    assert (job.status, job.result, job.error_code) == ("completed", {"rows": 7}, None)
    assert (job.completed_at, job.run_seconds, job.wait_seconds) == (clock.at, 3, 2)
    assert job.ended_by == attempt.job.attempt_id
    assert await connection.fetchval("SELECT count(*) FROM jobs") == 0
    assert await connection.fetchval("SELECT count(*) FROM job_timeline") == 0, "an ordinary life costs no extra rows"


async def test_permanent_fails_at_once_with_what_a_person_needs(core: Core) -> None:
    [id] = await submit(core)
    attempt = await (await worker(core, "w1")).claim_one()
    error = wire.Error(code="no_table", message="There is no table 'x'.", hint="Create it.", traceback="Traceback...")
    await attempt.finish("permanent", error=error)
    job = await read(core, id)
    assert (job.status, job.error_code, job.error_message) == ("failed", "no_table", "There is no table 'x'.")
    [shown] = job.errors
    assert (shown["traceback"], shown["worker"], shown["hint"]) == ("Traceback...", "w1", "Create it.")


async def test_again_spends_nothing_and_keeps_what_was_saved(core: Core, clock: DatabaseClock) -> None:
    [id] = await submit(core)
    played = await worker(core)
    for turn in range(1, 9):
        attempt = await played.claim_one()
        assert attempt.job.turn_count == turn
        await attempt.finish("again", delay_seconds=5, saved={"turn": turn} if turn % 2 else None)
        job = await read(core, id)
        assert (job.status, job.failure_count, job.lost_count, job.due_at) == (
            "pending",
            0,
            0,
            clock.at + timedelta(seconds=5),
        )
        assert job.saved == {"turn": turn - (turn + 1) % 2}
        await clock.advance(seconds=5)


async def test_again_while_something_else_works_reads_submitted(core: Core, clock: DatabaseClock) -> None:
    [id] = await submit(core)
    played = await worker(core)
    await (await played.claim_one()).finish("again", waiting_on="query 7", delay_seconds=5)
    job = await read(core, id)
    assert (job.status, job.waiting_on, job.submitted_at) == ("submitted", "query 7", clock.at)
    await clock.advance(seconds=5)
    attempt = await played.claim_one()
    assert (attempt.job.waiting_on, attempt.job.submitted) == ("query 7", True)
    await attempt.finish("again")
    assert ((await read(core, id)).status, (await read(core, id)).waiting_on) == ("pending", None)


@pytest.mark.parametrize("delay", [-5.0, 1e12, float("inf")])
async def test_a_delay_is_bounded(core: Core, clock: DatabaseClock, delay: float) -> None:
    [id] = await submit(core)
    await (await (await worker(core)).claim_one()).finish("again", delay_seconds=delay)
    due_at = (await read(core, id)).due_at
    assert due_at is not None
    assert clock.at <= due_at <= clock.at + timedelta(days=366)


class TestBackoff:
    @pytest.mark.parametrize("failures", [0, 1, 2, 3, 4])
    async def test_it_doubles_from_a_minute_to_five_with_a_tenth_of_jitter(
        self, core: Core, clock: DatabaseClock, failures: int
    ) -> None:
        ids = await submit(core, n=40)
        await core.db.pool("durable").execute("UPDATE jobs SET failure_count = $1", failures)
        for attempt in await (await worker(core)).claim(limit=40):
            await attempt.finish("transient")
        waits = [((await read(core, id)).due_at - clock.at).total_seconds() for id in ids]  # type: ignore[operator]
        middle = min(60 * 2**failures, 300)
        assert all(0.9 * middle <= wait <= 1.1 * middle for wait in waits)
        assert max(waits) - min(waits) > 0.05 * middle, "they do not all come back at once"

    async def test_a_delay_the_failure_names_is_kept(self, core: Core, clock: DatabaseClock) -> None:
        [id] = await submit(core)
        await (await (await worker(core)).claim_one()).finish("transient", delay_seconds=7)
        assert (await read(core, id)).due_at == clock.at + timedelta(seconds=7)

    async def test_a_polling_turn_goes_back_to_submitted(self, core: Core, clock: DatabaseClock) -> None:
        [id] = await submit(core)
        played = await worker(core)
        await (await played.claim_one()).finish("again", waiting_on="query")
        await (await played.claim_one()).finish("transient", delay_seconds=3)
        job = await read(core, id)
        assert (job.status, job.waiting_on, job.due_at) == ("submitted", "query", clock.at + timedelta(seconds=3))


class TestBudgets:
    async def test_one_failure_more_than_is_forgiven_ends_the_job_with_the_last_error(
        self, core: Core, clock: DatabaseClock
    ) -> None:
        [id] = await submit(core, "fragile")
        played = await worker(core)
        await fail(played, clock, "fragile", 2)
        assert (await read(core, id)).status == "pending"
        last = wire.Error(code="last", message="The last straw.")
        await fail(played, clock, "fragile", 1, error=last)
        job = await read(core, id)
        assert (job.status, job.error_code, len(job.errors)) == ("failed", "attempts_exhausted", 3)
        assert "The last straw." in str(job.error_message)

    async def test_saved_progress_forgives_work_failures_and_losses_but_not_the_clusters(
        self, core: Core, clock: DatabaseClock
    ) -> None:
        [id] = await submit(core, "fragile")
        played = await worker(core)
        await fail(played, clock, "fragile", 2)
        await fail(played, clock, "fragile", 3, budget="cluster")
        await clock.advance(minutes=6)
        await played.beat()
        attempt = await played.claim_one("fragile")
        await served(core, clock, seconds=70)
        assert (await read(core, id)).lost_count == 1
        heir = await (await worker(core)).claim_one("fragile")
        assert heir.job.attempt_id != attempt.job.attempt_id
        await heir.save({"n": 1})
        job = await read(core, id)
        assert (job.failure_count, job.cluster_count, job.lost_count) == (0, 3, 0)

    async def test_what_is_saved_without_progress_forgives_nothing(self, core: Core, clock: DatabaseClock) -> None:
        """Else a job that dies or fails after its first save would be tried for ever."""
        [id] = await submit(core, "fragile")
        played = await worker(core)
        for n in range(3):
            await clock.advance(minutes=6)
            await played.beat()
            attempt = await played.claim_one("fragile")
            assert await attempt.save({"draft": n}, progress=False) == "accepted"
            assert (await read(core, id)).saved == {"draft": n}
            await attempt.finish("transient")
        job = await read(core, id)
        assert (job.status, job.error_code, job.saved) == ("failed", "attempts_exhausted", {"draft": 2})

    async def test_a_worker_lost_after_each_save_without_progress_ends_the_job(
        self, core: Core, clock: DatabaseClock
    ) -> None:
        [id] = await submit(core, "fragile")
        for n in range(2):
            attempt = await (await worker(core)).claim_one("fragile")
            await attempt.save({"draft": n}, progress=False)
            await served(core, clock, seconds=70)
        job = await read(core, id)
        assert (job.status, job.error_code, job.saved) == ("failed", "worker_lost", {"draft": 1})

    async def test_again_without_progress_forgives_nothing_either(self, core: Core, clock: DatabaseClock) -> None:
        [id] = await submit(core, "fragile")
        played = await worker(core)
        await fail(played, clock, "fragile", 2)
        await clock.advance(minutes=6)
        await played.beat()
        await (await played.claim_one("fragile")).finish("again", saved={"polls": 1}, progress=False)
        job = await read(core, id)
        assert (job.saved, job.failure_count) == ({"polls": 1}, 2)
        await fail(played, clock, "fragile", 1)
        assert (await read(core, id)).error_code == "attempts_exhausted"

    async def test_progress_saved_with_again_forgives_too(self, core: Core, clock: DatabaseClock) -> None:
        [id] = await submit(core, "fragile")
        played = await worker(core)
        await fail(played, clock, "fragile", 2)
        await clock.advance(minutes=6)
        await played.beat()
        await (await played.claim_one("fragile")).finish("again", saved={"n": 1})
        assert (await read(core, id)).failure_count == 0

    async def test_pressure_that_is_nobodys_fault_has_a_budget_of_its_own(
        self, core: Core, clock: DatabaseClock
    ) -> None:
        [id] = await submit(core, "fragile")
        played = await worker(core)
        await fail(played, clock, "fragile", 4, budget="cluster")
        job = await read(core, id)
        assert (job.status, job.failure_count, job.cluster_count, job.attempt_count) == ("pending", 0, 4, 5)
        await fail(played, clock, "fragile", 1, budget="cluster")
        assert (await read(core, id)).error_code == "attempts_exhausted"

    async def test_an_exception_nobody_classified_counts_three_times(self, core: Core, clock: DatabaseClock) -> None:
        [id] = await submit(core, "plain")
        played = await worker(core)
        await fail(played, clock, "plain", 3, unclassified=True)
        assert (await read(core, id)).status == "pending"
        await fail(played, clock, "plain", 1, unclassified=True)
        assert (await read(core, id)).error_code == "attempts_exhausted"

    async def test_classified_failures_do_not_use_up_the_three(self, core: Core, clock: DatabaseClock) -> None:
        [id] = await submit(core, "plain")
        played = await worker(core)
        await fail(played, clock, "plain", 4)
        await fail(played, clock, "plain", 1, unclassified=True)
        assert (await read(core, id)).status == "pending"
        await fail(played, clock, "plain", 1)
        assert (await read(core, id)).status == "failed"


async def test_errors_are_kept_for_the_last_ten_attempts(core: Core, clock: DatabaseClock) -> None:
    [id] = await submit(core, "plain")
    played = await worker(core)
    for n in range(14):
        await fail(played, clock, "plain", 1, budget="cluster", error=wire.Error(code=f"e{n}", message="x" * 10_000))
    errors = (await read(core, id)).errors
    assert [error["code"] for error in errors] == [f"e{n}" for n in range(4, 14)]
    assert all(len(error["message"]) <= 4_000 for error in errors)


async def test_errors_are_made_storable(core: Core) -> None:
    [id] = await submit(core)
    error = wire.Error(code="a\0b", message="c\ud800d", hint="e\0", traceback="f\0" * 100_000)
    assert await (await (await worker(core)).claim_one()).finish("permanent", error=error) == "accepted"
    assert (await read(core, id)).error_message == "c?d"


async def test_retries_and_releases_are_in_the_timeline(
    core: Core, clock: DatabaseClock, connection: "asyncpg.Connection[asyncpg.Record]"
) -> None:
    await submit(core)
    played = await worker(core, "w1")
    first = await played.claim_one()
    await first.finish("transient", delay_seconds=0)
    second = await played.claim_one()
    await second.release("shutdown")
    rows = await connection.fetch("SELECT * FROM job_timeline ORDER BY id")
    assert [(row["event"], row["from_status"], row["to_status"], row["reason"]) for row in rows] == [
        ("retry", "claimed", "pending", "broken"),
        ("released", "claimed", "pending", "shutdown"),
    ]
    assert [row["attempt_id"] for row in rows] == [first.job.attempt_id, second.job.attempt_id]
    assert {row["worker"] for row in rows} == {"w1"}


async def test_a_release_spends_nothing_and_keeps_the_saved_state(core: Core, clock: DatabaseClock) -> None:
    [id] = await submit(core)
    attempt = await (await worker(core)).claim_one()
    await attempt.save({"n": 1})
    item = wire.ReleaseItem(id=attempt.job.id, attempt_id=attempt.job.attempt_id, delay_seconds=5)
    await core.link().release(wire.Release(items=[item]))
    job = await read(core, id)
    assert (job.status, job.saved, job.attempt_count) == ("pending", {"n": 1}, 1)
    assert job.due_at == clock.at + timedelta(seconds=5)


async def test_follow_ups_and_events_are_made_with_the_end(
    core: Core, connection: "asyncpg.Connection[asyncpg.Record]"
) -> None:
    [id] = await submit(core, owner="ann")
    attempt = await (await worker(core)).claim_one()
    await attempt.finish(
        events=[wire.Event(type="dump.ready", subject="dump:1", data={"n": 1})],
        follow_ups=[wire.FollowUp(kind="other", payload={"n": 1}, priority=2, tags=["x"], delay_seconds=60)],
    )
    event = await connection.fetchrow("SELECT * FROM events")
    assert event is not None
    assert (event["type"], event["subject"], event["owner"]) == ("dump.ready", "dump:1", "ann")
    job = await connection.fetchrow("SELECT * FROM jobs")
    assert job is not None
    assert (job["kind"], job["owner"], job["parent_id"], job["priority"]) == ("other", "ann", id, 2)


@pytest.mark.parametrize("outcome", ["again", "transient", "permanent"])
async def test_only_done_has_follow_ups_and_events(
    core: Core, connection: "asyncpg.Connection[asyncpg.Record]", outcome: str
) -> None:
    await submit(core)
    attempt = await (await worker(core)).claim_one()
    await attempt.finish(
        outcome,
        events=[wire.Event(type="a", subject="b")],
        follow_ups=[wire.FollowUp(kind="other", payload={})],
    )
    assert await connection.fetchval("SELECT count(*) FROM events") == 0
    assert await connection.fetchval("SELECT count(*) FROM jobs WHERE kind = 'other'") == 0
