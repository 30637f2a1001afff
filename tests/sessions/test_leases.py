"""A worker's lease is its session: renewed by one beat, and when it has died its jobs are given back."""

import asyncio
from datetime import timedelta

import asyncpg
import pytest

from paddock.jobs import rescuing, wire
from paddock.jobs.core import Core
from paddock.jobs.link import SessionUnknown
from tests.conftest import DatabaseClock
from tests.playing import passes, read, served, submit, worker


def deep(levels: int) -> dict[str, object]:
    return {} if levels == 0 else {"a": deep(levels - 1)}


async def test_registering_says_how_to_keep_it(core: Core) -> None:
    answer = await core.link().register(wire.Register(worker_id="w", version="1", kinds=["plain", "nowhere"]))
    assert (answer.beat_seconds, answer.lease_seconds, answer.unknown_kinds) == (10, 60, ["nowhere"])


async def test_a_worker_that_beats_keeps_its_jobs(core: Core, clock: DatabaseClock) -> None:
    [id] = await submit(core)
    played = await worker(core)
    attempt = await played.claim_one()
    for _ in range(30):
        await served(core, clock, seconds=10)
        assert await played.beat(attempt) == ["accepted"]
    job = await read(core, id)
    assert (job.status, job.visible_at) == ("claimed", clock.at + timedelta(seconds=60))


async def test_a_beat_is_one_row_whatever_it_holds(
    core: Core, connection: "asyncpg.Connection[asyncpg.Record]"
) -> None:
    await submit(core, n=20)
    played = await worker(core)
    attempts = await played.claim(limit=20)
    before = await connection.fetch("SELECT id, xmin::text, ctid::text FROM jobs ORDER BY id")
    await played.beat(*attempts)
    assert await connection.fetch("SELECT id, xmin::text, ctid::text FROM jobs ORDER BY id") == before


async def test_a_dead_sessions_jobs_are_given_back_and_counted(
    core: Core, clock: DatabaseClock, connection: "asyncpg.Connection[asyncpg.Record]"
) -> None:
    [id] = await submit(core)
    attempt = await (await worker(core, "dead")).claim_one()
    await attempt.save({"n": 1})
    await served(core, clock, seconds=60)
    assert (await read(core, id)).status == "claimed"
    await served(core, clock, seconds=5)
    job = await read(core, id)
    assert (job.status, job.attempt_id, job.lost_count, job.saved) == ("pending", None, 1, {"n": 1})
    assert job.due_at == clock.at
    row = await connection.fetchrow("SELECT * FROM job_timeline")
    assert row is not None
    assert (row["event"], row["attempt_id"], row["worker"]) == ("rescued", attempt.job.attempt_id, "dead")


async def test_a_rescued_polling_job_is_submitted_again(core: Core, clock: DatabaseClock) -> None:
    [id] = await submit(core)
    played = await worker(core)
    await (await played.claim_one()).finish("again", waiting_on="query")
    await played.claim_one()
    await served(core, clock, seconds=70)
    assert ((await read(core, id)).status, (await read(core, id)).waiting_on) == ("submitted", "query")


async def test_a_session_that_beats_before_the_rescuer_looks_keeps_its_jobs(core: Core, clock: DatabaseClock) -> None:
    [id] = await submit(core)
    played = await worker(core)
    attempt = await played.claim_one()
    await served(core, clock, seconds=60)
    await clock.advance(seconds=5)
    assert await played.beat(attempt) == ["accepted"]
    await rescuing.rescue(core)
    assert (await read(core, id)).status == "claimed"


async def test_another_session_of_the_same_name_keeps_nothing_alive(core: Core, clock: DatabaseClock) -> None:
    [id] = await submit(core)
    await (await worker(core, "same-name")).claim_one()
    namesake = await worker(core, "same-name")
    for _ in range(7):
        await served(core, clock, seconds=10)
        await namesake.beat()
    assert (await read(core, id)).status == "pending"


async def test_patience_is_added_to_the_end_of_the_session(core: Core, clock: DatabaseClock) -> None:
    [id] = await submit(core, "patient")
    played = await worker(core)
    attempt = await played.claim_one()
    await served(core, clock, seconds=600)
    assert (await read(core, id)).status == "claimed"
    assert await played.beat(attempt) == ["accepted"], "back in time"
    await served(core, clock, seconds=665)
    assert (await read(core, id)).status == "pending"


