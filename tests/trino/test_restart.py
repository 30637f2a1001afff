"""A Trino of its own for this test, still starting, running, and restarted in the middle of a query."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from paddock.engines.engine import Query
from paddock.engines.trino import client
from paddock.engines.trino.engine import Lost, TrinoEngine, Unloading
from paddock.jobs.errors import TransientResourceError
from tests.ports import free_ports
from tests.trino.asking import Noting, read
from tests.trino.configuring import Ports
from tests.trino.fetching import trino_home
from tests.trino.keeper import start_trino, stop
from tests.trino.server import TrinoServer

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


class Own:
    def __init__(self, folder: Path) -> None:
        self.server = TrinoServer(folder, Ports(*free_ports(3)))
        self.home = trino_home()
        self.process = start_trino(folder, self.home, self.server.ports)

    def restart(self) -> None:
        # As a machine that fails does it.
        self.process.kill()
        self.process.wait()
        self.process = start_trino(self.server.folder, self.home, self.server.ports)

    async def ready(self) -> None:
        async with httpx2.AsyncClient() as asking, asyncio.timeout(200):
            while True:
                try:
                    answer = await asking.get(f"{self.server.url}/v1/info")
                    if answer.json().get("starting") is False:
                        return
                except httpx2.HTTPError:
                    pass
                await asyncio.sleep(0.1)


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Own]:
    own = Own(tmp_path)
    yield own
    stop(own.process)


async def test_a_server_that_starts_runs_and_is_restarted(own: Own, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = own.server.settings(
        encodings=[], patience_seconds=200, unload_catalog="hive", unload_schema="unloads", user="lab"
    )
    engine = TrinoEngine("own", settings)
    try:
        with monkeypatch.context() as impatient:
            # So as not to sleep through the moment between away and ready.
            impatient.setattr(client, "POST_PATIENCE", 0)
            codes = await _ask_until_it_answers(engine)
        # Away first, then there but not ready: both are tried again by the job.
        assert codes <= {"engine_unavailable", "server_starting_up", "no_nodes_available"}
        assert "server_starting_up" in codes
        await own.ready()

        await engine.rows("CREATE SCHEMA hive.unloads", Query(""))
        slow = "SELECT count(*) AS n FROM tpch.sf100.lineitem a, tpch.sf100.lineitem b WHERE a.partkey + b.partkey = -1"
        handle = await engine.begin_unload(Query(slow), "paddock_x", "local:///x", Noting())
        polled = await engine.poll_unload(handle, 1.0)
        assert isinstance(polled, Unloading)
        async with engine.open(Query("SELECT * FROM tpch.sf10.lineitem")) as stream:
            batches = stream.batches()
            await anext(batches)

            own.restart()

            # Patiently asked for its page, the new server says that it knows of no such query.
            with pytest.raises(TransientResourceError) as told:
                async for _ in batches:
                    pass
            assert told.value.code == "query_lost"
        await own.ready()

        assert await engine.poll_unload(handle | {"next_uri": polled.next_uri}) == Lost()
        assert (await read(engine, "SELECT * FROM nation")).num_rows == 25
    finally:
        await engine.close()


async def _ask_until_it_answers(engine: TrinoEngine) -> set[str]:
    codes: set[str] = set()
    async with asyncio.timeout(200):
        while True:
            try:
                await read(engine, "SELECT 1")
            except TransientResourceError as problem:
                codes.add(problem.code)
                await asyncio.sleep(0.05)
            else:
                return codes
