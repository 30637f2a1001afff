"""What becomes of instances whose time is over, that nobody uses, that wait for a snapshot, or that come near their memory."""

from collections import Counter
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import orjson
import pytest

from paddock.background import instance_orchestration, lifecycle, resource_monitor
from paddock.background.ticks import Budget
from paddock.config import Config
from paddock.instances import growing, sizing, watching
from paddock.jobs import wire
from paddock.jobs.core import Core
from paddock.jobs.model import NewJob
from paddock.pass_metrics import pass_metrics
from tests.background.ticking import Pass, passed, tick_of
from tests.background.world import PlayedRuntime, add_instance, open_runtime, row_of
from tests.conftest import DatabaseClock
from tests.snapshots.making import claim, complete, make_snapshot


@pytest.fixture
def runtime(config: Config) -> PlayedRuntime:
    return open_runtime(config)


def answers(monkeypatch: pytest.MonkeyPatch, **status: Any) -> None:
    async def told(*_: object) -> dict[str, Any] | None:
        return status or None

    monkeypatch.setattr(watching, "status_of", told)


async def status(core: Core, id: UUID) -> str | None:
    row = await row_of(core, id)
    return None if row is None else str(row["status"])


async def events(core: Core, type: str) -> int:
    async with core.db.transaction() as tx:
        return int(await tx.fetchval("SELECT count(*) FROM events WHERE type = $1", type))


class TestTime:
    async def test_one_past_its_ttl_is_stopped_and_its_end_says_why(
        self, core: Core, config: Config, runtime: PlayedRuntime, clock: DatabaseClock
    ) -> None:
        before = pass_metrics().ttl_ended["instance"]._value.get()
        made, failed = await add_instance(core), await add_instance(core, "failed")
        await clock.advance(timedelta(hours=24))
        assert (await passed(lifecycle.run, core, config=config))["instances_ended"] == 2
        row = await row_of(core, made.id)
        assert row is not None
        assert (row["status"], row["deleted_by"], row["delete_reason"]) == (
            "stopping",
            "paddock",
            "its TTL of PT24H was over",
        )
        assert await status(core, failed.id) == "stopping", "failed ones too"
        assert pass_metrics().ttl_ended["instance"]._value.get() == before + 2
        assert (await passed(lifecycle.run, core, config=config))["instances_ended"] == 0

    async def test_one_that_was_extended_since_the_list_was_read_lives(
        self, core: Core, config: Config, clock: DatabaseClock
    ) -> None:
        made = await add_instance(core)
        await clock.advance(timedelta(hours=24))
        [item] = await watching.expired(core.db, None, 100)
        async with core.db.transaction() as tx:
            await tx.execute("UPDATE instances SET expires_at = expires_at + interval '1 day'")
        assert await watching.expire(core, item) is False
        assert await status(core, made.id) == "running"

    async def test_its_end_is_announced_once_and_again_when_it_was_put_off(
        self, core: Core, config: Config, runtime: PlayedRuntime, clock: DatabaseClock
    ) -> None:
        await add_instance(core)
        await clock.advance(timedelta(hours=23, minutes=44))
        await passed(lifecycle.run, core, config=config)
        assert await events(core, "instance.expiring") == 0
        await clock.advance(minutes=2)
        for _ in range(2):
            await passed(lifecycle.run, core, config=config)
        assert await events(core, "instance.expiring") == 1
        async with core.db.transaction() as tx:
            await tx.execute("UPDATE instances SET expires_at = expires_at + interval '1 minute'")
        await passed(lifecycle.run, core, config=config)
        assert await events(core, "instance.expiring") == 2


class Killed(BaseException):
    """The replica died here."""


