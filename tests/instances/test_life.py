"""An instance's life, transition by transition."""

import asyncio
from uuid import UUID

import httpx2
import pytest
from structlog.testing import capture_logs

from paddock.config import Config
from paddock.exports import snapshot_states, snapshots
from paddock.instances import following, model, removing, service
from paddock.jobs.core import Core
from paddock.metrics import default
from paddock.pass_metrics import pass_metrics
from tests.instances.fake_runtime import READY, FakeRuntime
from tests.instances.world import (
    code_of,
    create,
    events_of,
    export,
    make_mapping,
    ready_snapshot,
    running,
    until,
    until_gone,
    until_idle,
    until_status,
)

pytestmark = pytest.mark.usefixtures("at_work")


async def test_one_of_a_mapping_waits_for_its_snapshot_then_starts_and_runs(
    core: Core, config: Config, runtime: FakeRuntime, ada: httpx2.AsyncClient
) -> None:
    mapping = await make_mapping(core)
    with capture_logs() as logs:
        made = await create(ada, mapping_id=str(mapping.id), name="mine")
        assert (made["status"], made["snapshot_id"], made["memory_gb"]) == ("waiting_for_snapshot", None, 1)
        assert made["progress"]["phase"] == "waiting"
        assert [table["name"] for table in made["progress"]["tables"]] == ["Airport", "ROUTE"]
        snapshot = await snapshot_states.get(core.db, UUID(made["pending_snapshot_id"]))
        assert snapshot is not None
        assert (snapshot.owner, snapshot.ttl and snapshot.ttl.days) == ("ada", 7)
        await export(core, config)
        found = await until_status(core, made["id"], "running")
    assert (found.snapshot_id, found.pending_snapshot_id) == (UUID(made["pending_snapshot_id"]), None)
    assert found.pod_name == f"ladybug-wrapper-{made['id']}-1"
    assert found.expires_at is not None
    assert found.started_at is not None
    assert found.expires_at - found.started_at == found.ttl
    assert "transitioning_instance_to_starting" in [entry["event"] for entry in logs]
    assert await events_of(core, made["id"]) == ["created", "running"]
    [load] = runtime.of(made["id"]).loads
    assert [node["label"] for node in load["nodes"]] == ["Airport"]
    assert load["edges"][0]["files"][0]["path"].startswith(str(config.data / "objects"))
    await until_idle(core)


@pytest.mark.parametrize(
    ("end", "message"),
    [
        ("failed", "Snapshot failed: It broke."),
        ("cancelled", "Snapshot creation was cancelled"),
        ("gone", "Pending snapshot was deleted before it could complete"),
    ],
)
async def test_a_snapshot_that_does_not_become_ready_fails_the_instance(
    core: Core, config: Config, ada: httpx2.AsyncClient, end: str, message: str
) -> None:
    before = pass_metrics().to_failed._value.get()
    mapping = await make_mapping(core)
    made = await create(ada, mapping_id=str(mapping.id))
    id = UUID(made["pending_snapshot_id"])
    snapshot = await snapshot_states.get(core.db, id)
    assert snapshot is not None
    if end == "failed":
        await export(core, config, fail=True)
    elif end == "cancelled":
        await snapshots.cancel(core, snapshot, actor="ada")
    else:
        pool = core.db.pool("durable")
        await pool.execute("DELETE FROM snapshot_uses WHERE snapshot_id = $1", id)
        await pool.execute("DELETE FROM snapshots WHERE id = $1", id)
        assert await following.follow(core, config, UUID(made["id"])) == "failed"
    found = await until_status(core, made["id"], "failed")
    assert found.error is not None
    assert (found.error["code"], found.error["message"]) == ("DATA_LOAD_ERROR", message)
    assert found.expires_at is not None
    assert await events_of(core, made["id"]) == ["created", "failed"]
    assert pass_metrics().to_failed._value.get() == before + 1


