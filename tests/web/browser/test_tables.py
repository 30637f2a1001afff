"""Tables in a browser, on a whole Paddock with a lake of its own: found, looked into, planned and maintained."""

import contextlib
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from playwright.async_api import expect

from paddock.client import Client, PaddockError
from tests.maintenance import lake
from tests.processes.running import Up, clean_environment, data_folder, running_up, wait_for
from tests.web.browser.conftest import LOOKS, Person, axe, fits, provoked, settled, shot
from tests.web.chromium import chromium

OWNERS = {"analyst": "ada", "ops": "olga", "admin": "ruth"}
HOSTILE = "<img src=x onerror=alert(1)> ' \u202eרע 🐎"


@pytest.fixture(scope="session")
def up() -> Iterator[Up]:
    chromium()
    with data_folder() as data:
        folder = data.parent
        (folder / "paddock.toml").write_text(configuration(folder))
        settings = lake.settings_of(folder)
        lake.make_table(settings, 12, name="orders")
        lake.make_table(settings, 1, {"comment": HOSTILE, "paddock.min_input_files": "<b>many</b>"}, name="quiet")
        with running_up(data, "--port", "0", environment=clean_environment()) as running:
            running.child("worker")
            with running.client() as client:
                for name in ("orders", "quiet"):
                    wait_for(f"{name} was looked at", partial(is_seen, client, name), 120)
            yield running


def configuration(folder: Path) -> str:
    properties = f'{{ uri = "sqlite:///{folder}/catalog.db", warehouse = "file://{folder}/warehouse" }}'
    return f'[catalogs.lake]\ntype = "sql"\nowners = ["ada"]\nproperties = {properties}\n'


def is_seen(client: Client, name: str) -> bool:
    with contextlib.suppress(PaddockError):  # a busy machine: it is looked at all the same
        client.request("POST", f"/api/tables/lake/sales/{name}/look")
    return any(table["name"] == name for table in client.request("GET", "/api/tables")["data"])


@pytest.fixture(scope="session")
def secrets(up: Up) -> dict[str, str]:
    with up.client() as client:

        def made(role: str, owner: str) -> str:
            body = {"name": f"{owner}-{role}", "role": role, "owner": owner}
            return str(client.request("POST", "/api/tokens", body=body)["data"]["token"])

        return {role: made(role, owner) for role, owner in OWNERS.items()}


async def test_a_table_is_found_planned_and_maintained(person: Person) -> None:
    page = await person("analyst")
    await page.goto("/tables")
    await expect(page.locator(".sentence")).to_contain_text("2 shown")
    await page.get_by_role("link", name="sales.orders").click()
    await expect(page.get_by_role("table", name="What is wrong")).to_contain_text("could become few.")
    await page.get_by_role("button", name="Plan only").click()
    await settled(page)
    plan = page.get_by_role("table", name="What maintenance would do")
    await expect(plan).to_contain_text("12 files")
    await shot(page, "table-plan")
    await page.get_by_role("button", name="Maintain").click()
    await settled(page)
    history = page.get_by_role("table", name="What was done, newest first")
    await expect(history).to_contain_text("12 files became 1")
    await expect(page.locator("#state .sentence")).to_contain_text("Nothing is wrong with it.", timeout=60_000)
    await axe(page)
    await shot(page, "table-maintained")


async def test_what_cannot_be_asked_for_says_why(person: Person) -> None:
    page = await person("analyst")
    await page.goto("/tables/lake/sales/quiet")
    for tick in await page.locator("input[name=action]").all():
        await tick.uncheck()
    await page.get_by_role("button", name="Maintain").click()
    await expect(page.get_by_role("heading", name="Name at least one")).to_be_visible()
    await provoked(page, "status of 422")
    await page.goto("/tables/lake/sales/nowhere")
    await expect(page.get_by_text("There is no such table").first).to_be_visible()
    await provoked(page, "status of 404")


@LOOKS
async def test_list_and_table_read_well(person: Person, theme: str, width: int) -> None:
    page = await person("ops", theme=theme, width=width)
    for path, name in (("/tables", "tables"), ("/tables/lake/sales/quiet", "table-quiet")):
        await page.goto(path)
        await settled(page)
        await fits(page)
        await axe(page)
        await shot(page, name)
    # A value of the table's own is text, whatever it says.
    await expect(page.get_by_role("table", name="What is wrong")).to_contain_text("<b>many</b>")
