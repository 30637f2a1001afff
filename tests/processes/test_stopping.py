"""Tasks that run for ever are ended, whatever they make of a cancel."""

import asyncio
import gc

import pytest

from paddock import stopping
from paddock.stopping import cancel, end


async def test_a_loop_that_takes_a_cancel_for_an_error_is_cancelled_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stopping, "AGAIN_SECONDS", 0.01)
    swallowed = 0

    async def loop() -> None:
        nonlocal swallowed
        while True:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                # What asyncpg does when its connection dies at that moment: it raises an error of its own, which is
                # then handled like any other.
                swallowed += 1
                if swallowed == 3:
                    raise

    stubborn, plain = asyncio.create_task(loop()), asyncio.create_task(asyncio.Event().wait())
    await asyncio.sleep(0)
    await end(stubborn, plain)
    assert stubborn.cancelled()
    assert plain.cancelled()


async def test_what_one_failed_with_is_raised() -> None:
    async def failing() -> None:
        raise RuntimeError("broken")

    task = asyncio.create_task(failing())
    await asyncio.sleep(0)
    with pytest.raises(RuntimeError, match="broken"):
        await end(task)


async def test_to_cancel_raises_nothing_and_leaves_nothing_to_complain_of() -> None:
    complaints: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))

    async def failing() -> None:
        raise RuntimeError("broken")

    failed, waiting = asyncio.create_task(failing()), asyncio.create_task(asyncio.Event().wait())
    await asyncio.sleep(0)
    await cancel(failed, waiting)
    assert waiting.cancelled()
    del failed
    gc.collect()
    assert complaints == []
