"""Deliveries that hang keep nobody else's waiting, and not the control plane's own upkeep."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web

from paddock.config import load
from paddock.jobs import events, upkeep
from paddock.jobs.core import Core, CoreSettings, open_core
from paddock.jobs.events import OwnedEvent, receiver_of
from paddock.jobs.kinds import Kind, Kinds
from paddock.jobs.model import NewEvent, NewJob
from paddock.jobs.outcomes import Outcome, done
from paddock.jobs.turn import Turn
from paddock.jobs.webhooks.delivering import WEBHOOK
from paddock.serve import InternalWorker, teams
from paddock.stopping import end
from tests.kinds import Anything
from tests.playing import until
from tests.webhook.receiver import answering, receiving

FACT = NewEvent("table.compacted", "tables/7")


async def hang(request: web.Request) -> web.StreamResponse:
    await asyncio.Event().wait()
    raise AssertionError("nothing sets it")


@asynccontextmanager
async def working(core: Core) -> AsyncIterator[None]:
    """The workers inside `paddock serve`."""
    inside = [InternalWorker(core, load(), team) for team in teams(core.kinds)]
    tasks = [asyncio.create_task(each.run()) for each in inside]
    try:
        yield
    finally:
        await end(*tasks)


async def subscribe(core: Core, owner: str, url: str) -> None:
    async with core.db.transaction() as tx:
        await tx.execute(
            "INSERT INTO webhooks (owner, url, types, secret) VALUES ($1, $2, '{*}', 'whsec_1')", owner, url
        )


async def emit(core: Core, owner: str, n: int = 1) -> None:
    async with core.db.transaction() as tx:
        await events.emit(core, tx, [OwnedEvent(FACT, owner)] * n)


async def test_a_receiver_that_hangs_keeps_nobody_waiting(dsn: str) -> None:
    async with (
        open_core(dsn, Kinds([WEBHOOK, *upkeep.KINDS]), CoreSettings(webhook_allow_private=True)) as core,
        receiving(hang, "127.0.0.1") as slow,
        receiving(answering(204), "127.0.0.2") as quick,
    ):
        await subscribe(core, "ann", slow.url())
        await emit(core, "ann", 200)
        async with working(core):
            await until(lambda: len(slow.requests) == WEBHOOK.shares.of_key)  # type: ignore[union-attr]
            await subscribe(core, "bob", quick.url("127.0.0.2"))
            await emit(core, "bob", 20)
            [figures] = (await core.submit([NewJob("figures", {})], public=False)).jobs
            await until(lambda: len(quick.requests) == 20)
            async with asyncio.timeout(60):
                while (job := await core.job(figures.id)) is None or not job.ended:  # noqa: ASYNC110  ended by a worker
                    await asyncio.sleep(0.01)
        assert len(slow.requests) == WEBHOOK.shares.of_key  # type: ignore[union-attr]


async def test_internal_jobs_that_hang_keep_no_pass_waiting(dsn: str) -> None:
    """They fill every slot that is not housekeeping's own, and many of one pass leave the slot of another free."""
    begun, over = 0, asyncio.Event()

    async def wait(turn: Turn[Anything]) -> Outcome:
        nonlocal begun
        begun += 1
        await over.wait()
        return done()

    slow = Kind(name="slow", payload=Anything, handler=wait, internal=True)
    stuck = Kind(name="stuck_pass", payload=Anything, handler=wait, internal=True, housekeeping=True)
    async with open_core(dsn, Kinds([slow, stuck, *upkeep.KINDS])) as core:
        rest, housekeeping = teams(core.kinds)
        await core.submit([NewJob("slow", {}) for _ in range(60)], public=False)
        await core.submit([NewJob("stuck_pass", {}, priority=1) for _ in range(20)], public=False)
        async with working(core):
            await until(lambda: begun == rest.slots + 1)
            [figures] = (await core.submit([NewJob("figures", {}, priority=4)], public=False)).jobs
            async with asyncio.timeout(60):
                while (job := await core.job(figures.id)) is None or not job.ended:  # noqa: ASYNC110  ended by a worker
                    await asyncio.sleep(0.01)
            assert job.status == "completed"
            assert begun == rest.slots + 1
            assert housekeeping.slots == 3
            over.set()
            async with asyncio.timeout(60):
                while await core.db.pool("relaxed").fetchval("SELECT count(*) FROM jobs"):  # noqa: ASYNC110  the same
                    await asyncio.sleep(0.01)


async def test_housekeeping_has_a_slot_for_each_kind_beside_everything_else(dsn: str) -> None:
    rest, housekeeping = teams(Kinds([WEBHOOK, *upkeep.KINDS]))
    assert {kind.name for kind in rest.kinds} == {"webhook", "bulk"}
    assert {kind.name for kind in housekeeping.kinds} == {"figures", "upkeep"}
    assert housekeeping.slots == 2
    assert rest.slots > (WEBHOOK.concurrency or 0)


def test_a_receiver_is_a_host_in_one_spelling() -> None:
    assert receiver_of("https://Hooks.Example.com.:8443/a?token=1") == "hooks.example.com"
    assert receiver_of("https://[::1]/") == "::1"
    assert receiver_of("https://[broken/") == ""
