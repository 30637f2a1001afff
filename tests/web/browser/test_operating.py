"""Workers, kinds, schedules and groups in a browser: each action as a story, each page in both themes and widths."""

import os
import re
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from uuid import UUID

from playwright.async_api import Page, expect
from prometheus_client import CollectorRegistry

from paddock.api.app import create_app
from paddock.api.tokens import NewToken, Tokens
from paddock.client import Client
from paddock.config import Config
from paddock.jobs import grouping, wire
from paddock.jobs.bulk import BULK
from paddock.jobs.core import Core, open_core
from paddock.jobs.kinds import Kind, Kinds
from paddock.jobs.model import JobId, NewJob
from paddock.metrics import Metrics
from paddock.web import pages
from tests.api.conftest import serving
from tests.conftest import Server
from tests.kinds import ANYBODY, TEST_KINDS, Anything, nothing
from tests.playing import PlayedWorker
from tests.processes.running import Up, wait_for
from tests.web.browser.conftest import LOOKS, Person, axe, fits, provoked, settled, shot
from tests.web.browser.proxy import Proxy

ODD = "<b>bold</b> \u202eרע 🐎 " + "long" * 30
# The figures are sampled every 10 s, and so are the pages that show them.
FIGURES_MS = 60_000
GROUPED = Kind(name="grouped", payload=Anything, handler=nothing, submit=ANYBODY)


async def agree(page: Page, label: str, reason: str | None = None) -> None:
    dialog = page.get_by_role("dialog")
    if reason is not None:
        await dialog.get_by_role("textbox").fill(reason)
    await dialog.get_by_role("button", name=label, exact=True).click()


async def said(page: Page, text: str) -> None:
    await expect(page.get_by_role("status").filter(has_text=text)).to_be_visible()


async def still(page: Page) -> None:
    """From now on, whatever moves without a person's doing is counted."""
    await page.evaluate(
        "window.shifted = 0; new PerformanceObserver(list => {"
        " for (const entry of list.getEntries()) if (!entry.hadRecentInput) window.shifted += entry.value;"
        "}).observe({type: 'layout-shift'})"
    )


async def nothing_moved(page: Page) -> None:
    assert await page.evaluate("window.shifted") < 0.01, "what is read must stay where it is"


async def test_a_worker_is_quieted_and_let_again(person: Person, jobs: Client) -> None:
    page = await person("ops")
    running = jobs.submit("probe", {"sleep_seconds": 600, "progress": 600, "save_each_step": True})["id"]
    await page.goto("/workers")
    await settled(page)
    job = page.locator(f"#running-{running}")
    await expect(job).to_contain_text("%")
    worker = page.get_by_role("row").filter(has=page.get_by_role("button", name="Quiet")).filter(has_text="probe")
    await expect(worker).to_contain_text("live")
    await axe(page)
    await still(page)
    done = await job.locator("[data-name=Progress]").inner_text()
    await expect(job.locator("[data-name=Progress]")).not_to_have_text(done)
    await nothing_moved(page)
    await worker.get_by_role("button", name="Quiet").click()
    dialog = page.get_by_role("dialog")
    await expect(dialog).to_contain_text(
        "claims nothing new until you resume it. Nobody else offers describe, export, ingest_check, metadata, probe"
    )
    await agree(page, "Quiet")
    await said(page, "The worker ends what it runs and claims nothing new.")

    try:
        quiet = page.get_by_role("row").filter(has=page.get_by_role("button", name="Resume"))
        await expect(quiet).to_contain_text("quiet")
        waiting = jobs.submit("probe")["id"]
        await shot(page, "worker-quiet")
    finally:
        await page.get_by_role("button", name="Resume").click()
        await agree(page, "Resume")
        await said(page, "The worker claims again.")
        jobs.cancel(running)
    assert jobs.wait(waiting, 60)["status"] == "completed"
    await expect(job).to_have_count(0)