async def killed_after(
    run: Pass, core: Core, config: Config, counted: str, n: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pass that dies when it has counted so often: after the commit, and before anything else."""
    tick = await tick_of(core, config=config)
    count = tick.count

    def dies(name: str, more: int = 1) -> None:
        count(name, more)
        if tick.found[counted] == n:
            raise Killed

    monkeypatch.setattr(tick, "count", dies)
    with pytest.raises(Killed):
        await run(tick)


class TestKills:
    async def test_lifecycle_killed_after_any_of_its_ends_ends_each_once(
        self, core: Core, config: Config, runtime: PlayedRuntime, clock: DatabaseClock, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        made = [await add_instance(core) for _ in range(4)]
        await clock.advance(timedelta(hours=24))
        for n in (1, 2):
            await killed_after(lifecycle.run, core, config, "instances_ended", n, monkeypatch)
        assert (await passed(lifecycle.run, core, config=config))["instances_ended"] == 1, "three had ended before"
        assert [await status(core, one.id) for one in made] == ["stopping"] * 4
        async with core.db.transaction() as tx:
            assert await tx.fetchval("SELECT count(*) FROM jobs WHERE kind = 'instance_stop'") == 4
        assert not await passed(lifecycle.run, core, config=config)

    async def test_instance_orchestration_killed_after_any_of_its_moves_moves_each_once(
        self, core: Core, config: Config, runtime: PlayedRuntime, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        snapshot = await make_snapshot(core)
        ids = [await TestWaiting.waiting(core, snapshot.id) for _ in range(3)]
        for attempt in (await claim(core)).values():
            await complete(attempt)
        run = instance_orchestration.run
        await killed_after(run, core, config, "instances_transitioned_to_starting", 1, monkeypatch)
        assert (await passed(run, core, config=config))["instances_transitioned_to_starting"] == 2
        assert [await status(core, id) for id in ids] == ["starting"] * 3
        async with core.db.transaction() as tx:
            assert await tx.fetchval("SELECT count(*) FROM jobs WHERE kind = 'instance_start'") == 3


class TestIdleness:
    async def idle(self, core: Core, clock: DatabaseClock) -> UUID:
        made = await add_instance(core)
        await clock.advance(timedelta(hours=4))
        return made.id

    async def test_one_that_nobody_used_ends(
        self, core: Core, config: Config, clock: DatabaseClock, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        id = await self.idle(core, clock)
        answers(monkeypatch, in_flight=0, queued=0, last_activity_at=(clock.at - timedelta(hours=5)).isoformat())
        assert (await passed(lifecycle.run, core, config=config))["inactive_instances_ended"] == 1
        assert await status(core, id) == "stopping"

    async def test_a_query_in_flight_is_use(
        self, core: Core, config: Config, clock: DatabaseClock, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        id = await self.idle(core, clock)
        answers(monkeypatch, in_flight=1, queued=0, last_activity_at=None)
        assert (await passed(lifecycle.run, core, config=config))["skipped_in_use"] == 1
        assert await status(core, id) == "running"

    async def test_no_answer_is_no_idleness(
        self, core: Core, config: Config, clock: DatabaseClock, runtime: PlayedRuntime
    ) -> None:
        id = await self.idle(core, clock)
        assert (await passed(lifecycle.run, core, config=config))["skipped_unreachable"] == 1
        assert await status(core, id) == "running"

    async def test_one_that_was_used_while_it_was_asked_lives(self, core: Core, clock: DatabaseClock) -> None:
        await self.idle(core, clock)
        [item] = await watching.idle(core.db, None, 100)
        async with core.db.transaction() as tx:
            await tx.execute("UPDATE instances SET last_activity_at = paddock_now()")
        assert await watching.end_idle(core, item) is False


class TestWaiting:
    @staticmethod
    async def waiting(core: Core, snapshot: UUID | None) -> UUID:
        made = await add_instance(core, "waiting_for_snapshot", named=False)
        async with core.db.transaction() as tx:
            await tx.execute(
                "UPDATE instances SET pending_snapshot_id = $2, snapshot_id = NULL, generation = NULL WHERE id = $1",
                made.id,
                snapshot,
            )
        return made.id

    async def followed(self, core: Core, config: Config) -> Counter[str]:
        return await passed(instance_orchestration.run, core, config=config)

    async def test_a_ready_snapshot_starts_it(self, core: Core, config: Config, runtime: PlayedRuntime) -> None:
        snapshot = await make_snapshot(core)
        id = await self.waiting(core, snapshot.id)
        assert not await self.followed(core, config), "it is being made"
        for attempt in (await claim(core)).values():
            await complete(attempt)
        assert (await self.followed(core, config))["instances_transitioned_to_starting"] == 1
        assert await status(core, id) == "starting"
        assert not await self.followed(core, config)

    async def test_a_failed_one_fails_it_with_its_words(
        self, core: Core, config: Config, runtime: PlayedRuntime
    ) -> None:
        snapshot = await make_snapshot(core)
        id = await self.waiting(core, snapshot.id)
        for attempt in (await claim(core)).values():
            await attempt.finish("permanent", error=wire.Error(code="x", message="no such table"))
        before = pass_metrics().to_failed._value.get()
        assert (await self.followed(core, config))["instances_transitioned_to_failed"] == 1
        row = await row_of(core, id)
        assert row is not None
        assert (row["code"], row["message"]) == ("DATA_LOAD_ERROR", "Snapshot failed: no such table")
        assert pass_metrics().to_failed._value.get() == before + 1

    async def test_one_that_is_gone_fails_it(self, core: Core, config: Config, runtime: PlayedRuntime) -> None:
        id = await self.waiting(core, uuid4())
        await self.followed(core, config)
        row = await row_of(core, id)
        assert row is not None
        assert row["message"] == "Pending snapshot was deleted before it could complete"

    async def test_one_that_names_none_is_left_and_said(
        self, core: Core, config: Config, runtime: PlayedRuntime
    ) -> None:
        id = await self.waiting(core, None)
        assert await self.followed(core, config) == {"instances_skipped": 1}
        assert await status(core, id) == "waiting_for_snapshot"


@dataclass
class Growing(PlayedRuntime):
    grows: bool = True


async def wanted_gb(core: Core) -> list[int]:
    """Of the jobs that are to grow an instance."""
    async with core.db.transaction() as tx:
        rows = await tx.fetch("SELECT payload FROM jobs WHERE kind = 'instance_grow'")
    return [int(orjson.loads(row["payload"])["memory_gb"]) for row in rows]


class TestReservedMemory:
    async def test_what_no_job_is_at_work_for_is_given_back(
        self, core: Core, config: Config, runtime: PlayedRuntime
    ) -> None:
        """As it stays where a control plane of the version before ends the job, which knows nothing of it."""
        lost, stopping, growing_now = [await add_instance(core) for _ in range(3)]
        async with core.db.transaction() as tx:
            await tx.execute("UPDATE instances SET growing_to_gb = 2")
            row = await tx.fetchrow("SELECT * FROM instances WHERE id = $1", growing_now.id)
            assert row is not None
            await core.enqueue(tx, [growing.grow_job(row, memory_gb=2, percent=93, urgent=True)])
        await core.submit([NewJob("instance_stop", {"instance_id": str(stopping.id)})], public=False)
        assert await passed(resource_monitor.run, core, config=config) == {"lost_growths_ended": 2}
        rows = [await row_of(core, made.id) for made in (lost, stopping, growing_now)]
        assert [None if row is None else row["growing_to_gb"] for row in rows] == [None, None, 2]
        assert not await passed(resource_monitor.run, core, config=config)


class TestMemory:
    async def watched(
        self, core: Core, config: Config, runtime: PlayedRuntime, notes: dict[str, Any]
    ) -> tuple[Counter[str], dict[str, Any]]:
        tick = await tick_of(core, config=config, notes=notes)
        await resource_monitor.run(tick, runtime=runtime)
        return tick.found, tick.notes

    async def test_high_for_two_minutes_grows_it_once(
        self, core: Core, config: Config, clock: DatabaseClock, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        await add_instance(core)
        runtime = Growing()
        answers(monkeypatch, outside_pool_bytes=int(0.85 * sizing.GB / 2))
        found, notes = await self.watched(core, config, runtime, {})
        await clock.advance(seconds=119)
        found, notes = await self.watched(core, config, runtime, notes)
        assert not found
        await clock.advance(seconds=1)
        found, notes = await self.watched(core, config, runtime, notes)
        assert found == {"proactive_resizes": 1}
        assert await wanted_gb(core) == [2], "a job of that instance does it"

    async def test_what_is_known_of_an_instance_outlives_a_pass_whose_budget_ended_before_it(
        self, core: Core, config: Config, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        await add_instance(core)
        answers(monkeypatch, outside_pool_bytes=int(0.85 * sizing.GB / 2))
        _, notes = await self.watched(core, config, Growing(), {})
        assert len(notes) == 1
        over = Budget(timedelta(0))
        tick = await tick_of(core, config=config, notes=notes, budget=over)
        await resource_monitor.run(tick, runtime=Growing())
        assert tick.left_at is not None
        assert tick.notes == notes

    async def test_one_sample_below_begins_the_count_anew(
        self, core: Core, config: Config, clock: DatabaseClock, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        await add_instance(core)
        notes: dict[str, Any] = {}
        for share in (0.85, 0.5, 0.85):
            answers(monkeypatch, outside_pool_bytes=int(share * sizing.GB / 2))
            found, notes = await self.watched(core, config, Growing(), notes)
            assert not found
            await clock.advance(seconds=100)

    async def test_urgent_is_a_minute_and_the_next_resize_five_minutes_later(
        self, core: Core, config: Config, clock: DatabaseClock, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        await add_instance(core)
        runtime = Growing()
        answers(monkeypatch, outside_pool_bytes=8 * sizing.GB)
        acted = []
        notes: dict[str, Any] = {}
        for second in range(0, 601, 60):
            found, notes = await self.watched(core, config, runtime, notes)
            acted += [second] if found else []
            async with core.db.transaction() as tx:  # it is done at once
                await tx.execute("DELETE FROM jobs WHERE kind = 'instance_grow'")
            await clock.advance(seconds=60)
        assert acted == [60, 360]

    async def test_a_runtime_that_cannot_is_an_event_and_no_failure(
        self, core: Core, config: Config, clock: DatabaseClock, monkeypatch: pytest.MonkeyPatch, runtime: PlayedRuntime
    ) -> None:
        await add_instance(core)
        answers(monkeypatch, outside_pool_bytes=sizing.GB)
        failures = pass_metrics().resource_monitor_failures._value.get()
        _, notes = await self.watched(core, config, runtime, {})
        await clock.advance(seconds=60)
        found, _ = await self.watched(core, config, runtime, notes)
        assert found == {"resizes_not_made": 1}
        assert await events(core, "instance.memory_high") == 1
        assert pass_metrics().resource_monitor_failures._value.get() == failures

    async def test_what_cannot_be_done_is_told_once_for_each_generation(
        self, core: Core, config: Config, clock: DatabaseClock, monkeypatch: pytest.MonkeyPatch, runtime: PlayedRuntime
    ) -> None:
        made = await add_instance(core)
        notes: dict[str, Any] = {}
        for share in (2.0, 2.0, 0.5, 2.0, 2.0, 2.0):
            answers(monkeypatch, outside_pool_bytes=int(share * sizing.GB / 2))
            _, notes = await self.watched(core, config, runtime, notes)
            await clock.advance(seconds=301)
        assert await events(core, "instance.memory_high") == 1
        async with core.db.transaction() as tx:
            await tx.execute("UPDATE instances SET generation = $2 WHERE id = $1", made.id, uuid4())
        for _ in range(3):
            _, notes = await self.watched(core, config, runtime, notes)
            await clock.advance(seconds=301)
        assert await events(core, "instance.memory_high") == 2
        assert len(notes) == 1, "the generation before is forgotten"

    async def test_unknown_usage_is_no_reason_to_act(self, core: Core, config: Config, runtime: PlayedRuntime) -> None:
        await add_instance(core)
        assert (await self.watched(core, config, runtime, {})) == (Counter(), {})
