"""What people do to a snapshot: retry what failed, cancel it, delete it; alone and all at once."""

import asyncio
from datetime import timedelta
from typing import TypeAlias

import asyncpg
import pytest

from paddock.exports import mappings, snapshot_states, snapshots
from paddock.exports.mapping import Definition
from paddock.exports.mappings import Change, Mapping
from paddock.exports.snapshot_states import Snapshot
from paddock.jobs.core import Core
from paddock.jobs.errors import Draining, Refused
from tests.background.ticking import end_expired
from tests.conftest import DatabaseClock
from tests.playing import read
from tests.snapshots.making import (
    AIRPORTS,
    NAMES,
    claim,
    complete,
    make_mapping,
    make_snapshot,
    now,
    parts_of,
    payload_of,
)

Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"


async def failed_snapshot(core: Core, *names: str, mapping: Mapping | None = None) -> Snapshot:
    """All ended, and these failed."""
    made = await make_snapshot(core, mapping)
    for name, attempt in (await claim(core)).items():
        await (attempt.finish("permanent") if name in names else complete(attempt))
    return await now(core, made.id)


class TestRetry:
    async def test_runs_only_what_failed_and_then_it_is_ready(self, core: Core) -> None:
        made = await failed_snapshot(core, "Airline", "ROUTE")
        before = await parts_of(core, made)
        again = await snapshots.retry(core, made, actor="ada")

        assert again.status == "creating", "one of its jobs was claimed once"
        assert (again.error, again.ended_at) == (None, None)
        attempts = await claim(core)
        assert list(attempts) == ["Airline", "ROUTE"]
        parts = await parts_of(core, made)
        for name, attempt in attempts.items():
            job = await read(core, attempt.id)
            assert job.retry_of == before[name].job_id
            assert (job.role, job.group_id) == ("finance", made.group_id)
            assert parts[name].job_id == attempt.id
            assert job.payload == (await read(core, before[name].job_id)).payload
        for attempt in attempts.values():
            await complete(attempt, 7)
        ready = await now(core, made.id)
        assert (ready.status, ready.error) == ("ready", None)
        assert ready.node_counts == {"Airport": 10, "Airline": 7}
        assert ready.edge_counts == {"ROUTE": 7, "FLIES_TO": 10}

    async def test_that_fails_again_leaves_it_failed_with_the_new_error(self, core: Core) -> None:
        made = await failed_snapshot(core, "Airline")
        await snapshots.retry(core, made, actor="ada")
        [attempt] = (await claim(core)).values()
        await attempt.finish("permanent")
        failed = await now(core, made.id)
        assert failed.status == "failed"
        assert failed.error is not None
        assert failed.error["job_id"] == str(attempt.id)
        await snapshots.retry(core, failed, actor="ada")
        [attempt] = (await claim(core)).values()
        await complete(attempt)
        assert (await now(core, made.id)).status == "ready"

    async def test_while_others_are_still_at_work(self, core: Core) -> None:
        made = await make_snapshot(core)
        attempts = await claim(core)
        await attempts["Airport"].finish("permanent")
        await snapshots.retry(core, await now(core, made.id), actor="ada")
        again = await claim(core)
        assert list(again) == ["Airport"]
        for attempt in [*again.values(), *(attempts[name] for name in NAMES[1:])]:
            assert (await now(core, made.id)).status == "creating"
            await complete(attempt)
        assert (await now(core, made.id)).status == "ready"

    async def test_of_a_single_job_by_itself_takes_its_part_and_opens_the_snapshot(self, core: Core) -> None:
        made = await failed_snapshot(core, "Airline", "ROUTE")
        airline = (await parts_of(core, made))["Airline"]
        retried = await core.retry(airline.job_id, actor="ada")

        assert (await now(core, made.id)).status == "creating"
        assert (await parts_of(core, made))["Airline"].job_id == retried.id
        await snapshots.retry(core, await now(core, made.id), actor="ada")
        attempts = await claim(core)
        assert sorted(attempts) == ["Airline", "ROUTE"], "nobody runs Airline twice"
        for attempt in attempts.values():
            await complete(attempt)
        assert (await now(core, made.id)).status == "ready"
        assert (await parts_of(core, made))["Airline"].job_id == retried.id

    async def test_of_a_single_job_again_and_again(self, core: Core) -> None:
        made = await failed_snapshot(core, "Airline")
        job_id = (await parts_of(core, made))["Airline"].job_id
        for _ in range(3):
            job_id = (await core.retry(job_id, actor="ada")).id
            [attempt] = (await claim(core)).values()
            await attempt.finish("permanent")
            assert (await now(core, made.id)).status == "failed"
        await core.retry(job_id, actor="ada")
        [attempt] = (await claim(core)).values()
        await complete(attempt)
        assert (await now(core, made.id)).status == "ready"

    async def test_two_at_once_run_it_once(self, core: Core, connection: Connection) -> None:
        mapping = await make_mapping(core)
        for _ in range(4):
            made = await failed_snapshot(core, "Airline", "ROUTE", mapping=mapping)
            part = (await parts_of(core, made))["Airline"]
            answers = await asyncio.gather(
                snapshots.retry(core, made, actor="ada"),
                snapshots.retry(core, made, actor="ada"),
                core.retry(part.job_id, actor="ada"),
                return_exceptions=True,
            )
            refused = [answer.code for answer in answers if isinstance(answer, Refused)]
            assert len(refused) in (1, 2), answers
            assert all(isinstance(answer, Refused) for answer in answers if isinstance(answer, BaseException)), answers
            attempts = await claim(core)
            assert sorted(attempts) == ["Airline", "ROUTE"]
            assert await connection.fetchval("SELECT open FROM groups WHERE id = $1", made.group_id) == 2
            for attempt in attempts.values():
                await complete(attempt)
            assert (await now(core, made.id)).status == "ready"

    async def test_after_its_group_and_its_jobs_left_history(self, core: Core, connection: Connection) -> None:
        made = await failed_snapshot(core, "Airline")
        await connection.execute("DELETE FROM groups")
        await connection.execute("DELETE FROM job_history")
        assert (await now(core, made.id)).status == "failed"
        again = await snapshots.retry(core, made, actor="ada")
        assert again.status == "creating"
        [attempt] = (await claim(core)).values()
        await complete(attempt)
        ready = await now(core, made.id)
        assert (ready.status, ready.node_counts) == ("ready", {"Airport": 10, "Airline": 10})

    async def test_is_new_work_and_refused_while_draining(self, core: Core, connection: Connection) -> None:
        made = await failed_snapshot(core, "Airline")
        await core.drain(True, actor="ops")
        with pytest.raises(Draining):
            await snapshots.retry(core, made, actor="ada")
        with pytest.raises(Draining):
            await make_snapshot(core, await make_mapping(core, name="other"))
        assert (await now(core, made.id)).status == "failed"
        assert await connection.fetchval("SELECT count(*) FROM snapshots") == 1
        assert await connection.fetchval("SELECT count(*) FROM groups") == 1


