"""Exports, engines, mappings and snapshots in a browser, on a whole Paddock that has engines and data."""

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Page, expect

from paddock.client import Client
from tests.exports import place as places
from tests.exports.place import PEOPLE, ROWS, Place
from tests.processes.running import Up, wait_for
from tests.web.browser.conftest import LOOKS, Person, axe, editor, fits, provoked, settled, shot
from tests.web.browser.test_operating import agree, said
from tests.web.chromium import chromium

ODD = "<b>bold</b> \u202eרע 🐎 " + "long" * 30
# Never reached: its fields are looked at.
WAREHOUSE = (
    '[engines.warehouse]\ntype = "trino"\nurl = "http://localhost:1"\ncatalog = "hive"\nunload_catalog = "hive"\n'
)
GRANTS = {"engines": ["*"], "engine_roles": ["analytics", "finance"], "destinations": ["*"]}
OWNERS = {"analyst": "ada", "ops": "olga", "admin": "ruth"}
# Its score is not what the file has.
MAPPING = PEOPLE.replace("DOUBLE", "INT32")


@pytest.fixture(scope="module")
def place() -> Iterator[Place]:
    chromium()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(places, "CONFIGURATION", places.CONFIGURATION + WAREHOUSE)
        with places.place() as found:
            yield found


@pytest.fixture(scope="module")
def up(place: Place) -> Up:
    return place.up


@pytest.fixture(scope="module")
def secrets(place: Place) -> dict[str, str]:
    def made(role: str, owner: str) -> str:
        body = {"name": f"{owner}-{role}", "role": role, "owner": owner, **GRANTS}
        return str(place.client.request("POST", "/api/tokens", body=body)["data"]["token"])

    return {role: made(role, owner) for role, owner in OWNERS.items()}


@pytest.fixture(scope="module")
def ada(place: Place, secrets: dict[str, str]) -> Client:
    return place.opened.enter_context(Client(place.up.address["url"], secrets["analyst"]))


def id_of(page: Page) -> str:
    return page.url.rpartition("/")[2]


async def test_an_analyst_previews_a_query_exports_it_and_downloads_its_file(
    person: Person, place: Place, ada: Client, tmp_path: Path
) -> None:
    page = await person("analyst")
    await page.goto("/exports")
    await page.get_by_role("link", name="New export").first.click()
    await page.get_by_label("Engine", exact=True).select_option("local")
    await expect(page.get_by_label("Engine role")).to_be_hidden()
    sql = editor(page, "SQL")
    await sql.fill("SELECT id,\n  nmae\nFROM 'people.csv'")
    await page.get_by_role("button", name="Preview").click()
    fault = page.get_by_role("alert")
    await expect(fault).to_contain_text("Line 2")
    await expect(fault.locator(".excerpt .wrong")).to_contain_text("nmae")
    await expect(page.locator(".cm-line .cm-wrong")).to_have_text("nmae")
    await expect(page.locator(".cm-gutterElement.cm-wrong-line")).to_have_text("2")
    await axe(page)
    await shot(page, "export-refused")
    await fault.get_by_role("button", name="Go to line 2").click()
    await page.keyboard.type("  name, score, CASE WHEN id % 3 = 0 THEN NULL ELSE [id, id + 1] END AS pair")
    await expect(page.locator(".cm-wrong, .cm-wrong-line")).to_have_count(0)
    await sql.press("Control+Enter")
    rows = page.get_by_role("region", name="First rows")
    await expect(rows).to_contain_text("name 1")
    await expect(rows.get_by_role("columnheader", name="score")).to_contain_text("DOUBLE")
    await expect(page.get_by_role("heading", name="Preview")).to_contain_text("The first 20 rows, 4 columns.")
    await axe(page)
    await shot(page, "export-preview")

    # Paused, so that its end is seen by the page and not before it.
    place.client.request("POST", "/api/kinds/export/pause", body={"reason": "a test looks at it"})
    try:
        await page.get_by_label("Format").select_option("csv")
        await expect(page.get_by_label("Delimiter")).to_be_visible()
        await page.get_by_role("button", name="Export", exact=True).click()
        await expect(page.locator(".sentence")).to_contain_text("It waits for a free worker.")
        await settled(page)
        await shot(page, "export-waiting")
    finally:
        place.client.request("POST", "/api/kinds/export/resume")
    await expect(page.locator(".sentence")).to_contain_text(f"{ROWS:,} rows in 1 file")
    await axe(page)
    await shot(page, "export-completed")
    async with page.expect_download() as downloading:
        await page.get_by_role("link", name="Download part-00000.csv").click()
    download = await downloading.value
    await download.save_as(tmp_path / "got.csv")
    got = (tmp_path / "got.csv").read_bytes()
    [file] = ada.request("GET", f"/api/exports/{id_of(page)}/files")["data"]["files"]
    assert hashlib.sha256(got).hexdigest() == file["sha256"]
    assert got.count(b"\n") == ROWS + 1

    await page.get_by_role("button", name="Delete").click()
    await expect(page.get_by_role("dialog")).to_contain_text(f"Its {ROWS:,} rows in 1 file")
    export = id_of(page)
    await agree(page, "Delete")
    await said(page, "The export was deleted")
    await expect(page.locator(f"#export-{export}")).to_have_count(0)


