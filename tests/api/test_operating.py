"""Operating: kinds, workers, schedules, webhooks, figures, settings; and that each change is in the audit log."""

from dataclasses import replace
from typing import Any, cast

import httpx2

from paddock.api.pagination import write_cursor
from paddock.config import Config
from paddock.jobs.core import Core
from paddock.jobs.events import OwnedEvent, emit
from paddock.jobs.model import NewEvent
from tests.api.conftest import BASE
from tests.conftest import DatabaseClock
from tests.kinds import PLAIN
from tests.playing import worker as play_worker


async def actions(client: httpx2.AsyncClient, subject: str) -> list[tuple[str, str]]:
    entries = (await client.get("/api/audit", params={"subject": subject})).json()["data"]
    return [(entry["action"], entry["actor"]) for entry in entries][::-1]


async def test_a_paused_kind_is_not_claimed(grace: httpx2.AsyncClient, ada: httpx2.AsyncClient, core: Core) -> None:
    await ada.post("/api/jobs", json={"kind": "plain"})
    worker = await play_worker(core)

    paused = (await grace.post("/api/kinds/plain/pause", json={"reason": "broken"})).json()["data"]
    assert (paused["paused"], paused["pause_reason"], paused["paused_by"]) == (True, "broken", "grace")
    assert await worker.claim() == []
    resumed = (await grace.post("/api/kinds/plain/resume")).json()["data"]
    assert (resumed["paused"], resumed["offered"]) == (False, True)
    assert len(await worker.claim()) == 1
    assert (await grace.post("/api/kinds/nonesuch/pause")).status_code == 404
    assert await actions(grace, "kind:plain") == [("pause", "grace"), ("resume", "grace")]


async def walked(client: httpx2.AsyncClient, path: str) -> list[Any]:
    """All items of a list, two at a time."""
    found, query = [], "?limit=2"
    while True:
        answer = (await client.get(f"{path}{query}")).json()
        found += answer["data"]
        assert len(answer["data"]) <= 2
        if answer["next_cursor"] is None:
            return found
        query = f"?limit=2&cursor={answer['next_cursor']}"


async def test_workers_come_page_by_page_the_live_ones_first(
    grace: httpx2.AsyncClient, core: Core, clock: DatabaseClock
) -> None:
    started = []
    for n in range(5):
        started.append(await play_worker(core, f"w-{n}"))
        await clock.advance(seconds=1)
    await clock.advance(seconds=58)
    await started[0].beat()
    await started[3].beat()
    expected = [f"w-{n}" for n in (4, 3, 0, 2, 1)]
    assert [seen["worker_id"] for seen in await walked(grace, "/api/workers")] == expected
    assert [seen["worker_id"] for seen in (await grace.get("/api/workers")).json()["data"]] == expected
    for made_up in ("2026-01-01T00:00:00", "9999-12-31T23:59:59-14:00"):
        cursor = write_cursor([True, made_up, started[0].session])
        assert (await grace.get(f"/api/workers?cursor={cursor}")).status_code == 422


async def test_a_webhook_is_made_once_for_its_key(ada: httpx2.AsyncClient, bob: httpx2.AsyncClient) -> None:
    """The first answer may have been lost, and with it the secret."""
    body, key = {"url": "https://example.com/hook", "types": ["job.*"]}, {"Idempotency-Key": "once"}
    first = await ada.post("/api/webhooks", json=body, headers=key)
    again = await ada.post("/api/webhooks", json=body, headers=key)
    assert (first.status_code, again.status_code) == (201, 201)
    assert again.json() == first.json()
    assert again.headers["location"] == first.headers["location"]
    assert len((await ada.get("/api/webhooks")).json()["data"]) == 1

    other = await ada.post("/api/webhooks", json={**body, "types": ["*"]}, headers=key)
    assert (other.status_code, other.json()["error"]["code"]) == (422, "idempotency_key_reused")
    bobs = await bob.post("/api/webhooks", json=body, headers=key)
    assert bobs.json()["data"]["id"] != first.json()["data"]["id"]

    await ada.delete(first.headers["location"])
    gone = await ada.post("/api/webhooks", json=body, headers=key)
    assert (gone.status_code, gone.json()["error"]["code"]) == (404, "not_found")


