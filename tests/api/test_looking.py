"""Looking at jobs and acting on them: pages, waiting, timeline, log, cancel, retry, bulk."""

import asyncio
from typing import Any
from uuid import uuid4

import httpx2

from paddock.api.app import close
from paddock.api.job_json import BRIEF, WHOLE_EXAMPLE, BriefJob, WholeJob
from paddock.jobs import wire
from paddock.jobs.core import Core
from tests.api.conftest import Clients
from tests.playing import worker as play_worker

# Of the 30 s for which the waits here are asked.
BEFORE_IT_IS_OVER = 20


async def submit(client: httpx2.AsyncClient, **body: Any) -> str:
    answer = await client.post("/api/jobs", json={"kind": "plain", **body})
    assert answer.status_code == 202, answer.text
    return str(answer.json()["data"]["id"])


async def test_a_wait_is_answered_when_the_job_ends(ada: httpx2.AsyncClient, core: Core) -> None:
    job = await submit(ada)
    worker = await play_worker(core)
    [attempt] = await worker.claim()
    waiting = asyncio.create_task(ada.get(f"/api/jobs/{job}?wait=30"))
    await asyncio.sleep(0.2)
    assert not waiting.done()

    await attempt.finish(result={"rows": 3})
    async with asyncio.timeout(BEFORE_IT_IS_OVER):
        answer = await waiting

    assert (answer.json()["data"]["status"], answer.json()["data"]["result"]) == ("completed", {"rows": 3})


async def test_a_wait_for_a_job_that_has_ended_or_does_not_end_in_time(ada: httpx2.AsyncClient) -> None:
    job = await submit(ada)
    unfinished = await ada.get(f"/api/jobs/{job}?wait=0.2")
    assert (unfinished.status_code, unfinished.json()["data"]["status"]) == (200, "pending")

    await ada.post(f"/api/jobs/{job}/cancel")
    async with asyncio.timeout(BEFORE_IT_IS_OVER):
        assert (await ada.get(f"/api/jobs/{job}?wait=30")).json()["data"]["status"] == "cancelled"


async def test_a_wait_ends_when_the_process_stops(ada: httpx2.AsyncClient, clients: Clients) -> None:
    job = await submit(ada)
    waiting = asyncio.create_task(ada.get(f"/api/jobs/{job}?wait=30"))
    await asyncio.sleep(0.2)

    close(clients.app)

    async with asyncio.timeout(BEFORE_IT_IS_OVER):
        assert (await waiting).json()["data"]["status"] == "pending"


async def test_pages_go_back_through_all_jobs_once(ada: httpx2.AsyncClient) -> None:
    # By id: which of two of one millisecond is the newer, chance decides.
    made = sorted([await submit(ada, payload={"n": n}) for n in range(7)])
    found: list[str] = []
    cursor = None
    for _ in range(10):
        page = (await ada.get("/api/jobs", params={"limit": 3} | ({"cursor": cursor} if cursor else {}))).json()
        found += [job["id"] for job in page["data"]]
        cursor = page["next_cursor"]
        if cursor is None:
            break

    assert found == made[::-1]


async def test_filters_narrow(ada: httpx2.AsyncClient, core: Core) -> None:
    plain, other = await submit(ada), await submit(ada, kind="other", tags=["red"])
    await ada.post(f"/api/jobs/{plain}/cancel")

    async def found(query: str) -> list[str]:
        return [job["id"] for job in (await ada.get(f"/api/jobs?{query}")).json()["data"]]

    assert await found("kind=other") == [other]
    assert await found("tag=red") == [other]
    assert await found("status=cancelled") == [plain]
    both = sorted([plain, other], reverse=True)
    assert await found("status=cancelled&status=pending") == both
    assert await found("status=cancelled,pending") == both
    assert await found("error_code=cancelled") == [plain]
    assert await found(f"q={plain[:13]}") == [plain] or plain[:13] == other[:13]
    assert await found("until=2020-01-01T00:00:00Z") == []


async def test_a_job_is_shown_with_exactly_what_the_document_says(ada: httpx2.AsyncClient) -> None:
    job = (await ada.get(f"/api/jobs/{await submit(ada)}")).json()["data"]
    [listed] = (await ada.get("/api/jobs")).json()["data"]

    assert set(job) == set(WholeJob.model_fields) == set(WHOLE_EXAMPLE)
    assert set(listed) == set(BriefJob.model_fields) == {*BRIEF, "links"}
    WholeJob.model_validate(job)


async def test_saved_state_is_shown_only_as_far_as_the_kind_allows(ada: httpx2.AsyncClient, core: Core) -> None:
    job = await submit(ada)
    [attempt] = await (await play_worker(core)).claim()
    await attempt.save({"next_uri": "https://trino/v1/statement/executing/x/y/1"})

    answer = await ada.get(f"/api/jobs/{job}")

    assert answer.json()["data"]["saved"] is None
    assert "next_uri" not in answer.text


