"""A kind for which a scaler brings workers: that none is live is a fault only once a job has waited for one."""

from dataclasses import replace
from datetime import timedelta

import pytest
from prometheus_client import CollectorRegistry

from paddock.config import Config
from paddock.doctor import on_work
from paddock.doctor.findings import Finding
from paddock.jobs.core import Core
from paddock.jobs.figures import overviews
from paddock.jobs.figures.counting import sample_gauges
from paddock.metrics import Metrics
from paddock.web.judging import Facts, judged
from paddock.why.explaining import explain
from tests.conftest import DatabaseClock
from tests.playing import submit, worker


@pytest.fixture(autouse=True)
async def scaled(core: Core) -> None:
    await overviews.declare_scaled(core.db, ["plain"])


async def unoffered(core: Core) -> bool:
    [seen] = [kind for kind in await overviews.kinds(core.db) if kind.name == "plain"]
    metrics = Metrics(CollectorRegistry())
    await sample_gauges(core.db, metrics)
    shown = 'paddock_kind_unoffered{kind="plain"} 1.0' in metrics.render()[0].decode()
    assert shown == seen.unoffered
    return shown


async def workers_of(core: Core) -> Finding:
    [finding] = [finding async for finding in on_work.workers(core, Config())]
    return finding


async def test_it_is_unoffered_once_a_job_has_been_due_for_two_minutes(core: Core, clock: DatabaseClock) -> None:
    assert not await unoffered(core)
    assert (await workers_of(core)).level == "ok"
    await submit(core)
    await clock.advance(seconds=119)
    assert not await unoffered(core)
    await clock.advance(seconds=1)
    assert await unoffered(core)
    assert (await workers_of(core)).level == "broken"
    findings = [finding async for finding in on_work.kinds(core, Config())]
    assert "the scaler brought no worker" in findings[0].message
    await worker(core)
    assert not await unoffered(core), "one came"


async def test_a_pause_or_a_later_time_keeps_nobody_waiting(core: Core, clock: DatabaseClock) -> None:
    await submit(core, delay=timedelta(hours=1))
    await submit(core)
    await core.pause("plain", actor="ann")
    await clock.advance(minutes=30)
    assert not await unoffered(core)
    await core.resume("plain", actor="ann")
    assert await unoffered(core)


async def test_the_overview_says_nothing_before_and_names_the_kind_then(core: Core, clock: DatabaseClock) -> None:
    [seen] = [kind for kind in await overviews.kinds(core.db) if kind.name == "plain"]
    facts = Facts(now=clock.at, kinds=[replace(seen, pending=3)], workers=[], beat=timedelta(seconds=10))
    assert judged(facts) == []
    late = replace(facts, kinds=[replace(seen, pending=3, kept_waiting=True)])
    assert [clause.text for clause in judged(late)] == ["no live worker offers plain"]
    alone = replace(facts, kinds=[replace(seen, scaled=False)])
    assert [clause.text for clause in judged(alone)] == ["no worker is live"]


def test_why_says_that_one_comes() -> None:
    job = {"id": "1", "kind": "plain", "status": "pending", "due_at": "2026-11-18T12:00:00Z", "owner": "ann"}
    kind = {"name": "plain", "paused": False, "offered": False, "scaled": True, "unoffered": False}
    assert "the scaler brings one" in explain(job, kinds=[kind], workers=[]).sentence
    assert "no live worker offers" in explain(job, kinds=[kind | {"unoffered": True}], workers=[]).sentence
