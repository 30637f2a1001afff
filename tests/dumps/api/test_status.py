"""What a dump's row says while its job runs, ends, is cancelled or tried again."""

import asyncpg
import httpx2
import orjson
import pytest

from paddock.api.tokens import NewToken
from paddock.config import NO_STORE, Config
from paddock.dumps import dumps
from paddock.dumps.composing import stated
from paddock.dumps.downloading import with_counts
from paddock.dumps.model import counts_key
from paddock.jobs import wire
from paddock.jobs.bulk import BULK
from paddock.jobs.core import Core
from paddock.storage.store import open_store
from tests.api.conftest import Clients
from tests.background.ticking import end_expired
from tests.conftest import DatabaseClock
from tests.dumps.api.conftest import Played, Start, error, status
from tests.dumps.api.inside import run_inside


async def test_it_is_in_progress_from_the_first_claim_to_the_end(
    ada: httpx2.AsyncClient, played: Played, start: Start
) -> None:
    id = await start()
    assert (await status(ada, id))["status"] == "pending"

    attempt = await played.claim()
    assert (await status(ada, id))["status"] == "in_progress"
    await attempt.finish("again", delay_seconds=0)
    assert (await status(ada, id))["status"] == "in_progress", "a yield is no way back"
    attempt = await played.claim()
    await attempt.finish("transient", delay_seconds=0)
    assert (await status(ada, id))["status"] == "in_progress", "nor is a failure that is tried again"

    await played.complete()
    assert (await status(ada, id))["status"] == "completed"


async def test_it_is_found_by_its_id_and_its_database_by_name(clients: Clients, played: Played, start: Start) -> None:
    ada, bob = await clients("ada"), await clients("bob")
    id = await start()

    async def found(client: httpx2.AsyncClient, text: str) -> list[tuple[str, str]]:
        answer = await client.get("/api/search", params={"q": text})
        return [(one["what"], one["id"]) for one in answer.json()["data"]]

    assert await found(ada, id) == await found(ada, id[:20]) == [("dump", id)]
    assert await found(ada, "SHO") == [("database", "shop")]
    assert await found(bob, id) == []
    assert await found(bob, "sho") == []
    [one] = (await ada.get("/api/search", params={"q": id, "exactly": True})).json()["data"]
    assert one["job_id"] == str((await played.claim()).job.id)


async def test_the_age_of_a_snapshot_is_told_while_postgres_is_held_up_by_it(
    grace: httpx2.AsyncClient, clock: DatabaseClock, played: Played, start: Start
) -> None:
    for database, age in (("books", 5), ("shop", None)):
        id = await start(grace, database=database)
        attempt = await played.claim(database)
        assert (await status(grace, id, v=2))["snapshotAgeSeconds"] is None, "nothing is frozen yet"
        await attempt.save({"point_in_time": stated(clock.at), "restarts": 0})
        await clock.advance(seconds=5)
        assert (await status(grace, id, v=2))["snapshotAgeSeconds"] == age

        await attempt.finish("again", delay_seconds=60)
        assert (await status(grace, id, v=2))["snapshotAgeSeconds"] is None, "nobody holds it between two turns"


async def test_progress_is_what_the_worker_reported(
    ada: httpx2.AsyncClient, core: Core, played: Played, start: Start
) -> None:
    id = await start()
    attempt = await played.claim()
    report = {
        "phase": "dumping",
        "tables_done": 3,
        "tables_total": 12,
        "table": "orders",
        "rows": 120_000,
        "bytes": 8_388_608,
        "percent": 31.5,
        "eta_seconds": 12,
        "point_in_time": "2026-11-16T10:30:01.5+01:00",
        "restarts": 2,
    }
    async with core.db.transaction() as tx:
        await tx.execute("UPDATE jobs SET report = $2 WHERE id = $1", attempt.id, orjson.dumps(report).decode())

    found = await status(ada, id)
    assert {name: found[name] for name in ("completedTables", "totalTables", "currentTable", "rowsWritten")} == {
        "completedTables": 3,
        "totalTables": 12,
        "currentTable": "orders",
        "rowsWritten": 120_000,
    }
    assert (found["bytesWritten"], found["percent"], found["etaSeconds"]) == (8_388_608, 31.5, 12)
    assert (found["pointInTime"], found["restarts"]) == ("2026-11-16 09:30:01", 2)
    assert (found["completedAt"], found["errorMessage"], found["downloadUrl"]) == (None, None, None)


