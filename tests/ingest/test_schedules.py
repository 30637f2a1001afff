"""A schedule of ingest is as well as the runs that it starts, not as the jobs that start them."""

import re
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID

import orjson
import pytest

from paddock.cli.schedules import outcome
from paddock.doctor import on_work
from paddock.ingest import runs
from paddock.ingest.model import Run
from paddock.ingest.scheduled import SCHEDULED, ScheduledIngest, check
from paddock.jobs import schedules
from paddock.jobs.errors import Refused
from paddock.jobs.model import Job
from paddock.jobs.schedules import NewSchedule
from tests.dumps.api.inside import run_inside
from tests.ingest.conftest import Bench, Served
from tests.ingest.test_pages import browse  # noqa: F401  # a fixture
from tests.web.signed_in import Browser, Open, row_of, schedule, words_of

BROKEN = "import sys; print('no such table'); sys.exit(64)"


@dataclass
class Hourly:
    bench: Bench

    async def order(self) -> Job:
        """The job that the schedule makes, done; what it started is still to be run."""
        await schedules.run(self.bench.core, "hourly", actor="olga")
        [job] = await run_inside(self.bench.core, self.bench.config, SCHEDULED)
        assert job.status == "completed", job.error_message
        return job

    async def ended(self, job: Job) -> Run:
        return await self.bench.ended(await self.run_of(job))

    async def run_of(self, job: Job) -> Run:
        run = await runs.get(self.bench.core.db, UUID(job.result["run"]))
        assert run is not None
        return run

    async def findings(self) -> list[str]:
        found = [finding async for finding in on_work.schedules(self.bench.core, self.bench.config)]
        return [f"{finding.level}: {finding.message}" for finding in found]


async def hourly_of(bench: Bench) -> Hourly:
    new = NewSchedule(
        name="hourly", kind="scheduled_ingest", owner="olga", payload={"source": "numbers"}, every=timedelta(days=1)
    )
    await schedules.create(bench.core, new, actor="olga")
    return Hourly(bench)


@pytest.fixture
async def hourly(bench: Bench) -> Hourly:
    bench.source("numbers", BROKEN)
    return await hourly_of(bench)


async def strip_of(grace: Browser) -> tuple[str, str, str]:
    """How the only run looks among the last outcomes, what it is called there, and where it leads."""
    page = await grace.read("/schedules/hourly")
    [strip] = re.findall(r'<ol class="strip".*?</ol>', page, re.DOTALL)
    [(path, look, word)] = re.findall(r'<a href="([^"]+)" class="status ([^"]+)" title="([^,"]+),', strip)
    return look, word, path


async def test_a_failed_run_is_a_failed_run_of_its_schedule(hourly: Hourly, browse: Open) -> None:  # noqa: F811
    job = await hourly.order()
    grace = await browse("grace")
    row = row_of(await grace.read("/schedules"), "schedule-hourly")
    assert "running" in row
    assert "completed" not in row
    assert (await strip_of(grace))[:2] == ("tone-busy", "running")

    run = await hourly.ended(job)
    assert run.status == "failed"
    assert run.error is not None

    page = await grace.read("/schedules")
    row = row_of(page, "schedule-hourly")
    assert "failed" in row
    assert "completed" not in row
    assert f'href="/ingest/runs/{run.id}"' in page
    assert "the last run of hourly failed" in words_of(page)
    look, word, path = await strip_of(grace)
    assert (look, word, path) == ("is-failed", "failed", f"/ingest/runs/{run.id}")
    row = row_of(await grace.read("/schedules/hourly"), f"run-{job.id}")
    assert "failed run" in row
    assert run.error["message"] in row

    [shown] = orjson.loads(await grace.read("/api/schedules"))["data"]
    [last] = shown["last_runs"]
    assert (last["status"], last["made"], last["outcome_job_id"]) == ("failed", {"run": str(run.id)}, None)
    assert last["error"] == {"code": run.error["code"], "message": run.error["message"]}
    assert last["ended_at"] is not None
    assert last["links"]["outcome"] == f"/api/ingest/runs/{run.id}"
    assert outcome(shown) == f"failed run {run.id}"

    assert await hourly.findings() == [
        f"warning: The last run of hourly failed: {run.error['message']} [{run.error['code']}]"
    ]
    assert "the last run of schedule hourly failed" in words_of(await grace.read("/")).lower()
    told = words_of(await grace.read(f"/jobs/{job.id}"))
    assert "Its run of 'numbers' failed: " in told
    assert f'href="/ingest/runs/{run.id}"' in await grace.read(f"/jobs/{job.id}")


