"""A snapshot is ready exactly when the current job of each of its parts completed; every other end says why."""

import asyncio
from datetime import UTC, datetime
from typing import TypeAlias

import asyncpg
import pytest
from structlog.testing import capture_logs

from paddock.exports import snapshot_states, snapshots
from paddock.exports.model import ExportPayload
from paddock.jobs import grouping, wire
from paddock.jobs.core import Core
from paddock.jobs.errors import Refused
from tests.playing import read
from tests.snapshots.making import (
    NAMES,
    claim,
    complete,
    make_mapping,
    make_snapshot,
    now,
    parts_of,
    payload_of,
    result,
)

Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"


async def test_it_is_made_with_a_job_for_each_node_and_edge(core: Core) -> None:
    made = await make_snapshot(core, request={"catalog": "hive", "max_duration_seconds": 60})

    assert (made.status, made.owner, made.mapping_version, made.role) == ("pending", "ada", 1, "finance")
    parts = await parts_of(core, made)
    assert [(part.section, part.name, part.status) for part in parts.values()] == [
        ("nodes", "Airport", "pending"),
        ("nodes", "Airline", "pending"),
        ("edges", "ROUTE", "pending"),
        ("edges", "FLIES_TO", "pending"),
    ]
    job = await read(core, parts["FLIES_TO"].job_id)
    payload = ExportPayload.model_validate(job.payload)
    assert (job.role, job.owner, job.group_id) == ("finance", "ada", made.group_id)
    assert [(column.name, column.type) for column in payload.columns or []] == [
        ("airline", "INT64"),
        ("airport", "STRING"),
    ]
    assert (payload.engine, payload.catalog, payload.max_duration_seconds) == ("warehouse", "hive", 60)
    prefix = snapshot_states.prefix_of("ada", made.mapping_id, 1, made.id)
    assert payload.output == f"{prefix}/edges/FLIES_TO"
    route = ExportPayload.model_validate((await read(core, parts["ROUTE"].job_id)).payload)
    assert [(column.name, column.type) for column in route.columns or []] == [
        ("origin", "STRING"),
        ("target", "STRING"),
        ("miles", "DECIMAL(10,2)"),
    ]


async def test_nodes_are_claimed_before_edges(core: Core) -> None:
    await make_snapshot(core)
    claimed: list[str] = []
    for _ in NAMES:
        claimed += await claim(core, limit=1)
    assert claimed == NAMES


async def test_it_is_creating_once_a_job_was_claimed_and_ready_with_the_last(core: Core) -> None:
    made = await make_snapshot(core)
    attempts = await claim(core)
    assert (await now(core, made.id)).status == "creating"
    for rows, name in enumerate(NAMES):
        assert (await now(core, made.id)).status == "creating"
        assert await complete(attempts[name], rows) == "accepted"

    ready = await now(core, made.id)
    assert ready.status == "ready"
    assert ready.node_counts == {"Airport": 0, "Airline": 1}
    assert ready.edge_counts == {"ROUTE": 2, "FLIES_TO": 3}
    assert ready.size_bytes == 600
    assert ready.error is None
    assert ready.ended_at is not None
    part = (await parts_of(core, made))["ROUTE"]
    assert (part.rows, part.bytes, part.files, part.query_id) == (2, 200, 1, "q1")
    assert part.query_started_at == datetime(2026, 11, 16, 9, 30, tzinfo=UTC)


async def test_a_job_given_back_before_anything_ended_still_counts_as_claimed(core: Core) -> None:
    made = await make_snapshot(core)
    for attempt in (await claim(core)).values():
        await attempt.release()
    assert (await now(core, made.id)).status == "creating"