async def test_one_without_a_pending_snapshot_is_said_and_left(
    core: Core, config: Config, ada: httpx2.AsyncClient
) -> None:
    made = await create(ada, mapping_id=str((await make_mapping(core)).id))
    await core.db.pool("durable").execute("UPDATE instances SET pending_snapshot_id = NULL")
    with capture_logs() as logs:
        assert await following.follow(core, config, UUID(made["id"])) == "waiting"
    assert [entry["event"] for entry in logs] == ["instance_missing_pending_snapshot_id"]


async def test_following_twice_starts_once(
    core: Core, config: Config, runtime: FakeRuntime, ada: httpx2.AsyncClient
) -> None:
    made = await create(ada, mapping_id=str((await make_mapping(core)).id))
    await export(core, config)
    await asyncio.gather(*(following.follow(core, config, UUID(made["id"])) for _ in range(5)))
    await until_status(core, made["id"], "running")
    await until_idle(core)
    assert runtime.started == [f"ladybug-wrapper-{made['id']}-1"]


async def test_delete_takes_process_use_and_row(
    core: Core, config: Config, runtime: FakeRuntime, ada: httpx2.AsyncClient
) -> None:
    snapshot = await ready_snapshot(core, config)
    made = await running(core, ada, snapshot, name="mine")
    refused = await ada.delete(f"/api/snapshots/{snapshot.id}")
    assert code_of(refused) == (409, "snapshot_in_use")
    assert refused.json()["error"]["details"]["uses"] == [{"subject": f"instance:{made['id']}", "name": "mine"}]
    runtime.ends_slowly = 2
    gone = await ada.delete(f"/api/instances/{made['id']}", params={"reason": "done with it"})
    assert (gone.status_code, gone.json()["data"]["status"]) == (200, "gone")
    assert runtime.running == {}
    told = await ada.get(f"/api/instances/{made['id']}")
    assert code_of(told) == (404, "instance_gone")
    assert told.json()["error"]["message"].endswith("by ada: done with it.")
    assert (await ada.delete(f"/api/instances/{made['id']}")).status_code == 200
    assert (await ada.delete(f"/api/snapshots/{snapshot.id}")).status_code == 202
    assert await events_of(core, made["id"]) == ["created", "running", "deleted"]
    unknown = "019a8b1e-4c50-7000-9d6e-6f1d3c0a51e7"
    assert code_of(await ada.delete(f"/api/instances/{unknown}")) == (404, "not_found")


async def test_a_gone_one_is_unknown_to_those_who_could_not_see_it(
    core: Core, config: Config, ada: httpx2.AsyncClient, bob: httpx2.AsyncClient, grace: httpx2.AsyncClient
) -> None:
    made = await running(core, ada, await ready_snapshot(core, config))
    assert code_of(await bob.delete(f"/api/instances/{made['id']}")) == (404, "not_found")
    await ada.delete(f"/api/instances/{made['id']}")
    assert code_of(await bob.get(f"/api/instances/{made['id']}")) == (404, "not_found")
    assert code_of(await bob.delete(f"/api/instances/{made['id']}")) == (404, "not_found")
    assert code_of(await grace.get(f"/api/instances/{made['id']}")) == (404, "instance_gone")


async def test_deleting_a_waiting_one_cancels_the_snapshot_made_for_it(core: Core, ada: httpx2.AsyncClient) -> None:
    made = await create(ada, mapping_id=str((await make_mapping(core)).id))
    assert (await ada.delete(f"/api/instances/{made['id']}")).status_code == 200
    snapshot = await snapshot_states.get(core.db, UUID(made["pending_snapshot_id"]))
    assert snapshot is not None
    assert snapshot.status == "cancelled"
    await until_idle(core)


async def test_deleting_one_that_starts_leaves_nothing(
    core: Core, config: Config, runtime: FakeRuntime, ada: httpx2.AsyncClient
) -> None:
    runtime.behaviour.phases = [{"phase": "nodes", "percent": 50}]
    made = await create(ada, snapshot_id=str((await ready_snapshot(core, config)).id))

    async def loading() -> bool:
        found = await model.get(core.db, UUID(made["id"]))
        return found is not None and (found.progress or {}).get("phase") == "nodes"

    await until("it loads", loading)
    assert (await ada.delete(f"/api/instances/{made['id']}")).status_code == 200
    assert runtime.running == {}
    await until_idle(core)
    assert await events_of(core, made["id"]) == ["created", "deleted"]


