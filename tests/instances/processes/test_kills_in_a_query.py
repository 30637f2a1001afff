"""A kill while a query is in flight: whoever asked is told what happened, and the graph is whole afterwards."""

import asyncio

import httpx2
import pytest

from paddock.config import Config
from paddock.jobs.core import Core
from paddock.runtimes.local import LocalRuntime
from tests.instances.processes.graph import WHOLE, Held, counted, kill, real_snapshot, words_of
from tests.instances.world import code_of, running, until, until_idle, until_status
from tests.processes.running import alive

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("at_work")]


async def test_a_server_killed_with_a_query_in_flight_is_said_and_nothing_is_left(
    core: Core, config: Config, runtime: LocalRuntime, ada: httpx2.AsyncClient
) -> None:
    """Its engine stands still, so that it has the query and does not answer."""
    id = (await running(core, ada, await real_snapshot(core, config)))["id"]
    held, path = Held(runtime.root, id), f"/api/instances/{id}"
    family = held.processes()
    next(one for one in family if "paddock.graphs.children.engine" in words_of(one)).suspend()
    asking = asyncio.create_task(ada.post(f"{path}/query", json={"query": "MATCH (a) RETURN count(*)"}))

    async def in_flight() -> bool:
        return [one["state"] for one in (await ada.get(f"{path}/queries")).json()["data"]] == ["running"]

    await until("the query is in flight", in_flight)
    kill(await held.server())

    assert code_of(await asking) == (409, "instance_not_running")
    found = await until_status(core, id, "failed")
    assert found.error is not None
    assert found.error["message"] == f"Process {found.pod_name} disappeared from this machine"
    await until_idle(core)

    async def gone() -> bool:
        return not any(map(alive, family))

    await until("its children are gone", gone)
    assert (await ada.post(f"{path}/reopen")).status_code == 202
    await until_status(core, id, "running")
    assert await counted(ada, id) == WHOLE
