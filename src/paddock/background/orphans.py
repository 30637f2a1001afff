"""Orphans: pods that no instance names. Each is confirmed, deleted by its UID, and counted once.

A replica may stand still or die in the middle of its deletes while another takes the pass over. So what is about to be deleted is
saved first, and counted only when the save after it was accepted: the heir deletes the same again, which changes nothing where
it is gone, and counts what nobody has counted.
"""

import asyncio
from collections import Counter
from collections.abc import Sequence
from datetime import timedelta

from paddock.background.looks import Look
from paddock.background.ticks import Tick
from paddock.instances.model import SQL as INSTANCES
from paddock.pass_metrics import pass_metrics
from paddock.runtimes.runtime import Found

GRACE = timedelta(seconds=30)
ENDS_WITHIN = 40.0
FEW, SHARE = 3, 0.2
# No more are kept in mind than this; the next pass finds the others. All are counted for the limit.
MOST_ORPHANS = 1_000
# So many are deleted at once, and saved before.
AT_ONCE = 50
# Those that were held back are named to whoever might force the pass, as far as a person reads.
MOST_NAMED = 20
DETECTED, CLEANED, FAILED = "orphaned_pods_detected", "orphaned_pods_cleaned", "orphaned_pods_cleanup_failures"
HELD_BACK = "orphaned_pods_held_back"
Named = tuple[str, str]


async def go_on(look: Look) -> None:
    """With what a replica that lost this pass had begun to delete."""
    tick = look.tick
    for name, n in tick.saved.get("counted", {}).items():
        tick.count(name, n)
    if deleting := tick.saved.get("deleting"):
        await _delete_and_count(look, [(name, uid) for name, uid in deleting])


async def clean(look: Look, unnamed: Sequence[Found]) -> None:
    tick = look.tick
    meant, asked = list[Named](), 0
    for found in unnamed:
        if tick.budget.over:
            break  # those that were not asked about count as orphans for the limit, and are left to the next pass
        asked += 1
        if await _is_nobodys(look, found):
            meant.append((found.name, found.uid))
    many = len(meant) + look.unnamed - asked
    if many > max(FEW, SHARE * look.pods) and not tick.force:
        for pod in meant:
            _say(tick, pod)
        pass_metrics().orphans_detected.inc(len(meant))
        tick.count(DETECTED, len(meant))
        tick.count(HELD_BACK, len(meant))
        tick.notes[HELD_BACK] = [name for name, _ in meant[:MOST_NAMED]]
        look.skip("too_many", orphans=many, pods=look.pods)
        return
    for first in range(0, len(meant), AT_ONCE):
        some = meant[first : first + AT_ONCE]
        await _save(tick, some)
        for pod in some:
            _say(tick, pod)
        await _delete_and_count(look, some)
        if tick.budget.over:
            return  # the next pass finds the others


def _say(tick: Tick, pod: Named) -> None:
    tick.log.error(
        "orphaned_pod_detected",
        severity="BUG_INDICATOR",
        message="Delete logic should have removed this pod",
        pod_name=pod[0],
        uid=pod[1],
    )


async def _delete_and_count(look: Look, pods: Sequence[Named]) -> None:
    tick, metrics = look.tick, pass_metrics()
    cleaned = sum(await asyncio.gather(*(_delete(look, *pod) for pod in pods)))
    found = Counter({DETECTED: len(pods), CLEANED: cleaned, FAILED: len(pods) - cleaned})
    for name, n in found.items():
        tick.count(name, n)
    await _save(tick, [])
    for name, counter in (
        (DETECTED, metrics.orphans_detected),
        (CLEANED, metrics.orphans_cleaned),
        (FAILED, metrics.orphan_failures),
    ):
        counter.inc(found[name])


async def _save(tick: Tick, deleting: Sequence[Named]) -> None:
    """Raises where the pass is another replica's by now."""
    counted = {name: tick.found[name] for name in (DETECTED, CLEANED, FAILED) if tick.found[name]}
    tick.saved = {"counted": counted, "deleting": [list(pod) for pod in deleting]}
    await tick.save(tick.saved)


async def _is_nobodys(look: Look, pod: Found) -> bool:
    """By a fresh row and a direct question: whatever changed since the lists were read is seen here."""
    db = look.tick.core.db
    if await db.fetchval(INSTANCES["lock_is_held"], pod.instance):
        look.skip("busy", pod_name=pod.name)
        return False
    if await db.fetch(INSTANCES["named_pods"], [pod.name]):
        return False
    try:
        again = await look.runtime.get(pod.name)
    except Exception as problem:
        look.skip("uncertain", pod_name=pod.name, error=f"{type(problem).__name__}: {problem}")
        return False
    return again is not None and again.uid == pod.uid


async def _delete(look: Look, name: str, uid: str) -> bool:
    """Whether it is gone. By its UID: what has its name by then is not meant."""
    loop = asyncio.get_running_loop()
    until = loop.time() + ENDS_WITHIN
    pause = 0.05
    try:
        while not await look.runtime.delete(name, uid, GRACE):
            if loop.time() >= until:
                raise TimeoutError("it is still ending")
            await asyncio.sleep(pause)
            pause = min(2 * pause, 1.0)
    except Exception as problem:
        look.tick.log.error("orphaned_pod_deletion_failed", pod_name=name, error=f"{type(problem).__name__}: {problem}")
        return False
    look.tick.log.info("orphaned_pod_deleted", pod_name=name, uid=uid)
    return True
