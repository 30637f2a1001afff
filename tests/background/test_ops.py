"""What operators ask for: the status, a trigger, the state, the jobs of exports."""

from typing import Any
from uuid import UUID

import httpx2
import pytest
import structlog
from structlog.testing import capture_logs

from paddock.background import alarming, examining, records
from paddock.background.declared import BY_NAME
from paddock.background.passes import kind_of
from paddock.background.routes import EXPORT_JOB_EXAMPLE
from paddock.config import Config
from paddock.jobs import schedules
from paddock.jobs.core import Core
from paddock.jobs.model import JobId
from paddock.pass_metrics import JOBS
from tests.conftest import DatabaseClock
from tests.dumps.api.inside import run_inside
from tests.snapshots.making import NAMES, claim, make_mapping, make_snapshot, result
from tests.web.signed_in import BASE, Browser

TRIGGER = "/api/ops/jobs/trigger"


def asked(job: str = "lifecycle", reason: str = "after the deploy", **more: Any) -> dict[str, Any]:
    return {"job_name": job, "reason": reason, **more}


async def test_a_trigger_makes_a_job_that_says_who_and_why(
    grace: httpx2.AsyncClient, core: Core, config: Config, clock: DatabaseClock
) -> None:
    before = await schedules.get(core.db, "lifecycle")
    answer = await grace.post(TRIGGER, json=asked(), headers={"X-Request-Id": "req-42-abcdef"})
    assert answer.status_code == 202, answer.text
    made = answer.json()["data"]
    assert answer.headers["location"] == f"/api/jobs/{made['job_id']}"
    assert (made["job_name"], made["status"], made["triggered_by"], made["reason"]) == (
        "lifecycle",
        "queued",
        "grace",
        "after the deploy",
    )
    after = await schedules.get(core.db, "lifecycle")
    assert before is not None
    assert after is not None
    assert after.next_at == before.next_at, "it shifts no schedule"
    [job] = await run_inside(core, config, kind_of(BY_NAME["lifecycle"], config))
    assert job.status == "completed"
    assert job.payload["request_id"] == "req-42-abcdef"
    [state] = [state for state in await records.states(core.db) if state.name == "lifecycle"]
    assert state.last_trigger is not None
    assert state.last_trigger["by"] == "grace"
    noted = (await grace.get("/api/audit")).json()["data"]
    assert [entry["reason"] for entry in noted if entry["subject"] == "schedule:lifecycle"] == ["after the deploy"]


async def test_a_trigger_is_logged_with_who_why_and_its_request(grace: httpx2.AsyncClient) -> None:
    with capture_logs(processors=[structlog.contextvars.merge_contextvars]) as lines:
        made = await grace.post(TRIGGER, json=asked(), headers={"X-Request-Id": "req-43-abcdef"})
    [said] = [line for line in lines if line["event"] == "manual_job_trigger"]
    told = {name: said[name] for name in ("job", "triggered_by", "reason", "job_id", "request_id", "log_level")}
    assert told == {
        "job": "lifecycle",
        "triggered_by": "grace",
        "reason": "after the deploy",
        "job_id": made.json()["data"]["job_id"],
        "request_id": "req-43-abcdef",
        "log_level": "info",
    }


async def test_the_jobs_of_exports_have_the_fields_of_the_older_deployment(
    grace: httpx2.AsyncClient, core: Core, config: Config
) -> None:
    async def page(**asked: Any) -> dict[str, Any]:
        answer = await grace.get("/api/ops/export-jobs", params=asked)
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found

    snapshot = await make_snapshot(core)
    first = next(iter((await claim(core)).values()))
    await first.finish("done", result=result(7))
    await make_snapshot(core, await make_mapping(core, name="sea"))

    whole = (await page(snapshot_id=str(snapshot.id)))["data"]
    assert {job["snapshot_id"] for job in whole} == {str(snapshot.id)}
    by_name = {job["entity_name"]: job for job in whole}
    assert by_name.keys() == set(NAMES)
    assert {name: job["job_type"] for name, job in by_name.items()} == {
        "Airport": "node",
        "Airline": "node",
        "ROUTE": "edge",
        "FLIES_TO": "edge",
    }
    assert set(by_name["Airport"]) == set(EXPORT_JOB_EXAMPLE)
    assert by_name["Airport"]["sql"] == "SELECT code, name FROM airports"
    assert by_name["Airport"]["column_names"] == ["code", "name"]
    assert by_name["Airport"]["gcs_path"].startswith(config.object_store)

    [ended] = (await page(status="completed"))["data"]
    assert (ended["id"], ended["row_count"], ended["size_bytes"]) == (str(first.id), 7, 700)
    assert ended["starburst_query_id"] == "q1"
    claimed = (await page(status="claimed"))["data"]
    assert first.id not in {job["id"] for job in claimed}
    assert all(job["claimed_by"] and job["claimed_at"] for job in claimed)

    seen: list[str] = []
    cursor: dict[str, str] = {}
    for _ in range(4):
        some = await page(limit=3, **cursor)
        seen += [job["id"] for job in some["data"]]
        if (following := some.get("next_cursor")) is None:
            break
        cursor = {"cursor": following}
    assert len(seen) == len(set(seen)) == 8
    unknown = await page(snapshot_id="01900000-0000-7000-8000-000000000000")
    assert unknown["data"] == []


