"""What every page has: the way in, the navigation, switches, the palette, live updates, and how it reads."""

import json
import re

import pytest
from playwright.async_api import Page, Route, expect

from paddock.api.access import table_of
from paddock.client import Client
from paddock.web import pages
from paddock.web.navigation import entries_for
from tests.playing import until
from tests.web.browser.conftest import LOOKS, Person, axe, fits, provoked, resting, settled, shot
from tests.web.browser.proxy import Proxy


async def test_a_token_signs_in_and_signing_out_ends_it(person: Person, secrets: dict[str, str]) -> None:
    page = await person("nobody")
    await page.goto("/jobs?status=failed")
    await axe(page)
    await shot(page, "sign-in")
    await page.fill("input[name=token]", "pdk_nonesuch")
    await page.click("main button")
    await expect(page.get_by_role("alert")).to_have_text("This token is not known here.")
    await provoked(page, "status of 401")

    await page.fill("input[name=token]", secrets["ops"])
    await page.click("main button")
    await expect(page).to_have_url(re.compile(r"/jobs\?status=failed$"))

    await page.get_by_role("button", name="Sign out").click()
    await expect(page).to_have_url(re.compile("/sign-in$"))
    await page.goto("/jobs")
    await expect(page).to_have_url(re.compile("/sign-in"))


async def test_a_link_signs_in_once(person: Person, jobs: Client) -> None:
    link = jobs.request("POST", "/api/tokens/self/sign-in-link")["data"]["url"]
    first, second = await person("nobody"), await person("nobody")

    await first.goto(link)
    await expect(first.get_by_role("heading", name="Overview")).to_be_visible()
    await second.goto(link)
    await expect(second.get_by_role("alert")).to_contain_text("used already")
    await provoked(second, "status of 401")


@pytest.mark.parametrize("role", ["analyst", "ops", "admin"])
async def test_every_page_of_the_navigation_loads_and_the_others_are_refused(person: Person, role: str) -> None:
    page = await person(role)
    await page.goto("/")
    shown = await page.locator("nav.pages a").all_inner_texts()
    entries = entries_for(role, table_of(pages.routes()))
    assert shown == [entry.name for entry in entries]
    for entry in entries:
        answer = await page.goto(entry.path)
        assert answer is not None
        assert answer.status == 200, entry.path
        await expect(page.locator("nav.pages a[aria-current=page]")).to_have_text(entry.name)
        await expect(page).to_have_title(re.compile(f"^{entry.name} · Paddock$"))
    if role == "analyst":
        answer = await page.goto("/audit")
        assert answer is not None
        assert answer.status == 403
        await provoked(page, "status of 403")


@LOOKS
async def test_every_page_reads_well(person: Person, jobs: Client, theme: str, width: int) -> None:
    done = jobs.wait(jobs.submit("probe", {"result": {"rows": 3}, "log_lines": 5}, tags=["nightly"])["id"], 60)
    failed = jobs.wait(jobs.submit("probe", {"fail": "The table 'flights' is locked. " + "long" * 60})["id"], 60)
    page = await person("admin", theme=theme, width=width)
    paths = {entry.name.lower(): entry.path for entry in entries_for("admin", table_of(pages.routes()))}
    for name, path in {**paths, "job-done": f"/jobs/{done['id']}", "job-failed": f"/jobs/{failed['id']}"}.items():
        await page.goto(path)
        await expect(page.locator("h1")).to_have_count(1)
        await fits(page)
        await axe(page)
        await shot(page, name)
    await page.goto("/jobs/nonesuch")
    await expect(page.locator("h1")).to_have_count(1)
    await fits(page)
    await axe(page)
    await shot(page, "not-found")
    await provoked(page, "status of 404")


async def test_a_job_is_seen_to_finish_without_a_reload(person: Person, jobs: Client) -> None:
    id = resting(jobs)
    page = await person("ops")
    await page.goto(f"/jobs/{id}")
    await settled(page)
    await page.evaluate("window.stayed = true")
    jobs.run_now(id)
    await expect(page.locator(".sentence .is-completed")).to_be_visible()
    assert await page.evaluate("window.stayed")


async def test_a_change_between_reading_the_page_and_opening_the_stream_is_not_missed(
    person: Person, jobs: Client
) -> None:
    id = resting(jobs)
    page = await person("ops")

    async def late(route: Route) -> None:
        jobs.run_now(id)
        jobs.wait(id, 60)
        await route.continue_()

    await page.route("**/api/stream**", late, times=1)
    await page.goto(f"/jobs/{id}")
    await expect(page.locator(".sentence .is-completed")).to_be_visible()


