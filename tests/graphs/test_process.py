"""The process of an instance: when it begins, when it does not, and that nothing stays behind."""

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from paddock.graphs.serving import MOST_LOG, shorten_log
from tests.graphs.running import (
    TOKEN,
    cities,
    instance,
    is_gone,
    make_folder,
    start_process,
    started,
    until,
)

ENDLESS = "UNWIND range(1, 1000000) AS x UNWIND range(1, 1000000) AS y WITH x WHERE x % 2 = 7 RETURN count(x)"


async def test_a_start_whose_folder_is_gone_or_meant_for_another_ends_without_a_word(tmp_path: Path) -> None:
    generation = str(uuid.uuid4())
    other = make_folder(tmp_path / "other", str(uuid.uuid4()))
    unwritten = make_folder(tmp_path / "unwritten", generation)
    (unwritten / "meant.json").unlink()
    for folder in (tmp_path / "nothing", other, unwritten):
        process = start_process(folder, generation)
        try:
            assert await asyncio.wait_for(process.wait(), 60) == 0
            assert process.last_words == ""
            assert not (folder / "run.json").exists()
        finally:
            await process.end()
    assert not (tmp_path / "nothing").exists()


async def test_a_second_start_of_the_same_generation_ends_without_a_word(tmp_path: Path) -> None:
    async with instance(tmp_path / "instance") as running:
        before = (tmp_path / "instance" / "run.json").read_text()
        second = start_process(tmp_path / "instance", running.generation)
        try:
            assert await asyncio.wait_for(second.wait(), 60) == 0
            assert second.last_words == ""
        finally:
            await second.end()
        assert (tmp_path / "instance" / "run.json").read_text() == before
        assert (await running.status())["phase"] == "empty"


async def test_run_json_names_the_process_for_ever(tmp_path: Path) -> None:
    async with instance(tmp_path / "instance") as running:
        run = json.loads((tmp_path / "instance" / "run.json").read_text())

        assert run["pid"] == running.process.pid
        assert run["pid_started"] == started(running.process.pid)
        assert (run["generation"], run["protocol"]) == (running.generation, 1)


async def test_a_killed_server_leaves_no_child_and_its_successor_opens_the_database(tmp_path: Path) -> None:
    async with instance(tmp_path / "instance") as running:
        await running.load(cities(tmp_path / "store"))
        children = running.children()
        assert len(children) == 1
        running.process.kill()
        await running.process.wait()
        await until(lambda: all(map(is_gone, children)))
    shutil.rmtree(tmp_path / "store")

    async with instance(tmp_path / "instance") as successor:
        status = await successor.settled()

        assert (status["phase"], status["from_database"]) == ("ready", True)
        assert status["counts"] == {"nodes": {"City": 3}, "edges": {"ROAD": 3}}
        assert status["dangling_edges"] == {"ROAD": 1}
        assert await successor.rows("MATCH (c:City) RETURN count(*)") == [[3]]


async def test_a_database_that_does_not_open_says_so(tmp_path: Path) -> None:
    async with instance(tmp_path / "instance") as running:
        await running.load(cities(tmp_path / "store"))
    database = tmp_path / "instance" / "db" / "1" / "graph.db"
    database.write_bytes(b"no database at all" * 1000)

    async with instance(tmp_path / "instance") as successor:
        status = await successor.settled()

        assert (status["phase"], status["error"]["cause"]) == ("failed", "database_does_not_open")
        answer = await successor.query("RETURN 1")
        assert (answer.status_code, answer.json()["error"]["code"]) == (409, "instance_not_running")


async def test_sigterm_gives_queries_two_seconds_and_leaves_nothing(tmp_path: Path) -> None:
    async with instance(tmp_path / "instance") as running:
        await running.load(cities(tmp_path / "store"))
        children = running.children()
        asking = asyncio.create_task(running.query(ENDLESS, timeout_ms=120_000))
        await running.until(lambda status: status["in_flight"] == 1)

        running.process.send_signal(signal.SIGTERM)

        assert await asyncio.wait_for(running.process.wait(), 60) == 0
        answer = await asking
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "instance_stopping")
        assert all(map(is_gone, children))


async def test_an_instance_ends_with_its_keeper(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as keeper:
        who = {"keeper_pid": keeper.pid, "keeper_started": started(keeper.pid)}
        async with instance(tmp_path / "instance", **who) as running:
            await running.load(cities(tmp_path / "store"))
            children = running.children()

            keeper.kill()

            assert await asyncio.wait_for(running.process.wait(), 60) == 0
            assert all(map(is_gone, children))


async def test_an_instance_whose_keeper_was_gone_before_it_came_ends(tmp_path: Path) -> None:
    """The number of the keeper is another process's by now."""
    generation = str(uuid.uuid4())
    folder = make_folder(tmp_path / "instance", generation)
    process = start_process(folder, generation, keeper_pid=os.getpid(), keeper_started="1")
    try:
        assert await asyncio.wait_for(process.wait(), 60) == 0
    finally:
        await process.end()


async def test_an_instance_ends_when_its_folder_is_gone(tmp_path: Path) -> None:
    async with instance(tmp_path / "instance") as running:
        shutil.rmtree(tmp_path / "instance")

        assert await asyncio.wait_for(running.process.wait(), 60) == 0


async def test_the_server_loads_neither_engine_nor_arrow(tmp_path: Path) -> None:
    async with instance(tmp_path / "instance") as running:
        await running.load(cities(tmp_path / "store"))
        await running.rows("RETURN 1")
        mapped = Path(f"/proc/{running.process.pid}/maps").read_text()

        for library in ("ladybug", "ryugraph", "pyarrow", "libarrow", "numpy"):
            assert library not in mapped
        assert (await running.status())["memory_bytes"] < 220 << 20


async def test_neither_token_nor_query_text_is_in_the_log(tmp_path: Path) -> None:
    async with instance(tmp_path / "instance") as running:
        await running.load(cities(tmp_path / "store"))
        await running.query("RETURN 'a-private-word'")
        await running.query("RETRUN 'a-private-word'")
        await running.client.post("/query", content=b"{'a-private-word")
        running.process.send_signal(signal.SIGTERM)
        await running.process.wait()

        assert "instance_ready" in running.process.last_words
        assert "a-private-word" not in running.process.last_words
        assert TOKEN not in running.process.last_words


def test_a_log_that_is_full_is_begun_anew(tmp_path: Path) -> None:
    with (tmp_path / "log").open("wb") as log:
        log.write(b"x" * MOST_LOG)
        log.flush()
        shorten_log(log.fileno())
        assert (tmp_path / "log").stat().st_size == MOST_LOG
        log.write(b"x")
        log.flush()

        shorten_log(log.fileno())

        log.write(b"after")
        log.flush()
        assert (tmp_path / "log").read_bytes() == b"after"


@pytest.mark.parametrize("path", ["/query", "/schema"])
async def test_an_empty_instance_says_that_it_is_not_running(tmp_path: Path, path: str) -> None:
    async with instance(tmp_path / "instance") as running:
        answer = await (running.query("RETURN 1") if path == "/query" else running.client.get(path))

        assert (answer.status_code, answer.json()["error"]["code"]) == (409, "instance_not_running")
        assert answer.json()["error"]["details"] == {"state": "empty"}
        assert (await running.client.get("/ready")).status_code == 503