class TestCancel:
    async def test_ends_what_has_not_ended(self, core: Core) -> None:
        made = await make_snapshot(core)
        attempts = await claim(core, limit=2)
        await complete(attempts["Airport"])
        cancelled = await snapshots.cancel(core, made, actor="ada", reason="wrong mapping")
        assert cancelled.status == "cancelled"
        assert cancelled.error is not None
        assert "wrong mapping" in cancelled.error["message"]
        assert await complete(attempts["Airline"]) == "cancelled"
        statuses = {name: part.status for name, part in (await parts_of(core, made)).items()}
        assert statuses == {
            "Airport": "completed",
            "Airline": "cancelled",
            "ROUTE": "cancelled",
            "FLIES_TO": "cancelled",
        }
        with pytest.raises(Refused) as refused:
            await snapshots.cancel(core, cancelled, actor="ada")
        assert refused.value.code == "already_finished"

    async def test_beats_failed(self, core: Core) -> None:
        made = await make_snapshot(core)
        await (await claim(core))["Airport"].finish("permanent")
        assert (await snapshots.cancel(core, made, actor="ada")).status == "cancelled"

    async def test_of_a_single_job_cancels_the_snapshot_once_the_rest_has_ended(self, core: Core) -> None:
        made = await make_snapshot(core)
        attempts = await claim(core)
        await core.cancel([attempts["ROUTE"].id], actor="ada")
        assert (await now(core, made.id)).status == "creating"
        for name in ("Airport", "Airline"):
            await complete(attempts[name])
        await attempts["FLIES_TO"].finish("permanent")
        assert (await now(core, made.id)).status == "cancelled"

    async def test_before_anything_was_claimed_and_then_retried(self, core: Core) -> None:
        made = await make_snapshot(core)
        cancelled = await snapshots.cancel(core, made, actor="ada")
        assert cancelled.status == "cancelled"
        again = await snapshots.retry(core, cancelled, actor="ada")
        assert again.status == "pending", "none of its jobs was ever claimed"
        for attempt in (await claim(core)).values():
            await complete(attempt)
        assert (await now(core, made.id)).status == "ready"

    async def test_against_the_last_finishes(self, core: Core, connection: Connection) -> None:
        mapping = await make_mapping(core)
        for _ in range(6):
            made = await make_snapshot(core, mapping)
            attempts = await claim(core)
            [cancelled, *verdicts] = await asyncio.gather(
                snapshots.cancel(core, made, actor="ada"),
                *(complete(attempt) for attempt in attempts.values()),
                return_exceptions=True,
            )
            assert set(verdicts) <= {"accepted", "cancelled"}
            ended = await now(core, made.id)
            assert ended.status == ("cancelled" if "cancelled" in verdicts else "ready")
            assert isinstance(cancelled, Refused) == (ended.status == "ready")
            assert await connection.fetchval("SELECT count(*) FROM groups WHERE open > 0 OR hook_due") == 0


