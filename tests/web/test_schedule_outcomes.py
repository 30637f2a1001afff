"""What looks green is green: a schedule is as well as what it made, not as the job that ordered it."""

import re
from dataclasses import dataclass
from datetime import timedelta
from html import unescape
from typing import Any
from uuid import UUID

import orjson
import pytest

from paddock.cli.schedules import outcome
from paddock.config import Config
from paddock.doctor import on_work
from paddock.exports.scheduled import SCHEDULED
from paddock.jobs import schedules, wire
from paddock.jobs.core import Core
from paddock.jobs.model import Job, JobId
from paddock.jobs.schedules import NewSchedule
from tests.dumps.api.inside import run_inside
from tests.playing import PlayedWorker
from tests.web.signed_in import Browser, Open, row_of, words_of

BROKEN = wire.Error(code="type_not_written", message="Column k cannot be written.")


@dataclass
class Nightly:
    core: Core
    config: Config

    async def run(self, outcome: str | None) -> Job:
        """One run: its order is done, and the worker ends the export so; None: it is still to be claimed."""
        await schedules.run(self.core, "nightly", actor="olga")
        [order] = await run_inside(self.core, self.config, SCHEDULED)
        assert order.status == "completed", order.error_message
        if outcome is not None:
            await self.end(outcome)
        return order

    async def end(self, outcome: str) -> None:
        link = self.core.link()
        registered = await link.register(wire.Register(worker_id="w", version="test", kinds=["export"], slots=1))
        for attempt in await PlayedWorker(link, registered.session).claim("export"):
            if outcome == "failed" and attempt.job.cleanup_of is None:
                await attempt.finish("permanent", error=BROKEN)
            else:
                assert await attempt.finish(result=RESULT) == "accepted"


RESULT: dict[str, Any] = {"rows": 1, "bytes": 1, "files": 1}


@pytest.fixture
async def nightly(exports_core: Core, exports_config: Config) -> Nightly:
    payload = {"engine": "local", "sql": "SELECT 1 AS a"}
    new = NewSchedule(name="nightly", kind="scheduled_export", owner="olga", payload=payload, every=timedelta(days=1))
    await schedules.create(exports_core, new, actor="olga")
    return Nightly(exports_core, exports_config)


@pytest.fixture
async def olga(open_browser: Open) -> Browser:
    return await open_browser("ops")


async def listed(olga: Browser) -> dict[str, Any]:
    [schedule] = orjson.loads(await olga.read("/api/schedules"))["data"]
    return dict(schedule)


async def findings(nightly: Nightly) -> list[tuple[str, str]]:
    return [(found.level, found.message) async for found in on_work.schedules(nightly.core, nightly.config)]


async def test_a_failed_export_is_a_failed_run_of_its_schedule(nightly: Nightly, olga: Browser) -> None:
    order = await nightly.run("failed")
    export, work = order.result["export"], order.result["job"]

    page = await olga.read("/schedules")
    row = row_of(page, "schedule-nightly")
    assert "failed" in row
    assert "completed" not in row
    assert f'href="/jobs/{work}"' in page
    assert "the last run of nightly failed" in words_of(page)

    own = await olga.read("/schedules/nightly")
    [strip] = re.findall(r'<ol class="strip".*?</ol>', own, re.DOTALL)
    assert re.search(rf'<li><a href="/exports/{export}" class="status is-failed" title="failed, [^"]*: export ', strip)
    assert own.count(f'href="/exports/{export}"') == 2, "the run itself leads there too"
    run = row_of(own, f"run-{order.id}")
    assert "failed export" in run
    assert BROKEN.message in run

    [shown] = (await listed(olga))["last_runs"]
    assert (shown["status"], shown["made"]) == ("failed", {"export": export})
    assert (shown["job_id"], shown["outcome_job_id"]) == (str(order.id), work)
    assert shown["error"] == {"code": BROKEN.code, "message": BROKEN.message}
    assert outcome(await listed(olga)) == f"failed export {export}"

    told = words_of(await olga.read(f"/jobs/{order.id}"))
    assert f"the export job it made failed: {BROKEN.message}" in told
    assert [status for status, _ in await findings(nightly)] == ["warning"]
    assert "the last run of schedule nightly failed" in words_of(await olga.read("/")).lower()


async def test_while_it_runs_again_the_last_failure_is_not_forgotten(nightly: Nightly, olga: Browser) -> None:
    await nightly.run("failed")
    await nightly.run(None)

    assert "pending before failed" in row_of(await olga.read("/schedules"), "schedule-nightly")
    assert outcome(await listed(olga)).startswith("pending export")
    [(status, message)] = await findings(nightly)
    assert (status, BROKEN.message in message) == ("warning", True)

    await nightly.end("completed")
    assert [status for status, _ in await findings(nightly)] == ["ok"]


async def test_an_export_that_was_retried_and_completed_is_no_failure(nightly: Nightly, olga: Browser) -> None:
    order = await nightly.run("failed")
    await nightly.core.retry(JobId(UUID(order.result["job"])), actor="olga")
    await nightly.end("completed")

    assert "completed" in row_of(await olga.read("/schedules"), "schedule-nightly")
    assert [status for status, _ in await findings(nightly)] == ["ok"]


async def test_an_operator_dismisses_the_alarm_and_sees_it_gone(nightly: Nightly, olga: Browser) -> None:
    await nightly.run("failed")
    page = unescape(await olga.read("/"))
    form = page.partition("Dismiss “the last run of schedule nightly failed”")[0].rpartition("<form")[2]
    fields = dict(re.findall(r'name="(alarm|up_to)" value="([^"]+)"', form))

    assert await olga.done("/dismiss", "/", **fields) == "/"
    after = words_of(await olga.read("/"))
    assert "schedule nightly failed" not in after
    assert "dismissed alarm schedules" in words_of(await olga.read("/audit"))
    await olga.refused("/dismiss", "/", 404, alarm="nothing", up_to=fields["up_to"])
    await olga.refused("/dismiss", "/", 422, alarm="schedules", up_to="yesterday")
