"""The list of jobs in a browser: rows that stay in place, selecting, acting on many, views, and how it reads."""

import json
import re
from pathlib import Path
from uuid import uuid4

import pytest
from playwright.async_api import Route, expect

from paddock.client import Client
from tests.playing import until
from tests.web.browser.conftest import LOOKS, Person, axe, fits, provoked, settled, shot
from tests.web.browser.proxy import Proxy

WAITS = {"turns": 2, "turn_delay_seconds": 3600}
HOSTILE = "<script>alert(1)</script> \u202eשלום\u202c 🐎 " + "long" * 90


@pytest.fixture
def tag() -> str:
    """The server is shared: each test looks at its own jobs."""
    return f"t-{uuid4().hex[:8]}"


async def waiting(jobs: Client, tag: str, count: int) -> list[str]:
    """Jobs that had their first turn and wait an hour for the next, newest first."""
    ids = [str(jobs.submit("probe", WAITS, tags=[tag])["id"]) for _ in range(count)]
    await until(lambda: all((job := jobs.get(id))["turn_count"] == 1 and job["status"] == "pending" for id in ids))
    return ids[::-1]


async def test_a_search_that_found_nothing_yet_goes_on_by_itself(person: Person) -> None:
    further = (
        '<div class="empty"><p id="searching" hidden></p><a id="continue" href="/jobs?tag=none&status=failed">On</a>'
    )

    async def found_nothing_yet(route: Route) -> None:
        answer = await route.fetch()
        body = (await answer.text()).replace('<div class="empty">', further, 1)
        await route.fulfill(response=answer, body=body)

    page = await person("ops")
    await page.route(re.compile(r"/jobs\?tag=none$"), found_nothing_yet)
    await page.goto("/jobs?tag=none", wait_until="commit")
    await page.wait_for_url("**/jobs?tag=none&status=failed")


async def test_rows_change_in_place_and_new_ones_wait_behind_a_button(person: Person, jobs: Client, tag: str) -> None:
    ids = await waiting(jobs, tag, 3)
    page = await person("ops")
    await page.goto(f"/jobs?tag={tag}")
    await settled(page)
    for id in ids:
        await expect(page.locator(f"#job-{id} .is-pending")).to_be_visible()
    await page.evaluate(
        """() => {
            window.shifted = 0;
            new PerformanceObserver((list) => list.getEntries().forEach((entry) => (window.shifted += entry.value)))
                .observe({ type: "layout-shift", buffered: false });
        }"""
    )
    top = await page.locator(f"#job-{ids[1]}").bounding_box()

    jobs.submit("probe", WAITS, tags=["another"])
    new = [jobs.submit("probe", WAITS, tags=[tag])["id"] for _ in range(2)]
    jobs.run_now(ids[1])
    await expect(page.locator(f"#job-{ids[1]} .is-completed")).to_be_visible()
    button = page.get_by_role("button", name="2 new: show them")
    await expect(button).to_be_visible()
    await expect(page.locator("#announcer")).to_have_text("2 new in this list")
    assert await page.locator("#rows tbody tr").count() == 3
    assert await page.locator(f"#job-{ids[1]}").bounding_box() == top
    # A digit that grows by a pixel in a count is some millionths; a row that moved would be a hundredth or more.
    assert await page.evaluate("window.shifted") < 0.0005
    await axe(page)
    await shot(page, "jobs-new")

    await button.focus()
    await page.keyboard.press("Enter")
    await expect(page.locator("#rows tbody tr").first).to_have_id(f"job-{new[1]}")
    assert await page.locator("#rows tbody tr").count() == 5
    await expect(button).to_be_hidden()
    await expect(page.locator("#rows .table")).to_be_focused()


async def test_a_change_told_before_the_script_of_the_list_has_loaded_is_not_missed(
    person: Person, jobs: Client, tag: str
) -> None:
    [id] = await waiting(jobs, tag, 1)
    page = await person("ops")

    async def late_stream(route: Route) -> None:
        jobs.run_now(id)
        jobs.wait(id, 60)
        await route.continue_()

    async def later_script(route: Route) -> None:
        await settled(page)
        await route.continue_()

    await page.route("**/api/stream**", late_stream, times=1)
    await page.route("**/jobs.js", later_script)
    await page.goto(f"/jobs?tag={tag}", wait_until="commit")
    await expect(page.locator(f"#job-{id} .is-completed")).to_be_visible()


