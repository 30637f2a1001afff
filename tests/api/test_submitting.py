"""POST /api/jobs and its list form."""

import httpx2

from paddock.jobs.core import Core


async def test_a_submitted_job_is_accepted_and_can_be_read_at_its_location(ada: httpx2.AsyncClient) -> None:
    submitted = await ada.post("/api/jobs", json={"kind": "plain", "payload": {"n": 1}, "tags": ["demo"]})

    assert submitted.status_code == 202
    job = submitted.json()["data"]
    assert (job["kind"], job["status"], job["owner"], job["payload"]) == ("plain", "pending", "ada", {"n": 1})
    read = await ada.get(submitted.headers["location"])
    assert read.json()["data"] == job
    assert job["created_at"].endswith("Z")