async def test_the_timeline_and_the_log_of_a_job(ada: httpx2.AsyncClient, core: Core) -> None:
    job = await submit(ada)
    [attempt] = await (await play_worker(core)).claim()
    item = wire.LogItem(id=attempt.job.id, attempt_id=attempt.job.attempt_id, seq=1, lines="hello\n")
    await attempt.link.logs(wire.Logs(items=[item]))
    await ada.post(f"/api/jobs/{job}/cancel", json={"reason": "wrong table"})

    timeline = (await ada.get(f"/api/jobs/{job}/timeline")).json()["data"]
    log = (await ada.get(f"/api/jobs/{job}/logs")).json()["data"]
    since = (await ada.get(f"/api/jobs/{job}/logs", params={"after": log["after"]})).json()["data"]

    assert [entry["to"] for entry in timeline] == ["pending", "claimed", "cancelled"]
    assert (timeline[-1]["actor"], timeline[-1]["reason"]) == ("ada", "wrong table")
    assert [chunk["lines"] for chunk in log["chunks"]] == ["hello\n"]
    assert since["chunks"] == []


async def test_cancel_and_retry_say_what_they_cannot_do(ada: httpx2.AsyncClient, core: Core) -> None:
    job = await submit(ada)
    early = await ada.post(f"/api/jobs/{job}/retry")
    assert (early.status_code, early.json()["error"]["code"]) == (409, "not_finished")
    cancelled = await ada.post(f"/api/jobs/{job}/cancel")
    assert cancelled.json()["data"]["status"] == "cancelled"
    late = await ada.post(f"/api/jobs/{job}/cancel")
    assert (late.status_code, late.json()["error"]["code"]) == (409, "already_finished")
    retried = await ada.post(f"/api/jobs/{job}/retry")
    assert retried.headers["location"] == f"/api/jobs/{retried.json()['data']['id']}"
    assert (await ada.get(f"/api/jobs/{job}")).json()["data"]["retried_by"] == retried.json()["data"]["id"]


async def test_run_now_hurries_what_waits_and_nothing_else(ada: httpx2.AsyncClient, core: Core) -> None:
    job = await submit(ada, run_at="2999-01-01T00:00:00Z")
    worker = await play_worker(core)
    assert await worker.claim() == []

    hurried = await ada.post(f"/api/jobs/{job}/run-now")
    again = await ada.post(f"/api/jobs/{job}/run-now")

    assert hurried.status_code == 200
    assert (again.status_code, again.json()["error"]["code"]) == (409, "not_waiting")
    assert len(await worker.claim()) == 1


async def test_a_bulk_action_wants_a_filter_or_the_word_all(ada: httpx2.AsyncClient) -> None:
    bodies: list[dict[str, Any]] = [
        {},
        {"filter": {}},
        {"filter": {"since": "2020-01-01T00:00:00Z"}},
        {"dry_run": True},
    ]
    for body in bodies:
        refused = await ada.post("/api/jobs/cancel", json=body)
        assert (refused.status_code, refused.json()["error"]["code"]) == (422, "empty_filter"), body
    assert (await ada.post("/api/jobs/cancel", json={"all": True, "dry_run": True})).json()["data"]["count"] == 0


async def test_a_bulk_action_is_a_job_with_a_frozen_filter(ada: httpx2.AsyncClient) -> None:
    await submit(ada)
    body = {"filter": {"kind": "plain", "status": "pending"}, "reason": "all wrong"}
    counted = await ada.post("/api/jobs/cancel", json={**body, "dry_run": True})
    assert counted.json()["data"] == {"dry_run": True, "action": "cancel", "count": 1}
    assert (await ada.get("/api/jobs?kind=bulk")).json()["data"] == [], "a dry run makes nothing"

    headers = {"Idempotency-Key": uuid4().hex}
    started = await ada.post("/api/jobs/cancel", json=body, headers=headers)
    again = await ada.post("/api/jobs/cancel", json=body, headers=headers)

    assert started.status_code == 202
    payload = started.json()["data"]["payload"]
    assert (payload["action"], payload["actor"], payload["reason"]) == ("cancel", "ada", "all wrong")
    assert payload["filter"]["kind"] == "plain"
    assert payload["until"] is not None
    assert again.json()["data"]["id"] == started.json()["data"]["id"]


async def test_a_cleanup_is_not_cancelled_and_says_so(ada: httpx2.AsyncClient, core: Core) -> None:
    job = await submit(ada, kind="locking", payload={"lock": "table"})
    await (await play_worker(core)).claim_one("locking")
    assert (await ada.post(f"/api/jobs/{job}/cancel")).status_code == 200
    [cleanup] = [shown for shown in (await ada.get("/api/jobs")).json()["data"] if shown["cleanup_of"]]
    answer = await ada.post(f"/api/jobs/{cleanup['id']}/cancel")
    assert (answer.status_code, answer.json()["error"]["code"]) == (409, "cleanup_not_cancellable")
