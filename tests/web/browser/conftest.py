"""The dashboard in a real Chromium, on a real `paddock up`: PostgreSQL, control plane and worker as processes.

A test is `async def test_…(person: Person)` in a file of this folder, nothing else: it is marked and looped for you.

    page = await person("ops", theme="dark", width=400)   # a signed-in browser of its own
    await page.goto("/jobs")                              # paths below the dashboard's root
    await settled(page)                                   # live, nothing under way
    await axe(page)                                       # no violation
    await shot(page, "jobs")                              # artefacts/jobs-ops-dark-400.png

Whatever is to read well in both themes and widths is marked `@LOOKS` and takes `theme` and `width`.

What a page says on its console as an error, a refusal by its policy among it, fails the test, unless the test says that
it `provoked` it. Jobs are made with `jobs.submit("probe", {…})`: see paddock/jobs/probe.py for what one does.
The server is shared by all tests: look for what you made, not for how many there are.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Protocol
from weakref import WeakKeyDictionary

import httpx2
import pytest
import pytest_asyncio
from aiohttp import web
from playwright.async_api import Browser, BrowserContext, ConsoleMessage, Locator, Page, async_playwright, expect

from paddock.client import Client
from tests.processes.running import Up, data_folder, running_up
from tests.web.browser.proxy import Proxy
from tests.web.chromium import chromium

HERE = Path(__file__).parent
ARTEFACTS = HERE.parents[2] / "artefacts"
AXE = (HERE / "vendor" / "axe.min.js").read_text()
ROLES = ("analyst", "ops", "admin")
# Whose work they see: `ada` is an analyst and sees what was made with the token `jobs_of_ada`.
OWNERS = {"analyst": "ada", "ops": "olga", "admin": "ruth"}
HEIGHTS = {1280: 800, 400: 800}
# How every page is looked at. Colours come from the theme and the layout from the width: each run sees both of each, and the
# long one the other two pairs as well.
LOOKS = pytest.mark.parametrize(
    ("theme", "width"),
    [
        ("light", 1280),
        ("dark", 400),
        pytest.param("dark", 1280, marks=pytest.mark.long),
        pytest.param("light", 400, marks=pytest.mark.long),
    ],
)
# As long as Playwright waits for what is done to a page: a busy machine is slow. And not so long that a page whose
# stream has died would have found out by itself (SILENCE_MS of live.js).
expect.set_options(timeout=30_000)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.browser)
            item.add_marker(pytest.mark.slow)
            item.add_marker(pytest.mark.timeout(300))
            item.add_marker(pytest.mark.asyncio(loop_scope="session"), append=False)  # before the one of auto mode


class Person(Protocol):
    async def __call__(
        self, role: str = "admin", *, theme: str = "light", width: int = 1280, scripts: bool = True, base: str = ""
    ) -> Page: ...


_problems: "WeakKeyDictionary[Page, list[str]]" = WeakKeyDictionary()
_provoked: "WeakKeyDictionary[Page, list[str]]" = WeakKeyDictionary()
_named: "WeakKeyDictionary[Page, str]" = WeakKeyDictionary()


@pytest.fixture(scope="session")
def up() -> Iterator[Up]:
    chromium()
    with data_folder() as data, running_up(data, "--port", "0") as running:
        yield running


@pytest.fixture(scope="session")
def jobs(up: Up) -> Iterator[Client]:
    """As admin."""
    with up.client() as client:
        yield client


@pytest.fixture(scope="session")
def secrets(up: Up, jobs: Client) -> dict[str, str]:
    """A token for each role, and `jobs_of_ada`, whose work the analyst sees."""
    made = {role: make_token(jobs, role, owner) for role, owner in OWNERS.items()}
    return {**made, "jobs_of_ada": make_token(jobs, "ops", "ada")}


def make_token(client: Client, role: str, owner: str) -> str:
    body = {"name": f"{owner}-{role}", "role": role, "owner": owner}
    made: dict[str, Any] = client.request("POST", "/api/tokens", body=body)["data"]
    return str(made["token"])


@pytest.fixture(scope="session")
def jobs_of_ada(up: Up, secrets: dict[str, str]) -> Iterator[Client]:
    with Client(up.address["url"], secrets["jobs_of_ada"]) as client:
        yield client


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def browser() -> AsyncIterator[Browser]:
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=chromium(), args=["--no-sandbox"])
        yield browser
        await browser.close()


@pytest_asyncio.fixture(loop_scope="session")
async def person(up: Up, browser: Browser, secrets: dict[str, str], proxy: Proxy) -> AsyncIterator[Person]:
    """Asks for the proxy so as to be gone before it."""
    opened: list[BrowserContext] = []

    async def make(
        role: str = "admin", *, theme: str = "light", width: int = 1280, scripts: bool = True, base: str = ""
    ) -> Page:
        address = base or up.address["url"]
        context = await browser.new_context(
            base_url=address + ("/" if base else ""),
            viewport={"width": width, "height": HEIGHTS.get(width, 800)},
            color_scheme="dark" if theme == "dark" else "light",
            java_script_enabled=scripts,
            reduced_motion="reduce",
            timezone_id="Europe/Berlin",
        )
        opened.append(context)
        if role in secrets:
            await context.add_cookies([await _cookie(up.address["url"], secrets[role])])
        page = await context.new_page()
        _problems[page] = problems = []
        _provoked[page] = []
        _named[page] = f"{role}-{theme}-{width}"
        page.on("console", lambda message: problems.extend(_error(message)))
        page.on("pageerror", lambda error: problems.append(str(error)))
        return page

    yield make
    found = [
        problem for context in opened for page in context.pages if page in _problems for problem in _unexpected(page)
    ]
    for context in opened:
        await context.close()
    assert found == [], "a page said so on its console"


@pytest_asyncio.fixture(loop_scope="session")
async def proxy(up: Up) -> AsyncIterator[Proxy]:
    made = Proxy(up.address["url"])
    app = web.Application()
    app.router.add_route("*", made.prefix + "/{rest:.*}", made.forward)
    runner = web.AppRunner(app, handler_cancellation=True)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    made.address = f"http://127.0.0.1:{runner.addresses[0][1]}{made.prefix}"
    yield made
    made.cut_off()
    await runner.cleanup()


async def _cookie(address: str, secret: str) -> Any:
    """Signed in without the browser, whose own way in has its own test."""
    async with httpx2.AsyncClient(base_url=address) as client:
        answer = await client.post("/sign-in", data={"token": secret}, headers={"origin": address})
        assert answer.status_code == 303
        [(name, value)] = answer.cookies.items()
    return {"name": name, "value": value, "url": address, "httpOnly": True, "sameSite": "Lax"}


def _error(message: ConsoleMessage) -> list[str]:
    return [f"{message.text} ({message.location.get('url', '')})"] if message.type in ("error", "warning") else []


async def provoked(page: Page, text: str, times: int = 1) -> None:
    """Waits until the page said this on its console so often; from here on it may, also before the call.

    The browser tells of an answer in its own time: it may tell again after the test has seen all it looks for.
    """
    async with asyncio.timeout(30):
        while sum(text in problem for problem in _problems[page]) < times:
            await page.wait_for_timeout(20)
    _provoked[page].append(text)


def _unexpected(page: Page) -> list[str]:
    return [problem for problem in _problems[page] if not any(text in problem for text in _provoked[page])]


def resting(jobs: Client, payload: dict[str, Any] | None = None) -> str:
    """A job that waits for its time, until `jobs.run_now(id)` lets it run and complete."""
    later = datetime.now(UTC) + timedelta(hours=1)
    return str(jobs.submit("probe", payload or {}, run_at=later)["id"])


def editor(page: Page, label: str) -> Locator:
    """What one types into. It takes the place of its text field, which has the same label, a moment after the page is there."""
    return page.locator(".cm-content").and_(page.get_by_label(label))


async def settled(page: Page) -> None:
    """The stream is open: from here on the page learns of every change."""
    await page.wait_for_selector(".live[data-state=live]")


async def axe(page: Page) -> None:
    await page.evaluate(AXE)
    found = await page.evaluate(
        "axe.run(document, {resultTypes: ['violations'], runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice']})"
    )
    violations = [
        f"{violation['id']}: {violation['help']}: {node['html'][:200]}"
        for violation in found["violations"]
        for node in violation["nodes"][:3]
    ]
    assert violations == [], f"{page.url}"


async def fits(page: Page) -> None:
    """No page scrolls sideways; wide tables do, in their own box."""
    wide = await page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    assert wide <= 0, f"{page.url} is {wide} px too wide"


async def shot(page: Page, name: str) -> None:
    """Into artefacts/, which git ignores: for whoever wants to see what a test saw."""
    ARTEFACTS.mkdir(exist_ok=True)
    await page.screenshot(path=ARTEFACTS / f"{name}-{_named[page]}.png", full_page=True)
