"""Whether a destination holds something already, as far as the control plane can tell when an export is asked for.

A courtesy: nobody has to wait for a job to be told. The job looks itself, with the worker's credentials, and that
decides; so whatever keeps the control plane from looking (no rights, no answer in a moment, a folder of another machine)
is no reason to refuse.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING
from uuid import UUID

import orjson

from paddock.config import Config, ConfigError
from paddock.db.pool import statements
from paddock.exports.destinations import open_destination
from paddock.exports.model import Target
from paddock.jobs import enqueueing
from paddock.jobs.enqueueing import IdempotencyKey
from paddock.jobs.errors import InfrastructureError, Refused
from paddock.jobs.model import JobId

if TYPE_CHECKING:
    from paddock.jobs.core import Core
    from paddock.storage.store import Seen

SQL = statements("paddock.exports.sql", "exports.sql")
LOOK_SECONDS = 3.0


async def check(
    core: "Core",
    config: Config,
    target: Target | None,
    sees: Callable[[str], bool],
    idempotency: IdempotencyKey | None = None,
) -> None:
    """`sees`: whether the caller may know of this owner's work."""
    if target is None or target.if_exists != "error":
        return
    found = await _look(target, config)
    # While a job is at work there, what was seen may be its own, and the refusal is to name the lock. A key that is
    # known asks for what it made before.
    if (
        not found.used
        or await core.db.fetchval(SQL["is_locked"], f"destination:{target.key}")
        or await enqueueing.is_known(core.db, idempotency)
    ):
        return
    holder = None if found.job is None else await core.job(found.job)
    raise Refused(
        "destination_not_empty",
        f"The destination {target.key} holds files already.",
        hint="Choose another prefix ({date} makes one for each day), or if_exists: replace.",
        details={} if holder is None or not sees(holder.owner) else {"holder": str(holder.id)},
    )


@dataclass(frozen=True, slots=True)
class Look:
    used: bool = False
    # Whose manifest is there.
    job: JobId | None = None


async def _look(target: Target, config: Config) -> Look:
    try:
        async with asyncio.timeout(LOOK_SECONDS):
            # On a thread: the first one loads a large library.
            store = await asyncio.to_thread(open_destination, target.name, config)
            async for _ in store.list(target.prefix):
                return Look(used=True, job=_job(await store.seen(f"{target.prefix}/_manifest.json")))
    except (InfrastructureError, ConfigError, TimeoutError):
        pass
    return Look()


def _job(manifest: "Seen | None") -> JobId | None:
    """Anybody may have written it."""
    try:
        return None if manifest is None else JobId(UUID(orjson.loads(manifest.data)["job"]))
    except (ValueError, TypeError, KeyError, AttributeError):
        return None
