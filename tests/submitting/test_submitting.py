"""What is accepted is stored as a whole, under its lock; what is not is refused with a reason, as a whole."""

import asyncio
import contextlib
from datetime import timedelta
from typing import Any, TypeAlias

import asyncpg
import pytest

from paddock.db.pool import Transaction
from paddock.jobs import enqueueing, wire
from paddock.jobs.core import Core
from paddock.jobs.errors import Draining, LockHeld, Refused
from paddock.jobs.model import NewJob
from tests.conftest import DatabaseClock
from tests.playing import read, submit, worker

Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"


async def count(connection: Connection) -> int:
    return int(await connection.fetchval("SELECT count(*) FROM jobs"))


async def test_it_is_kept_as_asked_for(core: Core, clock: DatabaseClock) -> None:
    [id] = await submit(core, payload={"n": [1, None, "ü"]}, priority=2, tags=["a", "b"], owner="ann", role="reader")
    job = await read(core, id)
    assert (job.status, job.priority, job.tags, job.owner, job.role) == ("pending", 2, ["a", "b"], "ann", "reader")
    assert (job.payload, job.created_at, job.due_at) == ({"n": [1, None, "ü"]}, clock.at, clock.at)


async def test_a_batch_keeps_its_order(core: Core) -> None:
    jobs = [NewJob("locking" if n % 3 else "plain", {"n": n, "lock": f"{99 - n}"}) for n in range(100)]
    submitted = await core.submit(jobs)
    assert [job.payload["n"] for job in submitted.jobs] == list(range(100))
    assert [job.id for job in submitted.jobs] == sorted(job.id for job in submitted.jobs)


