"""Which jobs a claim takes: by priority then due time, within its limits, from lanes that have slots of their own."""

from datetime import timedelta

import pytest

from paddock.jobs import wire
from paddock.jobs.core import Core
from tests.conftest import DatabaseClock
from tests.playing import PlayedWorker, read, submit, worker


async def test_the_more_urgent_first_and_the_older_first_among_equals(core: Core, clock: DatabaseClock) -> None:
    [low] = await submit(core, priority=4)
    await clock.advance(seconds=1)
    [first] = await submit(core, priority=3)
    await clock.advance(seconds=1)
    [second] = await submit(core, priority=3)
    await clock.advance(seconds=1)
    [urgent] = await submit(core, priority=1)

    played = await worker(core)
    assert [(await played.claim_one()).id for _ in range(4)] == [urgent, first, second, low]


async def test_urgent_comes_first_across_kinds(core: Core, clock: DatabaseClock) -> None:
    await submit(core, "plain", priority=3, n=5)
    await clock.advance(seconds=1)
    [urgent] = await submit(core, "other", priority=1)
    assert (await (await worker(core)).claim_one()).id == urgent


async def test_every_tenth_claim_takes_the_oldest_whatever_its_priority(core: Core, clock: DatabaseClock) -> None:
    [oldest] = await submit(core, priority=4)
    await clock.advance(seconds=1)
    await submit(core, priority=1, n=20)
    played = await worker(core)
    taken = [(await played.claim_one()).id for _ in range(10)]
    assert oldest not in taken[:9]
    assert taken[9] == oldest


async def test_two_workers_in_turns_both_get_to_the_oldest(core: Core, clock: DatabaseClock) -> None:
    """Counted together, one of them would meet only odd numbers and its low priorities would starve."""
    [plain], [other] = await submit(core, "plain", priority=4), await submit(core, "other", priority=4)
    await clock.advance(seconds=1)
    await submit(core, "plain", priority=1, n=20)
    await submit(core, "other", priority=1, n=20)
    one, two = await worker(core, "one"), await worker(core, "two")
    taken = []
    for _ in range(10):
        taken += [(await one.claim_one("plain")).id, (await two.claim_one("other")).id]
    assert {plain, other} <= set(taken)


async def test_a_job_that_is_not_due_yet_is_not_taken(core: Core, clock: DatabaseClock) -> None:
    [id] = await submit(core, delay=timedelta(minutes=1))
    await clock.advance(seconds=59)
    played = await worker(core)
    assert await played.claim() == []
    await clock.advance(seconds=1)
    assert [attempt.id for attempt in await played.claim()] == [id]


async def test_never_more_than_asked_for(core: Core) -> None:
    await submit(core, n=8)
    await submit(core, "other", n=8)
    assert len(await (await worker(core)).claim(limit=5)) == 5


async def test_fewer_of_a_kind_where_the_worker_says_so(core: Core) -> None:
    await submit(core, "plain", n=8)
    await submit(core, "other", n=8)
    taken = await (await worker(core)).claim(limit=8, limits={"plain": 2})
    assert sorted(attempt.job.kind for attempt in taken) == ["other"] * 6 + ["plain"] * 2


@pytest.mark.parametrize("limits", [{"plain": 0}, {"plain": -1}])
async def test_no_room_for_a_kind_at_all(core: Core, limits: dict[str, int]) -> None:
    await submit(core, "plain")
    [other] = await submit(core, "other")
    assert [attempt.id for attempt in await (await worker(core)).claim(limits=limits)] == [other]


async def test_a_kind_its_token_does_not_allow_is_not_handed_out(core: Core) -> None:
    await submit(core, "plain")
    link = core.link(kinds=["other"])
    registered = await link.register(wire.Register(worker_id="w", version="test", kinds=["other", "plain"]))
    assert registered.unknown_kinds == ["plain"]
    assert await PlayedWorker(link, registered.session).claim("plain") == []


