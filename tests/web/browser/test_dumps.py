"""Dumps in a browser, on a whole Paddock with databases of its own. Of one of them the test is the worker, so that each
state holds still for as long as somebody looks at it."""

import contextlib
import csv
import io
import zipfile
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import apsw
import duckdb
import pytest
import pytest_asyncio
from playwright.async_api import Page, expect

from paddock.client import Client
from paddock.jobs import wire
from paddock.worker.link import HttpLink
from tests.processes.running import Up, clean_environment, data_folder, running_up, wait_for
from tests.web.browser.conftest import LOOKS, Person, axe, fits, provoked, settled, shot
from tests.web.browser.test_operating import agree, nothing_moved, said, still
from tests.web.chromium import chromium

ODD = "<b>bold</b> \u202eרע 🐎 " + "long" * 30
OWNERS = {"analyst": "ada", "ops": "olga", "admin": "ruth"}
ROWS = 3_000
CONFIGURATION = f"""
[dumps.databases.shop]
type = "sqlite"
path = "shop.db"
owners = ["ada"]
description = "Orders and who made them. Written to all day."
[dumps.databases.lake]
type = "duckdb"
path = "lake.db"
owners = ["ada"]
[dumps.databases.old]
type = "sqlite"
path = "old.db"
[dumps.databases.books]
type = "postgres"
url = "postgresql://localhost:1/books"
description = '{ODD}'
# Not there: the worker does not offer it, the test does.
[dumps.databases.vault]
type = "sqlite"
path = "nowhere.db"
owners = ["ada"]
"""


@pytest.fixture(scope="module")
def up() -> Iterator[Up]:
    chromium()
    with data_folder() as data:
        write_databases(data.parent)
        (data.parent / "paddock.toml").write_text(CONFIGURATION)
        # The session of the test's own worker lives on while a page is looked at.
        environment = clean_environment(PADDOCK_LEASE_SECONDS="300")
        with running_up(data, "--port", "0", environment=environment) as running:
            yield running


def write_databases(folder: Path) -> None:
    shop = apsw.Connection(str(folder / "shop.db"))
    shop.execute("PRAGMA journal_mode = wal")
    shop.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, person INT, note TEXT)")
    shop.execute("CREATE TABLE people (id INTEGER PRIMARY KEY, name TEXT)")
    shop.execute(f'CREATE TABLE "{ODD}" (x)')
    shop.execute("CREATE TABLE empty (x)")
    with shop:
        shop.executemany("INSERT INTO orders VALUES (?, ?, ?)", ((n, n % 7, "=note") for n in range(ROWS)))
        shop.executemany("INSERT INTO people VALUES (?, ?)", ((n, f"p{n}") for n in range(7)))
    shop.close()
    (folder / "old.db").write_text("This is no database. " * 100)
    with duckdb.connect(str(folder / "lake.db")) as lake:
        lake.execute("CREATE TABLE events AS SELECT range AS id FROM range(100)")


# Not `jobs` of conftest.py: that is one for the session, and would speak to this server in the files after this one.
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
def ada(up: Up, secrets: dict[str, str]) -> Iterator[Client]:
    with Client(up.address["url"], secrets["analyst"]) as client:
        yield client


def start(client: Client, **body: Any) -> str:
    return str(client.request("POST", "/export/dump", body={"async": True, **body})["result"]["jobId"])


def ended(client: Client, id: str) -> dict[str, Any]:
    def look() -> dict[str, Any] | None:
        found: dict[str, Any] = client.request("GET", f"/export/jobs/{id}", params={"v": 2})["result"]
        return found if found["status"] in ("completed", "failed", "cancelled") else None

    return wait_for(f"dump {id} ends", look, 90)


def id_of(page: Page) -> str:
    return page.url.rpartition("/")[2]


@contextlib.contextmanager
def paused(admin: Client, kind: str) -> Iterator[None]:
    """So that its end is seen by the page, and not before it."""
    admin.request("POST", f"/api/kinds/{kind}/pause", body={"reason": "a test looks at it"})
    try:
        yield
    finally:
        admin.request("POST", f"/api/kinds/{kind}/resume")


