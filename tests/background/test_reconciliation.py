"""`reconciliation`: the rules that keep what is alive safe, each of which fails without its line, and what is found otherwise."""

import asyncio
from collections import Counter
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from structlog.testing import capture_logs

from paddock.background import gauges, reconciliation
from paddock.background.ticks import Budget
from paddock.config import Config
from paddock.instances import watching
from paddock.jobs.core import Core
from paddock.jobs.errors import StaleAttempt
from paddock.jobs.model import NewJob
from paddock.pass_metrics import pass_metrics
from tests.background.ticking import tick_of
from tests.background.world import NOW, PlayedRuntime, add_instance, changed, open_runtime, row_of

FIRST = "falkor-wrapper-1"


@pytest.fixture
def runtime(config: Config) -> PlayedRuntime:
    return open_runtime(config)


async def reconciled(
    core: Core, config: Config, *, now: datetime = NOW, notes: dict[str, Any] | None = None, force: bool = False
) -> tuple[Counter[str], dict[str, Any]]:
    tick = await tick_of(core, config=config, notes=notes or {}, force=force)
    await reconciliation.run(tick, now=now)
    return tick.found, tick.notes


async def hold_lock(core: Core, id: UUID) -> None:
    """A live job has the instance in hand."""
    await core.submit([NewJob("instance_stop", {"instance_id": str(id)})], public=False)


async def test_a_world_in_order_finds_nothing(core: Core, config: Config, runtime: PlayedRuntime) -> None:
    for _ in range(3):
        made = await add_instance(core)
        runtime.add(made.pod_name, made.id, made.generation)
    assert not (await reconciled(core, config))[0]
    assert runtime.deleted == []


async def test_without_a_runtime_it_succeeds_and_finds_nothing(core: Core, config: Config) -> None:
    from paddock.instances.settings import InstanceSettings

    await add_instance(core)
    nowhere = config.with_settings(InstanceSettings(runtime="none"))
    assert not (await reconciled(core, nowhere))[0]


