"""What the core wrote, as people see it: a job's fields, its timeline, counts, workers, kinds."""

from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import uuid4

from paddock.db.pool import Database
from paddock.jobs import reading, wire
from paddock.jobs.core import Core
from paddock.jobs.figures.counting import refresh_figures
from paddock.jobs.model import Job, JobId
from tests.conftest import DatabaseClock
from tests.playing import read, submit, worker
from tests.reading.rows import add_ended, add_kind, run


async def test_a_live_job_shows_when_it_can_be_seen_again(core: Core, clock: DatabaseClock) -> None:
    [id] = await submit(core)
    assert (await read(core, id)).visible_at == clock.at
    attempt = await (await worker(core)).claim_one()
    assert (await read(core, id)).visible_at == clock.at + timedelta(seconds=60)
    await attempt.finish(result={"rows": 5})
    ended = await read(core, id)
    assert (ended.status, ended.result, ended.visible_at, ended.due_at) == ("completed", {"rows": 5}, None, None)
    assert await reading.job(core.db, JobId(uuid4())) is None


async def test_jobs_come_in_the_order_asked_for(core: Core) -> None:
    ids = await submit(core, n=5)
    await (await (await worker(core)).claim_one()).finish("permanent", error=wire.Error(code="x", message="It broke."))
    asked = [ids[3], JobId(uuid4()), ids[0], ids[4]]
    whole = await reading.jobs(core.db, asked)
    assert [job.id for job in whole] == [ids[3], ids[0], ids[4]]
    without: dict[str, Any] = {"payload": {}, "saved": None, "result": None, "errors": []}
    assert await reading.briefs(core.db, asked) == [replace(job, **without) for job in whole]


async def test_a_completed_job_has_its_final_figures(core: Core) -> None:
    [done, failed] = await submit(core, n=2)
    one = await worker(core)
    last = {"percent": 25, "phase": "writing", "eta_seconds": 9, "rows": 10, "files": 3}
    for attempt in await one.claim():
        await one.report(attempt, **last)
        if attempt.job.id == done:
            await attempt.finish(result={"rows": 40, "bytes": 800, "files": ["a"]})
        else:
            await attempt.finish("permanent", error=wire.Error(code="x", message="It broke."))
    for jobs in (await reading.jobs(core.db, [done, failed]), await reading.briefs(core.db, [done, failed])):
        assert [job.report for job in jobs] == [{"percent": 100, "rows": 40, "bytes": 800, "files": 3}, last]


async def test_a_retried_job_names_its_successor(core: Core) -> None:
    [id] = await submit(core)
    await (await (await worker(core)).claim_one()).finish("permanent")
    again = await core.retry(id, actor="ann", reason=None)
    assert (await read(core, id)).retried_by == again.id
    assert again.retry_of == id


async def test_a_cleanup_that_waits_for_its_attempt_has_no_time(core: Core) -> None:
    [id] = await submit(core, "locking", payload={"lock": "t"})
    await (await worker(core)).claim_one()
    await core.cancel([id], actor="ops")
    page = await reading.page(core.db, reading.Filter(status="pending"))
    assert [(job.cleanup_of, job.due_at, job.visible_at) for job in page.jobs] == [(id, None, None)]


async def test_the_timeline_tells_the_story_oldest_first(core: Core, clock: DatabaseClock) -> None:
    [id] = await submit(core)
    one = await worker(core, "one")
    for _ in range(3):
        await clock.advance(seconds=1)
        await (await one.claim_one()).finish("again", delay_seconds=0)
    await clock.advance(seconds=1)
    await (await one.claim_one()).finish("transient", delay_seconds=1)
    await clock.advance(seconds=2)
    last = await one.claim_one()
    await clock.advance(seconds=1)
    await last.finish()

    story = await reading.timeline(core.db, id)
    assert [(entry["event"], entry["count"]) for entry in story] == [
        ("enqueued", 1),
        ("claimed", 1),
        ("yielded", 3),
        ("retry", 1),
        ("claimed", 1),
        ("completed", 1),
    ]
    assert story[3]["error"]["code"] == "broken"
    assert story[4]["worker"] == "one"
    assert story[-1]["from"] == "claimed"
    assert story[-1]["attempt_id"] == last.job.attempt_id
    assert await reading.timeline(core.db, JobId(uuid4())) == []


