"""What only a worker can tell, asked in a short job: workers must reach engines and databases and have their credentials,
the control plane need not."""

import asyncio

from paddock.db.pool import Transaction
from paddock.jobs import enqueueing, reading
from paddock.jobs.core import Core
from paddock.jobs.errors import Refused
from paddock.jobs.model import Job, JobId, NewJob
from paddock.jobs.waiting import until_ended

# Less than a check may take: what is not answered by then is told one by one.
PATIENCE = 8.0
OWNER = "doctor"


async def answers(core: Core, new: dict[str, NewJob]) -> dict[str, Job | str]:
    """All at once: the ended job, or why there is none."""
    offered = {kind.name for kind in await reading.kinds(core.db) if kind.offered}
    answers = await asyncio.gather(*(_ask(core, job, offered) for job in new.values()))
    return dict(zip(new, answers, strict=True))


async def _ask(core: Core, new: NewJob, offered: set[str]) -> Job | str:
    if new.kind not in offered:
        return f"no live worker offers {new.kind}."

    async def write(tx: Transaction) -> JobId:
        [id] = await enqueueing.enqueue(core, tx, [new], public=True)
        return id

    try:
        [made] = await enqueueing.made(core, [await core.db.repeated(write)])
    except Refused as refused:
        return refused.message
    job = await until_ended(core, made, PATIENCE)
    if job.ended:
        return job
    await core.cancel([job.id], actor=OWNER, reason="doctor does not wait any longer")
    why = f" ({job.errors[-1]['message']})" if job.errors else ""
    return f"no worker answered within {PATIENCE:.0f} s{why}."
