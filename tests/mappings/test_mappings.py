"""Mappings over the API: versions, names, owners, deletion, and validation by a worker."""

import asyncio
from datetime import timedelta
from typing import Any

import httpx2
import msgspec
import pytest

from paddock.exports import mappings, snapshots
from paddock.jobs import wire
from paddock.jobs.core import Core
from tests.api.conftest import Clients
from tests.background.ticking import end_expired
from tests.conftest import DatabaseClock
from tests.playing import Attempt, PlayedWorker
from tests.snapshots.making import AIRPORTS, make_mapping, make_snapshot

NOBODYS = "019a8b1e-4c00-7000-8f6e-2f9d3c0a51e7"
OTHER_SQL = {**AIRPORTS, "nodes": [{**AIRPORTS["nodes"][0], "sql": "SELECT 1, 2"}, AIRPORTS["nodes"][1]]}


async def made(client: httpx2.AsyncClient, **fields: Any) -> dict[str, Any]:
    answer = await client.post("/api/mappings", json={"name": "air", **AIRPORTS, **fields})
    assert answer.status_code == 201, answer.text
    mapping: dict[str, Any] = answer.json()["data"]
    return mapping


async def change(client: httpx2.AsyncClient, mapping: dict[str, Any], **fields: Any) -> httpx2.Response:
    body = {"change_description": "why not", **fields}
    return await client.post(f"/api/mappings/{mapping['id']}/versions", json=body)


