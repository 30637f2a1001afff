"""The list of jobs as the server draws it: filters in the address, columns, actions, downloads."""

import ast
import csv
import io
import json
import re
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from html import unescape
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal, TypeGuard, cast
from urllib.parse import parse_qsl, urlsplit
from uuid import UUID, uuid4

import httpx2
import orjson
import pytest
from markupsafe import Markup
from prometheus_client import CollectorRegistry

import paddock
from paddock.api.app import create_app
from paddock.api.services import changing
from paddock.api.tokens import NewToken, Tokens
from paddock.config import Config
from paddock.jobs import bulk, grouping, reading, wire
from paddock.jobs.bulk import BULK
from paddock.jobs.core import Core, CoreSettings, open_core
from paddock.jobs.filtering import Filter
from paddock.jobs.kinds import Kinds
from paddock.jobs.model import Job, JobId, NewJob
from paddock.metrics import Metrics
from paddock.web import job_columns, job_filters, job_rows, pages
from paddock.web.pages import jobs as page_of_jobs
from paddock.web.pages import jobs_acting, jobs_download
from paddock.web.pages.audit import action_words
from paddock.web.progress import progress_of
from tests.dumps.api.inside import run_inside
from tests.kinds import TEST_KINDS
from tests.playing import read, submit, worker
from tests.reading.rows import add_ended, add_live, end_some, run

ADDRESS = "http://paddock.test"
MARKUP = "<script>alert(1)</script>\n\u202eרע 🐎 " + "long" * 200
CHIP = re.compile(r'<li class="chip( wrong)?">(.*?)</li>', re.DOTALL)


@pytest.fixture
async def core(dsn: str, settings: CoreSettings) -> AsyncIterator[Core]:
    async with open_core(dsn, Kinds([*TEST_KINDS, BULK]), settings, metrics=Metrics(CollectorRegistry())) as opened:
        yield opened


class Browser:
    """A person without scripts, signed in; `csrf` is what its pages' forms carry."""

    def __init__(self, client: httpx2.AsyncClient, csrf: str) -> None:
        self.client = client
        self.csrf = csrf

    async def get(self, path: str, *, status: int = 200, headers: dict[str, str] | None = None) -> str:
        answer = await self.client.get(path, headers=headers)
        assert answer.status_code == status, answer.text
        return answer.text

    async def region(self, path: str, name: str) -> str:
        return str(json.loads(await self.get(path, headers={"x-paddock-regions": name}))["regions"][name])

    async def send(self, path: str, form: dict[str, Any], *, status: int = 303) -> httpx2.Response:
        answer = await self.client.post(path, data={"csrf": self.csrf, **form})
        assert answer.status_code == status, answer.text
        return answer


class People:
    def __init__(self, core: Core) -> None:
        self.core = core
        self.app = create_app(core, Config(), routes=pages.routes())
        self.opened: list[httpx2.AsyncClient] = []

    async def __call__(self, role: str = "ops", owner: str = "olga") -> Browser:
        new = NewToken(name=owner, role=role, owner=owner)  # type: ignore[arg-type]
        _, secret = await Tokens(self.core.db).create(new, actor="test")
        client = httpx2.AsyncClient(
            transport=httpx2.ASGITransport(self.app), base_url=ADDRESS, headers={"origin": ADDRESS}
        )
        self.opened.append(client)
        assert (await client.post("/sign-in", data={"token": secret})).status_code == 303
        [csrf] = set(
            re.findall(
                r'action="/sign-out"><input type="hidden" name="csrf" value="([^"]+)"', (await client.get("/jobs")).text
            )
        )
        return Browser(client, csrf)


@pytest.fixture
async def people(core: Core) -> AsyncIterator[People]:
    made = People(core)
    yield made
    for client in made.opened:
        await client.aclose()


def listed(html: str) -> list[str]:
    return re.findall(r'<tr id="job-([0-9a-f-]{36})"', html)


def said(answer: httpx2.Response) -> str:
    cookie = answer.headers.get("set-cookie", "")
    return unescape(re.sub("%(..)", lambda found: chr(int(found[1], 16)), cookie.partition("=")[2].partition(";")[0]))


async def failed(
    core: Core, kind: str = "plain", code: str = "broken", message: str = "It broke.", **fields: Any
) -> JobId:
    [id] = await submit(core, kind, **fields)
    attempt = await (await worker(core)).claim_one(kind)
    assert attempt.id == id
    await attempt.finish("permanent", error=wire.Error(code=code, message=message))
    return id


