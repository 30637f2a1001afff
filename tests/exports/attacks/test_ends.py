"""Exports that are retried, deleted and expired at the wrong moment."""

import httpx2

from paddock.exports import plain
from paddock.jobs.core import Core
from paddock.jobs.model import JobId
from tests.background.ticking import end_expired
from tests.conftest import DatabaseClock
from tests.exports.attacks.making import asked, claim, complete, fail, look
from tests.playing import read
from tests.snapshots.making import result


async def removals(core: Core) -> list[JobId]:
    async with core.db.transaction() as tx:
        return [row["id"] for row in await tx.fetch("SELECT id FROM jobs WHERE kind = 'remove_files'")]


async def test_an_export_that_is_made_again_does_not_expire_under_its_job(
    core: Core, ada: httpx2.AsyncClient, clock: DatabaseClock
) -> None:
    made = await asked(ada, ttl="PT1H")
    await fail(core)
    await core.retry((await look(core, made)).job_id, actor="ada")
    await clock.advance(seconds=7_200)

    assert await end_expired(core, "exports") == 0
    assert await complete(core) == "accepted"
    assert (await look(core, made)).status == "completed"
    assert await end_expired(core, "exports") == 1


async def test_a_repetition_that_fails_does_not_take_the_files_away(core: Core, ada: httpx2.AsyncClient) -> None:
    made = await asked(ada)
    await complete(core, rows=7)
    before = await look(core, made)
    again = await core.retry(before.job_id, actor="ada")
    await fail(core)

    after = await look(core, made)
    assert (after.status, after.rows, after.manifest) == ("completed", 7, before.manifest)
    assert after.job_id == again.id, "its own retry is found by it"
    third = await core.retry(again.id, actor="ada")
    assert (await look(core, made)).shown_status == "pending"
    await complete(core, rows=8)
    assert ((await look(core, made)).rows, (await look(core, made)).job_id) == (8, third.id)


async def test_a_job_whose_export_was_deleted_does_not_run_again(core: Core, ada: httpx2.AsyncClient) -> None:
    made = await asked(ada)
    await fail(core)
    before = await look(core, made)
    await plain.delete(core, before.id, actor="ada")
    again = await core.retry(before.job_id, actor="ada")

    await (await claim(core)).finish("done", result=result())

    job = await read(core, again.id)
    assert (job.status, job.error_message) == ("failed", "The export was deleted while it was made.")


async def test_a_deletion_that_was_given_up_is_begun_again(core: Core, ada: httpx2.AsyncClient) -> None:
    made = await asked(ada)
    await complete(core)
    for _ in range(2):  # the second finds the first at work
        assert (await ada.delete(f"/api/exports/{made['id']}")).status_code == 202
    [first] = await removals(core)
    await core.cancel([first], actor="grace")

    assert (await ada.delete(f"/api/exports/{made['id']}")).status_code == 202

    [second] = await removals(core)
    assert second != first
