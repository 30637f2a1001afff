"""A person's retry is a new job in the old one's place; run-now makes a waiting one due."""

import asyncio
from datetime import timedelta
from typing import Any
from uuid import uuid4

import asyncpg
import pytest

from paddock.jobs.core import Core
from paddock.jobs.errors import Draining, LockHeld, Refused
from paddock.jobs.model import JobId
from tests.conftest import DatabaseClock
from tests.playing import read, submit, worker


async def failed(core: Core, kind: str = "plain", **fields: Any) -> JobId:
    [id] = await submit(core, kind, **fields)
    await (await (await worker(core)).claim_one(kind)).finish("permanent")
    return id


async def test_a_new_job_like_the_old_and_history_stays(core: Core) -> None:
    id = await failed(core, payload={"n": 1}, owner="ann", priority=2, tags=["x"])
    before = await read(core, id)
    new = await core.retry(id, actor="bob")
    assert (new.retry_of, new.status, new.turn_count) == (id, "pending", 0)
    assert (new.kind, new.payload, new.owner, new.priority, new.tags) == ("plain", {"n": 1}, "ann", 2, ["x"])
    after = await read(core, id)
    assert after.retried_by == new.id
    assert (after.status, after.completed_at, after.errors) == (before.status, before.completed_at, before.errors)


async def test_of_two_at_once_one_is_told_it_was_retried_already(core: Core) -> None:
    id = await failed(core)
    answers = await asyncio.gather(*(core.retry(id, actor="ann") for _ in range(4)), return_exceptions=True)
    refused = [answer for answer in answers if isinstance(answer, Refused)]
    [new] = [answer for answer in answers if not isinstance(answer, BaseException)]
    assert [answer.code for answer in refused] == ["already_retried"] * 3
    assert {answer.details["retry"] for answer in refused} == {str(new.id)}


async def test_it_stays_retried_when_the_retry_has_ended(core: Core) -> None:
    id = await failed(core)
    new = await core.retry(id, actor="ann")
    await (await (await worker(core)).claim_one()).finish("permanent")
    with pytest.raises(Refused, match=str(new.id)):
        await core.retry(id, actor="ann")
    assert (await core.retry(new.id, actor="ann")).retry_of == new.id


@pytest.mark.parametrize("state", ["pending", "claimed"])
async def test_a_live_job_is_not_retried(core: Core, state: str) -> None:
    [id] = await submit(core)
    if state == "claimed":
        await (await worker(core)).claim_one()
    with pytest.raises(Refused) as refused:
        await core.retry(id, actor="ann")
    assert refused.value.code == "not_finished"


async def test_an_unknown_job(core: Core) -> None:
    with pytest.raises(Refused) as refused:
        await core.retry(JobId(uuid4()), actor="ann")
    assert (refused.value.code, refused.value.status) == ("not_found", 404)


async def test_it_takes_the_lock_again_or_is_refused(core: Core) -> None:
    id = await failed(core, "locking", payload={"lock": "table:t"})
    with pytest.raises(LockHeld):
        await core.retry(id, actor="ann")
    cleanup = await (await worker(core)).claim_one()
    await cleanup.finish()
    new = await core.retry(id, actor="ann")
    with pytest.raises(LockHeld) as refused:
        await submit(core, "locking", payload={"lock": "table:t"})
    assert refused.value.holder == new.id


async def test_a_cleanup_is_not_retried_by_hand(core: Core) -> None:
    await failed(core, "locking")
    cleanup = await (await worker(core)).claim_one()
    await cleanup.finish("permanent")
    with pytest.raises(Refused) as refused:
        await core.retry(cleanup.id, actor="ann")
    assert refused.value.code == "not_retriable"


async def test_not_in_drain_mode(core: Core) -> None:
    id = await failed(core)
    await core.drain(True, actor="ops")
    with pytest.raises(Draining):
        await core.retry(id, actor="ann")
    await core.drain(False, actor="ops")
    await core.retry(id, actor="ann")


async def test_it_is_audited(core: Core, connection: "asyncpg.Connection[asyncpg.Record]") -> None:
    id = await failed(core)
    new = await core.retry(id, actor="ann", reason="disk was full")
    row = await connection.fetchrow("SELECT * FROM audit_log WHERE action = 'retry'")
    assert row is not None
    assert (row["actor"], row["subject"], row["reason"]) == ("ann", f"job:{id}", "disk was full")
    assert str(new.id) in row["details"]


class TestRunNow:
    async def test_a_job_in_backoff_becomes_due(self, core: Core, clock: DatabaseClock) -> None:
        [id] = await submit(core)
        played = await worker(core)
        await (await played.claim_one()).finish("transient")
        assert await played.claim() == []
        assert (await core.run_now(id, actor="ann")).due_at == clock.at
        assert len(await played.claim()) == 1

    @pytest.mark.parametrize("state", ["due", "claimed", "ended"])
    async def test_a_job_that_does_not_wait_is_refused(self, core: Core, clock: DatabaseClock, state: str) -> None:
        [id] = await submit(core)
        if state != "due":
            attempt = await (await worker(core)).claim_one()
            if state == "ended":
                await attempt.finish()
        with pytest.raises(Refused) as refused:
            await core.run_now(id, actor="ann")
        assert refused.value.code == "not_waiting"

    async def test_a_cleanup_that_waits_for_its_attempt_is_refused(
        self, core: Core, connection: "asyncpg.Connection[asyncpg.Record]"
    ) -> None:
        [id] = await submit(core, "locking")
        await (await worker(core)).claim_one()
        await core.cancel([id], actor="ann")
        cleanup = await connection.fetchval("SELECT id FROM jobs")
        with pytest.raises(Refused):
            await core.run_now(cleanup, actor="ann")
        assert await (await worker(core)).claim() == []

    async def test_a_job_for_later(self, core: Core, clock: DatabaseClock) -> None:
        [id] = await submit(core, run_at=clock.at + timedelta(days=1))
        await core.run_now(id, actor="ann")
        assert len(await (await worker(core)).claim()) == 1