@pytest.mark.parametrize("end", ["failed", "cancelled"])
async def test_one_that_came_to_nothing_keeps_how_far_it_had_come(
    ada: httpx2.AsyncClient, core: Core, played: Played, start: Start, end: str
) -> None:
    id = await start()
    attempt = await played.claim()
    report = {"phase": "dumping", "tables_done": 3, "tables_total": 12, "table": "orders", "rows": 120_000}
    report |= {"bytes": 8_388_608, "percent": 31.5, "eta_seconds": 12, "restarts": 2}
    async with core.db.transaction() as tx:
        await tx.execute("UPDATE jobs SET report = $2 WHERE id = $1", attempt.id, orjson.dumps(report).decode())
    before = await status(ada, id, v=2)
    if end == "failed":
        await attempt.finish("permanent", error=wire.Error(code="unknown_table", message="Table 't' does not exist."))
    else:
        await ada.delete(f"/export/jobs/{id}")

    [listed] = (await ada.get("/export/jobs", params={"v": 2})).json()["result"]
    for found in (await status(ada, id, v=2), listed):
        assert found["status"] == end
        for name in ("completedTables", "totalTables", "rowsWritten", "bytesWritten", "percent", "restarts"):
            assert found[name] == before[name] != 0, name
        assert (found["currentTable"], found["etaSeconds"], found["fileBytes"]) == (None, None, None)


async def test_a_completed_one_tells_what_it_became(ada: httpx2.AsyncClient, played: Played, start: Start) -> None:
    id = await start()
    made = await played.complete()

    found = await status(ada, id)
    assert (found["completedTables"], found["totalTables"], found["rowsWritten"]) == (2, 2, 30)
    assert (found["bytesWritten"], found["percent"], found["restarts"]) == (made.size, 100, 1)
    assert found["pointInTime"] == "2026-11-16 09:30:01"
    assert found["tables"] == {"orders": 20, "people": 10}
    assert (found["fileName"], found["downloadUrl"]) == ("shop.sql", f"/export/jobs/{id}/download")
    assert found["completedAt"] >= found["createdAt"]
    assert found["expiresAt"][:10] > found["completedAt"][:10]


async def test_of_too_many_tables_it_tells_how_many(ada: httpx2.AsyncClient, played: Played, start: Start) -> None:
    id = await start()
    await played.complete(tables=None, table_count=5_000)
    found = await status(ada, id)
    assert (found["completedTables"], found["totalTables"], found["tables"]) == (5_000, 5_000, None)
    answered = await ada.post("/export/dump", json={"async": True, "database": "shop"})
    assert answered.json()["result"]["estimatedTables"] == 5_000


async def test_a_failure_says_why(ada: httpx2.AsyncClient, played: Played, start: Start) -> None:
    id = await start()
    attempt = await played.claim()
    problem = wire.Error(code="unknown_table", message="Table 't' does not exist.")
    await attempt.finish("permanent", error=problem)

    found = await status(ada, id)
    assert (found["status"], found["errorMessage"]) == ("failed", "Table 't' does not exist.")


async def test_a_cancelled_one_is_failed_to_who_knows_no_better(
    ada: httpx2.AsyncClient, core: Core, played: Played, start: Start
) -> None:
    id = await start()
    await played.claim()
    answered = await ada.delete(f"/export/jobs/{id}")

    assert answered.json()["result"] == {"jobId": id, "status": "cancelled"}
    found = await status(ada, id)
    assert (found["status"], found["errorMessage"]) == ("failed", "Cancelled")
    found = await status(ada, id, v=2)
    assert (found["status"], found["errorMessage"]) == ("cancelled", "Cancelled by ada.")
    [listed] = (await ada.get("/export/jobs", params={"v": 2})).json()["result"]
    assert listed["status"] == "cancelled"


