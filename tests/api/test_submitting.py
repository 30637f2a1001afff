"""Making work: one job, many in one transaction, and the same request twice."""

import asyncio
from typing import Any

import httpx2

from paddock.jobs.core import Core
from tests.playing import worker as play_worker

KEY = {"Idempotency-Key": "a-key"}


async def count(client: httpx2.AsyncClient) -> int:
    return len((await client.get("/api/jobs?limit=1000")).json()["data"])


async def test_a_submitted_job_is_accepted_and_can_be_read_at_its_location(ada: httpx2.AsyncClient) -> None:
    submitted = await ada.post("/api/jobs", json={"kind": "plain", "payload": {"n": 1}, "tags": ["demo"]})

    assert submitted.status_code == 202
    job = submitted.json()["data"]
    assert (job["kind"], job["status"], job["owner"], job["payload"]) == ("plain", "pending", "ada", {"n": 1})
    assert (job["tags"], job["priority"], job["attempt_count"]) == (["demo"], 3, 1)
    assert job["created_at"].endswith("Z")
    assert (await ada.get(submitted.headers["location"])).json()["data"] == job


async def test_a_batch_is_accepted_whole_and_in_its_order(ada: httpx2.AsyncClient) -> None:
    jobs = [{"kind": "plain", "payload": {"n": n}} for n in range(1000)]

    submitted = await ada.post("/api/jobs/batch", json={"jobs": jobs})

    assert submitted.status_code == 202
    assert [job["payload"]["n"] for job in submitted.json()["data"]] == list(range(1000))
    assert (await ada.post("/api/jobs/batch", json={"jobs": [*jobs, jobs[0]]})).status_code == 422
    assert (await ada.post("/api/jobs/batch", json={"jobs": []})).status_code == 422


async def test_of_a_batch_with_one_bad_job_nothing_is_accepted(ada: httpx2.AsyncClient) -> None:
    good: dict[str, Any] = {"kind": "plain"}
    lock = {"kind": "locking", "payload": {"lock": "table:sales"}}
    for bad, status, code in (
        ([{"kind": "nonesuch"}], 422, "unknown_kind"),
        ([{"kind": "probe"}], 403, "kind_not_allowed"),
        ([{"kind": "plain", "priority": 1}], 403, "priority_not_allowed"),
        ([{"kind": "locking", "payload": {"lock": 7}}], 422, "invalid_payload"),
        ([lock, lock], 409, "lock_held"),
    ):
        answer = await ada.post("/api/jobs/batch", json={"jobs": [good, *bad, good]})
        assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)
    assert await count(ada) == 0


async def test_a_payload_that_does_not_fit_its_kind_lists_every_field(root: httpx2.AsyncClient) -> None:
    answer = await root.post("/api/jobs", json={"kind": "probe", "payload": {"turns": 0, "budget": "mine", "what": 1}})

    assert (answer.status_code, answer.json()["error"]["code"]) == (422, "invalid_payload")
    fields = {field["field"] for field in answer.json()["error"]["details"]["fields"]}
    assert fields == {"payload.turns", "payload.budget", "payload.what"}


async def test_the_same_key_and_body_make_one_job(ada: httpx2.AsyncClient) -> None:
    first = await ada.post("/api/jobs", json={"kind": "plain", "payload": {"a": 1, "b": 2}}, headers=KEY)
    # The same words in another order are the same body.
    again = await ada.post("/api/jobs", json={"payload": {"b": 2, "a": 1}, "kind": "plain"}, headers=KEY)

    assert (again.status_code, again.headers["location"]) == (202, first.headers["location"])
    assert again.json() == first.json()
    assert await count(ada) == 1


async def test_the_same_key_with_another_body_is_refused(ada: httpx2.AsyncClient) -> None:
    await ada.post("/api/jobs", json={"kind": "plain", "payload": {"n": 1}}, headers=KEY)
    other = await ada.post("/api/jobs", json={"kind": "plain", "payload": {"n": 2}}, headers=KEY)

    assert (other.status_code, other.json()["error"]["code"]) == (422, "idempotency_key_reused")
    assert await count(ada) == 1


