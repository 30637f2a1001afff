"""A cancel holds at once, whatever runs is told, and what it leaves is cleaned up under the same lock."""

import asyncio
from typing import TypeAlias
from uuid import uuid4

import asyncpg
import pytest

from paddock.jobs.core import Core
from paddock.jobs.errors import LockHeld
from paddock.jobs.model import JobId
from tests.conftest import DatabaseClock
from tests.playing import Attempt, PlayedWorker, read, served, submit, worker

Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"


async def running(core: Core, saved: object = None) -> tuple[JobId, PlayedWorker, Attempt]:
    [id] = await submit(core, "locking", payload={"lock": "table:t"})
    played = await worker(core, "first")
    attempt = await played.claim_one()
    if saved is not None:
        await attempt.save(saved)
    return id, played, attempt


async def cleanup_row(connection: Connection) -> asyncpg.Record:
    row = await connection.fetchrow("SELECT * FROM jobs WHERE cleanup_of IS NOT NULL")
    assert row is not None
    return row


async def test_a_pending_job(core: Core) -> None:
    [id] = await submit(core)
    assert await core.cancel([id], actor="ann", reason="not needed") == {id: "cancelled"}
    job = await read(core, id)
    assert (job.status, job.error_code, job.error_message) == (
        "cancelled",
        "cancelled",
        "Cancelled by ann: not needed",
    )
    assert await (await worker(core)).claim() == []


async def test_a_finished_one_says_so_and_stays_as_it_was(core: Core) -> None:
    [id] = await submit(core)
    await (await (await worker(core)).claim_one()).finish(result=1)
    before = await read(core, id)
    unknown = JobId(uuid4())
    assert await core.cancel([id, unknown], actor="ann") == {id: "finished", unknown: "unknown"}
    assert await read(core, id) == before


async def test_cancelled_twice_and_at_once(core: Core) -> None:
    ids = await submit(core, n=20)
    answers = await asyncio.gather(*(core.cancel(ids[::step], actor="ann") for step in (1, -1, 1, -1)))
    for id in ids:
        assert sorted(answer[id] for answer in answers) == ["cancelled", "finished", "finished", "finished"]


async def test_a_reason_that_is_no_text(core: Core) -> None:
    [id] = await submit(core)
    await core.cancel([id], actor="ann", reason="a\0b\ud800" + "x" * 5_000)
    assert (await read(core, id)).status == "cancelled"


async def test_who_did_it_and_why_is_kept(core: Core, connection: Connection) -> None:
    [id] = await submit(core)
    await core.cancel([id], actor="token:ann", reason="why not")
    [audited] = await connection.fetch("SELECT * FROM audit_log")
    assert (audited["actor"], audited["action"], audited["subject"], audited["reason"]) == (
        "token:ann",
        "cancel",
        f"job:{id}",
        "why not",
    )
    [noted] = await connection.fetch("SELECT * FROM job_timeline")
    assert (noted["event"], noted["from_status"], noted["to_status"], noted["actor"]) == (
        "cancelled",
        "pending",
        "cancelled",
        "token:ann",
    )


async def test_racing_finishes_have_one_winner(core: Core) -> None:
    ids = await submit(core, n=30)
    attempts = {attempt.id: attempt for attempt in await (await worker(core)).claim(limit=30)}

    async def one(id: JobId) -> tuple[str, str]:
        verdict, answer = await asyncio.gather(attempts[id].finish(result=1), core.cancel([id], actor="ann"))
        return verdict, answer[id]

    for id, outcome in zip(ids, await asyncio.gather(*map(one, ids)), strict=True):
        status = (await read(core, id)).status
        assert outcome == (("accepted", "finished") if status == "completed" else ("cancelled", "cancelled"))


