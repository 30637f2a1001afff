"""An analyst can neither see nor touch nor learn of another's work, by any route."""

from typing import Any

import httpx2

from paddock.api.tokens import NewToken
from paddock.jobs import grouping
from paddock.jobs.core import Core
from paddock.jobs.events import OwnedEvent, emit
from paddock.jobs.model import NewEvent, NewJob
from tests.api.conftest import Clients


async def submitted(client: httpx2.AsyncClient, **body: Any) -> dict[str, Any]:
    answer = await client.post("/api/jobs", json={"kind": "plain", **body})
    assert answer.status_code == 202, answer.text
    job: dict[str, Any] = answer.json()["data"]
    return job


async def test_anothers_job_is_not_there(ada: httpx2.AsyncClient, bob: httpx2.AsyncClient) -> None:
    own = f"/api/jobs/{(await submitted(ada, run_at='2999-01-01T00:00:00Z'))['id']}"

    for method, path in (
        ("GET", own),
        ("GET", f"{own}?wait=5"),
        ("GET", f"{own}/timeline"),
        ("GET", f"{own}/logs"),
        ("POST", f"{own}/cancel"),
        ("POST", f"{own}/retry"),
        ("POST", f"{own}/run-now"),
    ):
        theirs = await bob.request(method, path)
        nobodys = await bob.request(method, path.replace(own, "/api/jobs/019a8b1e-4c00-7000-8f6e-2f9d3c0a51e7"))
        assert theirs.status_code == 404, path
        assert theirs.json() == nobodys.json(), "what is hidden looks like what does not exist"
    assert (await ada.get(own)).json()["data"]["status"] == "pending"


async def test_lists_and_counts_hold_only_ones_own(
    ada: httpx2.AsyncClient, bob: httpx2.AsyncClient, grace: httpx2.AsyncClient
) -> None:
    hers = await submitted(ada, tags=["shared"])
    his = await submitted(bob, tags=["shared"])

    for query in (
        "",
        "?owner=ada",
        "?tag=shared",
        f"?q={hers['id']}",
        "?kind=plain",
        "?status=pending",
        "?housekeeping=1",
    ):
        found = (await bob.get(f"/api/jobs{query}")).json()["data"]
        assert {job["id"] for job in found} <= {his["id"]}, query
    assert (await bob.get("/api/jobs/counts")).json()["data"]["by_kind"] == {"plain": {"pending": 1}}
    everybodys = (await grace.get("/api/jobs")).json()["data"]
    assert [job["id"] for job in everybodys] == [his["id"], hers["id"]]


async def test_a_lock_names_its_holder_only_to_those_who_may_see_it(
    ada: httpx2.AsyncClient, bob: httpx2.AsyncClient, grace: httpx2.AsyncClient
) -> None:
    body = {"kind": "locking", "payload": {"lock": "table:sales"}}
    holder = await submitted(ada, **body)

    hers, his, theirs = [await client.post("/api/jobs", json=body) for client in (ada, bob, grace)]

    for answer in (hers, his, theirs):
        assert (answer.status_code, answer.json()["error"]["code"]) == (409, "lock_held")
    assert hers.json()["error"]["details"]["holder"] == holder["id"]
    assert theirs.json()["error"]["details"]["holder_owner"] == "ada"
    assert his.json()["error"]["details"] == {}
    assert holder["id"] not in his.text
    assert "ada" not in his.text


async def test_bulk_actions_reach_only_ones_own(ada: httpx2.AsyncClient, bob: httpx2.AsyncClient, core: Core) -> None:
    await submitted(ada)
    his = await submitted(bob)

    counted = await bob.post("/api/jobs/cancel", json={"filter": {"kind": "plain"}, "dry_run": True})
    assert counted.json()["data"]["count"] == 1
    aimed = await bob.post("/api/jobs/cancel", json={"filter": {"owner": "ada"}, "dry_run": True})
    assert (aimed.status_code, aimed.json()["error"]["code"]) == (403, "not_allowed")
    started = await bob.post("/api/jobs/cancel", json={"all": True})
    assert started.json()["data"]["payload"]["filter"]["owner"] == "bob"
    assert started.json()["data"]["owner"] == "bob"
    assert his["owner"] == "bob"


async def test_groups_belong_to_their_owner(
    ada: httpx2.AsyncClient, bob: httpx2.AsyncClient, grace: httpx2.AsyncClient, core: Core
) -> None:
    async with core.db.transaction() as tx:
        group = await grouping.create(tx, "plain", "ada")
        await core.enqueue(tx, [NewJob("plain", {}, owner="ada", group_id=group)])

    assert (await ada.get(f"/api/groups/{group}")).json()["data"]["open"] == 1
    assert (await grace.get(f"/api/groups/{group}")).status_code == 200
    assert (await bob.get(f"/api/groups/{group}")).status_code == 404
    assert (await bob.get(f"/api/jobs?group={group}")).json()["data"] == []