@dataclass
class Played:
    """A worker that has the database `vault`, one dump of it at a time."""

    link: HttpLink
    session: UUID
    job: wire.ClaimedJob | None = None

    async def claim(self) -> None:
        """A dump; what one before it left behind is nothing."""
        while self.job is None:
            message = wire.Claim(session=self.session, claim_id=uuid4(), kinds=["dump:vault"], limit=1, wait_seconds=20)
            [self.job] = (await self.link.claim(message)).jobs
            if self.job.cleanup_of is not None:
                await self.finish("done")

    async def tell(self, **report: Any) -> None:
        assert self.job is not None
        held = wire.Held(id=self.job.id, attempt_id=self.job.attempt_id, report=report)
        await self.link.beat(self.session, wire.Beat(holding=[held]))

    async def finish(self, outcome: str, **fields: Any) -> None:
        assert self.job is not None
        item = wire.FinishItem(id=self.job.id, attempt_id=self.job.attempt_id, outcome=outcome, **fields)  # type: ignore[arg-type]
        await self.link.finish(wire.Finish(items=[item]))
        self.job = None


@pytest_asyncio.fixture(loop_scope="session")
async def vault(up: Up, admin: Client) -> AsyncIterator[Played]:
    body = {"name": f"vault {uuid4()}", "role": "worker"}
    link = HttpLink(up.address["url"], admin.request("POST", "/api/tokens", body=body)["data"]["token"])
    kinds = ["dump:vault"]
    registered = await link.register(wire.Register(worker_id="vault-1", version="test", kinds=kinds, slots=1))
    yield Played(link, registered.session)
    await link.close()


DUMPING: dict[str, Any] = {
    "phase": "dumping",
    "tables_done": 2,
    "tables_total": 5,
    "table": "orders",
    "rows": 1_284_110,
    "bytes": 96_400_000,
    "percent": 38.4,
    "eta_seconds": 71,
    "point_in_time": "2026-11-16T09:30:01.250Z",
    "restarts": 0,
}


async def test_an_analyst_dumps_a_database_watches_it_and_downloads_the_file(
    person: Person, admin: Client, tmp_path: Path
) -> None:
    page = await person("analyst")
    await page.goto("/dumps")
    await expect(page.locator("#database-books")).to_have_count(0)
    await page.get_by_role("link", name="Dump shop").click()
    await expect(page.get_by_label("Content")).to_be_visible()
    await page.get_by_label("Format").select_option("csv")
    await expect(page.get_by_label("Content")).to_be_hidden()
    await expect(page.get_by_label("Safe for spreadsheets")).to_be_visible()
    await expect(page.get_by_label("Table names")).to_be_hidden()
    await page.get_by_label("Tables").select_option("but")
    await page.get_by_role("button", name="Start the dump").click()
    await expect(page.get_by_text("Name the tables, one on each line.")).to_be_visible()
    await provoked(page, "status of 422")
    await axe(page)
    await shot(page, "dump-refused")
    await page.get_by_label("Table names").fill(ODD)
    with paused(admin, "dump:shop"):
        await page.get_by_role("button", name="Start the dump").click()
        await expect(page.locator(".sentence")).to_contain_text("dumps of shop are paused")
        await settled(page)
        await shot(page, "dump-waiting")
    await expect(page.locator(".sentence")).to_contain_text(f"3 tables, {ROWS + 7:,} rows")
    await expect(page.locator("#table-orders")).to_contain_text(f"{ROWS:,}")
    await axe(page)
    await shot(page, "dump-completed")
    async with page.expect_download() as downloading:
        await page.get_by_role("link", name="Download", exact=True).click()
    download = await downloading.value
    await download.save_as(tmp_path / "got.zip")
    with zipfile.ZipFile(tmp_path / "got.zip") as got:
        rows = list(csv.reader(io.StringIO(got.read("orders.csv").decode(), newline="")))
    assert rows[:2] == [["id", "person", "note"], ["0", "0", "=note"]]
    assert len(rows) == ROWS + 1

    dump = id_of(page)
    await page.locator("#facts a.id").click()
    await page.get_by_role("link", name=dump).click()
    await page.get_by_role("button", name="Delete").click()
    await expect(page.get_by_role("dialog")).to_contain_text(f"3 tables, {ROWS + 7:,} rows")
    await agree(page, "Delete")
    await said(page, "The dump was deleted")
    await expect(page.locator(f"#dump-{dump}")).to_have_count(0)