async def retrying(core: Core) -> JobId:
    [id] = await submit(core, "fragile")
    attempt = await (await worker(core)).claim_one("fragile")
    await attempt.finish("transient")
    return id


async def test_each_filter_of_the_address_narrows_and_is_a_chip_with_a_way_back(core: Core, people: People) -> None:
    [tagged] = await submit(core, "plain", owner="ann", tags=["nightly"])
    broken = await failed(core, "other", owner="bob")
    again = await retrying(core)
    ops = await people()
    assert sorted(listed(await ops.get("/jobs"))) == sorted(map(str, (tagged, broken, again)))
    for query, expected in {
        "kind=plain": tagged,
        "status=failed": broken,
        "owner=bob": broken,
        "tag=nightly": tagged,
        "worker=worker&kind=other": broken,
        "error_code=broken&status=failed": broken,
        "retrying=1": again,
        "q=it+BROKE&kind=other": broken,
        f"q={tagged}": tagged,
        "since=1h&tag=nightly": tagged,
        "until=2999-01-01&status=failed,cancelled": broken,
    }.items():
        html = await ops.get(f"/jobs?{query}")
        assert listed(html) == [str(expected)], query
        names = [re.sub(r"<[^>]*>|\s+", " ", text).strip() for _, text in CHIP.findall(html)]
        assert len(names) == len(job_filters.read(parse_qsl(query), ANYBODY, datetime.now(UTC)).chips)
        # Taking every chip away one after the other ends at the whole list.
        for _ in names:
            html = await ops.get(unescape(re.findall(r'<a href="([^"]+)" aria-label="Remove', html)[0]))
        assert len(listed(html)) == 3
    assert listed(await ops.get(f"/jobs?group={uuid4()}")) == []
    assert listed(await ops.get("/jobs?until=1h")) == []


class _Anybody:
    scope = None
    operator = True
    owner = "olga"


ANYBODY: Any = _Anybody()


async def test_a_click_on_a_value_of_a_row_adds_that_filter(core: Core, people: People) -> None:
    broken = await failed(core, "other", owner="bob", tags=["a b"])
    await failed(core, "plain", owner="bob")
    ops = await people()
    await ops.send("/jobs/columns", {"column": ["kind", "owner", "tags", "worker", "error"]})
    html = await ops.get("/jobs?status=failed")
    row = html[html.index(f'id="job-{broken}"') :].partition("</tr>")[0]
    added = [dict(parse_qsl(urlsplit(unescape(link)).query)) for link in re.findall(r'href="(/jobs\?[^"]+)"', row)]
    assert added == [
        {"kind": "other", "status": "failed"},
        {"status": "failed", "owner": "bob"},
        {"status": "failed", "tag": "a b"},
        {"status": "failed", "worker": "worker"},
        {"status": "failed", "error_code": "broken"},
    ]


@pytest.mark.parametrize(
    ("query", "sentence"),
    [
        ("status=done", "There is no status &#39;done&#39;"),
        ("status=failed&status=%3Cb%3E", "There is no status &#39;&lt;b&gt;&#39;"),
        ("group=nonsense", "&#39;nonsense&#39; is not the id of a group."),
        ("since=yesterday", "&#39;yesterday&#39; is not a time"),
        ("until=2026-13-01", "&#39;2026-13-01&#39; is not a time"),
        ("since=99999d", "&#39;99999d&#39;"),
        ("kind=" + "x" * 501, "must be a text of 1 to 500 characters"),
    ],
)
async def test_what_cannot_be_read_is_said_beside_its_chip_and_nothing_is_listed(
    core: Core, people: People, query: str, sentence: str
) -> None:
    await failed(core)
    ops = await people()
    html = await ops.get(f"/jobs?{query}", status=422 if query != "since=99999d" else 200)
    if query == "since=99999d":
        return
    assert sentence in html
    assert '<li class="chip wrong">' in html
    assert listed(html) == []
    assert "<b>" not in html
    assert 'data-stream="none"' in html


async def test_what_is_wrong_with_a_status_is_said_at_the_status(people: People) -> None:
    html = await (await people()).get("/jobs?status=kind&kind=plain", status=422)
    wrong = {re.sub(r"<[^>]*>", " ", text).split()[0]: bool(mark) for mark, text in CHIP.findall(html)}
    assert wrong == {"Status": True, "Kind": False}


async def test_a_cursor_somebody_made_up_is_said_and_the_newest_are_a_click_away(core: Core, people: People) -> None:
    ops = await people()
    html = await ops.get("/jobs?kind=plain&cursor=nonsense", status=400)
    assert "This cursor is not one of ours." in html
    assert 'href="/jobs?kind=plain">Show the newest' in html