async def test_a_cancel_is_told_once_with_who_and_why(core: Core, clock: DatabaseClock) -> None:
    [id] = await submit(core)
    await (await worker(core)).claim_one()
    await clock.advance(seconds=1)
    await core.cancel([id], actor="ops", reason="by mistake")
    story = await reading.timeline(core.db, id)
    assert [(entry["event"], entry["actor"], entry["reason"]) for entry in story] == [
        ("enqueued", "ann", None),
        ("claimed", None, None),
        ("cancelled", "ops", "by mistake"),
    ]


async def test_jobs_that_come_of_one_another_are_found_both_ways(core: Core) -> None:
    [parent] = await submit(core)
    one = await worker(core)
    await (await one.claim_one()).finish(follow_ups=[wire.FollowUp(kind="other", payload={}) for _ in range(3)])
    found = await reading.related(core.db, await read(core, parent), follow_ups=2)
    assert [(job.kind, job.status) for job in found.follow_ups] == [("other", "pending")] * 2
    assert found.more
    child = await reading.related(core.db, await read(core, found.follow_ups[0].id))
    assert child.parent is not None
    assert (child.parent.id, child.parent.status, child.more) == (parent, "completed", False)

    [failed] = await submit(core, "locking")
    await (await one.claim_one("locking")).finish("permanent")
    again = await core.retry(failed, actor="ann", reason=None)
    found = await reading.related(core.db, await read(core, failed))
    assert found.retried_by is not None
    assert found.retried_by.id == again.id
    assert found.cleanup is not None
    assert (await reading.related(core.db, await read(core, found.cleanup.id))).cleanup_of == replace(
        found.cleanup, id=failed, status="failed", **_times(await read(core, failed))
    )
    before = await reading.related(core.db, again)
    assert before.retry_of is not None
    assert (before.retry_of.id, before.retry_of.status) == (failed, "failed")


def _times(job: Job) -> dict[str, Any]:
    return {"created_at": job.created_at, "started_at": job.started_at, "completed_at": job.completed_at}


async def test_counts_workers_and_kinds(core: Core, clock: DatabaseClock) -> None:
    await submit(core, n=5)
    for _ in range(2):
        await submit(core, "other", owner="bob")
    one = await worker(core, "one")
    for attempt in await one.claim("plain", limit=3):
        await attempt.finish("permanent")
    await one.claim("plain", limit=1)
    await refresh_figures(core.db)

    everybody = await reading.counts(core.db)
    assert everybody.by_kind == {"plain": {"pending": 1, "claimed": 1, "failed": 3}, "other": {"pending": 2}}
    bobs = await reading.counts(core.db, owner="bob")
    assert (bobs.by_kind, bobs.complete) == ({"other": {"pending": 2}}, True)

    [seen] = await reading.workers(core.db)
    assert (seen.worker_id, seen.running, seen.live) == ("one", 1, True)
    kinds = {kind.name: kind for kind in await reading.kinds(core.db)}
    assert (kinds["plain"].offered, kinds["plain"].pending, kinds["internal_only"].offered) == (True, 1, False)

    await core.pause("plain", actor="ops", reason="why not")
    await clock.advance(minutes=2)
    kinds = {kind.name: kind for kind in await reading.kinds(core.db)}
    assert (kinds["plain"].paused, kinds["plain"].offered) == (True, False)
    assert not (await reading.workers(core.db))[0].live
    await run(core.db, "DELETE FROM queue_stats")
    assert (await reading.counts(core.db)).sampled_at is None


async def test_an_owner_with_many_jobs_is_told_that_there_are_more(db: Database) -> None:
    await add_kind(db, "probe")
    await add_ended(db, 1_001, owner="bob")
    await add_ended(db, 999, owner="eve")
    bobs, eves = await reading.counts(db, owner="bob"), await reading.counts(db, owner="eve")
    assert (bobs.by_kind, bobs.complete) == ({"probe": {"completed": 1_000}}, False)
    assert (eves.by_kind, eves.complete) == ({"probe": {"completed": 999}}, True)
