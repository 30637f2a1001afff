"""Whoever tells an engine something that has just ended is not told of a broken pipe: the end itself is what they learn."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from paddock.graphs import engines
from paddock.graphs.engine import Engine, EngineFailed
from paddock.graphs.problems import Problem
from tests.graphs.inside import ask, loaded, rows
from tests.graphs.running import cities


async def test_a_query_of_an_engine_that_is_gone_can_still_be_cancelled(tmp_path: Path) -> None:
    async with loaded(tmp_path / "instance", cities(tmp_path / "store")) as inside:
        engine = await inside.engines.ready()
        slot = engine.take()
        engine.kill("timeout")
        await engine.end()

        await engine.cancel(slot, slot.number)

        engine.give_back(slot)


async def test_a_child_that_does_not_start_at_once_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engines, "PAUSES", (0.0, 0.01, 0.01))
    async with loaded(tmp_path / "instance", cities(tmp_path / "store")) as inside:
        start, tried = Engine.start, 0

        async def fails_once(*given: Any) -> Engine:
            nonlocal tried
            tried += 1
            if tried == 1:
                raise EngineFailed("The machine is full.")
            return await start(*given)

        monkeypatch.setattr(Engine, "start", fails_once)
        (await inside.engines.ready()).kill("timeout")
        assert await rows(inside, "MATCH (c:City) RETURN count(*)") == [[3]]
        assert (tried, inside.phase) == (2, "ready")


async def test_one_whose_child_never_starts_again_is_failed_and_waits_between_its_attempts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert sum(engines.PAUSES) > 5, "the machine may be full for a moment"
    assert all(later > 0 for later in engines.PAUSES[1:])
    async with loaded(tmp_path / "instance", cities(tmp_path / "store")) as inside:
        waiting, opened = asyncio.Event(), asyncio.Event()

        async def never(*given: Any) -> Engine:
            waiting.set()
            await opened.wait()
            raise OSError(24, "Too many open files")

        monkeypatch.setattr(engines, "PAUSES", (0.0, 0.01, 0.01))
        monkeypatch.setattr(Engine, "start", never)
        (await inside.engines.ready()).kill("timeout")
        await asyncio.wait_for(waiting.wait(), 60)
        query = ask(inside, "RETURN 1")
        opened.set()
        with pytest.raises(Problem) as refused:
            await asyncio.wait_for(query.piece(), 60)
        assert refused.value.status == 503
        error = inside.status()["error"]
        assert (inside.phase, error["cause"]) == ("failed", "database_does_not_open")
        with pytest.raises(Problem) as later:
            inside.require_ready()
        assert (later.value.status, later.value.details) == (409, {"state": "failed"})
