"""The pod of an instance as the cluster has it at this moment, for the instance's page and for `why`.

Nothing is decided by it. A look has little time, and all who ask within a few seconds get the same one: people who watch a page
take nothing from what starts and stops instances.
"""

import asyncio
import time
from collections import OrderedDict
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import orjson

from paddock.config import Config
from paddock.instances.keeping import evidence_of
from paddock.instances.model import Instance
from paddock.instances.running_on import runtime_of
from paddock.jobs.errors import InfrastructureError
from paddock.jobs.model import JsonObject

LOOK_WITHIN = timedelta(seconds=2)
GOOD_FOR = timedelta(seconds=5)
MOST_KEPT = 500


@dataclass(frozen=True, slots=True)
class PodNow:
    """`pod` is as `keeping.kept` has it, with what it waits for; None: there is none, or `problem` says why nobody knows."""

    pod: JsonObject | None = None
    problem: str | None = None


_looks: OrderedDict[tuple[Path, str], tuple[float, PodNow]] = OrderedDict()


async def look(config: Config, instance: Instance) -> PodNow:
    if instance.pod_name is None or instance.status not in ("starting", "running", "stopping"):
        return PodNow()
    key, now = (config.data, instance.pod_name), time.monotonic()
    known = _looks.get(key)
    if known is not None and now - known[0] < GOOD_FOR.total_seconds():
        return known[1]
    found = await _look(config, instance.pod_name)
    _looks[key] = (now, found)
    _looks.move_to_end(key)
    while len(_looks) > MOST_KEPT:
        _looks.popitem(last=False)
    return found


async def _look(config: Config, name: str) -> PodNow:
    runtime = runtime_of(config)
    if runtime is None:
        return PodNow()
    try:
        async with asyncio.timeout(LOOK_WITHIN.total_seconds()):
            found = await runtime.get(name, "closely")
    except TimeoutError:
        return PodNow(problem=f"The cluster did not answer within {LOOK_WITHIN.total_seconds():.0f} s.")
    except InfrastructureError as problem:
        return PodNow(problem=problem.message)
    text = None if found is None else evidence_of(found)
    if found is None or text is None:
        return PodNow()
    waits = None if found.waiting is None else found.waiting.words
    return PodNow({**orjson.loads(text), "waits_for": waits})
