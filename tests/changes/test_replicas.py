"""What one replica commits the others hear of, in messages PostgreSQL takes, or are told that they missed something."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import asyncpg
import msgspec
import pytest
from prometheus_client import CollectorRegistry

from paddock.jobs.core import Core, open_core
from paddock.jobs.kinds import Kinds
from paddock.jobs.model import JobId
from paddock.jobs.wakeups import Message, Notifier, Wake
from paddock.metrics import Metrics
from tests.kinds import TEST_KINDS
from tests.playing import submit, until, worker


class Wire:
    """In place of the database: what would be notified."""

    def __init__(self) -> None:
        self.sent: list[Message] = []
        self.broken = False

    async def execute(self, statement: object, payload: str) -> None:
        assert len(payload.encode()) < 8_000, "PostgreSQL refuses it"
        if self.broken:
            raise asyncpg.ConnectionDoesNotExistError("gone")
        self.sent.append(msgspec.json.decode(payload, type=Message))


@pytest.fixture
async def wire() -> Wire:
    return Wire()


@pytest.fixture
async def notifier(wire: Wire) -> AsyncIterator[Notifier]:
    made = Notifier(wire)  # type: ignore[arg-type]
    running = asyncio.create_task(made.run())
    yield made
    running.cancel()
    await asyncio.wait([running])


def wake(kind: str = "plain", lane: int = 3, due_in: float = 0.0, n: int = 1) -> Wake:
    return Wake(kind, lane, datetime(2030, 1, 1, tzinfo=UTC), due_in, n)


async def test_everything_arrives_in_messages_that_are_small_enough(notifier: Notifier, wire: Wire) -> None:
    kinds = [f"{'k' * 90}{n}" for n in range(100)]
    lost = {uuid4(): [uuid4() for _ in range(7)] for _ in range(30)}
    notifier.wake(wake(kind, lane) for kind in kinds for lane in range(5))
    notifier.cancelled(lost)
    notifier.changed(JobId(uuid4()) for _ in range(170))
    await until(lambda: sum(len(message.wakes) for message in wire.sent) == 500)
    await until(lambda: sum(len(message.lost) for message in wire.sent) == 210)
    assert {(w.kind, w.lane) for message in wire.sent for w in message.wakes} == {
        (k, n) for k in kinds for n in range(5)
    }
    assert {pair for message in wire.sent for pair in message.lost} == {
        (s, a) for s, some in lost.items() for a in some
    }
    assert any(message.overflow for message in wire.sent) or sum(len(message.changed) for message in wire.sent) == 170


async def test_the_first_goes_at_once_and_the_next_together(notifier: Notifier, wire: Wire) -> None:
    notifier.wake([wake()])
    await until(lambda: len(wire.sent) == 1)
    for _ in range(20):
        notifier.wake([wake(n=2), wake("other")])
    await until(lambda: sum(w.n for message in wire.sent for w in message.wakes) == 1 + 40 + 20)
    assert len(wire.sent) == 2
    assert [(w.kind, w.n) for w in wire.sent[1].wakes] == [("plain", 40), ("other", 20)]


async def test_together_they_are_as_soon_as_the_soonest(notifier: Notifier, wire: Wire) -> None:
    late, early = datetime(2030, 1, 2, tzinfo=UTC), datetime(2030, 1, 1, tzinfo=UTC)
    notifier.wake([Wake("plain", 3, late, 0.0), Wake("plain", 3, early, 9.0)])
    await until(lambda: len(wire.sent) == 1)
    assert wire.sent[0].wakes == [Wake("plain", 3, early, 0.0, 2)]


async def test_changes_are_listed_or_said_to_be_too_many(notifier: Notifier, wire: Wire) -> None:
    few = [JobId(uuid4()) for _ in range(100)]
    notifier.changed(few)
    notifier.wake([wake()])
    await until(lambda: len(wire.sent) == 1)
    assert (set(wire.sent[0].changed), wire.sent[0].overflow) == ({str(id) for id in few}, False)
    notifier.changed(JobId(uuid4()) for _ in range(1_000))
    notifier.wake([wake()])
    await until(lambda: len(wire.sent) == 2)
    assert (wire.sent[1].changed, wire.sent[1].overflow) == ([], True)


async def test_after_a_message_that_was_lost_who_watches_must_start_over(notifier: Notifier, wire: Wire) -> None:
    wire.broken = True
    notifier.changed([JobId(uuid4())])
    notifier.wake([wake()])
    await until(lambda: not notifier._wakes)
    await until(lambda: notifier._overflow)
    wire.broken = False
    notifier.wake([wake()])
    await until(lambda: len(wire.sent) == 1)
    assert wire.sent[0].overflow


async def test_it_stops_when_told_though_it_is_just_stirred(wire: Wire) -> None:
    for _ in range(50):
        notifier = Notifier(wire)  # type: ignore[arg-type]
        running = asyncio.create_task(notifier.run())
        await asyncio.sleep(0)
        notifier.wake([wake()])
        running.cancel()
        async with asyncio.timeout(60):
            await asyncio.wait([running])
        assert running.cancelled()


class TestTwoReplicas:
    @pytest.fixture
    async def second(self, dsn: str, core: Core) -> AsyncIterator[Core]:
        async with open_core(dsn, Kinds(TEST_KINDS), metrics=Metrics(CollectorRegistry())) as opened:
            yield opened

    async def test_changes_of_one_are_heard_by_the_other(self, core: Core, second: Core) -> None:
        async with second.changes.subscribe() as subscription:
            [id] = await submit(core)
            heard: set[Any] = set()
            async with asyncio.timeout(60):
                while id not in heard:
                    heard |= (await subscription.next()).ids

    async def test_a_claim_a_save_and_an_end_are_changes(self, core: Core, second: Core) -> None:
        [id] = await submit(core)
        played = await worker(core)
        async with core.changes.subscribe() as here, second.changes.subscribe() as there:
            attempt = await played.claim_one()
            assert id in (await here.next()).ids
            await attempt.save({})
            assert id in (await here.next()).ids
            await attempt.finish()
            assert id in (await here.next()).ids
            async with asyncio.timeout(60):
                while id not in (await there.next()).ids:
                    pass

    async def test_a_listener_that_lost_its_line_comes_back_and_says_so(
        self, core: Core, second: Core, connection: "asyncpg.Connection[asyncpg.Record]"
    ) -> None:
        before = {core.changes.epoch, second.changes.epoch}
        await connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE application_name = 'paddock listener' AND datname = current_database()"
        )
        await until(lambda: not {core.changes.epoch, second.changes.epoch} & before)
        async with second.changes.subscribe() as subscription:
            [id] = await submit(core)
            async with asyncio.timeout(60):
                changed = await subscription.next()
                while not (id in changed.ids or changed.overflow):
                    changed = await subscription.next()
