"""A due schedule makes its job once, whichever replica looks first, and one that cannot holds up no other."""

import asyncio
from datetime import timedelta
from typing import TypeAlias

import asyncpg
import pytest
from structlog.testing import capture_logs

from paddock.background.looping import Loop
from paddock.jobs import reading, schedules
from paddock.jobs.core import Core
from paddock.jobs.errors import Refused
from paddock.jobs.model import Job
from paddock.jobs.reading import Filter
from paddock.jobs.schedules import NewSchedule, Schedule
from tests.conftest import DatabaseClock
from tests.playing import worker
from tests.reading.rows import run

Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"
ON_INSERT = """
CREATE FUNCTION on_insert() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {body} RETURN NEW; END $$;
CREATE TRIGGER on_insert BEFORE INSERT ON jobs FOR EACH ROW EXECUTE FUNCTION on_insert();
"""


async def make(core: Core, name: str = "nightly", **fields: object) -> Schedule:
    new = NewSchedule(name=name, kind="plain", owner="ann", every=timedelta(minutes=1))
    for key, value in fields.items():
        object.__setattr__(new, key, value)
    return await schedules.create(core, new, actor="ops")


async def jobs_of(core: Core, name: str = "nightly") -> list[Job]:
    return list((await reading.page(core.db, Filter(schedule=name), limit=100)).jobs)


async def seen(core: Core, name: str = "nightly") -> Schedule:
    found = await schedules.get(core.db, name)
    assert found is not None
    return found


async def test_two_tickers_insert_once(core: Core, clock: DatabaseClock) -> None:
    for n in range(5):
        await make(core, f"nightly-{n}")
    await clock.advance(minutes=1)
    made = await asyncio.gather(*(schedules.run_due(core) for _ in range(8)))
    assert sum(made) == 5
    for n in range(5):
        assert len(await jobs_of(core, f"nightly-{n}")) == 1


async def test_missed_runs_are_made_up_by_one(core: Core, clock: DatabaseClock) -> None:
    schedule = await make(core)
    await clock.advance(minutes=60, seconds=10)
    assert await schedules.run_due(core) == 1
    assert await schedules.run_due(core) == 0
    after = await seen(core)
    assert schedule.next_at is not None
    assert after.next_at == schedule.next_at + timedelta(minutes=60)
    assert after.last_job_id == (await jobs_of(core))[0].id


async def test_a_run_is_skipped_while_the_one_before_lives(core: Core, clock: DatabaseClock) -> None:
    await make(core)
    await clock.advance(minutes=1)
    assert await schedules.run_due(core) == 1
    await clock.advance(minutes=1)
    assert await schedules.run_due(core) == 0
    assert (await seen(core)).skipped == 1
    await (await (await worker(core)).claim_one("plain")).finish()
    await clock.advance(minutes=1)
    assert await schedules.run_due(core) == 1
    assert len(await jobs_of(core)) == 2


async def test_a_schedule_that_cannot_run_says_why_and_stops_no_other(core: Core, clock: DatabaseClock) -> None:
    await make(core, "first", kind="locking", payload={"lock": "table"})
    await make(core, "second", kind="locking", payload={"lock": "table"})
    await make(core, "broken")
    await make(core, "gone")
    await make(core, "zone", every=None, cron="* * * * *")
    await make(core, "well")
    await run(core.db, "UPDATE schedules SET payload = '[]' WHERE name = 'broken'")
    await run(core.db, "UPDATE schedules SET kind = 'removed' WHERE name = 'gone'")
    await run(core.db, "UPDATE schedules SET timezone = 'Nowhere/Else' WHERE name = 'zone'")
    await clock.advance(minutes=1)
    assert await schedules.run_due(core) == 2
    assert len(await jobs_of(core, "well")) == 1
    problems = {name: (await seen(core, name)).last_problem or "" for name in ("first", "second", "broken", "zone")}
    assert sorted("[lock_held]" in problems[name] for name in ("first", "second")) == [False, True]
    assert problems["broken"]
    assert problems["zone"]
    assert (await seen(core, "zone")).next_at is None

    assert (await seen(core, "gone")).last_problem is None, "left to a replica that knows the kind"
    await clock.advance(minutes=11)
    await schedules.run_due(core)
    assert "unknown_kind" in ((await seen(core, "gone")).last_problem or "")


