"""Tests of the core play the worker themselves: they claim, and write with the attempt they hold."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from uuid import UUID, uuid4

from paddock.jobs import rescuing, wire
from paddock.jobs.core import Core, DirectLink
from paddock.jobs.model import Job, JobId, NewJob
from tests.conftest import DatabaseClock

ALL_KINDS = ("plain", "other", "locking", "fragile", "once", "serial", "patient", "timed")


@dataclass
class Attempt:
    link: DirectLink
    job: wire.ClaimedJob

    @property
    def id(self) -> JobId:
        return JobId(self.job.id)

    async def finish(self, outcome: str = "done", **fields: Any) -> str:
        if outcome in ("transient", "permanent") and "error" not in fields:
            fields["error"] = wire.Error(code="broken", message="It broke.")
        item = wire.FinishItem(id=self.job.id, attempt_id=self.job.attempt_id, outcome=outcome, **fields)  # type: ignore[arg-type]
        return await self._verdict(self.link.finish(wire.Finish(items=[item])))

    async def save(self, saved: Any, *, progress: bool = True) -> str:
        item = wire.SaveItem(id=self.job.id, attempt_id=self.job.attempt_id, saved=saved, progress=progress)
        return await self._verdict(self.link.save(wire.Save(items=[item])))

    async def release(self, reason: str = "released") -> str:
        item = wire.ReleaseItem(id=self.job.id, attempt_id=self.job.attempt_id, reason=reason)
        return await self._verdict(self.link.release(wire.Release(items=[item])))

    async def _verdict(self, answer: Any) -> str:
        verdicts = (await answer).verdicts
        assert len(verdicts) == 1
        return str(verdicts[0].verdict)


@dataclass
class PlayedWorker:
    link: DirectLink
    session: UUID

    async def claim(
        self, *kinds: str, limit: int = 10, claim_id: UUID | None = None, wait: float = 0, **fields: Any
    ) -> list[Attempt]:
        message = wire.Claim(
            session=self.session,
            claim_id=claim_id or uuid4(),
            kinds=list(kinds or ALL_KINDS),
            limit=limit,
            wait_seconds=wait,
            **fields,
        )
        return [Attempt(self.link, job) for job in (await self.link.claim(message)).jobs]

    async def claim_one(self, *kinds: str) -> Attempt:
        [attempt] = await self.claim(*kinds, limit=1)
        return attempt

    async def beat(self, *attempts: Attempt, **fields: Any) -> list[str]:
        holding = [wire.Held(id=a.job.id, attempt_id=a.job.attempt_id) for a in attempts]
        answer = await self.link.beat(self.session, wire.Beat(holding=holding, **fields))
        return [verdict.verdict for verdict in answer.verdicts]

    async def report(self, attempt: Attempt, **progress: Any) -> None:
        held = wire.Held(id=attempt.job.id, attempt_id=attempt.job.attempt_id, report=progress)
        await self.link.beat(self.session, wire.Beat(holding=[held], renew=False))


async def worker(core: Core, name: str = "worker") -> PlayedWorker:
    link = core.link()
    registered = await link.register(wire.Register(worker_id=name, version="test", kinds=list(ALL_KINDS), slots=10))
    return PlayedWorker(link, registered.session)


async def submit(core: Core, kind: str = "plain", n: int = 1, **fields: Any) -> list[JobId]:
    payload, owner = fields.pop("payload", {}), fields.pop("owner", "ann")
    submitted = await core.submit([NewJob(kind, payload, owner=owner, **fields) for _ in range(n)])
    return [job.id for job in submitted.jobs]


async def read(core: Core, id: JobId) -> Job:
    job = await core.job(id)
    assert job is not None
    return job


async def served(core: Core, clock: DatabaseClock, *, seconds: float) -> None:
    """Time passes while a replica serves: the rescuer ticks, and no gap stops the leases."""
    while seconds > 0:
        await clock.advance(seconds=min(5, seconds))
        await rescuing.rescue(core)
        seconds -= 5


async def passes(core: Core, clock: DatabaseClock, played: PlayedWorker, *attempts: Attempt, minutes: float) -> None:
    """Time, with beats: the worker lives and lists what it holds, and a replica serves."""
    while minutes > 0:
        await played.beat(*attempts)
        await served(core, clock, seconds=min(0.5, minutes) * 60)
        minutes -= 0.5
    await played.beat(*attempts)


async def until(condition: Callable[[], bool], *, seconds: float = 60) -> None:
    """What must come true soon; a test never sleeps for a fixed time."""
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110  the condition is a state inside the core, which sets no event
            await asyncio.sleep(0.001)
