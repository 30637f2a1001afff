"""What the pages of workers, kinds, schedules and groups read: exact, in order, and by an index."""

from datetime import UTC, datetime, timedelta
from uuid import UUID

import asyncpg
import pytest

from paddock.jobs import grouping, reading, wire
from paddock.jobs.bulk import BULK
from paddock.jobs.core import Core
from paddock.jobs.figures import overviews, running
from paddock.jobs.figures.counting import refresh_figures
from paddock.jobs.figures.hanging import LEAST_ENDED, Hanging, hanging
from paddock.jobs.figures.last_hour import PARTS, ended_by_kind
from paddock.jobs.filtering import GREATEST_ID
from paddock.jobs.kinds import Kinds
from paddock.jobs.model import GroupId, NewJob
from paddock.jobs.timing import upcoming
from tests.conftest import DatabaseClock
from tests.playing import served, submit, worker
from tests.reading.rows import run
from tests.reading.test_plans import touches_few_rows


async def test_what_runs_is_told_by_session_the_longest_first(core: Core, clock: DatabaseClock) -> None:
    one, two = await worker(core, "one"), await worker(core, "two")
    ids = await submit(core, n=4)
    first = await one.claim(limit=2)
    await clock.advance(seconds=5)
    second = await two.claim(limit=2)
    sessions = [seen.session for seen in await reading.workers(core.db)]

    held = await running.held_by(core.db, sessions, most=10)
    assert [job.id for job in held] == [attempt.id for attempt in (*first, *second)] == ids
    assert [job.worker for job in held] == ["one", "one", "two", "two"]
    assert len(await running.held_by(core.db, sessions, most=1)) == 2
    assert await running.held_by(core.db, [], most=10) == []


async def test_what_died_with_a_session_is_told_of_that_session_only(core: Core, clock: DatabaseClock) -> None:
    [given_back] = await submit(core)
    [lost] = await submit(core, "once")
    dead = await worker(core, "one")
    await dead.claim()
    await served(core, clock, seconds=70)
    again = await worker(core, "one")
    assert [attempt.id for attempt in await again.claim()] == [given_back]

    seen = {found.session: found for found in await reading.workers(core.db)}
    assert [found.live for found in (seen[dead.session], seen[again.session])] == [False, True]  # type: ignore[index]
    found = await running.lost_by(core.db, list(seen.values()), most=10)
    assert {(job.id, job.session, job.event) for job in found} == {
        (given_back, dead.session, "rescued"),
        (lost, dead.session, "worker_lost"),
    }


async def test_a_session_is_late_when_half_of_its_lease_has_passed(core: Core, clock: DatabaseClock) -> None:
    slow, brisk = await worker(core, "slow"), await worker(core, "brisk")
    assert await running.late(core.db) == frozenset()
    await clock.advance(seconds=31)
    await brisk.beat()
    assert await running.late(core.db) == {slow.session}
    await clock.advance(seconds=40)
    assert await running.late(core.db) == {brisk.session}, "the slow one is dead now"


async def test_every_change_of_the_versions_at_work_is_remembered(core: Core, clock: DatabaseClock) -> None:
    """A deploy, a rollback to what ran before, and the end of a trial beside it; not a restart, nor a quiet time."""
    began = clock.at

    async def at_work(*versions: str) -> None:
        for version in versions:
            await core.link().register(wire.Register(worker_id="w", version=version, kinds=["plain"]))
        await clock.advance(seconds=6)
        await refresh_figures(core.db)
        await clock.advance(minutes=2, seconds=-6)

    for versions in (["1.0"], ["2.0"], ["2.0"], [], ["2.0"], ["1.0"], ["1.0", "2.0"], ["1.0"]):
        await at_work(*versions)

    told = await overviews.version_changes(core.db, began)
    assert [(change.before, change.after, (change.at - began) / timedelta(minutes=1)) for change in told] == [
        (["1.0", "2.0"], ["1.0"], 14.1),
        (["1.0"], ["1.0", "2.0"], 12),
        (["2.0"], ["1.0"], 10),
        (["1.0"], ["2.0"], 2),
    ]
    assert (told[0].came, told[0].went) == ([], ["2.0"])
    assert len(await overviews.version_changes(core.db, began + timedelta(minutes=11))) == 2


