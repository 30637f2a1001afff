"""Real processes, killed: every instance is running, failed with a reason, or gone, and nothing of it is left behind."""

import asyncio
import contextlib
import json
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import asyncpg
import psutil
import pytest

from paddock.client import Client, PaddockError
from tests.exports.place import ROWS, Place
from tests.exports.place import place as whole_place
from tests.instances.test_whole import make_mapping, until_settled
from tests.instances.world import until
from tests.processes.running import alive, gone, running_up, wait_for

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
COUNT = {"query": "MATCH (p:Person) RETURN count(*)"}


@pytest.fixture(scope="module")
def place() -> Iterator[Place]:
    with whole_place() as found:
        yield found


@pytest.fixture(scope="module")
def snapshot_id(place: Place) -> str:
    mapping = make_mapping(place.client, "killed")
    made = place.client.request("POST", "/api/instances", body={"mapping_id": mapping["id"], "engine": "local"})["data"]
    found = until_settled(place.client, made["id"])
    assert found["status"] == "running", found
    delete(place.client, made["id"])
    return str(found["snapshot_id"])


def patiently(client: Client, method: str, path: str, **options: Any) -> dict[str, Any]:
    """Also while the control plane is being started again."""

    def look() -> dict[str, Any] | None:
        with contextlib.suppress(PaddockError, OSError):
            answer: dict[str, Any] = client.request(method, path, timeout=60, **options)
            return answer
        return None

    return wait_for(f"{method} {path} is answered", look)


def delete(client: Client, id: str) -> None:
    wait_for("it is gone", lambda: patiently(client, "DELETE", f"/api/instances/{id}")["data"]["status"] == "gone")


def create(place: Place, snapshot_id: str) -> str:
    made = place.client.request("POST", "/api/instances", body={"snapshot_id": snapshot_id})["data"]
    return str(made["id"])


def run_json(data: Path, id: str) -> dict[str, Any]:
    def look() -> dict[str, Any] | None:
        with contextlib.suppress(OSError, ValueError):
            found: dict[str, Any] = json.loads((data / "instances" / id / "run.json").read_text())
            return found
        return None

    return wait_for(f"instance {id} tells where it is", look)


def spawned(data: Path, id: str) -> psutil.Process:
    """Its process, as soon as there is one."""

    def look() -> psutil.Process | None:
        with contextlib.suppress(OSError, ValueError, psutil.NoSuchProcess):
            facts = json.loads((data / "instances" / id / "spawned.json").read_text())
            return psutil.Process(facts["processes"][-1][0])
        return None

    return wait_for(f"instance {id} has a process", look)


def kill_control_plane(place: Place) -> None:
    plane = place.up.child("serve")
    plane.kill()
    wait_for("another one runs", lambda: place.up.child("serve").pid != plane.pid)


@contextlib.contextmanager
def paused(place: Place, kind: str) -> Iterator[None]:
    """Nothing of this kind begins."""
    place.client.request("POST", f"/api/kinds/{kind}/pause")
    try:
        yield
    finally:
        patiently(place.client, "POST", f"/api/kinds/{kind}/resume")


def settled(place: Place, id: str) -> dict[str, Any]:
    def look() -> dict[str, Any] | None:
        found: dict[str, Any] = patiently(place.client, "GET", f"/api/instances/{id}", params={"wait": 5})["data"]
        return found if found["status"] in ("running", "failed") else None

    return wait_for(f"instance {id} runs or failed", look)


