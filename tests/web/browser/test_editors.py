"""The editor of SQL: names of a real engine are completed, hostile ones among them, and the form stays a form."""

from collections.abc import Iterator

import pytest
from playwright.async_api import expect

from tests.exports import place as places
from tests.exports.place import Place
from tests.processes.running import Up
from tests.web.browser.conftest import LOOKS, Person, axe, editor, fits, shot
from tests.web.chromium import chromium

HOSTILE = "it's <img src=x onerror=alert(1)> \u202ever.csv"


@pytest.fixture(scope="module")
def place() -> Iterator[Place]:
    chromium()
    with places.place() as found:
        (found.folder / "files" / HOSTILE).write_text("id,the name\n7,odd\n")
        yield found


@pytest.fixture(scope="module")
def up(place: Place) -> Up:
    return place.up


@pytest.fixture(scope="module")
def secrets(place: Place) -> dict[str, str]:
    body = {"name": "ada-analyst", "role": "analyst", "owner": "ada", "engines": ["*"]}
    return {"analyst": str(place.client.request("POST", "/api/tokens", body=body)["data"]["token"])}


async def test_tables_and_columns_are_completed_and_what_is_written_is_exported(person: Person) -> None:
    page = await person("analyst")
    await page.goto("/exports/new?engine=local")
    await page.get_by_text("SQL", exact=True).click()
    await page.keyboard.type("SELECT * FROM it")
    await page.get_by_role("option", name="it's <img src=x onerror=alert(1)> \ufffdver.csv").click()
    await page.keyboard.type(" AS f WHERE f.the")
    await page.get_by_role("option", name="the name VARCHAR").click()
    await page.keyboard.type(" = 'odd'")
    written = f"""SELECT * FROM '{HOSTILE.replace("'", "''")}' AS f WHERE f."the name" = 'odd'"""
    await expect(page.locator("#field-sql")).to_have_value(written)
    await page.keyboard.press("Control+Enter")
    await expect(page.get_by_role("region", name="First rows")).to_contain_text("odd")
    await page.get_by_role("button", name="Export", exact=True).click()
    await expect(page.get_by_role("heading", level=1)).to_have_text("Export")
    await expect(page.locator("main")).to_contain_text("""f."the name" = 'odd'""")


async def test_completion_asks_the_engine_that_is_chosen(person: Person) -> None:
    page = await person("analyst")
    await page.goto("/exports/new?engine=local")
    await page.get_by_label("Engine", exact=True).select_option("app")
    sql = editor(page, "SQL")
    await sql.click()
    await page.keyboard.type("SELECT * FROM ")
    listed = page.get_by_role("listbox", name="Completions")
    await expect(listed).to_contain_text("table")
    await expect(listed).not_to_contain_text("csv")
    await page.keyboard.press("Escape")
    await expect(listed).to_have_count(0)


async def test_the_keyboard_comes_in_and_out_and_an_empty_query_is_not_sent(person: Person) -> None:
    page = await person("analyst")
    await page.goto("/exports/new?engine=local")
    sql = editor(page, "SQL")
    await expect(sql).to_be_focused()
    await page.get_by_role("button", name="Export", exact=True).click()
    await expect(page.locator(".field", has=sql).get_by_role("alert")).to_be_visible()
    await expect(sql).to_be_focused()
    await page.keyboard.type("SELECT 1")
    await expect(page.get_by_role("alert")).to_have_count(0)
    await page.keyboard.press("Tab")
    await expect(page.get_by_label("Parameters")).to_be_focused()
    await page.keyboard.press("Shift+Tab")
    await expect(sql).to_be_focused()


@LOOKS
async def test_an_editor_reads_well_with_its_list_open(person: Person, theme: str, width: int) -> None:
    page = await person("analyst", theme=theme, width=width)
    await page.goto("/exports/new?engine=local")
    sql = editor(page, "SQL")
    await sql.fill("-- a first look\nSELECT id, 1.5 AS \"rate\", 'text'\nFROM 'people.csv' p\nWHERE p.")
    await sql.press("Control+End")
    await page.keyboard.type("s")
    await expect(page.get_by_role("option", name="score")).to_be_visible()
    await fits(page)
    await axe(page)
    await shot(page, "editor")
