"""A pass of upkeep removes what is over, keeps what is not, and lets no step stand in another's way."""

from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest

from paddock.jobs import grouping, logs, upkeep
from paddock.jobs.core import Core
from paddock.jobs.kinds import Kinds
from paddock.jobs.model import GroupId, NewJob
from paddock.jobs.upkeep import KINDS, ensure_schedules, keep_up
from paddock.jobs.wire import LogItem
from tests.conftest import DatabaseClock
from tests.playing import submit, worker
from tests.reading.rows import add_ended, run


async def count(core: Core, table: str, where: str = "true") -> int:
    return int((await run(core.db, f"SELECT count(*) AS n FROM {table} WHERE {where}"))[0]["n"])


async def test_a_pass_on_an_empty_database_only_makes_partitions(core: Core, clock: DatabaseClock) -> None:
    did = await keep_up(core)
    assert {name: n for name, n in did.items() if n} == {
        "history_partitions": 3,
        "tag_partitions": 3,
        "log_partitions": 4,
    }
    assert set(did) == set(upkeep.STEPS)
    assert not any((await keep_up(core)).values())


async def test_housekeeping_keeps_its_last_runs(core: Core, clock: DatabaseClock) -> None:
    await run(core.db, "UPDATE kinds SET housekeeping = true WHERE name = 'other'")
    ended = await add_ended(core.db, 250, kind="other", ago="1 minute")
    await add_ended(core.db, 250, kind="plain", ago="1 minute")
    assert (await keep_up(core))["housekeeping_runs"] == 50
    rows = await run(core.db, "SELECT id FROM job_history WHERE kind = 'other' ORDER BY id")
    assert [row["id"] for row in rows] == ended[50:]
    assert await count(core, "job_history", "kind = 'plain'") == 250


async def test_tags_go_with_the_jobs_that_had_them(core: Core, clock: DatabaseClock, monkeypatch: Any) -> None:
    monkeypatch.setattr(upkeep, "AT_ONCE", 3)
    await add_ended(core.db, 2, ago="40 days", tags=("a", "b"))
    [young] = await add_ended(core.db, 1, ago="20 days", tags=("a", "b"))
    assert [(await keep_up(core))["expired_tags"] for _ in range(3)] == [3, 1, 0]
    assert {row["id"] for row in await run(core.db, "SELECT id FROM job_history_tags")} == {young}
    await add_ended(core.db, 1, tags=("c",))
    await clock.advance(timedelta(days=45))
    await keep_up(core)
    assert await count(core, "job_history_tags") == 0
    plan = await run(core.db, f"EXPLAIN {upkeep.SQL['trim_default_tags'].sql.rstrip(';')}", clock.at, 3)
    assert "using job_history_tags_default_ended" in str(plan), "by their time, or each pass would read all of them"


async def test_a_job_keeps_the_end_of_its_log_and_says_what_it_lost(core: Core, clock: DatabaseClock) -> None:
    await submit(core, n=2)
    [long, short] = await (await worker(core)).claim(limit=2)

    async def log(attempt: Any, seq: int, size: int) -> None:
        await clock.advance(seconds=1)
        await logs.append(
            core.db, [LogItem(id=attempt.job.id, attempt_id=attempt.job.attempt_id, seq=seq, lines="x" * size)]
        )

    await log(short, 1, 1000)
    for n in range(100):
        await log(long, n, 10_000)
    await keep_up(core)
    tail = await logs.tail(core.db, long.id)
    assert [chunk.seq for chunk in tail.chunks] == list(range(74, 100))
    assert tail.dropped_bytes == 740_000
    assert len((await logs.tail(core.db, short.id)).chunks) == 1


async def test_a_timeline_is_bounded(core: Core, clock: DatabaseClock) -> None:
    [one, two] = await submit(core, n=2)
    await run(
        core.db,
        "INSERT INTO job_timeline (job_id, event) SELECT CASE WHEN i <= 700 THEN $1::uuid ELSE $2 END, i::text FROM generate_series(1, 710) i",
        one,
        two,
    )
    assert (await keep_up(core))["long_timelines"] == 200
    assert await count(core, "job_timeline", f"job_id = '{one}' AND event::int > 200") == 500
    assert await count(core, "job_timeline", f"job_id = '{two}'") == 10
    await clock.advance(timedelta(days=31))
    await keep_up(core)
    assert await count(core, "job_timeline") == 0


async def test_what_has_expired_goes_and_the_rest_stays(core: Core, clock: DatabaseClock) -> None:
    async def leave_one_of_each() -> None:
        await run(core.db, "INSERT INTO idempotency_keys VALUES ('ann', '/', gen_random_uuid()::text, '')")
        await run(
            core.db,
            "INSERT INTO events (id, type, subject, version, owner, data) VALUES (paddock_id(paddock_now()), 'x', 'y', 1, 'ann', '{}')",
        )
        await run(core.db, "INSERT INTO deliveries VALUES (paddock_id(paddock_now()), $1, $1)", uuid4())
        token = await run(
            core.db,
            """INSERT INTO tokens (name, owner, role, secret_hash, created_by)
               VALUES ('x', 'ann', 'ops', gen_random_uuid()::text::bytea, 'ann') RETURNING id""",
        )
        id, hour = token[0]["id"], "paddock_now() + interval '1 hour'"
        await run(
            core.db,
            f"INSERT INTO web_sessions VALUES (gen_random_uuid()::text::bytea, $1, 'c', paddock_now(), {hour})",
            id,
        )
        await run(core.db, f"INSERT INTO sign_in_links VALUES (gen_random_uuid()::text::bytea, $1, {hour})", id)

    tables = ("idempotency_keys", "events", "deliveries", "web_sessions", "sign_in_links")
    await leave_one_of_each()
    await keep_up(core)
    assert {table: await count(core, table) for table in tables} == dict.fromkeys(tables, 1)
    await clock.advance(timedelta(days=31))
    await leave_one_of_each()
    await keep_up(core)
    assert {table: await count(core, table) for table in tables} == dict.fromkeys(tables, 1)


