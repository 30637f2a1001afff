"""The page of one job, watched: it finishes, its worker dies, it is cancelled and run again, it holds hostile text."""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count

import pytest
from playwright.async_api import Page, expect

from paddock.client import Client
from paddock.jobs import wire
from tests.conftest import Server
from tests.playing import Attempt, PlayedWorker, submit, worker
from tests.processes.running import Up, until_status
from tests.web.browser.conftest import LOOKS, Person, axe, fits, make_token, resting, settled, shot
from tests.web.browser.test_operating import own_paddock

HOSTILE = '<script>xss=1</script><img src=x onerror="xss=1"> \u202eרע 🐎 ' + "long" * 60


async def width_of_running(page: Page) -> float:
    return float((await page.locator(".timeline [data-grows]").get_attribute("width") or "0").rstrip("%"))


async def top_of(page: Page, selector: str) -> float:
    return float(await page.evaluate("(s) => document.querySelector(s).getBoundingClientRect().top", selector))


@asynccontextmanager
async def moving_on(played: PlayedWorker, attempt: Attempt) -> AsyncIterator[None]:
    """It tells how far it is, as a worker does, for as long as somebody looks."""

    async def tell() -> None:
        for step in count(1):
            await played.report(attempt, percent=min(step / 10, 99), step=step, steps=1000)
            await asyncio.sleep(0.5)

    telling = asyncio.create_task(tell())
    try:
        yield
    finally:
        telling.cancel()
        await asyncio.wait([telling])


async def test_a_job_is_watched_to_its_end_without_a_reload(person: Person, postgres: Server) -> None:
    """The test is its worker: it runs until all of it was seen."""
    async with own_paddock(postgres, "watched_job") as (core, address, secret):
        [id] = await submit(core)
        played = await worker(core)
        attempt = await played.claim_one()
        page = await person("nobody", base=address)
        await page.goto(f"jobs/{id}")
        await page.fill("input[name=token]", secret)
        await page.click("main button")
        await expect(page).to_have_url(f"{address}/jobs/{id}")
        await settled(page)
        await page.evaluate("window.stayed = true")
        lines = "".join(f"2026-11-15T09:30:00.123Z info a line number={number}\n" for number in range(200))
        await played.link.logs(
            wire.Logs(items=[wire.LogItem(id=id, attempt_id=attempt.job.attempt_id, seq=1, lines=lines)])
        )
        async with moving_on(played, attempt):
            await expect(page.locator(".progress-card progress")).to_be_visible()
            await expect(page.locator("#log-lines")).to_contain_text("number=199")
            place, width = await top_of(page, "#log"), await width_of_running(page)
            percent = await page.locator(".progress-card").get_attribute("data-percent")

            # It grows, moves on and says how long it takes; nothing below jumps.
            await expect(page.locator(".progress-card")).not_to_have_attribute("data-percent", percent or "")
            await expect(page.locator("[data-left]")).to_have_text(re.compile(r"^about .* left$"))
            await page.wait_for_function(
                "(was) => parseFloat(document.querySelector('.timeline [data-grows]').getAttribute('width')) > was",
                arg=width,
            )
            assert await top_of(page, "#log") == place
            await shot(page, "job-running")

        # Whoever scrolls up in the log reads; the end is a click away.
        follow = page.locator("[data-log-follow]")
        await expect(follow).to_have_attribute("aria-pressed", "true")
        await page.evaluate("document.getElementById('log-lines').scrollTop = 0")
        await expect(follow).to_have_attribute("aria-pressed", "false")
        await follow.click()
        await page.wait_for_function(
            "(() => { const log = document.getElementById('log-lines'); return log.scrollHeight - log.scrollTop - log.clientHeight < 24; })()"
        )

        assert await attempt.finish(result={"rows": 3}) == "accepted"
        await expect(page.locator(".sentence .is-completed")).to_be_visible()
        await expect(page.locator(".timeline [data-event=completed]")).to_have_count(1)
        await expect(page.locator("#document-result")).to_contain_text('"rows": 3')
        await expect(page.get_by_role("button", name="Cancel job")).to_have_count(0)
        assert await page.evaluate("window.stayed")
        await page.goto("about:blank")  # it would ask a server that is gone


async def test_a_killed_worker_is_seen_as_a_rescue_without_a_reload(person: Person, up: Up, jobs: Client) -> None:
    id = resting(jobs, {"progress": 20, "sleep_seconds": 6})
    page = await person("ops")
    await page.goto(f"/jobs/{id}")
    await settled(page)
    await page.evaluate("window.stayed = true")
    jobs.run_now(id)
    dead = until_status(jobs, id, "claimed")["claimed_by"]
    up.child("worker").kill()

    rescue = page.locator(".timeline [data-event=rescued]")
    await expect(rescue).to_have_count(1, timeout=60_000)
    await expect(page.locator("#steps")).to_contain_text(f"{dead} was lost; given back")
    await expect(page.locator(".sentence .is-completed")).to_be_visible(timeout=60_000)
    assert await page.evaluate("window.stayed")

    # Its points by keyboard, each with its story: the run that was lost, and the one after it.
    await page.locator(".timeline .point[tabindex='0']").focus()
    await page.keyboard.press("Home")
    story, told = page.locator("[data-story-line]"), []
    for _ in range(await page.locator(".timeline .point").count()):
        told.append(await story.inner_text())
        await page.keyboard.press("ArrowRight")
    assert any(f"on {dead}, from 20" in text and "its worker was lost" in text for text in told)
    assert any(text.startswith(f"Its worker {dead} was lost") for text in told)
    await page.evaluate("document.activeElement.blur()")
    await expect(story).to_contain_text("in 2 turns")
    await axe(page)
    await shot(page, "job-rescued")


