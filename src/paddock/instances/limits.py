"""How many instances there may be and how much memory they may have, counted under one lock.

Live instances count; one that waits for its snapshot counts with 1 GB, and the limits are asked again when its size is known.
"""

from dataclasses import dataclass
from typing import Annotated
from uuid import UUID

import orjson
from pydantic import Field

from paddock.api import global_config
from paddock.db.pool import Transaction
from paddock.instances.model import SQL
from paddock.instances.sizing import GB
from paddock.jobs.errors import Refused

PER_ANALYST = ("concurrency.per_analyst", 5)
CLUSTER_TOTAL = ("concurrency.cluster_total", 50)
PER_ANALYST_MEMORY = ("concurrency.per_analyst_memory_gb", 64)
CLUSTER_MEMORY = ("concurrency.cluster_memory_gb", 256)

Count = Annotated[int, Field(ge=0, le=1_000_000)]
global_config.declare(PER_ANALYST[0], Count, PER_ANALYST[1], "How many live instances one owner may have.")
global_config.declare(CLUSTER_TOTAL[0], Count, CLUSTER_TOTAL[1], "How many live instances there may be.")
global_config.declare(
    PER_ANALYST_MEMORY[0], Count, PER_ANALYST_MEMORY[1], "How many GB of memory one owner's live instances may have."
)
global_config.declare(CLUSTER_MEMORY[0], Count, CLUSTER_MEMORY[1], "How many GB of memory all live instances may have.")
DEFAULTS = dict((PER_ANALYST, CLUSTER_TOTAL, PER_ANALYST_MEMORY, CLUSTER_MEMORY))


@dataclass(frozen=True, slots=True)
class _Limit:
    name: str
    most: int
    would_be: int
    sentence: str


async def lock(tx: Transaction) -> None:
    await tx.execute(SQL["lock_limits"])


async def check(tx: Transaction, owner: str, memory_gb: int, *, room: int | None, without: UUID | None = None) -> None:
    """Refuses what would be too much, with all that is live counted but `without`. The caller holds the lock.
    `room` is how many bytes of memory the runtime has for all of them."""
    limits = {**DEFAULTS, **{r["name"]: orjson.loads(r["value"]) for r in await tx.fetch(SQL["settings"], [*DEFAULTS])}}
    live = await tx.fetchrow(SQL["live_sums"], owner, without)
    assert live is not None
    own_gb, all_gb = int(live["own_memory_gb"]) + memory_gb, int(live["memory_gb"]) + memory_gb
    asked = [
        _Limit(PER_ANALYST[0], limits[PER_ANALYST[0]], live["own"] + 1, "You may have {most} live instances"),
        _Limit(
            PER_ANALYST_MEMORY[0],
            limits[PER_ANALYST_MEMORY[0]],
            own_gb,
            "Your live instances may have {most} GB of memory together, and with this one they would have {would_be}",
        ),
        _Limit(CLUSTER_TOTAL[0], limits[CLUSTER_TOTAL[0]], live["total"] + 1, "There may be {most} live instances"),
        _Limit(
            CLUSTER_MEMORY[0],
            limits[CLUSTER_MEMORY[0]],
            all_gb,
            "All live instances may have {most} GB of memory together, and with this one they would have {would_be}",
        ),
    ]
    if room is not None:
        asked.append(
            _Limit(
                "runtime.memory_gb",
                room // GB,
                all_gb,
                "This machine has room for instances with {most} GB of memory together, and with this one they would"
                " have {would_be}",
            )
        )
    for limit in asked:
        if limit.would_be > limit.most:
            raise await _exceeded(tx, owner, limit)


async def _exceeded(tx: Transaction, owner: str, limit: _Limit) -> Refused:
    """Only the caller's own instances are named: whose the others are is nobody's business."""
    own = await tx.fetch(SQL["own_live"], owner)
    named = ", ".join(f"'{row['name']}'" for row in own[:5])
    sentence = limit.sentence.format(most=f"{limit.most:,}", would_be=f"{limit.would_be:,}")
    yours = f" Yours: {named}{', …' if len(own) > 5 else ''}." if own else ""
    return Refused(
        "CONCURRENCY_LIMIT_EXCEEDED",
        f"{sentence} ({limit.name}).{yours}",
        hint="Delete one that you do not need, or ask an operator for more.",
        details={
            "limit": limit.name,
            "most": limit.most,
            "instances": [
                {"id": str(row["id"]), "name": row["name"], "status": row["status"], "memory_gb": row["memory_gb"]}
                for row in own
            ],
        },
    )