async def test_a_job_that_is_cancelled_elsewhere_cancels_its_dump(ada: httpx2.AsyncClient, start: Start) -> None:
    id = await start()
    job = (await status(ada, id))["job"]
    assert (await ada.post(f"/api/jobs/{job}/cancel")).status_code == 200
    assert (await status(ada, id, v=2))["status"] == "cancelled"


async def test_a_retry_of_the_job_is_the_same_dump(ada: httpx2.AsyncClient, played: Played, start: Start) -> None:
    id = await start()
    first = await played.claim()
    await first.finish("permanent")
    again = await ada.post(f"/api/jobs/{first.id}/retry")
    assert again.status_code == 202

    found = await status(ada, id)
    assert (found["status"], found["job"], found["errorMessage"]) == ("pending", again.json()["data"]["id"], None)
    await played.complete()
    assert (await status(ada, id))["status"] == "completed"
    assert len((await ada.get("/export/jobs")).json()["result"]) == 1


async def test_what_was_made_stays_when_its_repetition_fails(
    ada: httpx2.AsyncClient, played: Played, start: Start
) -> None:
    id = await start()
    attempt = await played.claim()
    await played.complete(attempt)
    await ada.post(f"/api/jobs/{attempt.id}/retry")
    repeated = await played.claim()
    assert (await status(ada, id))["status"] == "in_progress"
    assert (await ada.get(f"/export/jobs/{id}/download")).status_code == 200
    await repeated.finish("permanent")

    found = await status(ada, id)
    assert (found["status"], found["errorMessage"], found["job"]) == ("completed", None, str(repeated.id))


async def test_a_result_that_names_anothers_file_is_no_end(
    ada: httpx2.AsyncClient, core: Core, played: Played, start: Start
) -> None:
    id = await start()
    attempt = await played.claim()
    made = await played.finished(attempt, key="exports/dump_20260101-000000_aaaaaa/draft.sql")
    await attempt.finish(result=made.model_dump(mode="json"))

    found = await status(ada, id)
    assert found["status"] == "failed"
    assert found["downloadUrl"] is None


async def test_what_only_a_retry_of_a_lost_hook_would_tell_is_settled(
    ada: httpx2.AsyncClient, core: Core, start: Start, connection: "asyncpg.Connection[asyncpg.Record]"
) -> None:
    id = await start()
    # As a hook that failed leaves it: the job has ended, its row knows nothing.
    await connection.execute("DELETE FROM jobs")
    await end_expired(core, "dumps")

    found = await status(ada, id)
    assert found["status"] == "failed"
    assert "job" in found["errorMessage"]


async def test_others_see_neither_it_nor_its_file(
    ada: httpx2.AsyncClient, bob: httpx2.AsyncClient, carol: httpx2.AsyncClient, played: Played, start: Start
) -> None:
    id = await start()
    await played.complete()

    for path in (f"/export/jobs/{id}", f"/export/jobs/{id}/download"):
        assert error(await bob.get(path)) == (404, "not_found", "Export job not found.")
        assert (await carol.get(path)).status_code == 200
    assert error(await bob.delete(f"/export/jobs/{id}"))[0] == 404
    assert error(await carol.delete(f"/export/jobs/{id}"))[:2] == (403, "not_allowed")
    assert (await bob.get("/export/jobs")).json()["result"] == []
    assert (await bob.get("/export/jobs", params={"database": "shop"})).json()["result"] == []


async def test_who_loses_the_database_loses_its_dumps(
    clients: Clients, carol: httpx2.AsyncClient, played: Played, start: Start
) -> None:
    id = await start(carol)
    await played.complete()
    await clients.token("carol-later", "analyst", databases=[])
    later = await clients("carol-later")

    for path in (f"/export/jobs/{id}", f"/export/jobs/{id}/download"):
        assert (await carol.get(path)).status_code == 200
        assert error(await later.get(path))[0] == 404