async def test_a_form_without_scripts_leads_to_an_address_without_its_empty_fields(people: People) -> None:
    ops = await people()
    answer = await ops.client.get("/jobs?status=failed&kind=&owner=+&status=pending&since=24h&q=")
    assert answer.status_code == 303
    assert answer.headers["location"] == "/jobs?status=pending&status=failed&since=24h"
    answer = await ops.client.get("/jobs?kind=plain&q=&cursor=abc")
    assert answer.headers["location"] == "/jobs?kind=plain&cursor=abc"


async def test_pages_go_back_by_key_and_say_how_far_they_looked(
    core: Core, people: People, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = [str(id) for id in (await add_ended(core.db, 120))[::-1]]
    ops = await people()
    walked, address, html = [], "/jobs?status=completed", ""
    while address:
        html = await ops.get(address)
        walked.append(listed(html))
        address = unescape("".join(re.findall(r'href="([^"]+)" rel="next"', html)))
    assert walked == [ids[:50], ids[50:100], ids[100:]]
    assert "Newest</a>" in html

    await add_ended(core.db, 3_000)
    monkeypatch.setattr(page_of_jobs, "BUDGET", timedelta(0))
    html = await ops.get("/jobs?worker=none+has+it")
    assert "Nothing found yet." in html
    [on] = re.findall(r'href="([^"]+)">Continue searching', html)
    monkeypatch.setattr(page_of_jobs, "BUDGET", timedelta(seconds=10))
    assert "There is nothing older." in await ops.get(unescape(on))


async def test_the_filter_says_how_many_there_are_of_each_status(core: Core, people: People) -> None:
    await submit(core, n=2, owner="ann")
    await add_ended(core.db, 3, kind="plain", status="failed", owner="ann")
    await add_ended(core.db, 5, kind="plain", owner="bob")
    ann = await people("analyst", "ann")
    html = await ann.get("/jobs")
    told = re.findall(r'name="status" value="(\w+)".*?<span class="quiet number"[^>]*>([\d,]+)</span>', html, re.DOTALL)
    assert dict(told) == {
        "pending": "2",
        "claimed": "0",
        "submitted": "0",
        "completed": "0",
        "failed": "3",
        "cancelled": "0",
    }
    assert 'class="quiet number" title="As last counted' not in await ann.get("/jobs?tag=a"), "nobody counts those"


async def test_rows_on_screen_stay_and_what_is_new_is_only_counted(core: Core, people: People) -> None:
    [first, second] = await submit(core, n=2)
    ops = await people()
    shown = listed(await ops.get("/jobs?status=pending"))
    assert shown == [str(second), str(first)]
    attempt = await (await worker(core)).claim_one()
    await attempt.finish("permanent")
    new = await submit(core, n=3)
    await failed(core, "other")

    pinned = f"/jobs?status=pending&rows={','.join(shown)}"
    rows = await ops.region(pinned, "rows")
    assert listed(rows) == shown, "though one of them no longer matches"
    assert "is-failed" in rows
    assert 'id="after" data-keep' in rows, "the pager stays as it was"
    fresh = await ops.region(pinned, "fresh")
    assert re.findall(r'data-fresh="([^"]*)"', fresh) == [",".join(str(id) for id in new[::-1])]
    assert "3 new" in fresh
    assert " hidden" in await ops.region("/jobs?status=pending", "fresh")
    assert listed(await ops.region("/jobs?status=pending", "rows")) == [str(id) for id in [*new[::-1], second]]


async def test_a_row_that_is_remembered_is_as_the_job_is_and_as_each_wants_it(core: Core, people: People) -> None:
    """Rows of ended jobs are drawn once for all: a retry, other columns, other filters and another root all show."""
    old = await failed(core)
    olga, otto = await people(), await people("ops", "otto")
    rows = f"/jobs?rows={old}"
    first = await olga.region(rows, "rows")
    assert 'value="retry ' in first
    assert await otto.region(rows, "rows") == first

    assert "kind=plain&amp;status=failed" in await otto.region(f"{rows}&status=failed", "rows")
    [regions] = [json.loads(await otto.get(rows, headers={"x-paddock-regions": "rows", "x-forwarded-prefix": "/sub"}))]
    assert f'href="/sub/jobs/{old}"' in regions["regions"]["rows"]
    await otto.send("/jobs/columns", {"column": ["attempts"]})
    assert 'class="c-attempts' in await otto.region(rows, "rows")
    assert 'class="c-attempts' not in await olga.region(rows, "rows")
    await olga.send("/jobs/selected", {"one": f"retry {old}"})
    assert 'value="retry ' not in await olga.region(rows, "rows"), "it is retried already"


def test_only_so_many_rows_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_rows, "MOST_ROWS", 2)
    ended = [SimpleNamespace(id=n, retried_by=None, ended=True) for n in range(3)]
    rows, drawn = job_rows.Rows(), list[int]()

    def draw(job: Any) -> Markup:
        drawn.append(job.id)
        return Markup()

    for job in (*ended, ended[2], ended[0], SimpleNamespace(id=9, ended=False), SimpleNamespace(id=9, ended=False)):
        rows.drawn(cast(Job, job), "look", draw)
    assert drawn == [0, 1, 2, 0, 9, 9], "what may still change is always drawn"


