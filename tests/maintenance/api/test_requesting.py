"""`POST /tables/{db}/{table}/maintenance`: what is checked, in which order, and that equal requests are one job."""

import asyncio
from typing import Any

import httpx2
import orjson
import pytest

from paddock.jobs.core import Core
from paddock.jobs.model import JsonObject
from paddock.maintenance.model import LookPayload
from tests.maintenance.api.conftest import UUID, Played, line

PATH = "/tables/sales/orders/maintenance?catalog=lake"
BODY: dict[str, Any] = {"actions": ["expire_snapshots", "rewrite_data_files"]}


async def test_a_request_makes_a_job_under_the_tables_lock(ada: httpx2.AsyncClient, played: Played, core: Core) -> None:
    await played.seen(line())
    answer = await ada.post(PATH, json=BODY)
    job = answer.json()["data"]
    assert answer.status_code == 202, answer.text
    assert answer.headers["Location"] == f"/api/jobs/{job['id']}"
    assert answer.headers["Retry-After"] == "30"
    assert job["kind"] == "maintenance:lake"
    assert job["lock_key"] == f"table:{UUID}"
    assert job["payload"]["actions"] == ["rewrite_data_files", "expire_snapshots"]
    tagged = (await ada.get("/api/jobs", params={"tag": "table:lake.sales.orders"})).json()["data"]
    assert [each["id"] for each in tagged] == [job["id"]]


async def test_two_hundred_equal_requests_at_once_make_one_job(ada: httpx2.AsyncClient, played: Played) -> None:
    await played.seen(line())
    answers = await asyncio.gather(*(ada.post(PATH, json=BODY) for _ in range(200)))
    assert {answer.status_code for answer in answers} == {200, 202}
    assert sum(answer.status_code == 202 for answer in answers) == 1
    assert len({answer.json()["data"]["id"] for answer in answers}) == 1


async def test_another_request_is_refused_while_the_lock_is_held_and_names_the_holder(
    ada: httpx2.AsyncClient, carol: httpx2.AsyncClient, played: Played
) -> None:
    await played.seen(line())
    job = (await ada.post(PATH, json=BODY)).json()["data"]
    other = await ada.post(PATH, json={"actions": ["rewrite_manifests"]})
    assert (other.status_code, other.json()["error"]["code"]) == (409, "lock_held")
    assert other.json()["error"]["details"]["holder"] == job["id"]
    assert "holder" not in (await carol.post(PATH, json=BODY)).json()["error"]["details"]
    await played.claim("maintenance:lake")
    assert (await ada.post(PATH, json=BODY)).status_code == 409
    dry = await ada.post(PATH, json={**BODY, "dry_run": True})
    assert dry.status_code == 202
    assert dry.json()["data"]["lock_key"] is None


async def test_drain_is_told_before_the_body_is_read_and_after_who_asks(
    ada: httpx2.AsyncClient, clients: Any, core: Core
) -> None:
    await core.drain(True, actor="test")
    stranger = await clients("stranger")
    assert (await stranger.post(PATH, json=BODY)).status_code == 401
    refused = await ada.post(PATH, content=b"{", headers={"Content-Type": "application/json"})
    assert (refused.status_code, refused.json()["error"]["code"]) == (503, "draining")


@pytest.mark.parametrize(
    ("body", "field", "word"),
    [
        ({"actions": []}, "actions", "rewrite_data_files"),
        ({"actions": ["vacuum"]}, "actions", "remove_orphan_files"),
        ({"actions": ["expire_snapshots"], "options": {"location": "s3://x"}}, "options.location", "min_input_files"),
        (
            {"actions": ["expire_snapshots"], "options": {"max_snapshot_age_hours": 1}},
            "options.max_snapshot_age_hours",
            "24",
        ),
        ({"actions": ["remove_orphan_files"], "options": {"older_than_hours": 23}}, "options.older_than_hours", "24"),
        ({"actions": ["expire_snapshots"], "confirm": True}, "confirm", "ops"),
        (
            {"actions": ["rewrite_data_files"], "options": {"min_input_files": "many"}},
            "options.min_input_files",
            "number",
        ),
        (
            {"actions": ["expire_snapshots"], "options": {"remove_refs": ["march", "main"]}},
            "options.remove_refs",
            "never removed",
        ),
        (
            {"actions": ["expire_snapshots"], "options": {"remove_refs": ["paddock-fence-1"]}},
            "options.remove_refs",
            "never removed",
        ),
    ],
)
async def test_what_is_wrong_with_a_request_is_said_with_what_would_be_right(
    ada: httpx2.AsyncClient, body: dict[str, Any], field: str, word: str
) -> None:
    """Also for a table that nobody knows: what was asked is looked at first."""
    answer = await ada.post("/tables/no/where/maintenance?catalog=lake", json=body)
    assert answer.status_code == 422
    [problem] = answer.json()["error"]["details"]["fields"]
    assert problem["field"] == field
    assert word in problem["message"]


