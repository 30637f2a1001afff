"""The page of one job: what it says, to whom, and that nothing in it is taken for more than text."""

import re
import subprocess
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from html import unescape
from types import SimpleNamespace
from typing import Any
from uuid import UUID, uuid4

import httpx2
import orjson
import pytest

from paddock.api.app import create_app
from paddock.api.tokens import NewToken, Tokens
from paddock.config import Config
from paddock.db.pool import Database, Statement
from paddock.jobs import grouping, logs, wire
from paddock.jobs.core import Core
from paddock.jobs.model import AttemptId, Job, JobId, NewJob
from paddock.jobs.values import clean_text
from paddock.web import commands, pages
from paddock.web.job_log import harmless
from paddock.web.progress import progress_now
from tests.conftest import DatabaseClock
from tests.playing import Attempt, read, submit, worker
from tests.reading.rows import run

BASE = "http://paddock.test"
MARKUP = "<script>alert(1)</script><b>bold</b> \u202eרע 🐎 " + "long" * 200


@pytest.fixture
async def open_page(core: Core) -> AsyncIterator[Any]:
    """`await open_page(role, owner)`: a client that is signed in."""
    app = create_app(core, Config(), routes=pages.routes())
    opened: list[httpx2.AsyncClient] = []

    async def make(role: str = "admin", owner: str = "ann", **grants: Any) -> httpx2.AsyncClient:
        _, secret = await Tokens(core.db).create(
            NewToken(name=owner, role=role, owner=owner, grants=grants),  # type: ignore[arg-type]
            actor="test",
        )
        client = httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url=BASE)
        await client.post("/sign-in", data={"token": secret}, headers={"origin": BASE})
        opened.append(client)
        return client

    yield make
    for client in opened:
        await client.aclose()


def seen(html: str) -> str:
    """The words of a page; titles of the drawing are told by its list as well."""
    main = html[html.index("<main") : html.index("</main>")]
    return unescape(re.sub(r"<[^>]*>", "", re.sub(r"<title>.*?</title>", "", main, flags=re.DOTALL)))


async def post(client: httpx2.AsyncClient, page: str, action: str, **fields: str) -> httpx2.Response:
    found = re.search(r'name="csrf" value="([^"]+)"', page)
    assert found is not None
    return await client.post(action, data={"csrf": found[1], **fields}, headers={"origin": BASE})


async def logged(core: Core, attempt: Attempt, lines: str, seq: int = 1, dropped: int = 0) -> None:
    item = SimpleNamespace(
        id=attempt.job.id, attempt_id=attempt.job.attempt_id, seq=seq, lines=lines, dropped_bytes=dropped
    )
    assert await logs.append(core.db, [item]) == 1


# What went wrong


async def test_a_failure_is_told_once_then_its_evidence_then_what_to_do(core: Core, open_page: Any) -> None:
    [id] = await submit(core)
    error = wire.Error(
        code="role_denied",
        message="Trino refused role 'finance'.",
        hint="Ask for the grant.",
        traceback="Traceback: line 7",
    )
    await (await (await worker(core, "w-1")).claim_one()).finish("permanent", error=error)
    page = seen((await (await open_page()).get(f"/jobs/{id}")).text)

    assert page.count("Trino refused role 'finance'.") == 1
    for evidence in ("Code role_denied", "attempt 1", "on w-1"):
        assert evidence in re.sub(r"\s+", " ", page)
    assert page.index("Trino refused") < page.index("role_denied") < page.index("Ask for the grant.")
    assert page.index("Ask for the grant.") < page.index("Traceback: line 7")
    assert "paddock jobs retry" not in page[: page.index("From a terminal")], "the button does that"


async def test_earlier_failures_are_folded_and_a_wait_names_the_last(core: Core, open_page: Any) -> None:
    [id] = await submit(core)
    one = await worker(core)
    for n in range(3):
        error = wire.Error(code="broken", message=f"It broke for the {n}th time.")
        await (await one.claim_one()).finish("transient", delay_seconds=0 if n < 2 else 300, error=error)
    html = (await (await open_page()).get(f"/jobs/{id}")).text
    page = seen(html)
    assert "failed 3 times" in page
    assert "The last error was: It broke for the 2th time." in page
    assert "2 earlier failures" in page
    assert 'id="earlier-failures" open' not in html
    assert "“Run now” makes it due at once" in page


