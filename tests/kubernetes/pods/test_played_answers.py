"""The client against answers that a real API server gives only by luck: of a server in this process that plays its part."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, cast

import pytest
from aiohttp import web
from prometheus_client import CollectorRegistry

from paddock.runtimes.kubernetes import client as client_module
from paddock.runtimes.kubernetes.access import Access
from paddock.runtimes.kubernetes.client import HOLD_SECONDS, Kubernetes, Object, Page
from paddock.runtimes.kubernetes.errors import ApiError
from paddock.runtimes.kubernetes.metrics import RESTARTS, KubernetesMetrics
from paddock.runtimes.kubernetes.resources import PODS
from paddock.runtimes.kubernetes.watching import NamespaceWatch
from tests.cluster.logs import _part
from tests.kubernetes.pods.test_client import QuickClock

Play = Callable[[Callable[[web.Request], Awaitable[web.StreamResponse]]], Awaitable[Kubernetes]]


@pytest.fixture
async def play() -> AsyncIterator[Play]:
    """A client of a server that answers every request by this."""
    opened: list[tuple[Kubernetes, web.AppRunner]] = []

    async def make(answer: Callable[[web.Request], Awaitable[web.StreamResponse]]) -> Kubernetes:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", answer)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1, handler_cancellation=True)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        access = Access(f"http://127.0.0.1:{runner.addresses[0][1]}", None, "the played one")
        made = Kubernetes(access, clock=QuickClock(), metrics=KubernetesMetrics(CollectorRegistry()))
        opened.append((made, runner))
        return made

    yield make
    for client, runner in opened:
        await client.close()
        await runner.cleanup()


@pytest.mark.parametrize("width", [20, 3_000, 16_000])
async def test_the_end_of_a_log_is_its_end_however_long_its_lines_are(play: Play, tmp_path: Path, width: int) -> None:
    most = 64 << 10
    log = tmp_path / "log"
    log.write_text("".join(f"{n:>{width}}\n" for n in range(1_000)))

    async def answer(request: web.Request) -> web.StreamResponse:
        return web.Response(body=_part(log, request.query))

    told = await (await play(answer)).log(PODS, "n", "x", container="c", most=most)
    assert told is not None
    assert told.endswith(f"{999:>{width}}\n")
    assert len(told) == min(most, max(1, most // 100) * (width + 1)) // (width + 1) * (width + 1), "in whole lines"


async def test_429_without_a_time_means_a_moment(play: Play) -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        return web.json_response({"kind": "Status", "reason": "TooManyRequests"}, status=429)

    client = await play(answer)
    with pytest.raises(ApiError) as refused:
        await client.create(PODS, "n", {"metadata": {"name": "x"}})
    assert refused.value.retry_after is None
    assert client.pacing.creates_held == HOLD_SECONDS


async def test_a_watch_that_says_nothing_for_long_is_broken(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    assert client_module.SILENT_SECONDS == 120
    monkeypatch.setattr(client_module, "SILENT_SECONDS", 0.1)
    ended = asyncio.Event()

    async def answer(request: web.Request) -> web.StreamResponse:
        assert request.query["timeoutSeconds"] == "290"
        response = web.StreamResponse()
        await response.prepare(request)
        await ended.wait()
        return response

    client = await play(answer)
    with pytest.raises(ApiError) as silent:
        async for _ in client.watch(PODS, "n", labels={}, version="1"):
            pass
    ended.set()
    assert silent.value.code is None


class Lists:
    """A client whose lists and watches come one after the other; what follows them stands still."""

    def __init__(self, clock: QuickClock, *worlds: tuple[set[str], Mapping[str, Any] | None]) -> None:
        """The names that are there, and the one event that the watch after it tells before it ends."""
        self.clock, self._worlds = clock, list(worlds)
        self.registry = CollectorRegistry()
        self.metrics = KubernetesMetrics(self.registry)
        self._event: Mapping[str, Any] | None = None

    async def list_page(self, *_: Any, **__: Any) -> Page:
        if not self._worlds:
            await asyncio.Event().wait()
        names, self._event = self._worlds.pop(0)
        items = [{"metadata": {"name": name, "uid": name}} for name in sorted(names)]
        return Page(items, "1", "")

    async def watch(self, *_: Any, **__: Any) -> AsyncIterator[Object]:
        if self._event is not None:
            yield dict(self._event)


def name_of(found: Object | None) -> str | None:
    return None if found is None else str(found["metadata"]["name"])


@pytest.mark.parametrize(
    ("event", "reason"),
    [
        (None, "relist"),  # the server ended it, as it was asked to
        ({"type": "ERROR", "object": {"code": 500}}, "error"),
        ({"type": "ERROR", "object": {"code": 410}}, "gone"),
    ],
)
async def test_after_the_end_of_a_watch_all_is_listed_again(event: Mapping[str, Any] | None, reason: str) -> None:
    lists = Lists(QuickClock(), ({"stays", "goes"}, event), ({"stays", "comes"}, event))
    watch = NamespaceWatch(cast(Kubernetes, lists), PODS, "n", {})
    told: list[tuple[str | None, str | None]] = []
    came = asyncio.Event()

    def changed(before: Object | None, now: Object | None) -> None:
        told.append((name_of(before), name_of(now)))
        if len(told) == 4:
            came.set()

    watch.changed = changed
    async with watch.running(), asyncio.timeout(60):
        await came.wait()
    assert sorted(told[:2], key=str) == [(None, "goes"), (None, "stays")]
    assert set(told[2:]) == {("goes", None), (None, "comes")}
    restarts = "paddock_kubernetes_watch_restarts_total"
    assert {one: lists.registry.get_sample_value(restarts, {"reason": one}) for one in RESTARTS} == {
        one: float(one == reason) for one in RESTARTS
    }
    assert watch.last_seen("goes") is not None
