"""Instances in a browser, on a whole Paddock with a graph whose texts are hostile: it is made, watched, queried, walked."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from playwright.async_api import Page, expect

from paddock.client import Client
from tests.processes.running import Up, clean_environment, data_folder, running_up, wait_for
from tests.web.browser.conftest import LOOKS, Person, axe, editor, fits, provoked, settled, shot
from tests.web.browser.test_operating import agree, said
from tests.web.chromium import chromium

OWNERS = {"analyst": "ada", "ops": "olga", "admin": "ruth"}
HOSTILE = "<img src=x onerror=alert(1)> <script>alert(2)</script> ' \" \u202eרע 🐎"
PEOPLE = 40
MAPPING = """\
name: people
description: Who knows whom, and where they live.
nodes:
  - label: Person
    primary_key: {name: id, type: INT64}
    properties:
      - {name: name, type: STRING}
    sql: SELECT id, name FROM 'people.csv'
  - label: Town
    primary_key: {name: code, type: STRING}
    properties: []
    sql: SELECT DISTINCT town FROM 'people.csv'
edges:
  - {type: KNOWS, from_node: Person, to_node: Person, from_key: a, to_key: b, sql: "SELECT id, (id * 7 + 1) % 40 FROM 'people.csv'"}
  - {type: LIKES, from_node: Person, to_node: Person, from_key: a, to_key: b, sql: "SELECT id, (id * 3 + 2) % 40 FROM 'people.csv'"}
  - {type: LIVES_IN, from_node: Person, to_node: Town, from_key: a, to_key: b, sql: "SELECT id, town FROM 'people.csv'"}