async def test_events_and_their_deliveries_belong_to_their_owner(
    clients: Clients, ada: httpx2.AsyncClient, bob: httpx2.AsyncClient, grace: httpx2.AsyncClient, core: Core
) -> None:
    everybodys = await grace.post(
        "/api/webhooks", json={"url": "https://example.com/ops", "types": ["*"], "all_owners": True}
    )
    assert everybodys.status_code == 201
    hers = (await ada.post("/api/webhooks", json={"url": "https://example.com/ada", "types": ["*"]})).json()["data"]
    async with core.db.transaction() as tx:
        await emit(core, tx, [OwnedEvent(NewEvent("thing.happened", "thing:1"), "ada")])

    [event] = (await ada.get("/api/events")).json()["data"]
    assert (await bob.get("/api/events")).json()["data"] == []
    assert (await bob.get("/api/events?subject=thing:1")).json()["data"] == []
    for query in ("?subject=thing:1", "?type=thing.happened", "?type=thing.happened&subject=thing:1"):
        for client in (ada, grace):
            assert len((await client.get(f"/api/events{query}")).json()["data"]) == 1, query
    for method, path in (("GET", ""), ("GET", "/deliveries"), ("POST", "/redeliver")):
        assert (await bob.request(method, f"/api/events/{event['id']}{path}")).status_code == 404
    told = (await ada.get(f"/api/events/{event['id']}/deliveries")).json()["data"]
    assert [delivery["webhook_id"] for delivery in told] == [hers["id"]], "what ops were told is not hers to know"
    assert len((await grace.get(f"/api/events/{event['id']}/deliveries")).json()["data"]) == 2
    again = await ada.post(f"/api/events/{event['id']}/redeliver")
    assert [job["owner"] for job in again.json()["data"]] == ["ada"]


async def test_webhooks_belong_to_their_owner(ada: httpx2.AsyncClient, bob: httpx2.AsyncClient) -> None:
    hers = (await ada.post("/api/webhooks", json={"url": "https://example.com/ada", "types": ["*"]})).json()["data"]

    assert (await bob.get("/api/webhooks")).json()["data"] == []
    for method, path in (("GET", ""), ("GET", "/deliveries"), ("PATCH", ""), ("DELETE", ""), ("POST", "/test")):
        body = {"active": False} if method == "PATCH" else None
        assert (await bob.request(method, f"/api/webhooks/{hers['id']}{path}", json=body)).status_code == 404
    greedy = await bob.post(
        "/api/webhooks", json={"url": "https://example.com/bob", "types": ["*"], "all_owners": True}
    )
    assert greedy.status_code == 403
    assert len((await ada.get("/api/webhooks")).json()["data"]) == 1


async def test_an_operators_webhook_for_everybody_is_no_analysts_of_the_same_owner(
    clients: Clients, grace: httpx2.AsyncClient, core: Core
) -> None:
    namesake = NewToken(name="grace's script", role="analyst", owner="grace")
    _, clients.secrets["namesake"] = await clients.tokens.create(namesake, actor="test")
    script = await clients("namesake")
    asked = {"url": "https://example.com/ops", "types": ["*"], "all_owners": True}
    everybodys = (await grace.post("/api/webhooks", json=asked)).json()["data"]
    async with core.db.transaction() as tx:
        await emit(core, tx, [OwnedEvent(NewEvent("thing.happened", "thing:1"), "grace")])
    [event] = (await script.get("/api/events")).json()["data"]

    assert (await script.get("/api/webhooks")).json()["data"] == []
    for method, path in (("GET", ""), ("GET", "/deliveries"), ("PATCH", ""), ("DELETE", ""), ("POST", "/test")):
        changes = {"active": False} if method == "PATCH" else None
        refused = await script.request(method, f"/api/webhooks/{everybodys['id']}{path}", json=changes)
        assert refused.status_code == 404
    assert (await script.get(f"/api/events/{event['id']}/deliveries")).json()["data"] == []
    for body in ({}, {"webhook_id": everybodys["id"]}):
        again = await script.post(f"/api/events/{event['id']}/redeliver", json=body)
        assert again.json()["error"]["code"] == "no_subscriber"
    assert [webhook["id"] for webhook in (await grace.get("/api/webhooks")).json()["data"]] == [everybodys["id"]]


async def test_an_operator_cannot_tell_one_owners_receiver_of_anothers_event(
    ada: httpx2.AsyncClient, bob: httpx2.AsyncClient, grace: httpx2.AsyncClient, core: Core
) -> None:
    async def subscribe(client: httpx2.AsyncClient, **fields: Any) -> str:
        answer = await client.post(
            "/api/webhooks", json={"url": "https://example.com/", "types": ["job.cancelled"], **fields}
        )
        return str(answer.json()["data"]["id"])

    hers, his, everybodys = await subscribe(ada), await subscribe(bob), await subscribe(grace, all_owners=True)
    async with core.db.transaction() as tx:
        await emit(core, tx, [OwnedEvent(NewEvent("thing.happened", "thing:1"), "ada")])
    [event] = (await ada.get("/api/events")).json()["data"]

    for webhook, status in ((hers, 202), (everybodys, 202), (his, 409)):
        answer = await grace.post(f"/api/events/{event['id']}/redeliver", json={"webhook_id": webhook})
        assert answer.status_code == status, answer.text
    told = (await grace.get(f"/api/events/{event['id']}/deliveries")).json()["data"]
    assert {delivery["webhook_id"] for delivery in told} == {hers, everybodys}


async def test_an_idempotency_key_tells_nothing_of_anothers_work(
    ada: httpx2.AsyncClient, bob: httpx2.AsyncClient
) -> None:
    headers = {"Idempotency-Key": "the-same"}
    hers = await ada.post("/api/jobs", json={"kind": "plain"}, headers=headers)
    his = await bob.post("/api/jobs", json={"kind": "plain", "payload": {"n": 2}}, headers=headers)

    assert his.status_code == 202
    assert his.json()["data"]["id"] != hers.json()["data"]["id"]
    assert his.json()["data"]["owner"] == "bob"


async def test_an_analyst_learns_of_no_ones_work_from_kinds(ada: httpx2.AsyncClient) -> None:
    kinds = (await ada.get("/api/kinds")).json()["data"]
    assert not any(kind["internal"] for kind in kinds)
    assert not any({"pending", "claimed", "oldest_due", "paused_by"} & set(kind) for kind in kinds)
