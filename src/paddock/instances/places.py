"""The place of something that starts: how long it may wait for one, how long it may take to begin there, and what follows.

Where the runtime gives a place at once there is nothing to wait for. Else each wait has a clock of its own, whose times are kept with the
job: what goes over one is taken away and tried once more, and what cannot get better ends the start.
"""

from datetime import timedelta
from typing import Any

from paddock.instances.ends import CannotStart
from paddock.jobs.errors import TransientResourceError
from paddock.jobs.model import JsonObject
from paddock.jobs.turn import Turn
from paddock.runtimes.runtime import Found, Runtime

# How long there may be no room in all, how long what may heal by itself is given, and how often a start that was given a place
# may fail to begin there.
NO_ROOM_FOR = timedelta(minutes=30)
SETTLE = timedelta(seconds=60)
MOST_LATE_STARTS = 3


async def check(turn: Turn[Any], runtime: Runtime, saved: JsonObject, found: Found) -> None:
    """Until it runs: how long it may wait for a place, how long it may take to begin there, and what cannot get better."""
    now, diagnosis = turn.age.total_seconds(), found.diagnosis
    clock = None if found.waiting is None else found.waiting.clock
    if saved.get("clock") != clock:
        saved.update(clock=clock, clock_began=now, clock_limit=None)
    if clock == "schedule":
        saved.setdefault("no_room_since", now)
    else:
        saved.pop("no_room_since", None)
    if diagnosis is None or diagnosis.clock != "settle":
        saved.pop("settles_since", None)
    elif now - saved.setdefault("settles_since", now) > SETTLE.total_seconds():
        await _judge(turn, runtime, saved, found)
    if diagnosis is not None and diagnosis.clock is None:
        await _judge(turn, runtime, saved, found)
    if found.waiting is None or found.waiting.limit is None:
        return
    waited = now - saved["clock_began"]
    if waited > (saved.get("clock_limit") or found.waiting.limit.total_seconds()):
        closely = await runtime.get(found.name, "closely")
        longer = closely is not None and closely.waiting and closely.waiting.clock == clock and closely.waiting.limit
        if longer and waited <= longer.total_seconds():
            saved["clock_limit"] = longer.total_seconds()
        elif closely is not None and closely.state == "starting":
            await _judge(turn, runtime, saved, closely)


async def _judge(turn: Turn[Any], runtime: Runtime, saved: JsonObject, found: Found) -> None:
    """Its time is over. What cannot get better fails; else it is taken away, and the start is tried once more."""
    now, diagnosis, waiting = turn.age.total_seconds(), found.diagnosis, found.waiting
    if diagnosis is not None and diagnosis.verdict == "permanent":
        raise CannotStart("refused", diagnosis.message, diagnosis=diagnosis)
    since = saved.get("no_room_since")
    if since is not None and now - since > NO_ROOM_FOR.total_seconds():
        words = diagnosis.words if diagnosis is not None else waiting.words if waiting is not None else ""
        raise CannotStart("no_room", f"There is no room for the instance: {words}", diagnosis=diagnosis)
    late = saved.get("late_starts", 0) + (saved.get("clock") == "start")
    if late >= MOST_LATE_STARTS:
        raise CannotStart("never_answered", None if diagnosis is None else diagnosis.message, diagnosis=diagnosis)
    # The same clock begins anew with the next one, and there is nothing yet that could have vanished.
    saved.update(started=False, clock=None, taken_away=found.uid, late_starts=late)
    await turn.save(saved, progress=False)
    await runtime.delete(found.name, found.uid)
    if diagnosis is not None:
        raise diagnosis.error()
    words = "its start" if waiting is None else waiting.words
    raise TransientResourceError(
        f"{runtime.words.thing} {found.name} waited too long for {words}.", code="start_late", budget="cluster"
    )
