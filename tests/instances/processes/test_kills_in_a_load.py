"""A load that is killed at a point: the instance is failed with a reason or loads again, and is never asked half."""

import httpx2
import pytest

from paddock.config import Config
from paddock.jobs.core import Core
from paddock.runtimes.local import LocalRuntime
from tests.instances.processes.graph import WHOLE, Held, counted, kill, real_snapshot
from tests.instances.world import code_of, create, until_idle, until_status
from tests.processes.running import alive

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("at_work")]


@pytest.mark.parametrize("point", ["half fetched", "between tables", "loaded"])
async def test_a_server_killed_in_its_load_is_said_and_loads_anew(
    core: Core, config: Config, runtime: LocalRuntime, ada: httpx2.AsyncClient, point: str
) -> None:
    """`loaded`: the database is whole, and `current` does not name it yet."""
    (runtime.root / "hold").write_text(point)
    snapshot = await real_snapshot(core, config)
    made = await create(ada, snapshot_id=str(snapshot.id))
    held = Held(runtime.root, made["id"])
    await (held.stopped_child() if point == "between tables" else held.waits())
    refused = await ada.post(f"/api/instances/{made['id']}/query", json={"query": "MATCH (a) RETURN count(*)"})
    assert code_of(refused) == (409, "instance_not_running")
    family = held.processes()
    assert not (held.folder / "current").exists()
    kill(await held.server())

    found = await until_status(core, made["id"], "failed")

    assert found.error is not None
    assert found.error["code"] == "UNEXPECTED_TERMINATION"
    assert found.error["message"] == f"Process {found.pod_name} disappeared from this machine"
    await until_idle(core)
    assert not [one for one in family if alive(one)]
    assert not held.folder.exists()

    (runtime.root / "hold").unlink()
    assert (await ada.post(f"/api/instances/{made['id']}/reopen")).status_code == 202
    await until_status(core, made["id"], "running")
    assert await counted(ada, made["id"]) == WHOLE


async def test_a_loader_that_was_killed_begins_again_with_more_memory(
    core: Core, config: Config, runtime: LocalRuntime, ada: httpx2.AsyncClient
) -> None:
    """SIGKILL is what the kernel sends when memory is short; nobody tells who sent it."""
    (runtime.root / "hold").write_text("checking")
    snapshot = await real_snapshot(core, config)
    made = await create(ada, snapshot_id=str(snapshot.id), memory_gb=1)
    held = Held(runtime.root, made["id"])
    loader = await held.stopped_child()
    (runtime.root / "hold").unlink()
    kill(loader)

    found = await until_status(core, made["id"], "running", "failed")

    assert (found.status, found.generation_number, found.memory_gb) == ("running", 2, 2)
    assert await counted(ada, made["id"]) == WHOLE
    await until_idle(core)
    assert (await ada.delete(f"/api/instances/{made['id']}")).status_code == 200
    assert not held.folder.exists()
