import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from paddock.storage.threads import change_on_io, on_cpu, on_io


async def test_what_the_function_gives_or_raises_comes_back() -> None:
    assert await on_cpu(max, 1, 2) == 2
    with pytest.raises(ZeroDivisionError):
        await on_cpu(divmod, 1, 0)
    assert await on_io(max, 1, 2) == 2


@pytest.mark.parametrize("on_thread", [on_cpu, on_io, change_on_io])
async def test_what_a_future_does_not_take_is_raised_all_the_same(
    on_thread: Callable[..., Coroutine[Any, Any, int]],
) -> None:
    with pytest.raises(RuntimeError, match="StopIteration"):
        await asyncio.wait_for(on_thread(next, iter([])), 60)


@pytest.mark.parametrize("on_thread", [on_cpu, change_on_io])
async def test_a_cancelled_caller_waits_for_the_thread(on_thread: Callable[..., Coroutine[Any, Any, None]]) -> None:
    begun, may_end, ended = threading.Event(), threading.Event(), threading.Event()

    def work() -> None:
        begun.set()
        may_end.wait()
        ended.set()
        raise ValueError("nobody wants to know any more")

    caller = asyncio.create_task(on_thread(work))
    await asyncio.to_thread(begun.wait)
    for _ in range(3):
        caller.cancel()
        await asyncio.sleep(0.01)
    assert not caller.done()

    may_end.set()
    with pytest.raises(asyncio.CancelledError):
        await caller
    assert ended.is_set()


async def test_work_that_was_cancelled_before_its_turn_is_never_done() -> None:
    may_end, done = threading.Event(), threading.Event()
    busy = [asyncio.create_task(on_cpu(may_end.wait)) for _ in range(2)]
    waiting = asyncio.create_task(on_cpu(done.set))
    await asyncio.sleep(0)

    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    may_end.set()
    await asyncio.gather(*busy)

    await on_cpu(max, 1, 2)
    assert not done.is_set()