@pytest.mark.parametrize(
    ("query", "fields"),
    [
        ("", "id,status"),
        ("?kind=plain&tag=red", "id,kind,status,tags"),
        ("?q=boom&worker=w", "about,claimed_by,error_code,error_message,id,status"),
        ("?since=1h&retrying=1", "attempt_count,created_at,id,status"),
    ],
)
async def test_the_stream_of_a_list_tells_what_its_filters_look_at(people: People, query: str, fields: str) -> None:
    assert f'data-fields="{fields}"' in await (await people()).get(f"/jobs{query}")


async def test_of_what_is_new_only_what_belongs_on_this_page_counts(core: Core, people: People) -> None:
    old = await add_live(core.db, 60, kind="plain", ago="1 hour")
    shown = [str(id) for id in old[::-1][:50]]
    ops = await people()
    assert listed(await ops.get("/jobs")) == shown
    assert " hidden" in await ops.region(f"/jobs?rows={','.join(shown)}", "fresh"), "the ten on the next page"
    await add_live(core.db, 150, kind="plain")
    assert "99+ new" in await ops.region(f"/jobs?rows={','.join(shown)}", "fresh")
    assert " hidden" in await ops.region(f"/jobs?cursor=AZ&rows={','.join(shown)}", "fresh"), "an older page has no new"


async def test_an_analyst_sees_and_changes_only_their_own(core: Core, people: People) -> None:
    [anns] = await submit(core, owner="ann")
    [bobs] = await submit(core, owner="bob")
    bob = await people("analyst", "bob")
    assert listed(await bob.get("/jobs")) == [str(bobs)]
    assert listed(await bob.get("/jobs?owner=ann")) == []
    assert str(anns) not in await bob.region(f"/jobs?rows={anns},{bobs}", "rows")
    html = await bob.get("/jobs")
    assert 'name="owner"' not in html
    assert ">Mine<" not in html
    for path in ("/jobs.csv", "/jobs.json", "/jobs.csv?owner=ann"):
        assert str(anns) not in await bob.get(path)

    await bob.send("/jobs/selected", {"one": f"cancel {anns}"}, status=409)
    answer = await bob.send("/jobs/selected", {"do": "cancel", "id": [str(anns), str(bobs)]})
    assert "1 job was cancelled. 1 job left: is gone." in said(answer)
    assert ((await read(core, anns)).status, (await read(core, bobs)).status) == ("pending", "cancelled")
    assert "every job: <span" in await bob.get("/jobs/retry")
    assert "Nothing to cancel" in await bob.get("/jobs/cancel?owner=ann")


async def test_one_row_offers_what_can_be_done_to_it(core: Core, people: People) -> None:
    broken, waiting = await failed(core), await retrying(core)
    ended = await add_ended(core.db, 1)
    ops = await people()
    html = await ops.get("/jobs")

    def offered(id: object) -> list[str]:
        row = html[html.index(f'id="job-{id}"') :].partition("</tr>")[0]
        return re.findall(r'name="one" value="([a-z-]+) ', row)

    assert offered(broken) == ["retry"]
    assert offered(waiting) == ["run-now", "cancel"]
    assert offered(ended[0]) == []

    answer = await ops.send("/jobs/selected", {"one": f"retry {broken}", "from": "status=failed&evil=1&cursor=x"})
    assert answer.headers["location"] == "/jobs?status=failed&cursor=x"
    assert "1 job runs again as a new job." in said(answer)
    assert (await read(core, broken)).retried_by is not None
    await ops.send("/jobs/selected", {"one": f"run-now {waiting}"})
    due = (await read(core, waiting)).due_at
    assert due is not None
    assert due <= await reading.clock(core.db)
    problem = (await ops.send("/jobs/selected", {"one": f"run-now {waiting}"}, status=409)).text
    assert "Nothing was changed: 1 job left: does not wait for its time." in problem


