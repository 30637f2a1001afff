"""What `why` and `doctor` say of ingest."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from paddock.doctor import examining
from paddock.doctor.findings import Finding
from paddock.ingest import around, runs
from paddock.ingest.examining import sources
from paddock.ingest.model import Run
from paddock.jobs import reading
from paddock.jobs.filtering import Filter
from tests.ingest.conftest import SEVENS, Served

NOW = datetime(2026, 11, 18, 12, 0, tzinfo=UTC)


@pytest.fixture(autouse=True)
def secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKEN_OF_NUMBERS", "hush-hush")


async def told(served: Served, run: Run, who: str = "ada") -> list[dict[str, Any]]:
    """Of the newest job of the run."""
    found = await reading.page(served.core.db, Filter(group=run.group_id), limit=10)
    answer = await (await served.client(who)).get(f"/api/jobs/{found.jobs[0].id}/around")
    shown: list[dict[str, Any]] = answer.json()["data"] if answer.status_code == 200 else []
    return shown


async def test_why_speaks_of_the_run_that_a_job_is_part_of(served: Served) -> None:
    run = await runs.start(
        served.core, runs.NewRun(source="numbers", owner="ada", batch_size=4, max_failed_batches=1), actor="ada"
    )
    [running] = await told(served, run)
    assert running["sentence"] == "Its run of 'numbers' is running."
    assert running["what_to_do"] == [f"`paddock ingest show {run.id}` tells more."]
    async with served.core.db.transaction() as tx:
        await tx.execute("UPDATE ingest_runs SET held_since = paddock_now(), waiting_bytes = $1", 10 * 1024**3)
    [held] = await told(served, run)
    assert held["sentence"].startswith("Its run of 'numbers' is held: 10 GiB wait for hooks, since ")
    assert any("--kind run_hooks`" in advice for advice in held["what_to_do"])
    assert await told(served, run, "bob") == [], "the source does not exist for others"
    async with served.core.db.transaction() as tx:
        await tx.execute("UPDATE ingest_runs SET runtime = 'kubernetes', transfer_key = 'x'")
    [held] = await told(served, run)
    assert any("--kind run_hooks:kubernetes`" in advice for advice in held["what_to_do"])


def test_why_says_what_the_cluster_has_no_place_for() -> None:
    since = (NOW - timedelta(minutes=4)).isoformat()
    report = {"phase": "waiting for the cluster", "scheduled": 12, "unscheduled": 3, "since": since}
    said = around._cluster([{"phase": "hook a"}, report], NOW)
    assert said is not None
    assert said.sentence == "It is waiting for the cluster: 12 Jobs are scheduled, 3 find no place since 4 min."
    assert said.what_to_do
    assert around._cluster([{"phase": "hook a"}], NOW) is None


async def found(served: Served) -> dict[str, list[Finding]]:
    """What doctor says while a worker is at work."""
    async with served.worker():
        await served.offered("ingest_check")
        listed = [finding async for finding in sources(served.core, served.config)]
    return {level: [finding for finding in listed if finding.level == level] for level in ("ok", "warning", "broken")}


async def test_doctor_asks_a_worker_for_commands_and_secrets(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "ingest sources" in examining.all_checks()
    served.hooks["lost"] = {"command": ["no-such-program-anywhere"]}
    served.source("broken", hooks=["lost"], secrets={"KEY": {"file": "/nonexistent/key"}})
    monkeypatch.delenv("TOKEN_OF_NUMBERS")

    said = await found(served)

    assert [finding.message for finding in said["ok"]] == ["hidden has its commands and secrets on w-False."]
    numbers, broken = sorted((finding.message for finding in said["broken"]), reverse=True)
    assert (
        "the secret TOKEN of the source is not there: this worker does not have the variable TOKEN_OF_NUMBERS"
        in numbers
    )
    assert "the secret KEY of the source is not there" in broken
    assert "the command 'no-such-program-anywhere' of the hook 'lost' is not there" in broken


async def test_doctor_says_that_nothing_can_be_published(served: Served) -> None:
    served.hook("sevens", SEVENS)
    objects = served.folder / "data" / "objects"
    objects.parent.mkdir(parents=True, exist_ok=True)
    objects.write_text("a file in the place of the folder")
    said = await found(served)
    assert len(said["ok"]) == 2
    [broken] = said["broken"]
    assert broken.message.startswith("Nothing can be published: ")


async def test_doctor_waits_for_no_worker(served: Served) -> None:
    listed = [finding async for finding in sources(served.core, served.config)]
    assert [finding.level for finding in listed] == ["warning"]
    assert "no live worker offers ingest_check" in listed[0].message
