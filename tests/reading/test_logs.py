"""Logs are fenced, stored once however often they are sent, bounded, and read from their end."""

import asyncio
from uuid import UUID, uuid4

import pytest

from paddock.jobs import logs
from paddock.jobs.core import Core
from paddock.jobs.errors import Refused
from paddock.jobs.wire import LogItem
from tests.playing import Attempt, submit, worker


def item(attempt: Attempt, seq: int, lines: str = "a line\n", attempt_id: UUID | None = None) -> LogItem:
    return LogItem(id=attempt.job.id, attempt_id=attempt_id or attempt.job.attempt_id, seq=seq, lines=lines)


async def test_only_the_attempt_that_holds_or_ended_the_job_may_log(core: Core) -> None:
    await submit(core)
    attempt = await (await worker(core)).claim_one()
    assert await logs.append(core.db, [item(attempt, 1)]) == 1
    assert await logs.append(core.db, [item(attempt, 2, attempt_id=uuid4())]) == 0
    assert await logs.append(core.db, [LogItem(id=uuid4(), attempt_id=uuid4(), seq=1, lines="x")]) == 0
    await attempt.finish()
    assert await logs.append(core.db, [item(attempt, 2)]) == 1
    assert [chunk.seq for chunk in (await logs.tail(core.db, attempt.id)).chunks] == [1, 2]


async def test_a_cancelled_attempt_logs_no_more(core: Core) -> None:
    [job] = await submit(core)
    attempt = await (await worker(core)).claim_one()
    await core.cancel([job], actor="ops")
    assert await logs.append(core.db, [item(attempt, 1)]) == 0


async def test_a_repeated_batch_is_stored_once(core: Core) -> None:
    await submit(core)
    attempt = await (await worker(core)).claim_one()
    batch = [item(attempt, n, f"{n}\n") for n in range(20)]
    stored = await asyncio.gather(*(logs.append(core.db, batch) for _ in range(6)), logs.append(core.db, batch + batch))
    assert sum(stored) == 20
    assert "".join(chunk.lines for chunk in (await logs.tail(core.db, attempt.id)).chunks) == "".join(
        f"{n}\n" for n in range(20)
    )


async def test_lines_are_made_storable_and_bounded(core: Core) -> None:
    await submit(core)
    attempt = await (await worker(core)).claim_one()
    await logs.append(core.db, [item(attempt, 1, "nul \0 surrogate \ud800"), item(attempt, 2, "é" * 40_000)])
    first, second = (await logs.tail(core.db, attempt.id)).chunks
    assert first.lines == "nul \ufffd surrogate ?"
    assert len(second.lines.encode()) <= logs.MOST_LINES
    assert len(second.lines.encode()) + second.dropped_bytes == 80_000


async def test_the_tail_goes_on_where_it_stopped(core: Core) -> None:
    await submit(core)
    attempt = await (await worker(core)).claim_one()
    for n in range(50):
        await logs.append(core.db, [item(attempt, n, "x" * 999 + "\n")])
    tail = await logs.tail(core.db, attempt.id, limit_bytes=10_000)
    assert [chunk.seq for chunk in tail.chunks] == list(range(40, 50))
    assert tail.cut
    assert tail.after is not None
    assert (await logs.tail(core.db, attempt.id, tail.after)).chunks == []
    await logs.append(core.db, [item(attempt, 50), item(attempt, 51)])
    more = await logs.tail(core.db, attempt.id, tail.after)
    assert [chunk.seq for chunk in more.chunks] == [50, 51]
    assert len((await logs.tail(core.db, attempt.id)).chunks) == 52
    for bad in ("", "x", "A" * 40, "!"):
        with pytest.raises(Refused, match="not one of ours"):
            await logs.tail(core.db, attempt.id, bad)
