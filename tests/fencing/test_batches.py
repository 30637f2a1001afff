"""Many jobs are one round trip, each item has its own verdict, and one bad item never holds up the others."""

import asyncio
from typing import Any
from uuid import uuid4

import asyncpg
import msgspec
import pytest

from paddock.jobs import fencing, finishing, wire
from paddock.jobs.core import Core
from paddock.jobs.model import MAX_RESULT_BYTES, MAX_SAVED_BYTES
from tests.playing import Attempt, read, submit, worker


def done(attempt: Attempt, result: Any = None, **fields: Any) -> wire.FinishItem:
    return wire.FinishItem(
        id=attempt.job.id, attempt_id=attempt.job.attempt_id, outcome="done", result=result, **fields
    )


def saving(attempt: Attempt, saved: Any) -> wire.SaveItem:
    return wire.SaveItem(id=attempt.job.id, attempt_id=attempt.job.attempt_id, saved=saved)


async def finished(core: Core, *items: wire.FinishItem) -> list[str]:
    return [v.verdict for v in (await core.link().finish(wire.Finish(items=list(items)))).verdicts]


async def saved(core: Core, *items: wire.SaveItem) -> list[str]:
    return [v.verdict for v in (await core.link().save(wire.Save(items=list(items)))).verdicts]