def code(answer: httpx2.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["error"]["code"]


async def test_a_mapping_is_made_and_read_back(ada: httpx2.AsyncClient) -> None:
    answer = await ada.post("/api/mappings", json={"name": " air ", "description": "x", "ttl": "P1D", **AIRPORTS})
    mapping = answer.json()["data"]
    assert (mapping["name"], mapping["version"], mapping["latest"], mapping["owner"]) == ("air", 1, 1, "ada")
    assert mapping["nodes"][1]["properties"] == []
    assert (mapping["ttl"], mapping["expires_at"] is None) == ("PT86400S", False)
    assert (await ada.get(answer.headers["location"])).json()["data"] == mapping


async def test_every_error_is_told_at_its_field(ada: httpx2.AsyncClient) -> None:
    properties = [{"name": f"p{n}", "type": "STRING" if n < 3 else "TEXT"} for n in range(4)]
    bad = {**AIRPORTS, "nodes": [{**AIRPORTS["nodes"][0], "properties": properties}, AIRPORTS["nodes"][1]]}
    answer = await ada.post("/api/mappings", json={"name": "air", **bad})
    assert code(answer) == (422, "invalid")
    assert [field["field"] for field in answer.json()["error"]["details"]["fields"]] == ["nodes.0.properties.3.type"]
    shapeless = await ada.post("/api/mappings", json={"name": "", "nodes": [{"label": 1}], "extra": 1})
    fields = {field["field"] for field in shapeless.json()["error"]["details"]["fields"]}
    assert {"name", "nodes.0.label", "nodes.0.sql", "nodes.0.primary_key", "extra"} <= fields


@pytest.mark.parametrize("ttl", ["P0D", "soon", "P999999D", ""])
async def test_a_ttl_is_a_time_that_passes(ada: httpx2.AsyncClient, ttl: str) -> None:
    answer = await ada.post("/api/mappings", json={"name": "air", "ttl": ttl, **AIRPORTS})
    assert code(answer) == (422, "invalid")


async def test_names_are_unique_for_their_owner_whatever_their_case(
    ada: httpx2.AsyncClient, bob: httpx2.AsyncClient
) -> None:
    first = await made(ada)
    again = await ada.post("/api/mappings", json={"name": "AIR", **AIRPORTS})
    assert code(again) == (409, "name_taken")
    assert again.json()["error"]["details"] == {"holder": first["id"]}
    await made(bob)
    second = await made(ada, name="sea")
    assert code(await change(ada, second, name="Air")) == (409, "name_taken")
    assert (await ada.get(f"/api/mappings/{second['id']}")).json()["data"]["version"] == 1


async def test_a_change_makes_a_version_and_says_why(ada: httpx2.AsyncClient) -> None:
    mapping = await made(ada, ttl="P1D")
    own = f"/api/mappings/{mapping['id']}"
    silent = await ada.post(f"{own}/versions", json=OTHER_SQL)
    assert [field["field"] for field in silent.json()["error"]["details"]["fields"]] == ["change_description"]
    for empty in ("", "  "):
        assert code(await change(ada, mapping, change_description=empty, **OTHER_SQL)) == (422, "invalid")
    second = (await change(ada, mapping, **OTHER_SQL)).json()["data"]
    assert (second["version"], second["change_description"], second["created_by"]) == (2, "why not", "ada")
    assert (second["description"], second["ttl"]) == ("", "PT86400S"), "what is not named stays"
    third = (await change(ada, mapping, description="of the air", ttl=None)).json()["data"]
    assert (third["version"], third["nodes"][0]["sql"], third["ttl"]) == (3, "SELECT 1, 2", None)
    first = (await ada.get(f"{own}/versions/1")).json()["data"]
    assert (first["version"], first["latest"]) == (1, 3)
    assert first["nodes"] == mapping["nodes"], "a version never changes"
    listed = (await ada.get(f"{own}/versions")).json()["data"]
    assert [version["version"] for version in listed] == [3, 2, 1]
    assert (listed[0]["nodes"], listed[0]["edges"]) == (2, 2)
    for no_version in ("4", "0", "-1", "x", "9" * 30, "1.0", "٣"):
        assert (await ada.get(f"{own}/versions/{no_version}")).status_code == 404, no_version


async def test_a_change_that_changes_nothing_is_none(ada: httpx2.AsyncClient) -> None:
    mapping = await made(ada)
    assert code(await change(ada, mapping, **AIRPORTS)) == (409, "unchanged")
    assert code(await change(ada, mapping)) == (409, "unchanged")
    assert code(await change(ada, mapping, edges=[])) == (422, "invalid"), "half a definition"


async def test_of_two_changes_to_the_same_version_the_second_is_told(ada: httpx2.AsyncClient) -> None:
    mapping = await made(ada)
    answers = await asyncio.gather(
        *(change(ada, mapping, based_on=1, description=f"by {n}") for n in range(4)),
    )
    assert sorted(answer.status_code for answer in answers) == [201, 409, 409, 409]
    conflict = next(answer for answer in answers if answer.status_code == 409)
    assert (code(conflict)[1], conflict.json()["error"]["details"]) == ("version_conflict", {"version": 2})


async def test_versions_are_compared(ada: httpx2.AsyncClient) -> None:
    mapping = await made(ada)
    await change(ada, mapping, **OTHER_SQL)
    own = f"/api/mappings/{mapping['id']}/diff"
    newest = (await ada.get(own)).json()["data"]
    assert (newest["from"], newest["to"]) == (1, 2)
    assert newest["nodes"]["changed"][0]["sql"]["to"] == "SELECT 1, 2"
    back = (await ada.get(f"{own}?from=2&to=1")).json()["data"]
    assert back["nodes"]["changed"][0]["sql"]["from"] == "SELECT 1, 2"
    assert (await ada.get(f"{own}?from=7&to=1")).status_code == 404


async def test_lists_are_searched_and_paged(ada: httpx2.AsyncClient) -> None:
    for n in range(5):
        await made(ada, name=f"Air {n}", description="100% of _it" if n == 3 else "")

    async def names(query: str) -> list[str]:
        return [mapping["name"] for mapping in (await ada.get(f"/api/mappings{query}")).json()["data"]]

    assert await names("") == ["Air 4", "Air 3", "Air 2", "Air 1", "Air 0"]
    assert await names("?q=AIR%202") == ["Air 2"]
    assert await names("?q=100%25 of _") == ["Air 3"], "neither % nor _ is a wildcard"
    assert await names("?name=air%201") == ["Air 1"]
    assert await names("?name=air") == []
    walked: list[str] = []
    cursor: str | None = ""
    while cursor is not None:
        answer = (await ada.get("/api/mappings", params={"limit": 2, **({"cursor": cursor} if cursor else {})})).json()
        walked += [mapping["name"] for mapping in answer["data"]]
        cursor = answer["next_cursor"]
    assert walked == await names("")


async def test_versions_are_paged(ada: httpx2.AsyncClient) -> None:
    mapping = await made(ada)
    for n in range(3):
        await change(ada, mapping, description=f"{n}")
    own = f"/api/mappings/{mapping['id']}/versions"
    first = (await ada.get(f"{own}?limit=3")).json()
    rest = (await ada.get(f"{own}?limit=3&cursor={first['next_cursor']}")).json()
    assert [one["version"] for one in [*first["data"], *rest["data"]]] == [4, 3, 2, 1]
    assert (await ada.get(f"{own}?cursor=MTAwMDAwMDAwMDAwMDAwMDA")).json()["data"][0]["version"] == 4
    assert (await ada.get(f"{own}?cursor=LTU")).json()["data"] == []


async def test_anothers_mapping_is_not_there(
    ada: httpx2.AsyncClient, bob: httpx2.AsyncClient, grace: httpx2.AsyncClient
) -> None:
    own = f"/api/mappings/{(await made(ada))['id']}"
    for method, path, body in (
        ("GET", "", None),
        ("DELETE", "", None),
        ("GET", "/versions", None),
        ("POST", "/versions", {"change_description": "x", **OTHER_SQL}),
        ("GET", "/versions/1", None),
        ("GET", "/diff", None),
        ("POST", "/copy", {"name": "mine"}),
        ("POST", "/validate", {"engine": "local"}),
    ):
        theirs = await bob.request(method, f"{own}{path}", json=body)
        nobodys = await bob.request(method, f"/api/mappings/{NOBODYS}{path}", json=body)
        assert theirs.status_code == 404, path
        assert theirs.json() == nobodys.json()
    assert (await bob.get("/api/mappings")).json()["data"] == []
    assert (await bob.get("/api/mappings?owner=ada")).json()["data"] == []
    assert len((await grace.get("/api/mappings?owner=ada")).json()["data"]) == 1
    assert (await ada.get(own)).json()["data"]["version"] == 1


async def test_a_copy_is_ones_own_and_begins_at_one(ada: httpx2.AsyncClient, grace: httpx2.AsyncClient) -> None:
    mapping = await made(ada)
    await change(ada, mapping, **OTHER_SQL)
    own = f"/api/mappings/{mapping['id']}/copy"
    copy = (await grace.post(own, json={"name": "air", "version": 1})).json()["data"]
    assert (copy["owner"], copy["version"], copy["nodes"]) == ("grace", 1, mapping["nodes"])
    assert copy["change_description"] == "Copied from air, version 1."
    assert code(await ada.post(own, json={"name": "AIR"})) == (409, "name_taken")


class TestDelete:
    async def test_goes_with_all_versions(self, ada: httpx2.AsyncClient) -> None:
        mapping = await made(ada)
        await change(ada, mapping, **OTHER_SQL)
        own = f"/api/mappings/{mapping['id']}"
        assert (await ada.delete(own)).status_code == 200
        for path in ("", "/versions", "/versions/1"):
            assert (await ada.get(f"{own}{path}")).status_code == 404

    async def test_is_refused_while_there_are_snapshots_and_names_them(
        self, ada: httpx2.AsyncClient, core: Core
    ) -> None:
        mapping = await make_mapping(core)
        snapshot = await make_snapshot(core, mapping, name="monday")
        refused = await ada.delete(f"/api/mappings/{mapping.id}")
        assert code(refused) == (409, "mapping_in_use")
        assert refused.json()["error"]["details"]["snapshots"] == [{"id": str(snapshot.id), "name": "monday"}]
        assert "monday" in refused.json()["error"]["message"]
        await snapshots.cancel(core, snapshot, actor="ada")
        await snapshots.delete(core, snapshot.id, actor="ada")
        assert (await ada.delete(f"/api/mappings/{mapping.id}")).status_code == 200, "what goes keeps nothing alive"

    async def test_names_nobody_elses_snapshot(self, ada: httpx2.AsyncClient, core: Core) -> None:
        mapping = await make_mapping(core)
        await make_snapshot(core, mapping, owner="grace", name="secret plan")
        refused = await ada.delete(f"/api/mappings/{mapping.id}")
        assert code(refused) == (409, "mapping_in_use")
        assert "secret" not in refused.text

    async def test_against_a_snapshot_in_the_making(self, core: Core) -> None:
        for n in range(8):
            mapping = await make_mapping(core, name=f"air {n}")
            answers = await asyncio.gather(
                mappings.delete(core, mapping.id, actor="ada", scope=None),
                make_snapshot(core, mapping),
                return_exceptions=True,
            )
            lost = [getattr(answer, "code", None) for answer in answers if isinstance(answer, BaseException)]
            assert lost in (["mapping_in_use"], ["not_found"]), answers


async def test_a_mapping_expires_when_no_snapshot_is_left(core: Core, clock: DatabaseClock) -> None:
    mapping = await make_mapping(core, ttl=timedelta(hours=1))
    lasting = await make_mapping(core, name="lasting")
    snapshot = await make_snapshot(core, mapping)
    await clock.advance(minutes=60)
    assert await end_expired(core, "mappings") == 0
    await snapshots.cancel(core, snapshot, actor="ada")
    await snapshots.delete(core, snapshot.id, actor="ada")
    assert await end_expired(core, "mappings") == 1
    assert await mappings.get(core.db, mapping.id) is None
    assert await mappings.get(core.db, lasting.id) is not None


async def test_the_same_key_makes_one_mapping(ada: httpx2.AsyncClient, bob: httpx2.AsyncClient) -> None:
    headers = {"Idempotency-Key": "k"}
    body = {"name": "air", **AIRPORTS}
    answers = await asyncio.gather(*(ada.post("/api/mappings", json=body, headers=headers) for _ in range(4)))
    assert {answer.status_code for answer in answers} == {201}
    assert len({answer.json()["data"]["id"] for answer in answers}) == 1
    other = await ada.post("/api/mappings", json={**body, "name": "sea"}, headers=headers)
    assert code(other) == (422, "idempotency_key_reused")
    assert (await bob.post("/api/mappings", json=body, headers=headers)).status_code == 201


def asked(attempt: Attempt) -> dict[str, Any]:
    payload: dict[str, Any] = msgspec.json.decode(attempt.job.payload)
    return payload


async def describing(core: Core) -> PlayedWorker:
    """A worker that has engines to ask."""
    link = core.link()
    registered = await link.register(wire.Register(worker_id="w", version="test", kinds=["describe"], slots=10))
    return PlayedWorker(link, registered.session)


class TestValidate:
    async def test_each_mismatch_is_told_at_its_column(self, ada: httpx2.AsyncClient, core: Core) -> None:
        mapping = await made(ada)
        played = await describing(core)
        request = asyncio.create_task(ada.post(f"/api/mappings/{mapping['id']}/validate", json={"engine": "local"}))
        attempts = await self._claimed(played, 4)
        for sql, attempt in attempts.items():
            columns = [{"name": "c", "type": "STRING", "arrow": "string", "native": "VARCHAR"}]
            wrong = {
                "position": 2,
                "column": "miles",
                "expected": "DECIMAL(10,2)",
                "found": "DOUBLE",
                "hint": "Cast it.",
            }
            mismatches = [wrong] if "routes" in sql else []
            named = {"position": 0, "column": "code", "found": "iata", "message": "Position counts."}
            warnings = [named] if "airports" in sql else []
            result = {"columns": columns, "mismatches": mismatches, "warnings": warnings}
            await attempt.finish("done", result=result)
        answer = (await request).json()["data"]
        assert not answer["valid"]
        judged = {entity["name"]: entity for entity in answer["entities"]}
        assert list(judged) == ["Airport", "Airline", "ROUTE", "FLIES_TO"]
        assert judged["Airport"]["valid"]
        assert judged["Airport"]["warnings"][0]["field"] == "nodes.0.primary_key"
        [mismatch] = judged["ROUTE"]["mismatches"]
        assert (mismatch["field"], mismatch["column"]) == ("edges.0.properties.0", "miles")
        assert (mismatch["expected"], mismatch["found"]) == ("DECIMAL(10,2)", "DOUBLE")

    async def test_a_query_the_engine_refuses_is_told_where_it_stands(
        self, ada: httpx2.AsyncClient, core: Core
    ) -> None:
        headers = {"X-Use-Case-Id": "finance"}
        body = {"engine": "warehouse", "catalog": "hive", "schema": "air", "nodes": AIRPORTS["nodes"]}
        played = await describing(core)
        request = asyncio.create_task(ada.post("/api/mappings/validate", json=body, headers=headers))
        attempts = await self._claimed(played, 2)
        refused = {"code": "no_such_table", "message": "There is none.", "hint": None, "line": 1, "column": 9}
        fine: dict[str, Any] = {"columns": [], "mismatches": []}
        for sql, attempt in attempts.items():
            assert attempt.job.role == "finance"
            assert (asked(attempt)["catalog"], asked(attempt)["schema_name"]) == ("hive", "air")
            assert asked(attempt)["columns"][0]["name"] in ("code", "id")
            await attempt.finish("done", result={"refused": refused} if "airlines" in sql else fine)
        answer = (await request).json()["data"]
        [airport, airline] = answer["entities"]
        assert (airport["valid"], airline["valid"], answer["valid"]) == (True, False, False)
        assert (airline["error"]["code"], airline["error"]["line"]) == ("no_such_table", 1)
        assert (await ada.get("/api/mappings")).json()["data"] == [], "nothing was saved"

    async def test_what_breaks_a_rule_is_not_asked(self, ada: httpx2.AsyncClient, core: Core) -> None:
        answer = await ada.post("/api/mappings/validate", json={"engine": "local", "nodes": []})
        assert code(answer) == (422, "invalid")
        assert await core.db.pool("relaxed").fetchval("SELECT count(*) FROM jobs") == 0

    async def test_is_refused_while_draining(self, ada: httpx2.AsyncClient, core: Core) -> None:
        await describing(core)
        await core.drain(True, actor="ops")
        answer = await ada.post("/api/mappings/validate", json={"engine": "local", **AIRPORTS})
        assert code(answer) == (503, "draining")

    async def test_an_engine_or_role_that_is_not_ones_own_is_not_asked(self, clients: Clients) -> None:
        await clients.token("carol", "analyst", engines=["warehouse"], engine_roles=["finance"])
        carol = await clients("carol")
        body = {"nodes": AIRPORTS["nodes"]}
        for engine, role, refusal in (
            ("local", None, (403, "engine_not_allowed")),
            ("warehouse", "people", (403, "engine_role_not_allowed")),
            ("warehouse", None, (422, "missing_use_case_id")),
        ):
            headers = {} if role is None else {"X-Use-Case-Id": role}
            answer = await carol.post("/api/mappings/validate", json={**body, "engine": engine}, headers=headers)
            assert code(answer) == refusal

    async def _claimed(self, played: PlayedWorker, n: int) -> dict[str, Attempt]:
        found: dict[str, Attempt] = {}
        async with asyncio.timeout(60):
            while len(found) < n:
                claimed = await played.claim("describe", wait=1)
                found |= {asked(attempt)["sql"]: attempt for attempt in claimed}
        return found
