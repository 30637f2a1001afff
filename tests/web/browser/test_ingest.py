"""Ingest in a browser, on a whole Paddock with sources of its own: a run is started, watched, looked into and mended."""

import json
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from playwright.async_api import expect

from paddock.client import Client
from tests.ingest.conftest import NUMBERS
from tests.processes.running import Up, clean_environment, data_folder, running_up, wait_for
from tests.web.browser.conftest import LOOKS, Person, axe, fits, provoked, settled, shot
from tests.web.browser.test_operating import agree, said
from tests.web.chromium import chromium

OWNERS = {"analyst": "ada", "ops": "olga", "admin": "ruth"}
HOSTILE = "<img src=x onerror=alert(1)> <script>alert(2)</script> ' \" \u202eרע 🐎"
# Rejects multiples of seven, and fails at the second batch until the file `mended` is there.
PICKY = f"""
import json, os, sys
if os.environ["PADDOCK_BATCH"] == "1" and not os.path.exists(os.path.dirname(__file__) + "/mended"):
    print({HOSTILE!r}, file=sys.stderr)
    sys.exit(64)
out = {{name: open(os.environ["PADDOCK_OUT"] + f"/{{name}}.jsonl", "w") for name in ("features", "rejections")}}
for line in open(os.environ["PADDOCK_IN"] + "/records.jsonl"):
    record = json.loads(line)
    if record["data"]["n"] % 7 == 0:
        out["rejections"].write(json.dumps({{"id": record["id"], "reason": {HOSTILE!r}}}) + "\\n")
    else:
        out["features"].write(json.dumps({{"id": record["id"], "features": {{"odd": record["data"]["n"] % 2 == 1}}}}) + "\\n")
"""
# Holds its fetch for as long as the file `held` is there.
HELD = (
    """
import os, time
while os.path.exists(os.path.dirname(__file__) + "/held"):
    time.sleep(0.05)
"""
    + NUMBERS
)


@pytest.fixture(scope="module")
def up() -> Iterator[Up]:
    chromium()
    with data_folder() as data:
        folder = data.parent
        settings = clean_environment(PADDOCK_LEASE_SECONDS="60", **sources(folder))
        with running_up(data, "--port", "0", environment=settings) as running:
            running.child("worker")
            yield running


def sources(folder: Path) -> dict[str, str]:
    def command(name: str, text: str) -> list[str]:
        (folder / f"{name}.py").write_text(text)
        return [sys.executable, "-S", str(folder / f"{name}.py")]

    numbers = {"command": command("numbers", NUMBERS), "batch_size": 10, "hooks": ["picky"], "owners": ["ada"]}
    described = {**numbers, "description": HOSTILE}
    slow = {
        "command": command("slow", HELD),
        "config": {"total": 5},
        "owners": ["ada"],
        "description": "Takes its time.",
    }
    made = {
        "numbers": {**described, "config": {"total": 40}},
        "many": {**numbers, "config": {"total": 204}, "batch_size": 2, "hooks": []},
        "slow": slow,
        "never": {**slow, "owners": []},
    }
    return {
        "PADDOCK_INGEST_SOURCES": json.dumps(made),
        "PADDOCK_INGEST_HOOKS": json.dumps({"picky": {"command": command("picky", PICKY)}}),
    }


@pytest.fixture(scope="module")
def admin(up: Up) -> Iterator[Client]:
    with up.client() as client:
        yield client


@pytest.fixture(scope="module")
def secrets(admin: Client) -> dict[str, str]:
    def made(role: str, owner: str) -> str:
        body = {"name": f"{owner}-{role}", "role": role, "owner": owner}
        return str(admin.request("POST", "/api/tokens", body=body)["data"]["token"])

    return {role: made(role, owner) for role, owner in OWNERS.items()}


@pytest.fixture(scope="module")
def finished(admin: Client) -> dict[str, str]:
    """A run of each of these sources that has ended: one with many batches, one of which a batch failed."""
    made = {
        name: str(admin.request("POST", "/api/ingest/runs", body={"source": name})["data"]["id"])
        for name in ("numbers", "many")
    }
    for id in made.values():
        wait_for(f"run {id} ends", partial(has_ended, admin, id), 120)
    return made