class TestDelete:
    async def test_is_refused_while_jobs_are_at_work_and_names_them(self, core: Core) -> None:
        made = await make_snapshot(core)
        attempts = await claim(core)
        with pytest.raises(Refused) as refused:
            await snapshots.delete(core, made.id, actor="ada")
        assert refused.value.code == "snapshot_busy"
        assert refused.value.details["jobs"] == [str(attempts[name].id) for name in NAMES]
        assert (await now(core, made.id)).status == "creating"

    async def test_marks_it_takes_its_files_away_and_then_the_row(self, core: Core, connection: Connection) -> None:
        made = await failed_snapshot(core, "Airline")
        part = (await parts_of(core, made))["Airline"]
        await snapshots.delete(core, made.id, actor="ada")

        gone = await now(core, made.id)
        assert gone.status == "deleting"
        assert gone.removal_job is not None
        removal = await read(core, gone.removal_job)
        prefix = snapshot_states.prefix_of("ada", made.mapping_id, 1, made.id)
        assert (removal.kind, removal.payload) == ("remove_files", {"prefixes": [prefix], "snapshot_id": str(made.id)})
        with pytest.raises(Refused) as refused:
            await snapshots.retry(core, gone, actor="ada")
        assert refused.value.code == "snapshot_deleting"
        with pytest.raises(Refused):
            await core.retry(part.job_id, actor="ada")
        async with core.db.transaction() as tx:
            await snapshots.dropped(tx, made.id)
        assert await snapshot_states.get(core.db, made.id) is None
        assert await connection.fetchval("SELECT count(*) FROM snapshot_parts") == 0

    async def test_what_is_not_being_deleted_is_not_dropped(self, core: Core) -> None:
        made = await failed_snapshot(core, "Airline")
        async with core.db.transaction() as tx:
            await snapshots.dropped(tx, made.id)
        assert (await now(core, made.id)).status == "failed"

    async def test_asked_again_it_waits_for_the_first_or_begins_anew(self, core: Core, connection: Connection) -> None:
        made = await failed_snapshot(core, "Airline")
        for _ in range(2):
            await snapshots.delete(core, made.id, actor="ada")
        first = (await now(core, made.id)).removal_job
        assert first is not None
        assert await connection.fetchval("SELECT count(*) FROM jobs WHERE kind = 'remove_files'") == 1
        await core.cancel([first], actor="ops")
        await snapshots.delete(core, made.id, actor="ada")
        assert (await now(core, made.id)).removal_job != first

    async def test_against_a_retry_one_of_them_is_told_of_the_other(self, core: Core) -> None:
        mapping = await make_mapping(core)
        for _ in range(5):
            made = await failed_snapshot(core, "Airline", mapping=mapping)
            part = (await parts_of(core, made))["Airline"]
            answers = await asyncio.gather(
                snapshots.delete(core, made.id, actor="ada"),
                snapshots.retry(core, made, actor="ada"),
                core.retry(part.job_id, actor="ada"),
                return_exceptions=True,
            )
            assert all(isinstance(answer, Refused) for answer in answers if isinstance(answer, BaseException)), answers
            deleted = answers[0] is None
            assert (await now(core, made.id)).status == ("deleting" if deleted else "creating")
            attempts = await claim(core)
            assert len(attempts) == (0 if deleted else 1)
            for attempt in attempts.values():
                await complete(attempt)


