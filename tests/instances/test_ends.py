"""One table says what an end means; here it is walked."""

import json
from collections.abc import Mapping

import httpx2
import pytest
from structlog.testing import capture_logs

from paddock.config import Config
from paddock.instances.ends import END_OF, OF_RUNTIME, cause_of, error_of
from paddock.jobs.core import Core
from paddock.runtimes.diagnosis import Diagnosis, Verdict
from paddock.runtimes.runtime import RuntimeWords
from tests.instances.fake_runtime import FakeRuntime
from tests.instances.world import create, ready_snapshot, until_idle, until_status

# As the specification has it.
CODES: Mapping[str, str] = {
    "never_answered": "STARTUP_FAILED",
    "no_room": "STARTUP_FAILED",
    "no_disk": "STARTUP_FAILED",
    "disk_full": "STARTUP_FAILED",
    "start_cancelled": "STARTUP_FAILED",
    "start_failed": "STARTUP_FAILED",
    "never_created": "STARTUP_FAILED",
    "refused": "STARTUP_FAILED",
    "manifest_missing": "MAPPING_FETCH_ERROR",
    "manifest_changed": "MAPPING_FETCH_ERROR",
    "file_missing": "MAPPING_FETCH_ERROR",
    "file_changed": "MAPPING_FETCH_ERROR",
    "ddl_refused": "SCHEMA_CREATE_ERROR",
    "key_duplicate": "DATA_LOAD_ERROR",
    "key_null": "DATA_LOAD_ERROR",
    "value_does_not_fit": "DATA_LOAD_ERROR",
    "loader_died": "DATA_LOAD_ERROR",
    "stood_still": "DATA_LOAD_ERROR",
    "snapshot_failed": "DATA_LOAD_ERROR",
    "snapshot_cancelled": "DATA_LOAD_ERROR",
    "snapshot_deleted": "DATA_LOAD_ERROR",
    "counts_differ": "DATABASE_ERROR",
    "database_does_not_open": "DATABASE_ERROR",
    "out_of_memory": "OOM_KILLED",
    "killed_for_memory": "OOM_KILLED",
    "exited": "UNEXPECTED_TERMINATION",
    "keeper_gone": "UNEXPECTED_TERMINATION",
    "unknown_for_long": "UNEXPECTED_TERMINATION",
    "disrupted": "UNEXPECTED_TERMINATION",
    "failed": "UNEXPECTED_TERMINATION",
}
# What the instance server reports.
REPORTED = (
    *("file_missing", "file_changed", "ddl_refused", "key_duplicate", "key_null", "value_does_not_fit", "loader_died"),
    *("counts_differ", "database_does_not_open", "disk_full"),
)


def test_the_table_is_the_specification() -> None:
    assert {cause: end.code for cause, end in END_OF.items()} == CODES
    assert set(OF_RUNTIME.values()) <= END_OF.keys()


@pytest.mark.parametrize("cause", sorted(END_OF))
def test_every_end_is_a_sentence_with_something_to_do(cause: str) -> None:
    error = error_of(cause, words=RuntimeWords("Pod", "Kubernetes"), name="ladybug-wrapper-1", error="the query failed")
    assert "{" not in error["message"]
    assert error["message"][0].isupper()
    assert error.get("hint") or END_OF[cause].then == "larger"
    assert error_of(cause, message="What it said.", hint="Do this.")["message"] == "What it said."


def test_a_cause_of_a_newer_server_is_a_failed_start() -> None:
    assert cause_of("eaten_by_dog") == "start_failed"


@pytest.mark.usefixtures("at_work")
@pytest.mark.parametrize("cause", REPORTED)
async def test_what_the_server_reports_is_what_the_owner_reads(
    core: Core, config: Config, runtime: FakeRuntime, ada: httpx2.AsyncClient, cause: str
) -> None:
    error = {"cause": cause, "message": f"Airport: {cause}.", "hint": "Mend it."}
    runtime.behaviour.phases = [{"phase": "nodes"}, {"phase": "failed", "error": error}]
    made = await create(ada, snapshot_id=str((await ready_snapshot(core, config)).id))
    found = await until_status(core, made["id"], "failed")
    assert found.error == {"code": CODES[cause], **error}
    await until_idle(core)
    assert runtime.running == {}