async def test_a_killed_worker_is_shown_with_what_it_held(person: Person, jobs: Client, up: Up) -> None:
    held = jobs.submit("probe", {"sleep_seconds": 120, "progress": 120, "save_each_step": True})["id"]
    wait_for("it runs", lambda: jobs.get(held)["status"] == "claimed" or None)
    name = jobs.get(held)["claimed_by"]
    page = await person("ops")
    await page.goto("/workers")
    await settled(page)
    os.kill(up.child("worker").pid, signal.SIGKILL)
    gone = page.get_by_role("region", name="Workers that are gone").get_by_role("row").filter(has_text=name)
    await expect(gone.filter(has_text="lost").first).to_contain_text("given back", timeout=60_000)
    await expect(gone.locator(f"a[href$='/jobs/{held}']")).to_be_visible()
    await shot(page, "worker-lost")
    jobs.cancel(held)
    # The next tests need one that claims again.
    assert jobs.wait(jobs.submit("probe")["id"], 60)["status"] == "completed"


async def test_a_kind_is_paused_its_backlog_grows_and_it_is_resumed(person: Person, jobs: Client) -> None:
    # Those of other tests may still wait to be tried again.
    left = {"kind": "probe_blocking", "status": "pending"}
    wait_for("no job of this kind is left", lambda: not jobs.request("GET", "/api/jobs", params=left)["data"])
    page = await person("ops")
    await page.goto("/kinds")
    await settled(page)
    row = page.locator("#kind-probe_blocking")
    await expect(row.locator("[data-name=Waiting]")).to_have_text("0", timeout=FIGURES_MS)
    await row.get_by_role("button", name="Pause").click()
    await expect(page.get_by_role("dialog")).to_contain_text("no pending jobs wait")
    await agree(page, "Pause", ODD)
    await said(page, "probe_blocking is paused")
    try:
        await expect(row).to_contain_text("by olga")
        ids = [jobs.submit("probe_blocking")["id"] for _ in range(3)]
        await still(page)
        await expect(row.locator("[data-name=Waiting]")).to_have_text("3", timeout=FIGURES_MS)
        await nothing_moved(page)
        await axe(page)
        await row.get_by_role("link", name="probe_blocking").click()
        await expect(page.locator(".sentence")).to_contain_text("3 jobs wait")
        await expect(page.locator("#chart-backlog canvas")).to_be_visible()
        await axe(page)
        await shot(page, "kind-paused")
        await page.get_by_role("button", name="Resume").click()
        await expect(page.get_by_role("dialog")).to_contain_text("3 pending jobs wait")
        await agree(page, "Resume")
        await said(page, "probe_blocking is claimed again.")
    finally:
        jobs.request("POST", "/api/kinds/probe_blocking/resume")
    assert {jobs.wait(id, 60)["status"] for id in ids} == {"completed"}
    await page.goto("/kinds")
    await expect(row.locator("[data-name=Waiting]")).to_have_text("0", timeout=FIGURES_MS)


