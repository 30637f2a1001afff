"""What a control plane does for instances when it starts, what doctor finds, and what no log ever holds."""

from pathlib import Path

import httpx2
import pytest

from paddock import log
from paddock.config import Config
from paddock.instances import beginning, examining, running_on
from paddock.instances.settings import InstanceSettings
from paddock.jobs.core import Core
from paddock.runtimes.local import LocalRuntime
from tests.instances.fake_runtime import FakeRuntime
from tests.instances.world import create, ready_snapshot, running, until_gone, until_idle, until_status


async def test_another_folder_is_refused_while_instances_live_in_the_one_it_knows(
    core: Core, config: Config, tmp_path: Path, ada: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    snapshot = await ready_snapshot(core, config)
    one, other = LocalRuntime(tmp_path / "one"), LocalRuntime(tmp_path / "other")
    monkeypatch.setitem(running_on.OPENED, ("local", config.data), one)
    await beginning.at_start(core, config)
    monkeypatch.setitem(running_on.OPENED, ("local", config.data), other)
    await beginning.at_start(core, config)  # nothing lives anywhere: it moves
    monkeypatch.setitem(running_on.OPENED, ("local", config.data), one)
    await beginning.at_start(core, config)
    await create(ada, snapshot_id=str(snapshot.id))
    await beginning.at_start(core, config)
    monkeypatch.setitem(running_on.OPENED, ("local", config.data), other)
    with pytest.raises(beginning.AnotherPlace, match="1 instances in another folder than"):
        await beginning.at_start(core, config)
    await beginning.at_start(core, config.with_settings(InstanceSettings(runtime="none")))


@pytest.mark.usefixtures("at_work")
async def test_what_should_run_is_looked_after_and_what_stops_is_gone_on_with(
    core: Core, config: Config, runtime: FakeRuntime, ada: httpx2.AsyncClient
) -> None:
    snapshot = await ready_snapshot(core, config)
    kept, killed, restored, stopped = [await running(core, ada, snapshot, name=f"n{n}") for n in range(4)]
    await runtime.kill(f"ladybug-wrapper-{killed['id']}-1")
    await runtime.kill(f"ladybug-wrapper-{restored['id']}-1", "keeper_gone")
    await until_idle(core)
    await core.db.pool("durable").execute(
        "UPDATE instances SET status = 'stopping', deleted_by = 'ada' WHERE id = $1", stopped["id"]
    )
    await beginning.at_start(core, config)
    assert (await until_status(core, kept["id"], "running")).generation_number == 1
    assert (await until_status(core, killed["id"], "failed")).error["code"] == "UNEXPECTED_TERMINATION"  # type: ignore[index]  # it has one
    assert (await until_status(core, restored["id"], "running")).generation_number == 2
    await until_gone(core, stopped["id"])


async def test_doctor_says_what_there_is(
    core: Core, config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(running_on.OPENED, ("local", config.data), LocalRuntime(tmp_path / "instances"))
    found = [finding async for finding in examining.instances(core, config)]
    assert {finding.level for finding in found} <= {"ok", "warning"}
    assert any("Graph engines: ladybug" in finding.message for finding in found)
    none = config.with_settings(InstanceSettings(runtime="none"))
    assert [finding.level async for finding in examining.instances(core, none)] == ["ok"]


@pytest.mark.usefixtures("at_work", "logging_put_back")
async def test_no_token_and_no_query_text_is_logged_told_or_shown(
    core: Core, config: Config, runtime: FakeRuntime, ada: httpx2.AsyncClient, capfd: pytest.CaptureFixture[str]
) -> None:
    log.configure("debug", "json")
    made = await running(core, ada, await ready_snapshot(core, config))
    token = await core.db.pool("durable").fetchval("SELECT token FROM instances")
    assert len(token) > 40
    secret = "MATCH (sekrit) RETURN sekrit"
    answers = [
        await ada.post(f"/api/instances/{made['id']}/query", json={"query": secret}),
        await ada.get(f"/api/instances/{made['id']}"),
        await ada.get("/api/instances"),
        await ada.get(f"/api/instances/{made['id']}/events"),
        await ada.get(f"/api/instances/{made['id']}/logs"),
        await ada.get(f"/api/jobs?tag=instance:{made['id']}"),
    ]
    [name] = runtime.running
    await runtime.kill(name)
    answers.append(await ada.post(f"/api/instances/{made['id']}/query", json={"query": secret}))
    answers.append(await ada.delete(f"/api/instances/{made['id']}"))
    answers.append(await ada.get(f"/api/instances/{made['id']}"))
    written = capfd.readouterr()
    told = written.out + written.err + "".join(answer.text for answer in answers)
    told += str(await core.db.pool("durable").fetch("SELECT data FROM events"))
    told += str(await core.db.pool("durable").fetch("SELECT payload, saved, result FROM job_history"))
    told += str(await core.db.pool("durable").fetch("SELECT details, reason FROM audit_log"))
    assert "transitioning_instance_to_starting" in told
    assert token not in told
    assert "sekrit" not in told