async def test_a_second_trigger_within_a_minute_waits(grace: httpx2.AsyncClient, clock: DatabaseClock) -> None:
    assert (await grace.post(TRIGGER, json=asked())).status_code == 202
    await clock.advance(seconds=20)
    answer = await grace.post(TRIGGER, json=asked())
    assert answer.status_code == 429
    assert answer.headers["retry-after"] == "40"
    assert answer.json()["error"]["code"] == "rate_limited"
    assert answer.json()["error"]["message"] == "Wait 40s before triggering again"
    assert (await grace.post(TRIGGER, json=asked("export_reconciliation"))).status_code == 202, "of that job alone"
    await clock.advance(seconds=40)
    assert (await grace.post(TRIGGER, json=asked())).status_code == 202


async def test_the_same_key_gets_the_same_answer(grace: httpx2.AsyncClient, clock: DatabaseClock) -> None:
    first = await grace.post(TRIGGER, json=asked(), headers={"Idempotency-Key": "k1"})
    again = await grace.post(TRIGGER, json=asked(), headers={"Idempotency-Key": "k1"})
    assert again.status_code == 202
    assert again.json() == first.json()
    other = await grace.post(TRIGGER, json=asked(reason="another"), headers={"Idempotency-Key": "k1"})
    assert other.status_code == 422
    assert other.json()["error"]["code"] == "idempotency_key_reused"


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (asked("sweeping"), ", ".join(JOBS)),
        (asked(reason=""), "Say why"),
        (asked(reason="   "), "Say why"),
        ({"job_name": "lifecycle"}, "Say why"),
        (asked(reason="x" * 501), "at most 500 characters"),
        (asked(force=True), "reconciliation alone"),
        (asked(force="yes"), "force"),
    ],
)
async def test_what_cannot_be_asked_is_a_sentence(grace: httpx2.AsyncClient, body: dict[str, Any], said: str) -> None:
    answer = await grace.post(TRIGGER, json=body)
    assert answer.status_code == 422, answer.text
    assert said in answer.json()["error"]["message"]


async def test_analysts_may_not(ada: httpx2.AsyncClient) -> None:
    assert (await ada.post(TRIGGER, json=asked())).status_code == 403
    for path in ("/api/ops/jobs/status", "/api/ops/export-jobs", "/api/ops/state"):
        assert (await ada.get(path)).status_code == 403


async def test_drain_does_not_hold_a_trigger(grace: httpx2.AsyncClient, core: Core) -> None:
    await core.drain(True, actor="grace")
    assert (await grace.post(TRIGGER, json=asked())).status_code == 202


async def test_the_status_tells_what_waits_and_what_runs(
    grace: httpx2.AsyncClient, core: Core, config: Config, clock: DatabaseClock
) -> None:
    async def told() -> dict[str, Any]:
        found = (await grace.get("/api/ops/jobs/status")).json()["data"]
        return next(job for job in found if job["job_name"] == "lifecycle")

    first = await told()
    assert (first["status"], first["interval_seconds"], first["healthy"], first["last_success_at"]) == (
        "idle",
        300,
        True,
        None,
    )
    job = (await grace.post(TRIGGER, json=asked())).json()["data"]["job_id"]
    waits = await told()
    assert (waits["status"], waits["job_id"]) == ("queued", job)
    assert waits["last_trigger"]["reason"] == "after the deploy"
    await run_inside(core, config, kind_of(BY_NAME["lifecycle"], config))
    ended = await told()
    assert (ended["status"], ended["last_status"], ended["last_job_id"]) == ("idle", "success", job)
    assert ended["found"] == {}
    assert ended["misfires"] == 0
    assert ended["next_run_at"] is not None


async def test_the_state_tells_what_there_is_and_whether_the_jobs_are_well(grace: httpx2.AsyncClient) -> None:
    state = (await grace.get("/api/ops/state")).json()["data"]
    assert state["snapshots"] == {}
    assert state["exports"] == {}
    assert state["dumps"] == {}
    assert set(state["background_jobs"]) == set(BY_NAME)
    assert all(job["healthy"] for job in state["background_jobs"].values())