@pytest.mark.parametrize("action", ["cancel", "retry"])
async def test_an_action_on_all_that_match_is_one_line_of_the_audit_log(
    core: Core, action: Literal["cancel", "retry"]
) -> None:
    ids = await submit(core, n=3)
    if action == "retry":
        await core.cancel(ids, actor="olga", audited=False)
    asked = bulk.payload(
        action,
        Filter(kind="plain"),
        until=await reading.clock(core.db) + timedelta(seconds=1),
        actor="olga",
        reason="wrong table",
        all_jobs=False,
        rights=bulk.Rights(),
    )
    [job] = (await core.submit([NewJob(BULK.name, asked, owner="olga")], public=False)).jobs
    await run_inside(core, Config(), BULK)

    [line] = await run(core.db, "SELECT actor, action, subject, reason, details FROM audit_log")
    assert (line["actor"], line["action"], line["subject"]) == ("olga", f"bulk_{action}", f"job:{job.id}")
    assert line["reason"] == "wrong table"
    assert orjson.loads(line["details"])["done"] == 3


def test_every_code_of_the_audit_log_is_a_word_that_its_filter_knows() -> None:
    folder = Path(paddock.__file__).parent
    calls = [node for path in folder.rglob("*.py") for node in ast.walk(ast.parse(path.read_text())) if is_audit(node)]
    codes = {
        part.value
        for call in calls
        for part in ast.walk(call.args[2])
        if isinstance(part, ast.Constant) and isinstance(part.value, str) and part.value != "bulk_"
    }

    assert len(calls) > 20
    assert codes | {f"bulk_{action.replace('-', '_')}" for action in jobs_acting.DONE} <= set(action_words())


def is_audit(node: ast.AST) -> TypeGuard[ast.Call]:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "audit"


async def test_those_selected_are_changed_together_and_what_is_left_is_said(core: Core, people: People) -> None:
    live = await submit(core, n=3)
    broken = await failed(core, "other")
    ops = await people()
    answer = await ops.send(
        "/jobs/selected", {"do": "cancel", "id": [*map(str, live), str(broken)], "reason": "wrong table"}
    )
    assert "3 jobs were cancelled. 1 job left: had ended already." in said(answer)
    [line] = await run(core.db, "SELECT action, reason, details FROM audit_log WHERE action LIKE '%cancel'")
    assert (line["action"], line["reason"]) == ("bulk_cancel", "wrong table")
    assert set(orjson.loads(line["details"])["jobs"]) == {str(id) for id in live}

    answer = await ops.send("/jobs/selected", {"do": "retry", "id": [*map(str, live), str(uuid4())]})
    assert "3 jobs run again as new jobs. 1 job left: is gone." in said(answer)
    [line] = await run(core.db, "SELECT action FROM audit_log WHERE action LIKE '%retry'")
    assert line["action"] == "bulk_retry"
    for form in ({}, {"do": "cancel"}, {"do": "delete", "id": str(live[0])}, {"do": "cancel", "id": "nonsense"}):
        assert "Nothing was chosen" in (await ops.send("/jobs/selected", {**form}, status=422)).text
    many = [str(uuid4()) for _ in range(201)]
    assert "No more than 200" in (await ops.send("/jobs/selected", {"do": "cancel", "id": many}, status=422)).text


async def test_drain_mode_refuses_retries_of_the_list_and_says_so(core: Core, people: People) -> None:
    broken = await failed(core)
    ops = await people()
    await core.drain(True, actor="olga", reason="upgrade")
    problem = (await ops.send("/jobs/selected", {"do": "retry", "id": [str(broken)]}, status=503)).text
    assert "drain" in problem.lower()