async def test_a_webhook_is_changed_and_keeps_its_secret(ada: httpx2.AsyncClient, core: Core) -> None:
    made = await ada.post("/api/webhooks", json={"url": "https://example.com/hook", "types": ["job.*"]})
    own = made.headers["location"]

    changed = await ada.patch(own, json={"url": "https://example.com/other", "active": False})
    assert changed.json()["data"] == {
        **{name: value for name, value in made.json()["data"].items() if name != "secret"},
        "url": "https://example.com/other",
        "active": False,
    }
    assert (await ada.patch(own, json={"types": ["job.failed"], "active": True})).json()["data"]["active"]
    async with core.db.transaction() as tx:
        kept = await tx.fetchval("SELECT secret FROM webhooks WHERE types = ARRAY['job.failed'] AND active")
        told = await tx.fetch("SELECT details::text FROM audit_log WHERE action = 'webhook_changed'")
    assert kept == made.json()["data"]["secret"]
    assert len(told) == 2
    assert "example.com" not in str(told), "an address may hold a secret of its receiver's"

    for body, field in (({"types": ["job.faild"]}, "types.0"), ({"url": "https://10.0.0.1/"}, "url"), ({}, "types")):
        refused = await ada.patch(own, json=body)
        assert (refused.status_code, refused.json()["error"]["details"]["fields"][0]["field"]) == (422, field)


async def test_a_webhook_is_tried_with_a_sample_and_its_deliveries_are_listed(
    ada: httpx2.AsyncClient, core: Core
) -> None:
    """What was told last of that type, but not another sample; before there is one, something of its shape."""
    own = (await ada.post("/api/webhooks", json={"url": "https://example.com/", "types": ["*"]})).headers["location"]

    async def sampled(type: str) -> dict[str, Any]:
        assert (await ada.post(f"{own}/test?type={type}")).status_code == 202
        [newest, *_] = (await ada.get(f"{own}/deliveries")).json()["data"]
        assert (newest["type"], newest["status"], newest["answered"]) == (type, "pending", None)
        event: dict[str, Any] = (await ada.get(f"/api/events/{newest['event_id']}")).json()["data"]
        assert event["subject"] == f"webhook:{own.rpartition('/')[2]}"
        assert event["data"].pop("sample")
        return cast("dict[str, Any]", event["data"])

    assert (await sampled("job.failed")).keys() == {"job_id", "kind", "status", "error_code"}
    assert "snapshot_id" in await sampled("snapshot.ready")
    for owner, code in (("ada", "no_disk"), ("bob", "not_hers")):
        async with core.db.transaction() as tx:
            await emit(core, tx, [OwnedEvent(NewEvent("job.failed", owner, {"error_code": code}), owner)])
    for _ in range(2):
        assert await sampled("job.failed") == {"error_code": "no_disk"}
    assert (await ada.post(f"{own}/test?type=job.*")).status_code == 422


async def test_a_misspelt_event_type_is_refused_with_the_one_that_was_meant(ada: httpx2.AsyncClient) -> None:
    wrong = ["job.faild", "jobs.*", "job.*", "*", "job", "job.failed.*", "job.failed"]
    answer = await ada.post("/api/webhooks", json={"url": "https://example.com/", "types": wrong})
    assert answer.status_code == 422
    refused = {field["field"]: field["message"] for field in answer.json()["error"]["details"]["fields"]}
    assert refused.keys() == {"types.0", "types.1", "types.4", "types.5"}
    assert refused["types.0"].startswith("There is no event type 'job.faild'. Did you mean 'job.failed'?")
    assert "Did you mean 'job.*'?" in refused["types.1"]
    assert (await ada.get("/api/webhooks")).json()["data"] == []

    listed = (await ada.get("/api/events?type=job.faild")).json()["error"]
    assert listed["details"]["fields"][0]["field"] == "type"
    for known in ("job.failed", "webhook.test"):
        assert (await ada.get(f"/api/events?type={known}")).status_code == 200


async def test_all_that_is_wrong_with_a_webhook_is_told_at_once(ada: httpx2.AsyncClient) -> None:
    error = (await ada.post("/api/webhooks", json={"url": "https://10.0.0.1/", "types": ["job.faild"]})).json()["error"]
    assert [field["field"] for field in error["details"]["fields"]] == ["url", "types.0"]
    assert "PADDOCK_WEBHOOK_ALLOW_PRIVATE" in error["hint"]


async def test_the_types_are_those_of_the_core_and_of_the_kinds(ada: httpx2.AsyncClient, core: Core) -> None:
    async def listed() -> dict[str, str]:
        return {item["type"]: item["says"] for item in (await ada.get("/api/events/types")).json()["data"]}

    snapshots = {"snapshot.ready", "snapshot.failed", "snapshot.cancelled", "snapshot.deleted"}
    assert (await listed()).keys() - PLAIN.emits == {"job.failed", "job.completed", "job.cancelled", *snapshots}
    core.kinds.add(
        replace(PLAIN, name="compact:one", emits=frozenset({"table.compacted"}), end_events={"table.kept": "It stays"})
    )
    assert (await listed())["table.compacted"] == "Emitted by jobs of kind compact"
    assert (await listed())["table.kept"] == "It stays"
    made = await ada.post("/api/webhooks", json={"url": "https://example.com/", "types": ["table.*", "table.kept"]})
    assert made.status_code == 201


