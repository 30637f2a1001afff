"""Snapshots over the API: who may make, see, retry and delete which, and the same request twice."""

import asyncio
from pathlib import Path
from typing import Any

import httpx2
import pytest
from fastapi import FastAPI

from paddock.api.app import create_app
from paddock.config import Config
from paddock.exports import snapshots
from paddock.exports.settings import ExportSettings
from paddock.jobs import reading
from paddock.jobs.core import Core
from paddock.jobs.filtering import Filter
from paddock.storage.drafts import Draft, new_draft_id
from paddock.storage.scratch import Scratch
from paddock.storage.store import open_store
from tests.api.conftest import Clients
from tests.conftest import DatabaseClock
from tests.mappings.conftest import ENGINES
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
from tests.upkeep.test_bulk import Line, turn

NOBODYS = "019a8b1e-4c00-7000-8f6e-2f9d3c0a51e7"
FINANCE = {"X-Use-Case-Id": "finance"}


def code(answer: httpx2.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["error"]["code"]


async def asked(core: Core, **fields: Any) -> dict[str, Any]:
    return {"mapping_id": str((await make_mapping(core)).id), "engine": "local", **fields}


async def test_it_is_accepted_and_can_be_read_at_its_location(ada: httpx2.AsyncClient, core: Core) -> None:
    body = await asked(core, engine="warehouse", catalog="hive", schema="air", ttl="P1D", description="x")
    made = await ada.post("/api/snapshots", json=body, headers=FINANCE)
    assert made.status_code == 202, made.text
    snapshot = made.json()["data"]
    assert (snapshot["status"], snapshot["name"], snapshot["role"]) == ("pending", "air v1", "finance")
    assert snapshot["request"] == {
        "catalog": "hive",
        "schema_name": "air",
        "mode": "direct",
        "max_duration_seconds": 3600,
    }
    assert [part["name"] for part in snapshot["parts"]] == NAMES
    assert (await ada.get(made.headers["location"])).json()["data"] == snapshot
    [attempt, *_] = (await claim(core)).values()
    payload = payload_of(attempt)
    assert (payload["catalog"], payload["schema_name"], attempt.job.role) == ("hive", "air", "finance")
    shown = (await ada.get(made.headers["location"])).json()["data"]
    assert (shown["status"], shown["parts"][0]["status"]) == ("creating", "claimed")


async def test_only_of_a_version_and_with_an_engine_that_one_may_use(clients: Clients, core: Core) -> None:
    await clients.token("carol", "analyst", engines=["warehouse"], engine_roles=["finance"])
    carol = await clients("carol")
    mapping = await make_mapping(core, owner="carol")
    hers = {"mapping_id": str(mapping.id)}
    theirs = {"mapping_id": str((await make_mapping(core, owner="ada")).id)}
    for body, headers, refusal in (
        ({**hers, "engine": "local"}, FINANCE, (403, "engine_not_allowed")),
        (hers, {"X-Use-Case-Id": "people"}, (403, "engine_role_not_allowed")),
        (hers, {}, (422, "missing_use_case_id")),
        (hers, {"X-Use-Case-Id": "a b"}, (422, "invalid")),
        ({**hers, "mapping_version": 2}, FINANCE, (404, "not_found")),
        ({**hers, "mapping_version": 0}, FINANCE, (422, "invalid")),
        (theirs, FINANCE, (404, "not_found")),
        ({"mapping_id": NOBODYS}, FINANCE, (404, "not_found")),
        ({**hers, "ttl": "P0D"}, FINANCE, (422, "invalid")),
    ):
        assert code(await carol.post("/api/snapshots", json=body, headers=headers)) == refusal, body
    assert (await carol.post("/api/snapshots", json=hers, headers=FINANCE)).status_code == 202


async def test_the_same_key_makes_one_snapshot(ada: httpx2.AsyncClient, core: Core) -> None:
    body = await asked(core)
    headers = {"Idempotency-Key": "k"}
    answers = await asyncio.gather(*(ada.post("/api/snapshots", json=body, headers=headers) for _ in range(5)))
    assert {answer.status_code for answer in answers} == {202}
    assert len({answer.json()["data"]["id"] for answer in answers}) == 1
    assert len(await claim(core)) == 4
    repeated = await ada.post("/api/snapshots", json=body, headers=headers)
    assert repeated.json()["data"]["status"] == "creating", "the same, in its present state"
    other = await ada.post("/api/snapshots", json={**body, "name": "other"}, headers=headers)
    assert code(other) == (422, "idempotency_key_reused")
    under_a_role = await ada.post("/api/snapshots", json=body, headers={**headers, **FINANCE})
    assert code(under_a_role) == (422, "idempotency_key_reused")


async def failed(core: Core, **fields: Any) -> str:
    snapshot = await make_snapshot(core, **fields)
    for name, attempt in (await claim(core)).items():
        await (attempt.finish("permanent") if name == "ROUTE" else complete(attempt))
    return f"/api/snapshots/{snapshot.id}"


class TestRetry:
    async def test_keeps_the_role_and_another_is_refused(self, ada: httpx2.AsyncClient, core: Core) -> None:
        own = await failed(core)
        assert code(await ada.post(f"{own}/retry", headers={"X-Use-Case-Id": "people"})) == (409, "role_mismatch")
        assert (await ada.get(own)).json()["data"]["status"] == "failed"
        again = await ada.post(f"{own}/retry", headers=FINANCE)
        assert (again.status_code, again.json()["data"]["status"]) == (202, "creating")
        [attempt] = (await claim(core)).values()
        assert attempt.job.role == "finance"

    async def test_of_one_made_without_a_role_takes_none(self, ada: httpx2.AsyncClient, core: Core) -> None:
        own = await failed(core, engine="local", role=None)
        assert code(await ada.post(f"{own}/retry", headers=FINANCE)) == (409, "role_mismatch")
        assert (await ada.post(f"{own}/retry")).status_code == 202

    async def test_needs_the_role_and_the_engine_again(self, clients: Clients, core: Core) -> None:
        own = await failed(core, owner="dora")
        for granted, refusal in (
            ({"engines": ["warehouse"], "engine_roles": ["people"]}, "engine_role_not_allowed"),
            ({"engines": ["local"], "engine_roles": ["finance"]}, "engine_not_allowed"),
        ):
            clients.opened.pop("dora", None)
            await clients.token("dora", "analyst", **granted)
            assert code(await (await clients("dora")).post(f"{own}/retry")) == (403, refusal)

    async def test_the_same_key_retries_once(self, ada: httpx2.AsyncClient, core: Core) -> None:
        own = await failed(core)
        headers = {"Idempotency-Key": "k"}
        answers = await asyncio.gather(*(ada.post(f"{own}/retry", headers=headers) for _ in range(4)))
        assert {answer.status_code for answer in answers} == {202}
        [attempt] = (await claim(core)).values()
        await attempt.finish("permanent")
        assert (await ada.post(f"{own}/retry", headers=headers)).status_code == 202
        assert await claim(core) == {}, "a repeated request is no second one"
        assert (await ada.post(f"{own}/retry", headers={"Idempotency-Key": "other"})).status_code == 202
        assert len(await claim(core)) == 1


async def test_cancel_and_delete(ada: httpx2.AsyncClient, core: Core) -> None:
    snapshot = await make_snapshot(core)
    own = f"/api/snapshots/{snapshot.id}"
    busy = await ada.delete(own)
    assert code(busy) == (409, "snapshot_busy")
    assert len(busy.json()["error"]["details"]["jobs"]) == 4
    cancelled = await ada.post(f"{own}/cancel", json={"reason": "wrong"})
    assert cancelled.json()["data"]["status"] == "cancelled"
    assert code(await ada.post(f"{own}/cancel")) == (409, "already_finished")
    gone = await ada.delete(own)
    assert (gone.status_code, gone.json()["data"]["status"]) == (202, "deleting")
    assert (await ada.delete(own)).status_code == 202
    assert (await ada.get("/api/snapshots")).json()["data"] == [], "what goes is hidden"
    assert len((await ada.get("/api/snapshots?status=deleting")).json()["data"]) == 1
    assert code(await ada.post(f"{own}/retry")) == (409, "snapshot_deleting")


async def test_lists_are_filtered_and_paged(ada: httpx2.AsyncClient, core: Core) -> None:
    mapping = await make_mapping(core)
    made = [await make_snapshot(core, mapping, name=f"Day {n}") for n in range(4)]
    other = await make_snapshot(core, await make_mapping(core, name="other"))
    await snapshots.cancel(core, made[1], actor="ada")

    async def names(query: str) -> list[str]:
        return [snapshot["name"] for snapshot in (await ada.get(f"/api/snapshots{query}")).json()["data"]]

    assert await names(f"?mapping={mapping.id}") == ["Day 3", "Day 2", "Day 1", "Day 0"]
    assert await names(f"?mapping={other.mapping_id}") == ["other v1"]
    assert await names("?status=cancelled") == ["Day 1"]
    assert await names("?status=cancelled,ready&status=failed") == ["Day 1"]
    assert await names("?q=day%202") == ["Day 2"]
    assert await names("?name=day%203") == ["Day 3"]
    await claim(core, limit=1)
    assert await names("?status=creating") == ["Day 0"]
    first = (await ada.get("/api/snapshots?limit=3")).json()
    rest = (await ada.get("/api/snapshots", params={"limit": 3, "cursor": first["next_cursor"]})).json()
    assert len({snapshot["id"] for snapshot in [*first["data"], *rest["data"]]}) == 5
    assert code(await ada.get("/api/snapshots?status=done")) == (422, "invalid")


async def test_anothers_snapshot_is_not_there(bob: httpx2.AsyncClient, grace: httpx2.AsyncClient, core: Core) -> None:
    snapshot = await make_snapshot(core)
    for method, path in (
        ("GET", ""),
        ("DELETE", ""),
        ("GET", "/manifest"),
        ("POST", "/retry"),
        ("POST", "/cancel"),
    ):
        theirs = await bob.request(method, f"/api/snapshots/{snapshot.id}{path}", headers=FINANCE)
        nobodys = await bob.request(method, f"/api/snapshots/{NOBODYS}{path}", headers=FINANCE)
        assert theirs.status_code == 404, path
        assert theirs.json() == nobodys.json()
    for query in ("", "?owner=ada", f"?mapping={snapshot.mapping_id}", "?status=pending", "?name=air%20v1"):
        assert (await bob.get(f"/api/snapshots{query}")).json()["data"] == [], query
    assert len((await grace.get("/api/snapshots?owner=ada")).json()["data"]) == 1
    assert (await now(core, snapshot.id)).status == "pending"


class TestExplicitOff:
    @pytest.fixture
    def config(self) -> Config:
        return Config(engines=ENGINES).with_settings(ExportSettings(explicit_snapshots=False))

    async def test_nobody_makes_retries_or_cancels_one_but_reading_and_deleting_stay(
        self, ada: httpx2.AsyncClient, core: Core
    ) -> None:
        own = await failed(core)
        body = {"mapping_id": (await ada.get(own)).json()["data"]["mapping_id"], "engine": "local"}
        for path, sent in (("/api/snapshots", body), (f"{own}/retry", None), (f"{own}/cancel", None)):
            assert code(await ada.post(path, json=sent)) == (403, "explicit_snapshots_off")
        assert len((await ada.get("/api/snapshots")).json()["data"]) == 1
        assert (await ada.delete(own)).status_code == 202

    async def test_nor_a_single_job_of_it_unless_they_operate(
        self, ada: httpx2.AsyncClient, grace: httpx2.AsyncClient, core: Core
    ) -> None:
        failed_part = next(
            part for part in (await ada.get(await failed(core))).json()["data"]["parts"] if part["status"] == "failed"
        )
        snapshot = await make_snapshot(core, await make_mapping(core, name="live"))
        live = (await parts_of(core, snapshot))["Airport"]
        for path in (f"/api/jobs/{failed_part['job_id']}/retry", f"/api/jobs/{live.job_id}/cancel"):
            assert code(await ada.post(path)) == (403, "explicit_snapshots_off")
            assert (await grace.post(path)).is_success

    @pytest.mark.parametrize(("asker", "barred"), [("ada", ["snapshot"]), ("grace", [])])
    async def test_a_bulk_action_is_frozen_with_what_its_asker_may_touch(
        self, clients: Clients, asker: str, barred: list[str]
    ) -> None:
        started = await (await clients(asker)).post("/api/jobs/cancel", json={"filter": {"kind": "export"}})
        assert started.json()["data"]["payload"]["no_parts_of"] == barred

    @pytest.mark.parametrize("action", ["cancel", "retry"])
    async def test_a_bulk_action_leaves_its_jobs(self, core: Core, clock: DatabaseClock, action: str) -> None:
        await failed(core)
        await make_snapshot(core, await make_mapping(core, name="live"))
        await clock.advance(seconds=1)
        done = await turn(core, clock, action, Filter(kind="export"), Line(), no_parts_of=["snapshot"])

        assert (done.result["done"], done.result["matched"]) == (0, done.result["refused"]["part_of_snapshot"])
        exports = Filter(kind="export", include_cleanups=False)
        jobs = (await reading.page(core.db, exports, limit=100)).jobs
        assert {job.status for job in jobs} == {"pending", "failed", "completed"}
        assert len(jobs) == 2 * len(NAMES)


class TestManifest:
    @pytest.fixture
    def config(self, tmp_path: Path) -> Config:
        return Config(engines=ENGINES, object_store=str(tmp_path / "objects"))

    @pytest.fixture
    def app(self, core: Core, config: Config) -> FastAPI:
        return create_app(core, config)

    async def test_has_the_files_of_each_part_when_asked(
        self, ada: httpx2.AsyncClient, core: Core, config: Config, tmp_path: Path
    ) -> None:
        snapshot = await make_snapshot(core)
        own = f"/api/snapshots/{snapshot.id}/manifest"
        store, scratch = open_store(config.object_store), Scratch(tmp_path / "scratch", 1 << 20)
        assert code(await ada.get(own)) == (409, "snapshot_not_ready")
        sealed = None
        for attempt in (await claim(core)).values():
            draft = Draft(store, payload_of(attempt)["output"], new_draft_id())
            file = scratch.new(".parquet")
            file.write(b"rows")
            file.rows = 3
            await draft.add(file, "part-00000.parquet")
            file.remove()
            sealed = await draft.seal({"columns": [{"name": "code", "type": "string"}]})
            written = result(3, bytes=sealed.bytes, manifest=sealed.manifest, sha256=sealed.sha256)
            await attempt.finish("done", result=written)
        assert sealed is not None

        brief = (await ada.get(own)).json()["data"]
        assert "files" not in brief["parts"][0]
        whole = (await ada.get(f"{own}?files=1")).json()["data"]
        last = whole["parts"][-1]
        assert (last["manifest"], last["started_at"]) == (sealed.manifest, "2026-11-16T09:30:00Z")
        [file_shown] = last["files"]
        assert file_shown["key"] == sealed.manifest.replace("_manifest.json", "part-00000.parquet")
        assert (file_shown["rows"], file_shown["bytes"]) == (3, 4)
        assert last["columns"] == [{"name": "code", "type": "string"}]

        await store.put(sealed.manifest, b"{}")
        assert code(await ada.get(f"{own}?files=1")) == (503, "manifest_changed")
        await store.delete([sealed.manifest])
        assert code(await ada.get(f"{own}?files=1")) == (503, "store_not_found")
        assert (await ada.get(own)).json()["data"] == brief, "the totals are the jobs' results"