async def test_control_planes_have_versions_of_their_own(
    core: Core, clock: DatabaseClock, connection: "asyncpg.Connection[asyncpg.Record]", monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(core, "kinds", Kinds([*core.kinds, BULK]))
    await connection.execute("UPDATE kinds SET internal = true WHERE name = 'plain'")
    began = clock.at
    for version in ("1.0", "2.0"):
        await core.link().register(wire.Register(worker_id="w", version=version, kinds=["plain"]))
        await refresh_figures(core.db)
        await clock.advance(minutes=2)

    assert [change.role for change in await overviews.version_changes(core.db, began)] == ["control plane"]


async def test_the_last_hour_of_a_kind_comes_from_the_figures(core: Core, clock: DatabaseClock) -> None:
    assert await ended_by_kind(core.db) == {}
    played = await worker(core)
    await submit(core, n=3)
    await submit(core, "other")
    for place, attempt in enumerate(await played.claim("plain")):
        await attempt.finish("permanent" if place == 0 else "done")
    await clock.advance(minutes=10)
    await refresh_figures(core.db)

    [(kind, ended)] = (await ended_by_kind(core.db)).items()
    assert (kind, ended.completed, ended.failed) == ("plain", 2, 1)
    assert ended.failure_share == pytest.approx(1 / 3)
    assert len(ended.parts) == PARTS
    assert [(place, part) for place, part in enumerate(ended.parts) if any(part)] == [(PARTS - 6, (2, 1))]
    await clock.advance(minutes=60)
    assert await ended_by_kind(core.db) == {}


async def test_a_job_hangs_when_its_time_out_passed_and_nobody_stopped_it(core: Core, clock: DatabaseClock) -> None:
    await submit(core, "timed")
    await submit(core, "plain")
    claimed = {attempt.job.kind: attempt for attempt in await (await worker(core)).claim()}
    began = clock.at
    await clock.advance(minutes=5, seconds=59)
    assert await hanging(core.db) == [], "its worker has a grace to stop it"
    await clock.advance(seconds=2)
    assert await hanging(core.db) == [Hanging(claimed["timed"].id, "timed", began, overdue=True)]


async def test_a_job_hangs_when_it_took_too_long_in_all(
    core: Core, clock: DatabaseClock, connection: "asyncpg.Connection[asyncpg.Record]"
) -> None:
    await connection.execute("UPDATE kinds SET turn_timeout = NULL, stall_timeout = NULL")
    await submit(core, "timed")
    played = await worker(core)
    await (await played.claim_one()).finish("again", delay_seconds=58 * 60)
    await clock.advance(minutes=58)
    await played.beat()
    last = await played.claim_one()
    began = clock.at
    await clock.advance(minutes=2, seconds=59)
    assert await hanging(core.db) == []
    await clock.advance(seconds=2)
    assert await hanging(core.db) == [Hanging(last.id, "timed", began, overdue=True)]


async def test_a_job_hangs_when_it_saved_nothing_over_several_turns(
    core: Core, clock: DatabaseClock, connection: "asyncpg.Connection[asyncpg.Record]"
) -> None:
    await connection.execute("UPDATE kinds SET turn_timeout = NULL, total_timeout = NULL")
    await submit(core, "timed")
    played = await worker(core)
    first = await played.claim_one()
    await clock.advance(minutes=18)
    await first.finish("again")
    await played.beat()
    last = await played.claim_one()
    began = clock.at
    await clock.advance(minutes=2, seconds=59)
    assert await hanging(core.db) == []
    await clock.advance(seconds=2)
    assert await hanging(core.db) == [Hanging(last.id, "timed", began, overdue=True)]


async def test_a_job_hangs_when_it_runs_far_longer_than_those_of_its_kind_do(core: Core, clock: DatabaseClock) -> None:
    for kind, n in (("plain", LEAST_ENDED), ("other", LEAST_ENDED - 1)):
        await submit(core, kind, n=n)
        attempts = await (await worker(core)).claim(kind, limit=n)
        await clock.advance(minutes=4)
        for attempt in attempts:
            await attempt.finish()
    await refresh_figures(core.db)
    await submit(core, "plain")
    await submit(core, "other")
    played = await worker(core)
    [held] = await played.claim("plain")
    await played.claim("other")
    began = clock.at

    await clock.advance(minutes=19)
    assert await hanging(core.db) == [], "all took about four minutes: it may be a larger one"
    await clock.advance(minutes=7)
    found = await hanging(core.db)
    assert found == [Hanging(held.id, "plain", began, overdue=False)], "of the other too few ended to know"
    await held.finish()
    assert await hanging(core.db) == []


async def make_group(core: Core, owner: str, n: int = 1) -> GroupId:
    async with core.db.transaction() as tx:
        group = await grouping.create(tx, "plain", owner)
        await core.enqueue(tx, [NewJob("plain", {}, owner=owner, group_id=group) for _ in range(n)])
        await grouping.seal(core, tx, group)
    return group


async def test_groups_come_open_or_ended_page_by_page_and_by_owner(core: Core, clock: DatabaseClock) -> None:
    made = []
    for number in range(6):
        made.append(await make_group(core, "ann" if number % 2 else "bob"))
        await clock.advance(seconds=1)
    played = await worker(core)
    for _ in range(3):  # the first three end, in the order they were made
        await (await played.claim_one()).finish()
        await clock.advance(seconds=1)

    assert [group.id for group in await grouping.open_page(core.db, None)] == made[:2:-1]
    assert [group.id for group in await grouping.open_page(core.db, None, before=made[4])] == [made[3]]
    assert [group.id for group in await grouping.open_page(core.db, "ann")] == [made[5], made[3]]
    ended = await grouping.ended_page(core.db, None, limit=2)
    assert [group.id for group in ended] == [made[2], made[1]]
    assert ended[-1].ended_at is not None
    rest = await grouping.ended_page(core.db, None, before=(ended[-1].ended_at, ended[-1].id))
    assert [group.id for group in rest] == [made[0]]
    assert [group.id for group in await grouping.ended_page(core.db, "ann")] == [made[1]]
    assert await grouping.ended_page(core.db, "eve") == []


async def test_the_live_jobs_of_a_group_are_counted_by_status(core: Core) -> None:
    group = await make_group(core, "ann", 5)
    played = await worker(core)
    await (await played.claim_one()).finish()
    await (await played.claim_one()).finish("again", delay_seconds=60, waiting_on="query")
    await played.claim_one()
    assert await grouping.live_counts(core.db, group) == {"pending": 2, "claimed": 1, "submitted": 1}
    found = await grouping.get(core.db, group)
    assert found is not None
    assert (found.total, found.open, found.completed, found.hook_due, found.final) == (5, 4, 1, False, False)
    assert await grouping.get(core.db, UUID(int=1)) is None


MANY = """
INSERT INTO groups (id, kind, owner, ended_at)
SELECT paddock_id(paddock_now() - make_interval(secs => i), i), 'plain', CASE WHEN i % 5000 = 1 THEN 'rare' ELSE 'ann' END,
       CASE WHEN i % 1000 = 1 THEN NULL ELSE paddock_now() - make_interval(secs => i) END
FROM generate_series(1, 20000) i;
INSERT INTO job_timeline (job_id, event, worker, claimed_at)
SELECT gen_random_uuid(), CASE WHEN i % 2000 = 0 THEN 'rescued' ELSE 'retry' END, 'one', paddock_now() FROM generate_series(1, 20000) i;
"""


@pytest.mark.parametrize("statistics", ["none", "analysed"])
async def test_groups_and_losses_are_found_by_an_index(core: Core, statistics: str) -> None:
    for statement in MANY.strip().split(";")[:-1]:
        await run(core.db, statement)
    if statistics == "analysed":
        await run(core.db, "ANALYZE groups, job_timeline")
    session = (await worker(core, "one")).session
    later = datetime.now(UTC) + timedelta(hours=1)
    for name, arguments in {
        "open_groups": [GREATEST_ID, 20],
        "open_groups_of_owner": [GREATEST_ID, 20, "rare"],
        "ended_groups": [later, GREATEST_ID, 50],
        "ended_groups_of_owner": [later, GREATEST_ID, 50, "ann"],
    }.items():
        await touches_few_rows(core.db, grouping.SQL[name], arguments, most=60)
    await touches_few_rows(core.db, grouping.SQL["ended_groups_of_owner"], [later, GREATEST_ID, 50, "nobody"], most=0)
    early = datetime(2020, 1, 1, tzinfo=UTC)
    lost = [[session], ["one"], [early], [later], 20]
    await touches_few_rows(core.db, running.SQL["lost_by_sessions"], lost, most=20)
    rows = await core.db.fetch(running.SQL["lost_by_sessions"], *lost)
    assert len(rows) == 10


def test_the_next_times_of_a_schedule_are_foreseen() -> None:
    first = datetime(2026, 3, 28, 1, 30, tzinfo=UTC)
    daily = upcoming(every=None, cron="30 2 * * *", timezone="Europe/Berlin", first=first, count=3)
    # The clock goes forward on the 29th: 2:30 is left out, and the run comes behind the gap.
    assert [at.isoformat() for at in daily] == [
        "2026-03-28T01:30:00+00:00",
        "2026-03-29T01:00:00+00:00",
        "2026-03-30T00:30:00+00:00",
    ]
    hourly = upcoming(every=timedelta(hours=1), cron=None, timezone="UTC", first=first, count=5)
    assert hourly == [first + timedelta(hours=n) for n in range(5)]
