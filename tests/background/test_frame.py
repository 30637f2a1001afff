"""The frame around every pass: its row, its budget and cursor, what it counts and says."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import pytest
import structlog
from structlog.testing import capture_logs

from paddock.background import declared, gauges, records, service
from paddock.background.passes import BackgroundJob, kind_of
from paddock.background.records import State
from paddock.background.ticks import Budget, GiveBack, Tick
from paddock.config import Config
from paddock.jobs import schedules, wire
from paddock.jobs.core import Core
from paddock.jobs.model import Job, NewJob
from paddock.pass_metrics import PassMetrics, pass_metrics
from tests.background.ticking import tick_of
from tests.conftest import DatabaseClock
from tests.dumps.api.inside import Nobody, run_inside
from tests.playing import PlayedWorker
from tests.snapshots.making import claim, make_snapshot, result

NAME = "lifecycle"


@dataclass(frozen=True)
class Number:
    n: int

    @property
    def place(self) -> int:
        return self.n


async def numbers(after: int | None, limit: int) -> Sequence[Number]:
    first = 0 if after is None else after + 1
    return [Number(n) for n in range(first, min(first + limit, 250))]


async def state_of(core: Core, name: str = NAME) -> State:
    return next(state for state in await records.states(core.db) if state.name == name)


async def ran(core: Core, config: Config, run: Any, **payload: Any) -> Job:
    """A pass of `lifecycle` that does this instead."""
    kind = kind_of(BackgroundJob(NAME, run, "", ("things",)), config)
    await core.submit([NewJob(NAME, payload, schedule=NAME)], public=False)
    [job] = await run_inside(core, config, kind)
    return job


async def finds_three(tick: Tick) -> None:
    tick.count("things", 3)


async def fails(tick: Tick) -> None:
    raise RuntimeError("the list could not be read")


async def test_each_start_makes_a_row_and_a_schedule_for_every_job(core: Core) -> None:
    assert {state.name for state in await records.states(core.db)} == set(declared.BY_NAME)
    schedule = await schedules.get(core.db, NAME)
    assert schedule is not None
    assert schedule.internal
    assert schedule.every == timedelta(minutes=5)
    assert (await state_of(core)).next_at is not None


async def test_a_pass_leaves_what_it_found_and_when(core: Core, config: Config) -> None:
    job = await ran(core, config, finds_three)
    state = await state_of(core)
    assert job.status == "completed"
    assert (state.last_status, state.found, state.failures_in_a_row) == ("success", {"things": 3}, 0)
    assert state.last_job_id == job.id
    assert state.last_success_at is not None
    assert state.error is None


async def test_a_pass_that_came_too_early_comes_again_soon_and_one_by_hand_shifts_nothing(
    core: Core, config: Config
) -> None:
    async def too_early(tick: Tick) -> None:
        tick.again_in = timedelta(seconds=5)

    async def due() -> datetime | None:
        return (await state_of(core)).next_at

    async with core.db.transaction() as tx:
        await tx.execute("UPDATE schedules SET next_at = paddock_now() + every WHERE name = $1", NAME)
    before = await due()
    await ran(core, config, too_early, triggered_by="grace", reason="to see")
    assert await due() == before
    await ran(core, config, too_early)
    now, soon = await records.now(core.db), await due()
    assert soon is not None
    assert soon - now <= timedelta(seconds=5)


async def test_three_failures_in_a_row_make_it_unhealthy_and_a_success_well_again(core: Core, config: Config) -> None:
    await ran(core, config, finds_three)
    for n in (1, 2, 3):
        job = await ran(core, config, fails)
        state = await state_of(core)
        assert job.status == "failed"
        assert state.failures_in_a_row == n
        assert state.healthy == (n < 3)
    state = await state_of(core)
    assert state.error is not None
    assert "the list could not be read" in state.error["message"]
    assert state.found == {"things": 3}, "of the last pass that came to its end"
    assert pass_metrics().health(NAME)._value.get() == 0
    await ran(core, config, finds_three)
    assert (await state_of(core)).healthy
    assert pass_metrics().health(NAME)._value.get() == 1


async def test_a_pass_is_never_retried_by_the_core(core: Core, config: Config) -> None:
    kind = kind_of(BackgroundJob(NAME, fails, ""), config)
    assert kind.retry.limit == 0
    assert not kind.retry_unclassified
    assert kind.serial
    assert kind.housekeeping
    job = await ran(core, config, fails)
    assert (job.status, job.failure_count) == ("failed", 0)


async def test_counters_and_gauges_follow_the_commit(core: Core, config: Config) -> None:
    metrics = pass_metrics()
    before = [metrics.executions(NAME, status)._value.get() for status in ("success", "failed")]
    passed = metrics.lifecycle_passes._value.get()
    await ran(core, config, finds_three)
    await ran(core, config, fails)
    assert [metrics.executions(NAME, status)._value.get() for status in ("success", "failed")] == [
        before[0] + 1,
        before[1] + 1,
    ]
    assert metrics.lifecycle_passes._value.get() == passed + 1
    state = await state_of(core)
    assert state.last_success_at is not None
    assert metrics.last_success(NAME)._value.get() == state.last_success_at.timestamp()


async def test_gauges_of_the_database_tell_the_interval_and_0_when_switched_off(core: Core) -> None:
    await gauges.sample(core)
    assert pass_metrics().interval(NAME)._value.get() == 300
    await schedules.update(core, NAME, {"enabled": False}, actor="ops")
    await gauges.sample(core)
    assert pass_metrics().interval(NAME)._value.get() == 0


async def test_gauges_of_exports_tell_what_the_database_has(core: Core) -> None:
    metrics = pass_metrics()
    await make_snapshot(core)
    await gauges.sample(core)
    assert metrics.export_queue_depth.value == 4
    first, *others = (await claim(core)).values()
    await first.finish("done", result=result())
    await others[0].finish("again", saved={"query_id": "q1"}, delay_seconds=60, waiting_on="query")
    await gauges.sample(core)
    assert metrics.export_queue_depth.value == 0
    assert [metrics.export_jobs(name)._value.get() for name in ("pending", "claimed", "submitted")] == [0, 2, 1]


def test_every_label_is_there_from_the_start_and_nothing_that_is_unknown() -> None:
    from prometheus_client import CollectorRegistry, generate_latest

    registry = CollectorRegistry()
    PassMetrics(registry)
    text = generate_latest(registry).decode()
    assert 'background_job_execution_total{job_name="schema_cache",status="failed"} 0.0' in text
    assert 'reconciliation_skipped_total{reason="too_many"} 0.0' in text
    assert 'lifecycle_enforcement_lag_seconds_bucket{le="1.0",resource_type="dump"} 0.0' in text
    for unknown in ("background_job_last_success_timestamp_seconds{", "graph_olap_export_queue_depth ", "_current "):
        assert unknown not in text


async def test_items_that_always_fail_stand_in_nobodys_way(core: Core) -> None:
    seen: list[int] = []

    async def act(item: Number) -> None:
        seen.append(item.n)
        if item.n < 200:
            raise RuntimeError("always")

    tick = await tick_of(core)
    await tick.walk("numbers", numbers, act)
    assert seen == list(range(250))
    assert tick.found["failures"] == 200
    assert tick.left_at is None


async def test_where_the_budget_ends_the_next_pass_begins(core: Core) -> None:
    seen: list[int] = []
    hours = iter(range(10_000))

    async def act(item: Number) -> None:
        seen.append(item.n)

    budget = Budget(timedelta(hours=120), monotonic=lambda: next(hours) * 3600.0)
    tick = await tick_of(core, budget=budget)
    await tick.walk("first", numbers, act)
    await tick.walk("second", numbers, act)
    assert tick.left_at is not None
    assert tick.left_at["step"] == "first"
    assert 0 < len(seen) < 250
    following = await tick_of(core, cursor=tick.left_at)
    await following.walk("first", numbers, act)
    assert seen == list(range(250)), "each once"
    await following.walk("second", numbers, act)
    assert seen == [*range(250), *range(250)]
    assert following.left_at is None


async def test_several_are_acted_on_at_once_and_one_that_fails_stops_none(core: Core) -> None:
    together: list[int] = []
    meeting = asyncio.Barrier(10)

    async def act(item: Number) -> None:
        if item.n < 240:
            async with asyncio.timeout(60):
                await meeting.wait()
        together.append(item.n)
        if item.n == 3:
            raise RuntimeError("this one")

    tick = await tick_of(core)
    await tick.walk("numbers", numbers, act, at_once=10)
    assert sorted(together) == list(range(250))
    assert tick.found == {"failures": 1}


async def test_a_pass_that_begins_in_the_middle_passes_over_the_steps_before(core: Core) -> None:
    seen: list[str] = []

    async def act(item: Number) -> None:
        seen.append("acted")

    tick = await tick_of(core, cursor={"step": "second", "after": 247})
    await tick.walk("first", numbers, act)
    await tick.walk("second", numbers, act)
    assert len(seen) == 2


async def test_the_cursor_is_kept_in_the_row_and_cleared_at_the_end(core: Core, config: Config) -> None:
    async def stops(tick: Tick) -> None:
        tick.left_at = {"step": "dumps", "after": ["x"]}

    await ran(core, config, stops)
    assert (await records.place(core.db, NAME)).cursor == {"step": "dumps", "after": ["x"]}
    await ran(core, config, fails)
    assert (await records.place(core.db, NAME)).cursor is not None, "a failed pass got nowhere"
    await ran(core, config, finds_three)
    assert (await records.place(core.db, NAME)).cursor is None


async def test_what_a_pass_says(core: Core, config: Config) -> None:
    with capture_logs() as lines:
        await ran(core, config, finds_three, triggered_by="grace", reason="a look", request_id="req-1")
    said = {line["event"]: line for line in lines if line.get("job") == NAME}
    assert set(said) == {"job_started", "lifecycle_job_started", "lifecycle_job_completed", "job_completed"}
    assert all(line["logger"] == "paddock.background.lifecycle" for line in said.values())
    assert all(line["request_id"] == "req-1" for line in said.values())
    assert said["lifecycle_job_completed"]["things"] == 3
    assert "duration_seconds" in said["lifecycle_job_completed"]


@pytest.mark.usefixtures("logging_put_back")
async def test_what_others_log_on_the_way_carries_the_job_and_the_request(core: Core, config: Config) -> None:
    async def follows(_tick: Tick) -> None:
        structlog.get_logger().info("transitioning_instance_to_starting")

    with capture_logs(processors=[structlog.contextvars.merge_contextvars]) as lines:
        await ran(core, config, follows, triggered_by="grace", reason="a look", request_id="req-1")
    [said] = [line for line in lines if line["event"] == "transitioning_instance_to_starting"]
    assert (said["job"], said["request_id"]) == (NAME, "req-1")


async def test_a_pass_whose_process_stops_is_given_back_and_not_failed(core: Core, config: Config) -> None:
    async def gives_back(_tick: Tick) -> None:
        raise GiveBack

    job = await ran(core, config, gives_back)
    assert (job.status, job.failure_count) == ("pending", 0)
    assert (await state_of(core)).failures_in_a_row == 0


async def test_a_pass_that_another_replica_has_changes_nothing(core: Core, config: Config) -> None:
    changed: list[bool] = []

    async def loses_it(tick: Tick) -> None:
        async with tick.core.db.transaction() as tx:
            await tick.still_ours(tx)
            changed.append(True)
        async with tick.core.db.transaction() as tx:
            await tx.execute("UPDATE jobs SET attempt_id = gen_random_uuid() WHERE kind = $1", NAME)
        async with tick.core.db.transaction() as tx:
            await tick.still_ours(tx)
            changed.append(True)

    with capture_logs() as lines:
        await ran(core, config, loses_it)
    assert changed == [True]
    assert not [line for line in lines if line["event"] == "job_failed"], "it is not the pass that failed"


async def test_a_manual_run_waits_for_a_pass_that_runs_and_shifts_nothing(
    core: Core, config: Config, clock: DatabaseClock
) -> None:
    before = await schedules.get(core.db, NAME)
    await core.submit([NewJob(NAME, {}, schedule=NAME)], public=False)
    link = core.link(internal=True)
    registered = await link.register(wire.Register(worker_id="inside", version="1", kinds=[NAME], slots=5))
    worker = PlayedWorker(link, registered.session)
    first = await worker.claim_one(NAME)
    manual = await service.trigger(core, NAME, actor="grace", reason="a look")
    assert not await worker.claim(NAME)
    assert await first.finish("done", result={"found": {}}) == "accepted"
    second = await worker.claim_one(NAME)
    assert second.id == manual.id
    await second.finish("done", result={"found": {}})
    after = await schedules.get(core.db, NAME)
    assert (before and before.next_at) == (after and after.next_at)


async def test_a_pass_by_hand_swallows_no_scheduled_one(core: Core, config: Config, clock: DatabaseClock) -> None:
    kind = kind_of(BackgroundJob(NAME, finds_three, ""), config)
    await clock.advance(seconds=1)
    await schedules.run_due(core)
    await run_inside(core, config, kind)
    by_hand = await service.trigger(core, NAME, actor="grace", reason="a look")
    await clock.advance(seconds=300)
    await schedules.run_due(core)
    made = await schedules.get(core.db, NAME)
    assert made is not None
    assert made.skipped == 0
    assert made.last_job_id != by_hand.id
    assert made.last_job_id is not None
    due = await core.job(made.last_job_id)
    assert due is not None
    assert due.status == "pending", "it waits for the one by hand"


async def test_what_a_pass_says_is_in_the_log_of_its_job(
    core: Core, config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines: list[str] = []
    monkeypatch.setattr(Nobody, "log", lambda _self, _attempt, line, _dropped=0: lines.append(line))

    async def says(tick: Tick) -> None:
        tick.log.error("orphaned_pod_detected", message="Delete logic should have removed this pod", pod_name="one")
        tick.log.debug("quiet")
        raise RuntimeError("the list could not be read")

    await ran(core, config, says)
    told = [line.split(" ", 2)[1:] for line in lines]
    assert ["error", "orphaned_pod_detected says='Delete logic should have removed this pod' pod_name=one\n"] in told
    assert ["error", "job_failed error='RuntimeError: the list could not be read'\n"] in told
    assert not [line for line in lines if "quiet" in line]


async def test_a_pass_that_always_fails_backs_off_to_its_interval(
    core: Core, config: Config, clock: DatabaseClock
) -> None:
    kind = kind_of(BackgroundJob(NAME, fails, ""), config)
    waits = []
    for _ in range(5):
        schedule = await schedules.get(core.db, NAME)
        assert schedule is not None
        assert schedule.next_at is not None
        await clock.advance(seconds=max(1, (schedule.next_at - clock.at).total_seconds()))
        await schedules.run_due(core)
        await run_inside(core, config, kind)
        schedule = await schedules.get(core.db, NAME)
        assert schedule is not None
        assert schedule.next_at is not None
        waits.append((schedule.next_at - clock.at).total_seconds())
    assert waits == [60, 120, 240, 300, 300]
    assert not (await state_of(core)).healthy


async def test_a_failed_pass_says_why_with_its_traceback(core: Core, config: Config) -> None:
    with capture_logs() as lines:
        await ran(core, config, fails)
    [said] = [line for line in lines if line["event"] == "job_failed"]
    assert said["log_level"] == "error"
    assert "the list could not be read" in said["error"]
    assert said["exc_info"]


async def test_a_frequent_pass_that_found_nothing_says_so_at_debug_only(core: Core, config: Config) -> None:
    async def nothing(tick: Tick) -> None:
        pass

    kind = kind_of(BackgroundJob("export_reconciliation", nothing, ""), config)
    await core.submit([NewJob("export_reconciliation", {})], public=False)
    with capture_logs() as lines:
        await run_inside(core, config, kind)
    assert {line["log_level"] for line in lines if line.get("job") == "export_reconciliation"} == {"debug"}


async def test_runs_left_out_are_told_once(core: Core, config: Config) -> None:
    async with core.db.transaction() as tx:
        await tx.execute("UPDATE schedules SET skipped = 2 WHERE name = $1", NAME)
    with capture_logs() as lines:
        await ran(core, config, finds_three)
        await ran(core, config, finds_three)
    assert [line["runs_left_out"] for line in lines if line["event"] == "job_misfired"] == [2]
    assert (await state_of(core)).misfires == 2


async def test_a_failed_scheduled_pass_comes_again_after_a_minute_and_a_manual_one_shifts_nothing(
    core: Core, config: Config, clock: DatabaseClock
) -> None:
    await clock.advance(seconds=2)
    assert await schedules.run_due(core) == len(declared.BY_NAME)
    kind = kind_of(BackgroundJob(NAME, fails, ""), config)
    [job] = await run_inside(core, config, kind)
    assert job.status == "failed"
    schedule = await schedules.get(core.db, NAME)
    assert schedule is not None
    assert schedule.next_at == clock.at + timedelta(minutes=1)
    await ran(core, config, fails)
    again = await schedules.get(core.db, NAME)
    assert again is not None
    assert again.next_at == schedule.next_at


async def test_a_pass_whose_replica_died_for_good_counts_as_failed(core: Core, clock: DatabaseClock) -> None:
    await core.submit([NewJob(NAME, {})], public=False)
    async with core.db.transaction() as tx:
        await tx.execute("UPDATE jobs SET lost_count = $1", core.kinds[NAME].retry.loss_limit)
    link = core.link(internal=True)
    registered = await link.register(wire.Register(worker_id="inside", version="1", kinds=[NAME]))
    await PlayedWorker(link, registered.session).claim_one(NAME)
    for _ in range(12):  # within a beat each: a longer step is a gap, in which no lease runs
        await clock.advance(seconds=8)
        await core.tick()
    assert (await state_of(core)).failures_in_a_row == 1


def test_budgets_and_grace(config: Config) -> None:
    assert declared.BY_NAME["lifecycle"].budget(config) == timedelta(seconds=240)
    assert declared.BY_NAME["export_reconciliation"].budget(config) == timedelta(seconds=4)
    assert kind_of(declared.BY_NAME["lifecycle"], config).grace == timedelta(seconds=20)


@pytest.mark.usefixtures("logging_put_back")
async def test_short_intervals_of_costly_jobs_warn_at_the_start(core: Core) -> None:
    from paddock.background.settings import BackgroundSettings

    short = Config().with_settings(BackgroundSettings(lifecycle=30, export_reconciliation=1))
    structlog.reset_defaults()
    with capture_logs() as lines:
        await declared.at_start(core, short)
    warned = [line for line in lines if line["event"] == "job_interval_short"]
    assert [(line["job"], line["interval"]) for line in warned] == [("lifecycle", 30)]
    assert {line["job"] for line in lines if line["event"] == "job_registered"} == set(declared.BY_NAME)
    assert [line["jobs"] for line in lines if line["event"] == "scheduler_starting"] == [len(declared.BY_NAME)]