class TestTime:
    async def test_a_snapshot_expires_when_its_time_is_over_and_it_has_ended(
        self, core: Core, clock: DatabaseClock
    ) -> None:
        mapping = await make_mapping(core)
        made = await make_snapshot(core, mapping, ttl=timedelta(minutes=10))
        lasting = await make_snapshot(core, mapping)
        assert made.expires_at == made.created_at + timedelta(minutes=10)
        attempts = await claim(core)
        await clock.advance(minutes=10)
        assert await end_expired(core, "snapshots") == 0, "it waits for its jobs to end"
        await core.cancel([attempt.id for attempt in attempts.values()], actor="ada")
        await snapshots.cancel(core, made, actor="ada") if (await now(core, made.id)).live else None
        assert await end_expired(core, "snapshots") == 1
        assert (await now(core, made.id)).status == "deleting"
        assert (await now(core, lasting.id)).status != "deleting"
        assert await end_expired(core, "snapshots") == 0

    async def test_not_a_moment_earlier(self, core: Core, clock: DatabaseClock) -> None:
        made = await make_snapshot(core, ttl=timedelta(minutes=10))
        await snapshots.cancel(core, made, actor="ada")
        await clock.advance(seconds=599.999)
        assert await end_expired(core, "snapshots") == 0
        await clock.advance(seconds=0.001)
        assert await end_expired(core, "snapshots") == 1


async def test_a_later_version_of_the_mapping_changes_no_snapshot(core: Core) -> None:
    mapping = await make_mapping(core)
    made = await make_snapshot(core, mapping)
    await snapshots.cancel(core, made, actor="ada")
    changed = {**AIRPORTS, "nodes": [{**AIRPORTS["nodes"][0], "sql": "SELECT 1, 2"}, AIRPORTS["nodes"][1]]}
    change = Change(change_description="other", definition=Definition.model_validate(changed))
    await mappings.change(core, mapping.id, change, actor="ada")
    await snapshots.retry(core, await now(core, made.id), actor="ada")
    attempts = await claim(core)
    assert payload_of(attempts["Airport"])["sql"] == "SELECT code, name FROM airports"
    newest = await make_snapshot(core, mapping)
    assert newest.mapping_version == 2
