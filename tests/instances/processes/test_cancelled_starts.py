"""A start that is cancelled before its process is there takes nothing from the instance but what ran before."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx2
import pytest

from paddock.config import Config
from paddock.jobs.core import Core
from paddock.runtimes.local import LocalRuntime
from paddock.runtimes.runtime import Start
from tests.instances.processes.graph import WHOLE, Held, counted, real_snapshot
from tests.instances.world import running, until_idle, until_status, working

pytestmark = pytest.mark.slow


@asynccontextmanager
async def held_before_its_process(
    core: Core, config: Config, runtime: LocalRuntime, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[asyncio.Event]:
    """A worker that comes to the start of a process, and no further."""
    reached = asyncio.Event()

    async def held(start: Start) -> bool:
        reached.set()
        await asyncio.Event().wait()
        raise AssertionError("it was not cancelled")

    with monkeypatch.context() as patched:
        patched.setattr(runtime, "start", held)
        async with working(core, config):
            yield reached
            await until_idle(core)


async def cancel_start(client: httpx2.AsyncClient) -> None:
    jobs = (await client.get("/api/jobs", params={"kind": "instance_start"})).json()["data"]
    [job] = [one for one in jobs if one["status"] != "completed"]
    answer = await client.post(f"/api/jobs/{job['id']}/cancel")
    assert answer.status_code == 200, answer.text


@pytest.mark.parametrize("at_work", [False, True], ids=["waiting", "at work"])
async def test_a_cancelled_reopening_keeps_what_was_loaded(
    core: Core,
    config: Config,
    runtime: LocalRuntime,
    ada: httpx2.AsyncClient,
    monkeypatch: pytest.MonkeyPatch,
    at_work: bool,
) -> None:
    async with working(core, config):
        made = await running(core, ada, await real_snapshot(core, config))
        await until_idle(core)
    held, path = Held(runtime.root, made["id"]), f"/api/instances/{made['id']}"
    assert (await ada.post(f"{path}/reopen")).status_code == 202
    if not at_work:
        await cancel_start(ada)
    async with held_before_its_process(core, config, runtime, monkeypatch) as reached:
        if at_work:
            await asyncio.wait_for(reached.wait(), 60)
            await cancel_start(ada)
        found = await until_status(core, made["id"], "failed")
    assert found.error is not None
    assert found.error["cause"] == "start_cancelled"
    assert held.processes() == [], "what ran before it was reopened"
    assert await runtime.list() == [], "what is there is nobody's but the instance's"

    async with working(core, config):
        assert (await ada.post(f"{path}/reopen")).status_code == 202
        await until_status(core, made["id"], "running")
        assert (await ada.get(f"{path}/status")).json()["data"]["from_database"] is True
        assert await counted(ada, made["id"]) == WHOLE
        await ada.delete(path)
        await until_idle(core)
    assert not held.folder.exists()
