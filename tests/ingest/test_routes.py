"""`/api/ingest`: who may do what, what is refused and how, and what is shown."""

import hashlib
from collections.abc import Callable
from typing import Any
from uuid import uuid4

import httpx2
import pyarrow.parquet as pq
import pytest

from paddock.api.app import create_app
from paddock.ingest import runs
from paddock.ingest.model import Run
from paddock.web import pages
from tests.ingest.conftest import Served

SECRET = "hush-hush"


@pytest.fixture(autouse=True)
def secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKEN_OF_NUMBERS", SECRET)


async def ran(served: Served, **body: Any) -> dict[str, Any]:
    """A run from its start to its end, as the API shows it."""
    ada = await served.client("ada")
    answer = await ada.post("/api/ingest/runs", json={"source": "numbers", **body})
    assert answer.status_code == 201, answer.text
    run = await runs.get(served.core.db, answer.json()["data"]["id"])
    assert run is not None
    await served.ended(run)
    shown: dict[str, Any] = (await ada.get(answer.headers["location"])).json()["data"]
    return shown


def code_of(answer: httpx2.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["error"]["code"]


async def test_a_run_is_started_watched_and_read(served: Served) -> None:
    run = await ran(served)
    assert (run["status"], run["batches"]) == ("completed", {"published": 3})
    assert (run["records"], run["passed"], run["rejected"]) == (10, 9, 1)
    ada = await served.client("ada")
    source = (await ada.get("/api/ingest/sources/numbers")).json()["data"]
    assert source["committed_session"] == {"after": 10}
    assert (source["last_run"]["id"], source["totals"]["rows"]) == (run["id"], 9)
    [found] = (await ada.get("/api/search", params={"q": run["id"], "exactly": True})).json()["data"]
    assert (found["what"], found["path"]) == ("ingest run", f"/ingest/runs/{run['id']}")
    assert (await ada.get(f"/api/jobs/{found['job_id']}")).json()["data"]["group_id"]
    assert [one["what"] for one in (await ada.get("/api/search?q=numb")).json()["data"]] == ["source"]
    [rejected] = (await ada.get(f"/api/ingest/runs/{run['id']}/batches/1/rejected")).json()["data"]
    assert (rejected["id"], rejected["reason"]) == ("7", "a multiple of seven")


async def test_for_others_a_source_does_not_exist(served: Served) -> None:
    run = (await ran(served))["id"]
    file = (await (await served.client("ada")).get("/api/ingest/sources/numbers/files")).json()["data"][0]["id"]
    bob, grace = await served.client("bob"), await served.client("grace")
    for text in (run, "numbers"):
        assert (await bob.get("/api/search", params={"q": text})).json()["data"] == []
    paths = (
        "/api/ingest/sources/numbers",
        "/api/ingest/sources/numbers/files",
        f"/api/ingest/runs/{run}",
        f"/api/ingest/runs/{run}/batches",
        f"/api/ingest/runs/{run}/batches/0",
        f"/api/ingest/runs/{run}/batches/0/rejected",
        f"/api/ingest/files/{file}/download",
    )
    for path in paths:
        assert (await bob.get(path)).status_code == 404, path
        assert (await grace.get(path)).status_code == 200, path
    for path in (f"/api/ingest/runs/{run}/cancel", f"/api/ingest/runs/{run}/batches/0/retry"):
        assert (await bob.post(path)).status_code == 404, path
    assert (await bob.delete(f"/api/ingest/runs/{run}")).status_code == 404
    assert code_of(await bob.post("/api/ingest/runs", json={"source": "numbers"})) == (404, "unknown_source")
    for path in ("/api/ingest/sources", "/api/ingest/runs", "/api/ingest/runs?source=numbers"):
        assert (await bob.get(path)).json()["data"] == [], path
    named = [
        source["name"] for source in (await (await served.client("ada")).get("/api/ingest/sources")).json()["data"]
    ]
    assert named == ["numbers"]


@pytest.mark.parametrize("role", ["stranger", "worker"])
async def test_only_people_get_in(served: Served, role: str) -> None:
    client = await served.client(role)
    for path in ("/api/ingest/sources", "/api/ingest/runs", f"/api/ingest/files/{uuid4()}/download"):
        assert (await client.get(path)).status_code in (401, 403), path
    assert (await client.post("/api/ingest/runs", json={"source": "numbers"})).status_code in (401, 403)


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        pytest.param({"source": "nowhere"}, 404, "unknown_source", id="unknown source"),
        pytest.param({"source": "hidden"}, 404, "unknown_source", id="not hers"),
        pytest.param({"source": "numbers", "session": 1}, 422, None, id="a session without from"),
        pytest.param({"source": "numbers", "from": "session"}, 422, None, id="from without a session"),
        pytest.param({"source": "numbers", "from": "session", "session": "x" * 132_000}, 422, None, id="129 KiB"),
        pytest.param({"source": "numbers", "from": "yesterday"}, 422, None, id="from nowhere"),
        pytest.param({"source": "numbers", "limit": 0}, 422, None, id="limit 0"),
        pytest.param({"source": "numbers", "batch_size": 10**9}, 422, None, id="batch_size 10^9"),
        pytest.param({"source": "numbers", "command": ["sh"]}, 422, None, id="a command"),
        pytest.param({}, 422, None, id="nothing"),
    ],
)
async def test_bad_input_is_refused_and_named(served: Served, body: Any, status: int, code: str | None) -> None:
    answer = await (await served.client("ada")).post("/api/ingest/runs", json=body)
    assert answer.status_code == status
    if code is not None:
        assert answer.json()["error"]["code"] == code
    assert not (await (await served.client("grace")).get("/api/ingest/runs")).json()["data"]


