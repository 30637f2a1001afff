"""Dumps that go: by hand, by their time, by newer ones of their schedule; and files that nobody names."""

import os
import time
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import asyncpg
import httpx2
import pytest

from paddock.config import Config
from paddock.dumps import dumps, leftovers
from paddock.dumps.database_settings import databases_from
from paddock.dumps.model import DumpOptions, counts_key, prefix_of
from paddock.dumps.removing import LEFTOVERS, REMOVE
from paddock.dumps.request import new_dump
from paddock.jobs import schedules
from paddock.jobs.core import Core
from paddock.jobs.model import NewJob
from paddock.storage.parts import open_parts
from paddock.storage.store import open_store
from tests.background.ticking import end_expired
from tests.conftest import DatabaseClock
from tests.dumps.api.conftest import Played, Start, error, status
from tests.dumps.api.inside import run_inside


async def removed(core: Core, config: Config) -> int:
    """What the worker inside does about it; how many it took away."""
    return len([job for job in await run_inside(core, config, REMOVE) if job.status == "completed"])


async def test_a_deleted_one_takes_its_file_along(
    ada: httpx2.AsyncClient, core: Core, config: Config, played: Played, start: Start
) -> None:
    id = await start()
    await played.complete()
    other = await start()
    await played.complete()

    answered = await ada.delete(f"/export/jobs/{id}")
    assert answered.json() == {"result": {"jobId": id, "status": "deleted"}}
    for path in (f"/export/jobs/{id}", f"/export/jobs/{id}/download"):
        assert error(await ada.get(path))[0] == 404, "gone for everybody at once"
    assert [dump["jobId"] for dump in (await ada.get("/export/jobs")).json()["result"]] == [other]
    assert await removed(core, config) == 1

    assert await dumps.get(core.db, id) is None
    [file] = played.files()
    assert other.replace("export_", "dump_") in file
    assert error(await ada.delete(f"/export/jobs/{id}"))[0] == 404


async def test_asked_twice_it_is_removed_once(
    ada: httpx2.AsyncClient, core: Core, config: Config, played: Played, start: Start
) -> None:
    id = await start()
    await played.complete()
    for _ in range(2):
        assert (await ada.delete(f"/export/jobs/{id}")).status_code == 200
    assert await removed(core, config) == 1


