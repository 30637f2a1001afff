"""What every write is told in every situation, and that a write which is turned away changes nothing."""

from collections.abc import Awaitable, Callable
from uuid import uuid4

import asyncpg
import pytest

from paddock.jobs import rescuing
from paddock.jobs.core import Core
from tests.conftest import DatabaseClock
from tests.playing import Attempt, PlayedWorker, read, served, submit, worker

OPERATIONS: dict[str, Callable[[Attempt], Awaitable[str]]] = {
    "save": lambda attempt: attempt.save({"late": True}),
    "release": lambda attempt: attempt.release(),
    "done": lambda attempt: attempt.finish("done", result="late"),
    "again": lambda attempt: attempt.finish("again", saved={"late": True}, waiting_on="late"),
    "transient": lambda attempt: attempt.finish("transient"),
    "permanent": lambda attempt: attempt.finish("permanent"),
}
FINISHES = ("done", "again", "transient", "permanent")


async def snapshot(connection: "asyncpg.Connection[asyncpg.Record]") -> list[asyncpg.Record]:
    return await connection.fetch(
        "SELECT to_jsonb(j)::text FROM jobs j UNION ALL SELECT to_jsonb(h)::text FROM job_history h ORDER BY 1"
    )


async def claimed(core: Core) -> tuple[PlayedWorker, Attempt]:
    await submit(core)
    played = await worker(core, "first")
    return played, await played.claim_one()


async def rescued(core: Core, clock: DatabaseClock) -> Attempt:
    _, attempt = await claimed(core)
    await served(core, clock, seconds=70)
    assert (await read(core, attempt.id)).status == "pending"
    return attempt


@pytest.mark.parametrize("operation", OPERATIONS)
async def test_the_holder_is_accepted(core: Core, operation: str) -> None:
    _, attempt = await claimed(core)
    assert await OPERATIONS[operation](attempt) == "accepted"


@pytest.mark.parametrize("operation", OPERATIONS)
class TestTurnedAway:
    async def refused(self, connection: "asyncpg.Connection[asyncpg.Record]", attempt: Attempt, operation: str) -> str:
        before = await snapshot(connection)
        verdict = await OPERATIONS[operation](attempt)
        assert await snapshot(connection) == before
        return verdict

    async def test_after_a_rescue(
        self, core: Core, clock: DatabaseClock, connection: "asyncpg.Connection[asyncpg.Record]", operation: str
    ) -> None:
        attempt = await rescued(core, clock)
        assert await self.refused(connection, attempt, operation) == "stale_attempt"

    async def test_after_another_claimed_it(
        self, core: Core, clock: DatabaseClock, connection: "asyncpg.Connection[asyncpg.Record]", operation: str
    ) -> None:
        attempt = await rescued(core, clock)
        await (await worker(core, "heir")).claim_one()
        assert await self.refused(connection, attempt, operation) == "stale_attempt"

    async def test_after_another_completed_it(
        self, core: Core, clock: DatabaseClock, connection: "asyncpg.Connection[asyncpg.Record]", operation: str
    ) -> None:
        attempt = await rescued(core, clock)
        await (await (await worker(core, "heir")).claim_one()).finish(result="mine")
        assert await self.refused(connection, attempt, operation) == "stale_attempt"

    async def test_after_a_cancel(
        self, core: Core, connection: "asyncpg.Connection[asyncpg.Record]", operation: str
    ) -> None:
        _, attempt = await claimed(core)
        await core.cancel([attempt.id], actor="ann")
        assert await self.refused(connection, attempt, operation) == "cancelled"

    async def test_after_a_time_out_the_worker_did_not_keep(
        self, core: Core, clock: DatabaseClock, connection: "asyncpg.Connection[asyncpg.Record]", operation: str
    ) -> None:
        """The rescuer ended its turn as a transient failure: the attempt's own is late, and no repetition of that."""
        await submit(core, "timed")
        played = await worker(core)
        attempt = await played.claim_one()
        for _ in range(6):
            await served(core, clock, seconds=60)
            await played.beat(attempt)
        assert await rescuing.keep_timeouts(core) == 1
        assert await self.refused(connection, attempt, operation) == "stale_attempt"

    async def test_a_job_nobody_knows(
        self, core: Core, connection: "asyncpg.Connection[asyncpg.Record]", operation: str
    ) -> None:
        _, attempt = await claimed(core)
        attempt.job.id = uuid4()
        assert await self.refused(connection, attempt, operation) == "unknown"

    async def test_an_attempt_nobody_made(
        self, core: Core, connection: "asyncpg.Connection[asyncpg.Record]", operation: str
    ) -> None:
        _, attempt = await claimed(core)
        attempt.job.attempt_id = uuid4()
        assert await self.refused(connection, attempt, operation) == "stale_attempt"

    @pytest.mark.parametrize("ended", [*FINISHES, "release"])
    async def test_after_its_own_end_only_the_same_again_is_its_own(
        self, core: Core, connection: "asyncpg.Connection[asyncpg.Record]", operation: str, ended: str
    ) -> None:
        _, attempt = await claimed(core)
        assert await OPERATIONS[ended](attempt) == "accepted"
        verdict = await self.refused(connection, attempt, operation)
        assert verdict == ("already_yours" if operation == ended else "stale_attempt")