def deep(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


BAD = {
    "NUL": {"a": "x\0y"},
    "NUL in a key": {"x\0y": 1},
    "lone surrogate": {"a": "\ud800"},
    "lone surrogate in a key": {"\udfff": 1},
    "NaN": {"a": float("nan")},
    "infinity": {"a": float("-inf")},
    "deep": {"a": deep(70)},
    "very deep": {"a": deep(5_000)},
    "deep and long": {"a": [deep(600), 2**100, "\0"]},
    "large": {"a": "x" * (MAX_RESULT_BYTES + 1)},
    "large only as bytes": {"a": "ü" * (MAX_RESULT_BYTES // 2 + 1)},
    "no JSON": {"a": {1, 2}},
    "more digits than a double has": {"a": 10**400},
    "NUL, from the wire": msgspec.Raw(b'{"a": "x\\u0000y"}'),
    "lone surrogate, from the wire": msgspec.Raw(b'{"a": "\\ud800"}'),
    "no UTF-8, from the wire": msgspec.Raw(b'{"a": "\xff"}'),
    "deep, from the wire": msgspec.Raw(b'{"a": ' + b"[" * 70 + b"]" * 70 + b"}"),
    "very deep, from the wire": msgspec.Raw(b'{"a": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"),
    "large, from the wire": msgspec.Raw(b'{"a": "' + b"x" * MAX_RESULT_BYTES + b'"}'),
    "more digits than a double has, from the wire": msgspec.Raw(b'{"a": ' + b"1" * 400 + b"}"),
    "a huge exponent, from the wire": msgspec.Raw(b'{"a": 1e99999}'),
    "a huge exponent, escaped": msgspec.Raw(b'{"a": "\\u0041", "b": -1E+400}'),
    "an integer beyond 64 bits": {"a": [{"b": 2**100}]},
    "a negative one": {"a": -(2**63) - 1},
    "an integer beyond 64 bits, from the wire": msgspec.Raw(b'{"a": [18446744073709551616]}'),
    "NaN, from the wire": msgspec.Raw(b'{"a": NaN, "b": "\\u0041"}'),
    "no JSON at all, from the wire": msgspec.Raw(b'{"a": oh'),
}

GOOD = {
    "escapes": msgspec.Raw(b'{"a": "\\u00fc\\ud83d\\ude00 \\\\u0000"}'),
    "a backslash and u0000": {"a": "\\u0000"},
    "deep enough": {"a": deep(60)},
    "many lists": [[1]] * 1_000,
    "small numbers": msgspec.Raw(b'{"a": 1e-400, "b": 1.5e300, "c": 0.123456789012345678901234567890}'),
    "the largest integers": {"a": [2**64 - 1, -(2**63)]},
    "null": None,
    "false": False,
    "text": "just text",
}


@pytest.mark.parametrize("bad", BAD.values(), ids=BAD.keys())
async def test_a_bad_result_fails_its_own_job_and_no_other(core: Core, bad: Any) -> None:
    await submit(core, n=3)
    first, middle, last = await (await worker(core)).claim()
    assert await finished(core, done(first, 1), done(middle, bad), done(last, 3)) == ["accepted", "invalid", "accepted"]
    assert [(await read(core, a.id)).status for a in (first, middle, last)] == ["completed", "failed", "completed"]
    job = await read(core, middle.id)
    assert job.error_code == "invalid_result"
    assert job.error_message
    assert await finished(core, done(middle, bad)) == ["invalid"], "the same again gets the same answer"


@pytest.mark.parametrize("bad", BAD.values(), ids=BAD.keys())
async def test_a_bad_saved_state_is_refused_and_the_job_goes_on(core: Core, bad: Any) -> None:
    await submit(core, n=2)
    first, second = await (await worker(core)).claim()
    assert await saved(core, saving(first, bad), saving(second, {"n": 2})) == ["invalid", "accepted"]
    assert (await read(core, second.id)).saved == {"n": 2}
    job = await read(core, first.id)
    assert (job.status, job.saved) == ("claimed", None)
    assert await first.finish() == "accepted"


@pytest.mark.parametrize("good", GOOD.values(), ids=GOOD.keys())
async def test_what_is_only_odd_is_stored_and_can_be_read(core: Core, good: Any) -> None:
    await submit(core)
    attempt = await (await worker(core)).claim_one()
    assert await finished(core, done(attempt, good)) == ["accepted"]
    await read(core, attempt.id)


async def test_plain_finishes_need_no_transaction_around_their_statement(
    core: Core, monkeypatch: pytest.MonkeyPatch
) -> None:
    await submit(core, n=3)
    first, *others = await (await worker(core)).claim()
    monkeypatch.setattr(core.db, "transaction", None)
    assert await finished(core, done(first, {"n": 1}), *map(done, others)) == ["accepted"] * 3
    assert (await read(core, first.id)).result == {"n": 1}


async def test_of_plain_finishes_only_the_late_one_is_turned_away(core: Core) -> None:
    await submit(core, n=3)
    first, late, last = await (await worker(core)).claim()
    assert await finished(core, done(late)) == ["accepted"]
    other = wire.FinishItem(id=first.job.id, attempt_id=uuid4(), outcome="done")
    verdicts = await finished(core, other, done(first), done(late), done(last))
    assert verdicts == ["stale_attempt", "accepted", "already_yours", "accepted"]


async def test_saved_state_is_an_object_of_at_most_64_kib(core: Core) -> None:
    await submit(core)
    attempt = await (await worker(core)).claim_one()
    fits = {"a": "x" * (MAX_SAVED_BYTES - len('{"a":""}'))}
    assert await attempt.save([1]) == "invalid"
    assert await attempt.save({"a": fits["a"] + "x"}) == "invalid"
    assert await attempt.save(fits) == "accepted"
    assert await attempt.finish("again", saved={"a": fits["a"] + "x"}) == "invalid"
    assert (await read(core, attempt.id)).error_code == "invalid_result"


async def test_what_only_the_database_refuses_fails_its_own_job_and_no_other(
    core: Core, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the checks before SQL do not know."""

    def unchecked(value: Any, **_: object) -> str | None:
        return None if value is None else msgspec.json.encode(value).decode()

    monkeypatch.setattr(fencing, "checked_json", unchecked)
    monkeypatch.setattr(finishing, "checked_json", unchecked)
    await submit(core, n=3)
    first, middle, last = await (await worker(core)).claim()
    nul = {"a": "\0"}
    assert await saved(core, saving(first, {}), saving(middle, nul), saving(last, {})) == [
        "accepted",
        "invalid",
        "accepted",
    ]
    assert await finished(core, done(first), done(middle, nul), done(last)) == ["accepted", "invalid", "accepted"]
    assert (await read(core, middle.id)).error_code == "invalid_result"


async def test_a_waiting_on_that_is_no_text_does_not_hold_up_others(core: Core) -> None:
    await submit(core, n=2)
    first, second = await (await worker(core)).claim()
    again = done(first, waiting_on="a\0\ud800")
    again.outcome = "again"
    assert await finished(core, again, done(second)) == ["accepted", "accepted"]
    assert (await read(core, first.id)).status == "submitted"


@pytest.mark.parametrize(
    "event",
    [
        wire.Event(type="a\0", subject="b"),
        wire.Event(type="", subject="b"),
        wire.Event(type="a", subject="b" * 3_000),
        wire.Event(type="a", subject="b", data={"a": "\0"}),
        wire.Event(type="a", subject="b", data={"a": "\ud800"}),
        wire.Event(type="a", subject="b", data={"a": deep(300)}),
        wire.Event(type="a", subject="b", data={"a": "x" * 100_000}),
    ],
    ids=["NUL", "empty", "long", "NUL in data", "surrogate in data", "deep data", "large data"],
)
async def test_a_bad_event_fails_its_own_job_and_no_other(core: Core, event: wire.Event) -> None:
    await submit(core, n=2)
    first, second = await (await worker(core)).claim()
    assert await finished(core, done(first, events=[event]), done(second)) == ["invalid", "accepted"]
    assert (await read(core, first.id)).error_code == "invalid_result"


@pytest.mark.parametrize(
    ("follow_up", "status", "code"),
    [
        (wire.FollowUp(kind="nowhere", payload={}), "failed", "invalid_follow_up"),
        (wire.FollowUp(kind="plain", payload={"a": "\0"}), "failed", "invalid_follow_up"),
        (wire.FollowUp(kind="plain", payload={}, priority=9), "failed", "invalid_follow_up"),
        (wire.FollowUp(kind="plain", payload={}, tags=[""]), "failed", "invalid_follow_up"),
        (wire.FollowUp(kind="locking", payload={"lock": "k" * 5_000}), "failed", "invalid_follow_up"),
        (wire.FollowUp(kind="locking", payload={"lock": "taken"}), "pending", "follow_up_lock_held"),
    ],
    ids=["kind", "payload", "priority", "tags", "long lock", "lock held"],
)
async def test_a_bad_follow_up_fails_its_own_job_and_no_other(
    core: Core, follow_up: wire.FollowUp, status: str, code: str
) -> None:
    await submit(core, "locking", payload={"lock": "taken"})
    await submit(core, n=2)
    first, second = await (await worker(core)).claim("plain")
    item = done(first, follow_ups=[wire.FollowUp(kind="other", payload={}), follow_up])
    assert (await finished(core, item, done(second)))[1] == "accepted"
    job = await read(core, first.id)
    assert (job.status, job.error_code) == (status, code)
    assert await (await worker(core)).claim("other") == [], "none of its follow-ups was made"
    assert await finished(core, item) == ["already_yours"]


async def test_too_many_follow_ups_fail_the_job(core: Core) -> None:
    await submit(core)
    attempt = await (await worker(core)).claim_one()
    await attempt.finish(follow_ups=[wire.FollowUp(kind="plain", payload={})] * 1_001)
    assert (await read(core, attempt.id)).error_code == "invalid_follow_up"


class TestTheSameJobTwice:
    async def test_the_same_finish(self, core: Core) -> None:
        await submit(core)
        attempt = await (await worker(core)).claim_one()
        assert await finished(core, done(attempt, 1), done(attempt, 1)) == ["accepted", "accepted"]

    async def test_two_outcomes_of_one_attempt(self, core: Core) -> None:
        await submit(core)
        attempt = await (await worker(core)).claim_one()
        other = done(attempt)
        other.outcome = "permanent"
        assert await finished(core, done(attempt, 1), other) == ["accepted", "stale_attempt"]
        assert (await read(core, attempt.id)).status == "completed"

    @pytest.mark.parametrize("stale_first", [True, False])
    async def test_the_holder_and_a_stranger(self, core: Core, stale_first: bool) -> None:
        await submit(core)
        attempt = await (await worker(core)).claim_one()
        stranger = done(attempt, "stranger")
        stranger.attempt_id = uuid4()
        items = [stranger, done(attempt, "mine")]
        verdicts = await finished(core, *(items if stale_first else items[::-1]))
        assert verdicts == (["stale_attempt", "accepted"] if stale_first else ["accepted", "stale_attempt"])
        assert (await read(core, attempt.id)).result == "mine"

    async def test_saves_and_releases_of_the_holder_and_a_stranger(self, core: Core) -> None:
        await submit(core)
        attempt = await (await worker(core)).claim_one()
        stranger = saving(attempt, {"by": "stranger"})
        stranger.attempt_id = uuid4()
        assert await saved(core, stranger, saving(attempt, {"by": "me"})) == ["stale_attempt", "accepted"]
        releases = [
            wire.ReleaseItem(id=item.id, attempt_id=item.attempt_id) for item in (stranger, saving(attempt, {}))
        ]
        answer = await core.link().release(wire.Release(items=releases))
        assert [verdict.verdict for verdict in answer.verdicts] == ["stale_attempt", "accepted"]
        assert (await read(core, attempt.id)).saved == {"by": "me"}

    async def test_of_two_saves_the_last_holds(self, core: Core) -> None:
        await submit(core)
        attempt = await (await worker(core)).claim_one()
        items = [saving(attempt, {"n": n}) for n in range(10)]
        assert await saved(core, *items) == ["accepted"] * 10
        assert (await read(core, attempt.id)).saved == {"n": 9}


async def test_an_empty_batch(core: Core) -> None:
    assert await finished(core) == []
    assert await saved(core) == []
    assert (await core.link().release(wire.Release(items=[]))).verdicts == []


async def test_a_hundred_jobs_end_in_one_transaction(
    core: Core, connection: "asyncpg.Connection[asyncpg.Record]"
) -> None:
    await submit(core, n=100)
    attempts = await (await worker(core)).claim(limit=100)
    assert await finished(core, *(done(a, n) for n, a in enumerate(attempts))) == ["accepted"] * 100
    assert await connection.fetchval("SELECT count(DISTINCT xmin::text) FROM job_history") == 1
    assert await connection.fetchval("SELECT count(*) FROM jobs") == 0


async def test_overlapping_batches_in_opposite_orders_all_end(core: Core) -> None:
    """Finishes, saves, releases and cancels of the same jobs at once: each job ends or waits, nothing raises."""
    ids = await submit(core, n=60)
    attempts = await (await worker(core)).claim(limit=60)
    link = core.link()

    def releases(order: list[Attempt]) -> wire.Release:
        return wire.Release(items=[wire.ReleaseItem(id=a.job.id, attempt_id=a.job.attempt_id) for a in order])

    backwards = attempts[::-1]
    answers = await asyncio.gather(
        link.finish(wire.Finish(items=[done(a) for a in attempts[:40]])),
        link.finish(wire.Finish(items=[done(a) for a in backwards[:40]])),
        link.save(wire.Save(items=[saving(a, {"n": 1}) for a in attempts])),
        link.save(wire.Save(items=[saving(a, {"n": 1}) for a in backwards])),
        link.release(releases(backwards)),
        core.cancel(ids[::-1][:30], actor="ann"),
    )
    assert len(answers) == 6
    statuses = {(await read(core, id)).status for id in ids}
    assert "claimed" not in statuses
    ended = sum(v.verdict == "accepted" for answer in answers[:2] for v in answer.verdicts)
    completed = [id for id in ids if (await read(core, id)).status == "completed"]
    assert ended == len(completed)


async def test_a_deadlock_is_repeated(core: Core, dsn: str) -> None:
    """Another session locks the two rows of a batch the other way round."""
    await submit(core, n=2)
    attempts = sorted(await (await worker(core)).claim(), key=lambda attempt: attempt.id)
    other = await asyncpg.connect(dsn)
    crossing = other.transaction()
    await crossing.start()
    await other.execute("SET LOCAL deadlock_timeout = '10s'")
    await other.execute("SELECT FROM jobs WHERE id = $1 FOR UPDATE", attempts[1].id)
    batch = asyncio.create_task(finished(core, *map(done, attempts)))
    async with asyncio.timeout(60):
        while not await core.db.pool("relaxed").fetchval("SELECT count(*) FROM pg_locks WHERE NOT granted"):
            pass
    await asyncio.gather(_cross(other, attempts[0]), asyncio.shield(batch))
    await crossing.rollback()
    await other.close()
    assert await batch == ["accepted", "accepted"]


async def _cross(other: "asyncpg.Connection[asyncpg.Record]", attempt: Attempt) -> None:
    await other.execute("SELECT FROM jobs WHERE id = $1 FOR UPDATE", attempt.id)
    await other.execute("ROLLBACK; BEGIN")
