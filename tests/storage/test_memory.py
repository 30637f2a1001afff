import asyncio

import pytest

from paddock.storage.memory import Memory


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


class Holder:
    """Reserves, says so, and holds until told."""

    def __init__(self, memory: Memory, size: int, order: list[str], name: str) -> None:
        self.let_go = asyncio.Event()
        self.task = asyncio.create_task(self._hold(memory, size, order, name))

    async def _hold(self, memory: Memory, size: int, order: list[str], name: str) -> None:
        async with memory.reserve(size):
            order.append(name)
            await self.let_go.wait()

    async def end(self) -> None:
        self.let_go.set()
        await self.task


async def test_first_come_first_served_though_a_later_one_would_fit() -> None:
    memory, order = Memory(10), list[str]()
    first = Holder(memory, 6, order, "first")
    big = Holder(memory, 10, order, "big")
    small = Holder(memory, 1, order, "small")
    await settle()
    assert order == ["first"]

    await first.end()
    await settle()
    assert order == ["first", "big"]
    await big.end()
    await small.end()

    assert order == ["first", "big", "small"]
    assert (memory.used, memory.waiting) == (0, 0)


async def test_more_than_all_is_all() -> None:
    memory = Memory(10)

    async with memory.reserve(1000) as reserved:
        assert reserved == memory.used == 10
    async with memory.reserve(-5) as reserved:
        assert reserved == memory.used == 0


async def test_who_gives_up_waiting_does_not_hold_up_the_others() -> None:
    memory, order = Memory(10), list[str]()
    first = Holder(memory, 6, order, "first")
    big = Holder(memory, 10, order, "big")
    small = Holder(memory, 1, order, "small")
    await settle()

    big.task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await big.task
    await settle()

    assert order == ["first", "small"]
    await first.end()
    await small.end()
    assert (memory.used, memory.waiting) == (0, 0)


async def test_cancelled_in_the_moment_of_its_turn_it_passes_the_turn_on() -> None:
    memory, order = Memory(10), list[str]()
    async with memory.reserve(10):
        second = Holder(memory, 10, order, "second")
        third = Holder(memory, 10, order, "third")
        await settle()

    # The turn is the second's, who has not run since.
    assert (memory.used, memory.waiting) == (10, 1)
    second.task.cancel()
    await settle()

    assert order == ["third"]
    await third.end()
    assert memory.used == 0


async def test_an_error_gives_back_what_was_reserved() -> None:
    memory = Memory(10)

    with pytest.raises(ValueError, match="mine"):
        async with memory.reserve(7):
            raise ValueError("mine")

    assert memory.used == 0