@pytest.mark.usefixtures("at_work")
async def test_a_manifest_that_was_changed_or_is_gone_is_said(
    core: Core, config: Config, runtime: FakeRuntime, ada: httpx2.AsyncClient
) -> None:
    snapshot = await ready_snapshot(core, config)
    manifests = list((config.data / "objects").rglob("_manifest.json"))
    manifests[0].write_text("{}")
    made = await create(ada, snapshot_id=str(snapshot.id))
    found = await until_status(core, made["id"], "failed")
    assert found.error is not None
    assert (found.error["code"], found.error["cause"]) == ("MAPPING_FETCH_ERROR", "manifest_changed")
    for manifest in manifests:
        manifest.unlink()
    await until_idle(core)
    assert (await ada.post(f"/api/instances/{made['id']}/reopen")).status_code == 202
    found = await until_status(core, made["id"], "failed")
    assert found.error is not None
    assert (found.error["code"], found.error["cause"]) == ("MAPPING_FETCH_ERROR", "manifest_missing")


@pytest.mark.usefixtures("at_work")
async def test_no_disk_is_a_failed_start(
    core: Core, config: Config, runtime: FakeRuntime, ada: httpx2.AsyncClient
) -> None:
    runtime.behaviour.no_room = "8 GB of disk are needed."
    made = await create(ada, snapshot_id=str((await ready_snapshot(core, config)).id))
    found = await until_status(core, made["id"], "failed")
    assert found.error is not None
    assert (found.error["code"], found.error["message"]) == ("STARTUP_FAILED", "8 GB of disk are needed.")


@pytest.mark.usefixtures("at_work")
async def test_a_creation_that_fails_is_logged_each_time_with_what_stood_against_it(
    core: Core, config: Config, runtime: FakeRuntime, ada: httpx2.AsyncClient
) -> None:
    lost = iter([True, False])
    runtime.loses = lambda what, _name: what == "start" and next(lost, False)
    with capture_logs() as logged:
        tried = await create(ada, snapshot_id=str((await ready_snapshot(core, config)).id))
        await until_status(core, tried["id"], "running")
        runtime.behaviour.no_room = "8 GB of disk are needed."
        refused = await create(ada, snapshot_id=tried["snapshot_id"])
        await until_status(core, refused["id"], "failed")
    lines = [line for line in logged if line["event"] == "wrapper_pod_creation_failed"]
    assert [(line["log_level"], line["instance_id"], line["pod_name"], line["error"]) for line in lines] == [
        ("warning", tried["id"], f"ladybug-wrapper-{tried['id']}-1", "TransientResourceError: The answer was lost."),
        ("error", refused["id"], f"ladybug-wrapper-{refused['id']}-1", "NoRoom: 8 GB of disk are needed."),
    ]


@pytest.mark.usefixtures("at_work")
async def test_a_process_that_ends_while_it_loads(
    core: Core, config: Config, runtime: FakeRuntime, ada: httpx2.AsyncClient
) -> None:
    runtime.behaviour.starts_as, runtime.behaviour.why = "ended", "exited"
    made = await create(ada, snapshot_id=str((await ready_snapshot(core, config)).id))
    found = await until_status(core, made["id"], "failed")
    assert found.error is not None
    assert found.error["code"] == "STARTUP_FAILED"
    assert "never answered" in found.error["message"]


@pytest.mark.usefixtures("at_work")
@pytest.mark.parametrize("verdict", ["permanent", "transient"])
async def test_what_the_runtime_knows_of_a_failure_is_kept_however_the_start_ends_of_it(
    core: Core, config: Config, runtime: FakeRuntime, ada: httpx2.AsyncClient, verdict: Verdict
) -> None:
    """Refused for good while it is looked at, or with its tries spent: category, hint and the cluster's words reach the owner."""
    diagnosis = Diagnosis(
        category="forbidden",
        verdict=verdict,
        mended_by="operator",
        message="Kubernetes does not allow Paddock what it tried.",
        hint="Apply the Roles again.",
        words="pods is forbidden",
    )
    async with core.db.transaction() as tx:
        await tx.execute("UPDATE kinds SET cluster_limit = 0 WHERE name = 'instance_start'")

    async def refuse(what: str, _name: str) -> None:
        if what == "get":
            raise diagnosis.error()

    runtime.before = refuse
    snapshot = await ready_snapshot(core, config)
    made = await create(ada, snapshot_id=str(snapshot.id))
    found = await until_status(core, made["id"], "failed")
    assert found.error is not None
    assert (found.error["code"], found.error["hint"]) == ("STARTUP_FAILED", diagnosis.hint)
    assert diagnosis.message in found.error["message"]
    assert found.error["diagnosis"] == diagnosis.as_json()
    data = await core.db.pool("durable").fetchval(
        "SELECT data FROM events WHERE subject = $1 AND type = 'instance.failed'", f"instance:{made['id']}"
    )
    told = json.loads(data)
    assert {name: told[name] for name in ("code", "category", "message", "hint", "words", "mended_by")} == {
        "code": "STARTUP_FAILED",
        "category": "forbidden",
        "message": found.error["message"],
        "hint": diagnosis.hint,
        "words": diagnosis.words,
        "mended_by": "operator",
    }
    runtime.before = None