async def test_a_database_that_goes_away_is_one_plain_warning_and_loses_no_run(
    core: Core, clock: DatabaseClock, connection: Connection
) -> None:
    await make(core)
    await clock.advance(minutes=1)
    await connection.execute(ON_INSERT.format(body="PERFORM pg_terminate_backend(pg_backend_pid());"))
    loop = Loop("tick", lambda: schedules.run_due(core), timedelta(seconds=1))
    with capture_logs() as logged:
        for _ in range(3):
            await loop.once()
    assert [(entry["event"], entry["log_level"], "exc_info" in entry) for entry in logged] == [
        ("pass_failed", "warning", False)
    ]
    assert "\n" not in logged[0]["error"]

    await connection.execute("DROP FUNCTION on_insert CASCADE")
    await loop.once()
    assert len(await jobs_of(core)) == 1
    assert (await seen(core)).last_problem is None


async def test_a_deadlock_is_nobodys_fault_and_loses_no_run(
    core: Core, clock: DatabaseClock, connection: Connection
) -> None:
    await make(core)
    await clock.advance(minutes=1)
    await connection.execute("CREATE SEQUENCE tries")
    await connection.execute(
        ON_INSERT.format(
            body="IF nextval('tries') = 1 THEN RAISE 'circle' USING ERRCODE = 'deadlock_detected'; END IF;"
        )
    )
    assert await schedules.run_due(core) == 1
    assert (await seen(core)).last_problem is None


async def test_run_now_waits_behind_nothing_and_shifts_nothing(core: Core, clock: DatabaseClock) -> None:
    before = await make(core)
    await schedules.run(core, "nightly", actor="ops")
    await schedules.run(core, "nightly", actor="ops")
    assert len(await jobs_of(core)) == 2
    assert (await seen(core)).next_at == before.next_at


async def test_run_now_of_one_of_our_own_takes_no_due_runs_place(core: Core, clock: DatabaseClock) -> None:
    await schedules.ensure(core, "own", "plain", timedelta(minutes=1))
    assert await schedules.run_due(core) == 1
    await (await (await worker(core)).claim_one("plain")).finish()
    await schedules.run(core, "own", actor="ops")
    await clock.advance(minutes=1)
    assert await schedules.run_due(core) == 1
    await clock.advance(minutes=1)
    assert await schedules.run_due(core) == 0, "the due one is still there"
    assert (await seen(core, "own")).skipped == 1


async def test_run_now_takes_a_payload_of_its_own_and_says_why(core: Core, clock: DatabaseClock) -> None:
    await make(core, payload={"n": 1})
    job = await schedules.run(core, "nightly", actor="ops", payload={"n": 2}, reason="The source was late.")
    assert job.payload == {"n": 2}
    assert (await seen(core)).payload == {"n": 1}
    assert (await schedules.run(core, "nightly", actor="ops")).payload == {"n": 1}
    with pytest.raises(Refused, match="does not fit"):
        await schedules.run(core, "nightly", actor="ops", payload={"lock": 5})
    noted = await run(core.db, "SELECT reason, details FROM audit_log WHERE action = 'schedule.run'")
    reasons = {row["reason"]: row["details"] for row in noted}
    assert reasons.keys() == {"The source was late.", None}
    assert str(job.id) in reasons["The source was late."]


class TestAfterAFailedRun:
    """Of Paddock's own schedules."""

    async def fail(self, core: Core, outcome: str = "permanent") -> None:
        await (await (await worker(core)).claim_one("plain")).finish(outcome)

    async def next_in(self, core: Core, clock: DatabaseClock, name: str = "own") -> timedelta:
        next_at = (await seen(core, name)).next_at
        assert next_at is not None
        return next_at - clock.at

    async def test_a_daily_one_is_due_in_a_minute_then_two_then_four(self, core: Core, clock: DatabaseClock) -> None:
        await schedules.ensure(core, "own", "plain", timedelta(days=1))
        for minutes in (1, 2, 4, 8):
            assert await schedules.run_due(core) == 1
            await clock.advance(seconds=30)
            await self.fail(core)
            assert await self.next_in(core, clock) == timedelta(minutes=minutes)
            await clock.advance(minutes=minutes)
        assert await schedules.run_due(core) == 1
        after = await self.next_in(core, clock)
        assert after == timedelta(days=1)
        await self.fail(core, "done")
        assert await self.next_in(core, clock) == after, "a success leaves the schedule's own times"
        await clock.advance(after)
        assert await schedules.run_due(core) == 1
        await self.fail(core)
        assert await self.next_in(core, clock) == timedelta(minutes=1), "counted anew after a success"

    async def test_never_later_than_its_interval(self, core: Core, clock: DatabaseClock) -> None:
        await schedules.ensure(core, "own", "plain", timedelta(seconds=90))
        for seconds in (60, 90, 90):
            assert await schedules.run_due(core) == 1
            await clock.advance(seconds=200)
            await self.fail(core)
            assert await self.next_in(core, clock) == timedelta(seconds=seconds), "from its end: none spins"
            await clock.advance(seconds=seconds)

    async def test_many_failures_in_a_row(self, core: Core, clock: DatabaseClock) -> None:
        await schedules.ensure(core, "own", "plain", timedelta(days=1))
        for _ in range(25):
            assert await schedules.run_due(core) == 1
            await self.fail(core)
            await clock.advance(await self.next_in(core, clock))
        assert await schedules.run_due(core) == 1
        await self.fail(core)
        assert await self.next_in(core, clock) == timedelta(days=1)

    async def test_one_that_somebody_asked_for_shifts_nothing(self, core: Core, clock: DatabaseClock) -> None:
        await schedules.ensure(core, "own", "plain", timedelta(days=1))
        assert await schedules.run_due(core) == 1
        await self.fail(core, "done")
        before = await self.next_in(core, clock)
        await schedules.run(core, "own", actor="ops")
        await self.fail(core)
        assert await self.next_in(core, clock) == before

    async def test_peoples_schedules_keep_their_times(self, core: Core, clock: DatabaseClock) -> None:
        await make(core, every=timedelta(days=1))
        await clock.advance(minutes=24 * 60)
        assert await schedules.run_due(core) == 1
        await self.fail(core)
        assert await self.next_in(core, clock, "nightly") == timedelta(days=1)