async def test_too_many_losses_fail_the_job(core: Core, clock: DatabaseClock) -> None:
    [id] = await submit(core, "fragile")
    for _ in range(2):
        await (await worker(core, "doomed")).claim_one("fragile")
        await served(core, clock, seconds=70)
    job = await read(core, id)
    assert (job.status, job.error_code, job.ended_by) == ("failed", "worker_lost", None)
    assert "doomed" in str(job.error_message)


async def test_a_kind_that_may_not_be_repeated_fails_at_the_first_loss(core: Core, clock: DatabaseClock) -> None:
    [id] = await submit(core, "once")
    attempt = await (await worker(core)).claim_one("once")
    await served(core, clock, seconds=70)
    assert ((await read(core, id)).status, (await read(core, id)).error_code) == ("failed", "worker_lost")
    assert await attempt.finish() == "stale_attempt"


async def test_what_is_taken_back_is_counted_by_kind_and_reason(core: Core, clock: DatabaseClock) -> None:
    await submit(core, n=2)
    for kind in ("other", "once", "timed"):
        await submit(core, kind)
    await (await worker(core)).claim("plain", "other", "once")
    living = await worker(core, "living")
    [late] = await living.claim("timed")
    await passes(core, clock, living, late, minutes=7)
    await rescuing.keep_timeouts(core)
    await submit(core, "patient")
    await living.claim("patient")  # its answer is lost: no beat lists it
    await passes(core, clock, living, minutes=3)
    counted = {labels: core.metrics.rescued(*labels)._value.get() for labels in core.metrics.rescued.known()}
    assert counted == {
        ("plain", "session_died"): 2,
        ("other", "session_died"): 1,
        ("once", "worker_lost"): 1,
        ("timed", "timeout"): 1,
        ("patient", "claim_answer_lost"): 1,
    }


@pytest.mark.parametrize(("kind", "status", "lost"), [("plain", "pending", 1), ("once", "failed", 0)])
async def test_a_session_whose_row_is_gone_is_a_dead_session(
    core: Core,
    clock: DatabaseClock,
    connection: "asyncpg.Connection[asyncpg.Record]",
    kind: str,
    status: str,
    lost: int,
) -> None:
    [id] = await submit(core, kind)
    await (await worker(core)).claim_one(kind)
    await connection.execute("DELETE FROM sessions")
    await rescuing.keep_timeouts(core)
    await served(core, clock, seconds=5)
    job = await read(core, id)
    assert (job.status, job.lost_count) == (status, lost)


async def test_an_unknown_session_is_told_to_register_again(core: Core, clock: DatabaseClock) -> None:
    played = await worker(core)
    await core.db.pool("durable").execute("DELETE FROM sessions")
    with pytest.raises(SessionUnknown):
        await played.beat()
    with pytest.raises(SessionUnknown):
        await played.claim(wait=1)


async def test_a_worker_that_says_goodbye_is_gone_at_once(core: Core, clock: DatabaseClock) -> None:
    [id] = await submit(core)
    played = await worker(core)
    attempt = await played.claim_one()
    await played.beat(attempt, dying=True)
    await attempt.release()
    await played.beat(dying=True)
    await submit(core)
    assert await played.claim() == []
    assert (await read(core, id)).lost_count == 0