async def test_every_step_is_seen_as_it_happens_and_nothing_jumps(person: Person, vault: Played, ada: Client) -> None:
    page = await person("analyst")
    dump = start(ada, database="vault")
    await page.goto(f"/dumps/{dump}")
    await settled(page)
    sentence = page.locator(".sentence")
    await expect(sentence).to_contain_text("It waits for a free worker.")
    await vault.claim()
    await expect(sentence).to_contain_text("It begins on vault-1.")
    await vault.tell(phase="waiting", reason="No room for a copy of the database: 3 GB are lacking.")
    await expect(sentence).to_contain_text("3 GB are lacking")
    await shot(page, "dump-no-room")
    await vault.tell(phase="copying", percent=31.4, restarts=0)
    await expect(sentence).to_contain_text("being copied, 31 % so far")
    await shot(page, "dump-copying")
    await vault.tell(**DUMPING)
    await expect(sentence).to_contain_text("Table orders is being written, 3 of 5.")
    await expect(page.locator("#tables")).to_contain_text("5 tables: 2 done, 1 at work and 2 to come.")
    await axe(page)
    await shot(page, "dump-dumping")
    await page.set_viewport_size({"width": 400, "height": 800})
    await page.emulate_media(color_scheme="dark")
    await fits(page)
    await axe(page)
    await shot(page, "dump-dumping-narrow-and-dark")
    await page.set_viewport_size({"width": 1280, "height": 800})
    await page.emulate_media(color_scheme="light")
    await still(page)
    more = DUMPING | {"rows": 2_002_003, "bytes": 141_000_000, "percent": 55.9, "eta_seconds": 9}
    await vault.tell(**more)
    await expect(page.get_by_role("region", name="Progress")).to_contain_text("2,002,003 rows")
    await nothing_moved(page)

    await page.get_by_role("button", name="Cancel dump").click()
    await agree(page, "Cancel dump", "not now")
    await said(page, "The dump was cancelled")
    await expect(sentence).to_contain_text("It was cancelled and has no file.")
    vault.job = None
    await page.get_by_role("button", name="Retry").click()
    await agree(page, "Retry")
    await said(page, "A new job retries it")
    await settled(page)
    await vault.claim()
    await vault.tell(**DUMPING, counts={"items": 900_000, "lines": 300_000, "orders": 84_110})
    await expect(page.locator("#table-lines")).to_contain_text("written")
    await shot(page, "dump-tables")
    error = wire.Error(code="source_locked", message="Process 42 holds the database.", hint="End it, or wait.")
    await vault.finish("transient", error=error)
    await expect(page.get_by_text("The last try failed.")).to_be_visible()
    await axe(page)
    await shot(page, "dump-tried-again")
    await page.get_by_role("button", name="Cancel dump").click()
    await agree(page, "Cancel dump")
    await said(page, "The dump was cancelled")


async def test_the_list_shows_a_dump_come_and_go_on(person: Person, vault: Played, ada: Client) -> None:
    page = await person("analyst")
    await page.goto("/dumps")
    await settled(page)
    dump = start(ada, database="vault", format="json", compress="zstd")
    row = page.locator(f"#dump-{dump}")
    await expect(row).to_contain_text("pending")
    await vault.claim()
    await vault.tell(**DUMPING)
    await expect(row).to_contain_text("table 3 of 5")
    await expect(row).to_contain_text("1,284,110")
    await expect(page.locator("#database-vault")).to_contain_text("dumping")
    await axe(page)
    await shot(page, "dumps-live")
    ada.request("DELETE", f"/export/jobs/{dump}")
    await expect(row).to_contain_text("cancelled")


def start_and_drop(up: Up, admin: Client, ada: Client) -> str:
    """A dump of a table that was there when it was asked for, and no longer is when its turn comes."""
    admin.request("POST", "/api/kinds/dump:shop/pause", body={})
    shop = apsw.Connection(str(up.data.parent / "shop.db"))
    shop.execute("CREATE TABLE nonesuch (x)")
    id = start(ada, database="shop", tables=["nonesuch", ODD])
    shop.execute("DROP TABLE nonesuch")
    shop.close()
    admin.request("POST", "/api/kinds/dump:shop/resume", body={})
    return id


