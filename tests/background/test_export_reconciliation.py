"""`export_reconciliation`: the net under snapshots that end, and the alarm for exports that nobody polls."""

import pytest
from structlog.testing import capture_logs

from paddock.background import export_reconciliation, gauges
from paddock.exports import snapshots
from paddock.jobs import wire
from paddock.jobs.core import Core
from paddock.pass_metrics import pass_metrics
from tests.background.ticking import passed
from tests.conftest import DatabaseClock
from tests.snapshots.making import claim, complete, make_snapshot, now


async def test_with_nothing_to_do_it_finds_nothing(core: Core) -> None:
    assert not await passed(export_reconciliation.run, core)


async def test_a_snapshot_that_a_failed_hook_left_is_settled_and_counted(
    core: Core, monkeypatch: pytest.MonkeyPatch
) -> None:
    metrics = pass_metrics()
    settle = snapshots.group_ended

    async def breaks(*_: object) -> None:
        raise RuntimeError("no")

    monkeypatch.setattr(snapshots, "group_ended", breaks)
    failures = metrics.finalization_failures._value.get()
    made = await make_snapshot(core)
    for attempt in (await claim(core)).values():
        await complete(attempt)
    assert (await now(core, made.id)).status == "creating"
    assert metrics.finalization_failures._value.get() == failures + 1

    monkeypatch.setattr(snapshots, "group_ended", settle)
    unsettled, finalized = metrics.snapshots_unsettled._value.get(), metrics.snapshots_finalized._value.get()
    found = await passed(export_reconciliation.run, core)
    assert (found["snapshots_ready_to_finalize"], found["snapshots_finalized"]) == (1, 1)
    assert (await now(core, made.id)).status == "ready"
    assert metrics.snapshots_unsettled._value.get() == unsettled + 1
    assert metrics.snapshots_finalized._value.get() == finalized + 1
    assert not await passed(export_reconciliation.run, core)


async def test_the_last_jobs_finish_counts_a_settled_snapshot_too(core: Core) -> None:
    metrics = pass_metrics()
    finalized, lags = metrics.snapshots_finalized._value.get(), metrics.finalization_lag._sum.get()
    await make_snapshot(core)
    for attempt in (await claim(core)).values():
        await complete(attempt)
    assert metrics.snapshots_finalized._value.get() == finalized + 1
    assert metrics.finalization_lag._sum.get() == lags, "in the transaction of its last job"


async def test_submitted_exports_that_nobody_polls_are_said_loudly(core: Core, clock: DatabaseClock) -> None:
    await make_snapshot(core)
    attempts = await claim(core)
    for attempt in attempts.values():
        assert await attempt.finish("again", delay_seconds=5, waiting_on="query q1") == "accepted"
    await clock.advance(seconds=64)
    assert not await passed(export_reconciliation.run, core), "due for 59 s"
    await clock.advance(seconds=2)
    async with core.db.transaction() as tx:
        await tx.execute("UPDATE sessions SET expires_at = paddock_now() - interval '1 second'")
    with capture_logs() as lines:
        assert (await passed(export_reconciliation.run, core))["export_jobs_unpolled"] == len(attempts)
    [said] = [line for line in lines if line["event"] == "export_jobs_unpolled"]
    assert said["log_level"] == "error"
    assert said["jobs"] == len(attempts)
    await core.link().register(wire.Register(worker_id="w", version="1", kinds=["export"], slots=1))
    assert not await passed(export_reconciliation.run, core), "somebody offers them again"


async def test_stale_claims_are_the_rescuers_and_counted(core: Core, clock: DatabaseClock) -> None:
    metrics = pass_metrics()
    before = metrics.stale_claims_detected._value.get(), metrics.stale_claims_reset._value.get()
    await make_snapshot(core)
    attempts = await claim(core)
    for _ in range(9):  # within a beat each: a longer step is a gap, in which no lease runs
        await clock.advance(seconds=8)
        await core.tick()
    after = metrics.stale_claims_detected._value.get(), metrics.stale_claims_reset._value.get()
    assert after == (before[0] + len(attempts), before[1] + len(attempts))


async def test_the_gauges_tell_what_waits_and_runs(core: Core) -> None:
    await make_snapshot(core)
    await gauges.sample(core)
    metrics = pass_metrics()
    assert metrics.export_queue_depth.value == 4
    assert [metrics.export_jobs(status)._value.get() for status in ("pending", "claimed", "failed")] == [4, 0, 0]
    await claim(core, limit=3)
    await gauges.sample(core)
    assert [metrics.export_jobs(status)._value.get() for status in ("pending", "claimed", "failed")] == [1, 3, 0]