class TestAGapInService:
    async def test_no_lease_ends_while_nobody_could_renew(self, core: Core, clock: DatabaseClock) -> None:
        [id] = await submit(core)
        played = await worker(core)
        attempt = await played.claim_one()
        await rescuing.rescue(core)
        await clock.advance(minutes=30)  # no replica serves
        await served(core, clock, seconds=15)
        assert (await read(core, id)).status == "claimed"
        assert await played.beat(attempt) == ["accepted"]
        await served(core, clock, seconds=30)
        assert (await read(core, id)).status == "claimed"

    async def test_after_two_beats_whoever_has_not_come_back_is_dead(self, core: Core, clock: DatabaseClock) -> None:
        [id] = await submit(core)
        await (await worker(core)).claim_one()
        await rescuing.rescue(core)
        await clock.advance(minutes=30)
        await served(core, clock, seconds=30)
        assert (await read(core, id)).status == "pending"

    async def test_no_loss_is_final_either(self, core: Core, clock: DatabaseClock) -> None:
        [id] = await submit(core, "once")
        await (await worker(core)).claim_one("once")
        await rescuing.rescue(core)
        await clock.advance(minutes=30)
        await served(core, clock, seconds=15)
        assert (await read(core, id)).status == "claimed"

    async def test_what_ended_in_time_is_heard_before_its_time_out_is_kept(
        self, core: Core, clock: DatabaseClock
    ) -> None:
        """The handler ended while nobody could be told; the worker tells it within two beats."""
        [id] = await submit(core, "timed")
        attempt = await (await worker(core)).claim_one("timed")
        await rescuing.rescue(core)
        await clock.advance(minutes=62)
        assert await core.keep_timeouts() == 0, "the loop ticks at once when a replica starts"
        await served(core, clock, seconds=15)
        assert await core.keep_timeouts() == 0
        assert await attempt.finish(result={"rows": 7}) == "accepted"
        assert (await read(core, id)).status == "completed"

    async def test_a_job_that_waits_has_the_same_patience(self, core: Core, clock: DatabaseClock) -> None:
        [id] = await submit(core, "timed")
        attempt = await (await worker(core)).claim_one("timed")
        await attempt.finish("again", waiting_on="query")
        await rescuing.rescue(core)
        await clock.advance(minutes=62)
        assert await core.keep_timeouts() == 0
        assert (await read(core, id)).status == "submitted"

    async def test_whoever_says_nothing_for_two_beats_has_timed_out(self, core: Core, clock: DatabaseClock) -> None:
        [id] = await submit(core, "timed")
        played = await worker(core)
        attempt = await played.claim_one("timed")
        await rescuing.rescue(core)
        await clock.advance(minutes=62)
        await rescuing.rescue(core)
        await played.beat(attempt)
        await served(core, clock, seconds=20)
        assert await core.keep_timeouts() == 1
        assert ((await read(core, id)).status, (await read(core, id)).error_code) == ("failed", "timed_out")

    async def test_ticks_without_a_gap_keep_leases_running(self, core: Core, clock: DatabaseClock) -> None:
        [id] = await submit(core)
        await (await worker(core)).claim_one()
        for _ in range(7):
            await clock.advance(seconds=10)
            await rescuing.rescue(core)
        assert (await read(core, id)).status == "pending"


class TestAClaimWhoseAnswerWasLost:
    async def test_it_is_given_back_uncounted_after_two_beats_that_do_not_list_it(
        self, core: Core, clock: DatabaseClock
    ) -> None:
        [id] = await submit(core)
        played = await worker(core)
        lost = await played.claim_one()
        for _ in range(4):
            await clock.advance(seconds=10)
            await played.beat()
        assert (await read(core, id)).status == "claimed", "30 s and one beat"
        await clock.advance(seconds=10)
        await played.beat()
        job = await read(core, id)
        assert (job.status, job.lost_count, job.failure_count) == ("pending", 0, 0)
        assert await lost.finish() == "stale_attempt"

    async def test_two_beats_in_a_row(self, core: Core, clock: DatabaseClock) -> None:
        """Listed in between: it was only being passed from hand to hand inside the worker."""
        [id] = await submit(core)
        played = await worker(core)
        attempt = await played.claim_one()
        await clock.advance(seconds=40)
        for _ in range(5):
            await played.beat()
            assert await played.beat(attempt) == ["accepted"]
        assert (await read(core, id)).status == "claimed"

    async def test_another_attempt_begins_anew(self, core: Core, clock: DatabaseClock) -> None:
        [id] = await submit(core)
        played = await worker(core)
        first = await played.claim_one()
        await clock.advance(seconds=40)
        await played.beat()
        await first.release()
        await played.claim_one()
        await clock.advance(seconds=40)
        await played.beat()
        assert (await read(core, id)).status == "claimed"