async def test_a_schedule_is_made_run_now_and_its_job_followed(person: Person, jobs: Client) -> None:
    page = await person("ops")
    await page.goto("/schedules")
    await page.get_by_role("link", name="New schedule").click()
    await page.get_by_label("Name").fill("story")
    await page.get_by_label("Kind", exact=True).select_option("probe")
    await page.get_by_label("Cron").last.fill("30 2 * * 1-5")
    await page.get_by_label("Time zone").fill("Europe/Berlin")
    await expect(page.locator("#foreseen li")).to_have_count(5)
    await expect(page.locator("#foreseen")).to_contain_text(re.compile("02:30 CES?T"))
    await page.get_by_label("Payload").fill('{"turns": "many"}')
    await page.get_by_role("button", name="Create schedule").click()
    await expect(page.get_by_label("Payload")).to_have_attribute("aria-invalid", "true")
    await expect(page.locator("#problem-payload")).to_contain_text("payload.turns")
    await provoked(page, "status of 422")
    await axe(page)
    await shot(page, "schedule-refused")
    await page.get_by_label("Payload").fill('{"turns": 2, "turn_delay_seconds": 3600}')
    await page.get_by_label("Tags").fill(f"nightly, {ODD[:60]}")
    await page.get_by_role("button", name="Create schedule").click()
    await said(page, "story was created.")

    await page.get_by_role("button", name="Run now").click()
    await expect(page.get_by_role("dialog")).to_contain_text("One job of kind probe is created at once")
    await agree(page, "Run now")
    await said(page, "story created this job.")
    id = page.url.rpartition("/")[2]
    wait_for("it ran once", lambda: jobs.get(id)["turn_count"] or None)
    jobs.run_now(id)
    jobs.wait(id, 60)
    await page.goto("/schedules")
    row = page.locator("#schedule-story")
    await expect(row).to_contain_text("completed")
    await row.get_by_role("button", name="Disable").click()
    await agree(page, "Disable")
    await row.get_by_role("button", name="Enable").click()
    await expect(row.get_by_role("button", name="Disable")).to_be_visible()
    await row.get_by_role("link", name="story").click()
    await page.get_by_role("link", name="Edit").click()
    await expect(page.get_by_label("Days", exact=True)).to_have_value("* 1-5")
    await page.get_by_label("At", exact=True).fill("03:45")
    await expect(page.locator("#foreseen")).to_contain_text(re.compile("03:45 CES?T"))
    await expect(page.get_by_label("Cron").last).to_have_value("30 2 * * 1-5")
    await page.get_by_label("By cron").check()
    await page.get_by_label("Cron").last.fill("15 4 * * *")
    await expect(page.locator("#foreseen")).to_contain_text(re.compile("04:15 CES?T"))
    await page.get_by_role("button", name="Save changes").click()
    await said(page, "story was changed: cron.")
    await expect(page.locator(".sentence")).to_contain_text("15 4 * * *")
    assert jobs.request("GET", "/api/schedules/story")["data"]["cron"] == "15 4 * * *"
    await expect(page.locator(f"#run-{id}")).to_contain_text("completed")
    await axe(page)
    await page.get_by_role("button", name="Delete").click()
    await agree(page, "Delete")
    await said(page, "story was deleted")


@asynccontextmanager
async def own_paddock(postgres: Server, name: str) -> AsyncIterator[tuple[Core, str, str]]:
    """A control plane in this process, whose worker the test plays: groups are made by code, not by the API."""
    dsn = await postgres.create_database(name, "paddock_template")
    async with open_core(dsn, Kinds([*TEST_KINDS, GROUPED, BULK]), metrics=Metrics(CollectorRegistry())) as core:
        _, secret = await Tokens(core.db).create(NewToken(name="olga", role="ops", owner="olga"), actor="test")
        app = create_app(core, Config(), host="127.0.0.1", routes=pages.routes())
        async with serving(app) as (_, address):
            yield core, address, secret
    await postgres.drop_database(name)