@pytest.mark.parametrize(
    ("bad", "code"),
    [
        (NewJob("nowhere", {}), "unknown_kind"),
        (NewJob("plain", {"lock": 7}), "invalid_payload"),
        (NewJob("plain", {"a": "\0"}), "invalid_payload"),
        (NewJob("plain", {"a": "\ud800"}), "invalid_payload"),
        (NewJob("plain", {"a": float("nan")}), "invalid_payload"),
        (NewJob("plain", {"a": 10**400}), "invalid_payload"),
        (NewJob("plain", {"a": "x" * (1024 * 1024)}), "invalid_payload"),
        (NewJob("plain", {}, tags=["x"] * 21), "invalid_tags"),
        (NewJob("plain", {}, tags=["\0"]), "invalid_tags"),
        (NewJob("plain", {}, priority=0), "invalid_priority"),
        (NewJob("plain", {}, priority=70_000), "invalid_priority"),
        (NewJob("locking", {"lock": "x" * 3_000}), "invalid_payload"),
        (NewJob("locking", {"lock": "x\0"}), "invalid_payload"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_one_bad_job_refuses_the_whole_batch(core: Core, connection: Connection, bad: NewJob, code: str) -> None:
    with pytest.raises(Refused) as refused:
        await core.submit([NewJob("plain", {}), bad, NewJob("plain", {})])
    assert (refused.value.code, refused.value.status) == (code, 422)
    assert await count(connection) == 0


async def test_too_many_at_once(core: Core, connection: Connection) -> None:
    with pytest.raises(Refused) as refused:
        await core.submit([NewJob("plain", {})] * 1_001)
    assert refused.value.code == "too_many_jobs"


@pytest.mark.parametrize("fields", [{"run_at": timedelta(days=-1)}, {"delay": timedelta(days=-1)}])
async def test_nothing_is_due_in_the_past(core: Core, clock: DatabaseClock, fields: dict[str, Any]) -> None:
    """A cursor would have passed it."""
    if "run_at" in fields:
        fields = {"run_at": clock.at + fields["run_at"]}
    [id] = await submit(core, **fields)
    assert (await read(core, id)).due_at == clock.at


async def test_one_enqueued_in_a_transaction_that_fails_never_was(core: Core, connection: Connection) -> None:
    with contextlib.suppress(RuntimeError):
        async with core.db.transaction() as tx:
            await core.enqueue(tx, [NewJob("plain", {})])
            raise RuntimeError
    async with core.db.transaction() as tx:
        with contextlib.suppress(RuntimeError):
            async with tx.savepoint():
                await core.enqueue(tx, [NewJob("plain", {})])
                raise RuntimeError
        assert tx.after_commit == [], "nobody is told of what did not happen"
    assert await count(connection) == 0
    assert core.metrics.jobs_enqueued.known() == []


class TestLocks:
    async def test_a_lock_has_one_live_job(self, core: Core) -> None:
        [holder] = await submit(core, "locking", payload={"lock": "t"}, owner="bob")
        with pytest.raises(LockHeld) as refused:
            await submit(core, "locking", payload={"lock": "t"})
        assert (refused.value.holder, refused.value.holder_owner, refused.value.status) == (holder, "bob", 409)
        await submit(core, "locking", payload={"lock": "u"})
        await submit(core, "locking")
        await submit(core, "locking")

    async def test_of_many_at_once_one_gets_it(self, core: Core, connection: Connection) -> None:
        answers = await asyncio.gather(
            *(submit(core, "locking", payload={"lock": "t"}) for _ in range(8)), return_exceptions=True
        )
        [[winner]] = [answer for answer in answers if not isinstance(answer, BaseException)]
        assert {answer.holder for answer in answers if isinstance(answer, LockHeld)} == {winner}
        assert await count(connection) == 1

    async def test_it_is_free_in_the_transaction_that_ends_its_job(self, core: Core) -> None:
        for _ in range(3):
            await submit(core, "locking", payload={"lock": "t"})
            await (await (await worker(core)).claim_one()).finish()

    async def test_a_submission_that_meets_the_end_of_the_holder_waits_for_it(self, core: Core) -> None:
        await submit(core, "locking", payload={"lock": "t"})
        attempt = await (await worker(core)).claim_one()
        _, answer = await asyncio.gather(
            attempt.finish(), submit(core, "locking", payload={"lock": "t"}), return_exceptions=True
        )
        assert isinstance(answer, list | LockHeld)

    async def test_a_batch_names_the_lock_that_is_held_and_not_one_it_took_itself(
        self, core: Core, connection: Connection
    ) -> None:
        [holder] = await submit(core, "locking", payload={"lock": "b"})
        with pytest.raises(LockHeld, match="'b'") as refused:
            await core.submit([NewJob("locking", {"lock": key}) for key in ("a", "b", "c")])
        assert refused.value.holder == holder
        assert await count(connection) == 1

    async def test_the_same_lock_twice_in_one_batch(self, core: Core, connection: Connection) -> None:
        with pytest.raises(LockHeld, match="'b'") as refused:
            await core.submit([NewJob("locking", {"lock": key}) for key in ("a", "b", "b", "c")])
        assert refused.value.holder is None
        assert await count(connection) == 0

    async def test_batches_that_want_the_same_locks_in_other_orders(self, core: Core, connection: Connection) -> None:
        keys = [f"k{n}" for n in range(30)]
        answers = await asyncio.gather(
            *(core.submit([NewJob("locking", {"lock": key}) for key in keys[::step]]) for step in (1, -1, 1, -1)),
            return_exceptions=True,
        )
        assert [type(answer).__name__ for answer in answers].count("LockHeld") == 3
        assert await count(connection) == 30

    async def test_a_batch_takes_its_locks_in_one_order_whatever_its_own(
        self, core: Core, connection: Connection, dsn: str
    ) -> None:
        """So that two batches never wait for each other. This one is stopped at its middle lock and looked at."""
        insert = (
            "INSERT INTO jobs (id, kind, status, priority, due_at, owner, payload, created_at, lock_key)"
            " VALUES (gen_random_uuid(), 'locking', 'pending', 3, now(), 'ann', '{}', now(), $1)"
        )
        middle = connection.transaction()
        await middle.start()
        await connection.execute(insert, "m")
        batch = asyncio.create_task(core.submit([NewJob("locking", {"lock": key}) for key in ("z", "m", "a")]))
        other = await asyncpg.connect(dsn, server_settings={"lock_timeout": "100ms"})
        async with asyncio.timeout(60):
            while not await other.fetchval("SELECT count(*) FROM pg_locks WHERE NOT granted"):
                pass
        with pytest.raises(asyncpg.LockNotAvailableError):
            await other.execute(insert, "a")
        not_yet = other.transaction()
        await not_yet.start()
        await other.execute(insert, "z")
        await not_yet.rollback()
        await other.close()
        await middle.rollback()
        assert len((await batch).jobs) == 3


class TestDrain:
    async def test_it_refuses_the_public_and_nobody_else(self, core: Core) -> None:
        await core.drain(True, actor="ops", reason="upgrade")
        with pytest.raises(Draining, match="upgrade"):
            await submit(core)
        await core.submit([NewJob("plain", {})], public=False)
        attempt = await (await worker(core)).claim_one()
        assert await attempt.finish(follow_ups=[wire.FollowUp(kind="other", payload={})]) == "accepted"
        assert len(await (await worker(core)).claim("other")) == 1
        await core.drain(False, actor="ops")
        await submit(core)

    async def test_once_the_call_has_returned_nothing_slips_in(self, core: Core, connection: Connection) -> None:
        """Submissions under way were decided before or are waited for; none commits after."""
        accepted = 0

        async def submit_all_the_time() -> None:
            nonlocal accepted
            while True:
                try:
                    await core.submit([NewJob("plain", {})])
                except Draining:
                    return
                accepted += 1

        for _ in range(5):
            submitters = [asyncio.create_task(submit_all_the_time()) for _ in range(6)]
            await asyncio.sleep(0.05)
            await core.drain(True, actor="ops")
            counted = await count(connection)
            await asyncio.gather(*submitters)
            assert await count(connection) == counted == accepted
            await core.drain(False, actor="ops")

    async def test_it_waits_for_a_submission_that_has_not_committed(self, core: Core, connection: Connection) -> None:
        async with core.db.transaction() as tx:
            await enqueueing.enqueue(core, tx, [NewJob("plain", {})], public=True)
            draining = asyncio.create_task(core.drain(True, actor="ops"))
            done, _ = await asyncio.wait([draining], timeout=0.2)
            assert not done
        await draining
        assert await count(connection) == 1

    async def test_it_is_audited(self, core: Core, connection: Connection) -> None:
        await core.drain(True, actor="ops", reason="why")
        [row] = await connection.fetch("SELECT * FROM audit_log")
        assert (row["actor"], row["action"], row["reason"]) == ("ops", "drain_on", "why")

    async def test_one_refused_by_a_drain_that_has_just_ended_is_told_to_try_again(
        self, core: Core, connection: Connection, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The insert was turned away; before its reason is read, somebody ends the drain."""
        await core.drain(True, actor="ops")
        fetch = Transaction.fetch

        async def ends_meanwhile(tx: Transaction, *arguments: Any) -> list[asyncpg.Record]:
            rows = await fetch(tx, *arguments)
            if not rows:
                await connection.execute("UPDATE service SET drained = false")
            return rows

        monkeypatch.setattr(Transaction, "fetch", ends_meanwhile)
        with pytest.raises(Draining):
            await submit(core)