async def test_a_long_message_is_cut_with_a_way_to_see_all(core: Core, open_page: Any) -> None:
    [id] = await submit(core)
    message = "The table is locked. " * 100
    await (await (await worker(core)).claim_one()).finish("permanent", error=wire.Error(code="x", message=message))
    html = (await (await open_page()).get(f"/jobs/{id}")).text
    assert '<details class="clamp"><summary>' in html
    assert seen(html).count(clean_text(message, 4_000).strip()) == 1


# Markup, secrets


async def test_nothing_a_person_or_a_handler_wrote_is_taken_for_markup(core: Core, open_page: Any) -> None:
    [id] = await submit(core, payload={MARKUP: [MARKUP]}, tags=[MARKUP[:80]], owner="ann")
    one = await worker(core, MARKUP[:60])
    attempt = await one.claim_one()
    await logged(core, attempt, f"2026-11-15T09:30:00.123Z info {MARKUP}\n")
    report = {"phase": MARKUP, "percent": 50, MARKUP[:40]: MARKUP}
    await one.link.beat(
        one.session,
        wire.Beat(holding=[wire.Held(id=attempt.job.id, attempt_id=attempt.job.attempt_id, report=report)]),
    )
    client = await open_page()
    running = (await client.get(f"/jobs/{id}")).text
    await attempt.finish("permanent", error=wire.Error(code="<i>x", message=MARKUP, hint=MARKUP, traceback=MARKUP))
    await core.retry(id, actor=MARKUP, reason=MARKUP)
    for html in (running, (await client.get(f"/jobs/{id}")).text):
        for tag in ("<script>alert", "<b>bold", "<i>x"):
            assert tag not in html
        assert "style=" not in html
        assert MARKUP[:40] in unescape(html)


async def test_secrets_are_masked_everywhere_and_of_saved_state_only_the_public_is_shown(
    core: Core, open_page: Any
) -> None:
    secret = "hunter2hunter2"
    [id] = await submit(core, payload={"password": secret, "url": f"https://ann:{secret}@host/x"})
    played = await worker(core)
    attempt = await played.claim_one()
    await attempt.save({"next_uri": "https://trino/v1/x", "left": "here"})
    await played.report(attempt, phase=f"password={secret}", deep={"password": secret}, api_key=secret)
    client = await open_page()
    for page in (f"/jobs/{id}", "/jobs", "/workers", "/"):
        running = await client.get(page)
        assert running.status_code == 200
        assert secret not in running.text
    await attempt.finish(result={"api_key": secret, "rows": 3})
    html = (await client.get(f"/jobs/{id}")).text
    assert secret not in html
    assert "trino/v1/x" not in html
    assert "***" in seen(html)
    assert "Secrets are masked: put them in before you run it." in seen(html)


# The log


async def test_the_log_shows_lines_by_attempt_and_no_terminal_codes(core: Core, open_page: Any) -> None:
    [id] = await submit(core)
    first = await (await worker(core, "one")).claim_one()
    await logged(
        core, first, "2026-11-15T09:30:00.123Z warning \x1b[31mred\x1b[0m \x1b]0;title\x07<u>x</u>\x08\n  more\n"
    )
    await first.finish("transient", delay_seconds=0)
    second = await (await worker(core, "two")).claim_one()
    await logged(core, second, "2026-11-15T09:31:00.000Z error boom\n", dropped=5_000)
    client = await open_page()
    html = (await client.get(f"/jobs/{id}")).text
    page = seen(html)
    assert "warning red <u>x</u>␈\n  more" in page
    assert "\x1b" not in html
    assert "<u>" not in html
    log = page[page.index("on one ·") :]
    assert log.index("red") < log.index("on two ·") < log.index("boom")
    assert "5.0 kB were dropped" in page

    after = re.search(r'id="log"[^>]* data-after="([^"]+)"', html)
    assert after is not None
    asked = {"x-paddock-regions": "lines"}
    nothing = (await client.get(f"/jobs/{id}", params={"after": after[1]}, headers=asked)).json()["regions"]
    assert 'class="line' not in nothing["lines"]
    await logged(core, second, "2026-11-15T09:31:01.000Z info next <b>line</b>\n", seq=2)
    since = (await client.get(f"/jobs/{id}", params={"after": after[1]}, headers=asked)).json()["regions"]
    assert since["lines"].count('class="line') == 1
    assert "next &lt;b&gt;line" in since["lines"]
    assert (await client.get(f"/jobs/{id}", params={"after": "nonsense"}, headers=asked)).status_code == 400


