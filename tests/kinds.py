"""Kinds for tests of the core: their handlers never run, the tests play the worker."""

from datetime import timedelta

from pydantic import BaseModel, ConfigDict

from paddock.jobs.kinds import Backoff, Kind
from paddock.jobs.outcomes import Outcome, done
from paddock.jobs.turn import Turn
from paddock.jobs.webhooks.delivering import WEBHOOK


class Anything(BaseModel):
    model_config = ConfigDict(extra="allow")

    lock: str | None = None


async def nothing(turn: Turn[Anything]) -> Outcome:
    return done()


def lock_of(payload: Anything) -> str | None:
    return payload.lock


ANYBODY = frozenset({"analyst", "ops", "admin"})
PLAIN = Kind(
    name="plain",
    payload=Anything,
    handler=nothing,
    submit=ANYBODY,
    # "nowhere" is no kind, and a worker may make no "webhook", whatever this says.
    follow_ups=frozenset({"plain", "other", "locking", "nowhere", "webhook"}),
    emits=frozenset({"dump.ready", "thing.made", "own", "x.y"}),
)
OTHER = Kind(name="other", payload=Anything, handler=nothing, submit=ANYBODY)
LOCKING = Kind(
    name="locking",
    payload=Anything,
    handler=nothing,
    cleanup=nothing,
    lock_key=lock_of,
    submit=ANYBODY,
    follow_ups=frozenset({"locking"}),
)
FRAGILE = Kind(
    name="fragile",
    payload=Anything,
    handler=nothing,
    retry=Backoff(first=timedelta(seconds=60), cap=timedelta(minutes=5), limit=2, cluster_limit=4, loss_limit=1),
    submit=ANYBODY,
)
ONCE = Kind(name="once", payload=Anything, handler=nothing, may_repeat=False, submit=ANYBODY)
SERIAL = Kind(name="serial", payload=Anything, handler=nothing, serial=True, submit=ANYBODY)
PATIENT = Kind(name="patient", payload=Anything, handler=nothing, patience=timedelta(minutes=10), submit=ANYBODY)
TIMED = Kind(
    name="timed",
    payload=Anything,
    handler=nothing,
    cleanup=nothing,
    turn_timeout=timedelta(minutes=5),
    total_timeout=timedelta(hours=1),
    stall_timeout=timedelta(minutes=20),
    submit=ANYBODY,
)
INTERNAL = Kind(name="internal_only", payload=Anything, handler=nothing)

TEST_KINDS = (PLAIN, OTHER, LOCKING, FRAGILE, ONCE, SERIAL, PATIENT, TIMED, INTERNAL, WEBHOOK)