async def test_one_that_completes_just_before_it_would_be_cancelled_is_removed(
    ada: httpx2.AsyncClient, core: Core, played: Played, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    id = await start()
    attempt = await played.claim()
    cancel = core.cancel

    async def late(*args: Any, **fields: Any) -> Any:
        await played.complete(attempt)
        return await cancel(*args, **fields)

    monkeypatch.setattr(core, "cancel", late)
    assert (await ada.delete(f"/export/jobs/{id}")).json()["result"]["status"] == "deleted"
    assert error(await ada.get(f"/export/jobs/{id}"))[0] == 404


async def test_a_removal_that_was_given_up_begins_again_when_asked(
    ada: httpx2.AsyncClient, core: Core, config: Config, played: Played, start: Start, connection: Any
) -> None:
    id = await start()
    await played.complete()
    await ada.delete(f"/export/jobs/{id}")
    await connection.execute("DELETE FROM jobs WHERE kind = 'remove_dump'")

    assert (await ada.delete(f"/export/jobs/{id}")).status_code == 200
    assert await removed(core, config) == 1
    assert played.files() == []


async def test_an_open_upload_goes_with_its_dump(
    ada: httpx2.AsyncClient, core: Core, config: Config, played: Played, start: Start
) -> None:
    id = await start()
    await (await played.claim()).finish("permanent")
    parts = open_parts(open_store(config.object_store))
    key = f"{prefix_of(id)}/draft1.sql"
    upload = await parts.begin(key)
    await parts.send(key, upload, 1, 0, b"half")
    assert played.files() != []

    await ada.delete(f"/export/jobs/{id}")
    await removed(core, config)
    assert played.files() == []


async def test_a_file_that_is_completed_after_its_dump_was_deleted_is_refused(
    ada: httpx2.AsyncClient, core: Core, played: Played, start: Start, connection: "asyncpg.Connection[asyncpg.Record]"
) -> None:
    id = await start()
    attempt = await played.claim()
    await connection.execute("UPDATE dumps SET status = 'deleting' WHERE id = $1", id)
    made = await played.finished(attempt)
    await attempt.finish(result=made.model_dump(mode="json"))

    job = await core.job(attempt.id)
    assert job is not None
    assert (job.status, job.error_code) == ("failed", "end_hook_failed")


async def test_its_time_over_it_goes(
    ada: httpx2.AsyncClient, clock: DatabaseClock, core: Core, config: Config, played: Played, start: Start
) -> None:
    completed = await start()
    await played.complete()
    failed = await start()
    await (await played.claim()).finish("permanent")
    waiting = await start()

    await clock.advance(timedelta(days=6, hours=23))
    assert await end_expired(core, "dumps") == 0
    await clock.advance(timedelta(hours=2))
    assert await end_expired(core, "dumps") == 2
    assert await removed(core, config) == 2

    assert await dumps.get(core.db, completed) is await dumps.get(core.db, failed) is None
    assert played.files() == []
    assert (await status(ada, waiting))["status"] == "pending", "one that waits has not begun to age"


async def test_one_that_is_being_made_again_waits_for_that_end(
    ada: httpx2.AsyncClient, clock: DatabaseClock, core: Core, played: Played, start: Start
) -> None:
    await start()
    attempt = await played.claim()
    await played.complete(attempt)
    await clock.advance(timedelta(days=8))
    await ada.post(f"/api/jobs/{attempt.id}/retry")

    assert await end_expired(core, "dumps") == 0


async def scheduled(core: Core, config: Config, played: Played, name: str = "nightly", keep: int | None = 2) -> str:
    await schedules.ensure(core, name, "scheduled_dump", timedelta(days=1), {"keepLast": keep, "owner": "ada"})
    made = await dumps.create(
        core,
        new_dump(
            config,
            databases_from(config)["shop"],
            database="shop",
            format="sql",
            options=DumpOptions(),
            owner="ada",
            request={},
            schedule=name,
            keep_last=keep,
        ),
    )
    return made.id


async def test_the_last_few_of_a_schedule_stay_however_old(
    clock: DatabaseClock, core: Core, config: Config, played: Played, start: Start
) -> None:
    made = []
    for _ in range(4):
        made.append(await scheduled(core, config, played))
        await played.complete()
        await clock.advance(timedelta(days=30))
    failed = await scheduled(core, config, played)
    await (await played.claim()).finish("permanent")
    other = await scheduled(core, config, played, name="weekly")
    await played.complete()

    assert await end_expired(core, "dumps") == 2
    left = {dump.id for dump in await dumps.page(core.db, None)}
    assert left == {*made[2:], failed, other}
    assert await end_expired(core, "dumps") == 0
    await clock.advance(timedelta(days=8))
    assert await end_expired(core, "dumps") == 1, "a failed one is no dump to keep"


async def test_the_newest_dump_of_a_schedule_says_how_many_stay(
    clock: DatabaseClock, core: Core, config: Config, played: Played
) -> None:
    for keep in (3, 3, 1):
        await scheduled(core, config, played, keep=keep)
        await played.complete()
        await clock.advance(seconds=2)
    assert await end_expired(core, "dumps") == 2


def aged(played: Played, hours: float = 2) -> None:
    """As if all files had been written so long ago."""
    before = time.time() - hours * 3600
    for name in played.files():
        os.utime(played.config.data / "objects" / name, (before, before))


async def leave(config: Config, id: str, *names: str) -> None:
    store = open_store(config.object_store)
    for name in names:
        await store.put(f"{prefix_of(id)}/{name}", b"left")


async def test_what_no_dump_names_is_collected(core: Core, config: Config, played: Played, start: Start) -> None:
    completed = await start()
    made = await played.complete()
    await leave(config, completed, "draft0.sql", "draft0/state-1", "draft1/state-1")
    failed = await start()
    await (await played.claim()).finish("permanent")
    await leave(config, failed, "draft0.sql")
    busy = await start()
    await played.claim()
    await leave(config, busy, "draft0.sql", "draft0/state-1")
    await leave(config, "export_20260101-000000_gone00", "draft0.sql")
    store = open_store(config.object_store)
    await store.put("exports/dump_of_mine/notes.txt", b"theirs")
    await store.put(f"exports/ada/{uuid4().hex}/part-00000.parquet", b"an export's")
    kept = {name for name in played.files() if name == made.key or busy[7:] in name or "dump_2" not in name}

    assert (await leftovers.collect(core.db, config))["removed"] == 0, "what is young may be somebody's"
    aged(played)
    found = await leftovers.collect(core.db, config)

    assert found["removed"] == 5
    assert {*played.files()} == kept


async def test_the_counts_beside_a_named_file_are_part_of_it(
    core: Core, config: Config, played: Played, start: Start
) -> None:
    await start()
    made = await played.complete(tables=None)
    store = open_store(config.object_store)
    for key in (counts_key(made.key), counts_key(made.key.replace("draft1", "draft0"))):
        await store.put(key, b"{}")
    aged(played)

    assert (await leftovers.collect(core.db, config))["removed"] == 1
    assert played.files() == [made.key, counts_key(made.key)]


async def test_plain_parts_of_a_named_file_are_part_of_it(
    core: Core, config: Config, played: Played, start: Start
) -> None:
    id = await start()
    attempt = await played.claim()
    made = await played.finished(attempt, objects=2)
    await open_store(config.object_store).delete([made.key])
    await attempt.finish(result=made.model_dump(mode="json"))
    await leave(config, id, "draft1.sql/000001", "draft1.sql/000002", "draft1.sqlx", "draft2.sql/000001")
    aged(played)

    await leftovers.collect(core.db, config)
    assert [Path(name).name for name in played.files()] == ["000001", "000002"]


async def test_uploads_that_nobody_completes_are_aborted(
    core: Core, config: Config, played: Played, start: Start
) -> None:
    failed, busy = await start(), await start()
    await (await played.claim()).finish("permanent")
    await played.claim()
    parts = open_parts(open_store(config.object_store))
    for id in (failed, busy):
        await parts.begin(f"{prefix_of(id)}/draft1.sql")
    aged(played)

    assert (await leftovers.collect(core.db, config))["uploads"] == 1
    [left] = played.files()
    assert (busy if busy[7:] in left else failed) == (await live_of(core, [failed, busy]))


async def live_of(core: Core, ids: list[str]) -> str:
    [live] = [id for id in ids if (found := await dumps.get(core.db, id)) is not None and found.live is not None]
    return live


async def test_the_pass_runs_inside(core: Core, config: Config, played: Played, start: Start) -> None:
    await start()
    await played.complete()
    aged(played)
    await core.submit([NewJob(LEFTOVERS.name, {})], public=False)
    [job] = await run_inside(core, config, LEFTOVERS)
    assert job.status == "completed", job.error_message
    assert len(played.files()) == 1


@pytest.mark.parametrize("store", ["none"])
async def test_without_a_store_there_is_nothing_to_collect(core: Core, config: Config, store: str) -> None:
    assert await leftovers.collect(core.db, config.model_copy(update={"object_store": store})) == {}