async def test_the_page_shows_them_and_runs_one(app: Any, core: Core, clients: Any) -> None:
    client = httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url=BASE)
    async with client:
        answer = await client.post("/sign-in", data={"token": clients.secrets["grace"]}, headers={"origin": BASE})
        assert answer.status_code == 303
        browser = Browser(client)
        page = await browser.read("/background")
        assert "export_reconciliation" in page
        assert "Run now" in page
        assert "Say why" in await browser.refused("/background/lifecycle/run", "/background", 422, reason="")
        assert (
            await browser.done("/background/lifecycle/run", "/background", reason="a look") == "/background/lifecycle"
        )
        one = await browser.read("/background/lifecycle")
        assert "a look" in one
        assert "queued" in one
        await browser.read("/background/nothing", 404)


async def test_none_is_run_by_its_schedule_without_a_reason_or_twice_in_a_minute(
    grace: httpx2.AsyncClient, app: Any, clients: Any
) -> None:
    for name in BY_NAME:
        refused = await grace.post(f"/api/schedules/{name}/run", json={"reason": "at once"})
        assert refused.status_code == 409
        error = refused.json()["error"]
        assert error["code"] == "schedule_has_a_trigger"
        assert f"paddock ops trigger {name} --reason" in error["hint"]
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url=BASE) as client:
        await client.post("/sign-in", data={"token": clients.secrets["grace"]}, headers={"origin": BASE})
        browser = Browser(client)
        assert "/schedules/lifecycle" not in await browser.read("/schedules")
        one = await browser.read("/schedules/lifecycle")
        assert 'href="/background/lifecycle"' in one
        assert "/schedules/lifecycle/switch" in one
        assert "/schedules/lifecycle/run" not in one
        await browser.refused("/schedules/lifecycle/run", "/schedules/lifecycle", 409)


async def test_a_pass_is_not_retried_with_the_reason_of_another(
    grace: httpx2.AsyncClient, core: Core, app: Any, clients: Any
) -> None:
    """A forced one, least of all."""
    forced = await grace.post(TRIGGER, json=asked("reconciliation", force=True))
    await core.cancel([JobId(UUID(forced.json()["data"]["job_id"]))], actor="grace", reason="not now")
    again = await grace.post(f"/api/jobs/{forced.json()['data']['job_id']}/retry")
    assert again.status_code == 409
    assert again.json()["error"]["code"] == "not_retriable"
    assert "paddock ops trigger reconciliation" in again.json()["error"]["hint"]
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url=BASE) as client:
        await client.post("/sign-in", data={"token": clients.secrets["grace"]}, headers={"origin": BASE})
        page = await Browser(client).read(f"/jobs/{forced.json()['data']['job_id']}")
    assert "by hand it is run on /background/reconciliation" in page
    assert "/retry" not in page


async def test_the_doctor_judges_one_that_never_ran_by_how_long_it_has_been_due(
    core: Core, config: Config, clock: DatabaseClock
) -> None:
    async def said() -> list[str]:
        return [finding.message async for finding in examining.background_jobs(core, config)]

    assert await said() == ["6 background jobs run when they should."]
    await clock.advance(minutes=11)
    assert "lifecycle has been due for 11 min, and no pass of it was made." in await said()
    await schedules.run_due(core)
    assert await said() == ["6 background jobs run when they should."], "they may begin at any moment"
    await clock.advance(minutes=11)
    assert "A pass of lifecycle has waited for 11 min, and nobody takes it." in await said()


async def test_the_doctor_and_the_overview_say_what_is_wrong(
    grace: httpx2.AsyncClient, core: Core, config: Config
) -> None:
    assert [finding.level async for finding in examining.background_jobs(core, config)][-1] != "warning"
    async with core.db.transaction() as tx:
        await tx.execute(
            "UPDATE background_jobs SET failures_in_a_row = 3, failing_since = paddock_now(),"
            """ error = '{"code": "x", "message": "the runtime is away"}' WHERE name = 'lifecycle'"""
        )
        await tx.execute(
            """UPDATE background_jobs SET found = '{"orphaned_pods_held_back": 12}' WHERE name = 'export_reconciliation'"""
        )
    found = [finding async for finding in examining.background_jobs(core, config)]
    assert any(finding.level == "broken" and "the runtime is away" in finding.message for finding in found)
    said = [clause.text for clause in await alarming.clauses(core.db)]
    assert said == ["background job lifecycle has failed 3 times", "12 orphans were found and not deleted"]
