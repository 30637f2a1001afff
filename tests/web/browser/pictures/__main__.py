"""The pictures of docs/someone-paged-you.md, docs/tour.md and the README: each trouble is brought about for real, then
photographed; what the tour shows is the demo's, when it has played.

    python -m tests.web.browser.pictures --warm-up 0 --into artefacts/pictures    # to try it
    scripts/pictures                                                              # docs/pictures, in a quarter of an hour
    scripts/pictures --only the_tour                                              # those of the tour alone, in two minutes

The warm-up is everyday work, so that the charts have something to show. Nothing waits for time to pass otherwise: a
picture is taken when the page says what the guide says it does.
"""

import argparse
import re
import signal
import sys
import time
from collections.abc import Callable, Collection
from pathlib import Path

from playwright.sync_api import Browser, Page, expect, sync_playwright

from tests.processes.running import wait_for
from tests.web.browser.pictures.camera import PATIENCE_MS, Camera, says
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
from tests.web.browser.pictures.tour import the_tour
from tests.web.chromium import program


def ask_for_all(page: Page, verb: str, why: str) -> None:
    page.locator("summary", has_text="All that match").click()
    page.get_by_role("link", name=f"{verb} all that match…").click()
    page.get_by_role("textbox", name="Reason").fill(why)


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
        says(page, "Stopped or lost in the last hour", "given back")
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
        page.get_by_role("button", name="Cancel job").click()
        dialog = page.get_by_role("dialog")
        dialog.get_by_role("textbox").fill("the bank's server is down until noon")
        dialog.get_by_role("button", name="Cancel job").click()
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


TROUBLES = tuple(story.__name__ for story in STORIES)


def main() -> None:
    asked = argparse.ArgumentParser(prog="scripts/pictures", description="Takes the pictures of the guides again.")
    asked.add_argument(
        "--warm-up", type=float, default=12, metavar="MINUTES", help="everyday work before the first trouble"
    )
    asked.add_argument("--into", type=Path, default=ROOT / "docs" / "pictures", help="docs/pictures unless told")
    choices = [the_tour.__name__, *TROUBLES]
    asked.add_argument("--only", nargs="+", metavar="STORY", choices=choices, default=choices, help="only these")
    given = asked.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("Told to stop."))  # everything that was started ends with it
    given.into.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program(), args=["--no-sandbox"])
        if the_tour.__name__ in given.only:
            print("the tour", flush=True)
            the_tour(browser, given.into)
        if set(given.only) & set(TROUBLES):
            troubles(browser, given.into, given.only, given.warm_up)
        browser.close()


def troubles(browser: Browser, into: Path, only: Collection[str], warm_up: float) -> None:
    with stage() as ready, everyday_work(ready):
        print(f"Paddock runs at {ready.url}.", flush=True)
        time.sleep(warm_up * 60)
        camera = Camera(browser, ready.url, ready.tokens[ON_CALL], into)
        for story in STORIES:
            if story.__name__ in only:
                print(story.__name__.replace("_", " "), flush=True)
                story(ready, camera)


if __name__ == "__main__":
    main()