class TestReports:
    async def test_a_beat_brings_what_a_person_sees(self, core: Core) -> None:
        [id] = await submit(core)
        played = await worker(core)
        attempt = await played.claim_one()
        held = wire.Held(id=attempt.job.id, attempt_id=attempt.job.attempt_id, report={"percent": 40})
        await played.link.beat(played.session, wire.Beat(holding=[held]))
        assert (await read(core, id)).report == {"percent": 40}

    @pytest.mark.parametrize("bad", [{"a": "\0"}, {"a": float("nan")}, {"a": "x" * 10_000}, {"a": 10**400}, deep(500)])
    async def test_a_bad_one_is_lost_and_the_beat_counts(
        self, core: Core, clock: DatabaseClock, bad: dict[str, object]
    ) -> None:
        ids = await submit(core, n=2)
        played = await worker(core)
        attempts = await played.claim()
        await clock.advance(seconds=50)
        holding = [wire.Held(id=a.job.id, attempt_id=a.job.attempt_id, report={"n": 1}) for a in attempts]
        holding[0].report = bad
        answer = await played.link.beat(played.session, wire.Beat(holding=holding))
        assert [verdict.verdict for verdict in answer.verdicts] == ["accepted", "accepted"]
        await served(core, clock, seconds=20)
        assert {(await read(core, id)).status for id in ids} == {"claimed"}
        assert (await read(core, attempts[0].id)).report is None
        assert (await read(core, attempts[1].id)).report == {"n": 1}

    async def test_a_report_alone_renews_nothing(self, core: Core, clock: DatabaseClock) -> None:
        [id] = await submit(core)
        played = await worker(core)
        attempt = await played.claim_one()
        held = wire.Held(id=attempt.job.id, attempt_id=attempt.job.attempt_id, report={"n": 1})
        for _ in range(7):
            await played.link.beat(played.session, wire.Beat(holding=[held], renew=False))
            await served(core, clock, seconds=10)
        assert (await read(core, id)).status == "pending"
        answer = await played.link.beat(played.session, wire.Beat(holding=[held], renew=False))
        assert [verdict.verdict for verdict in answer.verdicts] == ["stale_attempt"]


async def test_many_rescuers_at_once_count_a_loss_once(core: Core, clock: DatabaseClock) -> None:
    ids = await submit(core, n=50)
    await (await worker(core)).claim(limit=50)
    await served(core, clock, seconds=60)
    await clock.advance(seconds=1)
    await asyncio.gather(*(rescuing.rescue(core) for _ in range(8)))
    await rescuing.rescue(core)
    assert {((await read(core, id)).status, (await read(core, id)).lost_count) for id in ids} == {("pending", 1)}


async def test_a_finish_and_a_rescue_at_once_have_one_winner(core: Core, clock: DatabaseClock) -> None:
    for _ in range(5):
        ids = await submit(core, n=20)
        attempts = await (await worker(core)).claim(limit=20)
        await served(core, clock, seconds=60)
        await clock.advance(seconds=1)
        verdicts, *_ = await asyncio.gather(
            asyncio.gather(*(attempt.finish(result="mine") for attempt in attempts)),
            rescuing.rescue(core),
            rescuing.rescue(core),
        )
        for attempt, verdict in zip(attempts, verdicts, strict=True):
            job = await read(core, attempt.id)
            expected = ("accepted", "completed", 0) if job.ended else ("stale_attempt", "pending", 1)
            assert (verdict, job.status, job.lost_count) == expected
        await core.cancel(ids, actor="ann")


async def test_a_beat_and_a_rescue_at_once_agree(core: Core, clock: DatabaseClock) -> None:
    """Whatever the order: what the beat calls the worker's own is not given away until its new lease has ended."""
    for _ in range(5):
        [id] = await submit(core)
        played = await worker(core)
        attempt = await played.claim_one()
        await served(core, clock, seconds=60)
        await clock.advance(seconds=1)
        await asyncio.gather(played.beat(attempt), rescuing.rescue(core))
        held = await played.beat(attempt) == ["accepted"]
        await served(core, clock, seconds=10)
        assert ((await read(core, id)).status == "claimed") is held
        await core.cancel([id], actor="ann")