async def test_an_operator_may_confirm_and_that_is_audited(grace: httpx2.AsyncClient, played: Played) -> None:
    await played.seen(line())
    body = {"actions": ["expire_snapshots"], "options": {"max_snapshot_age_hours": 1}, "confirm": True}
    assert (await grace.post(PATH, json=body)).status_code == 202
    [entry] = [
        each for each in (await grace.get("/api/audit")).json()["data"] if each["action"] == "maintenance.confirm"
    ]
    assert entry["subject"] == "table:lake.sales.orders"


async def test_a_table_that_one_may_not_have_is_not_there(
    bob: httpx2.AsyncClient, carol: httpx2.AsyncClient, played: Played
) -> None:
    await played.seen(line(), line("secret", "hr"))
    for path in (PATH, "/tables/sales/nothing/maintenance?catalog=lake"):
        answer = await bob.post(path, json=BODY)
        assert answer.status_code == 404
    assert (await carol.post("/tables/hr/secret/maintenance?catalog=lake", json=BODY)).status_code == 404
    assert [table["name"] for table in (await carol.get("/api/tables")).json()["data"]] == ["orders"]
    assert (await bob.get("/api/tables")).json()["data"] == []
    assert (await bob.get("/api/tables/lake/sales/orders")).status_code == 404
    assert (await carol.get("/api/tables/lake/sales/orders")).status_code == 200


async def test_a_table_that_no_look_has_seen_is_looked_at_now(ada: httpx2.AsyncClient, played: Played) -> None:
    await played.worker()
    asked = asyncio.create_task(ada.post(PATH, json=BODY))
    attempt = await played.claim("tables:lake")
    await attempt.finish(result={"tables": [line()]})
    assert (await asked).status_code == 202


async def test_a_table_that_the_catalog_does_not_have_is_a_404(ada: httpx2.AsyncClient, played: Played) -> None:
    await played.worker()
    asked = asyncio.create_task(ada.post(PATH, json=BODY))
    attempt = await played.claim("tables:lake")
    gone = {"namespace": "sales", "name": "orders", "problem": "There is no table.", "code": "unknown_table"}
    await attempt.finish(result={"tables": [gone]})
    answer = await asked
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "unknown_table")