async def test_a_cut_stream_is_said_mended_and_misses_nothing(person: Person, jobs: Client, proxy: Proxy) -> None:
    id = resting(jobs)
    page = await person("ops", base=proxy.address)
    await page.goto(f"jobs/{id}")
    await settled(page)
    proxy.cut_off()
    await expect(page.locator("#live-state")).to_have_text("Reconnecting…")

    jobs.run_now(id)
    jobs.wait(id, 60)
    await expect(page.locator(".sentence .is-pending")).to_be_visible()
    proxy.cut = False

    await settled(page)
    await expect(page.locator(".sentence .is-completed")).to_be_visible()
    await provoked(page, "Failed to load resource")


async def test_behind_a_proxy_that_refuses_the_stream_it_polls_and_says_so(person: Person, jobs: Client) -> None:
    id = resting(jobs)
    page = await person("ops")

    async def refuse(route: Route) -> None:
        await route.fulfill(status=502, body="Bad Gateway")

    await page.route("**/api/stream**", refuse)
    await page.goto(f"/jobs/{id}")
    await expect(page.locator("#live-state")).to_have_text("Polling every 5 s")
    jobs.run_now(id)
    await expect(page.locator(".sentence .is-completed")).to_be_visible()

    await page.unroute("**/api/stream**")
    await page.wait_for_selector(".live[data-state=live]", timeout=60_000)
    await provoked(page, "status of 502")


async def test_behind_a_proxy_that_buffers_it_polls(person: Person, jobs: Client, proxy: Proxy) -> None:
    proxy.buffering = True
    id = resting(jobs)
    page = await person("ops", base=proxy.address)
    await page.goto(f"jobs/{id}")
    await expect(page.locator("#live-state")).to_have_text("Polling every 5 s")
    jobs.run_now(id)
    await expect(page.locator(".sentence .is-completed")).to_be_visible()


async def test_a_hidden_tab_holds_no_stream_and_catches_up_when_it_is_looked_at(
    person: Person, jobs: Client, proxy: Proxy
) -> None:
    id = resting(jobs)
    page = await person("ops", base=proxy.address)
    await page.goto(f"jobs/{id}")
    await settled(page)
    await until(lambda: proxy.streams == 1)

    await _look(page, away=True)
    await until(lambda: proxy.streams == 0)
    jobs.run_now(id)
    jobs.wait(id, 60)
    await _look(page, away=False)

    await expect(page.locator(".sentence .is-completed")).to_be_visible()
    await until(lambda: proxy.streams == 1)


async def test_on_a_slow_network_it_is_read_and_kept_true(person: Person, jobs: Client) -> None:
    id = resting(jobs)
    page = await person("ops")
    network = await page.context.new_cdp_session(page)
    await network.send("Network.enable")
    slow = {"offline": False, "latency": 400, "downloadThroughput": 50_000, "uploadThroughput": 20_000}
    await network.send("Network.emulateNetworkConditions", slow)
    await page.goto(f"/jobs/{id}", wait_until="commit")
    await expect(page.locator(".sentence .is-pending")).to_be_visible()
    await settled(page)
    await expect(page.locator("#live-state")).to_have_text("Live")
    jobs.run_now(id)
    await expect(page.locator(".sentence .is-completed")).to_be_visible()
    await expect(page.locator("#live-state")).to_have_text("Live")


async def test_what_one_tab_does_another_of_the_same_person_shows(person: Person, jobs: Client) -> None:
    id = resting(jobs)
    page = await person("ops")
    await page.goto(f"/jobs/{id}")
    await settled(page)
    other = await page.context.new_page()
    await other.goto("/jobs?kind=probe")
    await settled(other)

    await page.get_by_role("button", name="Run now").click()
    await page.get_by_role("dialog").get_by_role("button", name="Run now").click()
    await expect(other.locator(f"#job-{id} .is-completed")).to_be_visible()

    again = resting(jobs)
    await page.goto(f"/jobs/{again}")
    await settled(page)
    await other.get_by_role("button", name="Sign out").click()
    await expect(other).to_have_url(re.compile("/sign-in$"))
    jobs.run_now(again)
    await expect(page.locator("#live-state")).to_have_text("Signed out: reload")
    await provoked(page, "status of 401")


async def _look(page: Page, *, away: bool) -> None:
    await page.evaluate(
        "away => {Object.defineProperty(document, 'hidden', {value: away, configurable: true});"
        " document.dispatchEvent(new Event('visibilitychange'))}",
        away,
    )


async def test_what_is_read_stays_where_it_is_while_the_page_changes(person: Person, jobs: Client) -> None:
    """Focus, an unfolded document and a selection survive what arrives."""
    id = resting(jobs, {"result": {"a": {"b": 1}}})
    page = await person("ops")
    await page.goto(f"/jobs/{id}")
    await settled(page)
    folded = page.locator(".json details").last
    await folded.locator("summary").click()
    await page.get_by_role("button", name="Copy the id").focus()

    jobs.run_now(id)
    await expect(page.locator(".sentence .is-completed")).to_be_visible()
    payload = page.locator(".document", has=page.get_by_role("heading", name="Payload"))
    await expect(payload.locator("details").last).to_have_attribute("open", "")
    await expect(page.get_by_role("button", name="Copy the id")).to_be_focused()