async def test_the_last_of_too_many_failures_repeated_is_its_own(core: Core) -> None:
    await submit(core, "fragile")
    played = await worker(core)
    for _ in range(2):
        await (await played.claim_one("fragile")).finish("transient", delay_seconds=0)
    last = await played.claim_one("fragile")
    assert await last.finish("transient") == "accepted"
    assert (await read(core, last.id)).status == "failed"
    assert await last.finish("transient") == "already_yours"


async def test_a_yield_repeated_after_another_attempt_began_is_its_own(core: Core) -> None:
    _, attempt = await claimed(core)
    await attempt.finish("again")
    heir = await (await worker(core, "heir")).claim_one()
    assert await attempt.finish("again") == "already_yours"
    assert await heir.finish() == "accepted"


async def test_beats_are_told_the_same(core: Core, clock: DatabaseClock) -> None:
    played = await worker(core)
    ids = await submit(core, n=5)
    held, cancelled, ended, yielded, lost = await played.claim()
    await core.cancel([cancelled.id], actor="ann")
    await ended.finish()
    await yielded.finish("again", delay_seconds=60)
    await core.db.pool("durable").execute(
        "UPDATE jobs SET attempt_id = NULL, status = 'pending' WHERE id = $1", lost.id
    )
    assert len(ids) == 5
    verdicts = await played.beat(held, cancelled, ended, yielded, lost)
    assert verdicts == ["accepted", "cancelled", "already_yours", "already_yours", "stale_attempt"]


async def test_stale_writes_are_noted_and_bounded(core: Core, connection: "asyncpg.Connection[asyncpg.Record]") -> None:
    _, attempt = await claimed(core)
    attempt.job.attempt_id = uuid4()
    for _ in range(25):
        await attempt.save({})
    noted = await connection.fetch("SELECT * FROM job_timeline WHERE event = 'stale_write'")
    assert len(noted) == 20
    assert (noted[0]["job_id"], noted[0]["reason"]) == (attempt.id, "save")


async def test_the_token_is_not_null_exactly_while_claimed(
    core: Core, connection: "asyncpg.Connection[asyncpg.Record]"
) -> None:
    _, attempt = await claimed(core)
    for change in ("attempt_id = NULL", "status = 'pending'"):
        with pytest.raises(asyncpg.CheckViolationError):
            await connection.execute(f"UPDATE jobs SET {change} WHERE id = $1", attempt.id)


async def test_verdicts_are_counted(core: Core) -> None:
    _, attempt = await claimed(core)
    await attempt.finish()
    await attempt.finish()
    counted = core.metrics.verdicts
    assert {label: counted(*label)._value.get() for label in counted.known()} == {
        ("finish", "accepted"): 1,
        ("finish", "already_yours"): 1,
    }