async def test_a_catalog_that_does_not_answer_is_never_a_404(
    ada: httpx2.AsyncClient, played: Played, unanswered: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("paddock.jobs.asking.WORKER_SECONDS", 0)
    nobody = await ada.post(PATH, json=BODY)
    assert (nobody.status_code, nobody.json()["error"]["code"]) == (503, "catalog_unavailable")
    await played.worker()
    silent = await ada.post(PATH, json=BODY)
    assert (silent.status_code, silent.json()["error"]["code"]) == (503, "catalog_unavailable")
    assert "has not answered yet" in silent.json()["error"]["message"]


async def test_what_the_engine_cannot_do_is_refused_where_the_last_look_knows_it(
    ada: httpx2.AsyncClient, played: Played
) -> None:
    await played.seen(line(figures={"engine_cannot": "It has format version 3."}))
    refused = await ada.post(PATH, json=BODY)
    assert (refused.status_code, refused.json()["error"]["code"]) == (422, "engine_cannot")
    assert (await ada.post(PATH, json={"actions": ["expire_snapshots"]})).status_code == 202


@pytest.mark.parametrize("database", ["a.b", "a%1Fb"])
async def test_levels_of_a_namespace_come_joined_by_dots_or_by_the_separator(
    ada: httpx2.AsyncClient, played: Played, database: str
) -> None:
    await played.seen(line("t%'\"<b>", "a\x1fb"))
    answer = await ada.post(f"/tables/{database}/t%25'%22%3Cb%3E/maintenance?catalog=lake", json=BODY)
    assert answer.status_code == 202, answer.text


async def test_a_catalog_must_be_named_where_there_are_several(grace: httpx2.AsyncClient) -> None:
    answer = await grace.post("/tables/sales/orders/maintenance", json=BODY)
    assert answer.status_code == 422
    assert "lake, swamp" in answer.text
    unknown = await grace.post("/tables/sales/orders/maintenance?catalog=pond", json=BODY)
    assert (unknown.status_code, unknown.json()["error"]["code"]) == (404, "unknown_catalog")


async def test_a_repeated_key_is_the_same_job_and_another_request_under_it_is_refused(
    ada: httpx2.AsyncClient, played: Played
) -> None:
    await played.seen(line())
    dry, headers = {**BODY, "dry_run": True}, {"Idempotency-Key": "k1"}
    first = (await ada.post(PATH, json=dry, headers=headers)).json()["data"]["id"]
    assert (await ada.post(PATH, json=dry, headers=headers)).json()["data"]["id"] == first
    assert (await ada.post(PATH, json=dry)).json()["data"]["id"] != first
    other = await ada.post(PATH, json={"actions": ["rewrite_manifests"], "dry_run": True}, headers=headers)
    assert other.status_code == 422


async def test_waiting_for_a_worker_and_for_its_look_is_one_wait(
    ada: httpx2.AsyncClient, played: Played, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody comes for as long as a worker is waited for, which is longer than a request may take."""
    monkeypatch.setattr("paddock.maintenance.service.LIVE_LOOK_SECONDS", 0.2)
    monkeypatch.setattr("paddock.jobs.asking.WORKER_SECONDS", 600)
    answer = await ada.post(PATH, json=BODY)
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "catalog_unavailable")
    assert "0.2 seconds" in answer.json()["error"]["message"]


# What callers who have one database are told


async def test_counts_of_a_catalog_are_of_what_the_caller_may_have(
    ada: httpx2.AsyncClient, carol: httpx2.AsyncClient, grace: httpx2.AsyncClient, played: Played
) -> None:
    await played.seen(line(), line("secret", "hr"), line("pay", "hr", health="critical"))
    [seen] = (await carol.get("/api/catalogs")).json()["data"]
    assert (seen["tables"], seen["healths"]) == (1, {"warning": 1})
    for client in (ada, grace):
        [lake] = [each for each in (await client.get("/api/catalogs")).json()["data"] if each["name"] == "lake"]
        assert (lake["tables"], lake["healths"]) == (3, {"warning": 2, "critical": 1})


async def test_a_check_tells_only_of_databases_that_the_caller_may_have(
    carol: httpx2.AsyncClient, ada: httpx2.AsyncClient, played: Played
) -> None:
    await played.worker()
    for client, databases in ((carol, ["sales"]), (ada, None)):
        asked = asyncio.create_task(client.get("/api/catalogs/lake/check"))
        assert (await _payload_of_check(played)).get("databases") == databases
        assert (await asked).status_code == 200


async def test_a_check_tries_a_tag_only_where_asked_for_and_for_those_who_may_use_all_of_the_catalog(
    carol: httpx2.AsyncClient, ada: httpx2.AsyncClient, grace: httpx2.AsyncClient, played: Played
) -> None:
    """And what it is sent then is what a worker of the version before reads, which knows neither `databases` nor more."""
    await played.worker()
    for client, method, tag in (
        (grace, "GET", False),
        (carol, "POST", False),
        (ada, "POST", True),
        (grace, "POST", True),
    ):
        asked = asyncio.create_task(client.request(method, "/api/catalogs/lake/check"))
        payload = await _payload_of_check(played)
        assert payload["deep"] is tag
        assert client is carol or set(payload) == {"catalog", "deep", "check"}
        assert (await asked).status_code == 200


async def _payload_of_check(played: Played) -> JsonObject:
    """The worker's side of it."""
    attempt = await played.claim("tables:lake")
    await attempt.finish(result={"findings": []})
    payload: JsonObject = orjson.loads(bytes(attempt.job.payload))
    return payload


def test_a_look_that_a_later_version_asks_for_is_done_as_far_as_it_is_known() -> None:
    look = LookPayload.model_validate({"catalog": "lake", "check": True, "of_tomorrow": 1})
    assert look == LookPayload(catalog="lake", check=True)


async def test_a_job_of_somebody_else_is_told_without_its_name(
    ada: httpx2.AsyncClient, carol: httpx2.AsyncClient, played: Played
) -> None:
    await played.seen(line())
    job = (await ada.post(PATH, json=BODY)).json()["data"]["id"]
    mine = (await ada.get("/api/tables/lake/sales/orders")).json()["data"]
    assert (mine["job_id"], job in mine["why_not_now"]) == (job, True)
    for found in (
        (await carol.get("/api/tables/lake/sales/orders")).json()["data"],
        (await carol.get("/api/tables")).json()["data"][0],
    ):
        assert found["job_id"] is None
        assert job not in found["why_not_now"]
        assert "somebody else" in found["why_not_now"]


# Names


async def test_a_level_that_has_dots_itself_comes_with_the_separator_behind_it(
    ada: httpx2.AsyncClient, played: Played
) -> None:
    await played.seen(line("t", "a.b"))
    assert (await ada.get("/api/tables/lake/a.b/t")).status_code == 404
    assert (await ada.get("/api/tables/lake/a.b%1F/t")).status_code == 200
    assert (await ada.post("/tables/a.b%1F/t/maintenance?catalog=lake", json=BODY)).status_code == 202


async def test_tables_with_long_names_that_begin_alike_have_tags_of_their_own(
    ada: httpx2.AsyncClient, played: Played
) -> None:
    names = ["x" * 120 + end for end in ("a", "b")]
    await played.seen(*(line(name) for name in names))
    for name in names:
        job = (await ada.post(f"/tables/sales/{name}/maintenance?catalog=lake", json=BODY)).json()["data"]
        tag = (await ada.get(f"/api/tables/lake/sales/{name}")).json()["data"]["tag"]
        found = (await ada.get("/api/jobs", params={"tag": tag})).json()["data"]
        assert [each["id"] for each in found] == [job["id"]]


# Other tables near one whose orphans are looked for


async def test_known_tables_inside_and_around_a_location_are_carried_however_they_are_written(
    ada: httpx2.AsyncClient, played: Played
) -> None:
    others = {
        "inside": "s3a://lake/sales/orders//nested",
        "around": "s3://lake/",
        "blank": "s3://lake/sales/orders/a%20b",
        "same": "s3://elsewhere/sales/orders/",
        "beside": "s3://lake/sales/orders_backup",
        "far": "s3://lake/hr/pay",
        "begins": "s3://lake/sal",
        "percent": "s3://lake/x%20y",
    }
    await played.seen(
        line(location="s3://lake/sales/orders"), *(line(name, location=place) for name, place in others.items())
    )
    answer = await ada.post(PATH, json={"actions": ["remove_orphan_files"]})
    carried = set(answer.json()["data"]["payload"]["other_locations"])
    assert carried == {others[name] for name in ("inside", "around", "blank", "same")}


async def test_orphans_are_not_looked_for_among_more_tables_than_a_job_can_carry(
    ada: httpx2.AsyncClient, played: Played, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file of one that was left out would be taken for an orphan."""
    monkeypatch.setattr("paddock.maintenance.submitting.MOST_OTHERS", 2)
    await played.seen(line(), *(line(f"t{number}", location=f"s3://lake/sales/orders/{number}") for number in range(3)))
    refused = await ada.post(PATH, json={"actions": ["remove_orphan_files"]})
    assert (refused.status_code, refused.json()["error"]["code"]) == (422, "location_shared")
    assert (await ada.post(PATH, json=BODY)).status_code == 202