def has_ended(client: Client, run: str) -> bool:
    return client.request("GET", f"/api/ingest/runs/{run}")["data"]["status"] in ("completed", "failed")


async def test_a_run_is_started_watched_and_cancelled(person: Person, up: Up) -> None:
    held = up.data.parent / "held"
    held.touch()
    page = await person("analyst")
    await page.goto("/ingest")
    await expect(page.locator("#source-never")).to_have_count(0)
    await page.get_by_role("link", name="slow").click()
    await page.get_by_label("Max records").fill("0")
    await page.get_by_role("button", name="Run now").click()
    await expect(page.get_by_role("alert")).to_contain_text("Not started.")
    await provoked(page, "status of 422")
    await axe(page)
    await shot(page, "ingest-refused")
    await page.get_by_label("Max records").fill("3")
    await page.get_by_role("button", name="Run now").click()
    await said(page, "A run of slow is started.")
    await settled(page)
    await expect(page.get_by_text("Nothing is fetched yet.")).to_be_visible()
    await shot(page, "ingest-run-begins")
    held.unlink()
    await expect(page.locator(".sentence")).to_contain_text("1 of 1 batch published, 3 records.")
    await expect(page.locator("#batch-0")).to_contain_text("published")

    held.touch()
    await page.goto("/ingest/slow")
    await page.get_by_role("button", name="Run now").click()
    await settled(page)
    await page.get_by_role("button", name="Cancel run").click()
    await expect(page.get_by_role("dialog")).to_contain_text("What was published stays.")
    await agree(page, "Cancel run", "not now")
    await said(page, "The run is being stopped.")
    await expect(page.locator(".sentence")).to_contain_text("cancelled")
    held.unlink()


async def test_what_was_rejected_is_seen_and_a_failed_batch_is_retried_alone(
    person: Person, up: Up, finished: dict[str, str]
) -> None:
    page = await person("analyst")
    await page.goto(f"/ingest/runs/{finished['numbers']}")
    await expect(page.locator("#batch-1")).to_contain_text("failed")
    await page.locator("#batch-0").get_by_role("link").click()
    await expect(page.locator("#batch")).to_contain_text("<script>alert(2)</script>")
    await axe(page)
    await shot(page, "ingest-rejected")
    await page.go_back()
    await page.get_by_label("State").select_option("failed")
    await page.get_by_role("button", name="Find").click()
    await expect(page.locator("#batch-0")).to_have_count(0)
    await page.locator("#batch-1").get_by_role("link").click()
    await expect(page.locator(".error")).to_be_visible()
    await axe(page)
    await shot(page, "ingest-batch-failed")
    (up.data.parent / "mended").touch()
    await page.get_by_role("button", name="Retry").click()
    await agree(page, "Retry")
    await said(page, "Batch 1 goes through its hooks again.")
    await settled(page)
    await expect(page.locator("#batch-1")).to_contain_text("published")


@LOOKS
async def test_every_page_reads_well_in_both_themes_and_widths(
    person: Person, finished: dict[str, str], theme: str, width: int
) -> None:
    page = await person("ops", theme=theme, width=width)
    for name, path in {
        "ingest": "/ingest",
        "ingest-source": "/ingest/numbers",
        "ingest-never-ran": "/ingest/never",
        "ingest-run": f"/ingest/runs/{finished['numbers']}",
        "ingest-many": f"/ingest/runs/{finished['many']}",
        "ingest-batch": f"/ingest/runs/{finished['numbers']}/batches/0",
    }.items():
        await page.goto(path)
        await expect(page.get_by_role("heading", level=1)).to_be_visible()
        await fits(page)
        await axe(page)
        await shot(page, name)
    await page.goto(f"/ingest/runs/{finished['many']}")
    await page.get_by_role("link", name="More batches").click()
    await expect(page.locator("#batch-101")).to_be_visible()