async def test_an_analyst_schedules_an_export_from_its_page(person: Person, ada: Client) -> None:
    body = {"name": "Nightly people", "engine": "local", "sql": "SELECT id FROM 'people.csv'"}
    export = ada.request("POST", "/api/exports", body=body)["data"]["id"]
    page = await person("analyst")
    await page.goto(f"/exports/{export}")
    await page.get_by_role("link", name="Schedule…").click()
    await expect(page.get_by_label("Name")).to_have_value("nightly-people")
    await expect(page.locator("main")).to_contain_text("SELECT id FROM 'people.csv'")
    await page.get_by_label("Days", exact=True).select_option("Monday to Friday")
    await page.get_by_label("At", exact=True).fill("06:15")
    await expect(page.locator("#foreseen li").first).to_contain_text("06:15 UTC")
    await axe(page)
    await page.get_by_role("button", name="Create schedule").click()
    await said(page, "nightly-people was created.")
    assert ada.request("GET", "/api/schedules/nightly-people")["data"]["cron"] == "15 6 * * 1-5"
    await page.get_by_role("button", name="Delete").click()
    await agree(page, "Delete")
    await said(page, "nightly-people was deleted")


async def test_an_export_is_cancelled_and_tried_again_without_leaving_its_page(
    person: Person, place: Place, ada: Client
) -> None:
    page = await person("analyst")
    place.client.request("POST", "/api/kinds/export/pause", body={"reason": "a test looks at it"})
    try:
        made = ada.request("POST", "/api/exports", body={"engine": "local", "sql": "SELECT 42 AS answer"})["data"]
        await page.goto(f"/exports/{made['id']}")
        await page.get_by_role("button", name="Cancel export").click()
        await agree(page, "Cancel export", "not now")
        await said(page, "The export was cancelled")
        await page.get_by_role("button", name="Retry").click()
        await agree(page, "Retry")
        await said(page, "A new job retries it")
        await settled(page)
    finally:
        place.client.request("POST", "/api/kinds/export/resume")
    await expect(page.locator(".sentence")).to_contain_text("1 row in 1 file")
    assert place.ended(made["id"], ada)["status"] == "completed"


async def test_a_table_is_found_in_an_engine_and_exported(person: Person, place: Place) -> None:
    page = await person("analyst")
    await page.goto("/engines")
    await page.get_by_role("button", name="Check app").click()
    await expect(page.locator("#engine-app .engine-findings")).to_contain_text("SQLite")
    await axe(page)
    await shot(page, "engines")
    await page.get_by_role("link", name="Browse app").click()
    for _level in range(2):
        await page.locator(".names a").first.click()
    await page.get_by_role("link", name="person").click()
    await expect(page.get_by_role("row").filter(has_text="photo")).to_contain_text("BLOB")
    await axe(page)
    await shot(page, "engine-table")
    await page.get_by_role("link", name="Export this table").click()
    await page.get_by_role("button", name="Preview").click()
    await expect(page.get_by_role("region", name="First rows")).to_contain_text("p8")
    await page.get_by_role("button", name="Export", exact=True).click()
    await expect(page.locator(".sentence")).to_contain_text("9 rows in 1 file")