async def test_live_can_be_paused_and_catches_up(person: Person, jobs: Client) -> None:
    id = resting(jobs)
    page = await person("ops")
    await page.goto(f"/jobs/{id}")
    await settled(page)
    await page.get_by_role("button", name="Pause live updates").click()
    await expect(page.locator("#live-state")).to_have_text("Paused")
    await page.keyboard.press("l")
    await settled(page)
    await page.keyboard.press("l")
    jobs.run_now(id)
    jobs.wait(id, 60)
    await expect(page.locator("#live-state")).to_have_text("Paused")
    await expect(page.locator(".sentence .is-pending")).to_be_visible()
    await page.get_by_role("button", name="Resume live updates").click()
    await expect(page.locator(".sentence .is-completed")).to_be_visible()


async def test_theme_and_time_zone_are_remembered(person: Person, jobs: Client) -> None:
    job = jobs.wait(jobs.submit("probe")["id"], 60)
    page = await person("ops", theme="light")
    await page.goto(f"/jobs/{job['id']}")
    made = page.locator("time[data-time=exact]").first
    await expect(made).to_contain_text("+01:00")
    await page.click("#time-switch")
    await expect(made).to_contain_text("UTC")
    light = await _paper(page)
    await page.click("#theme-switch")
    await page.click("#theme-switch")
    assert await _paper(page) != light

    await page.reload()
    await expect(made).to_contain_text("UTC")
    assert await _paper(page) != light
    ago = page.locator("time[data-time=ago]").first
    await page.keyboard.press("x")
    await expect(ago).to_contain_text("UTC")
    await page.keyboard.press("x")
    await expect(ago).to_contain_text("ago")


async def _paper(page: Page) -> str:
    return str(await page.evaluate("getComputedStyle(document.body).backgroundColor"))


async def test_the_palette_goes_to_jobs_kinds_pages_and_does_things(person: Person, jobs: Client) -> None:
    id = jobs.wait(jobs.submit("probe")["id"], 60)["id"]
    page = await person("ops")
    await page.goto("/")

    await page.keyboard.press("Control+k")
    await expect(page.get_by_role("combobox")).to_be_focused()
    await axe(page)
    await shot(page, "palette")
    await page.keyboard.type(id[:23])
    await expect(page.get_by_role("option").first).to_contain_text(id)
    await page.keyboard.press("Enter")
    await expect(page).to_have_url(re.compile(f"/jobs/{id}$"))
    await settled(page)

    await page.goto(f"/jobs/{resting(jobs)}")
    await page.keyboard.press("Control+k")
    await page.keyboard.type("run now")
    await expect(page.get_by_role("option").first).to_contain_text("this page")
    await page.keyboard.press("Enter")
    await page.get_by_role("dialog").get_by_role("button", name="Run now").click()
    await expect(page.locator(".sentence .is-completed")).to_be_visible()

    await page.keyboard.press("Control+k")
    await expect(page.get_by_role("combobox")).to_be_focused()
    await page.keyboard.type("jobs of probe")
    await expect(page.get_by_role("option", name="Jobs of probe").first).to_be_visible()
    await page.keyboard.press("Enter")
    await expect(page).to_have_url(re.compile(r"/jobs\?kind=probe"))
    await settled(page)

    await page.keyboard.type("gw")
    await expect(page).to_have_url(re.compile("/workers$"))
    await settled(page)

    await page.keyboard.press("Control+k")
    await expect(page.get_by_role("combobox")).to_be_focused()
    await page.keyboard.type("collect-left")
    await expect(page.get_by_role("option", name="Schedule collect-leftovers")).to_be_visible()
    await page.keyboard.press("Control+k")

    await page.keyboard.press("Control+k")
    await expect(page.get_by_role("combobox")).to_be_focused()
    await page.keyboard.type("theme dark")
    await page.keyboard.press("Enter")
    await expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    await expect(page.get_by_role("combobox")).to_be_hidden()

    await page.keyboard.press("?")
    await expect(page.get_by_role("heading", name="Shortcuts")).to_be_visible()
    await axe(page)
    await shot(page, "shortcuts")


