"""Ingest as the server draws it: for each person, in each state, with odd texts, and what its forms refuse."""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any
from uuid import uuid4

import httpx2
import pytest

from paddock.api.app import create_app
from paddock.api.tokens import NewToken, Tokens
from paddock.ingest import runs
from paddock.ingest.pages import ingest as ingest_pages
from paddock.web import pages
from tests.ingest.conftest import SEVENS, Bench
from tests.web.signed_in import BASE, ODD, Browser, Open, row_of, words_of

# Rejects everything, with a reason that is no harmless text.
HOSTILE = f"""
import json, os, sys
print({ODD!r}, file=sys.stderr)
if os.environ["PADDOCK_BATCH"] == "1":
    sys.exit(64)
out = open(os.environ["PADDOCK_OUT"] + "/rejections.jsonl", "w")
for line in open(os.environ["PADDOCK_IN"] + "/records.jsonl"):
    out.write(json.dumps({{"id": json.loads(line)["id"], "reason": {ODD!r}}}) + "\\n")
"""


@pytest.fixture
async def browse(bench: Bench) -> AsyncIterator[Open]:
    """Browsers on a dashboard that knows the sources which the test has named before."""
    async with AsyncExitStack() as stack:

        async def make(name: str) -> Browser:
            app = create_app(bench.core, bench.config, routes=pages.routes())
            new = NewToken(name=f"{name} {uuid4()}", role="ops" if name == "grace" else "analyst", owner=name)
            _, secret = await Tokens(bench.core.db).create(new, actor="test")
            client = httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url=BASE)
            await stack.enter_async_context(client)
            answer = await client.post("/sign-in", data={"token": secret}, headers={"origin": BASE})
            assert answer.status_code == 303
            return Browser(client)

        yield make


def numbers(bench: Bench, hook: str = SEVENS, total: int = 6) -> None:
    bench.hook("sevens", hook)
    settings: dict[str, Any] = {"config": {"total": total}, "batch_size": 3, "hooks": ["sevens"], "owners": ["ann"]}
    bench.source("numbers", description=ODD, **settings)
    bench.source("others", config={"total": 1}, owners=["bob"])


async def test_each_person_sees_the_sources_they_own(bench: Bench, browse: Open) -> None:
    numbers(bench)
    run = await bench.run("numbers")
    ann, eve, grace = await browse("ann"), await browse("eve"), await browse("grace")
    for person in (ann, grace):
        row = row_of(await person.read("/ingest"), "source-numbers")
        assert "completed" in row
        page = await person.read("/ingest/numbers")
        assert "completed" in row_of(page, f"run-{run.id}")
        assert "paddock ingest sql numbers" in words_of(page)
        page = await person.read(f"/ingest/runs/{run.id}")
        assert "2 of 2 batches published, 6 records." in words_of(page)
        assert "published" in row_of(page, "batch-1")
        assert "3 passed, 0 rejected" in words_of(await person.read(f"/ingest/runs/{run.id}/batches/1"))
    assert "source-others" not in await ann.read("/ingest")
    assert "source-others" in await grace.read("/ingest")
    assert "No sources yet." in words_of(await eve.read("/ingest"))
    for path in ("numbers", "nonesuch", f"runs/{run.id}", f"runs/{run.id}/batches/1", f"runs/{uuid4()}", "runs/x"):
        await eve.read(f"/ingest/{path}", 404)
    for path in (f"runs/{run.id}/batches/7", f"runs/{run.id}/batches/x", f"runs/{run.id}/batches/{10**12}"):
        await ann.read(f"/ingest/{path}", 404)
    assert (await eve.send("/ingest/runs", "/settings", source="numbers")).status_code == 404
    assert (await eve.send(f"/ingest/runs/{run.id}/delete", "/settings")).status_code == 404


async def test_live_parts_are_rendered_alone(bench: Bench, browse: Open) -> None:
    numbers(bench)
    run = await bench.run("numbers")
    ann = await browse("ann")
    for path, region, text in (
        ("/ingest", "rows", "source-numbers"),
        ("/ingest/numbers", "rows", f"run-{run.id}"),
        (f"/ingest/runs/{run.id}", "run", "batch-0"),
        (f"/ingest/runs/{run.id}/batches/0", "batch", "hook-sevens"),
    ):
        answer = await ann.client.get(path, headers={"x-paddock-regions": region})
        part = answer.text
        assert answer.status_code == 200
        assert text in part, (path, region)
        assert "<html" not in part


async def test_reasons_errors_and_logs_of_commands_are_text(bench: Bench, browse: Open) -> None:
    numbers(bench, HOSTILE)
    run = await bench.run("numbers")
    ann = await browse("ann")
    assert "failed" in row_of(await ann.read(f"/ingest/runs/{run.id}"), "batch-1")
    assert "long" in words_of(await ann.read(f"/ingest/runs/{run.id}/batches/0")), "a reason"
    page = words_of(await ann.read(f"/ingest/runs/{run.id}/batches/1"))
    assert "Retry" in page
    assert "Skip" in page


async def test_runs_are_found_by_state_owner_and_words(bench: Bench, browse: Open) -> None:
    bench.source("numbers", "import sys; print('no such table'); sys.exit(64)", owners=["ann"])
    broken = await bench.run("numbers")
    live = await bench.start("numbers")
    assert broken.error is not None
    ann = await browse("ann")
    by_query = {
        "status=failed": {broken.id},
        "status=running": {live.id},
        "owner=ann": {broken.id, live.id},
        "owner=bob": set(),
        f"q={broken.error['code'].upper()}": {broken.id},
        "q=nonesuch": set(),
    }
    for query, wanted in by_query.items():
        page = await ann.read(f"/ingest/numbers?{query}")
        assert {id for id in (broken.id, live.id) if f"run-{id}" in page} == wanted, query
        found = (await ann.client.get(f"/api/ingest/runs?{query}")).json()["data"]
        assert {run["id"] for run in found} == {str(id) for id in wanted}, query
    assert "No run matches." in words_of(await ann.read("/ingest/numbers?q=nonesuch"))