async def test_an_engineer_mends_a_mapping_and_watches_its_snapshot_become_ready(
    person: Person, place: Place, ada: Client
) -> None:
    page = await person("analyst")
    await page.goto("/mappings")
    await page.get_by_role("link", name="New mapping").first.click()
    text = editor(page, "Mapping, as YAML")
    await text.fill(MAPPING.replace("type: INT32", "type: INT33"))
    await page.get_by_role("button", name="Create mapping").click()
    await expect(page.locator(".problem-list")).to_contain_text("nodes.0.properties.1.type")
    await provoked(page, "status of 422")
    await axe(page)
    await shot(page, "mapping-problem")
    await text.fill(MAPPING)
    await page.get_by_role("button", name="Create mapping").click()
    await said(page, "people was created.")

    await page.get_by_label("Engine", exact=True).select_option("local")
    await page.get_by_role("button", name="Validate").click()
    column = page.locator("#nodes-Person .declared li").filter(has_text="score")
    await expect(column).to_contain_text("expected INT32, found DOUBLE")
    await expect(page.locator("#edges-KNOWS")).to_contain_text("fits")
    await axe(page)
    await shot(page, "mapping-mismatch")

    await page.get_by_role("link", name="Edit", exact=True).click()
    await page.get_by_label("Engine", exact=True).select_option("local")
    await page.get_by_role("button", name="Check").click()
    listed = page.locator("#checked .problem-list")
    await expect(listed).to_contain_text("Person.score expected INT32, found DOUBLE")
    await expect(page.locator(".cm-gutterElement.cm-wrong-line")).to_have_text("8")
    await axe(page)
    await shot(page, "mapping-checked")
    await listed.get_by_role("button", name="line 8").click()
    await page.keyboard.type("      - {name: score, type: DOUBLE}")
    await page.get_by_role("button", name="Check").click()
    await expect(page.locator("#checked")).to_contain_text("Every query gives what it declares")
    await page.get_by_label("What changed, and why").fill("A score has a fraction.")
    await page.get_by_role("button", name="Save version 2").click()
    await said(page, "This is version 2 of people.")
    await page.get_by_role("link", name="Difference made by version 2").click()
    await expect(page.get_by_role("region", name="node Person")).to_contain_text("score INT32 → DOUBLE")
    await axe(page)
    await shot(page, "mapping-diff")
    await page.get_by_role("link", name="people").click()

    await page.get_by_role("link", name="Create snapshot").click()
    await page.get_by_label("Engine", exact=True).select_option("local")
    await shot(page, "snapshot-new")
    place.client.request("POST", "/api/kinds/export/pause", body={"reason": "a test looks at it"})
    try:
        await page.get_by_role("button", name="Create snapshot").click()
        await expect(page.locator(".sentence")).to_contain_text("0 of 2 parts done.")
        await settled(page)
        await shot(page, "snapshot-waiting")
    finally:
        place.client.request("POST", "/api/kinds/export/resume")
    await expect(page.locator(".sentence")).to_contain_text(f"{ROWS:,} nodes and 100 edges")
    await expect(page.locator("#part-nodes-Person")).to_contain_text(f"{ROWS:,}")
    await axe(page)
    await shot(page, "snapshot-ready")
    manifest = ada.request("GET", f"/api/snapshots/{id_of(page)}/manifest")["data"]
    assert manifest["rows"] == ROWS + 100


@pytest.fixture(scope="module")
def things(place: Place, ada: Client) -> dict[str, str]:
    """One of everything, with odd texts and things that went wrong."""

    def export(**body: Any) -> str:
        return str(ada.request("POST", "/api/exports", body={"engine": "local", **body})["data"]["id"])

    good = export(sql="SELECT * FROM 'people.csv'", format="csv", options={"partition_by": ["name"]})
    failed = export(sql=f"SELECT '{ODD}' AS x FROM nonesuch", ttl=None)
    place.ended(good, ada)
    place.ended(failed, ada)
    definition: dict[str, Any] = {
        "nodes": [
            {
                "label": "Person",
                "sql": "SELECT id, name, score\nFROM 'people.csv'",
                "primary_key": {"name": "id", "type": "INT64"},
                "properties": [{"name": "name", "type": "STRING"}, {"name": "score", "type": "DOUBLE"}],
            },
            {
                "label": "Ghost",
                "sql": "SELECT id FROM 'nowhere.csv'",
                "primary_key": {"name": "id", "type": "INT64"},
            },
        ],
        "edges": [],
    }
    body = {"name": f"social {ODD}", "description": ODD, **definition}
    mapping = ada.request("POST", "/api/mappings", body=body)["data"]["id"]
    change = {"change_description": ODD, "nodes": definition["nodes"][:1]}
    ada.request("POST", f"/api/mappings/{mapping}/versions", body=change)
    ada.request("POST", f"/api/mappings/{mapping}/versions", body={**definition, "change_description": "back again"})
    asked = {"mapping_id": mapping, "engine": "local", "description": ODD}
    snapshot = ada.request("POST", "/api/snapshots", body=asked)["data"]["id"]
    path = f"/api/snapshots/{snapshot}"
    wait_for("it ends", lambda: ada.request("GET", path)["data"]["status"] in ("ready", "failed") or None)
    group = ada.request("GET", path)["data"]["group_id"]
    return {"export": good, "failed": failed, "mapping": str(mapping), "snapshot": str(snapshot), "group": group}


