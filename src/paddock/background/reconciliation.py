"""`reconciliation`: the database against the runtime. It should find nothing.

Below *pod* means a process or a pod. What it deletes is nobody's by three signs: no instance names it, it is old enough that no
start can be between the two, and a fresh row and a direct question to the runtime say so again. It is deleted by its UID, so
a later start of the same name is never meant. Too many at once are more likely our mistake than theirs, and none goes.
What a live job has in hand is that job's business.
"""

import asyncio
from collections.abc import Mapping, Sequence, Set
from datetime import UTC, datetime, timedelta
from functools import partial
from uuid import UUID

import asyncpg

from paddock.background import orphans
from paddock.background.looks import Look
from paddock.background.orphans import MOST_ORPHANS
from paddock.background.records import SQL
from paddock.background.resource_monitor import ASKED_AT_ONCE
from paddock.background.ticks import PAGE, Tick, carried
from paddock.instances import finding, watching
from paddock.instances.model import SQL as INSTANCES
from paddock.instances.running_on import runtime_of
from paddock.jobs.model import NewJob
from paddock.pass_metrics import pass_metrics
from paddock.runtimes.runtime import Found, Runtime

OLD_ENOUGH = timedelta(minutes=2)
UNKNOWN_TOO_LONG = timedelta(minutes=5)
MOST_RESTARTS = 3
PODS, STOPPING = "pods", "stopping"
# Something should run for them.
WATCHED = frozenset({"starting", "running"})
# Behind every name.
LAST = "\U0010ffff"


async def run(tick: Tick, *, runtime: Runtime | None = None, now: datetime | None = None) -> None:
    found = runtime or runtime_of(tick.config)
    if found is None:
        return
    if tick.force:
        tick.cursor = None  # what was held back is anywhere, and a part of the pods is no whole
    look = Look(tick, found, now or datetime.now(UTC), tick.notes)
    tick.notes = {}
    whole = tick.cursor is None
    await orphans.go_on(look)
    if tick.begins(PODS):
        await orphans.clean(look, await _side_by_side(look))
    if not whole or tick.left_at is not None:
        known = {key: noted for key, noted in look.notes.items() if key != orphans.HELD_BACK}
        tick.notes = carried(tick.notes, known, look.looked_at)
    await tick.walk(STOPPING, partial(watching.left_stopping, tick.core.db), partial(_stop_again, tick))
    if look.youngest is not None:
        await _ask_again(look, look.youngest)


async def _side_by_side(look: Look) -> list[Found]:
    """Pods and instances in the order of their names; returns the pods that no instance names. Where the budget ends the
    next pass goes on; what this one saw of the pods is fewer, so fewer orphans are too many for it."""
    orphaned: list[Found] = []
    tick = look.tick
    after = "" if tick.cursor is None else str(tick.cursor["after"])
    tick.cursor = None
    while True:
        pods = await look.runtime.list(after, PAGE)
        until = pods[-1].name if len(pods) == PAGE else None
        here = {pod.name: pod for pod in pods}
        named, stopped_at = await _instances_between(look, here, after, until or LAST)
        seen = [pod for pod in pods if stopped_at is None or pod.name <= stopped_at]
        look.pods += len(seen)
        orphaned += (await _unnamed(look, seen, named))[: MOST_ORPHANS - len(orphaned)]
        if stopped_at is not None:
            tick.left_at = {"step": PODS, "after": stopped_at}
            return orphaned
        if until is None:
            return orphaned
        if tick.budget.over:  # no instance was here to look at it
            tick.left_at = {"step": PODS, "after": until}
            return orphaned
        after = until


async def _unnamed(look: Look, pods: Sequence[Found], named: Set[str]) -> list[Found]:
    """Those that are old enough."""
    found: list[Found] = []
    for pod in pods:
        if pod.name in named:
            continue
        age = look.now - pod.made_at
        if age < OLD_ENOUGH:
            look.skip("young", pod_name=pod.name)
            look.youngest = max(look.youngest or timedelta(0), OLD_ENOUGH - age)
        else:
            found.append(pod)
    look.unnamed += len(found)
    return found


async def _instances_between(
    look: Look, pods: Mapping[str, Found], after: str, until: str
) -> tuple[set[str], str | None]:
    """Which of the pods an instance names, and where the budget ended; None: it did not."""
    named: set[str] = set()
    while True:
        rows = await look.tick.core.db.fetch(INSTANCES["instances_by_pod"], after, until, PAGE)
        gave_up: set[UUID] = set()
        for n, row in enumerate(rows):
            if look.tick.budget.over:
                return named, after
            if n % ASKED_AT_ONCE == 0:
                gave_up = await _those_that_gave_up(look, rows[n : n + ASKED_AT_ONCE], pods)
            name, status = row["pod_name"], row["status"]
            pod = pods.get(name)
            if pod is not None:
                named.add(name)
            if status in WATCHED:
                await _check(look, row, pod, gave_up=row["id"] in gave_up)
            elif status == "failed" and pod is not None:
                await _release(look, row, pod)
            after = name
        if len(rows) < PAGE:
            return named, None


