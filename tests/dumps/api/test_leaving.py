"""Dumps that get nowhere, and copies of dumps that ended elsewhere: nothing of them stays."""

import asyncio
from uuid import UUID, uuid4

import apsw
import httpx2
import pytest
from fastapi import FastAPI
from pydantic import SecretStr

from paddock import work
from paddock.config import Config
from paddock.dumps import old_copies
from paddock.dumps.resources import DumpResources
from paddock.jobs import rescuing, wire
from paddock.jobs.core import Core
from paddock.jobs.model import JobId
from paddock.worker.ending import item_for
from paddock.worker.link import HttpLink
from paddock.worker.turns import TurnPort, build_turn
from tests.api.conftest import Clients, serving
from tests.conftest import DatabaseClock
from tests.dumps.api.conftest import Played, Start, status
from tests.dumps.api.inside import Nobody
from tests.playing import Attempt, passes


class Saving(Nobody):
    """The owner of a turn whose saves reach the control plane."""

    def __init__(self, attempt: Attempt) -> None:
        self._attempt = attempt
        self.port = TurnPort(attempt.job, self, asyncio.get_running_loop())
        self._tasks: set[asyncio.Task[None]] = set()

    def save(self, item: wire.SaveItem) -> None:
        self._tasks.add(asyncio.create_task(self._save(item)))

    async def _save(self, item: wire.SaveItem) -> None:
        [verdict] = (await self._attempt.link.save(wire.Save(items=[item]))).verdicts
        self.port.saved(verdict.verdict, None)


async def test_a_dump_that_gets_nowhere_for_ten_minutes_fails_and_its_upload_is_aborted(
    core: Core, config: Config, clock: DatabaseClock, ada: httpx2.AsyncClient, played: Played, start: Start
) -> None:
    shop = apsw.Connection(str(config.data / "shop.db"))
    shop.execute("PRAGMA journal_mode = wal; CREATE TABLE orders (id); INSERT INTO orders VALUES (1)")
    shop.close()
    resources, sending = DumpResources(config), asyncio.Event()

    async def never(key: str, upload: str, number: int, offset: int, data: bytes) -> str:
        sending.set()
        await asyncio.Event().wait()
        raise AssertionError

    resources.parts.send = never  # type: ignore[method-assign]
    id = await start()
    worker = await played._worker()
    attempt = await worker.claim_one("dump:shop")
    kind = core.kinds["dump:shop"]
    blocked = asyncio.create_task(kind.handler(build_turn(kind, attempt.job, Saving(attempt).port), resources))
    await sending.wait()
    [upload] = played.files()
    assert "#" in upload

    await passes(core, clock, worker, attempt, minutes=10)
    assert await rescuing.keep_timeouts(core) == 0, "the worker's head start"
    await passes(core, clock, worker, attempt, minutes=1)
    assert await rescuing.keep_timeouts(core) == 1
    found = await status(ada, id)
    assert (found["status"], found["errorMessage"]) == ("failed", "Export job timed out after 10 minutes")
    job = await core.job(attempt.id)
    assert job is not None
    assert (job.status, job.error_code) == ("failed", "stalled")

    blocked.cancel()
    await asyncio.wait([blocked])
    assert await attempt.release() == "stale_attempt"
    cleanup = await worker.claim_one("dump:shop")
    assert cleanup.job.cleanup_of == attempt.id
    assert kind.cleanup is not None
    turn = build_turn(kind, cleanup.job, Saving(cleanup).port)
    await cleanup.link.finish(wire.Finish(items=[item_for(cleanup.job, await kind.cleanup(turn, resources))]))
    assert played.files() == []
    assert list((config.data / ".shop.db.dumps").glob("*/*")) == []


@pytest.mark.parametrize("at_once", [1, 1_000])
async def test_a_worker_removes_the_copies_of_ended_dumps_and_no_others(
    app: FastAPI,
    clients: Clients,
    config: Config,
    played: Played,
    start: Start,
    monkeypatch: pytest.MonkeyPatch,
    at_once: int,
) -> None:
    monkeypatch.setattr(old_copies, "ASKED_AT_ONCE", at_once)
    ended: list[UUID] = []
    for _ in range(3):
        await start()
        attempt = await played.claim()
        await played.complete(attempt)
        ended.append(attempt.id)
    await start()
    live = (await played.claim()).id
    foreign = JobId(uuid4())
    folder = config.data / ".shop.db.dumps"
    for job in (*ended, live, foreign):
        (folder / str(job)).mkdir(parents=True)
        (folder / str(job) / "a1.db").write_bytes(b"x")
    async with serving(app) as (_, url):
        told = config.model_copy(update={"server": url, "token": SecretStr(clients.secrets["worker"])})
        link = HttpLink(url, work.token_of(told))
        await old_copies.remove_old_copies(told, link)
        await link.close()
    assert {path.name for path in folder.iterdir()} == {str(live), str(foreign)}