@LOOKS
async def test_every_page_reads_well_in_both_themes_and_widths(
    person: Person, things: dict[str, str], theme: str, width: int
) -> None:
    page = await person("ops", theme=theme, width=width)
    for name, path in {
        "exports": "/exports",
        "export": f"/exports/{things['export']}",
        "export-failed": f"/exports/{things['failed']}",
        "export-new": "/exports/new?engine=warehouse",
        "engine-list": "/engines",
        "engine": "/engines/local?catalog=local&schema=files",
        "engine-empty": "/engines/local?catalog=files&schema=files",
        "mappings": "/mappings",
        "mapping": f"/mappings/{things['mapping']}?validate=local",
        "mapping-old": f"/mappings/{things['mapping']}?version=1",
        "mapping-new": "/mappings/new",
        "mapping-edit": f"/mappings/{things['mapping']}/edit",
        "diff": f"/mappings/{things['mapping']}/diff?from=1&to=2",
        "snapshots": "/snapshots",
        "snapshot": f"/snapshots/{things['snapshot']}",
        "snapshot-form": f"/snapshots/new?mapping={things['mapping']}",
        "group": f"/groups/{things['group']}",
    }.items():
        await page.goto(path)
        await expect(page.get_by_role("heading", level=1)).to_be_visible()
        await fits(page)
        await axe(page)
        await shot(page, name)
    await page.goto("/exports/new?engine=warehouse")
    await expect(page.get_by_label("Engine role")).to_be_visible()


async def test_who_writes_is_chosen_where_the_engine_can(person: Person, ada: Client) -> None:
    page = await person("analyst")
    await page.goto("/exports/new?engine=local")
    writer = page.get_by_label("Written by")
    await expect(writer).to_be_hidden()
    await page.get_by_label("Engine", exact=True).select_option("warehouse")
    await expect(writer).to_be_visible()
    await page.get_by_label("Format").select_option("csv")
    await expect(writer).to_be_hidden()
    await page.get_by_label("Format").select_option("parquet")
    await writer.select_option("unload")
    await axe(page)
    await shot(page, "export-mode")
    await editor(page, "SQL").fill("SELECT 1")
    await page.get_by_role("button", name="Export", exact=True).click()
    await expect(page.get_by_role("heading", level=1)).to_have_text("Export")

    made = ada.request("GET", f"/api/exports/{id_of(page)}")["data"]
    assert made["request"]["mode"] == "unload"
    await page.goto(f"/exports/new?like={made['id']}")
    await expect(writer).to_have_value("unload")
    ada.request("POST", f"/api/jobs/{made['job_id']}/cancel")


async def test_without_scripts_a_query_is_previewed_and_exported(person: Person, place: Place) -> None:
    page = await person("analyst", scripts=False)
    await page.goto("/exports/new?engine=local")
    await page.get_by_label("SQL").fill("SELECT 42 AS answer")
    await page.get_by_role("button", name="Preview").click()
    await expect(page.get_by_role("region", name="First rows")).to_contain_text("42")
    await page.get_by_role("button", name="Export", exact=True).click()
    await expect(page.get_by_role("heading", level=1)).to_have_text("Export")
    place.ended(id_of(page))
    await page.reload()
    await expect(page.get_by_role("link", name="Download", exact=True)).to_be_visible()


async def test_the_palette_goes_to_the_pages(person: Person) -> None:
    page = await person("analyst")
    await page.goto("/")
    for name, path in (("Exports", "/exports"), ("Engines", "/engines"), ("Snapshots", "/snapshots")):
        await page.keyboard.press("Control+k")
        await page.keyboard.type(name)
        await page.keyboard.press("Enter")
        await page.wait_for_url(f"**{path}")
    await page.keyboard.type("gm")
    await page.wait_for_url("**/mappings")