async def test_all_that_match_are_counted_asked_about_and_left_to_a_job(core: Core, people: People) -> None:
    meant = await submit(core, "plain", n=3, owner="ann")
    await submit(core, "other", n=2)
    ops = await people()
    html = await ops.get("/jobs/cancel?kind=plain&since=24h")
    assert '<span class="number">3</span> jobs?' in html
    assert "stops at once" in html
    form = dict(re.findall(r'type="hidden" name="([^"]+)" value="([^"]*)"', html))
    form = {name: unescape(value) for name, value in form.items() if name != "csrf"}
    assert form["kind"] == "plain"
    assert re.fullmatch(r"20.*Z", form["since"]), "both ends are frozen"
    await submit(core, "plain")

    answer = await ops.send("/jobs/cancel", {**form, "reason": "wrong table"})
    location = answer.headers["location"]
    assert location.startswith("/jobs?kind=plain&since=24h&bulk=")
    again = await ops.send("/jobs/cancel", {**form, "reason": "wrong table"})
    assert again.headers["location"] == location, "a reload makes no second one"

    [bulk] = (await reading.page(core.db, Filter(kind="bulk"))).jobs
    assert bulk.payload["reason"] == "wrong table"
    matched = Filter.from_json(bulk.payload["filter"] | {"until": bulk.payload["until"]})
    assert sorted((await reading.ids(core.db, matched)).ids) == sorted(meant), "one made after the count is not meant"
    html = await ops.get(location)
    assert "Cancelling all that match: it waits for a worker." in html
    assert f'href="/jobs/{bulk.id}">See the job that does it' in html
    assert 'data-stream=""' in html, "a stream of one kind would not tell of the bulk job"
    bob = await people("analyst", "bob")
    assert "all that match: it waits" not in await bob.get(location)


@pytest.mark.parametrize(
    ("query", "asked", "dry"),
    [("kind=plain", "Cancel 2+ jobs?", "2+"), ("q=rare", "Cancel all jobs that match?", "0+")],
)
async def test_a_count_that_takes_too_long_is_not_waited_for(
    core: Core, people: People, monkeypatch: pytest.MonkeyPatch, query: str, asked: str, dry: str
) -> None:
    await add_live(core.db, 6, kind="plain")
    monkeypatch.setattr(changing, "COUNTED_WITHIN", timedelta(0))
    monkeypatch.setattr(reading, "COUNTING_STEP", 2)
    ops = await people()
    html = await ops.get(f"/jobs/cancel?{query}")
    assert asked in re.sub(r"\s+", " ", re.sub(r"<[^>]*>", "", html))
    assert "were not counted, because that takes too long" in html
    assert f"{asked.rstrip('?')}</button>" in html
    body = {"filter": dict(parse_qsl(query)), "dry_run": True}
    headers = {"x-csrf-token": ops.csrf}
    assert (await ops.client.post("/api/jobs/cancel", json=body, headers=headers)).json()["data"]["count"] == dry


async def test_the_end_of_a_bulk_action_is_told_in_figures(core: Core, people: People) -> None:
    await submit(core, "plain", n=2)
    ops = await people()
    form = {"kind": "plain", "key": "k1", "from": "kind=plain"}
    location = (await ops.send("/jobs/cancel", {**form})).headers["location"]
    bulk = dict(parse_qsl(urlsplit(location).query))["bulk"]
    await run(
        core.db,
        "UPDATE jobs SET status = 'claimed', attempt_id = gen_random_uuid(), report = $2::text::jsonb WHERE id = $1",
        bulk,
        json.dumps({"done": 400, "total": None, "phase": "cancel"}),
    )
    assert "Cancelling all that match: 400 done, too many to count them first." in await ops.region(location, "bulk")
    await end_some(core.db, [UUID(bulk)])
    result = {"matched": 12_000, "done": 11_990, "skipped": 7, "refused": {"<b>": 3}}
    await run(core.db, "UPDATE job_history SET result = $1::text::jsonb", json.dumps(result))
    html = await ops.get(location)
    assert "Cancelled 11,990 jobs of 12,000 that matched, 7 had changed meanwhile" in html
    assert "3 refused (<code>&lt;b&gt;</code>)" in html


async def test_every_job_is_meant_only_when_somebody_says_so(core: Core, people: People) -> None:
    await submit(core, n=2)
    ops = await people()
    assert 'name="all" value="yes" required' in await ops.get("/jobs/cancel")
    assert 'name="all"' not in await ops.get("/jobs/cancel?kind=plain")
    problem = (await ops.send("/jobs/cancel", {"key": "k"}, status=422)).text
    assert "it would cancel every job" in problem
    await ops.send("/jobs/cancel", {"key": "k", "all": "yes"})
    assert "Nothing to retry" in await ops.get("/jobs/retry?kind=plain")
    invalid = await ops.client.get("/jobs/retry?status=nonsense")
    assert (invalid.status_code, invalid.headers["location"]) == (303, "/jobs?status=nonsense")