async def test_a_session_that_nobody_could_read_is_refused(served: Served) -> None:
    catalog = served.folder / "catalog.json"
    catalog.write_text("{}")
    served.source("tap", protocol="airbyte", catalog=str(catalog))
    assert served.clients is not None
    served.clients.app = create_app(served.core, served.config, routes=pages.routes())
    grace = await served.client("grace")
    answer = await grace.post("/api/ingest/runs", json={"source": "tap", "from": "session", "session": [1]})
    assert answer.status_code == 422
    assert "states of Airbyte" in answer.text
    started = await grace.post("/api/ingest/runs", json={"source": "tap", "from": "session", "session": {"legacy": 1}})
    assert started.status_code == 201


async def test_what_is_no_json_for_all_readers_is_shown_as_text(served: Served) -> None:
    """A record may have such numbers, and so could a session of an older version."""
    line, session = '{"id": 1, "data":\\r{"n": 7, "x": 1e999}}\\n', '{"session": 1, "has_more": false}'
    served.source(
        "numbers",
        f"""
import os
out = os.environ["PADDOCK_OUT"]
open(out + "/records.jsonl", "w", newline="").write('{line}')
open(out + "/session.json", "w").write('{session}')
""",
        hooks=["sevens"],
        owners=["ada"],
    )
    run = await ran(served)
    ada = await served.client("ada")
    async with served.core.db.transaction() as tx:
        await tx.execute("UPDATE ingest_batches SET session = '[{'")
    rejected = await ada.get(f"/api/ingest/runs/{run['id']}/batches/0/rejected")
    assert rejected.status_code == 200
    assert "1e999" in rejected.json()["data"][0]["data"]
    source = await ada.get("/api/ingest/sources/numbers")
    assert (source.status_code, source.json()["data"]["committed_session"]) == (200, "[{")


async def test_a_batch_is_shown_with_its_steps(served: Served) -> None:
    run = await ran(served)
    ada = await served.client("ada")
    shown = (await ada.get(f"/api/ingest/runs/{run['id']}/batches/1")).json()["data"]
    assert [(step["step"], step["status"]) for step in shown["steps"]] == [
        ("fetch", "completed"),
        ("hooks", "completed"),
        ("publish", "completed"),
    ]
    assert shown["steps"][2]["job_id"] == shown["job_id"]


async def test_a_session_of_the_request_is_where_a_run_begins(served: Served) -> None:
    run = await ran(served, **{"from": "session", "session": {"after": 8}})
    assert [int(row["id"]) for row in await served.rows("numbers")] == [9, 10]
    assert "session" not in run["request"], "it may hold anything"


async def test_a_source_at_work_is_409_that_names_the_run(served: Served) -> None:
    ada = await served.client("ada")
    first = await ada.post("/api/ingest/runs", json={"source": "numbers"})
    second = await ada.post("/api/ingest/runs", json={"source": "numbers"})
    assert code_of(second) == (409, "run_active")
    assert first.json()["data"]["id"] in second.text