class TestCleanup:
    async def test_it_inherits_what_was_saved_and_the_lock(self, core: Core, connection: Connection) -> None:
        id, _, attempt = await running(core, saved={"query": 7})
        await core.cancel([id], actor="ann")
        row = await cleanup_row(connection)
        assert (row["cleanup_of"], row["lock_key"], row["kind"], row["lane"]) == (id, "table:t", "locking", 0)
        assert (row["saved"], row["payload"]) == ('{"query": 7}', '{"lock": "table:t"}')
        assert row["after_attempt"] == attempt.job.attempt_id
        with pytest.raises(LockHeld) as refused:
            await submit(core, "locking", payload={"lock": "table:t"})
        assert refused.value.holder == row["id"]

    async def test_it_waits_until_the_attempt_acknowledges(self, core: Core) -> None:
        id, _, attempt = await running(core)
        await core.cancel([id], actor="ann")
        other = await worker(core, "other")
        assert await other.claim() == []
        assert await attempt.release() == "cancelled"
        [cleanup] = await other.claim()
        assert cleanup.job.cleanup_of == id

    async def test_a_beat_that_still_lists_the_attempt_keeps_it_waiting(self, core: Core, clock: DatabaseClock) -> None:
        id, played, attempt = await running(core)
        await core.cancel([id], actor="ann")
        for _ in range(10):
            await served(core, clock, seconds=10)
            assert await played.beat(attempt) == ["cancelled"]
        other = await worker(core, "other")
        assert await other.claim() == []
        await played.beat()
        assert [cleanup.job.cleanup_of for cleanup in await other.claim()] == [id]

    async def test_a_beat_just_after_the_cancel_frees_nothing(self, core: Core, clock: DatabaseClock) -> None:
        """It may have been on its way before its sender even knew the attempt."""
        id, played, _ = await running(core)
        await core.cancel([id], actor="ann")
        await played.beat()
        assert await (await worker(core, "other")).claim() == []

    async def test_it_is_due_when_the_session_dies(self, core: Core, clock: DatabaseClock) -> None:
        id, _, _ = await running(core)
        await core.cancel([id], actor="ann")
        await served(core, clock, seconds=70)
        [cleanup] = await (await worker(core, "other")).claim()
        assert cleanup.job.cleanup_of == id

    async def test_it_is_due_when_the_session_is_gone(self, core: Core, clock: DatabaseClock) -> None:
        """The worker registered again, and its old session's row was removed."""
        id, played, _ = await running(core)
        await core.cancel([id], actor="ann")
        played.session = (await worker(core, "first")).session
        await core.db.pool("durable").execute("DELETE FROM sessions WHERE id <> $1", played.session)
        await served(core, clock, seconds=5)
        [cleanup] = await played.claim()
        assert cleanup.job.cleanup_of == id

    async def test_the_same_worker_with_a_new_session_does_not_free_it(self, core: Core, clock: DatabaseClock) -> None:
        id, played, attempt = await running(core)
        await core.cancel([id], actor="ann")
        renewed = await worker(core, "first")
        for _ in range(5):
            await served(core, clock, seconds=10)
            await played.beat(attempt)
            await renewed.beat()
        assert await renewed.claim() == []

    async def test_a_job_never_claimed_needs_none(self, core: Core, connection: Connection) -> None:
        [id] = await submit(core, "locking", payload={"lock": "table:t"})
        await core.cancel([id], actor="ann")
        assert await connection.fetchval("SELECT count(*) FROM jobs") == 0
        await submit(core, "locking", payload={"lock": "table:t"})

    async def test_a_kind_without_one_frees_its_lock(self, core: Core, connection: Connection) -> None:
        await connection.execute("UPDATE kinds SET has_cleanup = false")
        id, _, _ = await running(core)
        await core.cancel([id], actor="ann")
        await submit(core, "locking", payload={"lock": "table:t"})

    async def test_a_job_that_waits_between_turns_is_cleaned_up_at_once(self, core: Core) -> None:
        id, played, attempt = await running(core)
        await attempt.finish("again", waiting_on="query", delay_seconds=60)
        await core.cancel([id], actor="ann")
        [cleanup] = await played.claim()
        assert cleanup.job.cleanup_of == id

    @pytest.mark.parametrize("end", ["permanent", "transient"])
    async def test_every_end_but_done_has_one(self, core: Core, connection: Connection, end: str) -> None:
        await connection.execute("UPDATE kinds SET failure_limit = 0")
        id, played, attempt = await running(core, saved={"n": 1})
        await attempt.finish(end)
        assert (await read(core, id)).status == "failed"
        [cleanup] = await played.claim()
        assert (cleanup.job.cleanup_of, bytes(cleanup.job.saved)) == (id, b'{"n": 1}')

    async def test_a_lost_job_has_one(self, core: Core, clock: DatabaseClock, connection: Connection) -> None:
        await connection.execute("UPDATE kinds SET loss_limit = 0")
        id, _, _ = await running(core)
        await served(core, clock, seconds=70)
        assert (await read(core, id)).error_code == "worker_lost"
        [cleanup] = await (await worker(core, "other")).claim()
        assert cleanup.job.cleanup_of == id

    async def test_done_has_none(self, core: Core, connection: Connection) -> None:
        _, _, attempt = await running(core)
        await attempt.finish()
        assert await connection.fetchval("SELECT count(*) FROM jobs") == 0

    @pytest.mark.parametrize("end", ["done", "permanent"])
    async def test_its_own_end_frees_the_lock_and_has_no_cleanup(
        self, core: Core, connection: Connection, end: str
    ) -> None:
        _, played, attempt = await running(core)
        await attempt.finish("permanent")
        cleanup = await played.claim_one()
        assert await cleanup.finish(end) == "accepted"
        assert await connection.fetchval("SELECT count(*) FROM jobs") == 0
        await submit(core, "locking", payload={"lock": "table:t"})

    async def test_it_is_retried_when_it_fails_and_rescued_when_its_worker_dies(
        self, core: Core, clock: DatabaseClock, connection: Connection
    ) -> None:
        await connection.execute("UPDATE kinds SET may_repeat = false")
        _, played, attempt = await running(core)
        await attempt.finish("permanent")
        assert await (await played.claim_one()).finish("transient", delay_seconds=0) == "accepted"
        await played.claim_one()
        await served(core, clock, seconds=70)
        again = await (await worker(core, "other")).claim_one()
        assert (again.job.cleanup_of, again.job.lost_count) == (attempt.id, 1)

    async def test_it_cannot_be_cancelled(self, core: Core, connection: Connection) -> None:
        """That would free the lock while the attempt it waits for is still at work."""
        id, _, _ = await running(core)
        await core.cancel([id], actor="ann")
        cleanup = JobId((await cleanup_row(connection))["id"])
        assert await core.cancel([cleanup], actor="ann") == {cleanup: "cleanup"}
        with pytest.raises(LockHeld):
            await submit(core, "locking", payload={"lock": "table:t"})

    async def test_many_at_once(self, core: Core, connection: Connection) -> None:
        for n in range(20):
            await submit(core, "locking", payload={"lock": f"table:{n}"})
        attempts = await (await worker(core)).claim(limit=20)
        await core.cancel([attempt.id for attempt in attempts], actor="ann")
        rows = await connection.fetch("SELECT * FROM jobs")
        assert {row["cleanup_of"]: row["after_attempt"] for row in rows} == {
            attempt.id: attempt.job.attempt_id for attempt in attempts
        }
        assert len({row["lock_key"] for row in rows}) == 20
