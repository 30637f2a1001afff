from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest

from paddock.engines.trino.engine import TrinoEngine
from tests.trino.misbehaving import Misbehaving, misbehaving
from tests.trino.server import TrinoServer, trino

__all__ = ["trino"]

MakeEngine = Callable[..., TrinoEngine]


@pytest.fixture
async def engine_of(trino: TrinoServer) -> AsyncIterator[MakeEngine]:
    """Engines on the real server, each with its own settings."""
    async with AsyncExitStack() as stack:

        def make(**changes: Any) -> TrinoEngine:
            engine = TrinoEngine("warehouse", trino.settings(**changes))
            stack.push_async_callback(engine.close)
            return engine

        yield make


@pytest.fixture
def engine(engine_of: MakeEngine) -> TrinoEngine:
    return engine_of()


@pytest.fixture
async def bad() -> AsyncIterator[Misbehaving]:
    async with misbehaving() as server:
        yield server


@pytest.fixture
async def bad_engine(bad: Misbehaving) -> AsyncIterator[MakeEngine]:
    async with AsyncExitStack() as stack:

        def make(**changes: Any) -> TrinoEngine:
            engine = TrinoEngine("bad", bad.settings(**changes))
            stack.push_async_callback(engine.close)
            return engine

        yield make