async def test_an_empty_list_fills_by_itself(person: Person, jobs: Client, tag: str) -> None:
    page = await person("ops")
    await page.goto(f"/jobs?tag={tag}")
    await settled(page)
    await expect(page.get_by_text("No job matches.")).to_be_visible()
    id = jobs.submit("probe", WAITS, tags=[tag])["id"]
    await expect(page.locator(f"#job-{id}")).to_be_visible()


async def test_rows_are_selected_by_range_and_cancelled_together_and_all_that_match_by_a_job(
    person: Person, jobs: Client, tag: str
) -> None:
    ids = await waiting(jobs, tag, 6)
    page = await person("ops")
    await page.goto(f"/jobs?tag={tag}")
    await settled(page)
    boxes = page.locator("#rows input[name=id]")
    await boxes.nth(0).check()
    await boxes.nth(2).click(modifiers=["Shift"])
    await expect(page.locator("#selected-count")).to_have_text("3 selected")
    await boxes.nth(1).uncheck()
    await axe(page)
    await shot(page, "jobs-selected")
    await page.get_by_role("button", name="Cancel 2", exact=True).click()
    dialog = page.get_by_role("dialog")
    await expect(dialog).to_contain_text("Cancel 2 jobs?")
    await expect(dialog).to_contain_text("2 probe. They stop at once and do not run again.")
    await shot(page, "jobs-confirm")
    await dialog.get_by_role("textbox").fill("wrong table")
    await dialog.get_by_role("button", name="Cancel 2").click()
    await expect(page.get_by_role("status").filter(has_text="2 jobs were cancelled.")).to_be_visible()
    await expect(page).to_have_url(re.compile(rf"/jobs\?tag={tag}$"))
    assert [jobs.get(id)["status"] for id in ids] == ["cancelled", "pending", "cancelled", *["pending"] * 3]
    [entry] = jobs.request("GET", "/api/audit", params={"action": "bulk_cancel", "limit": "1"})["data"]
    assert (entry["reason"], set(entry["details"]["jobs"])) == ("wrong table", {ids[0], ids[2]})

    await page.get_by_role("button", name=f"Retry probe {ids[0][:8]}…{ids[0][-4:]}").click()
    await expect(dialog).to_contain_text("Run this probe job again?")
    await dialog.get_by_role("button", name="Retry").click()
    await expect(page.get_by_role("status").filter(has_text="1 job runs again as a new job.")).to_be_visible()

    await page.locator("summary", has_text="All that match").click()
    await axe(page)
    await page.get_by_role("link", name="Cancel all that match…").click()
    await expect(page.get_by_role("heading", level=1)).to_have_text("Cancel 5 jobs?")
    await axe(page)
    await fits(page)
    await shot(page, "jobs-matching")
    await page.get_by_role("textbox", name="Reason").fill("all of them are wrong")
    await page.get_by_role("button", name="Cancel 5 jobs").click()
    await expect(page.locator("#bulk")).to_contain_text("Cancelled 5 jobs of 5 that matched")
    await expect(page.locator("#rows .is-pending")).to_have_count(0)
    await axe(page)
    await shot(page, "jobs-bulk")
    await page.get_by_role("link", name="Dismiss this message").click()
    await expect(page).to_have_url(re.compile(rf"/jobs\?tag={tag}$"))


async def test_after_an_action_on_all_that_match_the_list_shows_only_what_still_matches(
    person: Person, jobs: Client, tag: str
) -> None:
    ids = await waiting(jobs, tag, 2)
    page = await person("ops")
    await page.goto(f"/jobs/cancel?tag={tag}&status=pending")
    jobs.request("POST", "/api/kinds/bulk/pause", body={})
    try:
        await page.get_by_role("button", name="Cancel 2 jobs").click()
        await expect(page.locator("#bulk")).to_contain_text("it waits for a worker")
        for id in ids:
            await expect(page.locator(f"#job-{id}")).to_be_visible()
    finally:
        jobs.request("POST", "/api/kinds/bulk/resume", body={})
    await expect(page.locator("#bulk")).to_contain_text("Cancelled 2 jobs of 2 that matched")
    await expect(page.locator("#rows tr[data-job]")).to_have_count(0)
    await expect(page.locator("#rows")).to_contain_text("No job matches.")


