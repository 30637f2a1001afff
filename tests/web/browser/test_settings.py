"""Stories of the settings and their neighbours: a token's life, drain mode, a webhook tried out, forms of another site."""

import json
import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest
from aiohttp import web
from playwright.async_api import Dialog, expect

from paddock.api.access import table_of
from paddock.client import Client
from paddock.web import pages
from paddock.web.navigation import entries_for
from tests.processes.running import Up, clean_environment, data_folder, running_up
from tests.web.browser.conftest import LOOKS, Person, axe, fits, provoked, settled, shot
from tests.webhook.receiver import answering, receiving

ODD = "<img src=x onerror=alert(1)><script>alert(1)</script> \u202eרע 🐎 " + "long" * 30


async def test_a_token_is_made_seen_once_used_elsewhere_and_revoked(person: Person) -> None:
    admin, other = await person("admin"), await person("nobody")
    await admin.context.grant_permissions(["clipboard-read", "clipboard-write"])
    await admin.goto("/settings/tokens")
    await admin.get_by_role("link", name="New token").click()
    await admin.get_by_label("Name").fill("second screen")
    await expect(admin.get_by_text("Kinds it may claim")).to_be_hidden()
    await admin.get_by_label("worker").check()
    await expect(admin.get_by_text("Kinds it may claim")).to_be_visible()
    await admin.get_by_label("ops").check()
    await axe(admin)
    await shot(admin, "token-new")
    await admin.get_by_role("button", name="Create token").click()

    secret = await admin.locator("#once-secret").inner_text()
    await admin.get_by_role("button", name="Copy", exact=True).click()
    assert await admin.evaluate("navigator.clipboard.readText()") == secret
    await expect(admin.locator("main")).to_contain_text("export PADDOCK_SERVER=http://127.0.0.1")
    await axe(admin)
    await admin.reload()
    await expect(admin.get_by_role("row").filter(has_text="second screen")).to_have_count(1)
    assert secret not in await admin.content()
    await admin.go_back()
    assert secret not in await admin.content()

    await other.goto("/workers")
    await other.get_by_label("Token").fill(secret)
    await other.keyboard.press("Enter")
    await expect(other).to_have_url(re.compile("/workers$"))
    await settled(other)

    await admin.goto("/settings/tokens")
    row = admin.get_by_role("row").filter(has_text="second screen")
    await row.get_by_role("button", name="Revoke").click()
    dialog = admin.get_by_role("dialog")
    await expect(dialog).to_contain_text("whoever signed in with it is signed out")
    await dialog.get_by_role("textbox").fill("lost")
    await dialog.get_by_role("button", name="Revoke").click()
    await expect(row).to_contain_text("revoked")

    await other.goto("/jobs?status=failed")
    await expect(other).to_have_url(re.compile(r"/sign-in\?next=%2Fjobs%3Fstatus%3Dfailed$"))
    await other.get_by_label("Token").fill(secret)
    await other.keyboard.press("Enter")
    await expect(other.get_by_role("alert")).to_contain_text("This token was revoked")
    await axe(other)
    await shot(other, "sign-in-refused")
    await provoked(other, "status of 401")


async def test_drain_mode_is_asked_about_shown_on_every_page_and_ended(person: Person, jobs: Client) -> None:
    olga, ada = await person("ops"), await person("analyst")
    await olga.goto("/settings")
    try:
        await olga.get_by_role("button", name="Refuse new work").click()
        dialog = olga.get_by_role("dialog")
        await expect(dialog).to_contain_text("refused with 503 on all replicas")
        await expect(dialog).to_contain_text("Queued and running work goes on")
        await axe(olga)
        await dialog.get_by_role("textbox").fill(ODD)
        await dialog.get_by_role("button", name="Refuse new work").click()
        banner = olga.locator(".banner")
        await expect(banner).to_contain_text("Drain mode is on")  # the form's own way back is over
        for entry in entries_for("ops", table_of(pages.routes())):
            await olga.goto(entry.path)
            await expect(banner).to_contain_text("Drain mode is on: <img src=x onerror=alert(1)><script>")
            await expect(banner).to_contain_text(re.compile(r"By olga \(olga-ops\), since (now|\d+ (s|min) ago)"))
        await fits(olga)
        await ada.goto("/jobs")
        await expect(ada.locator(".banner")).to_contain_text("Drain mode is on")
        await expect(ada.locator(".banner").get_by_role("link")).to_have_count(0)

        await olga.goto("/settings")
        await axe(olga)
        await shot(olga, "drained")
        await olga.get_by_role("button", name="Accept new work").click()
        await dialog.get_by_role("button", name="Accept new work").click()
        await expect(olga.locator(".said")).to_contain_text("New work is accepted again.")
        await expect(banner).to_have_count(0)
    finally:
        jobs.request("POST", "/api/ops/drain", body={"enabled": False})