@pytest.fixture(scope="module")
def things(up: Up, admin: Client, ada: Client) -> dict[str, str]:
    """One of everything, with odd texts and things that went wrong."""
    made = {
        "lost": start_and_drop(up, admin, ada),
        "good": start(ada, database="shop"),
        "one": start(ada, database="shop", format="json", table=ODD, compress="zstd"),
        "lake": start(ada, database="lake", format="csv"),
        "failed": start(admin, database="old"),
    }
    for id in made.values():
        ended(admin, id)
    return {**made, "waiting": start(admin, database="books", schemaOnly=True, noOwner=True)}


@LOOKS
async def test_every_page_reads_well_in_both_themes_and_widths(
    person: Person, things: dict[str, str], theme: str, width: int
) -> None:
    page = await person("ops", theme=theme, width=width)
    for name, path in {
        "dumps": "/dumps",
        "dumps-of-one": "/dumps?database=lake",
        "dump": f"/dumps/{things['good']}",
        "dump-one-table": f"/dumps/{things['one']}",
        "dump-failed": f"/dumps/{things['failed']}",
        "dump-unknown-table": f"/dumps/{things['lost']}",
        "dump-tried": f"/dumps/{things['waiting']}",
        "dump-choose": "/dumps/new",
        "dump-new": "/dumps/new?database=shop",
        "dump-new-postgres": "/dumps/new?database=books",
        "dump-like": f"/dumps/new?like={things['lost']}",
    }.items():
        await page.goto(path)
        await expect(page.get_by_role("heading", level=1)).to_be_visible()
        await fits(page)
        await axe(page)
        await shot(page, name)
    await page.goto(f"/dumps/{things['failed']}")
    await expect(page.locator(".error")).to_contain_text("an encrypted database cannot be dumped")
    await page.goto(f"/dumps/{things['lost']}")
    await expect(page.locator(".sentence")).to_contain_text("Table 'nonesuch' does not exist.")


async def test_without_scripts_a_dump_is_started_and_its_file_found(person: Person, ada: Client) -> None:
    page = await person("analyst", scripts=False)
    await page.goto("/dumps")
    await page.get_by_role("link", name="New dump").click()
    await page.get_by_label("Database").select_option("lake")
    await page.get_by_role("button", name="Continue").click()
    await page.get_by_label("Format").select_option("json")
    await page.get_by_role("button", name="Start the dump").click()
    await expect(page.get_by_role("heading", level=1)).to_have_text("Dump of lake")
    assert ended(ada, id_of(page))["status"] == "completed"
    await page.reload()
    await expect(page.get_by_role("link", name="Download", exact=True)).to_be_visible()
    await page.get_by_text("Show the commands").click()
    await expect(page.locator("#command-texts")).to_contain_text("paddock dumps download --server=")


async def test_the_keyboard_leads_to_dumps_and_to_one_by_its_id(person: Person, things: dict[str, str]) -> None:
    page = await person("analyst")
    await page.goto("/")
    await page.keyboard.type("gd")
    await page.wait_for_url("**/dumps")
    await page.keyboard.press("Control+k")
    await page.keyboard.type(things["good"])
    await page.keyboard.press("Enter")
    await page.wait_for_url(f"**/dumps/{things['good']}")
    await page.keyboard.press("Control+k")
    await page.keyboard.type("Download")
    async with page.expect_download() as downloading:
        await page.keyboard.press("Enter")
    assert (await downloading.value).suggested_filename == f"shop_{things['good']}.sql"


async def test_the_commands_are_copied_as_they_are_typed(person: Person, things: dict[str, str], up: Up) -> None:
    page = await person("analyst")
    await page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    await page.goto(f"/dumps/{things['good']}")
    await page.get_by_role("button", name="Copy as CLI: Download it").click()
    await expect(page.locator("[data-copied]")).to_have_attribute("data-copied", "Copied")
    copied = await page.evaluate("navigator.clipboard.readText()")
    assert copied == f"paddock dumps download --server={up.address['url']} {things['good']}"
