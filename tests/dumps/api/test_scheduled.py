"""Dumps that make themselves due."""

import contextlib
import sqlite3
from datetime import timedelta
from typing import Any

import httpx2
import pytest

from paddock.config import Config
from paddock.dumps import dumps
from paddock.dumps.scheduled import SCHEDULED
from paddock.dumps.settings import DumpSettings
from paddock.jobs.core import Core
from paddock.jobs.model import Job
from tests.background.ticking import end_expired
from tests.conftest import DatabaseClock
from tests.dumps.api.conftest import Played
from tests.dumps.api.inside import run_inside

PAYLOAD = {"database": "shop", "format": "csv", "options": {"compress": "gzip"}, "keepLast": 2}


async def made(grace: httpx2.AsyncClient, payload: dict[str, Any], name: str = "nightly") -> httpx2.Response:
    body = {"name": name, "kind": "scheduled_dump", "cron": "30 2 * * *", "payload": payload}
    return await grace.post("/api/schedules", json=body)


async def run(grace: httpx2.AsyncClient, core: Core, config: Config, name: str = "nightly") -> Job:
    assert (await grace.post(f"/api/schedules/{name}/run")).status_code == 202
    [job] = await run_inside(core, config, SCHEDULED)
    return job


async def test_each_run_is_a_new_dump_of_its_owner(
    grace: httpx2.AsyncClient, core: Core, config: Config, played: Played
) -> None:
    assert (await made(grace, PAYLOAD)).status_code == 201
    job = await run(grace, core, config)

    assert job.status == "completed", job.error_message
    dump = await dumps.get(core.db, job.result["dump"])
    assert dump is not None
    assert (dump.database, dump.format, dump.owner) == ("shop", "csv", "grace")
    assert (dump.schedule, dump.keep_last) == ("nightly", 2)
    assert dump.request == {"database": "shop", "format": "csv", "compress": "gzip"}
    live = await core.job(dump.job_id)
    assert live is not None
    assert live.payload["options"] == {"compress": "gzip"}


async def test_of_a_schedule_the_last_two_stay(
    grace: httpx2.AsyncClient, clock: DatabaseClock, core: Core, config: Config, played: Played
) -> None:
    await made(grace, PAYLOAD)
    ids = []
    for _ in range(4):
        ids.append((await run(grace, core, config)).result["dump"])
        await played.complete()
        await clock.advance(seconds=86_400)
    await end_expired(core, "dumps")

    assert [dump.id for dump in await dumps.page(core.db, None)] == ids[:1:-1]


@pytest.mark.parametrize("how", ["deleted", "keeps none"])
async def test_what_a_schedule_kept_goes_by_its_age_once_it_keeps_no_more(
    grace: httpx2.AsyncClient, clock: DatabaseClock, core: Core, config: Config, played: Played, how: str
) -> None:
    await made(grace, PAYLOAD)
    await run(grace, core, config)
    await played.complete()
    await clock.advance(timedelta(days=30))
    assert await end_expired(core, "dumps") == 0

    if how == "deleted":
        assert (await grace.delete("/api/schedules/nightly")).status_code == 200
    else:
        changed = {"payload": {**PAYLOAD, "keepLast": None}}
        assert (await grace.patch("/api/schedules/nightly", json=changed)).status_code == 200
    assert await end_expired(core, "dumps") == 0
    await clock.advance(timedelta(days=8))
    assert await end_expired(core, "dumps") == 1


async def test_a_second_try_makes_no_second_dump(
    grace: httpx2.AsyncClient, core: Core, config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    await made(grace, PAYLOAD)
    create = dumps.create

    async def lost(*args: Any, **kwargs: Any) -> Any:
        await create(*args, **kwargs)
        raise ConnectionResetError("the answer was lost")

    monkeypatch.setattr(dumps, "create", lost)
    first = await run(grace, core, config)
    assert first.status == "pending"
    monkeypatch.undo()
    await core.run_now(first.id, actor="grace")
    [second] = await run_inside(core, config, SCHEDULED)

    assert second.status == "completed"
    assert len(await dumps.page(core.db, None)) == 1


async def test_a_retry_of_a_run_belongs_to_its_schedule(grace: httpx2.AsyncClient, core: Core, config: Config) -> None:
    await made(grace, PAYLOAD)
    without = {name: table for name, table in config.of(DumpSettings).databases.items() if name != "shop"}
    first = await run(
        grace, core, config.with_settings(config.of(DumpSettings).model_copy(update={"databases": without}))
    )
    assert (first.status, first.error_code) == ("failed", "not_found")

    await grace.post(f"/api/jobs/{first.id}/retry")
    [second] = await run_inside(core, config, SCHEDULED)
    dump = await dumps.get(core.db, second.result["dump"])
    assert dump is not None
    assert (dump.schedule, dump.keep_last) == ("nightly", 2)


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"database": "nope"}, "Database 'nope' does not exist."),
        ({"format": "custom"}, "not exported as 'custom'"),
        ({"options": {"tables": ["t"]}}, "Table 't' does not exist."),
    ],
)
async def test_what_cannot_be_dumped_so_is_refused_when_the_schedule_is_made_or_changed(
    grace: httpx2.AsyncClient, config: Config, wrong: dict[str, Any], told: str
) -> None:
    with contextlib.closing(sqlite3.connect(config.of(DumpSettings).databases["shop"]["path"])) as shop:
        shop.executescript("PRAGMA journal_mode = wal; CREATE TABLE orders (id INTEGER PRIMARY KEY)")
    assert (await made(grace, PAYLOAD, "good")).status_code == 201

    changed = await grace.patch("/api/schedules/good", json={"payload": {**PAYLOAD, **wrong}})
    for refused in (await made(grace, {**PAYLOAD, **wrong}), changed):
        assert refused.status_code == 422
        assert told in refused.json()["error"]["message"]
        [field] = refused.json()["error"]["details"]["fields"]
        assert field["field"] == "payload"


async def test_what_can_no_longer_be_dumped_so_fails_in_words(
    grace: httpx2.AsyncClient, core: Core, config: Config
) -> None:
    books = {"shop": config.of(DumpSettings).databases["books"]}
    await made(grace, {**PAYLOAD, "format": "sqlite"}, "copy")
    job = await run(
        grace, core, config.with_settings(config.of(DumpSettings).model_copy(update={"databases": books})), "copy"
    )
    assert job.status == "failed"
    assert "not exported as 'sqlite'" in (job.error_message or "")


async def test_drain_mode_is_waited_out(grace: httpx2.AsyncClient, core: Core, config: Config) -> None:
    await made(grace, PAYLOAD)
    await grace.post("/api/schedules/nightly/run")
    await core.drain(True, actor="grace")
    [job] = await run_inside(core, config, SCHEDULED)
    assert (job.status, job.error_code) == ("pending", "draining")


async def test_a_schedule_that_keeps_nothing_is_refused(grace: httpx2.AsyncClient) -> None:
    assert (await made(grace, {"keepLast": 0})).status_code == 422
