"""Work that must not run on the event loop.

`CPU` decodes and encodes: two threads, because the libraries give up the interpreter's lock while they work. `IO` waits
for disks and stores. Both are joined when the process exits: a store's library that is still at work while Python
shuts down would abort it.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar, TypeVarTuple

Result = TypeVar("Result")
Arguments = TypeVarTuple("Arguments")

CPU = ThreadPoolExecutor(max_workers=2, thread_name_prefix="paddock-cpu")
IO = ThreadPoolExecutor(max_workers=32, thread_name_prefix="paddock-io")


def _guarded(function: Callable[[*Arguments], Result], *args: *Arguments) -> Result:
    """A future takes every exception but this one, and whoever waits for it would wait for ever."""
    try:
        return function(*args)
    except StopIteration as problem:
        raise RuntimeError(f"{function} raised StopIteration") from problem


async def on_cpu(function: Callable[[*Arguments], Result], *args: *Arguments) -> Result:
    """A cancelled caller goes on only when the function has ended: what it worked on may then be closed."""
    return await _to_its_end(CPU.submit(lambda: _guarded(function, *args)))


async def on_io(function: Callable[[*Arguments], Result], *args: *Arguments) -> Result:
    """A cancelled caller goes on at once; the function ends by itself, bounded by the store's time-outs."""
    return await asyncio.wrap_future(IO.submit(lambda: _guarded(function, *args)))


async def change_on_io(function: Callable[[*Arguments], Result], *args: *Arguments) -> Result:
    """For what others see. A cancelled caller goes on only when it is done, or will never be: who cleans up behind it
    must not be overtaken by it."""
    return await _to_its_end(IO.submit(lambda: _guarded(function, *args)))


async def _to_its_end(future: Future[Result]) -> Result:
    try:
        return await asyncio.shield(asyncio.wrap_future(future))
    except asyncio.CancelledError:
        await ended(future)
        raise


async def ended(future: Future[Result]) -> None:
    """Waits until the function no longer runs, whatever becomes of it and however often the caller is cancelled."""
    if future.cancel():
        return
    watched = asyncio.wrap_future(future)
    while not watched.done():
        try:
            await asyncio.wait([watched])
        except asyncio.CancelledError:
            continue
    if not watched.cancelled():
        watched.exception()
