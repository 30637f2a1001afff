"""A group ends exactly once, in the transaction of its last job, and its hook runs with it or is repeated."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterable
from typing import TypeAlias

import asyncpg
import pytest
from prometheus_client import CollectorRegistry, Counter, Histogram, Metric
from structlog.testing import capture_logs

from paddock.config import Config
from paddock.db.pool import Transaction
from paddock.doctor import on_work
from paddock.doctor.findings import Finding
from paddock.jobs import grouping, rescuing, wire
from paddock.jobs.core import Core, open_core
from paddock.jobs.errors import Refused
from paddock.jobs.kinds import Kind, Kinds
from paddock.jobs.model import Group, GroupId, JobId, NewEvent, NewJob
from paddock.metrics import Metrics
from tests.conftest import DatabaseClock
from tests.kinds import ANYBODY, TEST_KINDS, Anything, nothing
from tests.playing import Attempt, read, served, submit, worker

Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"
ended: list[Group] = []
BROKEN: set[str] = set()


COUNTED = Counter("groups_ended", "Groups that ended.", registry=None)
LASTED = Histogram("groups_lasted", "How long they were open.", registry=None)


async def on_group_end(tx: Transaction, group: Group) -> list[NewJob | NewEvent] | None:
    ended.append(group)
    tx.count(COUNTED, group.total)
    tx.observe(LASTED, 5)
    await tx.execute("INSERT INTO settings (name, value, updated_by) VALUES ($1, '{}', 'hook')", f"{len(ended)}")
    if "hook" in BROKEN or str(group.data.get("name")) in BROKEN:
        raise RuntimeError("The catalog is away.")
    if group.data.get("final"):
        await tx.execute("UPDATE groups SET final = true WHERE id = $1", group.id)
    if group.data.get("announces"):
        return [NewJob("plain", {"group": str(group.id)}, owner="bob"), NewEvent("thing.made", str(group.id))]
    return None


GROUPED = Kind(
    name="grouped", payload=Anything, handler=nothing, cleanup=nothing, on_group_end=on_group_end, submit=ANYBODY
)


@pytest.fixture
async def core(dsn: str) -> AsyncIterator[Core]:
    ended.clear()
    BROKEN.clear()
    async with open_core(dsn, Kinds([*TEST_KINDS, GROUPED]), metrics=Metrics(CollectorRegistry())) as opened:
        yield opened


async def make(core: Core, n: int, *, seal: bool = True, **data: object) -> tuple[GroupId, list[JobId]]:
    async with core.db.transaction() as tx:
        group = await grouping.create(tx, "grouped", "ann", data)
        jobs = await core.enqueue(tx, [NewJob("grouped", {}, owner="ann", group_id=group) for _ in range(n)])
        if seal:
            await grouping.seal(core, tx, group)
    return group, jobs


async def claim(core: Core, n: int) -> dict[JobId, Attempt]:
    attempts = {attempt.id: attempt for attempt in await (await worker(core)).claim("grouped", limit=n)}
    assert len(attempts) == n
    return attempts


async def counters(connection: Connection, group: GroupId) -> tuple[int, int, int, int, bool]:
    row = await connection.fetchrow("SELECT * FROM groups WHERE id = $1", group)
    assert row is not None
    return row["total"], row["open"], row["failed"], row["cancelled"], row["ended_at"] is not None


async def test_it_ends_with_its_last_job(core: Core, connection: Connection) -> None:
    group, jobs = await make(core, 4)
    attempts = await claim(core, 3)
    [pending] = set(jobs) - set(attempts)
    one, two, three = attempts.values()
    await one.finish()
    await two.finish("permanent")
    await core.cancel([pending], actor="ann")
    assert await counters(connection, group) == (4, 1, 1, 1, False)
    assert ended == []
    await three.finish()
    assert await counters(connection, group) == (4, 0, 1, 1, True)
    [told] = ended
    assert (told.id, told.open, told.failed, told.cancelled, told.total) == (group, 0, 1, 1, 4)


async def test_a_retry_that_waits_or_yields_is_still_open(core: Core, connection: Connection) -> None:
    group, _ = await make(core, 1)
    played = await worker(core)
    await (await played.claim_one("grouped")).finish("transient", delay_seconds=0)
    await (await played.claim_one("grouped")).finish("again")
    await (await played.claim_one("grouped")).release()
    assert await counters(connection, group) == (1, 1, 0, 0, False)


async def test_the_last_two_at_once_end_it_once(core: Core, connection: Connection) -> None:
    """Each sees the other as still open unless the counter itself is what they meet at."""
    for _ in range(4):
        group, jobs = await make(core, 4)
        attempts = await claim(core, 4)
        ended.clear()
        await asyncio.gather(*(attempts[job].finish() for job in jobs))
        assert [told.id for told in ended] == [group]
        assert await counters(connection, group) == (4, 0, 0, 0, True)


async def test_batches_over_several_groups_do_not_lock_each_other_out(core: Core, connection: Connection) -> None:
    groups = [await make(core, 6) for _ in range(5)]
    attempts = await claim(core, 30)
    link = core.link()

    def batch(jobs: list[JobId]) -> wire.Finish:
        return wire.Finish(
            items=[wire.FinishItem(id=job, attempt_id=attempts[job].job.attempt_id, outcome="done") for job in jobs]
        )

    thirds = [[job for _, jobs in groups for job in jobs[n::3]] for n in range(3)]
    await asyncio.gather(
        link.finish(batch(thirds[0])), link.finish(batch(thirds[1][::-1])), link.finish(batch(thirds[2]))
    )
    assert sorted(told.id for told in ended) == sorted(group for group, _ in groups)


async def test_it_cannot_end_before_it_is_sealed(core: Core, connection: Connection) -> None:
    group, jobs = await make(core, 1, seal=False)
    await (await claim(core, 1))[jobs[0]].finish()
    assert ended == []
    async with core.db.transaction() as tx:
        await grouping.seal(core, tx, group)
    assert [told.id for told in ended] == [group]
    assert (await counters(connection, group))[4]


async def test_an_ended_one_takes_no_more_jobs(core: Core) -> None:
    group, jobs = await make(core, 1)
    await (await claim(core, 1))[jobs[0]].finish()
    with pytest.raises(Refused) as refused:
        await submit(core, "grouped", group_id=group)
    assert refused.value.code == "group_finished"


async def test_a_lost_job_counts_as_failed(core: Core, clock: DatabaseClock, connection: Connection) -> None:
    await connection.execute("UPDATE kinds SET loss_limit = 0 WHERE name = 'grouped'")
    group, _ = await make(core, 1)
    await claim(core, 1)
    await served(core, clock, seconds=70)
    assert await counters(connection, group) == (1, 0, 1, 0, True)


async def test_cleanups_do_not_count(core: Core, connection: Connection) -> None:
    group, [job] = await make(core, 1)
    attempt = (await claim(core, 1))[job]
    await core.cancel([job], actor="ann")
    assert await counters(connection, group) == (1, 0, 0, 1, True)
    await attempt.release()
    [cleanup] = await (await worker(core)).claim("grouped")
    await cleanup.finish()
    assert await counters(connection, group) == (1, 0, 0, 1, True)
    assert len(ended) == 1


async def test_a_replica_that_does_not_know_its_kind_leaves_its_hook_to_one_that_does(
    core: Core, dsn: str, connection: Connection
) -> None:
    """As in a rolling upgrade, or where its package cannot be imported."""
    group, [job] = await make(core, 1)
    async with open_core(dsn, Kinds(TEST_KINDS), metrics=Metrics(CollectorRegistry())) as stranger:
        await stranger.cancel([job], actor="ann")
        assert await counters(connection, group) == (1, 0, 0, 1, True)
        assert await grouping.repeat_hooks(stranger) == 0
    assert ended == []

    assert await grouping.repeat_hooks(core) == 1
    assert [told.id for told in ended] == [group]


class TestRetry:
    async def test_it_reopens_the_group_and_takes_the_old_outcome_back(
        self, core: Core, connection: Connection
    ) -> None:
        group, jobs = await make(core, 2)
        attempts = await claim(core, 2)
        await attempts[jobs[0]].finish()
        await attempts[jobs[1]].finish("permanent")
        assert await counters(connection, group) == (2, 0, 1, 0, True)
        retry = await core.retry(jobs[1], actor="ann")
        assert retry.group_id == group
        assert await counters(connection, group) == (2, 1, 0, 0, False)
        again = {a.id: a for a in await (await worker(core)).claim("grouped")}[retry.id]
        await again.finish()
        assert await counters(connection, group) == (2, 0, 0, 0, True)
        assert [(told.failed, told.cancelled) for told in ended] == [(1, 0), (0, 0)]

    async def test_chains_of_retries_count_their_last_outcome(self, core: Core, connection: Connection) -> None:
        group, [job] = await make(core, 1)
        await core.cancel([job], actor="ann")
        for outcome, failed in (("permanent", 1), ("permanent", 1), ("done", 0)):
            job = (await core.retry(job, actor="ann")).id
            assert await counters(connection, group) == (1, 1, 0, 0, False)
            attempt = {a.id: a for a in await (await worker(core)).claim("grouped")}[job]
            await attempt.finish(outcome)
            assert await counters(connection, group) == (1, 0, failed, 0, True)

    async def test_a_final_group_stays_finished(self, core: Core, connection: Connection) -> None:
        group, [job] = await make(core, 1, final=True)
        await (await claim(core, 1))[job].finish("permanent")
        with pytest.raises(Refused) as refused:
            await core.retry(job, actor="ann")
        assert refused.value.code == "group_finished"
        assert await counters(connection, group) == (1, 0, 1, 0, True)

    async def test_racing_the_end_of_a_sibling(self, core: Core, connection: Connection) -> None:
        for _ in range(5):
            group, jobs = await make(core, 2)
            attempts = await claim(core, 2)
            await attempts[jobs[0]].finish("permanent")
            retry, _ = await asyncio.gather(core.retry(jobs[0], actor="ann"), attempts[jobs[1]].finish())
            assert await counters(connection, group) == (2, 1, 0, 0, False)
            again = {a.id: a for a in await (await worker(core)).claim("grouped", limit=20)}[retry.id]
            await again.finish()
            assert await counters(connection, group) == (2, 0, 0, 0, True)

    async def test_a_refused_one_leaves_the_counters(self, core: Core, connection: Connection) -> None:
        group, [job] = await make(core, 1)
        await (await claim(core, 1))[job].finish("permanent")
        await core.drain(True, actor="ops")
        with pytest.raises(Refused):
            await core.retry(job, actor="ann")
        assert await counters(connection, group) == (1, 0, 1, 0, True)


def counted() -> tuple[float, float]:
    """What the hooks counted so far: jobs of groups that ended, and the seconds that these were open."""
    return value_of(COUNTED.collect(), "groups_ended_total"), value_of(LASTED.collect(), "groups_lasted_sum")


def value_of(collected: Iterable[Metric], name: str) -> float:
    [value] = [sample.value for metric in collected for sample in metric.samples if sample.name == name]
    return value


class TestHooks:
    async def test_the_jobs_and_events_that_it_returns_are_made_with_the_end(
        self, core: Core, connection: Connection
    ) -> None:
        group, [job] = await make(core, 1, announces=True)
        await (await claim(core, 1))[job].finish()
        made = await connection.fetchrow("SELECT kind, owner, payload->>'group' AS payload FROM jobs")
        assert made is not None
        assert tuple(made) == ("plain", "bob", str(group))
        event = await connection.fetchrow("SELECT type, subject, owner FROM events")
        assert event is not None
        assert tuple(event) == ("thing.made", str(group), "ann"), "the event belongs to the group's owner"

    async def test_what_cannot_be_made_is_repeated_as_a_whole(self, core: Core, connection: Connection) -> None:
        """The second thing is refused: the first one and what the hook wrote go with it, and the end stands."""
        broken = Kinds(kind for kind in core.kinds if kind.name != "plain")
        known, core.kinds = core.kinds, broken
        group, [job] = await make(core, 1, announces=True)
        with capture_logs():
            assert await (await claim(core, 1))[job].finish() == "accepted"
        assert (await counters(connection, group))[4]
        for table in ("events", "settings", "jobs"):
            assert await connection.fetchval(f"SELECT count(*) FROM {table}") == 0, table
        core.kinds = known
        assert await core.finish_group_hooks() == 1
        for table in ("events", "settings", "jobs"):
            assert await connection.fetchval(f"SELECT count(*) FROM {table}") == 1, table

    async def test_those_of_a_kind_that_is_gone_are_told_by_doctor(self, core: Core) -> None:
        async def told() -> list[Finding]:
            return [each async for each in on_work.kinds(core, Config()) if "what follows waits" in each.message]

        known, core.kinds = core.kinds, Kinds(kind for kind in core.kinds if kind.name != "grouped")
        async with core.db.transaction() as tx:
            for _ in range(2):
                await grouping.seal(core, tx, await grouping.create(tx, "grouped", "ann", {}))
        [finding] = await told()
        assert finding.level == "warning"
        assert finding.message.startswith("2 groups of 'grouped' ended")
        core.kinds = known
        assert await told() == [], "this control plane runs them in a moment"
        assert await core.finish_group_hooks() == 2

    async def test_what_it_counts_is_counted_once_and_only_after_the_commit(self, core: Core) -> None:
        before, seconds = counted()
        BROKEN.add("hook")
        await make(core, 0)
        _, jobs = await make(core, 2)
        with capture_logs():
            for attempt in (await claim(core, 2)).values():
                await attempt.finish()
        assert counted() == (before, seconds), "both hooks raised, and what they did was undone"
        BROKEN.clear()
        with contextlib.suppress(RuntimeError):
            async with core.db.transaction() as tx:
                assert await tx.fetchval("SELECT count(*) FROM groups WHERE hook_due") == 2
                await core.kinds["grouped"].on_group_end(tx, ended[0])  # type: ignore[misc]  # this kind has the hook
                raise RuntimeError
        assert counted() == (before, seconds), "the transaction was undone"
        assert await core.finish_group_hooks() == 2
        assert counted() == (before + len(jobs), seconds + 10)

    async def test_if_it_raises_the_end_stands_and_a_pass_repeats_it(self, core: Core, connection: Connection) -> None:
        BROKEN.add("hook")
        group, [job] = await make(core, 1)
        assert await (await claim(core, 1))[job].finish() == "accepted"
        assert (await read(core, job)).status == "completed"
        assert (await counters(connection, group))[4]
        assert await connection.fetchval("SELECT count(*) FROM settings") == 0, "what it wrote is gone"
        assert await core.finish_group_hooks() == 0
        BROKEN.clear()
        assert await core.finish_group_hooks() == 1
        assert await connection.fetchval("SELECT count(*) FROM settings") == 1
        assert await core.finish_group_hooks() == 0

    async def test_many_that_always_fail_do_not_stand_before_one_that_would_succeed(
        self, core: Core, connection: Connection
    ) -> None:
        BROKEN.update({"hook", "broken"})
        with capture_logs():
            for _ in range(101):
                await make(core, 0, name="broken")
            good, _ = await make(core, 0, name="good")
            BROKEN.discard("hook")
            assert await core.finish_group_hooks() == 1
        assert not await connection.fetchval("SELECT hook_due FROM groups WHERE id = $1", good)

    async def test_two_passes_at_once_run_it_once(self, core: Core) -> None:
        BROKEN.add("hook")
        await make(core, 0)
        BROKEN.clear()
        ended.clear()
        assert sum(await asyncio.gather(*(core.finish_group_hooks() for _ in range(4)))) == 1
        assert len(ended) == 1

    async def test_a_hook_for_an_end_that_was_taken_back_is_not_repeated(self, core: Core) -> None:
        BROKEN.add("hook")
        _, [job] = await make(core, 1)
        await (await claim(core, 1))[job].finish("permanent")
        await core.retry(job, actor="ann")
        BROKEN.clear()
        assert await core.finish_group_hooks() == 0

    async def test_when_the_rescuer_ends_the_last_job(
        self, core: Core, clock: DatabaseClock, connection: Connection
    ) -> None:
        BROKEN.add("hook")
        await connection.execute("UPDATE kinds SET loss_limit = 0 WHERE name = 'grouped'")
        await make(core, 1)
        await claim(core, 1)
        await served(core, clock, seconds=70)
        assert len(ended) == 1
        assert (await rescuing.rescue(core)).failed == 0


async def test_jobs_and_group_are_made_together_or_not_at_all(core: Core, connection: Connection) -> None:
    with contextlib.suppress(RuntimeError):
        async with core.db.transaction() as tx:
            group = await grouping.create(tx, "grouped", "ann")
            await core.enqueue(tx, [NewJob("grouped", {}, group_id=group)])
            raise RuntimeError
    assert await connection.fetchval("SELECT count(*) FROM groups") == 0
    assert await connection.fetchval("SELECT count(*) FROM jobs") == 0
