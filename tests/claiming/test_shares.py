"""Kinds with shares: whoever has its share of a worker's slots leaves the others to those who came later."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from uuid import UUID, uuid4

import pytest
from pydantic import BaseModel

from paddock.jobs import wire
from paddock.jobs.core import Core, open_core
from paddock.jobs.kinds import Kind, Kinds, Shares
from paddock.jobs.model import NewJob
from tests.kinds import ANYBODY, OTHER, PLAIN, nothing
from tests.playing import Attempt, PlayedWorker, until


class Sending(BaseModel):
    to: str


SENDING = Kind(
    name="sending",
    payload=Sending,
    handler=nothing,
    submit=ANYBODY,
    shares=Shares(lambda payload: payload.to, of_owner=3, of_key=2),
)


@pytest.fixture
async def sharing(dsn: str) -> AsyncIterator[Core]:
    async with open_core(dsn, Kinds([SENDING, PLAIN, OTHER])) as core:
        yield core


async def worker(core: Core) -> PlayedWorker:
    link = core.link()
    kinds = [kind.name for kind in core.kinds]
    return PlayedWorker(
        link, (await link.register(wire.Register(worker_id="w", version="1", kinds=kinds, slots=10))).session
    )


async def send(core: Core, owner: str, to: str, n: int = 1, **fields: int) -> None:
    await core.submit([NewJob("sending", {"to": to}, owner=owner, **fields) for _ in range(n)])  # type: ignore[arg-type]


def to_whom(attempts: list[Attempt]) -> Counter[tuple[str, str]]:
    return Counter(
        (attempt.job.owner, Sending.model_validate_json(bytes(attempt.job.payload)).to) for attempt in attempts
    )


async def test_what_came_later_passes_a_key_that_has_its_share(sharing: Core) -> None:
    await send(sharing, "ann", "slow", 20)
    await send(sharing, "bob", "slow")
    await send(sharing, "bob", "quick")
    played = await worker(sharing)

    assert to_whom(await played.claim("sending")) == {("ann", "slow"): 2, ("bob", "quick"): 1}
    assert await played.claim("sending") == []


async def test_an_owner_with_many_keys_gets_no_more_than_its_share(sharing: Core) -> None:
    for n in range(8):
        await send(sharing, "ann", f"slow{n}")
    await send(sharing, "bob", "quick")
    played = await worker(sharing)

    assert to_whom(await played.claim("sending")) == {
        **{("ann", f"slow{n}"): 1 for n in range(3)},
        ("bob", "quick"): 1,
    }
    assert await played.claim("sending") == []


async def test_each_worker_has_its_own_slots_to_share(sharing: Core) -> None:
    await send(sharing, "ann", "slow", 20)
    for _ in range(2):
        assert to_whom(await (await worker(sharing)).claim("sending")) == {("ann", "slow"): 2}


async def test_the_order_is_that_of_every_claim(sharing: Core) -> None:
    await send(sharing, "ann", "late", priority=4)
    await send(sharing, "bob", "early", priority=4)
    await send(sharing, "ann", "urgent", priority=1)
    played = await worker(sharing)

    claimed = [await played.claim("sending", limit=1) for _ in range(3)]
    assert [next(iter(to_whom(attempts)))[1] for attempts in claimed] == ["urgent", "late", "early"]


async def test_a_waiting_claim_is_woken_by_a_share_that_becomes_free(sharing: Core) -> None:
    await send(sharing, "ann", "slow", 3)
    played = await worker(sharing)
    held = await played.claim("sending")
    waiting = asyncio.create_task(played.claim("sending", wait=30))
    await until(lambda: any(not waiter.everything for waiter in sharing.claims.waiters))

    assert await held[0].finish() == "accepted"
    async with asyncio.timeout(20):
        assert to_whom(await waiting) == {("ann", "slow"): 1}


async def test_a_lost_answer_brings_the_same_jobs_again_and_no_more(sharing: Core) -> None:
    await send(sharing, "ann", "slow", 3)
    await send(sharing, "bob", "quick", 3)
    played, claim_id = await worker(sharing), uuid4()
    first = await played.claim("sending", limit=3, claim_id=claim_id)
    again = await played.claim("sending", limit=3, claim_id=claim_id)
    assert [a.job.attempt_id for a in again] == [a.job.attempt_id for a in first]


async def test_a_paused_kind_and_a_dead_session_get_nothing(sharing: Core) -> None:
    await send(sharing, "ann", "slow")
    played = await worker(sharing)
    async with sharing.db.transaction() as tx:
        await tx.execute("UPDATE kinds SET paused = name = 'sending'")
    assert await played.claim("sending") == []
    async with sharing.db.transaction() as tx:
        await tx.execute("UPDATE kinds SET paused = false")
        await tx.execute("UPDATE sessions SET expires_at = paddock_now()")
    assert await played.claim("sending") == []


async def test_neither_keeps_the_other_kinds_waiting(sharing: Core) -> None:
    for n in range(4):
        await send(sharing, f"owner{n}", f"host{n}")
    await sharing.submit([NewJob("plain", {}, owner="ann") for _ in range(4)])
    played = await worker(sharing)

    claimed = [await played.claim("sending", "plain", limit=1) for _ in range(4)]
    assert Counter(job.job.kind for attempts in claimed for job in attempts) == {"sending": 2, "plain": 2}


async def test_workers_that_claim_at_once_take_each_job_once(sharing: Core) -> None:
    for n in range(30):
        await send(sharing, f"owner{n % 7}", f"host{n % 5}", 2)
    workers = [await worker(sharing) for _ in range(4)]
    taken: list[UUID] = []

    async def work(played: PlayedWorker) -> None:
        while attempts := await played.claim("sending", limit=4):
            taken.extend(attempt.job.id for attempt in attempts)
            for attempt in attempts:
                assert await attempt.finish() == "accepted"

    async with asyncio.timeout(60):
        while len(taken) < 60:
            await asyncio.gather(*map(work, workers))
    assert len(set(taken)) == len(taken) == 60