async def test_several_are_run_now_or_retried_and_all_that_match_are_retried_by_a_job(
    person: Person, jobs: Client, tag: str, tmp_path: Path
) -> None:
    failed = [str(jobs.submit("probe", {"fail": "No."}, tags=[tag])["id"]) for _ in range(3)]
    for id in failed:
        jobs.wait(id, 60)
    later = await waiting(jobs, tag, 2)
    page = await person("ops")
    await page.goto(f"/jobs?tag={tag}")
    await settled(page)
    dialog = page.get_by_role("dialog")
    await page.get_by_role("checkbox", name="Select all on this page").check()
    await page.get_by_role("button", name="Run 2 now").click()
    await expect(dialog).to_contain_text("2 probe. They no longer wait for their time")
    await expect(dialog).to_contain_text("The other 3 selected are left as they are.")
    await dialog.get_by_role("button", name="Run 2 now").click()
    await expect(page.get_by_role("status").filter(has_text="2 jobs are due now.")).to_be_visible()
    for id in later:
        await expect(page.locator(f"#job-{id} .is-completed")).to_be_visible()

    for id in failed[:2]:
        await page.locator(f"#job-{id} input[name=id]").check()
    await page.get_by_role("button", name="Retry 2").click()
    await dialog.get_by_role("button", name="Retry 2").click()
    await expect(page.get_by_role("status").filter(has_text="2 jobs run again as new jobs.")).to_be_visible()
    new = [str(jobs.get(id)["retried_by"]) for id in failed[:2]]
    for id in new:
        jobs.wait(id, 60)

    await page.goto(f"/jobs?tag={tag}&status=failed")
    await page.locator("summary", has_text="All that match").click()
    await page.get_by_role("link", name="Retry all that match…").click()
    await expect(page.get_by_role("heading", level=1)).to_have_text("Retry 5 jobs?")
    await page.get_by_role("button", name="Retry 5 jobs").click()
    await expect(page.locator("#bulk")).to_contain_text("Retried 3 jobs of 5 that matched")
    assert all(jobs.get(id)["retried_by"] for id in (failed[2], *new))

    await page.locator("summary", has_text="Download").click()
    async with page.expect_download() as downloading:
        await page.get_by_role("link", name="JSON").click()
    await (await downloading.value).save_as(tmp_path / "jobs.json")
    assert failed[2] in [job["id"] for job in json.loads((tmp_path / "jobs.json").read_text())["data"]]


async def test_filters_columns_and_views_are_chosen_and_kept(person: Person, jobs: Client, tag: str) -> None:
    id = jobs.wait(jobs.submit("probe", {"fail": "The table is locked."}, tags=[tag])["id"], 60)["id"]
    page = await person("ops")
    await page.goto("/jobs")
    await page.keyboard.press("/")
    await expect(page.get_by_role("searchbox")).to_be_focused()
    await page.locator("summary", has_text="Add filter").click()
    await axe(page)
    await shot(page, "jobs-filter")
    await page.get_by_label("Tag", exact=True).fill(tag)
    await page.get_by_role("checkbox", name="failed").check()
    await page.get_by_role("button", name="Show", exact=True).click()
    await expect(page).to_have_url(re.compile(rf"/jobs\?status=failed&tag={tag}$"))
    await expect(page.locator("#rows tbody tr")).to_have_count(1)
    await page.locator(f"#job-{id}").get_by_role("link", name="probe_failed").click()
    await expect(page.locator(".chip")).to_have_count(3)

    await page.locator("summary", has_text="Columns").click()
    await page.get_by_role("checkbox", name="Next try").check()
    await page.get_by_role("checkbox", name="Progress").uncheck()
    await axe(page)
    await shot(page, "jobs-columns")
    await page.get_by_role("button", name="Show", exact=True).click()
    await expect(page.get_by_role("columnheader", name="Next try")).to_be_visible()
    await expect(page.get_by_role("columnheader", name="Progress")).to_have_count(0)
    await expect(page.locator(".chip")).to_have_count(3)

    await page.get_by_role("button", name="Save view").click()
    await page.get_by_role("dialog").get_by_role("textbox").fill("<b>Locked</b> tables")
    await axe(page)
    await page.keyboard.press("Enter")
    await page.get_by_role("link", name="All", exact=True).click()
    await expect(page.locator(".chip")).to_have_count(0)
    saved = page.get_by_role("link", name="<b>Locked</b> tables")
    await saved.click()
    await expect(saved).to_have_attribute("aria-current", "page")
    await expect(page.locator(".chip")).to_have_count(3)
    await axe(page)
    await page.get_by_role("button", name="Delete view").click()
    await expect(saved).to_have_count(0)

    await page.get_by_role("link", name=re.compile("Remove the filter Tag")).click()
    await expect(page.locator(".chip")).to_have_count(2)