async def test_columns_are_chosen_for_this_browser(core: Core, people: People) -> None:
    await failed(core, owner="ann")
    ops = await people()

    async def heads() -> list[str]:
        return re.findall(r'<th scope="col" class="c-([a-z]+)', await ops.get("/jobs"))

    usual = [column.key for column in job_columns.COLUMNS if column.chosen]
    assert await heads() == usual
    answer = await ops.send("/jobs/columns", {"column": ["next", "error", "nonsense"], "from": "kind=plain"})
    assert answer.headers["location"] == "/jobs?kind=plain"
    assert "HttpOnly" in answer.headers["set-cookie"]
    assert await heads() == ["id", "next", "error"]
    await ops.send("/jobs/columns", {"column": [column.key for column in job_columns.COLUMNS]})
    assert await heads() == [column.key for column in job_columns.COLUMNS]
    await ops.send("/jobs/columns", {"usual": "yes"})
    assert await heads() == usual
    assert "No column was chosen." in (await ops.send("/jobs/columns", {}, status=422)).text
    assert "owner" not in re.findall(r'class="c-([a-z]+)', await (await people("analyst", "ann")).get("/jobs"))


async def test_a_download_has_what_is_shown_and_nothing_a_spreadsheet_would_run(core: Core, people: People) -> None:
    first = await failed(
        core, code="broken", message='=HYPERLINK("http://evil","a")\r\n"quoted", and comma', tags=["@x", "y"]
    )
    await failed(core, "other", message="fine")
    ops = await people()
    await ops.send("/jobs/columns", {"column": ["kind", "tags", "made", "attempts", "error", "priority"]})
    answer = await ops.client.get("/jobs.csv?kind=plain&status=failed")
    assert answer.headers["content-type"] == "text/csv; charset=utf-8"
    name = re.fullmatch(r'attachment; filename="paddock-jobs-(.+)\.csv"', answer.headers["content-disposition"])
    assert name is not None
    assert abs(datetime.strptime(name[1], "%Y-%m-%dT%H%M%SZ").replace(tzinfo=UTC) - datetime.now(UTC)) < timedelta(
        minutes=5
    )
    head, row = csv.reader(io.StringIO(answer.text, newline=""))
    job = await read(core, first)
    assert dict(zip(head, row, strict=True)) == {
        "id": str(first),
        "kind": "plain",
        "tags": "'@x, y",
        "priority": "3",
        "created_at": job.created_at.strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        "attempt_count": "1",
        "error_code": "broken",
        "error_message": '\'=HYPERLINK("http://evil","a")\r\n"quoted", and comma',
    }

    content = json.loads(await ops.get("/jobs.json?kind=plain&status=failed"))
    assert content["complete"] is True
    [found] = content["data"]
    assert (found["id"], found["tags"], found["error_message"]) == (str(first), ["@x", "y"], job.error_message)
    assert json.loads(await ops.get("/jobs.json?kind=nothing")) == {"data": [], "complete": True}
    assert "is not a time" in await ops.get("/jobs.csv?since=nonsense", status=422)


@pytest.mark.parametrize("begin", ["=", "+", "-", "@", "\t", "\r", "\n", "＝", "＠"])
def test_a_cell_that_a_spreadsheet_would_run_is_prefixed(begin: str) -> None:
    assert jobs_download.cell(f"{begin}1+1") == f"'{begin}1+1"
    assert jobs_download.cell(f"1{begin}1") == f"1{begin}1"
    assert jobs_download.cell(-1.5) == "-1.5", "a number is no text"


async def test_a_download_is_bounded_and_says_so(core: Core, people: People, monkeypatch: pytest.MonkeyPatch) -> None:
    ids = await add_ended(core.db, 30)
    monkeypatch.setattr(jobs_download, "MOST_JOBS", 20)
    monkeypatch.setattr(jobs_download, "JOBS_AT_ONCE", 7)
    ops = await people()
    content = json.loads(await ops.get("/jobs.json"))
    assert [job["id"] for job in content["data"]] == [str(id) for id in ids[::-1][:20]]
    assert content["complete"] is False
    assert len((await ops.get("/jobs.csv")).splitlines()) == 21


async def test_texts_of_people_stay_texts_on_one_line(core: Core, people: People) -> None:
    await failed(core, message=MARKUP, tags=['"><i>'], owner="<b>own</b>")
    ops = await people()
    await ops.send("/jobs/columns", {"column": [column.key for column in job_columns.COLUMNS]})
    html = await ops.get("/jobs?q=" + "%3Cscript%3E")
    assert len(listed(html)) == 1
    for tag in ("<script>alert", "<i>", "<b>own"):
        assert tag not in html
    [folded] = re.findall(r"<summary title=\"[^\"]*\"><bdi>([^<]*)</bdi>", html)
    assert len(unescape(folded)) == 200
    assert unescape(re.findall(r'<p dir="auto">([^<]*)</p>', html)[0]) == MARKUP


