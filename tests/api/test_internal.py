"""The workers' API over HTTP: verdicts, long polls that hold nothing, sessions that are not known."""

import asyncio
import json
from typing import Any
from uuid import uuid4

import httpx2
import pytest

from paddock.api.app import create_app
from paddock.config import Config
from paddock.jobs.core import Core
from tests.api.conftest import Clients, serving
from tests.playing import until


async def register(worker: httpx2.AsyncClient, *kinds: str) -> str:
    answer = await worker.post(
        "/internal/sessions", json={"worker_id": "w-1", "version": "1", "kinds": kinds or ["plain"]}
    )
    assert answer.status_code == 200, answer.text
    return str(answer.json()["session"])


def claim(session: str, **fields: Any) -> dict[str, Any]:
    return {"session": session, "claim_id": str(uuid4()), "kinds": ["plain"], "limit": 10, **fields}


async def test_a_job_goes_from_claim_to_finish(ada: httpx2.AsyncClient, worker: httpx2.AsyncClient) -> None:
    job = (await ada.post("/api/jobs", json={"kind": "plain", "payload": {"n": 1}})).json()["data"]["id"]
    session = await register(worker)
    [claimed] = (await worker.post("/internal/jobs/claim", json=claim(session))).json()["jobs"]
    own = {"id": claimed["id"], "attempt_id": claimed["attempt_id"]}
    assert (claimed["id"], claimed["payload"]) == (job, {"n": 1})

    async def verdict(path: str, **fields: Any) -> str:
        answer = await worker.post(f"/internal/{path}", json=fields)
        assert answer.status_code == 200, answer.text
        return str(answer.json()["verdicts"][0]["verdict"])

    assert await verdict(f"sessions/{session}/beat", holding=[{**own, "report": {"percent": 50}}]) == "accepted"
    assert await verdict("jobs/save", items=[{**own, "saved": {"page": 2}}]) == "accepted"
    logged = await worker.post("/internal/jobs/logs", json={"items": [{**own, "seq": 1, "lines": "half\n"}]})
    assert logged.status_code == 200
    done = {**own, "outcome": "done", "result": {"rows": 3}}
    assert await verdict("jobs/finish", items=[done]) == "accepted"
    assert await verdict("jobs/finish", items=[done]) == "already_yours"
    assert await verdict("jobs/release", items=[own]) in ("already_yours", "stale_attempt")
    shown = (await ada.get(f"/api/jobs/{job}")).json()["data"]
    assert (shown["status"], shown["result"]) == ("completed", {"rows": 3})


async def test_a_worker_may_ask_which_jobs_have_ended(ada: httpx2.AsyncClient, worker: httpx2.AsyncClient) -> None:
    async def submitted() -> str:
        return str((await ada.post("/api/jobs", json={"kind": "plain", "payload": {"n": 1}})).json()["data"]["id"])

    live, over, stranger = await submitted(), await submitted(), str(uuid4())
    await ada.post(f"/api/jobs/{over}/cancel", json={})
    answer = await worker.post("/internal/jobs/ended", json={"ids": [live, over, stranger]})
    assert (answer.status_code, answer.json()) == (200, {"ids": [over]})
    assert (await worker.post("/internal/jobs/ended", json={"ids": [live] * 1001})).status_code == 422


async def test_an_unknown_session_is_told_to_register_again(worker: httpx2.AsyncClient) -> None:
    for path, body in (
        ("/internal/jobs/claim", claim(str(uuid4()))),
        (f"/internal/sessions/{uuid4()}/beat", {"holding": []}),
        ("/internal/sessions/no-id/beat", {"holding": []}),
    ):
        answer = await worker.post(path, json=body)
        assert (answer.status_code, answer.json()["error"]["code"]) == (404, "session_unknown"), path


async def test_messages_that_do_not_fit_are_refused(worker: httpx2.AsyncClient) -> None:
    session = await register(worker)
    for content, status in (
        (b"", 400),
        (b"{", 400),
        (b"\xff", 400),
        (b"[" * 100_000, 422),
        (b"[]", 422),
        (b"{}", 422),
        (b'{"session": "x", "claim_id": "y", "kinds": []}', 422),
    ):
        answer = await worker.post("/internal/jobs/claim", content=content)
        assert answer.status_code == status, content[:50]
    for field in ({"kinds": ["a\0b"]}, {"kinds": [""]}, {"limits": {"\0": 1}}):
        assert (await worker.post("/internal/jobs/claim", json=claim(session, **field))).status_code == 422
    register_nul = {"worker_id": "a\0b", "version": "1", "kinds": []}
    assert (await worker.post("/internal/sessions", json=register_nul)).status_code == 422


