"""The pictures of docs/someone-paged-you.md and the README: each trouble is brought about for real, then photographed.

    python -m tests.web.browser.pictures --warm-up 0 --into artefacts/pictures    # to try it
    scripts/pictures                                                              # docs/pictures, in a quarter of an hour

The warm-up is everyday work, so that the charts have something to show. Nothing waits for time to pass otherwise: a
picture is taken when the page says what the guide says it does.
"""

import argparse
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
from playwright.sync_api import Browser, Locator, Page, expect, sync_playwright

from tests.processes.running import wait_for
from tests.web.browser.pictures.stage import (
    ON_CALL,
    RECEIVER_PORT,
    ROOT,
    Stage,
    everyday_work,
    ingest,
    report,
    stage,
    transfer,
)

MARGIN = 8
PATIENCE_MS = 240_000
MOST_BYTES = 200_000


class Camera:
    """Browsers of the person on call; pictures are as wide as the window and end below what matters."""

    def __init__(self, browser: Browser, stage: Stage, into: Path) -> None:
        self.browser, self.stage, self.into = browser, stage, into

    @contextmanager
    def look(self, path: str, *, theme: str = "light", width: int = 1280) -> Iterator[Page]:
        context = self.browser.new_context(
            base_url=self.stage.url,
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
        page.wait_for_selector(".live[data-state=live]")
        yield page
        context.close()

    def _signed_in(self) -> Any:
        url = self.stage.url
        answer = httpx2.post(
            f"{url}/sign-in",
            data={"token": self.stage.tokens[ON_CALL]},
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


def ask_for_all(page: Page, verb: str, why: str) -> None:
    page.locator("summary", has_text="All that match").click()
    page.get_by_role("link", name=f"{verb} all that match…").click()
    page.get_by_role("textbox", name="Why?").fill(why)


def all_is_well(stage: Stage, camera: Camera) -> None:
    with camera.look("/?range=15m", theme="dark") as page:
        says(page, r"All well\.")
        camera.take(page, "overview-well", until=page.locator("#tables .two-tables"))


def the_queue_grows(stage: Stage, camera: Camera) -> None:
    with camera.look("/?range=15m") as page:
        backfill = [ingest("orders", 60_000, "backfill-2019") for _ in range(700)]
        stage.clients["grace"].submit_many(backfill)
        says(page, r"Oldest due job \(ingest\) waits 1 min")
        camera.take(page, "overview-queue", until=page.locator("#charts"))
    with camera.look("/jobs?kind=ingest&status=pending&tag=backfill-2019") as page:
        ask_for_all(page, "Cancel", "backfill-2019 runs tonight instead, agreed with grace")
        camera.take(page, "cancel-matching", until=page.locator(".matching form .actions"))
        page.get_by_role("button", name=re.compile(r"Cancel [\d,]+ jobs")).click()
        expect(page.locator("#bulk")).to_contain_text("Cancelled", timeout=PATIENCE_MS)
    wait_for("the queue is short again", lambda: stage.number_of(status="pending", kind="ingest") < 5, 120)


def a_worker_dies(stage: Stage, camera: Camera) -> None:
    [lost] = stage.clients["nightly"].submit_many([ingest("orders", 900_000, "nightly", "eu")])
    holder = wait_for("it runs", lambda: stage.clients[ON_CALL].get(lost["id"])["claimed_by"])
    wait_for("it has saved something", lambda: _rows(stage, lost["id"]) >= 100_000)
    stage.workers[holder].signal(signal.SIGKILL)
    with camera.look("/") as page:
        says(page, f"Worker {holder} stopped beating")
        camera.take(page, "overview-worker", only=[page.locator(".verdict")])
    with camera.look("/workers", theme="dark") as page:
        says(page, "Gone within the last hour", "given back")
        camera.take(page, "workers-gone", until=page.locator("table", has=page.get_by_text("given back").first))
    with camera.look(f"/jobs/{lost['id']}") as page:
        wait_for("another goes on", lambda: _rows(stage, lost["id"]) >= 450_000)
        says(page, r"was lost")
        camera.take(page, "job-rescued", until=page.locator("#course"))
    stage.start_worker(holder)


def _rows(stage: Stage, id: str) -> int:
    return int((stage.clients[ON_CALL].get(id).get("report") or {}).get("rows") or 0)


def a_job_hangs(stage: Stage, camera: Camera) -> None:
    partner = "sftp.bank.example"
    stage.world(silent=[partner])
    [hung] = stage.clients["grace"].submit_many([transfer("payments", partner)])

    with camera.look("/workers") as page:
        expect(page.locator(f"#running-{hung['id']}")).to_contain_text(
            re.compile(r"3\d s.*60 %", re.DOTALL), timeout=PATIENCE_MS
        )
        camera.take(
            page, "workers-running", only=[page.get_by_role("heading", name="Running now"), page.locator("table").last]
        )

    def runs_again() -> bool:
        job = stage.clients[ON_CALL].get(hung["id"])
        return bool(job["failure_count"] and job["status"] == "claimed")

    wait_for("it was stopped once and runs again", runs_again, 120)
    with camera.look(f"/jobs/{hung['id']}", width=400) as page:
        says(page, "ran for more than 45 s", r"running on etl-\d for [23]\d s")
        expect(page.locator("#log")).to_contain_text(
            re.compile("acknowledge.*acknowledge", re.DOTALL), timeout=PATIENCE_MS
        )
        camera.take(page, "job-hangs")
        page.get_by_role("button", name="Cancel this job").click()
        dialog = page.get_by_role("dialog")
        dialog.get_by_role("textbox").fill("the bank's server is down until noon")
        dialog.get_by_role("button", name="Cancel this job").click()
        says(page, f"cancelled by {ON_CALL}")
    stage.world()


def a_kind_fails(stage: Stage, camera: Camera) -> None:
    stage.world(lacking={"orders": "discount"})
    stage.clients[ON_CALL].request("POST", "/api/webhooks", body=WEBHOOK)
    stage.receiver.answer = 403
    names = ("daily-revenue", "discounts-by-region", "basket-size", "returns-share", "top-customers", "margin")
    for owner in ("ada", "grace", "ada"):
        stage.clients[owner].submit_many([report(name, "orders") for name in names])
    failed = {"kind": "report", "status": "failed"}
    wait_for("all have failed", lambda: stage.number_of(**failed) == 3 * len(names))
    with camera.look("/") as page:
        says(page, "18 failures of report in the last hour", "column_missing")
        camera.take(page, "overview-failures", only=[page.locator(".verdict")])
        page.locator(".verdict").get_by_role("link", name=re.compile("failures of report")).click()
        expect(page.locator("#rows tbody tr")).to_have_count(18, timeout=PATIENCE_MS)
        camera.take(page, "jobs-failed", until=page.locator("#rows tbody tr").nth(9))
        page.locator("#rows td.c-id a").first.click()
        page.wait_for_selector(".trouble")
        camera.take(page, "job-failed", until=page.locator("#course"))
    stage.world()
    with camera.look("/jobs?kind=report&status=failed&error_code=column_missing") as page:
        ask_for_all(page, "Retry", "orders.discount is back")
        page.get_by_role("button", name="Retry 18 jobs").click()
        expect(page.locator("#bulk")).to_contain_text("Retried 18", timeout=PATIENCE_MS)
        camera.take(page, "jobs-retried", only=[page.locator("#bulk")])


WEBHOOK = {"url": f"http://localhost:{RECEIVER_PORT}/paddock", "types": ["job.failed"], "all_owners": True}


def a_webhook_is_refused(stage: Stage, camera: Camera) -> None:
    """After a kind has failed: that is what it was to tell of."""
    wait_for("all were refused", lambda: stage.number_of(kind="webhook", status="failed") == 18)
    with camera.look("/webhooks") as page:
        page.locator("#rows th a").first.click()
        says(page, "Not reached for", "answered 403")
        camera.take(page, "webhook-refused", until=page.locator("#told tbody tr").nth(5))
        stage.receiver.answer = 204
        page.get_by_role("button", name="Send a test event").click()
        says(page, "The receiver answered 204")
    with camera.look("/jobs?kind=webhook&status=failed&error_code=webhook_refused") as page:
        ask_for_all(page, "Retry", "the ticket system has its new key")
        page.get_by_role("button", name="Retry 18 jobs").click()
        expect(page.locator("#bulk")).to_contain_text("Retried 18", timeout=PATIENCE_MS)
    wait_for("all were told", lambda: stage.number_of(kind="webhook", status="completed") == 19)


STORIES: tuple[Callable[[Stage, Camera], None], ...] = (
    all_is_well,
    the_queue_grows,
    a_worker_dies,
    a_job_hangs,
    a_kind_fails,
    a_webhook_is_refused,
)


def main() -> None:
    asked = argparse.ArgumentParser(prog="scripts/pictures", description="Takes the pictures of the guide anew.")
    asked.add_argument(
        "--warm-up", type=float, default=12, metavar="MINUTES", help="everyday work before the first one"
    )
    asked.add_argument("--into", type=Path, default=ROOT / "docs" / "pictures", help="docs/pictures unless told")
    asked.add_argument("--only", nargs="+", metavar="STORY", choices=[s.__name__ for s in STORIES], help="only these")
    given = asked.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("Told to stop."))  # everything that was started ends with it
    given.into.mkdir(parents=True, exist_ok=True)
    with stage() as ready, everyday_work(ready), sync_playwright() as playwright:
        print(f"Paddock runs at {ready.url}.", flush=True)
        time.sleep(given.warm_up * 60)
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for story in STORIES:
            if given.only and story.__name__ not in given.only:
                continue
            print(story.__name__.replace("_", " "), flush=True)
            story(ready, Camera(browser, ready, given.into))
        browser.close()


if __name__ == "__main__":
    main()
