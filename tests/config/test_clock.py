import asyncio

from paddock.clock import Clock, ManualClock, SystemClock


async def tick(clock: Clock, every: float, seen: list[float]) -> None:
    while True:
        await clock.sleep(every)
        seen.append(clock.monotonic())


async def test_advancing_lives_through_every_deadline() -> None:
    clock, seen = ManualClock(), list[float]()
    task = asyncio.create_task(tick(clock, 1, seen))

    await clock.advance(3.5)

    assert seen == [1, 2, 3]
    assert clock.monotonic() == 3.5
    task.cancel()


async def test_jumping_skips_what_was_slept_through() -> None:
    clock, seen = ManualClock(), list[float]()
    task = asyncio.create_task(tick(clock, 1, seen))
    await clock.settle()

    clock.jump(5)
    await clock.settle()

    assert seen == [5]
    task.cancel()


async def test_sleepers_wake_by_deadline_then_by_order() -> None:
    clock, woken = ManualClock(start=100), list[str]()

    async def sleeper(name: str, seconds: float) -> None:
        await clock.sleep(seconds)
        woken.append(name)

    async with asyncio.TaskGroup() as group:
        for name, seconds in [("late", 3.0), ("first", 1.0), ("second", 1.0), ("now", 0.0)]:
            group.create_task(sleeper(name, seconds))
        await clock.settle()
        assert (woken, clock.sleeping) == (["now"], 3)
        await clock.advance(3)

    assert woken == ["now", "first", "second", "late"]


async def test_a_cancelled_sleeper_is_forgotten() -> None:
    clock = ManualClock()
    task = asyncio.create_task(clock.sleep(1))
    await clock.settle()
    task.cancel()
    await clock.settle()

    assert clock.sleeping == 0
    await clock.advance(2)
    assert task.cancelled()


async def test_the_system_clock_runs() -> None:
    clock = SystemClock()
    before = clock.monotonic()

    await clock.sleep(0.001)

    assert clock.monotonic() > before
