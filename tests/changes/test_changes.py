"""The ring of changed jobs: nothing that changed is missed, or the watcher is told to start over."""

import asyncio
from uuid import uuid4

import pytest

from paddock.jobs.changes import RING, Changes
from paddock.jobs.model import JobId


def ids(n: int) -> list[JobId]:
    return [JobId(uuid4()) for _ in range(n)]


async def test_a_subscriber_hears_what_changed_since_it_last_asked() -> None:
    changes, (a, b, c) = Changes(), ids(3)
    changes.record([a])
    async with changes.subscribe() as subscription:
        changes.record([b])
        changes.record([c, b])
        changed = await subscription.next()
        assert (changed.ids, changed.overflow, changed.position) == (frozenset({b, c}), False, 4)
        waiting = asyncio.create_task(subscription.next())
        await asyncio.sleep(0)
        assert not waiting.done()
        changes.record([a])
        assert (await waiting).ids == {a}


async def test_every_subscriber_hears_everything() -> None:
    changes, known = Changes(), ids(200)
    heard: list[set[JobId]] = [set(), set(), set()]

    async def watch(into: set[JobId], pause: int) -> None:
        async with changes.subscribe() as subscription:
            while len(into) < len(known):
                into |= (await subscription.next()).ids
                for _ in range(pause):
                    await asyncio.sleep(0)

    watchers = [asyncio.create_task(watch(into, pause)) for into, pause in zip(heard, (0, 1, 7), strict=True)]
    await asyncio.sleep(0)
    for id in known:
        changes.record([id])
        await asyncio.sleep(0)
    async with asyncio.timeout(60):
        await asyncio.gather(*watchers)
    assert heard == [set(known)] * 3


async def test_one_that_fell_too_far_behind_starts_over() -> None:
    changes = Changes()
    async with changes.subscribe() as subscription:
        changes.record(ids(RING + 1))
        changed = await subscription.next()
        assert (changed.ids, changed.overflow) == (frozenset(), True)
        [a] = ids(1)
        changes.record([a])
        assert (await subscription.next()).ids == {a}


async def test_just_within_the_ring_nothing_is_missed() -> None:
    changes, known = Changes(), ids(RING)
    changes.record(ids(10))
    async with changes.subscribe() as subscription:
        changes.record(known)
        changed = await subscription.next()
        assert (changed.ids, changed.overflow) == (frozenset(known), False)


async def test_after_a_gap_everybody_starts_over() -> None:
    changes = Changes()
    changes.record(ids(3))
    epoch, position = changes.epoch, changes.position
    async with changes.subscribe() as subscription:
        waiting = asyncio.create_task(subscription.next())
        await asyncio.sleep(0)
        changes.forget()
        assert (await waiting).overflow
    assert changes.since(epoch, position) is None
    assert changes.since(changes.epoch, changes.position) == frozenset()


async def test_a_position_of_another_process_cannot_be_told() -> None:
    changes = Changes()
    changes.record(ids(3))
    assert changes.since("elsewhere", 1) is None
    assert changes.since(changes.epoch, 99) is None
    assert changes.since(changes.epoch, -1) is None
    assert len(changes.since(changes.epoch, 1) or ()) == 2


class TestWaitingForOneJob:
    async def test_its_change_and_no_other_ends_the_wait(self) -> None:
        changes, (a, b) = Changes(), ids(2)
        waiting = asyncio.create_task(changes.wait_for(a, 30))
        await asyncio.sleep(0)
        changes.record([b])
        await asyncio.sleep(0)
        assert not waiting.done()
        changes.record([a])
        assert await waiting

    async def test_time_is_up(self) -> None:
        changes, (a,) = Changes(), ids(1)
        assert not await changes.wait_for(a, 0.01)

    async def test_a_gap_ends_every_wait(self) -> None:
        changes, (a,) = Changes(), ids(1)
        waiting = asyncio.create_task(changes.wait_for(a, 30))
        await asyncio.sleep(0)
        changes.forget()
        assert await waiting

    @pytest.mark.parametrize("how", ["changed", "timed out", "cancelled"])
    async def test_nothing_is_left_behind(self, how: str) -> None:
        changes, (a,) = Changes(), ids(1)
        waiting = asyncio.create_task(changes.wait_for(a, 0.01 if how == "timed out" else 30))
        await asyncio.sleep(0)
        if how == "changed":
            changes.record([a])
        if how == "cancelled":
            waiting.cancel()
        await asyncio.wait([waiting])
        assert not changes._watched


async def test_memory_is_bounded() -> None:
    changes = Changes()
    for _ in range(5):
        changes.record(ids(RING))
    assert len(changes._ring) == RING