async def test_deliveries_of_an_event_come_page_by_page(ada: httpx2.AsyncClient, core: Core) -> None:
    for n in range(5):
        await ada.post("/api/webhooks", json={"url": f"https://example.com/{n}", "types": ["*"]})
    async with core.db.transaction() as tx:
        await emit(core, tx, [OwnedEvent(NewEvent("thing.happened", "thing:1"), "ada")])
    [event] = (await ada.get("/api/events")).json()["data"]
    path = f"/api/events/{event['id']}/deliveries"
    told = (await ada.get(path)).json()["data"]
    assert len({delivery["url"] for delivery in told}) == 5
    assert await walked(ada, path) == told


async def test_workers_are_listed_and_quieted(grace: httpx2.AsyncClient, core: Core) -> None:
    worker = await play_worker(core)
    [seen] = (await grace.get("/api/workers")).json()["data"]
    assert (seen["session"], seen["live"], seen["quiet"]) == (str(worker.session), True, False)

    assert (await grace.post(f"/api/workers/{worker.session}/quiet")).json()["data"]["quiet"] is True
    assert (await grace.get("/api/workers")).json()["data"][0]["quiet"] is True
    assert (await grace.post(f"/api/workers/{worker.session}/quiet", json={"quiet": False})).status_code == 200
    assert (await grace.post("/api/workers/no-id/quiet")).status_code == 404


async def test_a_schedule_from_birth_to_end(grace: httpx2.AsyncClient, core: Core) -> None:
    body: dict[str, Any] = {"name": "hourly", "kind": "plain", "payload": {"n": 1}, "every": "1h"}
    made = await grace.post("/api/schedules", json=body)
    assert (made.status_code, made.headers["location"]) == (201, "/api/schedules/hourly")
    assert (made.json()["data"]["every"], made.json()["data"]["owner"]) == ("PT3600S", "grace")
    assert made.json()["data"]["next_at"] is not None
    assert (await grace.post("/api/schedules", json=body)).status_code == 409
    assert [one["name"] for one in (await grace.get("/api/schedules")).json()["data"]] == ["hourly"]

    changed = await grace.patch(
        "/api/schedules/hourly", json={"every": None, "cron": "30 2 * * *", "timezone": "Europe/Berlin"}
    )
    assert (changed.json()["data"]["every"], changed.json()["data"]["cron"]) == (None, "30 2 * * *")
    late = {"reason": "The source was late."}
    run = await grace.post("/api/schedules/hourly/run", json=late, headers={"Idempotency-Key": "now"})
    again = await grace.post("/api/schedules/hourly/run", json=late, headers={"Idempotency-Key": "now"})
    assert (run.status_code, run.json()["data"]["schedule"]) == (202, "hourly")
    assert again.json()["data"]["id"] == run.json()["data"]["id"]
    [noted] = (await grace.get("/api/audit?action=schedule.run")).json()["data"]
    assert noted["reason"] == "The source was late."
    jobs = (await grace.get(changed.json()["data"]["links"]["jobs"])).json()["data"]
    assert [job["id"] for job in jobs] == [run.json()["data"]["id"]]

    assert (await grace.delete("/api/schedules/hourly")).status_code == 200
    assert (await grace.get("/api/schedules/hourly")).status_code == 404
    assert (await grace.delete("/api/schedules/hourly")).status_code == 404
    assert [action for action, _ in await actions(grace, "schedule:hourly")] == [
        "schedule.create",
        "schedule.update",
        "schedule.run",
        "schedule.delete",
    ]


async def test_bad_schedules_are_refused(grace: httpx2.AsyncClient) -> None:
    good = {"name": "x", "kind": "plain", "every": "1h"}
    for change, status in (
        ({"name": "Has Spaces"}, 422),
        ({"kind": "nonesuch"}, 422),
        ({"kind": "internal_only"}, 403),
        ({"every": None}, 422),
        ({"cron": "* * * * *"}, 422),
        ({"every": "soon"}, 422),
        ({"every": "0s"}, 422),
        ({"every": None, "cron": "61 * * * *"}, 422),
        ({"every": None, "cron": "* * * * *", "timezone": "Mars/Base"}, 422),
        ({"priority": 9}, 422),
    ):
        answer = await grace.post("/api/schedules", json={**good, **change})
        assert answer.status_code == status, change
    assert (await grace.patch("/api/schedules/nonesuch", json={"enabled": False})).status_code == 404