async def test_twenty_at_once_with_one_key_make_one_job(ada: httpx2.AsyncClient) -> None:
    answers = await asyncio.gather(*(ada.post("/api/jobs", json={"kind": "plain"}, headers=KEY) for _ in range(20)))

    assert {answer.status_code for answer in answers} == {202}
    assert len({answer.json()["data"]["id"] for answer in answers}) == 1


async def test_a_refusal_is_not_remembered(ada: httpx2.AsyncClient) -> None:
    body = {"kind": "locking", "payload": {"lock": "table:sales"}}
    holder = (await ada.post("/api/jobs", json=body)).json()["data"]["id"]
    assert (await ada.post("/api/jobs", json=body, headers=KEY)).status_code == 409
    await ada.post(f"/api/jobs/{holder}/cancel")

    assert (await ada.post("/api/jobs", json=body, headers=KEY)).status_code == 202


async def test_a_repeated_key_answers_with_the_job_as_it_is_now(ada: httpx2.AsyncClient, core: Core) -> None:
    first = await ada.post("/api/jobs", json={"kind": "plain"}, headers=KEY)
    [attempt] = await (await play_worker(core)).claim()
    await attempt.finish(result={"rows": 3})

    again = await ada.post("/api/jobs", json={"kind": "plain"}, headers=KEY)

    assert again.json()["data"]["id"] == first.json()["data"]["id"]
    assert (again.json()["data"]["status"], again.json()["data"]["result"]) == ("completed", {"rows": 3})


async def test_a_retry_with_a_key_is_one_retry(ada: httpx2.AsyncClient) -> None:
    job = (await ada.post("/api/jobs", json={"kind": "plain"})).json()["data"]["id"]
    await ada.post(f"/api/jobs/{job}/cancel")

    first = await ada.post(f"/api/jobs/{job}/retry", json={"reason": "again"}, headers=KEY)
    again = await ada.post(f"/api/jobs/{job}/retry", json={"reason": "again"}, headers=KEY)
    other = await ada.post(f"/api/jobs/{job}/retry", json={"reason": "other"}, headers=KEY)
    bare = await ada.post(f"/api/jobs/{job}/retry")

    assert first.status_code == again.status_code == 202
    assert again.json()["data"]["id"] == first.json()["data"]["id"]
    assert first.json()["data"]["retry_of"] == job
    assert (other.status_code, other.json()["error"]["code"]) == (422, "idempotency_key_reused")
    assert (bare.status_code, bare.json()["error"]["code"]) == (409, "already_retried")


async def test_drain_mode_refuses_new_work_and_retries_and_says_when_to_come_back(
    ada: httpx2.AsyncClient, grace: httpx2.AsyncClient
) -> None:
    job = (await ada.post("/api/jobs", json={"kind": "plain"})).json()["data"]["id"]
    drained = await grace.post("/api/ops/drain", json={"enabled": True, "reason": "upgrade"})
    assert drained.json()["data"]["drain"] == {"enabled": True, "reason": "upgrade"}

    assert (await ada.post(f"/api/jobs/{job}/cancel")).status_code == 200
    for refused in (
        await ada.post("/api/jobs", json={"kind": "plain"}),
        await ada.post("/api/jobs/batch", json={"jobs": [{"kind": "plain"}]}),
        await ada.post(f"/api/jobs/{job}/retry"),
        await ada.post("/api/jobs/retry", json={"filter": {"kind": "plain"}}),
    ):
        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "draining")
        assert refused.headers["retry-after"] == "30"
    assert (await ada.post("/api/jobs/cancel", json={"filter": {"kind": "plain"}})).status_code == 202

    await grace.post("/api/ops/drain", json={"enabled": False})
    assert (await ada.post("/api/jobs", json={"kind": "plain"})).status_code == 202