class TestLaneOfTheAwaited:
    """Submitted jobs and cleanups: something outside waits for them."""

    async def submitted(self, core: Core, kind: str = "plain", n: int = 1) -> set[object]:
        ids = await submit(core, kind, n=n)
        for attempt in await (await worker(core, "submitter")).claim(kind, limit=n):
            assert await attempt.finish("again", waiting_on="query 1") == "accepted"
        return set(ids)

    async def test_they_come_first(self, core: Core, clock: DatabaseClock) -> None:
        await submit(core, priority=1)
        await clock.advance(seconds=1)
        waiting = await self.submitted(core, "other")
        attempt = await (await worker(core)).claim_one()
        assert {attempt.id} == waiting
        assert attempt.job.submitted

    async def test_they_have_slots_of_their_own(self, core: Core) -> None:
        waiting = await self.submitted(core, n=3)
        ordinary = set(await submit(core, n=3))
        taken = {attempt.id for attempt in await (await worker(core)).claim(limit=2, submitted_limit=2)}
        assert len(taken & waiting) == 2
        assert len(taken & ordinary) == 2

    async def test_they_are_taken_by_a_worker_with_no_other_room(self, core: Core) -> None:
        waiting = await self.submitted(core)
        await submit(core)
        taken = await (await worker(core)).claim(limit=0, submitted_limit=5)
        assert {attempt.id for attempt in taken} == waiting

    async def test_a_kind_that_is_full_still_gets_its_submitted_jobs(self, core: Core) -> None:
        waiting = await self.submitted(core)
        await submit(core)
        taken = await (await worker(core)).claim(limit=5, submitted_limit=5, limits={"plain": 0})
        assert {attempt.id for attempt in taken} == waiting

    async def test_without_slots_of_their_own_they_share_the_limit_and_the_limits(self, core: Core) -> None:
        await self.submitted(core, n=3)
        await submit(core, n=3)
        played = await worker(core)
        assert len(await played.claim(limit=4, limits={"plain": 2})) == 2
        assert len(await played.claim(limit=3)) == 3

    async def test_a_pause_does_not_hold_them(self, core: Core) -> None:
        waiting = await self.submitted(core)
        [held] = await submit(core)
        await core.pause("plain", actor="ops")
        played = await worker(core)
        assert {attempt.id for attempt in await played.claim()} == waiting
        await core.resume("plain", actor="ops")
        assert [attempt.id for attempt in await played.claim()] == [held]

    async def test_a_pause_does_not_hold_cleanups(self, core: Core) -> None:
        [id] = await submit(core, "locking")
        attempt = await (await worker(core)).claim_one()
        await core.cancel([id], actor="ann")
        await attempt.release()
        await core.pause("locking", actor="ops")
        [cleanup] = await (await worker(core)).claim()
        assert cleanup.job.cleanup_of == id


async def test_a_quiet_worker_gets_nothing_new(core: Core) -> None:
    await submit(core)
    played = await worker(core)
    await core.quiet(played.session, actor="ops")  # type: ignore[arg-type]
    assert await played.claim() == []
    await core.quiet(played.session, actor="ops", quiet=False)  # type: ignore[arg-type]
    assert len(await played.claim()) == 1


async def test_an_expired_session_gets_nothing_until_it_beats(core: Core, clock: DatabaseClock) -> None:
    await submit(core)
    played = await worker(core)
    await clock.advance(seconds=61)
    assert await played.claim() == []
    await played.beat()
    assert len(await played.claim()) == 1


async def test_what_a_claim_writes_down(core: Core, clock: DatabaseClock) -> None:
    [id] = await submit(core)
    await clock.advance(seconds=5)
    attempt = await (await worker(core, "w1")).claim_one()
    job = await read(core, id)
    assert (job.status, job.attempt_id, job.claimed_by, job.turn_count) == ("claimed", attempt.job.attempt_id, "w1", 1)
    assert (job.claimed_at, job.started_at, job.wait_seconds) == (clock.at, clock.at, 5)