@pytest.mark.parametrize(
    "hostile",
    [
        r'"a\u0000b"',
        r'"\ud800"',
        "NaN",
        "-Infinity",
        "1e999",
        '{"a": [-1e999]}',
        str(2**100),
        '{"a": [-9223372036854775809]}',
        "9" * 5_000,
    ],
)
async def test_one_hostile_value_spoils_no_other(
    ada: httpx2.AsyncClient, worker: httpx2.AsyncClient, hostile: str
) -> None:
    await ada.post("/api/jobs/batch", json={"jobs": [{"kind": "plain"}] * 3})
    session = await register(worker)
    jobs = (await worker.post("/internal/jobs/claim", json=claim(session))).json()["jobs"]

    async def verdicts(path: str, template: dict[str, Any]) -> list[str]:
        own = [{"id": job["id"], "attempt_id": job["attempt_id"]} for job in jobs]
        items = [json.dumps({**one, **template}) for one in own]
        items[1] = items[1].replace('"HERE"', hostile)
        list_name = "holding" if path.endswith("beat") else "items"
        answer = await worker.post(path, content=f'{{"{list_name}": [{",".join(items)}]}}')
        assert answer.status_code == 200, answer.text
        return [verdict["verdict"] for verdict in answer.json()["verdicts"]]

    assert await verdicts(f"/internal/sessions/{session}/beat", {"report": {"a": "HERE"}}) == ["accepted"] * 3
    one_of_three = ["accepted", "invalid", "accepted"]
    assert await verdicts("/internal/jobs/save", {"saved": {"a": "HERE"}}) == one_of_three
    assert await verdicts("/internal/jobs/finish", {"outcome": "done", "result": "HERE"}) == one_of_three
    shown = (await ada.get(f"/api/jobs/{jobs[1]['id']}")).json()["data"]
    assert (shown["status"], shown["error_code"]) == ("failed", "invalid_result")


async def test_a_finish_may_be_larger_than_a_public_body(ada: httpx2.AsyncClient, worker: httpx2.AsyncClient) -> None:
    await ada.post("/api/jobs/batch", json={"jobs": [{"kind": "plain"}] * 10})
    session = await register(worker)
    jobs = (await worker.post("/internal/jobs/claim", json=claim(session))).json()["jobs"]
    items = [
        {"id": job["id"], "attempt_id": job["attempt_id"], "outcome": "done", "result": "x" * 200_000} for job in jobs
    ]
    answer = await worker.post("/internal/jobs/finish", json={"items": items})
    assert {verdict["verdict"] for verdict in answer.json()["verdicts"]} == {"accepted"}
    assert (await worker.post("/internal/jobs/finish", content=b"x" * (17 << 20))).status_code == 413


async def test_a_waiting_worker_is_woken_by_a_new_job(ada: httpx2.AsyncClient, worker: httpx2.AsyncClient) -> None:
    session = await register(worker)
    waiting = asyncio.create_task(worker.post("/internal/jobs/claim", json=claim(session, wait_seconds=30)))
    await asyncio.sleep(0.2)
    assert not waiting.done()
    await ada.post("/api/jobs", json={"kind": "plain"})

    answer = await asyncio.wait_for(waiting, 20)

    assert len(answer.json()["jobs"]) == 1


async def test_a_worker_that_hangs_up_frees_its_place(served: str, clients: Clients, core: Core) -> None:
    headers = {"Authorization": f"Bearer {clients.secrets['worker']}"}
    async with httpx2.AsyncClient(base_url=served, headers=headers) as worker:
        session = await register(worker)
        with pytest.raises(httpx2.ReadTimeout):
            await worker.post("/internal/jobs/claim", json=claim(session, wait_seconds=30), timeout=0.5)
    await until(lambda: not core.claims.waiters)


async def test_long_polls_are_answered_empty_when_the_process_stops(core: Core, clients: Clients) -> None:
    headers = {"Authorization": f"Bearer {clients.secrets['worker']}"}
    async with (
        serving(create_app(core, Config())) as (server, address),
        httpx2.AsyncClient(base_url=address, headers=headers) as worker,
    ):
        session = await register(worker)
        waiting = asyncio.create_task(worker.post("/internal/jobs/claim", json=claim(session, wait_seconds=30)))
        await until(lambda: bool(core.claims.waiters))
        server.should_exit = True
        answer = await asyncio.wait_for(waiting, 20)
    assert (answer.status_code, answer.json()["jobs"]) == (200, [])