"""
# Goes on until it is interrupted: every walk of twelve steps.
ENDLESS = "MATCH (a:Person)-[:KNOWS|LIKES*1..30]-(b:Person) RETURN count(*)"


@pytest.fixture(scope="module")
def up() -> Iterator[Up]:
    chromium()
    with data_folder() as data:
        write_people(data.parent / "files")
        engines = json.dumps({"local": {"type": "duckdb", "roots": [str(data.parent / "files")]}})
        environment = clean_environment(PADDOCK_ENGINES=engines, PADDOCK_LEASE_SECONDS="60")
        with running_up(data, "--port", "0", environment=environment) as running:
            running.child("worker")
            yield running


def write_people(folder: Path) -> None:
    folder.mkdir()
    quoted = HOSTILE.replace('"', '""')
    lines = [f'{n},"{quoted if n == 0 else f"name {n}"}",town {n % 3}' for n in range(PEOPLE)]
    (folder / "people.csv").write_text("\n".join(["id,name,town", *lines]) + "\n")


@pytest.fixture(scope="module")
def admin(up: Up) -> Iterator[Client]:
    with up.client() as client:
        yield client


@pytest.fixture(scope="module")
def secrets(admin: Client) -> dict[str, str]:
    def made(role: str, owner: str) -> str:
        body = {"name": f"{owner}-{role}", "role": role, "owner": owner, "engines": ["*"]}
        return str(admin.request("POST", "/api/tokens", body=body)["data"]["token"])

    return {role: made(role, owner) for role, owner in OWNERS.items()}


@pytest.fixture(scope="module")
def ada(up: Up, secrets: dict[str, str]) -> Iterator[Client]:
    with Client(up.address["url"], secrets["analyst"]) as client:
        yield client


@pytest.fixture(scope="module")
def mapping(ada: Client) -> str:
    return str(ada.request("POST", "/api/mappings", body=yaml.safe_load(MAPPING))["data"]["id"])


@pytest.fixture(scope="module")
def instance(ada: Client, mapping: str) -> str:
    """One that runs, for all tests that only ask it; its name and description are hostile."""
    body = {"mapping_id": mapping, "engine": "local", "name": HOSTILE, "description": HOSTILE}
    id = str(ada.request("POST", "/api/instances", body=body)["data"]["id"])

    def look() -> dict[str, Any] | None:
        found: dict[str, Any] = ada.request("GET", f"/api/instances/{id}")["data"]
        return found if found["status"] in ("running", "failed") else None

    found = wait_for("the instance runs", look, 120)
    assert found["status"] == "running", found["error"]
    return id


async def ask(page: Page, query: str) -> None:
    await editor(page, "Cypher").fill(query)
    await page.get_by_role("button", name="Run", exact=True).click()


async def test_an_analyst_makes_an_instance_of_a_mapping_watches_it_and_deletes_it(
    person: Person, mapping: str
) -> None:
    page = await person("analyst")
    await page.goto(f"/mappings/{mapping}")
    picture = page.locator(".mapping-picture")
    await expect(picture.get_by_text("LIVES_IN")).to_be_visible()
    await expect(picture.locator("circle")).to_have_count(2)
    await shot(page, "mapping-picture")
    await page.get_by_role("link", name="Create instance").click()
    await page.get_by_label("Name").fill("watched")
    await page.get_by_label("Time to live").fill("2h")
    await page.get_by_role("button", name="Create instance").click()
    await settled(page)
    await shot(page, "instance-begins")
    await expect(page.locator(".sentence")).to_contain_text(
        f"{PEOPLE + 3} nodes and {3 * PEOPLE} edges, ready to be queried.", timeout=120_000
    )
    await axe(page)
    await page.get_by_role("button", name="Delete").click()
    await agree(page, "Delete", "seen enough")
    await said(page, "Its snapshot stays.")


async def test_numbers_stand_to_the_right_and_nodes_that_edges_pull_together_stay_apart(
    person: Person, instance: str
) -> None:
    page = await person("analyst")
    await page.goto(f"/instances/{instance}/query")
    await ask(page, "MATCH (p:Person {id: 7}) RETURN p.id, p.name, [p.id], p")
    await expect(page.locator("#as-table td.is-number")).to_have_text(["7"])
    await page.locator(".graph").evaluate("(place, graph) => (place.dataset.graph = JSON.stringify(graph))", two_hubs())
    await page.get_by_role("tab", name="Graph").click()
    await expect(page.locator("#answer .node")).to_have_count(18)
    distance = await page.evaluate("""() => {
        const places = [...document.querySelectorAll("#answer .node")].map((node) => node.transform.baseVal[0].matrix);
        const pairs = places.flatMap((a, n) => places.slice(n + 1).map((b) => Math.hypot(a.e - b.e, a.f - b.f)));
        return Math.min(...pairs);
    }""")
    assert distance > 40, "a circle is 22 wide, and its name is below it"


def two_hubs() -> dict[str, Any]:
    """Sixteen nodes, each of them joined to the same two."""
    nodes = [{"id": f"n{n}", "label": "Town", "title": f"town {n}", "key": n, "properties": {}} for n in range(18)]
    edges = [
        {"id": f"e{hub}-{n}", "type": "ROAD", "from": f"n{n}", "to": f"n{hub}", "properties": {}}
        for hub in (0, 1)
        for n in range(2, 18)
    ]
    return {"nodes": nodes, "edges": edges, "found": 18}


async def test_a_query_is_answered_as_table_graph_and_json_and_saved(person: Person, instance: str) -> None:
    page = await person("analyst")
    await page.goto(f"/instances/{instance}/query")
    await page.get_by_role("button", name="LIVES_IN").click()
    await expect(page.locator("#field-query")).to_have_value("MATCH (a)-[r:`LIVES_IN`]->(b) RETURN a, r, b LIMIT 50")
    await page.keyboard.press("Control+Enter")
    answer = page.locator("#answer")
    await expect(answer.locator(".sentence")).to_contain_text(f"{PEOPLE} rows")
    await expect(answer.locator("#as-table")).to_contain_text("<script>alert(2)</script>")
    await shot(page, "query-table")
    await page.get_by_role("tab", name="Graph").click()
    await expect(answer.locator(".graph-count")).to_have_text(f"{PEOPLE + 3} nodes")
    await expect(answer.locator(".node")).to_have_count(PEOPLE + 3)
    await expect(answer.locator(".legend")).to_contain_text("Town")
    await axe(page)
    await shot(page, "query-graph")
    await page.get_by_role("tab", name="Graph").press("ArrowRight")
    await expect(page.get_by_role("tab", name="JSON")).to_have_attribute("aria-selected", "true")
    await expect(answer.locator("#as-json")).to_contain_text("name 7")
    await shot(page, "query-json")
    await expect(page.locator("#history")).to_contain_text("LIVES_IN")

    await page.get_by_text("Save", exact=True).click()
    await page.get_by_label("Name", exact=True).fill(HOSTILE)
    await page.get_by_role("button", name="Save with the mapping").click()
    await said(page, "is saved with the mapping")
    await shot(page, "query-saved")
    await editor(page, "Cypher").fill("")
    await page.get_by_role("button", name=HOSTILE).click()
    await expect(page.locator("#field-query")).to_have_value("MATCH (a)-[r:`LIVES_IN`]->(b) RETURN a, r, b LIMIT 50")


async def test_a_node_is_looked_at_expanded_and_hidden_by_pointer_and_by_keyboard(
    person: Person, instance: str
) -> None:
    page = await person("analyst")
    await page.goto(f"/instances/{instance}/query")
    await ask(page, "MATCH (n:Person) WHERE n.id = 0 RETURN n")
    await page.get_by_role("tab", name="Graph").click()
    nodes = page.locator(".graph .node")
    await expect(nodes).to_have_count(1)
    await nodes.first.click()
    card = page.locator(".node-card")
    await expect(card.get_by_role("heading")).to_contain_text("<img src=x onerror=alert(1)>")
    await expect(card).to_contain_text("<script>alert(2)</script>")
    await shot(page, "graph-card")
    await card.get_by_role("button", name="Expand").click()
    await expect(page.locator("#field-query")).to_have_value(
        "MATCH (a:`Person`)-[r]-(b) WHERE a.`id` = 0 RETURN a, r, b LIMIT 100"
    )
    await expect(nodes.nth(3)).to_be_attached()
    count = await nodes.count()
    await axe(page)
    await shot(page, "graph-expanded")
    await page.locator(".graph .node[aria-label^='Town']").press("Enter")
    await expect(card.get_by_role("heading")).to_contain_text("Town: town 0")
    await card.get_by_role("button", name="Hide").click()
    await expect(nodes).to_have_count(count - 1)


async def test_an_edge_is_looked_at_and_the_view_is_zoomed_and_fitted(person: Person, instance: str) -> None:
    page = await person("analyst")
    await page.goto(f"/instances/{instance}/query")
    await ask(page, "MATCH (a)-[r:LIVES_IN]->(b) RETURN a, r, b LIMIT 2")
    await page.get_by_role("tab", name="Graph").click()
    edges = page.locator(".graph .edge")
    await expect(edges).to_have_count(2)
    assert "url(#" in (await edges.first.locator(".line").get_attribute("marker-end") or ""), "it has a direction"
    card = page.locator(".node-card")
    await edges.first.press("Enter")
    await expect(card.get_by_role("heading")).to_contain_text("LIVES_IN →")
    await card.get_by_role("button", name="Close").click()
    await expect(card).to_be_hidden()
    await edges.last.locator(".reach").click(force=True)
    await expect(card.get_by_role("heading")).to_contain_text("LIVES_IN →")
    await axe(page)

    async def box() -> list[float]:
        return [float(one) for one in (await page.locator(".graph > svg").get_attribute("viewBox") or "").split()]

    whole = await box()
    await page.get_by_role("button", name="Zoom in").click()
    assert (await box())[2] < whole[2]
    await page.get_by_role("button", name="Zoom out").click()
    await page.get_by_role("button", name="Zoom out").click()
    assert (await box())[2] > whole[2]
    await page.get_by_role("button", name="Fit").click()
    assert await box() == whole


async def test_explain_shows_the_plan_of_what_is_written(person: Person, instance: str) -> None:
    page = await person("analyst")
    await page.goto(f"/instances/{instance}/query")
    await editor(page, "Cypher").fill("MATCH (n:Town) RETURN n.code")
    await page.get_by_role("button", name="Explain").click()
    await expect(page.locator("#as-table")).to_contain_text("SCAN")


async def test_an_error_is_read_beside_the_query_and_the_next_one_is_answered(person: Person, instance: str) -> None:
    page = await person("analyst")
    await page.goto(f"/instances/{instance}/query")
    await ask(page, f"MATCH (n:`{HOSTILE.replace('`', '')}`) RETURN n")
    await expect(page.get_by_role("alert")).to_contain_text("<img src=x onerror=alert(1)>")
    await axe(page)
    await shot(page, "query-failed")
    await ask(page, "MATCH (n:Town)\nRETRUN n")
    await expect(page.locator(".cm-gutterElement.cm-wrong-line")).to_have_text("2")
    await expect(page.get_by_role("alert")).not_to_contain_text("offset")
    await shot(page, "query-refused")
    await ask(page, "RETURN 1 AS one")
    await expect(page.locator("#as-table")).to_contain_text("one")
    await expect(page.locator(".cm-wrong-line")).to_have_count(0)
    await expect(page.get_by_role("tab", name="Graph")).to_be_disabled()


async def test_labels_edge_types_and_properties_are_completed(person: Person, instance: str) -> None:
    page = await person("analyst")
    await page.goto(f"/instances/{instance}/query")
    await editor(page, "Cypher").click()
    for typed, option in (
        ("MATCH (p:Pe", "Person label"),
        (")-[:LI", "LIVES_IN edge type"),
        ("]->(t:", "Town label"),
        (") RETURN p.", "name Person"),
    ):
        await page.keyboard.type(typed)
        await page.get_by_role("option", name=option, exact=True).click()
    await expect(page.locator("#field-query")).to_have_value("MATCH (p:Person)-[:LIVES_IN]->(t:Town) RETURN p.name")
    await page.keyboard.press("Control+Enter")
    await expect(page.locator("#as-table")).to_contain_text("name 7")


async def test_a_query_that_takes_too_long_is_cancelled(person: Person, instance: str, ada: Client) -> None:
    def running() -> list[Any]:
        return list(ada.request("GET", f"/api/instances/{instance}/queries")["data"])

    page = await person("analyst")
    await page.goto(f"/instances/{instance}/query")
    await ask(page, ENDLESS)
    wait_for("it runs", running)
    await page.get_by_role("button", name="Cancel", exact=True).click()
    await expect(page.locator("#answer")).to_have_text("Cancelled.")
    for event in ("htmx:afterRequest", "htmx:sendAbort"):  # htmx tells of what was broken off, also when it was told to
        await provoked(page, event)
    wait_for("nothing runs any more", lambda: not running())
    await ask(page, "RETURN 2 AS two")
    await expect(page.locator("#as-table")).to_contain_text("two")


@LOOKS
async def test_every_page_reads_well_in_both_themes_and_widths(
    person: Person, instance: str, mapping: str, theme: str, width: int
) -> None:
    page = await person("ops", theme=theme, width=width)
    for name, path in {
        "instances": "/instances",
        "instance": f"/instances/{instance}",
        "instance-new": f"/instances/new?mapping={mapping}",
        "instance-query": f"/instances/{instance}/query",
        "mapping-drawn": f"/mappings/{mapping}",
    }.items():
        await page.goto(path)
        await expect(page.locator("main")).to_be_visible()
        await fits(page)
        await axe(page)
        await shot(page, name)
    await page.goto(f"/instances/{instance}/query")
    await ask(page, "MATCH (a)-[r]->(b) RETURN a, r, b LIMIT 60")
    await page.get_by_role("tab", name="Graph").click()
    await page.locator(".graph .node").first.press("Enter")
    await fits(page)
    await axe(page)
    await shot(page, "instance-graph")


async def test_without_scripts_a_query_is_answered_as_a_table(person: Person, instance: str) -> None:
    page = await person("analyst", scripts=False)
    await page.goto(f"/instances/{instance}/query")
    await page.get_by_label("Cypher").fill("MATCH (n:Town) RETURN n.code ORDER BY n.code")
    await page.get_by_role("button", name="Run", exact=True).click()
    await expect(page.locator("#as-table")).to_contain_text("town 2")
    await expect(page.locator("#field-query")).to_have_value("MATCH (n:Town) RETURN n.code ORDER BY n.code")
