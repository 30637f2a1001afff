"""What the worker inside `serve` does, one turn at a time."""

import asyncio
from typing import Any
from uuid import UUID, uuid4

from paddock.config import Config
from paddock.db.pool import Database
from paddock.jobs import wire
from paddock.jobs.core import Core
from paddock.jobs.kinds import Kind
from paddock.jobs.model import Job, JobId
from paddock.worker.ending import failure_of, item_for
from paddock.worker.resources import Resources
from paddock.worker.turns import TurnPort, build_turn


class Nobody:
    """The owner of a turn that neither saves nor reports."""

    def ended(self, item: wire.FinishItem) -> None: ...
    def stopped(self, attempt_id: UUID) -> None: ...
    def save(self, item: wire.SaveItem) -> None: ...
    def report(self, attempt_id: UUID, progress: dict[str, Any]) -> None: ...
    def log(self, attempt_id: UUID, lines: str, dropped_bytes: int = 0) -> None: ...


async def run_inside(core: Core, config: Config, kind: Kind) -> list[Job]:
    """One turn of each job of this kind that is due, and what became of it."""
    link = core.link(internal=True)
    registered = await link.register(wire.Register(worker_id="inside", version="1", kinds=[kind.name], slots=20))
    claim = wire.Claim(session=registered.session, claim_id=uuid4(), kinds=[kind.name], limit=20)
    claimed = (await link.claim(claim)).jobs
    resources = Resources({Core: core, Database: core.db, Config: config})
    for job in claimed:
        turn = build_turn(kind, job, TurnPort(job, Nobody(), asyncio.get_running_loop()))
        try:
            item = item_for(job, await kind.handler(turn, **resources.for_handler(kind.handler)))
        except Exception as error:
            item = failure_of(kind, job, error)
        await link.finish(wire.Finish(items=[item]))
    found = [await core.job(JobId(job.id)) for job in claimed]
    return [job for job in found if job is not None]