async def test_drain_holds_schedules_but_not_housekeeping(core: Core, clock: DatabaseClock) -> None:
    await make(core)
    await schedules.ensure(core, "own", "other", timedelta(minutes=1))
    await run(core.db, "UPDATE kinds SET housekeeping = true WHERE name = 'other'")
    await core.drain(True, actor="ops", reason="upgrade")
    await clock.advance(minutes=3)
    assert await schedules.run_due(core) == 1
    with pytest.raises(Refused, match="upgrade"):
        await schedules.run(core, "nightly", actor="ops")
    await core.drain(False, actor="ops")
    assert await schedules.run_due(core) == 1
    assert len(await jobs_of(core)) == 1


async def test_our_own_keep_their_time_and_their_switch(core: Core, clock: DatabaseClock) -> None:
    await schedules.ensure(core, "own", "plain", timedelta(seconds=10))
    assert await schedules.run_due(core) == 1
    due = (await seen(core, "own")).next_at
    await schedules.update(core, "own", {"enabled": False}, actor="ops")
    await schedules.ensure(core, "own", "plain", timedelta(seconds=10))
    after = await seen(core, "own")
    assert (after.enabled, after.next_at, after.internal) == (False, due, True)
    for change in (
        schedules.delete(core, "own", actor="ops"),
        schedules.update(core, "own", {"every": None}, actor="ops"),
    ):
        with pytest.raises(Refused, match="belongs to Paddock"):
            await change


async def test_changes_are_checked_audited_and_move_the_time_only_when_they_must(
    core: Core, clock: DatabaseClock
) -> None:
    first = await make(core)
    await clock.advance(seconds=30)
    tagged = await schedules.update(core, "nightly", {"tags": ["a"]}, actor="ops")
    assert tagged.next_at == first.next_at
    moved = await schedules.update(core, "nightly", {"every": None, "cron": "0 3 * * *"}, actor="ops")
    assert moved.next_at is not None
    assert moved.next_at.hour == 3
    for changes, says in (
        ({"kind": "nothing"}, "no kind"),
        ({"priority": 9}, "priority"),
        ({"payload": {"lock": 5}}, "does not fit"),
        ({"payload": {"x": "\0"}}, "NUL"),
        ({"name": "other"}, "cannot be changed"),
        ({"cron": "no"}, "not a cron"),
        ({"tags": ["x"] * 21}, "tags"),
    ):
        with pytest.raises(Refused, match=says) as refused:
            await schedules.update(core, "nightly", changes, actor="ops")
        assert refused.value.status == 422
    with pytest.raises(Refused, match="already"):
        await make(core)
    with pytest.raises(Refused, match="name"):
        await make(core, "Bad Name\0")
    assert [schedule.name for schedule in await schedules.page(core.db)] == ["nightly"]
    await schedules.delete(core, "nightly", actor="ops")
    assert await schedules.get(core.db, "nightly") is None
    actions = await run(core.db, "SELECT action FROM audit_log WHERE subject = 'schedule:nightly'")
    assert sorted(row["action"] for row in actions) == [
        "schedule.create",
        "schedule.delete",
        "schedule.update",
        "schedule.update",
    ]