async def test_a_key_makes_one_run_however_often_it_is_sent(served: Served) -> None:
    ada = await served.client("ada")
    headers = {"Idempotency-Key": "once"}
    answers = [await ada.post("/api/ingest/runs", json={"source": "numbers"}, headers=headers) for _ in range(3)]
    assert [answer.status_code for answer in answers] == [201] * 3
    assert len({answer.json()["data"]["id"] for answer in answers}) == 1
    other = await ada.post("/api/ingest/runs", json={"source": "numbers", "limit": 1}, headers=headers)
    assert other.json()["error"]["code"] == "idempotency_key_reused"


async def test_a_drained_paddock_starts_no_run(served: Served) -> None:
    grace = await served.client("grace")
    drained = await grace.post("/api/ops/drain", json={"enabled": True, "reason": "upgrade"})
    assert drained.status_code < 300, drained.text
    answer = await (await served.client("ada")).post("/api/ingest/runs", json={"source": "numbers"})
    assert answer.status_code == 503
    assert "retry-after" in answer.headers


async def _all(client: httpx2.AsyncClient, path: str) -> list[dict[str, Any]]:
    """Page by page, one thing on each."""
    found: list[dict[str, Any]] = []
    cursor: str | None = None
    while True:
        params = {"limit": "1", **({} if cursor is None else {"cursor": cursor})}
        answer = (await client.get(path, params=params)).json()
        found += answer["data"]
        cursor = answer["next_cursor"]
        if cursor is None:
            return found


async def test_lists_come_in_pages(served: Served) -> None:
    first = await ran(served)
    second = await ran(served, **{"from": "start"})
    ada = await served.client("ada")
    assert [run["id"] for run in await _all(ada, "/api/ingest/runs")] == [second["id"], first["id"]]
    assert [one["n"] for one in await _all(ada, f"/api/ingest/runs/{first['id']}/batches")] == [0, 1, 2]
    files = await _all(ada, "/api/ingest/sources/numbers/files")
    places = [(file["run_id"], file["batch"]) for file in files]
    assert sorted(places) == [(run["id"], n) for run in (first, second) for n in range(3)]
    after = (await ada.get("/api/ingest/sources/numbers/files", params={"after": files[3]["id"]})).json()["data"]
    assert after == files[4:]
    failed = await ada.get(f"/api/ingest/runs/{first['id']}/batches", params={"status": "failed"})
    assert failed.json()["data"] == []
    assert (await ada.get("/api/ingest/runs", params={"status": "odd"})).status_code == 422


async def test_a_file_is_downloaded_whole_or_in_ranges(served: Served, tmp_path: Any) -> None:
    await ran(served)
    ada = await served.client("ada")
    files = (await ada.get("/api/ingest/sources/numbers/files")).json()["data"]
    file = next(one for one in files if one["rejected"])
    path = file["links"]["download"]
    whole = await ada.get(path)
    (tmp_path / "whole.parquet").write_bytes(whole.content)
    assert pq.read_table(tmp_path / "whole.parquet").num_rows == file["rows"]
    tag = whole.headers["etag"]
    head = await ada.head(path)
    assert (head.status_code, head.headers["etag"], head.content) == (200, tag, b"")
    assert int(head.headers["content-length"]) == len(whole.content)
    assert tag == f'"{hashlib.sha256(whole.content).hexdigest()}"'
    part = await ada.get(path, headers={"Range": "bytes=4-9", "If-Range": tag})
    assert (part.status_code, part.content) == (206, whole.content[4:10])
    changed = await ada.get(path, headers={"Range": "bytes=4-9", "If-Range": '"other"'})
    assert (changed.status_code, changed.content) == (200, whole.content)
    assert (await ada.get(path, headers={"Range": "bytes=999999999-"})).status_code == 416
    rejected = await ada.get(path, params={"part": "rejected"})
    (tmp_path / "rejected.parquet").write_bytes(rejected.content)
    assert pq.read_table(tmp_path / "rejected.parquet").column("reason").to_pylist() == ["a multiple of seven"]
    without = next(one for one in files if not one["rejected"])
    assert (await ada.get(without["links"]["download"], params={"part": "rejected"})).status_code == 404
    assert (await ada.get(f"/api/ingest/files/{uuid4()}/download")).status_code == 404