async def test_a_chart_is_drawn_in_the_colours_of_the_theme_and_has_its_figures(person: Person) -> None:
    page = await person("ops")
    await page.goto("/")
    chart = page.locator("#chart-throughput")
    await expect(chart.locator("canvas")).to_be_visible()
    light = await chart.locator("canvas").evaluate("canvas => canvas.toDataURL()")
    await page.keyboard.press("Control+k")
    await page.keyboard.type("theme dark")
    await page.keyboard.press("Enter")
    await page.wait_for_function(
        "(light) => document.querySelector('#chart-throughput canvas').toDataURL() !== light", arg=light
    )
    await chart.locator("summary").click()
    await expect(chart.get_by_role("table")).to_be_visible()
    await axe(page)
    await shot(page, "charts")


async def test_json_is_folded_and_copied_as_it_is(person: Person, jobs: Client) -> None:
    payload = {"result": {"rows": [1, 2.5, None, {"deep": ["<script>", "é\u202eרע 🐎"]}], "empty": {}, "none": []}}
    id = jobs.wait(jobs.submit("probe", payload)["id"], 60)["id"]
    page = await person("ops")
    await page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    await page.goto(f"/jobs/{id}")
    await (
        page.locator(".document", has=page.get_by_role("heading", name="Result"))
        .get_by_role("button", name="Copy")
        .click()
    )
    await expect(page.locator("[data-copied=Copied]")).to_be_visible()
    copied = await page.evaluate("navigator.clipboard.readText()")
    assert json.loads(copied) == payload["result"]
    await shot(page, "json")


async def test_a_change_is_asked_for_by_its_effect_and_can_be_left(person: Person, jobs: Client) -> None:
    id = resting(jobs)
    page = await person("ops")
    await page.goto(f"/jobs/{id}")
    await page.get_by_role("button", name="Cancel job").click()
    dialog = page.get_by_role("dialog")
    await expect(dialog).to_contain_text("does not run")
    await axe(page)
    await shot(page, "confirm")
    await dialog.get_by_role("button", name="Keep running").click()
    assert jobs.get(id)["status"] == "pending"

    await page.get_by_role("button", name="Cancel job").click()
    await dialog.get_by_role("textbox").fill("wrong table")
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("status").filter(has_text="The job was cancelled.")).to_be_visible()
    await expect(page.locator(".sentence .is-cancelled")).to_be_visible()
    audited = jobs.request("GET", "/api/audit", params={"subject": f"job:{id}"})["data"]
    assert [entry["reason"] for entry in audited] == ["wrong table"]


async def test_reading_and_changing_work_without_scripts(person: Person, jobs: Client) -> None:
    id = resting(jobs)
    page = await person("ops", scripts=False)
    await page.goto(f"/jobs/{id}")
    await expect(page.get_by_role("button", name="Pause live updates")).to_have_count(0)
    await shot(page, "no-scripts")
    await page.get_by_role("button", name="Cancel job").click()
    await expect(page.locator(".sentence .is-cancelled")).to_be_visible()


async def test_drain_mode_is_said_on_every_page(person: Person, jobs: Client) -> None:
    page = await person("ops")
    await page.goto("/workers")
    await settled(page)
    jobs.request("POST", "/api/ops/drain", body={"enabled": True, "reason": "database upgrade"})
    try:
        for path in (None, "/jobs"):  # where it is learnt of live, and a page that says it at once
            if path is not None:
                await page.goto(path)
            await expect(page.locator(".banner")).to_contain_text("Drain mode is on: database upgrade")
        await axe(page)
        await shot(page, "drain")
    finally:
        jobs.request("POST", "/api/ops/drain", body={"enabled": False})


async def test_under_a_sub_path_links_forms_scripts_and_the_stream_work(
    person: Person, proxy: Proxy, jobs: Client, secrets: dict[str, str]
) -> None:
    id = resting(jobs)
    address = proxy.address
    page = await person("nobody", base=address)
    await page.goto("jobs")
    await expect(page).to_have_url(f"{address}/sign-in?next=%2Fjobs")
    await page.fill("input[name=token]", secrets["ops"])
    await page.click("main button")
    await expect(page).to_have_url(f"{address}/jobs")
    await page.click(f"a[href$='/jobs/{id}']")
    await expect(page).to_have_url(f"{address}/jobs/{id}")
    await settled(page)
    jobs.run_now(id)
    await expect(page.locator(".sentence .is-completed")).to_be_visible()
    await page.keyboard.type("gk")
    await expect(page).to_have_url(f"{address}/kinds")
    await page.get_by_role("button", name="Sign out").click()
    await expect(page).to_have_url(f"{address}/sign-in")


async def test_the_first_page_is_small(person: Person) -> None:
    page = await person("ops")
    sizes: list[int] = []

    client = await page.context.new_cdp_session(page)
    await client.send("Network.enable")
    client.on("Network.loadingFinished", lambda event: sizes.append(int(event["encodedDataLength"])))
    await page.goto("/")
    await settled(page)
    assert sum(sizes) < 150_000