class TestOrphans:
    async def test_one_is_deleted_by_its_uid_and_said_loudly(
        self, core: Core, config: Config, runtime: PlayedRuntime
    ) -> None:
        metrics = pass_metrics()
        before = metrics.orphans_detected._value.get(), metrics.orphans_cleaned._value.get()
        orphan = runtime.add(FIRST, uuid4())
        with capture_logs() as lines:
            found, _ = await reconciled(core, config)
        assert (found["orphaned_pods_detected"], found["orphaned_pods_cleaned"]) == (1, 1)
        assert runtime.deleted == [(FIRST, orphan.uid, timedelta(seconds=30))]
        [said] = [line for line in lines if line["event"] == "orphaned_pod_detected"]
        assert (said["log_level"], said["severity"]) == ("error", "BUG_INDICATOR")
        assert said["message"] == "Delete logic should have removed this pod"
        assert [line["pod_name"] for line in lines if line["event"] == "orphaned_pod_deleted"] == [FIRST]
        after = metrics.orphans_detected._value.get(), metrics.orphans_cleaned._value.get()
        assert after == (before[0] + 1, before[1] + 1)

    async def test_a_young_one_is_left_and_a_pass_comes_when_it_is_old(
        self, core: Core, config: Config, runtime: PlayedRuntime
    ) -> None:
        runtime.add(FIRST, uuid4(), made_at=NOW - timedelta(seconds=119))
        assert (await reconciled(core, config))[0]["skipped_young"] == 1
        assert runtime.deleted == []
        async with core.db.transaction() as tx:
            [job] = await tx.fetch("SELECT due_at > paddock_now() AS later FROM jobs WHERE kind = 'reconciliation'")
        assert job["later"]
        await reconciled(core, config)
        async with core.db.transaction() as tx:
            assert await tx.fetchval("SELECT count(*) FROM jobs WHERE kind = 'reconciliation'") == 1, "once"
        assert (await reconciled(core, config, now=NOW + timedelta(seconds=1)))[0]["orphaned_pods_cleaned"] == 1

    async def test_one_that_another_start_took_the_name_of_is_not_meant(
        self, core: Core, config: Config, runtime: PlayedRuntime
    ) -> None:
        orphan = runtime.add(FIRST, uuid4())
        runtime.before_get = lambda name: runtime.pods.update({name: changed(orphan, uid="another")})
        found, _ = await reconciled(core, config)
        assert found["orphaned_pods_detected"] == 0
        assert runtime.deleted == []

    async def test_one_that_an_instance_names_by_now_is_left(
        self, core: Core, config: Config, runtime: PlayedRuntime, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        made = await add_instance(core, named=False)
        runtime.add(made.pod_name, made.id, made.generation)
        unnamed = reconciliation._unnamed

        async def then_named(*args: Any, **kwargs: Any) -> Any:
            found = await unnamed(*args, **kwargs)
            async with core.db.transaction() as tx:
                await tx.execute("UPDATE instances SET pod_name = $2 WHERE id = $1", made.id, made.pod_name)
            return found

        monkeypatch.setattr(reconciliation, "_unnamed", then_named)
        found, _ = await reconciled(core, config)
        assert found["orphaned_pods_detected"] == 0
        assert runtime.deleted == []

    async def test_what_a_live_job_has_in_hand_is_left(
        self, core: Core, config: Config, runtime: PlayedRuntime
    ) -> None:
        id = uuid4()
        runtime.add(FIRST, id)
        await hold_lock(core, id)
        found, _ = await reconciled(core, config)
        assert found["skipped_busy"] == 1
        assert runtime.deleted == []

    async def test_too_many_at_once_stay_until_somebody_forces_it(
        self, core: Core, config: Config, runtime: PlayedRuntime
    ) -> None:
        for n in range(4):
            runtime.add(f"pod-{n}", uuid4())
        found, _ = await reconciled(core, config)
        assert (found["orphaned_pods_detected"], found["orphaned_pods_held_back"], found["skipped_too_many"]) == (
            4,
            4,
            1,
        )
        assert runtime.deleted == []
        found, _ = await reconciled(core, config, force=True)
        assert found["orphaned_pods_cleaned"] == 4
        assert runtime.pods == {}

    async def test_a_forced_pass_begins_at_the_first_wherever_the_one_before_stopped(
        self, core: Core, config: Config, runtime: PlayedRuntime
    ) -> None:
        for n in range(4):
            runtime.add(f"pod-{n}", uuid4())
        stopped_at = {"step": "pods", "after": "pod-2"}
        tick = await tick_of(core, config=config, force=True, cursor=stopped_at)
        await reconciliation.run(tick, now=NOW)
        assert runtime.pods == {}

    async def test_pages_that_hold_no_instance_end_with_the_budget_too(
        self, core: Core, config: Config, runtime: PlayedRuntime, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(reconciliation, "PAGE", 2)
        for n in range(6):
            runtime.add(f"pod-{n}", uuid4())
        tick = await tick_of(core, config=config, budget=Budget(timedelta(0)))
        await reconciliation.run(tick, now=NOW)
        assert tick.left_at == {"step": "pods", "after": "pod-1"}
        assert runtime.deleted == []

    async def test_those_that_the_budget_leaves_unconfirmed_count_for_the_limit(
        self, core: Core, config: Config, runtime: PlayedRuntime
    ) -> None:
        """Four of four are too many, though only two were asked about."""
        for n in range(4):
            runtime.add(f"pod-{n}", uuid4())
        confirmed: list[str] = []
        runtime.before_get = confirmed.append
        budget = Budget(timedelta(seconds=1), monotonic=lambda: float(len(confirmed) >= 2))
        tick = await tick_of(core, config=config, budget=budget)
        await reconciliation.run(tick, now=NOW)
        assert confirmed == ["pod-0", "pod-1"]
        assert (tick.found["skipped_too_many"], runtime.deleted) == (1, [])

    async def test_a_fifth_of_many_is_not_too_many(self, core: Core, config: Config, runtime: PlayedRuntime) -> None:
        for _ in range(20):
            made = await add_instance(core)
            runtime.add(made.pod_name, made.id, made.generation)
        for n in range(5):
            runtime.add(f"pod-{n}", uuid4())
        assert (await reconciled(core, config))[0]["orphaned_pods_cleaned"] == 5

    async def test_those_that_were_held_back_are_named_to_whoever_might_force_it(
        self, core: Core, config: Config, runtime: PlayedRuntime
    ) -> None:
        for n in range(30):
            runtime.add(f"pod-{n:02}", uuid4())
        _, notes = await reconciled(core, config)
        assert notes["orphaned_pods_held_back"] == [f"pod-{n:02}" for n in range(20)]

    async def test_more_than_are_kept_in_mind_are_still_too_many(
        self, core: Core, config: Config, runtime: PlayedRuntime, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(reconciliation, "MOST_ORPHANS", 3)
        for n in range(10):
            runtime.add(f"pod-{n}", uuid4())
        found, _ = await reconciled(core, config)
        assert (found["skipped_too_many"], runtime.deleted) == (1, [])

    async def test_a_replica_that_wakes_in_its_deletes_counts_nothing_that_its_heir_counts(
        self, core: Core, config: Config, runtime: PlayedRuntime
    ) -> None:
        for n in range(3):
            runtime.add(f"pod-{n}", uuid4())
        counted = pass_metrics().orphans_cleaned._value.get()
        saved: list[dict[str, Any]] = []

        async def loses_it(state: dict[str, Any]) -> None:
            if saved:
                raise StaleAttempt
            saved.append(state)

        sleeper = await tick_of(core, config=config, save=loses_it)
        with pytest.raises(StaleAttempt):
            await reconciliation.run(sleeper, now=NOW)
        assert runtime.pods == {}, "it deleted them, and could not say so"
        assert pass_metrics().orphans_cleaned._value.get() == counted
        heir = await tick_of(core, config=config, saved=saved[0])
        await reconciliation.run(heir, now=NOW)
        assert (heir.found["orphaned_pods_detected"], heir.found["orphaned_pods_cleaned"]) == (3, 3)
        assert pass_metrics().orphans_cleaned._value.get() == counted + 3

    async def test_one_that_cannot_be_deleted_is_counted_and_comes_again(
        self, core: Core, config: Config, runtime: PlayedRuntime
    ) -> None:
        def refuses(_name: str) -> None:
            raise ConnectionError("refused")

        runtime.add(FIRST, uuid4())
        runtime.before_delete = refuses
        failures = pass_metrics().orphan_failures._value.get()
        with capture_logs() as lines:
            found, _ = await reconciled(core, config)
        assert found["orphaned_pods_cleanup_failures"] == 1
        assert pass_metrics().orphan_failures._value.get() == failures + 1
        assert any(line["event"] == "orphaned_pod_deletion_failed" for line in lines)
        runtime.before_delete = None
        assert (await reconciled(core, config))[0]["orphaned_pods_cleaned"] == 1


class TestInstances:
    async def test_one_whose_pod_is_gone_failed(self, core: Core, config: Config, runtime: PlayedRuntime) -> None:
        made = await add_instance(core)
        found, _ = await reconciled(core, config)
        assert (found["missing_pods_detected"], found["missing_pods_handled"]) == (1, 1)
        row = await row_of(core, made.id)
        assert row is not None
        assert (row["status"], row["code"]) == ("failed", "UNEXPECTED_TERMINATION")
        assert row["message"] == f"Pod {made.pod_name} disappeared from Kubernetes"
        assert not (await reconciled(core, config))[0], "once"

    async def test_one_that_a_job_has_in_hand_is_that_jobs_business(
        self, core: Core, config: Config, runtime: PlayedRuntime
    ) -> None:
        made = await add_instance(core)
        await hold_lock(core, made.id)
        assert (await reconciled(core, config))[0] == {"skipped_busy": 1}
        row = await row_of(core, made.id)
        assert row is not None
        assert row["status"] == "running"

    async def test_one_that_was_never_created_is_started_again_three_times(
        self, core: Core, config: Config, runtime: PlayedRuntime
    ) -> None:
        made = await add_instance(core, "starting")
        notes: dict[str, Any] = {}
        for _ in range(3):
            found, notes = await reconciled(core, config, notes=notes)
            assert found["missing_pods_handled"] == 1
            async with core.db.transaction() as tx:  # its start ended without a word
                assert await tx.fetchval("SELECT count(*) FROM jobs WHERE kind = 'instance_start'") == 1
                await tx.execute("DELETE FROM jobs WHERE kind = 'instance_start'")
        await reconciled(core, config, notes=notes)
        row = await row_of(core, made.id)
        assert row is not None
        assert (row["status"], row["code"]) == ("failed", "STARTUP_FAILED")

    async def test_how_often_it_was_started_again_is_not_forgotten_while_a_start_is_at_work(
        self, core: Core, config: Config, runtime: PlayedRuntime
    ) -> None:
        await add_instance(core, "starting")
        _, notes = await reconciled(core, config)
        assert list(notes.values()) == [1]
        found, kept = await reconciled(core, config, notes=notes)
        assert (found["skipped_busy"], kept) == (1, notes)

    async def test_one_that_runs_while_its_pod_only_starts_is_left(
        self, core: Core, config: Config, runtime: PlayedRuntime
    ) -> None:
        made = await add_instance(core)
        runtime.add(made.pod_name, made.id, made.generation, state="starting")
        assert (await reconciled(core, config))[0] == {"skipped_not_ready": 1}

    async def test_one_whose_engine_gave_up_failed_and_its_pod_goes(
        self, core: Core, config: Config, runtime: PlayedRuntime, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        made, well = await add_instance(core), await add_instance(core)
        for one in (made, well):
            runtime.add(one.pod_name, one.id, one.generation)

        async def status_of(core: Core, config: Config, id: UUID) -> dict[str, Any]:
            error = {"cause": "database_does_not_open", "message": "It does not open."}
            return {"phase": "failed", "error": error} if id == made.id else {"phase": "ready"}

        monkeypatch.setattr(watching, "status_of", status_of)
        assert (await reconciled(core, config))[0]["status_drift_fixed"] == 1
        row, other = await row_of(core, made.id), await row_of(core, well.id)
        assert row is not None
        assert other is not None
        assert (row["status"], row["code"], row["message"]) == ("failed", "DATABASE_ERROR", "It does not open.")
        assert row["log"] == "its last words"
        assert other["status"] == "running"
        assert set(runtime.pods) == {well.pod_name}

    async def test_those_that_run_are_asked_together_and_none_after_the_budget(
        self, core: Core, config: Config, runtime: PlayedRuntime, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Ten that hang cost as much as one. The eleventh is the next pass's, since they took all of the budget."""
        for _ in range(11):
            made = await add_instance(core)
            runtime.add(made.pod_name, made.id, made.generation)
        asked, all_asked, over = 0, asyncio.Event(), False

        async def hanging(core: Core, config: Config, id: UUID) -> dict[str, Any] | None:
            nonlocal asked, over
            asked += 1
            if asked == 10:
                over = True
                all_asked.set()
            await asyncio.wait_for(all_asked.wait(), 60)
            return None

        monkeypatch.setattr(watching, "status_of", hanging)
        budget = Budget(timedelta(seconds=1), monotonic=lambda: 2 if over else 0)
        tick = await tick_of(core, config=config, budget=budget)
        await reconciliation.run(tick, now=NOW)
        assert asked == 10
        assert tick.left_at is not None
        assert not tick.found, "none of them is uncertain"

    async def test_one_that_cannot_be_asked_is_left_and_the_others_have_their_turn(
        self, core: Core, config: Config, runtime: PlayedRuntime, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        broken, missing = await add_instance(core), await add_instance(core)
        runtime.add(broken.pod_name, broken.id, broken.generation)

        async def status_of(core: Core, config: Config, id: UUID) -> dict[str, Any] | None:
            raise ConnectionError("the runtime is away")

        monkeypatch.setattr(watching, "status_of", status_of)
        found, _ = await reconciled(core, config)
        assert (found["skipped_uncertain"], found["missing_pods_handled"]) == (1, 1)
        row = await row_of(core, missing.id)
        assert row is not None
        assert row["status"] == "failed"

    async def test_where_the_budget_ends_the_next_pass_goes_on(
        self, core: Core, config: Config, runtime: PlayedRuntime
    ) -> None:
        for _ in range(7):
            await add_instance(core)
        left = iter(range(1000))
        tick = await tick_of(core, config=config, budget=Budget(timedelta(seconds=4), monotonic=lambda: next(left)))
        await reconciliation.run(tick, now=NOW)
        assert tick.left_at is not None
        assert 0 < tick.found["missing_pods_handled"] < 7
        following = await tick_of(core, config=config, cursor=tick.left_at)
        await reconciliation.run(following, now=NOW)
        assert tick.found["missing_pods_handled"] + following.found["missing_pods_handled"] == 7
        assert following.left_at is None

    async def test_one_whose_pod_ended_follows_it(self, core: Core, config: Config, runtime: PlayedRuntime) -> None:
        made = await add_instance(core)
        runtime.add(made.pod_name, made.id, made.generation, state="ended", why="exited", phase="Failed")
        with capture_logs() as lines:
            found, _ = await reconciled(core, config)
        assert (found["status_drift_detected"], found["status_drift_fixed"]) == (1, 1)
        assert [line["pod_phase"] for line in lines if line["event"] == "status_drift_detected"] == ["Failed"]
        row = await row_of(core, made.id)
        assert row is not None
        assert (row["status"], row["log"]) == ("failed", "its last words")

    async def test_one_that_died_of_memory_gets_twice_as_much(
        self, core: Core, config: Config, runtime: PlayedRuntime
    ) -> None:
        made = await add_instance(core)
        runtime.add(made.pod_name, made.id, made.generation, state="ended", why="out_of_memory")
        await reconciled(core, config)
        row = await row_of(core, made.id)
        assert row is not None
        assert (row["status"], row["memory_gb"], row["generation_number"]) == ("starting", 2, 2)

    async def test_an_unknown_state_is_uncertain_for_five_minutes(
        self, core: Core, config: Config, runtime: PlayedRuntime
    ) -> None:
        made = await add_instance(core)
        runtime.add(made.pod_name, made.id, made.generation, state="unknown")
        found, notes = await reconciled(core, config)
        assert found == {"skipped_uncertain": 1}
        found, notes = await reconciled(core, config, now=NOW + timedelta(minutes=5), notes=notes)
        assert found == {"skipped_uncertain": 1}
        found, _ = await reconciled(core, config, now=NOW + timedelta(minutes=5, seconds=1), notes=notes)
        assert found["status_drift_fixed"] == 1
        row = await row_of(core, made.id)
        assert row is not None
        assert (row["code"], row["message"]) == ("UNEXPECTED_TERMINATION", "Pod entered Unknown phase")

    async def test_a_part_of_a_pass_keeps_what_it_did_not_look_at_and_forgets_what_is_well_again(
        self, core: Core, config: Config, runtime: PlayedRuntime
    ) -> None:
        made = await add_instance(core)
        pod = runtime.add(made.pod_name, made.id, made.generation)
        notes = {f"unknown {pod.uid}": NOW.isoformat(), "unknown of-another": NOW.isoformat()}
        tick = await tick_of(core, config=config, notes=notes, cursor={"step": "pods", "after": ""})
        await reconciliation.run(tick, now=NOW)
        assert tick.notes == {"unknown of-another": NOW.isoformat()}
        notes = {f"unknown {n}": NOW.isoformat() for n in range(5_000)}
        tick = await tick_of(core, config=config, notes=notes, cursor={"step": "stopping", "after": None})
        await reconciliation.run(tick, now=NOW)
        assert len(tick.notes) == 1_000

    async def test_one_that_is_stopping_and_that_nobody_stops_is_stopped_again(
        self, core: Core, config: Config, runtime: PlayedRuntime
    ) -> None:
        made = await add_instance(core, "stopping")
        runtime.add(made.pod_name, made.id, made.generation)
        assert (await reconciled(core, config))[0] == {"stops_begun_again": 1}
        async with core.db.transaction() as tx:
            assert await tx.fetchval("SELECT lock_key FROM jobs WHERE kind = 'instance_stop'") == f"instance:{made.id}"
        assert not (await reconciled(core, config))[0]

    async def test_the_pod_of_one_that_failed_goes_once_nobody_has_it_in_hand(
        self, core: Core, config: Config, runtime: PlayedRuntime
    ) -> None:
        made = await add_instance(core, "failed")
        pod = runtime.add(made.pod_name, made.id, made.generation)
        async with core.db.transaction() as tx:
            await tx.execute("UPDATE instances SET error = '{}' WHERE id = $1", made.id)
        assert (await reconciled(core, config))[0] == {"failed_pods_released": 1}
        assert [(name, uid) for name, uid, _ in runtime.deleted] == [(made.pod_name, pod.uid)]
        row = await row_of(core, made.id)
        assert row is not None
        assert (row["status"], row["log"]) == ("failed", "its last words")
        assert not (await reconciled(core, config))[0]

        busy = await add_instance(core, "failed")
        runtime.add(busy.pod_name, busy.id, busy.generation)
        await hold_lock(core, busy.id)
        await reconciled(core, config)
        assert list(runtime.pods) == [busy.pod_name]

    async def test_a_runtime_that_is_away_fails_the_pass_and_changes_nothing(
        self, core: Core, config: Config, runtime: PlayedRuntime
    ) -> None:
        made = await add_instance(core)
        runtime.away = True
        with pytest.raises(ConnectionError):
            await reconciled(core, config)
        row = await row_of(core, made.id)
        assert row is not None
        assert row["status"] == "running"

    async def test_lists_longer_than_a_page_are_compared_whole(
        self, core: Core, config: Config, runtime: PlayedRuntime
    ) -> None:
        for n in range(130):
            made = await add_instance(core)
            if n % 2:
                runtime.add(made.pod_name, made.id, made.generation)
        for n in range(120):
            runtime.add(f"aaa-{n:03}", uuid4(), made_at=NOW)
        found, _ = await reconciled(core, config)
        assert (found["missing_pods_handled"], found["skipped_young"]) == (65, 120)


async def test_instances_without_a_pods_name_are_counted(core: Core, config: Config) -> None:
    await gauges.sample(core)
    assert pass_metrics().without_pod_name.value == 0
    await add_instance(core, named=False)
    await gauges.sample(core)
    assert pass_metrics().without_pod_name.value == 1