async def test_the_list_is_a_page_newest_first_of_ones_own_databases(
    ada: httpx2.AsyncClient, grace: httpx2.AsyncClient, start: Start
) -> None:
    mine = [await start() for _ in range(3)]
    theirs = await start(grace, database="books")

    first = (await ada.get("/export/jobs", params={"limit": 2})).json()
    rest = (await ada.get("/export/jobs", params={"limit": 2, "cursor": first["nextCursor"]})).json()
    listed = [dump["jobId"] for dump in [*first["result"], *rest["result"]]]
    assert listed == sorted(mine, reverse=True)
    assert rest["nextCursor"] is None
    assert len((await grace.get("/export/jobs")).json()["result"]) == 4
    [found] = (await grace.get("/export/jobs", params={"database": "books"})).json()["result"]
    assert found["jobId"] == theirs


@pytest.mark.parametrize("status_of_job", ["completed", "failed"])
async def test_subscribers_hear_of_the_end(
    ada: httpx2.AsyncClient, played: Played, start: Start, status_of_job: str
) -> None:
    await ada.post("/api/webhooks", json={"url": "https://example.com/", "types": ["dump.*"]})
    id = await start()
    if status_of_job == "completed":
        await played.complete()
    else:
        await (await played.claim()).finish("permanent")

    [event] = (await ada.get("/api/events")).json()["data"]
    assert (event["type"], event["subject"]) == (f"dump.{status_of_job}", f"dump:{id}")
    assert event["data"]["database"] == "shop"
    assert len((await ada.get(f"/api/events/{event['id']}/deliveries")).json()["data"]) == 1


async def test_a_retry_needs_the_database_still(
    clients: Clients,
    carol: httpx2.AsyncClient,
    ada: httpx2.AsyncClient,
    grace: httpx2.AsyncClient,
    core: Core,
    config: Config,
    played: Played,
    start: Start,
) -> None:
    ids = []
    for client in (ada, carol):
        await start(client)
        attempt = await played.claim()
        await attempt.finish("permanent")
        ids.append(attempt.id)
    assert (await ada.post(f"/api/jobs/{ids[0]}/retry")).status_code == 202, "shop is hers by configuration"

    await clients.tokens.create(NewToken(name="later", role="analyst", owner="carol"), actor="test", secret="pdk_later")
    later = {"Authorization": "Bearer pdk_later"}
    refused = await carol.post(f"/api/jobs/{ids[1]}/retry", headers=later)
    assert (refused.status_code, refused.json()["error"]["code"]) == (403, "database_not_allowed")
    bulk = await carol.post("/api/jobs/retry", json={"all": True}, headers=later)
    assert bulk.json()["data"]["payload"]["databases"] == []
    [done] = await run_inside(core, config, BULK)
    assert done.result["refused"] == {"database_not_allowed": 1}
    assert (await carol.post(f"/api/jobs/{ids[1]}/retry")).status_code == 202


async def test_rows_of_thousands_of_tables_are_read_from_beside_the_file(
    ada: httpx2.AsyncClient, core: Core, config: Config, played: Played, start: Start
) -> None:
    id = await start()
    made = await played.complete(tables=None, table_count=3_000)
    assert (await status(ada, id))["tables"] is None, "a dump of an earlier version has none"

    counts = {f"table {number}": number for number in range(3_000)}
    await open_store(config.object_store).put(counts_key(made.key), orjson.dumps(counts))

    assert (await status(ada, id))["tables"] == counts
    listed = (await ada.get("/export/jobs")).json()["result"]
    assert [one["tables"] for one in listed] == [None]
    found = await dumps.get(core.db, id)
    assert found is not None
    assert await with_counts(config.model_copy(update={"object_store": NO_STORE}), found) == found, (
        "no store is no error"
    )
