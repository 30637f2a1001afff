"""The whole worker as a process of its own, over HTTP."""

import asyncio
import os
import signal
import sys
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

import aiohttp
import psutil
import pytest

from paddock.jobs import wire
from paddock.jobs.link import LinkDown, LinkRefused, SessionUnknown
from paddock.worker.link import HttpLink
from tests.processes.running import alive
from tests.worker.conftest import is_running
from tests.worker.plane import Plane, until
from tests.worker.served import TOKEN, served
from tests.worker.test_shutdown import SOON


@dataclass
class Outside:
    process: asyncio.subprocess.Process
    health: str

    def runners(self) -> list[psutil.Process]:
        return psutil.Process(self.process.pid).children(recursive=True)

    def alive(self) -> list[psutil.Process]:
        """Without those that wait for a supervisor to bury them."""
        return [process for process in self.runners() if alive(process)]


@pytest.fixture
async def url(plane: Plane) -> AsyncIterator[str]:
    async with served(plane) as url:
        yield url


@pytest.fixture
async def outside(url: str) -> AsyncIterator[Outside]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tests.worker.served",
        url,
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    assert process.stdout is not None
    port = int(await process.stdout.readline())
    yield Outside(process, f"http://127.0.0.1:{port}")
    if process.returncode is None:
        process.kill()
    await process.wait()
    process._transport.close()  # type: ignore[attr-defined]


async def test_sigterm_while_a_handler_blocks_in_c_ends_the_process_cleanly(plane: Plane, outside: Outside) -> None:
    stuck, blocking = plane.add("stuck"), plane.add("stuck_blocking")
    await until(lambda: is_running(stuck) and is_running(blocking))
    runners = outside.runners()
    outside.process.send_signal(signal.SIGTERM)
    async with asyncio.timeout(SOON):  # the interpreter's own end included
        assert await outside.process.wait() == 0

    assert [job.releases[0].reason for job in (stuck, blocking)] == ["shutdown"] * 2
    assert not any(runner.is_running() for runner in runners)


async def test_runners_die_with_a_killed_supervisor(plane: Plane, outside: Outside) -> None:
    stuck, blocking = plane.add("stuck"), plane.add("stuck_blocking")
    await until(lambda: is_running(stuck) and is_running(blocking))
    runners = outside.runners()
    assert len(runners) == 2
    outside.process.kill()

    await until(lambda: not any(runner.is_running() for runner in runners))


@pytest.mark.slow
async def test_effects_outside_the_fence_stop_a_beat_before_the_lease_ends_though_their_supervisor_stands_still(
    plane: Plane, outside: Outside, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await until(lambda: plane.calls["claim"])
    plane.beat_seconds, plane.lease_seconds = 2, 6
    plane.sessions.clear()  # the new session gets these
    await until(lambda: plane.calls["register"] == 2)
    renewed: list[float] = []
    beat = plane.beat

    async def noted(session: UUID, message: wire.Beat) -> wire.Verdicts:
        if message.renew:
            renewed.append(time.monotonic())
        return await beat(session, message)

    monkeypatch.setattr(plane, "beat", noted)
    files = [tmp_path / "own", tmp_path / "child"]
    own, child = plane.add("effects", path=str(files[0])), plane.add("effects_of_a_child", path=str(files[1]))
    neighbour, apart = plane.add("forever"), plane.add("sleeper")
    await until(lambda: all(is_running(job) for job in (own, child, neighbour, apart)))
    await until(lambda: all(file.exists() for file in files) and renewed)
    after = plane.add("noop")
    await until(lambda: after.status == "completed")  # so the answer to that beat has reached the worker

    outside.process.send_signal(signal.SIGSTOP)
    try:
        await until(lambda: len(outside.alive()) == 1)
        lease_ended = renewed[-1] + plane.lease_seconds
        for file in files:
            last = float(file.read_text().split()[-1])
            assert last < lease_ended - plane.beat_seconds / 2, "a beat before, and a busy machine may be late"
    finally:
        outside.process.send_signal(signal.SIGCONT)
    await until(lambda: own.releases and child.releases and neighbour.releases)

    assert [own.releases[0].reason, child.releases[0].reason] == ["lease_ending"] * 2
    assert neighbour.releases[0].reason == "runner_killed"
    assert not any(job.outcomes for job in (own, child, neighbour)), "given back uncounted"
    assert not apart.releases, "what the fence protects goes on"


async def test_health_ready_and_metrics(plane: Plane, outside: Outside) -> None:
    job = plane.add("noop")
    await until(lambda: job.status == "completed")
    async with aiohttp.ClientSession() as client:
        async with client.get(f"{outside.health}/health") as answer:
            assert answer.status == 200
        async with client.get(f"{outside.health}/ready") as answer:
            assert answer.status == 200
        async with client.get(f"{outside.health}/metrics") as answer:
            assert 'paddock_handler_seconds_count{kind="noop",outcome="done"} 1.0' in await answer.text()


@pytest.mark.slow
async def test_a_worker_whose_lease_ended_is_not_ready(plane: Plane, outside: Outside) -> None:
    plane.lease_seconds = 0.5
    await until(lambda: plane.calls["claim"])
    plane.sessions.clear()  # the new session gets the short lease
    await until(lambda: plane.calls["register"] == 2)
    plane.outage()
    async with aiohttp.ClientSession() as client:

        async def status(path: str) -> int:
            async with client.get(outside.health + path) as answer:
                return answer.status

        async with asyncio.timeout(60):
            while await status("/ready") != 503:  # noqa: ASYNC110 - another process decides
                await asyncio.sleep(0.05)
        assert await status("/health") == 200


async def test_the_link_says_which_trouble_it_is(plane: Plane, url: str) -> None:
    link = HttpLink(url, lambda: TOKEN)
    register = wire.Register(worker_id="w", version="0", kinds=[])
    registered = await link.register(register)
    claim = wire.Claim(session=registered.session, claim_id=registered.session, kinds=[])
    assert (await link.claim(claim)).jobs == []

    plane.sessions.clear()
    with pytest.raises(SessionUnknown):
        await link.claim(claim)
    with pytest.raises(SessionUnknown):
        await link.beat(registered.session, wire.Beat(holding=[]))
    plane.outage()
    with pytest.raises(LinkDown, match="503"):
        await link.register(register)
    plane.back()
    for status, error in ((429, LinkDown), (500, LinkDown), (413, LinkRefused), (404, LinkRefused)):
        plane.refuse["register"] = LinkRefused("no", status)
        with pytest.raises(error):
            await link.register(register)
    await link.close()

    stranger = HttpLink(url, "another token")
    with pytest.raises(LinkRefused, match="401") as refused:
        await stranger.register(register)
    assert refused.value.status == 401
    assert "another token" not in str(refused.value)
    await stranger.close()

    nobody = HttpLink("http://127.0.0.1:9", TOKEN)
    with pytest.raises(LinkDown):
        await nobody.register(register)
    await nobody.close()