@LOOKS
async def test_the_list_reads_well_whatever_is_in_it(
    person: Person, jobs: Client, tag: str, theme: str, width: int
) -> None:
    jobs.submit("probe", {"sleep_seconds": 600, "progress": 600}, tags=[tag, "nightly"])
    jobs.submit("probe", {"fail_transiently": 9}, tags=[tag])
    failed = jobs.submit("probe", {"fail": HOSTILE}, tags=[tag, "<i>" + "x" * 60, "שלום"])["id"]
    jobs.submit("probe", {"result": {"rows": 3}}, tags=[tag])
    jobs.submit("probe_blocking", {"raise_unclassified": "no space left on device"}, tags=[tag])
    jobs.wait(failed, 60)
    page = await person("admin", theme=theme, width=width)
    await page.goto(f"/jobs?tag={tag}")
    await expect(page.locator(f"#job-{failed} .is-failed")).to_be_visible()
    await expect(page.locator("#rows tr:has(.is-claimed) progress")).to_be_visible()
    heights = await page.eval_on_selector_all("#rows tbody tr", "rows => rows.map((row) => row.offsetHeight)")
    if width == 1280:
        assert max(heights) == min(heights) < 45, "one line each"
    await fits(page)
    await axe(page)
    await shot(page, "jobs-list")
    message = page.locator(f"#job-{failed} .fault summary")
    await message.focus()
    await page.keyboard.press("Enter")
    await expect(page.locator(f"#job-{failed} .fault p")).to_be_visible()
    await fits(page)
    await shot(page, "jobs-unfolded")
    await page.goto("/jobs?since=yesterday&status=failed")
    await expect(page.get_by_role("alert")).to_contain_text("'yesterday' is not a time")
    await provoked(page, "status of 422")
    await fits(page)
    await axe(page)
    await shot(page, "jobs-wrong")
    for name, path in {
        "jobs-cancel": f"/jobs/cancel?tag={tag}",
        "jobs-retry": f"/jobs/retry?tag={tag}",
        "jobs-retry-every": "/jobs/retry",
        "jobs-retry-none": "/jobs/retry?tag=nonesuch",
    }.items():
        await page.goto(path)
        await fits(page)
        await axe(page)
        await shot(page, name)


async def test_the_list_works_without_scripts_and_below_a_sub_path(
    person: Person, jobs: Client, tag: str, proxy: Proxy, tmp_path: Path
) -> None:
    [id] = await waiting(jobs, tag, 1)
    plain = await person("ops", scripts=False)
    await plain.goto(f"/jobs?tag={tag}")
    await plain.locator("summary", has_text="Add filter").click()
    await plain.get_by_role("checkbox", name="pending").check()
    await plain.get_by_role("button", name="Show", exact=True).click()
    await expect(plain).to_have_url(re.compile(rf"/jobs\?status=pending&tag={tag}$"))
    await expect(plain.locator(f"#job-{id}")).to_be_visible()
    await expect(plain.locator("#rows input[name=id]")).to_be_hidden()
    await shot(plain, "jobs-no-scripts")

    page = await person("ops", base=proxy.address)
    await page.goto(f"jobs?tag={tag}")
    await settled(page)
    await page.locator("summary", has_text="Download").click()
    async with page.expect_download() as downloading:
        await page.get_by_role("link", name="CSV").click()
    file = await downloading.value
    assert re.fullmatch(r"paddock-jobs-[\dT-]+Z\.csv", file.suggested_filename)
    await file.save_as(tmp_path / "jobs.csv")
    assert id in (tmp_path / "jobs.csv").read_text()
    await page.get_by_role("button", name=re.compile("^Run now probe")).click()
    await page.get_by_role("dialog").get_by_role("button", name="Run now").click()
    await expect(page.get_by_role("status").filter(has_text="1 job is due now.")).to_be_visible()
    await expect(page).to_have_url(f"{proxy.address}/jobs?tag={tag}")
    await expect(page.locator(f"#job-{id} .is-completed")).to_be_visible()
