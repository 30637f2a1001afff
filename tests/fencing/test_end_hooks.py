"""What a kind does in the transaction that ends its job: outputs become real there or not at all."""

import asyncio
from collections.abc import AsyncIterator, Sequence

import asyncpg
import pytest
from prometheus_client import CollectorRegistry, Counter

from paddock.db.pool import Transaction
from paddock.jobs import wire
from paddock.jobs.core import Core, open_core
from paddock.jobs.kinds import Kind, Kinds
from paddock.jobs.model import Job, NewEvent, NewJob
from paddock.metrics import Metrics
from tests.kinds import ANYBODY, TEST_KINDS, Anything, nothing
from tests.playing import read, submit, worker

seen: list[tuple[str, object]] = []
COUNTED = Counter("hooked_ended", "Jobs that ended.", registry=None)


async def on_end(tx: Transaction, job: Job) -> Sequence[NewJob | NewEvent] | None:
    seen.append((job.status, job.result))
    tx.count(COUNTED)
    await tx.execute("INSERT INTO settings (name, value, updated_by) VALUES ($1, '{}', 'hook')", str(job.id))
    if job.payload.get("wants") == "sql":
        await tx.execute("SELECT 1 / 0")
    if job.payload.get("wants") == "raise":
        raise RuntimeError("The draft is gone.")
    if job.payload.get("wants") == "deadlock" and len(seen) == 1:
        raise asyncpg.DeadlockDetectedError("picked")
    if job.payload.get("wants") == "job" and CORE:
        await CORE[0].enqueue(tx, [NewJob("other", {})])
    if job.payload.get("wants") == "both":
        return [NewEvent("thing.made", f"thing:{job.id}", {"status": job.status}), NewJob("other", {}, owner="bob")]
    if job.payload.get("wants") == "nonsense":
        return [NewEvent("thing.made", f"thing:{job.id}"), NewJob("nonesuch", {})]
    return None


CORE: list[Core] = []
HOOKED = Kind(name="hooked", payload=Anything, handler=nothing, cleanup=nothing, on_end=on_end, submit=ANYBODY)


@pytest.fixture
async def core(dsn: str) -> AsyncIterator[Core]:
    seen.clear()
    async with open_core(dsn, Kinds([*TEST_KINDS, HOOKED]), metrics=Metrics(CollectorRegistry())) as opened:
        CORE[:] = [opened]
        yield opened
        CORE.clear()


async def written(connection: "asyncpg.Connection[asyncpg.Record]") -> int:
    return int(await connection.fetchval("SELECT count(*) FROM settings"))


async def test_it_sees_the_job_as_it_ends_and_writes_with_it(
    core: Core, connection: "asyncpg.Connection[asyncpg.Record]"
) -> None:
    await submit(core, "hooked")
    await (await (await worker(core)).claim_one("hooked")).finish(result=5)
    assert seen == [("completed", 5)]
    assert await written(connection) == 1


@pytest.mark.parametrize("wants", ["raise", "sql"])
async def test_one_that_raises_refuses_done(
    core: Core, connection: "asyncpg.Connection[asyncpg.Record]", wants: str
) -> None:
    [bad] = await submit(core, "hooked", payload={"wants": wants})
    [good] = await submit(core, "hooked")
    attempts = await (await worker(core)).claim("hooked")
    items = [wire.FinishItem(id=a.job.id, attempt_id=a.job.attempt_id, outcome="done") for a in attempts]
    for expected in ("accepted", "already_yours"):
        answer = await core.link().finish(wire.Finish(items=items))
        assert [verdict.verdict for verdict in answer.verdicts] == [expected, expected]
    job = await read(core, bad)
    assert (job.status, job.error_code, job.failure_count) == ("pending", "end_hook_failed", 1)
    assert (await read(core, good)).status == "completed"
    assert await written(connection) == 1, "what the failed hook wrote is gone"


async def test_one_that_raises_cannot_hold_up_any_other_end(
    core: Core, connection: "asyncpg.Connection[asyncpg.Record]"
) -> None:
    [id, cancelled] = await submit(core, "hooked", n=2, payload={"wants": "raise"})
    attempt = await (await worker(core)).claim_one("hooked")
    assert await attempt.finish("permanent") == "accepted"
    assert (await core.cancel([cancelled], actor="ann"))[cancelled] == "cancelled"
    assert (await read(core, id)).status == "failed"
    assert await written(connection) == 0


async def test_a_deadlock_in_it_repeats_the_whole_end(core: Core) -> None:
    [id] = await submit(core, "hooked", payload={"wants": "deadlock"})
    assert await (await (await worker(core)).claim_one("hooked")).finish() == "accepted"
    assert (await read(core, id)).status == "completed"
    assert len(seen) == 2


@pytest.mark.parametrize(("wants", "ends", "counted"), [("nothing", 1, 1), ("deadlock", 2, 1), ("raise", 1, 0)])
async def test_what_it_counts_is_counted_with_the_commit_alone(core: Core, wants: str, ends: int, counted: int) -> None:
    [before] = [sample.value for metric in COUNTED.collect() for sample in metric.samples]
    await submit(core, "hooked", payload={"wants": wants})
    await (await (await worker(core)).claim_one("hooked")).finish()
    [after] = [sample.value for metric in COUNTED.collect() for sample in metric.samples]
    assert (len(seen), after - before) == (ends, counted)


async def test_what_it_enqueues_wakes_workers_after_the_commit(core: Core) -> None:
    await submit(core, "hooked", payload={"wants": "job"})
    attempt = await (await worker(core)).claim_one("hooked")
    claim = asyncio.create_task((await worker(core)).claim("other", wait=30))
    await asyncio.sleep(0)
    await attempt.finish()
    assert len(await asyncio.wait_for(claim, 3)) == 1


async def test_what_it_returns_is_made_with_the_end(
    core: Core, connection: "asyncpg.Connection[asyncpg.Record]"
) -> None:
    [id] = await submit(core, "hooked", payload={"wants": "both"})
    played = await worker(core)
    await (await played.claim_one("hooked")).finish("permanent")

    assert (await read(core, (await played.claim_one("other")).id)).owner == "bob"
    [event] = await connection.fetch("SELECT type, subject, owner, data FROM events")
    assert tuple(event) == ("thing.made", f"thing:{id}", "ann", '{"status": "failed"}')


async def test_what_it_returns_is_made_whole_or_not_at_all(
    core: Core, connection: "asyncpg.Connection[asyncpg.Record]"
) -> None:
    [id] = await submit(core, "hooked", payload={"wants": "nonsense"})
    await (await (await worker(core)).claim_one("hooked")).finish()

    assert (await read(core, id)).error_code == "end_hook_failed"
    assert await connection.fetchval("SELECT count(*) FROM events") == 0
    assert await written(connection) == 0


async def test_a_cleanup_runs_no_hook(core: Core) -> None:
    [id] = await submit(core, "hooked")
    played = await worker(core)
    await (await played.claim_one("hooked")).finish("permanent")
    cleanup = await played.claim_one("hooked")
    assert cleanup.job.cleanup_of == id
    await cleanup.finish()
    assert [status for status, _ in seen] == ["failed"]


async def test_without_the_hook_nothing_is_completed(core: Core) -> None:
    """Its package cannot be imported in this replica, and another made the claim."""
    [id] = await submit(core, "hooked")
    attempt = await (await worker(core)).claim_one("hooked")
    core.kinds._by_name.pop("hooked")
    await attempt.finish(result={"made": 1})
    job = await read(core, id)
    assert (job.status, job.error_code) == ("pending", "unknown_kind")