async def test_a_delete_that_takes_too_long_names_its_job_and_may_be_asked_again(
    core: Core, config: Config, runtime: FakeRuntime, ada: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = await running(core, ada, await ready_snapshot(core, config))
    runtime.ends_slowly = 1_000_000
    assert service.DELETE_SECONDS == 45
    monkeypatch.setattr(service.delete, "__kwdefaults__", {"reason": None, "seconds": 0.3})
    path = f"/api/instances/{made['id']}"
    for _ in range(2):
        answer = await ada.delete(path)
        assert (answer.status_code, answer.json()["data"]["status"]) == (202, "stopping")
        job = await ada.get(f"/api/jobs/{answer.json()['data']['job_id']}")
        assert job.json()["data"]["kind"] == "instance_stop"
    runtime.ends_slowly = 0
    await until_gone(core, made["id"])
    again = await ada.delete(path)
    assert (again.status_code, again.json()["data"]["status"]) == (200, "gone")


async def test_starts_are_counted_by_what_became_of_them(
    core: Core, config: Config, runtime: FakeRuntime, ada: httpx2.AsyncClient
) -> None:
    told = default()

    def counted() -> list[float]:
        return [told.instances_started("ladybug", how)._value.get() for how in ("running", "failed")]

    async def until_counted(*wanted: float) -> None:
        """What a transaction counts, it counts once it is committed: the row may be seen before."""

        async def look() -> bool:
            return counted() == [*wanted]

        await until("it is counted", look)

    (ran, failed), seconds = counted(), told.instance_start_seconds._sum.get()
    snapshot = await ready_snapshot(core, config)
    await running(core, ada, snapshot)
    await until_counted(ran + 1, failed)
    assert told.instance_start_seconds._sum.get() >= seconds
    runtime.behaviour.phases = ({"phase": "nodes"}, {"phase": "failed", "error": {"cause": "key_null"}})
    made = await create(ada, snapshot_id=str(snapshot.id))
    await until_status(core, made["id"], "failed")
    await until_counted(ran + 1, failed + 1)


async def test_a_stop_that_somebody_cancels_is_begun_again(
    core: Core, config: Config, runtime: FakeRuntime, ada: httpx2.AsyncClient
) -> None:
    made = await running(core, ada, await ready_snapshot(core, config))
    runtime.ends_slowly = 1_000_000
    await removing.stop(core, UUID(made["id"]), actor="ada", reason=None)
    [job] = (await ada.get("/api/jobs", params={"kind": "instance_stop"})).json()["data"]
    assert (await ada.post(f"/api/jobs/{job['id']}/cancel")).status_code == 200
    runtime.ends_slowly = 0

    async def gone() -> bool:
        return await model.get(core.db, UUID(made["id"])) is None

    await until("it is gone", gone)
    assert runtime.running == {}


async def test_reopen_starts_a_new_generation(
    core: Core, config: Config, runtime: FakeRuntime, ada: httpx2.AsyncClient
) -> None:
    made = await running(core, ada, await ready_snapshot(core, config))
    again = await ada.post(f"/api/instances/{made['id']}/reopen")
    assert (again.status_code, again.json()["data"]["status"]) == (202, "starting")
    found = await until_status(core, made["id"], "running")
    assert found.pod_name == f"ladybug-wrapper-{made['id']}-2"
    assert list(runtime.running) == [found.pod_name]
    assert await events_of(core, made["id"]) == ["created", "running", "reopened", "running"]


async def test_reopen_of_one_whose_snapshot_is_not_ready_names_it(
    core: Core, config: Config, ada: httpx2.AsyncClient
) -> None:
    made = await create(ada, mapping_id=str((await make_mapping(core)).id))
    await export(core, config, fail=True)
    await until_status(core, made["id"], "failed")
    refused = await ada.post(f"/api/instances/{made['id']}/reopen")
    assert code_of(refused) == (409, "snapshot_not_ready")
    assert made["pending_snapshot_id"] in refused.json()["error"]["message"]
    assert code_of(await ada.post(f"/api/instances/{made['id']}x/reopen")) == (404, "not_found")


async def test_reopen_of_one_whose_snapshot_is_gone_names_it_too(
    core: Core, config: Config, runtime: FakeRuntime, ada: httpx2.AsyncClient
) -> None:
    snapshot = await ready_snapshot(core, config)
    made = await running(core, ada, snapshot)
    gone = "019a8b1e-4c50-7000-9d6e-6f1d3c0a51e7"
    await core.db.pool("durable").execute("UPDATE instances SET snapshot_id = $1", gone)
    refused = await ada.post(f"/api/instances/{made['id']}/reopen")
    assert code_of(refused) == (409, "snapshot_not_ready")
    assert gone in refused.json()["error"]["message"]
    assert refused.json()["error"]["details"] == {"snapshot_id": gone, "status": "gone"}


async def test_a_start_that_failed_keeps_its_log_and_leaves_no_process(
    core: Core, config: Config, runtime: FakeRuntime, ada: httpx2.AsyncClient
) -> None:
    told = {"cause": "key_duplicate", "message": "Airport: the key 'KFD' comes twice.", "hint": "Make it unique."}
    runtime.behaviour.phases = [{"phase": "failed", "error": told}]
    made = await create(ada, snapshot_id=str((await ready_snapshot(core, config)).id))
    found = await until_status(core, made["id"], "failed")
    assert found.error == {"code": "DATA_LOAD_ERROR", **told}
    await until_idle(core)
    assert runtime.running == {}
    log = await ada.get(f"/api/instances/{made['id']}/logs")
    assert log.json()["data"]["log"] == f"the log of {found.pod_name}"
    shown = (await ada.get(f"/api/instances/{made['id']}")).json()["data"]["error"]
    assert shown == {"code": "DATA_LOAD_ERROR", "message": told["message"], "hint": told["hint"]}


async def test_a_load_without_memory_gets_twice_as_much_three_times(
    core: Core, config: Config, runtime: FakeRuntime, ada: httpx2.AsyncClient
) -> None:
    runtime.behaviour.phases = [{"phase": "failed", "error": {"cause": "out_of_memory", "message": "Out of memory."}}]
    made = await create(ada, snapshot_id=str((await ready_snapshot(core, config)).id))
    found = await until_status(core, made["id"], "failed")
    assert found.error is not None
    assert found.error["code"] == "OOM_KILLED"
    assert found.error["message"] == "The instance ran out of memory with 8 GB."
    assert "16" in found.error["hint"]
    assert [name.rpartition("-")[2] for name in runtime.started] == ["1", "2", "3", "4"]
    await until_idle(core)  # the last process is taken away by the cleanup of its start
    assert runtime.running == {}


async def test_dangling_edges_are_told(
    core: Core, config: Config, runtime: FakeRuntime, ada: httpx2.AsyncClient
) -> None:
    runtime.behaviour.phases = [{**READY, "dangling_edges": {"ROUTE": 12, "OTHER": 0}}]
    made = await running(core, ada, await ready_snapshot(core, config))
    found = (await ada.get(f"/api/instances/{made['id']}", params={"wait": 1})).json()["data"]
    assert found["dangling_edges"] == {"ROUTE": 12}
    assert await events_of(core, made["id"]) == ["created", "running", "dangling_edges"]


async def test_an_end_that_nobody_asked_for_is_found_by_the_next_query(
    core: Core, config: Config, runtime: FakeRuntime, ada: httpx2.AsyncClient
) -> None:
    made = await running(core, ada, await ready_snapshot(core, config))
    [name] = runtime.running
    await runtime.kill(name)
    answer = await ada.post(f"/api/instances/{made['id']}/query", json={"query": "RETURN 1"})
    assert code_of(answer) == (409, "instance_not_running")
    assert answer.json()["error"]["details"] == {"status": "failed"}
    found = await until_status(core, made["id"], "failed")
    assert found.error is not None
    assert found.error["code"] == "UNEXPECTED_TERMINATION"
    assert found.error["message"] == f"Process {name} disappeared from this machine"


async def test_one_whose_keeper_ended_is_started_once_more(
    core: Core, config: Config, runtime: FakeRuntime, ada: httpx2.AsyncClient
) -> None:
    made = await running(core, ada, await ready_snapshot(core, config))
    [name] = runtime.running
    await runtime.kill(name, "keeper_gone")
    answer = await ada.post(f"/api/instances/{made['id']}/query", json={"query": "RETURN 1"})
    assert code_of(answer) == (409, "instance_not_running")
    found = await until_status(core, made["id"], "running")
    assert found.generation_number == 2


async def test_a_start_is_given_up_when_nothing_moved_for_ten_minutes(
    core: Core, config: Config, runtime: FakeRuntime, ada: httpx2.AsyncClient
) -> None:
    runtime.behaviour.starts_as = "starting"
    made = await create(ada, snapshot_id=str((await ready_snapshot(core, config)).id))

    async def started() -> bool:
        return len(runtime.started) == 1

    await until("its process is there", started)
    await core.db.pool("durable").execute(
        "UPDATE jobs SET started_at = started_at - interval '11 minutes' WHERE kind = 'instance_start'"
    )
    found = await until_status(core, made["id"], "failed")
    assert found.error is not None
    assert found.error["code"] == "STARTUP_FAILED"
    assert found.error["message"] == f"Process {found.pod_name} never answered."
    await until_idle(core)
    assert runtime.running == {}


async def test_one_deleted_while_its_failed_start_is_cleaned_up_goes(
    core: Core, config: Config, runtime: FakeRuntime, ada: httpx2.AsyncClient
) -> None:
    """The cleanup has the lock: nobody else can stop it, and the cleanup may have looked already."""
    gate, reached = asyncio.Event(), asyncio.Event()

    async def held(what: str, name: str) -> None:
        if what == "delete":
            reached.set()
            await gate.wait()

    runtime.before = held
    runtime.behaviour.phases = [{"phase": "failed", "error": {"cause": "loader_died"}}]
    made = await create(ada, snapshot_id=str((await ready_snapshot(core, config)).id))
    await asyncio.wait_for(reached.wait(), 60)
    deleting = asyncio.create_task(ada.delete(f"/api/instances/{made['id']}"))
    await until_status(core, made["id"], "stopping")
    gate.set()
    assert (await deleting).status_code == 200
    await until_idle(core)


async def test_many_of_one_owner_are_deleted_with_a_verdict_each(
    core: Core, config: Config, runtime: FakeRuntime, ada: httpx2.AsyncClient, bob: httpx2.AsyncClient
) -> None:
    snapshot = await ready_snapshot(core, config)
    mine = [await running(core, ada, snapshot, name=f"test-{n}") for n in range(3)]
    body = {"filter": {"name_prefix": "test-"}, "reason": "over"}
    assert (await bob.post("/api/instances/delete", json=body)).json()["data"] == []
    dry = (await ada.post("/api/instances/delete", json={**body, "dry_run": True})).json()["data"]
    assert {one["verdict"] for one in dry} == {"would_delete"}
    wrong = await ada.post("/api/instances/delete", json={**body, "expected_count": 2})
    assert code_of(wrong) == (409, "count_differs")
    verdicts = (await ada.post("/api/instances/delete", json={**body, "expected_count": 3})).json()["data"]
    assert [(one["id"], one["verdict"]) for one in verdicts] == [(one["id"], "deleted") for one in mine]
    ids = {"ids": [mine[0]["id"], "019a8b1e-4c50-7000-9d6e-6f1d3c0a51e7"], "reason": "again"}
    verdicts = (await ada.post("/api/instances/delete", json=ids)).json()["data"]
    assert [one["verdict"] for one in verdicts] == ["deleted", "not_found"]