async def test_when_one_fails_the_others_go_on_and_then_it_failed(core: Core) -> None:
    made = await make_snapshot(core)
    attempts = await claim(core)
    error = wire.Error(code="role_denied", message="Trino refused role 'finance'.", hint="Ask for the role.")
    await attempts["ROUTE"].finish("permanent", error=wire.Error(code="later", message="Another."))
    await attempts["Airline"].finish("permanent", error=error)
    assert (await now(core, made.id)).status == "creating"
    await complete(attempts["Airport"])
    await complete(attempts["FLIES_TO"])

    failed = await now(core, made.id)
    assert failed.status == "failed"
    assert failed.error == {
        "code": "role_denied",
        "message": "Trino refused role 'finance'.",
        "hint": "Ask for the role.",
        "job_id": str(attempts["Airline"].id),
        "section": "nodes",
        "name": "Airline",
    }, "of the first in order, not in time"
    assert (failed.node_counts, failed.size_bytes) == (None, None)


async def test_an_error_without_words_is_export_failed(core: Core) -> None:
    made = await make_snapshot(core)
    attempts = await claim(core)
    for attempt in attempts.values():
        await attempt.finish("permanent", error=wire.Error(code="", message=""))
    error = (await now(core, made.id)).error
    assert error is not None
    assert error["message"] == "Export failed"


async def test_the_last_two_at_once_make_it_ready_once(core: Core, connection: Connection) -> None:
    mapping = await make_mapping(core)
    for _ in range(5):
        made = await make_snapshot(core, mapping)
        attempts = await claim(core)
        await asyncio.gather(*(complete(attempt) for attempt in attempts.values()))
        assert (await now(core, made.id)).status == "ready"
        assert await connection.fetchval("SELECT count(*) FROM groups WHERE hook_due OR open > 0") == 0


async def test_a_result_that_names_no_manifest_is_no_result(core: Core) -> None:
    made = await make_snapshot(core)
    attempts = await claim(core)
    with capture_logs():
        for attempt in attempts.values():
            broken = {name: value for name, value in result().items() if name != "manifest"}
            await attempt.finish("done", result=broken)
    assert (await now(core, made.id)).status == "creating"
    assert {part.status for part in (await parts_of(core, made)).values()} == {"pending"}


async def test_what_is_ready_stays_ready(core: Core) -> None:
    made = await make_snapshot(core)
    for attempt in (await claim(core)).values():
        await complete(attempt)
    part = (await parts_of(core, made))["Airport"]
    with pytest.raises(Refused, match="finished for good"):
        await core.retry(part.job_id, actor="ada")
    with pytest.raises(Refused) as refused:
        await snapshots.retry(core, await now(core, made.id), actor="ada")
    assert refused.value.code == "nothing_to_retry"


async def test_of_a_group_that_is_no_snapshots_nothing_is_made(core: Core) -> None:
    async with core.db.transaction() as tx:
        group = await grouping.create(tx, "export", "ada")
        await grouping.seal(core, tx, group)
    found = await grouping.get(core.db, group)
    assert found is not None
    assert not found.hook_due


async def test_the_manifest_is_composed_of_the_parts(core: Core) -> None:
    made = await make_snapshot(core)
    attempts = await claim(core)
    with pytest.raises(Refused, match="creating"):
        await snapshot_states.manifest(core.db, await now(core, made.id))
    for attempt in attempts.values():
        await attempt.finish("done", result=result(5, manifest=f"{payload_of(attempt)['output']}/x/_manifest.json"))

    manifest = await snapshot_states.manifest(core.db, await now(core, made.id))
    assert [part["name"] for part in manifest["parts"]] == NAMES
    assert manifest["rows"] == 20
    prefix = snapshot_states.prefix_of("ada", made.mapping_id, 1, made.id)
    assert manifest["parts"][2]["manifest"] == f"{prefix}/edges/ROUTE/x/_manifest.json"
    assert manifest["parts"][2]["sha256"] == "ab" * 32
    assert manifest["parts"][0]["started_at"] == datetime(2026, 11, 16, 9, 30, tzinfo=UTC)