async def test_an_ended_job_without_a_log_says_why_instead_of_an_empty_box(core: Core, open_page: Any) -> None:
    ran, old, never, running = await submit(core, n=4)
    one = await worker(core)
    for _ in (ran, old):
        await (await one.claim_one()).finish()
    await core.cancel([never], actor="ann")
    await run(core.db, "UPDATE job_history SET completed_at = completed_at - interval '8 days' WHERE id = $1", old)
    client = await open_page()

    async def told(id: JobId) -> str:
        html = (await client.get(f"/jobs/{id}")).text
        assert ('id="log-lines"' in html) == (id == running), "a box for lines only while some may come"
        [found] = re.findall(r'<p class="log-empty quiet">([^<]*)</p>', html)
        return str(found)

    assert await told(ran) == "It logged nothing."
    assert await told(old) == "Logs are kept for 7 d, and it ended longer ago."
    assert await told(never) == "It never ran, so it logged nothing."
    assert await told(running) == "Nothing logged yet."


async def test_the_whole_log_can_be_downloaded_by_those_who_see_the_job(core: Core, open_page: Any) -> None:
    [id] = await submit(core, owner="ann")
    attempt = await (await worker(core)).claim_one()
    await logged(core, attempt, "<script>alert(1)</script> \x1b[31mred\n")
    answer = await (await open_page("analyst", "ann")).get(f"/jobs/{id}/log")
    assert answer.text == "<script>alert(1)</script> \x1b[31mred\n"
    assert answer.headers["content-type"].startswith("text/plain")
    assert answer.headers["content-disposition"] == f'attachment; filename="{id}.log"'
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert (await (await open_page("analyst", "bob")).get(f"/jobs/{id}/log")).status_code == 404


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[1;31mred\x1b[0m", "red"),
        ("\x1b]8;;https://evil.example\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("a\x1b[2J\x1b[Hb", "ab"),
        ("50%\r100%", "50%␍100%"),
        ("one\r\ntwo", "one\ntwo"),
        ("\x1b", "␛"),
        ("tab\there \x00\x7f", "tab\there ␀␡"),
        ("plain [31m", "plain [31m"),
    ],
)
def test_terminal_control_becomes_harmless(text: str, shown: str) -> None:
    assert harmless(text) == shown


# What can be done


async def test_each_action_says_what_it_will_do_and_the_others_why_not(core: Core, open_page: Any) -> None:
    client = await open_page()
    [waiting] = await submit(core, "locking", payload={"lock": "t"}, delay=timedelta(hours=1))
    html = (await client.get(f"/jobs/{waiting}")).text
    assert 'data-confirm="Run this locking job now?"' in html
    assert "It would be due in 60 min; it becomes due now" in html
    assert "It waits, ends at once and does not run." in html
    assert "Retry job" not in html

    await core.run_now(waiting, actor="ann")
    attempt = await (await worker(core, "w-7")).claim_one("locking")
    html = (await client.get(f"/jobs/{waiting}")).text
    assert "Run now" not in html
    assert "It runs on w-7, is stopped there at once and does not run again." in html
    assert "A cleanup removes what it has begun, then frees its lock." in html

    await attempt.finish("permanent")
    html = (await client.get(f"/jobs/{waiting}")).text
    assert "Cancel job" not in html
    assert "One new job of the same kind with the same payload is created" in unescape(html)
    assert "It takes the lock 't' again." in unescape(html)

    [done] = await submit(core)
    await (await (await worker(core)).claim_one("plain")).finish()
    page = seen((await client.get(f"/jobs/{done}")).text)
    assert "It completed, so there is nothing to retry." in page
    assert "Submit it again" in page


async def test_cancel_retry_and_run_now_do_what_they_say(core: Core, open_page: Any) -> None:
    client = await open_page("ops", "olga")
    [id] = await submit(core, delay=timedelta(hours=1))
    page = (await client.get(f"/jobs/{id}")).text
    assert (await post(client, page, f"/jobs/{id}/run-now")).status_code == 303
    due = (await read(core, id)).due_at
    assert due is not None
    assert due <= datetime.now(UTC)
    assert (await post(client, page, f"/jobs/{id}/cancel", reason="wrong <b>table")).status_code == 303
    ended = (await client.get(f"/jobs/{id}")).text
    assert "cancelled by olga: wrong <b>table" in seen(ended)
    assert (await post(client, page, f"/jobs/{id}/cancel")).status_code == 409
    again = await post(client, page, f"/jobs/{id}/retry", reason="it was right")
    new = again.headers["location"].rpartition("/")[2]
    assert (await read(core, JobId(UUID(new)))).retry_of == id
    assert (await post(client, page, f"/jobs/{id}/retry")).status_code == 409
    assert "It was retried already" in seen((await client.get(f"/jobs/{id}")).text)


async def test_while_drained_a_retry_is_not_offered(core: Core, open_page: Any) -> None:
    [id] = await submit(core)
    await core.cancel([id], actor="ann")
    await core.drain(True, actor="ann")
    html = (await (await open_page()).get(f"/jobs/{id}")).text
    assert "Drain mode is on: it can be retried once new work is accepted again." in seen(html)
    assert f"/jobs/{id}/retry" not in html[: html.index("job-columns")]


async def test_an_analyst_sees_and_does_only_their_own(core: Core, open_page: Any) -> None:
    [anns] = await submit(core, owner="ann")
    [bobs] = await submit(core, owner="bob", role="finance")
    await core.cancel([bobs], actor="bob")
    bob = await open_page("analyst", "bob")
    for path in (f"/jobs/{anns}", f"/jobs/{anns}/log", f"/jobs/{uuid4()}", "/jobs/nonsense/log"):
        assert (await bob.get(path)).status_code == 404, path
    own = (await bob.get(f"/jobs/{bobs}")).text
    assert (await post(bob, own, f"/jobs/{anns}/cancel")).status_code == 404
    assert (await read(core, anns)).status == "pending"
    # The engine role was taken from them since: absent, and refused all the same.
    assert "Your token may no longer use what it ran with: its engine, role or destination." in seen(own)
    assert "Retry job" not in own
    assert (await post(bob, own, f"/jobs/{bobs}/retry")).status_code == 403
    granted = await open_page("analyst", "bob", engine_roles=["finance"])
    assert "Retry job" in (await granted.get(f"/jobs/{bobs}")).text


# What belongs to it


async def test_what_belongs_together_is_linked_both_ways(core: Core, open_page: Any) -> None:
    client = await open_page()
    async with core.db.transaction() as tx:
        group = await grouping.create(tx, "plain", "ann")
        [parent] = await core.enqueue(tx, [NewJob("locking", {}, owner="ann", group_id=group, schedule="nightly <b>")])
        await grouping.grow(tx, group, 1)
    one = await worker(core)
    await (await one.claim_one("locking")).finish(follow_ups=[wire.FollowUp(kind="locking", payload={})])
    page = (await client.get(f"/jobs/{parent}")).text
    [child] = set(re.findall(r'href="/jobs/([0-9a-f-]{36})"', page))
    assert f'href="/groups/{group}"' in page
    assert 'href="/jobs?schedule=nightly+%3Cb%3E"' in page
    assert f'href="/jobs/{parent}"' in (await client.get(f"/jobs/{child}")).text

    await (await one.claim_one("locking")).finish("permanent")
    again = await core.retry(JobId(UUID(child)), actor="ann", reason=None)
    page = (await client.get(f"/jobs/{child}")).text
    belonging = set(re.findall(r'href="/jobs/([0-9a-f-]{36})"', page)) - {str(parent)}
    assert str(again.id) in belonging
    [cleanup] = belonging - {str(again.id)}
    cleans = (await client.get(f"/jobs/{cleanup}")).text
    assert f'href="/jobs/{child}"' in cleans
    assert "A cleanup is neither cancelled nor retried by hand" in seen(cleans)
    assert f'href="/jobs/{child}"' in (await client.get(f"/jobs/{again.id}")).text


async def test_under_a_sub_path_every_link_stays_below_it(core: Core, open_page: Any) -> None:
    [id] = await submit(core, tags=["a"], payload={"x": 1})
    await (await (await worker(core)).claim_one()).finish("permanent")
    html = (await (await open_page()).get(f"/jobs/{id}", headers={"x-forwarded-prefix": "/tools"})).text
    found = re.findall(r'(?:href|action|src|data-log)="(/[^"]*)"', html)
    assert found
    assert [address for address in found if not address.startswith("/tools/")] == []
    assert f"{BASE}/tools/api/jobs/{id}" in html


@pytest.fixture
def read_of_late(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the statements that are run from now on."""
    names: list[str] = []

    def noting(way: str) -> None:
        original = getattr(Database, way)

        async def noted(self: Database, statement: Statement, *arguments: object) -> Any:
            names.append(statement.name)
            return await original(self, statement, *arguments)

        monkeypatch.setattr(Database, way, noted)

    for way in ("fetch", "fetchrow", "fetchval"):
        noting(way)
    return names


@pytest.mark.parametrize(
    ("asked", "read"),
    [
        ("facts,progress,outcome,commands", set()),
        ("job", {"timeline_rows", "kinds_seen", "sessions_seen"}),
        ("course", {"timeline_rows"}),
        ("related", {"related_jobs", "group"}),
        ("lines", {"timeline_rows", "logs_before"}),
    ],
)
async def test_a_region_reads_only_what_it_shows(
    core: Core, open_page: Any, read_of_late: list[str], asked: str, read: set[str]
) -> None:
    async with core.db.transaction() as tx:
        group = await grouping.create(tx, "plain", "ann")
        [id] = await core.enqueue(tx, [NewJob("plain", {}, owner="ann", group_id=group)])
        await grouping.grow(tx, group, 1)
    client = await open_page()
    await client.get(f"/jobs/{id}")
    whole = {"timeline_rows", "kinds_seen", "sessions_seen", "related_jobs", "group", "logs_before"}
    assert whole <= set(read_of_late)
    read_of_late.clear()

    answer = await client.get(f"/jobs/{id}", headers={"x-paddock-regions": asked})

    assert set(answer.json()["regions"]) == {*asked.split(","), "standing"}
    assert whole & set(read_of_late) == read


async def test_whatever_regions_are_asked_for_are_answered_and_the_page_itself_is_none(
    core: Core, open_page: Any
) -> None:
    [id] = await submit(core)
    await logged(core, await (await worker(core)).claim_one(), "a line\n")
    client = await open_page()
    answer = await client.get(f"/jobs/{id}", headers={"x-paddock-regions": "lines,job"})
    assert "a line" in answer.json()["regions"]["lines"]
    for path in ("/", f"/jobs/{id}", "/jobs"):
        answer = await client.get(path, headers={"x-paddock-regions": "main,title,scripts,stream,nonsense"})
        assert (answer.status_code, list(answer.json()["regions"])) == (200, ["standing"])


async def test_a_reason_is_as_long_as_the_api_allows_and_no_longer(core: Core, open_page: Any) -> None:
    [id] = await submit(core)
    client = await open_page()
    page = (await client.get(f"/jobs/{id}")).text
    answer = await post(client, page, f"/jobs/{id}/cancel", reason="x" * 501)
    assert answer.status_code == 422
    assert "A reason has at most 500 characters" in answer.text
    assert (await read(core, id)).status == "pending"
    assert (await post(client, page, f"/jobs/{id}/cancel", reason="x" * 500)).status_code == 303


# Waiting for a worker that does not come, or is silent


async def test_a_silent_worker_is_told_before_its_lease_ends(core: Core, clock: DatabaseClock, open_page: Any) -> None:
    [id] = await submit(core)
    await (await worker(core, "w-9")).claim_one()
    client = await open_page()
    await clock.advance(seconds=20)
    assert "last heard of" not in seen((await client.get(f"/jobs/{id}")).text)
    await clock.advance(seconds=20)
    page = seen((await client.get(f"/jobs/{id}")).text)
    assert "That worker was last heard of 40 s ago; its lease ends in 20 s." in page


async def test_why_a_job_waits_is_told_to_each_as_far_as_they_may_know(core: Core, open_page: Any) -> None:
    [id] = await submit(core, owner="ann")
    await core.pause("plain", actor="olga", reason="upgrade")
    page = seen((await (await open_page()).get(f"/jobs/{id}")).text)
    assert "but olga paused its kind 'plain' (upgrade)" in page
    page = seen((await (await open_page("analyst", "ann")).get(f"/jobs/{id}")).text)
    assert "paused its kind 'plain'" in page
    assert "olga" not in page


# Progress

NOW = datetime(2026, 11, 16, 9, 0, tzinfo=UTC)


def running(report: dict[str, Any] | None, seconds: float = 100, **fields: Any) -> Job:
    at = NOW - timedelta(seconds=seconds)
    known = {"claimed_at": at, "attempt_id": AttemptId(uuid4()), "turn_count": 1, "report": report, **fields}
    return Job(JobId(uuid4()), "probe", "claimed", 3, "ada", None, [], {}, at, **known)


@pytest.mark.parametrize(
    ("report", "fields", "percent", "rate", "left"),
    [
        ({"percent": 25}, {}, "25 %", None, "about 5 min left"),
        ({"percent": 25, "eta_seconds": 7}, {}, "25 %", None, "about 7.0 s left"),
        ({"percent": 25, "rows": 5_000}, {}, "25 %", "50 rows/s", "about 5 min left"),
        ({"bytes": 5_000_000}, {}, "", "50.0 kB/s", None),
        ({"step": 1, "steps": 3}, {}, "33.3 %", None, "about 3 min 20 s left"),
        # nothing rather than nonsense
        ({"percent": 25, "rows": 5_000}, {"turn_count": 2}, "25 %", None, None),
        ({"percent": 25}, {"seconds": 1}, "25 %", None, None),
        ({"percent": 0.1}, {}, "0.1 %", None, None),
        ({"percent": 250}, {}, "100 %", None, None),
        ({"percent": "half", "rows": -3}, {}, "", None, None),
        ({"percent": True, "eta_seconds": -1}, {}, "", None, None),
        ({"percent": 40, "eta_seconds": 1e300}, {}, "40 %", None, None),
        ({"percent": 99.99}, {}, "99.9 %", None, "about 1.0 s left"),
        ({"percent": 25}, {"attempt_id": None}, "25 %", None, None),
    ],
)
def test_progress_says_what_it_knows(
    report: dict[str, Any], fields: dict[str, Any], percent: str, rate: str | None, left: str | None
) -> None:
    found = progress_now(running(report, **fields), NOW)
    assert found is not None
    assert (found.percent_text, found.rate, found.left) == (percent, rate, left)


async def test_a_job_that_completed_is_done_whatever_it_reported_last(core: Core, open_page: Any) -> None:
    [id] = await submit(core)
    one = await worker(core)
    attempt = await one.claim_one()
    held = wire.Held(id=attempt.job.id, attempt_id=attempt.job.attempt_id, report={"percent": 85})
    await one.link.beat(one.session, wire.Beat(holding=[held]))
    client = await open_page()
    assert '<progress value="85.0" max="100"' in (await client.get(f"/jobs/{id}")).text
    await attempt.finish()
    html = (await client.get(f"/jobs/{id}")).text
    assert '<progress value="100" max="100"' in html
    assert "85 %" not in seen(html)


def test_other_fields_of_a_report_are_shown_as_words() -> None:
    found = progress_now(
        running({"files": 5, "read_bytes": 1_500_000, "table": "x", "deep": {"a": 1}, "ok": True}), NOW
    )
    assert found is not None
    assert found.rest == {"files": "5", "read_bytes": "1.5 MB", "table": "x", "ok": "true"}
    assert found.unshown
    assert progress_now(running(None), NOW) is None


def test_rows_and_bytes_are_amounts_and_no_further_fields() -> None:
    report = {"rows": 1_200_000, "bytes": 1_500_000, "percent": 40, "eta_seconds": 90, "phase": "writing", "files": 3}
    found = progress_now(running(report), NOW)
    assert found is not None
    assert (found.amounts, found.phase, found.rest) == (["1,200,000 rows", "1.5 MB"], "writing", {"files": "3"})
    assert (found.rate, found.left) == ("12,000 rows/s, 15.0 kB/s", "about 1 min 30 s left")


# Commands

HOSTILE = '\'; rm -rf / #\n$(id) `id` "x" \\ ! %s 🐎 \u202e'


@pytest.mark.parametrize("payload", [{}, {"sql": HOSTILE, HOSTILE: [HOSTILE]}, {"a": "-x", "b": "@/etc/passwd"}])
def test_a_shell_takes_commands_as_they_are_meant(payload: dict[str, Any]) -> None:
    job = Job(JobId(uuid4()), "probe", "failed", 1, "ada", None, ["-x", HOSTILE], payload, NOW)
    made = commands.commands("https://host/tools", job, payload, retriable=True, submittable=True)
    assert [command.name for command in made] == ["Show it", "Retry it", "Submit it again"]
    assert all(command.note is None for command in made)
    look, _, again = made
    assert look.curl is not None
    assert run_in_shell(look.curl)[-3:] == [
        "-H",
        "Authorization: Bearer it's $x",
        f"https://host/tools/api/jobs/{job.id}",
    ]
    assert again.curl is not None
    arguments = run_in_shell(again.curl)
    body = arguments[arguments.index("--data-raw") + 1]
    assert orjson.loads(body) == {
        "kind": "probe", "payload": payload, "priority": 1, "tags": ["-x", HOSTILE],
    }  # fmt: skip
    assert again.cli is not None
    arguments = run_in_shell(again.cli)
    assert arguments[:5] == ["jobs", "submit", "--server=https://host/tools", "--priority=1", "--tag=-x"]
    assert arguments[-3:-1] == ["--", "probe"]
    assert orjson.loads(arguments[-1]) == payload


def run_in_shell(command: str) -> list[str]:
    """The arguments a real shell hands over."""
    script = f'curl() {{ printf \'%s\\0\' "$@"; }}; paddock() {{ curl "$@"; }}\n{command}'
    done = subprocess.run(["/bin/sh", "-c", script], env={"PADDOCK_TOKEN": "it's $x"}, capture_output=True, check=True)
    assert done.stderr == b""
    return done.stdout.decode().split("\0")[:-1]


def test_what_a_command_cannot_hold_it_says() -> None:
    job = Job(JobId(uuid4()), "probe", "failed", 3, "ada", "finance", [], {"x": "y" * 20_000}, NOW)
    [_, long] = commands.commands("http://h", job, job.payload, retriable=False, submittable=True)
    assert (long.cli, long.curl) == (None, None)
    assert long.note is not None
    short = commands.submit("http://h", job, {"x": "***"})
    assert short.cli is None
    assert short.curl is not None
    assert "X-Use-Case-Id: finance" in run_in_shell(short.curl)
    assert short.note is not None
    assert "Secrets are masked" in short.note


async def test_who_may_not_submit_a_kind_is_not_told_how(core: Core, open_page: Any) -> None:
    submitted = await core.submit([NewJob("internal_only", {}, owner="ann")], public=False)
    page = seen((await (await open_page()).get(f"/jobs/{submitted.jobs[0].id}")).text)
    assert "Show it" in page
    assert "Submit it again" not in page