async def test_the_audit_log_has_a_time_of_its_own(core: Core, clock: DatabaseClock, monkeypatch: Any) -> None:
    monkeypatch.setattr(upkeep, "AT_ONCE", 2)
    for n in range(3):
        await core.pause("plain", actor="ops", reason=f"old {n}")
    await clock.advance(timedelta(days=364))
    await core.pause("plain", actor="ops", reason="young")
    assert (await keep_up(core))["audit_log"] == 0
    await clock.advance(timedelta(days=1, seconds=1))
    assert [(await keep_up(core))["audit_log"] for _ in range(3)] == [2, 1, 0]
    assert [row["reason"] for row in await run(core.db, "SELECT reason FROM audit_log")] == ["young"]


class TestGroups:
    async def test_one_goes_after_the_last_of_its_jobs(self, core: Core, clock: DatabaseClock) -> None:
        group = await ended_group(core)
        await clock.advance(timedelta(days=30))
        did = await keep_up(core)
        assert (did["expired_history"], did["expired_groups"]) == (0, 0)
        await clock.advance(timedelta(days=7))
        did = await keep_up(core)
        assert (did["expired_history"], did["expired_groups"]) == (1, 1)
        assert await count(core, "groups", f"id = '{group}'") == 0

    async def test_it_stays_as_long_as_its_jobs_do(self, core: Core, clock: DatabaseClock) -> None:
        """Their partition could not be dropped yet, or a cleanup ended late."""
        group = await ended_group(core)
        await run(core.db, "UPDATE job_history SET group_id = NULL")
        [late] = await add_ended(core.db, 1, ago="-40 days")
        await run(core.db, "UPDATE job_history SET group_id = $2 WHERE id = $1", late, group)
        await clock.advance(timedelta(days=60))
        assert (await keep_up(core))["expired_groups"] == 0
        await run(core.db, "DELETE FROM job_history WHERE id = $1", late)
        assert (await keep_up(core))["expired_groups"] == 1

    @pytest.mark.parametrize("change", ["ended_at = NULL, open = 1", "hook_due = true"])
    async def test_one_that_has_still_something_to_do_stays(
        self, core: Core, clock: DatabaseClock, change: str, monkeypatch: Any
    ) -> None:
        await ended_group(core)
        await run(core.db, f"UPDATE groups SET {change}")
        monkeypatch.setattr(Core, "finish_group_hooks", no_hooks)
        await clock.advance(timedelta(days=60))
        assert (await keep_up(core))["expired_groups"] == 0

    async def test_many_go_a_few_at_a_time(self, core: Core, clock: DatabaseClock, monkeypatch: Any) -> None:
        monkeypatch.setattr(upkeep, "AT_ONCE", 2)
        for _ in range(3):
            await ended_group(core)
        await clock.advance(timedelta(days=60))
        assert [(await keep_up(core))["expired_groups"] for _ in range(3)] == [2, 1, 0]


async def ended_group(core: Core) -> GroupId:
    async with core.db.transaction() as tx:
        group = await grouping.create(tx, "plain", "ann")
        await core.enqueue(tx, [NewJob("plain", {}, owner="ann", group_id=group)])
        await grouping.seal(core, tx, group)
    await (await (await worker(core)).claim_one()).finish()
    await keep_up(core)  # with a partition for its history
    return group


async def no_hooks(core: Core) -> int:
    return 0


async def test_a_dead_session_stays_as_long_as_it_holds_something(core: Core, clock: DatabaseClock) -> None:
    await submit(core, n=1)
    holder, idle = await worker(core, "holder"), await worker(core, "idle")
    attempt = await holder.claim_one()
    await clock.advance(minutes=120)
    assert (await keep_up(core))["sessions"] == 1
    assert await count(core, "sessions", f"id = '{holder.session}'") == 1
    assert idle.session != holder.session
    await attempt.finish()
    assert (await keep_up(core))["sessions"] == 1


async def test_a_step_that_fails_stops_no_other_but_fails_the_pass(
    core: Core, clock: DatabaseClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(core: Core, now: object) -> int:
        raise RuntimeError("broken step")

    monkeypatch.setattr(upkeep, "STEPS", {"broken": broken, **upkeep.STEPS})
    with pytest.raises(RuntimeError, match="broken step"):
        await keep_up(core)
    assert await count(core, "pg_inherits", "inhparent = 'job_history'::regclass") == 4


async def test_our_kinds_are_internal_and_their_schedules_are_made_once(core: Core, clock: DatabaseClock) -> None:
    kinds = Kinds(KINDS)
    assert all(kind.internal and kind.submit is None for kind in kinds)
    await ensure_schedules(core)
    await ensure_schedules(core)
    assert await count(core, "schedules", "internal AND next_at = paddock_now()") == 2
