"""The kinds of the property test: each has one rule of its own, and limits so small that random play reaches them.

Their handlers never run, the machine plays the workers. The hooks run in the control plane's transactions: each writes
a line, so that how often it ran is counted by the database, and refuses while its switch is on.
"""

from dataclasses import replace
from datetime import timedelta

from pydantic import BaseModel, ConfigDict

from paddock.db.pool import Transaction
from paddock.jobs.kinds import Backoff, Kind
from paddock.jobs.model import Group, Job
from paddock.jobs.outcomes import Outcome, done
from paddock.jobs.turn import Turn

FEW = Backoff(first=timedelta(seconds=30), cap=timedelta(seconds=100), limit=2, cluster_limit=2, loss_limit=2)


class Anything(BaseModel):
    model_config = ConfigDict(extra="allow")

    lock: str | None = None


class Switches:
    """What the hooks are to do right now."""

    end_hook_raises = False
    group_hook_raises = False


async def nothing(turn: Turn[Anything]) -> Outcome:
    return done()


def lock_of(payload: Anything) -> str | None:
    return payload.lock


async def end_hook(tx: Transaction, job: Job) -> None:
    await tx.execute("INSERT INTO test_end_hooks VALUES ($1, $2)", job.id, job.status)
    if Switches.end_hook_raises:
        raise RuntimeError("The hook refuses.")


async def group_hook(tx: Transaction, group: Group) -> None:
    await tx.execute("INSERT INTO test_group_hooks VALUES ($1, $2)", group.id, group.failed)
    if Switches.group_hook_raises:
        raise RuntimeError("The hook refuses.")
    if group.data.get("final"):
        await tx.execute("UPDATE groups SET final = true WHERE id = $1", group.id)


# Enough to see that an unclassified failure has a limit of its own.
PLAIN = Kind(name="plain", payload=Anything, handler=nothing, retry=replace(FEW, limit=5))
HOOKED = Kind(name="hooked", payload=Anything, handler=nothing, retry=FEW, on_end=end_hook)
LOCKING = Kind(name="locking", payload=Anything, handler=nothing, cleanup=nothing, lock_key=lock_of, retry=FEW)
ONCE = Kind(name="once", payload=Anything, handler=nothing, cleanup=nothing, may_repeat=False, retry=FEW)
SERIAL = Kind(name="serial", payload=Anything, handler=nothing, serial=True, retry=FEW)
PATIENT = Kind(
    name="patient", payload=Anything, handler=nothing, cleanup=nothing, patience=timedelta(seconds=45), retry=FEW
)
TIMED = Kind(
    name="timed",
    payload=Anything,
    handler=nothing,
    cleanup=nothing,
    retry=FEW,
    turn_timeout=timedelta(minutes=2),
    stall_timeout=timedelta(minutes=3),
    total_timeout=timedelta(minutes=8),
)
MEMBER = Kind(name="member", payload=Anything, handler=nothing, retry=FEW, on_group_end=group_hook)
# Takes the place of the real one: deliveries are jobs of this name, and here they are played like any other.
DELIVERY = Kind(name="webhook", payload=Anything, handler=nothing, retry=FEW)

_KINDS = (PLAIN, HOOKED, LOCKING, ONCE, SERIAL, PATIENT, TIMED, MEMBER, DELIVERY)
# Each may make any other: what a kind declares is no part of the game.
_NAMES = frozenset(kind.name for kind in _KINDS)
KINDS = tuple(replace(kind, follow_ups=_NAMES, emits=frozenset({"toy.made"})) for kind in _KINDS)
BY_NAME = {kind.name: kind for kind in KINDS}
SUBMITTED = tuple(kind.name for kind in KINDS if kind.name != DELIVERY.name)
