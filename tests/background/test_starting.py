"""What a control plane does at its start while its database comes and goes."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from paddock import serve
from paddock.api.starting import OPENING, Starting


class Alongside:
    """What a capability does at a start, on a database that refuses it so many times."""

    def __init__(self, *problems: Exception) -> None:
        self.problems = list(problems)
        self.entered = 0

    @contextlib.asynccontextmanager
    async def __call__(self) -> AsyncIterator[None]:
        if self.problems:
            raise self.problems.pop(0)
        self.entered += 1
        yield


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serve, "RETRY_START", timedelta(0))


async def enter(alongside: Alongside, stop: asyncio.Event | None = None) -> Starting:
    starting = Starting(lambda: None)
    async with contextlib.AsyncExitStack() as stack:
        await serve._enter(stack, alongside, stop or asyncio.Event(), starting)
    return starting


async def test_a_database_that_goes_between_its_opening_and_the_start_is_waited_for() -> None:
    alongside = Alongside(ConnectionRefusedError("refused"), ConnectionResetError("reset"))
    starting = await enter(alongside)
    assert alongside.entered == 1
    assert starting.problem is not OPENING, "it said so meanwhile"


async def test_a_stop_ends_the_waiting() -> None:
    stop = asyncio.Event()
    stop.set()
    alongside = Alongside(ConnectionRefusedError("refused"))
    await enter(alongside, stop)
    assert alongside.entered == 0


async def test_a_file_that_is_missing_is_no_database_that_is_away() -> None:
    with pytest.raises(FileNotFoundError):
        await enter(Alongside(FileNotFoundError(2, "No such file", "/nowhere")))