async def test_a_setting_is_changed_by_its_form_and_put_back(person: Person, jobs: Client) -> None:
    olga, ada = await person("ops"), await person("analyst")
    try:
        await olga.goto("/settings")
        field = olga.get_by_label("Announcement")
        await field.fill("The warehouse is away on Sunday.")
        await olga.locator("#form-announcement + .actions").get_by_role("button", name="Save").click()
        await expect(field).to_have_value("The warehouse is away on Sunday.")
        await expect(olga.locator("main")).to_contain_text("by olga")
        await ada.goto("/")
        await expect(ada.locator(".banner")).to_contain_text("The warehouse is away on Sunday.")

        await olga.get_by_role("button", name="Reset to default").click()
        await olga.get_by_role("dialog").get_by_role("button", name="Reset to default").click()
        await expect(field).to_have_value("")
        await ada.reload()
        await expect(ada.locator(".banner")).to_have_count(0)
    finally:
        jobs.request("PUT", "/api/ops/config", body={"settings": {"announcement": None}})


@pytest.fixture(scope="module")
def open_to_private() -> Iterator[Up]:
    """A server that may send to this machine."""
    environment = clean_environment(PADDOCK_WEBHOOK_ALLOW_PRIVATE="true")
    with data_folder() as data, running_up(data, "--port", "0", environment=environment) as running:
        yield running


async def test_a_webhook_is_made_and_tried_out_live(person: Person, open_to_private: Up) -> None:
    base = open_to_private.address["url"]
    page = await person("nobody", base=base)
    await page.goto("webhooks/new")
    await page.get_by_label("Token").fill(open_to_private.token)
    await page.keyboard.press("Enter")
    async with receiving(answering(204)) as receiver:
        await page.get_by_label("Address").fill(receiver.url())
        await page.get_by_label("Everything").check()
        await page.get_by_role("button", name="Create webhook").click()
        secret = await page.locator("#once-secret").inner_text()
        await shot(page, "webhook-made")
        await page.reload()
        assert secret not in await page.content()

        await page.get_by_role("button", name="Send a test event").click()
        await expect(page.locator(".trial")).to_contain_text("The receiver answered 204")
        await expect(page.locator("#told tbody tr")).to_contain_text(["webhook.test"])
        [(headers, body)] = receiver.requests
        assert json.loads(body)["type"] == "webhook.test"
        assert headers["Paddock-Signature"].startswith("v1=")
        await axe(page)
        await shot(page, "webhook-tried")

    # Nobody listens there any more.
    await page.get_by_role("button", name="Send a test event").click()
    await expect(page.locator(".trial")).to_contain_text("could not be reached")
    await expect(page.locator(".trial")).to_contain_text("Next try in")
    await page.goto("webhooks")
    await expect(page.get_by_role("row").filter(has_text="/hook")).to_contain_text("retrying")
    await axe(page)

    await page.locator("#rows").get_by_role("link").click()
    await page.get_by_role("button", name="Delete").click()
    await expect(page.get_by_role("dialog")).to_contain_text("gets no more events")
    await page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    await expect(page.locator(".empty")).to_contain_text("No webhooks.")


async def test_failed_deliveries_are_sent_again_once_the_receiver_answers(person: Person, open_to_private: Up) -> None:
    statuses = [403, 204]

    async def answer(request: web.Request) -> web.StreamResponse:
        return web.Response(status=statuses.pop(0))

    async with receiving(answer) as receiver:
        with open_to_private.client() as client:
            body = {"url": receiver.url(), "types": ["job.completed"]}
            webhook = client.request("POST", "/api/webhooks", body=body)["data"]
            client.wait(client.submit("probe", {})["id"], 60)
            page = await person("nobody", base=open_to_private.address["url"])
            await page.goto("events?type=job.completed")
            await page.get_by_label("Token").fill(open_to_private.token)
            await page.keyboard.press("Enter")
            await expect(page.locator("#rows")).to_contain_text("1 failed")
            await axe(page)
            await page.locator("#rows").get_by_role("link", name="job.completed").first.click()
            await page.get_by_role("button", name="Redeliver the failed one").click()
            dialog = page.get_by_role("dialog")
            await expect(dialog).to_contain_text("Redeliver to 1 webhook?")
            await dialog.get_by_role("button", name="Redeliver").click()
            await expect(page.locator("#deliveries")).to_contain_text("answered 204")
            await expect(page.get_by_role("button", name="Redeliver the failed one")).to_have_count(0)
            await axe(page)
            await shot(page, "event")
            client.request("DELETE", f"/api/webhooks/{webhook['id']}")


