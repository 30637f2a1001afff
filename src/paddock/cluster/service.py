"""What people change about the cluster."""

from typing import Any

from paddock.api.errors import ApiError, invalid_field
from paddock.cluster.kinds import PROBE
from paddock.config import Config
from paddock.db.pool import Transaction
from paddock.instances.running_on import installation_of
from paddock.jobs import enqueueing
from paddock.jobs.core import Core
from paddock.jobs.errors import LockHeld
from paddock.jobs.model import Job, JobId, NewJob
from paddock.runtimes.kubernetes.installation import Installation, Standing

LONGEST_REASON = 1_000


def needed_installation(config: Config) -> Installation:
    found = installation_of(config)
    if found is None:
        raise ApiError(
            409,
            "no_cluster",
            "Nothing of this control plane runs on a cluster.",
            hint="Set PADDOCK_RUNTIME=kubernetes where it has one.",
        )
    return found


async def adopt(config: Config, *, actor: str, reason: str, fresh: bool) -> Standing:
    if not reason.strip():
        raise invalid_field("reason", "Say why: the reason is kept in the audit log.")
    if len(reason) > LONGEST_REASON:
        raise invalid_field("reason", f"A reason has at most {LONGEST_REASON} characters.")
    return await needed_installation(config).adopt(actor=actor, reason=reason, fresh=fresh)


async def probe(core: Core, config: Config, *, owner: str) -> Job:
    """The job that looks at the cluster from inside, the one under way or a new one."""
    needed_installation(config)

    async def write(tx: Transaction) -> JobId:
        new = NewJob(kind=PROBE, payload=_empty(), owner=owner)
        [id] = await enqueueing.enqueue(core, tx, [new])
        return id

    try:
        id = await core.db.repeated(write)
    except LockHeld as held:
        if held.holder is None:  # it ended between the two: now there is none
            id = await core.db.repeated(write)
        else:
            [holder] = await enqueueing.made(core, [held.holder])
            id = holder.cleanup_of or holder.id
    [made] = await enqueueing.made(core, [id])
    return made


def _empty() -> dict[str, Any]:
    return {}