async def test_a_source_at_work_is_left_to_its_run_and_that_run_counts(hourly: Hourly) -> None:
    first = await hourly.order()
    second = await hourly.order()
    assert second.result == {"skipped": True, "run": first.result["run"]}
    assert [line[:4] for line in await hourly.findings()] == ["ok: "], "it is at work"

    await hourly.ended(first)
    assert [line[:7] for line in await hourly.findings()] == ["warning"], (
        "the newest job started nothing, and is no success"
    )

    hourly.bench.source("numbers", config={"total": 3})
    await hourly.ended(await hourly.order())
    assert [line[:4] for line in await hourly.findings()] == ["ok: "]


async def test_a_run_that_was_deleted_is_no_longer_kept(hourly: Hourly, browse: Open) -> None:  # noqa: F811
    job = await hourly.order()
    run = await hourly.ended(job)
    await runs.delete(hourly.bench.core, run, actor="olga")
    grace = await browse("grace")
    assert "no longer kept" in row_of(await grace.read("/schedules"), "schedule-hourly")
    assert (await strip_of(grace))[:2] == ("tone-quiet", "no longer kept")
    assert "completed" not in row_of(await grace.read("/schedules/hourly"), f"run-{job.id}")
    [shown] = orjson.loads(await grace.read("/api/schedules"))["data"]
    assert shown["last_runs"][0]["status"] is None
    assert [line[:4] for line in await hourly.findings()] == ["ok: "]


async def test_a_schedule_of_an_unknown_source_is_refused(served: Served) -> None:
    grace = await served.client("grace")
    body: dict[str, Any] = {
        "name": "hourly",
        "kind": "scheduled_ingest",
        "every": "1h",
        "payload": {"source": "numbres"},
    }
    answer = await grace.post("/api/schedules", json=body)
    assert answer.status_code == 422
    assert answer.json()["error"]["code"] == "unknown_source"
    [field] = answer.json()["error"]["details"]["fields"]
    assert field == {"field": "payload.source", "message": "There is no source 'numbres'."}
    assert (await grace.post("/api/schedules", json={**body, "payload": {"source": "numbers"}})).status_code == 201
    with pytest.raises(Refused, match="numbres"):
        await check(served.core, served.config, ScheduledIngest(source="numbres"), "grace")


async def test_an_analyst_schedules_a_source_of_theirs_and_sees_no_others_schedule_of_it(
    bench: Bench,
    browse: Open,  # noqa: F811
) -> None:
    bench.source("numbers", owners=["ann"])
    hourly = await hourly_of(bench)
    ann, eve = await browse("ann"), await browse("eve")
    made = await schedule(ann, "/ingest/numbers", timing="every", every="1h")
    assert (made.status_code, made.headers["location"]) == (303, "/schedules/ingest-numbers")
    page = await ann.read("/ingest/numbers")
    assert "/schedules/ingest-numbers" in page
    assert "/schedules/hourly" not in page
    await eve.read("/schedules/-/new?of=source:numbers", 404)
    fields = {"name": "n", "kind": "scheduled_ingest", "timing": "every", "every": "1h", "priority": "3"}
    text = await eve.refused("/schedules", "/schedules/-/new", 422, payload='{"source": "numbers"}', **fields)
    assert "There is no source 'numbers'." in text

    await schedules.run(bench.core, "ingest-numbers", actor="ann")
    bench.source("numbers", owners=["eve"])
    [job] = await run_inside(bench.core, bench.config, SCHEDULED)
    assert (job.status, job.error_code) == ("failed", "unknown_source")
    assert "'ann' may not run this any more." in (job.error_message or "")
    assert (await hourly.order()).result["run"], "an operator's goes on"