async def test_all_that_is_wrong_with_a_schedule_is_told_at_once(grace: httpx2.AsyncClient) -> None:
    wrong = {"name": "Not so!", "kind": "probe", "payload": {"progress": "x"}, "cron": "at noon"}
    error = (await grace.post("/api/schedules", json=wrong)).json()["error"]
    assert [field["field"] for field in error["details"]["fields"]] == ["name", "payload.progress", "cron"]
    assert "A schedule's name" in error["message"]
    assert "payload.progress: It should be a whole number. 'at noon' is not a cron expression" in error["message"]


async def test_settings_are_typed_and_audited(grace: httpx2.AsyncClient) -> None:
    before = (await grace.get("/api/ops/config")).json()["data"]
    assert before["announcement"]["value"] == ""

    put = await grace.put("/api/ops/config", json={"settings": {"announcement": "Hello."}, "reason": "greeting"})
    assert (put.json()["data"]["announcement"]["value"], put.json()["data"]["announcement"]["updated_by"]) == (
        "Hello.",
        "grace",
    )
    for wrong in ({"announcement": 7}, {"nonesuch": 1}, {"announcement": "x" * 501}):
        refused = await grace.put("/api/ops/config", json={"settings": wrong})
        assert (refused.status_code, refused.json()["error"]["code"]) == (422, "invalid"), wrong
    await grace.put("/api/ops/config", json={"settings": {"announcement": None}})
    assert (await grace.get("/api/ops/config")).json()["data"]["announcement"]["value"] == ""
    [first, *_] = (await grace.get("/api/audit", params={"subject": "setting:announcement"})).json()["data"][::-1]
    assert (first["reason"], first["details"]) == ("greeting", {"from": "", "to": "Hello."})


async def test_webhooks_show_their_secret_once_and_take_https_only(ada: httpx2.AsyncClient) -> None:
    made = await ada.post(
        "/api/webhooks", json={"url": "https://example.com/x?a=1", "types": ["job.failed", "job.*", "*"]}
    )
    assert made.status_code == 201
    secret = made.json()["data"]["secret"]
    assert secret.startswith("whsec_")
    own = made.headers["location"]
    assert secret not in (await ada.get(own)).text + (await ada.get("/api/webhooks")).text

    for url in (
        "http://example.com/",
        "ftp://example.com/",
        "https://user:password@example.com/",
        "https://127.0.0.1/",
        "https://[::1]/",
        "https://10.1.2.3/",
        "https://169.254.169.254/latest/meta-data",
        "https://localhost/",
        "https://db.internal/",
        "https://",
        "https://exa mple.com/",
        "https://example.com:99999/",
        "example.com",
        "https://ex\u00e4mple.com/",
    ):
        answer = await ada.post("/api/webhooks", json={"url": url, "types": ["*"]})
        assert (answer.status_code, answer.json()["error"]["details"]["fields"][0]["field"]) == (422, "url"), url
    for types in ([], ["*x"], ["JOB"], ["job."], [""]):
        assert (
            await ada.post("/api/webhooks", json={"url": "https://example.com/", "types": types})
        ).status_code == 422

    tested = await ada.post(f"{own}/test", headers={"Idempotency-Key": "once"})
    again = await ada.post(f"{own}/test", headers={"Idempotency-Key": "once"})
    assert (tested.status_code, tested.json()["data"]["kind"]) == (202, "webhook")
    assert again.json()["data"]["id"] == tested.json()["data"]["id"]
    [event] = (await ada.get("/api/events?type=webhook.test")).json()["data"]
    [delivery] = (await ada.get(f"/api/events/{event['id']}/deliveries")).json()["data"]
    assert (delivery["job_id"], delivery["status"]) == (tested.json()["data"]["id"], "pending")
    assert (await ada.delete(own)).status_code == 200
    assert (await ada.get(own)).status_code == 404


async def test_private_webhooks_where_they_are_allowed(core: Core) -> None:
    from paddock.api.services.webhooks import check_url

    check_url("http://127.0.0.1:9000/hook", allow_private=Config(webhook_allow_private=True).webhook_allow_private)


async def test_state_and_figures_are_there(grace: httpx2.AsyncClient, core: Core) -> None:
    await play_worker(core)
    state = (await grace.get("/api/ops/state")).json()["data"]
    assert (state["drain"], state["workers"]["live"]) == ({"enabled": False, "reason": None}, 1)
    for within in ("1h", "15m", "P1D", "PT90M", "7d"):
        series = await grace.get("/api/stats", params={"metric": "throughput", "range": within})
        assert series.status_code == 200, within
        assert series.json()["data"]["points"]
    for params in ({"metric": "nonesuch"}, {"range": "long"}, {"range": "1s"}, {"range": "8d"}, {"range": "P"}):
        assert (await grace.get("/api/stats", params=params)).status_code == 422, params
    assert BASE
