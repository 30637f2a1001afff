"""Takes a picture of a page once it says what it should, as the person whose token it has."""

import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
from playwright.sync_api import Browser, Locator, Page, expect

MARGIN = 8
PATIENCE_MS = 240_000
MOST_BYTES = 200_000


class Camera:
    """Browsers of one person; pictures are as wide as the window and end below what matters."""

    def __init__(self, browser: Browser, url: str, token: str, into: Path) -> None:
        self.browser, self.url, self.token, self.into = browser, url, token, into

    @contextmanager
    def look(self, path: str, *, theme: str = "light", width: int = 1280, live: bool = True) -> Iterator[Page]:
        context = self.browser.new_context(
            base_url=self.url,
            viewport={"width": width, "height": 1600 if width > 400 else 860},
            color_scheme="dark" if theme == "dark" else "light",
            reduced_motion="reduce",
            timezone_id="Europe/Berlin",
            locale="en-GB",
        )
        context.set_default_timeout(PATIENCE_MS)
        context.add_cookies([self._signed_in()])
        page = context.new_page()
        page.goto(path)
        if live:
            page.wait_for_selector(".live[data-state=live]")
        yield page
        context.close()

    def _signed_in(self) -> Any:
        url = self.url
        answer = httpx2.post(
            f"{url}/sign-in",
            data={"token": self.token},
            headers={"origin": url},
            follow_redirects=False,
        )
        [(name, value)] = answer.cookies.items()
        return {"name": name, "value": value, "url": url, "httpOnly": True, "sameSite": "Lax"}

    def take(self, page: Page, name: str, *, until: Locator | None = None, only: Sequence[Locator] = ()) -> None:
        """The window down to the end of `until`, or `only` the part from the first of these to the last."""
        size = page.viewport_size
        assert size is not None
        page.mouse.move(size["width"] - 1, 0)  # nothing is pointed at
        clip: Any = {"x": 0, "y": 0, **size}
        if only:
            first, last = _box(only[0]), _box(only[-1])
            top, left = first["y"] - MARGIN, last["x"] - MARGIN
            clip = {"x": left, "y": top, "width": last["width"] + 2 * MARGIN}
            clip["height"] = last["y"] + last["height"] + MARGIN - top
        elif until is not None:
            box = _box(until)
            clip["height"] = min(box["y"] + box["height"] + MARGIN, size["height"])
        picture = self.into / f"{name}.png"
        page.screenshot(path=picture, clip=clip)
        if pngquant := shutil.which("pngquant"):
            subprocess.run([pngquant, "--force", "--strip", "--output", picture, picture], check=True)
        print(f"  {picture.name}, {picture.stat().st_size // 1000} kB", flush=True)
        assert picture.stat().st_size < MOST_BYTES, "That is large for a page of text: crop it."


def _box(part: Locator) -> Any:
    box = part.bounding_box()
    assert box is not None, f"{part} is not to be seen"
    return box


def says(page: Page, *texts: str) -> None:
    for text in texts:
        expect(page.locator("main")).to_contain_text(re.compile(text), timeout=PATIENCE_MS)