async def test_a_report_reads_the_same_wherever_a_job_is_shown(core: Core, people: People) -> None:
    async with core.db.transaction() as tx:
        group = await grouping.create(tx, "plain", "ann")
        [id] = await core.enqueue(tx, [NewJob("plain", {}, owner="ann", group_id=group)])
        await grouping.seal(core, tx, group)
    one = await worker(core)
    attempt = await one.claim_one()
    report = {"rows": 1_200_000, "bytes": 1_500_000, "percent": 40, "phase": "writing"}
    held = wire.Held(id=attempt.job.id, attempt_id=attempt.job.attempt_id, report=report)
    await one.link.beat(one.session, wire.Beat(holding=[held]))
    ops, ann = await people(), await people("analyst", "ann")
    told = "40 % · 1,200,000 rows · 1.5 MB · writing"
    for person, path in ((ops, "/jobs"), (ops, "/workers"), (ops, f"/groups/{group}"), (ann, "/")):
        html = await person.get(path)
        assert f'title="{told}"' in html, path
        assert '<progress value="40.0" max="100"' in html, path
        assert "<bdi>1,200,000 rows · 1.5 MB · writing</bdi>" in html, path
    workers = await ops.get("/workers")
    assert 'y="9.3" width="5" height="5.2"' in workers, "its tile is filled to 40 %"
    page = re.sub(r"<[^>]*>", "", await ops.get(f"/jobs/{id}"))
    for part in ("40 %", "writing", "1,200,000 rows", "1.5 MB"):
        assert part in page
    await attempt.finish(result={"rows": 3_000_000})
    assert "3,000,000 rows · 1.5 MB</span>" in await ann.get("/"), "what was made is told of one that has ended"
    assert 'title="100 % · 3,000,000 rows · 1.5 MB"' in await ops.get("/jobs")


@pytest.mark.parametrize(
    ("report", "percent", "text"),
    [
        ({"percent": 40, "phase": "copying"}, 40, "40 % · copying"),
        ({"percent": 140}, 100, "100 %"),
        ({"percent": 99.9}, 99.9, "99 %"),
        ({"step": 1, "steps": 4}, 25, "25 % · 1 of 4"),
        (
            {"rows": 1200, "bytes": 1_500_000, "percent": 40.7, "phase": "writing"},
            40.7,
            "40 % · 1,200 rows · 1.5 MB · writing",
        ),
        ({"done": 5, "total": 20, "phase": "cancel"}, 25, "25 % · 5 of 20 · cancel"),
        ({"rows": 1200}, None, "1,200 rows"),
        ({"bytes": 1_500_000}, None, "1.5 MB"),
        ({"percent": "x", "phase": 3, "rows": 1, "bytes": -1, "done": 1, "total": 0}, None, "1 row"),
    ],
)
async def test_progress_is_what_the_report_says_in_few_words(
    core: Core, report: dict[str, Any], percent: float | None, text: str
) -> None:
    [id] = await submit(core)
    await run(core.db, "UPDATE jobs SET report = $2::text::jsonb WHERE id = $1", id, json.dumps(report))
    found = progress_of(await read(core, id))
    assert found is not None
    assert (found.percent, found.text) == (percent, text)


def test_times_are_read_as_people_write_them() -> None:
    now = datetime(2026, 11, 15, 12, tzinfo=UTC)
    for text, at in {
        "15m": now - timedelta(minutes=15),
        "15 min": now - timedelta(minutes=15),
        "24h": now - timedelta(hours=24),
        "7d": now - timedelta(days=7),
        "2026-11-14": datetime(2026, 11, 14, tzinfo=UTC),
        "2026-11-14T09:30": datetime(2026, 11, 14, 9, 30, tzinfo=UTC),
        "2026-11-14T09:30:00+01:00": datetime(2026, 11, 14, 8, 30, tzinfo=UTC),
    }.items():
        assert job_filters.read_time(text, now) == at


def test_a_way_back_leads_only_to_the_list() -> None:
    for text in ("//evil.example", "next=//evil.example", "https://evil.example/?kind="):
        assert job_filters.path_back(text) == "/jobs"
    assert job_filters.path_back("tag=a%26b&cursor=c", bulk="7") == "/jobs?tag=a%26b&bulk=7&cursor=c"