async def test_a_private_address_is_refused_with_what_to_do(person: Person) -> None:
    page = await person("analyst", width=400)
    await page.goto("/webhooks/new")
    await page.get_by_label("Address").fill("http://localhost:9000/hook")
    await page.get_by_role("button", name="Create webhook").click()
    await expect(page.get_by_label("Address")).to_have_attribute("aria-invalid", "true")
    await expect(page.get_by_label("Address")).to_have_value("http://localhost:9000/hook")
    await expect(page.locator("main")).to_contain_text("PADDOCK_WEBHOOK_ALLOW_PRIVATE=true")
    await fits(page)
    await axe(page)
    await shot(page, "webhook-refused")
    await provoked(page, "status of 422")


async def test_a_link_made_in_the_settings_signs_in_once(person: Person) -> None:
    ada, phone, thief = await person("analyst"), await person("nobody", width=400), await person("nobody")
    await ada.goto("/settings")
    await ada.get_by_role("button", name="Create a sign-in link").click()
    link = await ada.locator("#once-secret").inner_text()
    await axe(ada)
    await ada.reload()
    assert link not in await ada.content()

    await phone.goto(link.replace("/sign-in#", "/sign-in?next=/jobs%3Fstatus%3Dfailed#"))
    await expect(phone).to_have_url(re.compile(r"/jobs\?status=failed$"))
    await thief.goto(link)
    await expect(thief.get_by_role("alert")).to_contain_text("This link was used already")
    await expect(thief.locator("main")).to_contain_text("If that was not you")
    await provoked(thief, "status of 401")


async def test_forms_of_another_origin_and_with_a_wrong_token_are_refused(person: Person, up: Up, jobs: Client) -> None:
    address = up.address["url"]
    page = await person("admin")

    async def lure(request: web.Request) -> web.StreamResponse:
        host = request.query["host"]
        target = address.replace(urlsplit(address).hostname or "", host)
        text = f"<form method=post action='{target}/settings/drain'><input name=enabled value=on></form>"
        text += "<script>document.forms[0].submit()</script>"
        return web.Response(text=text, content_type="text/html")

    async with receiving(lure) as evil:
        # The same site on another port: the cookie comes along, the Origin tells.
        await page.goto(evil.url(path="/?host=127.0.0.1"))
        await expect(page.get_by_role("heading", name="Another site sent this request.")).to_be_visible()
        # Another site: not even the cookie comes.
        await page.goto(evil.url(host="localhost", path="/?host=127.0.0.1"))
        await expect(page).to_have_url(re.compile("/sign-in"))

    for spoil in ("field => field.remove()", "field => { field.value = 'm:' + 'A'.repeat(64) }"):
        await page.goto("/settings")
        form = page.locator("form[action$='/settings/drain']")
        await form.locator("[name=csrf]").evaluate(spoil)
        await form.evaluate("form => HTMLFormElement.prototype.submit.call(form)")
        await expect(page.get_by_role("heading", name="The request lacks this session's CSRF token.")).to_be_visible()
    assert jobs.request("GET", "/api/ops/state")["data"]["drain"]["enabled"] is False
    await provoked(page, "status of 403", times=3)


