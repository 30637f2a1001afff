"""The pictures of docs/tour.md: what somebody sees who follows it on the demo's data, in the guide's order."""

import json
import re
from pathlib import Path

from playwright.sync_api import Browser, Page, expect

from paddock.cli.sample import IMPORTANT
from paddock.client import Client
from paddock.maintenance.sample import ANOTHER, CATALOG
from tests.processes.running import Process, clean_environment, data_folder
from tests.web.browser.pictures.camera import PATIENCE_MS, Camera, says

# As the guide has them.
LATE = """\
SELECT origin, destination, count(*) AS flights, round(avg(delay)) AS delay
FROM 'flights.csv'
WHERE delay > 60
GROUP BY ALL
ORDER BY flights DESC"""
BUSY = """\
MATCH (a:Airport)-[r:ROUTE]->(b:Airport)
WHERE a.code <> b.code
RETURN a, r, b ORDER BY r.flights DESC LIMIT 40"""
BUSIEST = """\
MATCH (a:Airport)-[r:ROUTE]->(b:Airport)
WHERE a.code <> b.code
RETURN a.code, b.code, r.flights ORDER BY r.flights DESC LIMIT 5"""
NIGHTLY = {"engine": "duckdb", "sql": "SELECT * FROM 'flights.csv' WHERE delay > 60", "format": "parquet", "ttl": "P7D"}
MISTAKE = {"engine": "duckdb", "sql": "SELECT origin, dealy FROM 'flights.csv'", "name": "late flights"}
PLAYS_SECONDS = 300


def the_tour(browser: Browser, into: Path) -> None:
    expect.set_options(timeout=PATIENCE_MS)
    with data_folder() as data:
        demo = Process("demo", "--data", str(data), log=data.parent / "demo.log", environment=clean_environment())
        try:
            demo.until_said("Dashboard: ", PLAYS_SECONDS)
            url = json.loads((data / "server.json").read_text())["url"]
            token = (data / "admin.token").read_text().strip()
            with Client(url, token) as client:
                walk(client, Camera(browser, url, token, into))
        finally:
            demo.end()


def walk(client: Client, camera: Camera) -> None:
    mapping = _only(client, "/api/mappings")
    graph = _only(client, "/api/instances")
    an_export(camera)
    a_mapping(camera, mapping)
    a_graph(camera, graph)
    a_table(camera)
    a_schedule(camera)
    a_failure(client, camera)


def _only(client: Client, path: str) -> str:
    [found] = client.request("GET", path)["data"]
    return str(found["id"])


def an_export(camera: Camera) -> None:
    with camera.look("/exports/new", live=False) as page:
        page.locator(".cm-content").and_(page.get_by_label("SQL")).fill(LATE)
        page.get_by_role("button", name="Preview").click()
        rows = page.locator("#preview tbody tr")
        expect(rows.nth(4)).to_be_visible()
        camera.take(page, "tour-export", until=rows.nth(4))


def a_mapping(camera: Camera, id: str) -> None:
    with camera.look(f"/mappings/{id}") as page:
        expect(page.locator(".mapping-picture circle")).to_have_count(2)
        camera.take(page, "tour-mapping", until=page.locator(".mapping-picture"))


def a_graph(camera: Camera, id: str) -> None:
    with camera.look(f"/instances/{id}") as page:
        says(page, "ready to be queried")
        camera.take(page, "tour-instance", until=page.locator("#count-edges-SERVES"))
    with camera.look(f"/instances/{id}/query", live=False) as page:
        _ask(page, BUSIEST)
        camera.take(page, "tour-answer", only=[page.locator("#query-form"), page.locator("#answer")])
        _ask(page, BUSY)
        page.get_by_role("tab", name="Graph").click()
        expect(page.locator("#answer .node").nth(2)).to_be_visible()
        camera.take(page, "tour-graph", until=page.locator("#as-graph"))
        page.locator("select[name=name]").select_option("pagerank")
        page.get_by_label("Property for the result").fill("rank")
        page.get_by_label("Parameters, as JSON").fill('{"node_labels": ["Airport"], "edge_types": ["ROUTE"]}')
        page.get_by_role("button", name="Run algorithm").click()
    with camera.look("/jobs?kind=instance_algorithm") as page:
        expect(page.locator("#rows tbody tr").first).to_contain_text("completed")
    with camera.look(f"/instances/{id}/query", live=False) as page:
        _ask(page, IMPORTANT)
        camera.take(page, "tour-pagerank", until=page.locator("#as-table"))


def _ask(page: Page, query: str) -> None:
    page.locator(".cm-content").and_(page.get_by_label("Cypher")).fill(query)
    with page.expect_response(re.compile("/query$")):
        page.get_by_role("button", name="Run", exact=True).click()
    expect(page.locator("#answer .sentence")).to_contain_text(re.compile(r"\d rows?"))


def a_table(camera: Camera) -> None:
    path = f"/tables/{CATALOG}/{ANOTHER.replace('.', '/')}"
    with camera.look(path) as page:
        says(page, "small files")
        page.get_by_role("button", name="Plan only").click()
        says(page, "200 files")
        camera.take(page, "tour-table", until=page.locator("#plan"))


def a_schedule(camera: Camera) -> None:
    with camera.look("/schedules/-/new", live=False) as page:
        page.locator("#field-name").fill("nightly-late-flights")
        page.locator("#field-kind").select_option("scheduled_export")
        page.locator("#field-cron").fill("30 2 * * *")
        page.locator("#field-timezone").fill("Europe/Berlin")
        page.locator("#field-payload").fill(json.dumps(NIGHTLY, indent=2))
        expect(page.locator("#foreseen li")).to_have_count(5)
        page.get_by_role("heading", level=1).click()  # no field has the focus
        camera.take(page, "tour-schedule", until=page.get_by_role("button", name="Create schedule"))


def a_failure(client: Client, camera: Camera) -> None:
    export = client.request("POST", "/api/exports", body=MISTAKE)["data"]["id"]
    with camera.look(f"/exports/{export}") as page:
        says(page, "not found in FROM clause")
        camera.take(page, "tour-failure", until=page.locator(".code, pre").last)