async def test_a_deleted_run_is_gone_with_its_files_and_the_source_goes_on_where_it_was(served: Served) -> None:
    run = await ran(served)
    ada = await served.client("ada")
    assert (await ada.delete(f"/api/ingest/runs/{run['id']}")).status_code == 202
    async with served.worker():
        await _until(served, lambda found: found is None, run["id"])
    assert (await ada.get(f"/api/ingest/runs/{run['id']}")).status_code == 404
    assert (await ada.get("/api/ingest/sources/numbers/files")).json()["data"] == []
    objects = served.folder / "data" / "objects"
    assert not [path for path in objects.rglob("*") if path.is_file()]
    source = (await ada.get("/api/ingest/sources/numbers")).json()["data"]
    assert source["committed_session"] == {"after": 10}
    again = await ran(served)
    assert (again["status"], again["records"]) == ("completed", 0)


async def _until(served: Served, condition: Callable[[Run | None], bool], id: str) -> None:
    import asyncio
    from uuid import UUID

    async with asyncio.timeout(60):
        while not condition(await runs.get(served.core.db, UUID(id))):  # noqa: ASYNC110  it is a row that goes
            await asyncio.sleep(0.01)


async def test_a_live_run_is_not_deleted_and_an_ended_one_not_cancelled(served: Served) -> None:
    ada = await served.client("ada")
    started = (await ada.post("/api/ingest/runs", json={"source": "numbers"})).json()["data"]
    assert code_of(await ada.delete(f"/api/ingest/runs/{started['id']}")) == (409, "run_active")
    answer = await ada.post(f"/api/ingest/runs/{started['id']}/cancel", json={"reason": "no"})
    assert (answer.status_code, answer.json()["data"]["status"]) == (200, "stopping")
    assert code_of(await ada.post(f"/api/ingest/runs/{started['id']}/cancel")) == (409, "already_finished")
    run = await runs.get(served.core.db, started["id"])
    assert run is not None
    assert (await served.ended(run)).status == "cancelled"
    assert code_of(await ada.post(f"/api/ingest/runs/{started['id']}/cancel")) == (409, "already_finished")


async def test_only_a_failed_batch_is_retried_or_skipped(served: Served) -> None:
    served.hook("sevens", "import sys; sys.exit(64)")
    run = await ran(served)
    assert run["failed_batches"] == 3
    ada = await served.client("ada")
    own = f"/api/ingest/runs/{run['id']}/batches"
    skipped = await ada.post(f"{own}/1/skip", json={"reason": "test data"})
    assert (skipped.status_code, skipped.json()["data"]["status"]) == (200, "skipped")
    for act in ("retry", "skip"):
        assert code_of(await ada.post(f"{own}/1/{act}")) == (409, "batch_not_failed")
        assert (await ada.post(f"{own}/99/{act}")).status_code == 404
        assert (await ada.post(f"{own}/-1/{act}")).status_code == 422
        assert (await ada.post(f"/api/ingest/runs/{uuid4()}/batches/0/{act}")).status_code == 404
    retried = await ada.post(f"{own}/0/retry")
    assert (retried.status_code, retried.json()["data"]["status"]) == (202, "fetched")
    assert code_of(await ada.post(f"{own}/0/retry")) == (409, "batch_not_failed")
    shown = (await ada.get(f"{own}/2")).json()["data"]
    assert (shown["error"]["code"], shown["error"]["step"]) == ("bad_input", "hooks")


async def test_no_answer_tells_a_command_a_secret_or_a_session(served: Served) -> None:
    served.source(
        "numbers",
        "import os, sys; print('the token is', os.environ['TOKEN']); sys.exit(64)",
        owners=["ada"],
        secrets={"TOKEN": {"env": "TOKEN_OF_NUMBERS"}},
    )
    run = await ran(served)
    ada = await served.client("ada")
    for path in (
        "/api/ingest/sources",
        "/api/ingest/sources/numbers",
        f"/api/ingest/runs/{run['id']}",
        f"/api/jobs?group={run['group_id']}",
        "/api/events",
    ):
        text = (await ada.get(path)).text
        assert SECRET not in text, path
        assert "numbers.py" not in text, path