async def test_a_run_is_started_with_where_to_begin_and_a_limit(bench: Bench, browse: Open) -> None:
    numbers(bench)
    ann = await browse("ann")
    where = await ann.done("/ingest/runs", "/ingest/numbers", source="numbers", **{"from": "start"}, limit="5")
    [run] = await runs.page(bench.core.db, ["numbers"], limit=5)
    assert where == f"/ingest/runs/{run.id}"
    assert (run.request["from"], run.request["limit"]) == ("start", 5)
    assert "Nothing is fetched yet." in words_of(await ann.read(where))
    refused = await ann.refused("/ingest/runs", "/ingest/numbers", 409, source="numbers")
    assert f"A run of 'numbers' is at work already: {run.id}." in refused
    assert "What was published stays." in await ann.read(where)
    await ann.done(f"{where}/cancel", where, reason="not now")
    assert "cancelled" in words_of(await ann.read(where)) or "stopping" in words_of(await ann.read(where))


@pytest.mark.parametrize("limit", ["0", "-1", "many", "9" * 30])
async def test_a_limit_that_is_none_is_refused_at_its_field(bench: Bench, browse: Open, limit: str) -> None:
    numbers(bench)
    ann = await browse("ann")
    answer = await ann.send("/ingest/runs", "/ingest/numbers", source="numbers", limit=limit)
    assert answer.status_code == 422
    assert "Not started." in words_of(answer.text)
    part = answer.text.partition('name="limit"')[2].partition(">")
    assert f'value="{limit}"' in part[0]
    assert 'aria-describedby="problem-limit"' in part[0]
    assert words_of(part[2].partition('id="problem-limit"')[2].partition("</p>")[0]).strip()
    assert await runs.page(bench.core.db, ["numbers"], limit=5) == []


async def test_forms_without_their_token_change_nothing(bench: Bench, browse: Open) -> None:
    numbers(bench, HOSTILE)
    run = await bench.run("numbers")
    ann = await browse("ann")
    own = f"/ingest/runs/{run.id}"
    for path in ("/ingest/runs", f"{own}/cancel", f"{own}/delete", f"{own}/batches/1/retry", f"{own}/batches/1/skip"):
        answer = await ann.client.post(path, data={"csrf": "wrong", "source": "numbers"}, headers={"origin": BASE})
        assert answer.status_code == 403, path
    assert len(await runs.page(bench.core.db, ["numbers"], limit=5)) == 1
    [failed] = await runs.batches(bench.core.db, run, statuses=["failed"])
    assert failed.n == 1
    await ann.refused(f"{own}/batches/0/retry", own, 409)
    await ann.done(f"{own}/batches/1/skip", own, reason=ODD[:100])
    assert "skipped" in row_of(await ann.read(own), "batch-1")


async def test_a_run_that_fetches_says_how_far_it_is(bench: Bench, browse: Open) -> None:
    """Before its ingester has said anything, and after."""
    bench.source("slow", "import time; time.sleep(600)", owners=["ann"])
    run = await bench.start("slow")
    ann = await browse("ann")

    async def report(text: str | None) -> str:
        async with bench.core.db.transaction() as tx:
            await tx.execute("UPDATE jobs SET report = $1 WHERE group_id = $2", text, run.group_id)
        return words_of(await ann.read(f"/ingest/runs/{run.id}"))

    async with bench.worker():
        async with asyncio.timeout(60):
            while await runs.fetching(bench.core.db, run) is None:  # noqa: ASYNC110  it is a row that comes
                await asyncio.sleep(0.01)
        assert "Nothing is fetched yet." in await report(None)
        # A beat of the worker may tell something else in between.
        async with asyncio.timeout(60):
            while "Fetching: 1,200 records of 5,000." not in await report(
                '{"phase": "fetching", "rows": 1200, "total": 5000}'
            ):
                pass
        await runs.cancel(bench.core, run, actor="ann")
        await bench.when(run, lambda now: not now.live)


async def test_a_source_shows_its_newest_runs_and_files_and_a_way_to_the_older_ones(
    bench: Bench, browse: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ingest_pages, "RUNS_SHOWN", 1)
    monkeypatch.setattr(ingest_pages, "FILES_SHOWN", 1)
    numbers(bench, total=1)
    first = await bench.run("numbers")
    second = await bench.run("numbers", begin="start")
    older, newer = await runs.files(bench.core.db, "numbers")
    ann = await browse("ann")

    def shown(page: str) -> list[bool]:
        return [
            f'id="{name}"' in page
            for name in (f"run-{first.id}", f"run-{second.id}", f"file-{older.id}", f"file-{newer.id}")
        ]

    page = await ann.read("/ingest/numbers")
    assert shown(page) == [False, True, False, True]
    nexts = dict(zip(("runs", "files"), re.findall(r'href="(/ingest/numbers\?[^"]+)" rel="next"', page), strict=True))
    page = await ann.read(nexts["files"].replace("&amp;", "&"))
    assert shown(page) == [False, True, True, False]
    # The list of runs goes on alone, and the files stay.
    both = re.findall(r'href="(/ingest/numbers\?[^"]+)" rel="next"', page)[0].replace("&amp;", "&")
    page = await ann.read(both)
    assert shown(page) == [True, False, True, False]
    assert "Newest" in words_of(page)