async def test_an_analyst_cancels_their_job_says_why_and_finds_what_belongs_to_it(
    person: Person, jobs_of_ada: Client
) -> None:
    payload = {"turns": 2, "turn_delay_seconds": 3600, "leave": "a draft"}
    id = jobs_of_ada.submit("probe", payload, tags=["nightly"])["id"]
    page = await person("analyst", width=400, theme="dark")
    await page.goto(f"/jobs/{id}")
    await expect(page.get_by_role("button", name="Run now")).to_be_visible()
    await settled(page)
    await axe(page)
    await fits(page)
    await page.get_by_role("button", name="Cancel job").click()
    await expect(page.locator("#confirm-effect")).to_contain_text("A cleanup removes what it has begun.")
    await page.fill("#confirm-reason input", "wrong table")
    await page.click("#confirm button[value=yes]")
    await expect(page.locator(".sentence")).to_contain_text("cancelled by ada")
    await expect(page.locator(".sentence")).to_contain_text("wrong table")
    # The cleanup is a job of its own: its end is seen here all the same.
    await expect(page.locator("#related")).to_contain_text("completed")
    await expect(page.locator(".timeline .cleanup.tone-good")).to_have_count(1)
    await shot(page, "job-cancelled")

    await page.get_by_role("button", name="Retry job").click()
    await expect(page.locator("#confirm-effect")).to_contain_text("One new job of the same kind with the same payload")
    await page.click("#confirm button[value=yes]")
    await expect(page.locator(".said")).to_contain_text("This is the new job")
    again = page.url
    await page.locator(f"#related a[href$='/jobs/{id}']").click()
    await page.locator(f"#related a[href$='{again[-36:]}']").click()
    await expect(page).to_have_url(again)
    jobs_of_ada.cancel(again[-36:])


@pytest.fixture(scope="module")
def hostile(up: Up, jobs: Client) -> str:
    """A job whose every text is markup, once it has failed."""
    payload = {"fail_transiently": 3, "fail": HOSTILE, "leave": HOSTILE[:100], "result": {HOSTILE: [HOSTILE]}}
    id = str(jobs.submit("probe", payload, tags=[HOSTILE[:90], "nightly"])["id"])
    failed = jobs.wait(id, 60)
    with Client(up.address["url"], make_token(jobs, "worker", "log")) as worker:
        lines = f"2026-11-15T09:30:00.123Z warning \x1b[31m{HOSTILE}\x1b[0m\n"
        item = {"id": id, "attempt_id": failed["ended_by"], "seq": 99, "lines": lines}
        worker.request("POST", "/internal/jobs/logs", body={"items": [item]})
    return id


@LOOKS
async def test_hostile_text_stays_text_and_the_page_reads_well(
    person: Person, hostile: str, theme: str, width: int
) -> None:
    page = await person("admin", theme=theme, width=width)
    await page.goto(f"/jobs/{hostile}")
    await settled(page)
    for place in (".sentence", "#log-lines", "#document-payload", "#facts"):
        await expect(page.locator(place)).to_contain_text("<script>xss=1</script>")
    await page.locator("#earlier-failures > summary").click()
    await page.locator("#command-texts > summary").click()
    assert await page.evaluate("typeof xss") == "undefined"
    await expect(page.locator(".timeline [data-event=retry]")).to_have_count(3)
    await fits(page)
    await axe(page)
    await shot(page, "job-hostile")


async def test_what_a_page_shows_is_copied_as_a_command_and_grows_when_it_fails(person: Person, jobs: Client) -> None:
    id = resting(jobs, {"fail": "No."})
    page = await person("ops")
    await page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    await page.goto(f"/jobs/{id}")
    await settled(page)

    async def copied(name: str) -> str:
        await page.get_by_role("button", name=name).click()
        await expect(page.locator("#announcer")).to_have_text("Copied.")
        return str(await page.evaluate("navigator.clipboard.readText()"))

    assert await copied("Copy as CLI: Show it") == f"paddock jobs show --server={page.url.partition('/jobs')[0]} {id}"
    assert f"/api/jobs/{id}" in await copied("Copy as curl: Show it")
    await expect(page.get_by_role("button", name="Copy as CLI: Retry it")).to_have_count(0)
    jobs.run_now(id)
    retry = page.get_by_role("button", name="Copy as CLI: Retry it")
    await expect(retry).to_be_visible()
    assert "jobs retry --server" in await copied("Copy as CLI: Retry it")


async def test_without_scripts_everything_can_still_be_read(person: Person, jobs: Client) -> None:
    id = jobs.submit("probe", {"fail_transiently": 1, "log_lines": 3, "result": {"rows": 3}})["id"]
    jobs.wait(id, 60)
    page = await person("ops", scripts=False)
    await page.goto(f"/jobs/{id}")
    await expect(page.locator(".timeline .band.run")).to_have_count(2)
    await expect(page.locator("#steps")).to_contain_text("Failure 1 of 1, as asked for")
    await expect(page.locator("#document-result")).to_contain_text('"rows": 3')
    await page.locator("#command-texts > summary").click()
    await expect(page.locator("#command-texts")).to_contain_text(f"/api/jobs/{id}")
    await expect(page.locator("[data-log-follow]")).to_be_hidden()
