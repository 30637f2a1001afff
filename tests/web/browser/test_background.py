"""Background jobs and the schema cache in a browser: passes that run by themselves, orphans with hostile company, tables with
hostile names."""

import contextlib
import json
import os
import re
import sqlite3
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from uuid import uuid4

import pytest
from playwright.async_api import expect

from paddock.client import Client
from paddock.runtimes.folders import InstanceFolder
from tests.processes.running import Up, clean_environment, data_folder, running_up, wait_for
from tests.web.browser.conftest import LOOKS, OWNERS, Person, axe, fits, provoked, settled, shot
from tests.web.browser.test_operating import agree, said
from tests.web.chromium import chromium

HOSTILE = "<img src=x onerror=alert(1)> \"'%_ \u202eרע 🐎"
LONG = "n" * 300
OFTEN = {"PADDOCK_RECONCILIATION_JOB_INTERVAL_SECONDS": "1"}


@pytest.fixture(scope="module")
def up() -> Iterator[Up]:
    chromium()
    with data_folder() as data:
        shop = data.parent / "shop.db"
        write_shop(shop)
        engines = json.dumps({"shop": {"type": "sqlite", "path": str(shop)}})
        environment = clean_environment(PADDOCK_ENGINES=engines, PADDOCK_LEASE_SECONDS="60", **OFTEN)
        with running_up(data, "--port", "0", environment=environment) as running:
            with running.client() as client:
                wait_for("the shop is read", lambda: fresh(client))
            yield running


@pytest.fixture(scope="module")
def jobs(up: Up) -> Iterator[Client]:
    """As admin, of this Paddock and not of the one that other files share."""
    with up.client() as client:
        yield client


@pytest.fixture(scope="module")
def secrets(jobs: Client) -> dict[str, str]:
    """All of them may use the shop."""

    def made(role: str, owner: str) -> str:
        body = {"name": f"{owner}-{role}", "role": role, "owner": owner, "engines": ["*"]}
        return str(jobs.request("POST", "/api/tokens", body=body)["data"]["token"])

    return {role: made(role, owner) for role, owner in OWNERS.items()}


def write_shop(path: Path) -> None:
    quoted = HOSTILE.replace('"', '""')
    shop = sqlite3.connect(path)
    shop.execute("CREATE TABLE orders (order_id integer, placed text)")
    shop.execute(f'CREATE TABLE "{quoted}" ("{quoted}" integer, "{LONG}" text)')
    shop.commit()
    shop.close()
    path.chmod(0o644)


def fresh(client: Client) -> bool:
    stats = client.request("GET", "/api/schema/stats")["data"]
    return any(engine["engine"] == "shop" and engine["as_of"] for engine in stats)


def leave_orphans(data: Path, count: int) -> Sequence[InstanceFolder]:
    """What a crash leaves: folders of processes that ended long ago and that no instance names."""
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    made = []
    for _ in range(count):
        id, generation = uuid4(), str(uuid4())
        folder = InstanceFolder(data / "instances", id)
        folder.make()
        folder.write("spawned.json", {"generation": generation, "processes": [[ended.pid, "1"]]})
        # The last of all: from here on it is found.
        folder.write("meant.json", {"generation": generation, "name": f"ladybug-wrapper-{id}-1"})
        os.utime(folder.path / "meant.json", (1_000_000_000, 1_000_000_000))
        made.append(folder)
    return made


@contextlib.contextmanager
def no_pass(client: Client, job: str) -> Iterator[None]:
    """Whatever is made meanwhile is there at once for the next one."""
    client.request("PATCH", f"/api/schedules/{job}", body={"enabled": False})
    wait_for("none runs", lambda: status_of(client, job) == "idle")
    yield
    client.request("PATCH", f"/api/schedules/{job}", body={"enabled": True})


def status_of(client: Client, job: str) -> str:
    found = client.request("GET", "/api/ops/jobs/status")["data"]
    return str(next(one["status"] for one in found if one["job_name"] == job))