async def test_a_group_is_seen_to_end_and_its_failed_jobs_are_retried(person: Person, postgres: Server) -> None:
    async with own_paddock(postgres, "group_story") as (core, address, secret):
        async with core.db.transaction() as tx:
            group = await grouping.create(tx, "grouped", "ada", {"table": ODD})
            await core.enqueue(tx, [NewJob("grouped", {}, owner="ada", group_id=group) for _ in range(4)])
            await grouping.seal(core, tx, group)
        link = core.link()
        session = (await link.register(wire.Register(worker_id="one", version="1", kinds=["grouped"], slots=4))).session
        attempts = await PlayedWorker(link, session).claim("grouped")

        page = await person("nobody", base=address)
        await page.goto(f"groups/{group}")
        await page.fill("input[name=token]", secret)
        await page.click("main button")
        await expect(page).to_have_url(f"{address}/groups/{group}")
        await settled(page)
        await page.evaluate("window.stayed = true")
        summary = page.locator(".sentence")
        await expect(summary).to_contain_text("0 of 4 jobs ended.")
        await expect(page.locator(".shares")).to_contain_text("running 4")
        await attempts[0].finish("permanent", error=wire.Error(code="locked", message=f"The table is locked. {ODD}"))
        await attempts[1].finish()
        await expect(summary).to_contain_text("2 of 4 jobs ended, 1 failed.")
        await expect(page.locator("tbody tr").first).to_have_id(f"job-{attempts[0].id}")
        await axe(page)
        await attempts[2].finish()
        await attempts[3].finish()
        await expect(summary).to_contain_text("4 of 4 jobs ended, 1 failed.")
        await expect(summary.locator(".status")).to_have_text("ended")
        assert await page.evaluate("window.stayed")
        await shot(page, "group-ended")

        await page.get_by_role("button", name="Retry the failed").click()
        await expect(page.get_by_role("dialog")).to_contain_text("Retry 1 failed job of this group?")
        await agree(page, "Retry the failed", "unlocked now")
        await said(page, "This job retries the failed ones")
        bulk = await core.job(JobId(UUID(page.url.rpartition("/")[2])))
        assert bulk is not None
        assert bulk.payload["filter"]["group"] == str(group)
        await page.goto("groups")
        await expect(page.locator(f"#group-{group}")).to_contain_text("4 / 4")
        await axe(page)
        await page.goto("about:blank")  # it would ask a server that is gone


@LOOKS
async def test_the_pages_of_operating_read_well(person: Person, jobs: Client, theme: str, width: int) -> None:
    name = f"shown-{theme}-{width}"
    made = {"name": name, "kind": "probe", "cron": "30 2 * * *", "payload": {"fail": ODD}, "tags": [ODD[:60]]}
    jobs.request("POST", "/api/schedules", body=made)
    jobs.wait(jobs.request("POST", f"/api/schedules/{name}/run")["data"]["id"], 60)
    page = await person("ops", theme=theme, width=width)
    for shown, path in {
        "workers": "/workers",
        "kinds": "/kinds",
        "kind": "/kinds/probe",
        "schedules": "/schedules",
        "schedule": f"/schedules/{name}",
        "schedule-form": f"/schedules/{name}/edit",
        "groups": "/groups",
    }.items():
        await page.goto(path)
        await expect(page.locator("h1")).to_have_count(1)
        await fits(page)
        await axe(page)
        await shot(page, f"operating-{shown}")
    jobs.request("DELETE", f"/api/schedules/{name}")


async def test_without_scripts_they_can_be_read_and_used_below_a_sub_path(person: Person, proxy: Proxy) -> None:
    page = await person("ops", scripts=False, base=proxy.address)
    for path in ("workers", "kinds", "kinds/probe", "schedules", "groups"):
        await page.goto(path)
        for address in await page.locator("main a, main form").evaluate_all(
            "all => all.map(one => one.getAttribute('href') ?? one.getAttribute('action'))"
        ):
            assert address.startswith(f"{proxy.prefix}/"), (path, address)
    await page.goto("kinds")
    await page.locator("#kind-probe_blocking").get_by_role("button", name="Pause").click()
    await said(page, "probe_blocking is paused")
    await page.locator("#kind-probe_blocking").get_by_role("button", name="Resume").click()
    await said(page, "probe_blocking is claimed again.")


@LOOKS
async def test_the_form_of_a_kind_reads_well_and_submits(person: Person, theme: str, width: int) -> None:
    page = await person("ops", theme=theme, width=width)
    await page.goto("/kinds/probe")
    await page.get_by_role("link", name="New job").click()
    await fits(page)
    await axe(page)
    await page.get_by_label("turns").fill("many")
    await page.get_by_role("button", name="Submit job").click()
    await expect(page.locator("#problem-payload-turns")).to_be_visible()
    await provoked(page, "status of 422")
    await axe(page)
    await shot(page, "kind-form")
    await page.get_by_label("turns").fill("1")
    await page.get_by_role("button", name="Submit job").click()
    await page.wait_for_url("**/jobs/0*")
