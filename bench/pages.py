"""The dashboard: what a page costs the server, what it weighs, and what 200 open ones cost while jobs change."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import random
import re
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import aiohttp
import psutil

from bench.environment import Env, own_cpu
from bench.figures import Figure, percentile
from bench.paddock_peer import PlayedWorker, enqueue, seed_finished
from bench.paddock_processes import Serve, serving, working

GOAL_MS = 50.0
GOAL_BYTES = 150_000
GOAL_CORE_PERCENT = 5.0
OPEN_PAGES = 200
JOBS_PER_SECOND = 100
SHOWN_ROWS = 50
DEFAULT_EVERY, LIST_EVERY = 3.0, 2.0  # seconds, as live.js and jobs.html say

NOBODY = "00000000-0000-7000-8000-000000000000"
PAGES = {
    "overview, 15 min": "/?range=15m",
    "overview, 1 h": "/",
    "overview, 24 h": "/?range=24h",
    "overview, 7 d": "/?range=7d",
    "jobs": "/jobs",
    "jobs, kind": "/jobs?kind=probe",
    "jobs, rare kind": "/jobs?kind=webhook",
    "jobs, pending": "/jobs?status=pending",
    "jobs, running": "/jobs?status=claimed",
    "jobs, completed": "/jobs?status=completed",
    "jobs, failed": "/jobs?status=failed",
    "jobs, cancelled": "/jobs?status=cancelled",
    "jobs, owner": "/jobs?owner=owner-7",
    "jobs, rare owner": "/jobs?owner=nobody",
    "jobs, tag": "/jobs?tag=team-3",
    "jobs, rare tag": "/jobs?tag=nobody",
    "jobs, worker": "/jobs?worker=worker-3",
    "jobs, rare worker": "/jobs?worker=nobody",
    "jobs, rare group": f"/jobs?group={NOBODY}",
    "jobs, error code": "/jobs?error_code=broken_3",
    "jobs, rare error code": "/jobs?error_code=nothing",
    "jobs, time": "/jobs?since={a_day_ago}",
    "jobs, text": "/jobs?q=variant%205",
    "jobs, rare text": "/jobs?q=nothing%20like%20it",
    "a job": "/jobs/{job}",
    "workers": "/workers",
    "kinds": "/kinds",
    "schedules": "/schedules",
    "groups": "/groups",
    "events": "/events",
    "webhooks": "/webhooks",
    "settings": "/settings",
    "audit": "/audit",
}


async def run(env: Env) -> list[Figure]:
    jobs = 50_000 if env.quick else 1_000_000
    calls = 20 if env.quick else 200
    async with env.database("pages") as database, serving(database) as serve:
        await seed_finished(database, jobs)
        await enqueue(serve, 500, 100)
        worker = await PlayedWorker.open(serve, "played")
        await worker.claim(100)
        figures = [await _page(serve, name, path, calls, jobs) for name, path in PAGES.items()]
        figures.append(await _weight(serve))
    async with (
        env.database("live") as database,
        # Every open page has a stream of its own, and all are opened with one token.
        serving(database, PADDOCK_STREAMS_PER_TOKEN=str(2 * OPEN_PAGES)) as serve,
        working(serve, batch=20, in_flight=2),
    ):
        figures.append(await _live(serve, seconds=8 if env.quick else 40))
    return figures


async def _page(serve: Serve, name: str, path: str, calls: int, jobs: int) -> Figure:
    a_day_ago = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() - 86_400))
    newest = (await serve.ask("GET", "/api/jobs?status=failed&limit=1"))[0]["id"]
    address = path.format(a_day_ago=a_day_ago, job=newest)
    for _ in range(5):
        await _get(serve, address)
    samples = []
    for _ in range(calls):
        started = time.perf_counter()
        await _get(serve, address)
        samples.append(1e3 * (time.perf_counter() - started))
    slow = percentile(samples, 0.95)
    note = f"p50 {percentile(samples, 0.5):.1f} ms"
    return Figure(f"{name}: p95 at {jobs:,} jobs", slow, "ms", f"< {GOAL_MS:g} ms", slow < GOAL_MS, note=note)


async def _weight(serve: Serve) -> Figure:
    """The first page with everything it loads, as it goes over the wire."""
    wanted, seen, weight = ["/"], set[str](), 0
    while wanted:
        path = wanted.pop()
        if path in seen:
            continue
        seen.add(path)
        text, size = await _get(serve, path)
        weight += size
        wanted += re.findall(r'(?:href|src)="(/static/[^"#]+)', text)
        if path.endswith(".js"):
            folder = path.rpartition("/")[0]
            wanted += [f"{folder}/{name}" for name in re.findall(r'from "\./([^"]+)"', text)]
    note = f"{len(seen)} requests"
    return Figure("first page, compressed", weight, "B", f"< {GOAL_BYTES:,} B", weight < GOAL_BYTES, note=note)


async def _get(serve: Serve, path: str, **headers: str) -> tuple[str, int]:
    """The text, and what it weighed on the wire."""
    sent = {"Authorization": f"Bearer {serve.tokens.admin}", "Accept-Encoding": "gzip", **headers}
    async with serve.http.get(serve.url + path, headers=sent, auto_decompress=False) as answer:
        content = await answer.read()
        if answer.status != 200:
            raise RuntimeError(f"GET {path}: {answer.status} {content[:300]!r}")
        zipped = answer.headers.get("Content-Encoding") == "gzip"
        return (gzip.decompress(content) if zipped else content).decode(), len(content)


async def _live(serve: Serve, seconds: float) -> Figure:
    alone = await _share_of_a_core(serve, seconds, pages=[])
    jobs = await serve.ask("GET", "/api/jobs?limit=100")
    # What people keep open: the list, the overview, the job they wait for.
    paths = ["/jobs"] * (OPEN_PAGES // 2) + ["/"] * (OPEN_PAGES // 4)
    paths += [f"/jobs/{job['id']}" for job in jobs[: OPEN_PAGES - len(paths)]]
    async with contextlib.AsyncExitStack() as stack:
        pages = [await stack.enter_async_context(_opened(serve, path)) for path in paths]
        await asyncio.sleep(3)
        watched = await _share_of_a_core(serve, seconds, pages)
    if any(page.messages == 0 for page in pages if page.path == "/jobs"):
        raise RuntimeError("A page was told nothing.")
    fetched = sum(page.fetched for page in pages)
    note = f"{100 * alone:.1f} % without them, {fetched} fetches in {seconds:g} s"
    more = 100 * (watched - alone)
    name = f"{len(pages)} open pages, {JOBS_PER_SECOND} jobs/s: more CPU of serve"
    return Figure(name, more, "% of a core", f"< {GOAL_CORE_PERCENT:g} %", more < GOAL_CORE_PERCENT, note=note)


async def _share_of_a_core(serve: Serve, seconds: float, pages: list[OpenPage]) -> float:
    loading = asyncio.create_task(_load(serve))
    await asyncio.sleep(2)
    for page in pages:
        page.fetched = 0
    process = psutil.Process(serve.pid)
    before, began = own_cpu(process), time.perf_counter()
    await asyncio.sleep(seconds)
    share = (own_cpu(process) - before) / (time.perf_counter() - began)
    if loading.done():
        loading.result()  # nothing was measured: it says why
    loading.cancel()
    await asyncio.gather(loading, return_exceptions=True)
    return share


async def _load(serve: Serve) -> None:
    began = time.perf_counter()
    for tenth in range(1_000_000):
        await enqueue(serve, JOBS_PER_SECOND // 10, 100)
        await asyncio.sleep(max(0.0, began + (tenth + 1) / 10 - time.perf_counter()))


@dataclass
class OpenPage:
    """What static/live.js does of a page: keeps its stream, and fetches its regions again when jobs change, each no
    sooner than it says itself and no sooner than the server asks for. The list, as static/jobs.js does, fetches the
    rows it shows by their ids; here at every change, as if one of its fifty were always among those that changed."""

    path: str
    query: str = ""
    messages: int = 0
    fetched: int = 0
    regions: dict[str, float] = field(default_factory=dict)


@contextlib.asynccontextmanager
async def _opened(serve: Serve, path: str) -> AsyncIterator[OpenPage]:
    text, _ = await _get(serve, path)
    page = OpenPage(path)
    # Those by the clock too: something changes every second here.
    for tag in re.findall(r"<[a-z]+[^>]*data-live=\"(?:jobs|clock)\"[^>]*>", text):
        region = re.search(r' id="([^"]+)"', tag)
        every = re.search(r'data-live-every="([\d.]+)"', tag)
        if region:
            page.regions[region.group(1)] = float(every.group(1)) if every else DEFAULT_EVERY
    if shown := re.findall(r'<tr[^>]* data-job="([^"]+)"', text)[:SHOWN_ROWS]:
        page.query = f"?rows={','.join(shown)}"
        page.regions["rows"] = LIST_EVERY
    [(narrowed, fields)] = re.findall(r'data-stream="([^"]*)" data-fields="([^"]*)"', text)
    stream = asyncio.create_task(_watch(serve, page, f"{narrowed}&fields={fields}"))
    try:
        yield page
        if stream.done():
            stream.result()  # it was closed by the server, or a fetch was refused
    finally:
        stream.cancel()
        await asyncio.gather(stream, return_exceptions=True)


async def _watch(serve: Serve, page: OpenPage, narrowed: str) -> None:
    rest, next_at = 0.0, dict.fromkeys(page.regions, 0.0)
    address = f"{serve.url}/api/stream?batch=1&{narrowed}"
    headers = {"Authorization": f"Bearer {serve.tokens.admin}"}
    unlimited = aiohttp.ClientTimeout(total=None)
    async with serve.http.get(address, headers=headers, timeout=unlimited) as stream:
        async for chunk in stream.content.iter_any():
            if b"event: jobs" not in chunk and b"event: reset" not in chunk:
                continue
            page.messages += 1
            now = time.monotonic()
            due = [region for region, at in next_at.items() if at <= now]
            if not due:
                continue
            await asyncio.sleep(random.random() / 2)
            rest = await _fetch(serve, page, due)
            for region in due:
                next_at[region] = time.monotonic() + max(page.regions[region], 0 if "job=" in narrowed else rest)


async def _fetch(serve: Serve, page: OpenPage, regions: list[str]) -> float:
    sent = {
        "Authorization": f"Bearer {serve.tokens.admin}",
        "Accept-Encoding": "gzip",
        "X-Paddock-Regions": ",".join(regions),
    }
    address = serve.url + page.path + page.query
    async with serve.http.get(address, headers=sent, auto_decompress=False) as answer:
        await answer.read()
        answer.raise_for_status()
        page.fetched += 1
        return float(answer.headers.get("X-Paddock-Rest", 0))