async def test_markup_in_names_addresses_and_reasons_stays_text(person: Person, jobs: Client) -> None:
    made = jobs.request("POST", "/api/tokens", body={"name": ODD[:200], "role": "analyst", "owner": ODD[:200]})["data"]
    address = "https://example.com/<script>alert(1)</script>/" + "long" * 100
    hook = jobs.request("POST", "/api/webhooks", body={"url": address, "types": ["job.failed"]})["data"]
    jobs.request("PUT", "/api/ops/config", body={"settings": {"announcement": ODD}, "reason": ODD})
    dialogs: list[Dialog] = []
    try:
        for width in (1280, 400):
            page = await person("admin", width=width)
            page.on("dialog", lambda dialog: dialogs.append(dialog))
            for path in ("/settings/tokens", "/settings", "/webhooks", f"/webhooks/{hook['id']}", "/audit", "/sign-in"):
                await page.goto(path)
                await expect(page.locator("main img, main script")).to_have_count(0)
                await fits(page)
                await axe(page)
            await page.goto("/settings/tokens")
            await page.get_by_role("row").filter(has_text="onerror").get_by_role("button", name="Revoke").click()
            await expect(page.get_by_role("dialog")).to_contain_text("Revoke <img src=x onerror=alert(1)>")
            await shot(page, "odd-names")
            assert dialogs == []
    finally:
        jobs.request("PUT", "/api/ops/config", body={"settings": {"announcement": None}})
        jobs.request("DELETE", f"/api/tokens/{made['id']}")
        jobs.request("DELETE", f"/api/webhooks/{hook['id']}")


async def test_the_audit_log_is_narrowed_by_what_one_clicks_on(person: Person, jobs: Client) -> None:
    jobs.request("POST", "/api/kinds/probe/pause", body={"reason": "the warehouse is down"})
    jobs.request("POST", "/api/kinds/probe/resume", body={})
    page = await person("ops")
    await page.goto("/audit")
    await page.get_by_role("link", name="paused").first.click()
    await expect(page).to_have_url(re.compile(r"/audit\?action=pause$"))
    await page.get_by_label("Target").fill("kind:probe")
    await page.keyboard.press("Enter")
    rows = page.locator("#rows tbody tr")
    await expect(rows.first).to_contain_text("the warehouse is down")
    await expect(rows.filter(has_not_text="paused")).to_have_count(0)
    await shot(page, "audit-narrowed")
    await page.get_by_role("link", name="Remove Action").click()
    await expect(page).to_have_url(re.compile(r"/audit\?subject=kind%3Aprobe$"))
    await page.goto("/audit?action=token_created")
    await rows.first.locator("summary").first.click()
    await expect(rows.first.locator(".json")).to_contain_text('"role"')
    await axe(page)


@LOOKS
async def test_every_page_of_them_reads_well(person: Person, jobs: Client, theme: str, width: int) -> None:
    hook = jobs.request("POST", "/api/webhooks", body={"url": "https://hooks.example/a", "types": ["*"]})["data"]
    page = await person("admin", theme=theme, width=width)
    jobs.wait(jobs.submit("probe", {})["id"], 60)
    event = jobs.request("GET", "/api/events?type=job.completed")["data"][0]
    names: dict[str, Any] = {
        "event": f"/events/{event['id']}",
        "webhook": f"/webhooks/{hook['id']}",
        "webhook-new": "/webhooks/new",
        "tokens": "/settings/tokens",
        "token-new": "/settings/tokens/new",
        "config": "/settings/config",
        "doctor": "/settings/doctor",
        "sign-in": "/sign-in?next=/jobs",
        "events-none": "/events?type=nonesuch",
        "audit-chips": "/audit?actor=nobody&since=24h",
    }
    for name, path in names.items():
        await page.goto(path)
        await expect(page.locator("h1")).to_have_count(1)
        await fits(page)
        await axe(page)
        await shot(page, name)
    await page.goto("/settings/tokens/new")
    await page.get_by_label("Name").fill(f"shown-{theme}-{width}")
    await page.get_by_role("button", name="Create token").click()
    await expect(page.locator("#once-secret")).to_be_visible()
    await fits(page)
    await axe(page)
    await shot(page, "token-made")
    jobs.request("DELETE", f"/api/webhooks/{hook['id']}")


async def test_reading_works_without_scripts_and_a_link_can_be_pasted(person: Person, jobs: Client) -> None:
    page = await person("nobody", scripts=False)
    link = jobs.request("POST", "/api/tokens/self/sign-in-link")["data"]["url"]
    await page.goto("/sign-in?next=/settings/doctor")
    await page.get_by_text("Where do I find a token?").click()
    await expect(page.get_by_text("paste the whole link above")).to_be_visible()
    await page.get_by_label("Token").fill(link)
    await page.keyboard.press("Enter")
    await expect(page.locator(".findings")).to_contain_text("PostgreSQL")
    for path in ("/audit", "/webhooks", "/events", "/settings/tokens", "/settings/config"):
        await page.goto(path)
        await fits(page)
