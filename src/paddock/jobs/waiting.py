"""Waiting for the end of a job, by its changes."""

import asyncio
import time
from typing import TYPE_CHECKING

from paddock.jobs.model import Job
from paddock.stopping import end

if TYPE_CHECKING:
    from paddock.jobs.core import Core

# A change whose message was lost on its way between replicas is seen this much later.
LOOK_AGAIN_SECONDS = 5.0


async def until_ended(core: "Core", job: Job, seconds: float) -> Job:
    """The job when it has ended, or as it is when time is up or this process stops."""
    deadline = time.monotonic() + seconds
    closing = asyncio.create_task(core.claims.closing.wait())
    try:
        while not job.ended and not closing.done() and (left := deadline - time.monotonic()) > 0:
            # Watched before it is read: an end in between must not be missed.
            changed = asyncio.create_task(core.changes.wait_for(job.id, min(left, LOOK_AGAIN_SECONDS)))
            await asyncio.sleep(0)
            try:
                job = await core.job(job.id) or job
                if not job.ended:
                    await asyncio.wait((changed, closing), return_when=asyncio.FIRST_COMPLETED)
            finally:
                await end(changed)
        return job if job.ended else await core.job(job.id) or job
    finally:
        closing.cancel()