def processes_of(data: Path, id: str) -> list[psutil.Process]:
    """All that were started in the folder of this instance."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.cwd() == str(data / "instances" / id) and "paddock.graphs" in process.cmdline():
                found.append(process)
    return found


def test_a_control_plane_that_was_killed_finds_its_instances_again(place: Place, snapshot_id: str) -> None:
    id = create(place, snapshot_id)
    before = settled(place, id)
    process = psutil.Process(run_json(place.up.data, id)["pid"])
    kill_control_plane(place)
    answer = patiently(place.client, "POST", f"/api/instances/{id}/query", body=COUNT)
    assert answer["data"]["row_count"] == 1
    after = settled(place, id)
    assert (after["status"], after["pod_name"]) == ("running", before["pod_name"])
    assert alive(process)
    delete(place.client, id)
    assert not alive(process)


def test_a_start_that_was_written_and_had_not_begun_begins_in_the_next_control_plane(
    place: Place, snapshot_id: str
) -> None:
    with paused(place, "instance_start"):
        id = create(place, snapshot_id)
        kill_control_plane(place)
        assert patiently(place.client, "GET", f"/api/instances/{id}")["data"]["status"] == "starting"
        assert not (place.up.data / "instances" / id).exists()
    found = settled(place, id)
    assert (found["status"], found["pod_name"]) == ("running", f"ladybug-wrapper-{id}-1")
    assert len(processes_of(place.up.data, id)) == 1
    delete(place.client, id)


def test_a_start_goes_on_in_the_next_control_plane(place: Place, snapshot_id: str) -> None:
    """Killed when the process was there and had not answered: it is not started twice, and not lost."""
    id = create(place, snapshot_id)
    process = spawned(place.up.data, id)
    process.suspend()
    kill_control_plane(place)
    process.resume()
    found = settled(place, id)
    assert (found["status"], found["pod_name"]) == ("running", f"ladybug-wrapper-{id}-1")
    assert [one.pid for one in processes_of(place.up.data, id)] == [run_json(place.up.data, id)["pid"]]
    delete(place.client, id)


def test_a_server_that_was_killed_is_said_and_reopened_from_what_it_had_loaded(place: Place, snapshot_id: str) -> None:
    id = create(place, snapshot_id)
    found = settled(place, id)
    server = psutil.Process(run_json(place.up.data, id)["pid"])
    server.kill()
    wait_for("it is gone", lambda: not alive(server))
    with pytest.raises(PaddockError) as refused:
        place.client.request("POST", f"/api/instances/{id}/query", body=COUNT)
    assert refused.value.code == "instance_not_running"
    failed = settled(place, id)
    assert failed["error"]["code"] == "UNEXPECTED_TERMINATION"
    assert failed["error"]["message"] == f"Process {found['pod_name']} disappeared from this machine"
    place.client.request("POST", f"/api/instances/{id}/reopen")
    again = settled(place, id)
    assert (again["status"], again["pod_name"]) == ("running", f"ladybug-wrapper-{id}-2")
    assert place.client.request("GET", f"/api/instances/{id}/status")["data"]["from_database"] is True
    delete(place.client, id)


def until_stopping(place: Place, id: str) -> None:
    def look() -> bool:
        return bool(place.client.request("GET", f"/api/instances/{id}")["data"]["status"] == "stopping")

    wait_for("it is stopping", look)


@pytest.mark.parametrize("begun", [False, True], ids=["not begun", "its process does not hear"])
def test_a_deletion_goes_on_in_the_next_control_plane(place: Place, snapshot_id: str, begun: bool) -> None:
    """Killed when `stopping` was written and the process was still there."""
    id = create(place, snapshot_id)
    settled(place, id)
    process = psutil.Process(run_json(place.up.data, id)["pid"])
    with contextlib.nullcontext() if begun else paused(place, "instance_stop"):
        if begun:
            process.suspend()
        threading.Thread(target=_delete_once, args=(place, id), daemon=True).start()
        until_stopping(place, id)
        kill_control_plane(place)
        assert begun or alive(process)
    wait_for("its process is killed", lambda: not alive(process))
    delete(place.client, id)
    assert not (place.up.data / "instances" / id).exists()


def _delete_once(place: Place, id: str) -> None:
    with contextlib.suppress(Exception), Client(place.up.address["url"], place.up.token) as client:
        client.request("DELETE", f"/api/instances/{id}", timeout=60)


def test_nothing_stays_behind_up_and_the_next_one_brings_its_instances_back() -> None:
    with whole_place() as place:
        mapping = make_mapping(place.client, "restored")
        body = {"mapping_id": mapping["id"], "engine": "local"}
        id = place.client.request("POST", "/api/instances", body=body)["data"]["id"]
        assert until_settled(place.client, id)["status"] == "running"
        data = place.up.data
        family = [*place.up.children(), psutil.Process(run_json(data, id)["pid"])]
        family += family[-1].children(recursive=True)
        place.up.signal(signal.SIGKILL)
        place.up.wait()
        wait_for("every process is gone", lambda: gone(family))
        with running_up(data, "--port", "0") as again, again.client() as client:

            def running() -> dict[str, Any] | None:
                found: dict[str, Any] = client.request("GET", f"/api/instances/{id}")["data"]
                assert found["status"] in ("starting", "running"), found
                return found if found["status"] == "running" else None

            assert wait_for("it runs again", running)["pod_name"] == f"ladybug-wrapper-{id}-2"
            assert client.request("GET", f"/api/instances/{id}/status")["data"]["from_database"] is True
            assert client.request("POST", f"/api/instances/{id}/query", body=COUNT)["data"]["row_count"] == 1


def test_an_execution_goes_on_in_the_next_control_plane(place: Place, snapshot_id: str) -> None:
    """The instance computes on by itself; the next control plane finds out what became of it."""
    id = create(place, snapshot_id)
    assert settled(place, id)["status"] == "running"
    path = f"/api/instances/{id}/algo"
    begun = place.client.request("POST", f"{path}/pagerank", body={})["data"]
    server = psutil.Process(run_json(place.up.data, id)["pid"])
    server.suspend()
    kill_control_plane(place)
    server.resume()

    def ended() -> dict[str, Any] | None:
        found: dict[str, Any] = patiently(place.client, "GET", f"{path}/executions/{begun['execution_id']}")["data"]
        return found if found["status"] in ("completed", "failed", "cancelled") else None

    found = wait_for("the execution has ended", ended)
    assert (found["status"], found["result"]["property"]) == ("completed", "pagerank")
    ranked = {"query": "MATCH (p:Person) WHERE p.pagerank > 0 RETURN count(*)"}
    answer = patiently(place.client, "POST", f"/api/instances/{id}/query", body=ranked)["data"]
    assert answer["rows"] == [[ROWS]]
    delete(place.client, id)


async def connected_to(data: Path) -> "asyncpg.Connection[asyncpg.Record]":
    """The database that `up` runs; its file tells where it listens."""
    told = (data / "pg" / "postmaster.pid").read_text().splitlines()
    return await asyncpg.connect(host=told[4], port=int(told[3]), user="paddock", database="paddock")


async def until_blocked_by(connection: "asyncpg.Connection[asyncpg.Record]") -> None:
    mine = connection.get_server_pid()
    waiting = "SELECT count(*) FROM pg_stat_activity WHERE $1 = ANY (pg_blocking_pids(pid))"

    async def blocked() -> bool:
        return bool(await connection.fetchval(waiting, mine))

    await until("somebody waits for the test's lock", blocked)


async def test_a_control_plane_killed_before_running_is_written_writes_it_in_its_next_life(
    place: Place, snapshot_id: str
) -> None:
    """The test holds the row: what ends the start waits for it, and is killed there."""
    connection = await connected_to(place.up.data)
    try:
        async with connection.transaction():
            id = await asyncio.to_thread(create, place, snapshot_id)
            await connection.execute("SELECT FROM instances WHERE id = $1 FOR UPDATE", UUID(id))
            await until_blocked_by(connection)
            await asyncio.to_thread(kill_control_plane, place)
            status = await connection.fetchval("SELECT status FROM instances WHERE id = $1", UUID(id))
            assert status == "starting"
    finally:
        await connection.close()
    found = await asyncio.to_thread(settled, place, id)
    assert (found["status"], found["pod_name"]) == ("running", f"ladybug-wrapper-{id}-1")
    assert len(processes_of(place.up.data, id)) == 1
    await asyncio.to_thread(delete, place.client, id)


async def test_a_control_plane_killed_when_the_process_was_gone_and_its_row_was_not_drops_it_in_its_next_life(
    place: Place, snapshot_id: str
) -> None:
    """The test holds the instance's use of its snapshot, which goes with the row: what drops both waits for it, and is
    killed there."""
    id = await asyncio.to_thread(create, place, snapshot_id)
    await asyncio.to_thread(settled, place, id)
    process = psutil.Process(run_json(place.up.data, id)["pid"])
    uses = "FROM snapshot_uses WHERE subject = $1"
    connection = await connected_to(place.up.data)
    try:
        async with connection.transaction():
            await connection.execute(f"SELECT {uses} FOR UPDATE", f"instance:{id}")
            threading.Thread(target=_delete_once, args=(place, id), daemon=True).start()
            await until_blocked_by(connection)
            assert not alive(process)
            assert not (place.up.data / "instances" / id).exists()
            await asyncio.to_thread(kill_control_plane, place)
            assert await connection.fetchval("SELECT status FROM instances WHERE id = $1", UUID(id)) == "stopping"
        await asyncio.to_thread(delete, place.client, id)
        assert await connection.fetchval(f"SELECT count(*) {uses}", f"instance:{id}") == 0
        assert await connection.fetchval("SELECT count(*) FROM jobs WHERE lock_key = $1", f"instance:{id}") == 0
    finally:
        await connection.close()
