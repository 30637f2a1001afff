"""What algorithms write: a copy of the database takes its place, and queries go on all the time."""

import asyncio
import copy
from pathlib import Path
from typing import Any

import pytest

from paddock.graphs.databases import Databases
from paddock.graphs.instance import Instance
from paddock.graphs.problems import Problem
from tests.graphs.inside import ask, in_engine, loaded, rows, start_of
from tests.graphs.running import cities, is_gone, until

ENDLESS = "UNWIND range(1, 1000000) AS x UNWIND range(1, 1000000) AS y WITH x WHERE x % 2 = 7 RETURN count(x)"
ADDED = ("ALTER TABLE City ADD rank DOUBLE", "MATCH (c:City) SET c.rank = 0.5", "CHECKPOINT")


def with_rank(inside: Instance) -> dict[str, list[dict[str, Any]]]:
    assert inside.current is not None
    definitions = copy.deepcopy(inside.current.definitions)
    definitions["nodes"][0]["properties"].append({"name": "rank", "type": "DOUBLE", "made_by": "pagerank"})
    return definitions


async def add_rank(database: Path) -> None:
    await asyncio.to_thread(in_engine, "ladybug", database, *ADDED)


async def test_queries_see_the_new_database_while_one_that_runs_ends_on_the_old(tmp_path: Path) -> None:
    async with loaded(tmp_path / "instance", cities(tmp_path / "store")) as inside:
        old_engine = await inside.engines.ready()
        running = ask(inside, ENDLESS)
        await until(lambda: inside.queries.in_flight == 1)

        await inside.change_database(add_rank, with_rank(inside))

        assert await rows(inside, "MATCH (c:City) RETURN DISTINCT c.rank") == [[0.5]]
        assert running.ended is None
        running.stop("cancelled")
        with pytest.raises(Problem, match="cancelled"):
            await running.piece()
        await old_engine.ended()
        assert await rows(inside, "MATCH (c:City) RETURN count(*)") == [[3]]
        assert inside.engines.restarts.total() == 0
        assert [entry.name for entry in (tmp_path / "instance" / "db").iterdir()] == ["2"]


async def test_a_change_that_fails_leaves_the_old_database_and_nothing_else(tmp_path: Path) -> None:
    async with loaded(tmp_path / "instance", cities(tmp_path / "store")) as inside:

        async def fail(database: Path) -> None:
            in_engine("ladybug", database, *ADDED[:1])
            raise RuntimeError("the writer died")

        with pytest.raises(RuntimeError, match="the writer died"):
            await inside.change_database(fail, with_rank(inside))

        assert [entry.name for entry in (tmp_path / "instance" / "db").iterdir()] == ["1"]
        found = Databases(tmp_path / "instance").current()
        assert found is not None
        assert found.number == 1
        assert await rows(inside, "MATCH (c:City) RETURN count(*)") == [[3]]


async def test_a_changed_database_is_what_the_next_start_opens(tmp_path: Path) -> None:
    folder = tmp_path / "instance"
    async with loaded(folder, cities(tmp_path / "store")) as inside:
        await inside.change_database(add_rank, with_rank(inside))
        pid = (await inside.engines.ready()).pid
    assert is_gone(pid)
    (folder / "db" / "3").mkdir()  # a copy that a kill left behind

    again = Instance(start_of(folder))
    again.reopen()
    try:
        await again.settled()
        assert again.from_database
        assert await rows(again, "MATCH (c:City) RETURN DISTINCT c.rank") == [[0.5]]
        assert not (folder / "db" / "3").exists()
    finally:
        await again.close(0)