async def test_orphans_that_were_held_back_show_by_themselves_and_are_named_and_forced(
    person: Person, up: Up, jobs: Client
) -> None:
    page = await person("ops")
    await page.goto("/background/reconciliation")
    await settled(page)
    await expect(page.get_by_role("button", name="Force")).to_have_count(0)
    with no_pass(jobs, "reconciliation"):
        left = leave_orphans(up.data, 5)
    held = page.locator("section.error")
    await expect(held).to_contain_text("5 orphans were found and not deleted.")
    for folder in left:
        await expect(held).to_contain_text(folder.path.name)
    await axe(page)
    await page.get_by_role("button", name="Force").click()
    await expect(page.get_by_role("dialog")).to_contain_text(min(folder.path.name for folder in left))
    await agree(page, "Force", f"nobody's {HOSTILE}")
    await said(page, "A pass of reconciliation is queued")
    await expect(held).to_have_count(0)
    await expect(page.locator("#job dl.pairs")).to_contain_text("<img src=x onerror=alert(1)>")
    assert not any(folder.path.exists() for folder in left)


async def test_a_pass_is_run_now_with_a_reason_and_not_twice_in_a_minute(person: Person) -> None:
    page = await person("ops")
    await page.goto("/background")
    await settled(page)
    row = page.locator("#background-lifecycle")
    await row.get_by_role("button", name="Run now").click()
    await agree(page, "Run now", HOSTILE)
    await said(page, "A pass of lifecycle is queued")
    await expect(page.locator("#job dl.pairs")).to_contain_text("<img src=x onerror=alert(1)>")
    await expect(page.get_by_role("table").get_by_role("row").nth(1)).to_contain_text("completed")
    await page.get_by_role("button", name="Run now").click()
    await agree(page, "Run now", "again")
    await expect(page.get_by_text("before triggering again")).to_be_visible()
    await provoked(page, "429")


async def test_a_table_is_found_by_three_letters_and_leads_into_a_mapping(person: Person) -> None:
    page = await person("analyst")
    await page.goto("/schema")
    await page.get_by_label("Name").fill("ord")
    await page.keyboard.press("Enter")
    found = page.get_by_role("row").filter(has_text="orders")
    await expect(found.get_by_role("link", name="Export this table")).to_be_visible()
    await expect(page.get_by_role("button", name="Refresh")).to_have_count(0)
    await found.get_by_role("link", name="Into a mapping").click()
    written = page.locator("#field-yaml")
    await expect(written).to_have_value(re.compile("label: orders"))
    await expect(written).to_have_value(re.compile("name: order_id, type: INT32"))


async def test_names_are_only_names(person: Person) -> None:
    page = await person("analyst", width=400)
    for text, within in (("onerror", "tables"), ("%_", "tables"), ("רע", "columns")):
        await page.goto(f"/schema?q={text.replace('%', '%25')}&in={within}")
        await expect(page.locator("#found")).to_contain_text("<img src=x onerror=alert(1)>")
        await fits(page)
    await axe(page)
    await shot(page, "schema-hostile")


async def test_an_operator_has_one_engine_read_again(person: Person) -> None:
    page = await person("ops")
    await page.goto("/schema")
    await page.get_by_role("button", name="Refresh shop").click()
    await agree(page, "Refresh shop", "a table is new")
    await said(page, "A pass of schema_cache is queued")
    await expect(page.locator("#job dl.pairs")).to_contain_text("a table is new")
    await expect(page.get_by_role("table").get_by_role("row").nth(1)).to_contain_text("1 engines refreshed")


@LOOKS
async def test_the_pages_read_well(person: Person, theme: str, width: int) -> None:
    page = await person("ops", theme=theme, width=width)
    for path in ("/background", "/background/lifecycle", "/schema", "/schema?q=ord"):
        await page.goto(path)
        await settled(page)
        await fits(page)
        await axe(page)
        await shot(page, path.strip("/").replace("/", "-").replace("?q=", "-"))