def _is_there(pod: Found | None) -> bool:
    return pod is not None and pod.state in ("starting", "up")


async def _those_that_gave_up(look: Look, rows: Sequence[asyncpg.Record], pods: Mapping[str, Found]) -> set[UUID]:
    """Of those that run and whose pod is there. They are asked together: one that does not answer takes five seconds."""

    async def has_given_up(row: asyncpg.Record) -> bool:
        try:
            return await finding.gave_up(look.tick.core, look.tick.config, row["id"]) is not None
        except Exception as problem:  # the runtime may not answer for this one; the others have their turn
            look.skip("uncertain", pod_name=row["pod_name"], error=f"{type(problem).__name__}: {problem}")
            return False

    asked = [row for row in rows if row["status"] == "running" and _is_there(pods.get(row["pod_name"]))]
    answers = await asyncio.gather(*(has_given_up(row) for row in asked))
    return {row["id"] for row, over in zip(asked, answers, strict=True) if over}


async def _check(look: Look, row: asyncpg.Record, pod: Found | None, *, gave_up: bool) -> None:
    """One instance that something should run for."""
    starting = row["status"] == "starting"
    look.looks_at(f"restarts {row['id']}", f"unknown {pod.uid}" if pod is not None else "")
    if starting and look.notes and (restarts := f"restarts {row['id']}") in look.notes:
        look.note(restarts, look.notes[restarts])  # whatever is found now: a start at work has not ended well yet
    if _is_there(pod) and starting:
        return
    if pod is not None and pod.state == "up" and not gave_up:
        return
    if await look.tick.core.db.fetchval(INSTANCES["lock_is_held"], row["id"]):
        look.skip("busy", instance_id=str(row["id"]))
        return
    if pod is not None and pod.state == "starting" and not gave_up:
        look.skip("not_ready", pod_name=pod.name)
        return
    over = False
    if pod is not None and pod.state == "unknown":
        over = _unknown_for_long(look, pod)
        if not over:
            look.skip("uncertain", pod_name=pod.name)
            return
    try:
        await _follow_end(look, row, pod, over)
    except Exception as problem:  # the runtime may not answer for this one; the others have their turn
        look.skip("uncertain", pod_name=row["pod_name"], error=f"{type(problem).__name__}: {problem}")


def _unknown_for_long(look: Look, pod: Found) -> bool:
    """Since the first pass that found it so; kept from pass to pass."""
    since = look.notes.get(f"unknown {pod.uid}")
    began = look.now if since is None else datetime.fromisoformat(str(since))
    look.note(f"unknown {pod.uid}", began.isoformat())
    return look.now - began > UNKNOWN_TOO_LONG


async def _follow_end(look: Look, row: asyncpg.Record, pod: Found | None, unknown_is_over: bool) -> None:
    metrics, tick = pass_metrics(), look.tick
    key = f"restarts {row['id']}"
    restarts = int(str(look.notes.get(key, 0)))
    what = await finding.look_after(
        tick.core, tick.config, row["id"], unknown_is_over=unknown_is_over, may_restart=restarts < MOST_RESTARTS
    )
    if what in ("there", "gone"):
        return  # a pod that was just made, or a row that moved on since the page was read
    if what == "busy":
        look.skip("busy", instance_id=str(row["id"]))
        return
    if what == "restarted" and row["status"] == "starting":
        look.note(key, restarts + 1)
    told = {"instance_id": str(row["id"]), "pod_name": row["pod_name"], "outcome": what}
    if pod is None:
        tick.log.warning("missing_pod_detected", **told)
        metrics.missing_detected.inc()
        metrics.missing_handled.inc()
        tick.count("missing_pods_detected")
        tick.count("missing_pods_handled")
    else:
        tick.log.warning("status_drift_detected", pod_phase=pod.phase or pod.state, **told)
        metrics.drift_detected.inc()
        metrics.drift_fixed.inc()
        tick.count("status_drift_detected")
        tick.count("status_drift_fixed")


async def _release(look: Look, row: asyncpg.Record, pod: Found) -> None:
    """The pod of an instance that failed, where whoever was to take it away no longer comes."""
    try:
        released = await finding.release_failed(look.tick.core, look.runtime, row["id"], pod)
    except Exception as problem:  # the runtime may not answer for this one; the others have their turn
        look.skip("uncertain", pod_name=pod.name, error=f"{type(problem).__name__}: {problem}")
        return
    if released and pod.state != "ended":
        look.tick.log.warning("failed_pod_released", instance_id=str(row["id"]), pod_name=pod.name)
        look.tick.count("failed_pods_released")


async def _stop_again(tick: Tick, item: watching.ById) -> None:
    if await watching.stop_again(tick.core, item.id):
        tick.count("stops_begun_again")


async def _ask_again(look: Look, wait: timedelta) -> None:
    """A pass of its own when the youngest is old enough, unless one comes anyway."""
    core = look.tick.core
    async with core.db.transaction() as tx:
        if not await tx.fetchval(SQL["other_pass_waits"], "reconciliation"):
            await core.enqueue(tx, [NewJob("reconciliation", {}, delay=wait)])
