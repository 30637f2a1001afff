"""Whatever happens in whatever order: the invariants hold after every step, and every run can be brought to its end.

Hypothesis makes the schedules from a seed; a failure prints the shortest schedule it finds. The same seed makes the
same schedules, as long as the same tests are collected:

    PADDOCK_SEED=7 scripts/test tests/properties          another seed
    PADDOCK_LONG=1 scripts/test tests/properties          at least 100,000 steps; PADDOCK_STEPS=N for more
"""

import logging
import os
import random
import time
from collections.abc import Iterator

import pytest
import structlog
from hypothesis import HealthCheck, Phase, Verbosity, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.conftest import Server
from tests.properties.machine import Paddock
from tests.properties.world import World

LONG = bool(os.environ.get("PADDOCK_LONG"))
STEPS = int(os.environ.get("PADDOCK_STEPS", "100000" if LONG else "3000"))
STEPS_PER_RUN = 60
# A test that no longer gets anywhere must not pass.
REACHED = {
    *(f"finish: {verdict}" for verdict in ("accepted", "already_yours", "stale_attempt", "cancelled")),
    *(f"save: {verdict}" for verdict in ("accepted", "stale_attempt", "invalid")),
    *(f"release: {verdict}" for verdict in ("accepted", "stale_attempt")),
    *(f"beat: {verdict}" for verdict in ("accepted", "already_yours", "stale_attempt", "cancelled")),
    *(f"claim: {answer}" for answer in ("some", "none", "repeated")),
    *(f"submit: {answer}" for answer in ("accepted", "repeated", "lock_held", "draining", "idempotency_key_reused")),
    *(f"retry: {answer}" for answer in ("accepted", "already_retried")),
    *(f"job failed: {code}" for code in ("broken", "attempts_exhausted", "worker_lost", "timed_out")),
    *("save against a holder", "finish against a holder"),
    *("job completed: ", "job cancelled: cancelled", "cleanup completed: "),
    *("rescue: given back", "rescue: lost", "rescue: cleanups", "lock passed", "group ended", "delivery"),
}
# Hypothesis varies what it had before: many seeds see more than many runs of one.
RUNS_PER_SEED = 15


@pytest.fixture(scope="module")
def world(postgres: Server) -> Iterator[World]:
    configured = structlog.get_config()
    # Hooks fail by the hundred here, as they are told to.
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    with World(postgres) as opened:
        yield opened
    structlog.configure(**configured)


@pytest.mark.slow
@pytest.mark.timeout(6 * 60 * 60 if LONG else 600)
def test_invariants_hold_after_every_step(world: World) -> None:
    number = int(os.environ.get("PADDOCK_SEED", str(random.randrange(1 << 32)) if LONG else "1"))
    began = time.monotonic()
    # Rare things are rare: schedules that have not met all of them yet go on for a while. (The same seed makes other
    # schedules beside other tests: Hypothesis also draws the constants of the modules that are loaded.)
    while world.steps < STEPS or (world.steps < 3 * STEPS and _missed(world)):
        print(f"PADDOCK_SEED={number} (after {world.steps:,} steps, {time.monotonic() - began:.0f} s)", flush=True)
        machine = seed(number)(type("Paddock", (Paddock,), {"world": world}))
        run_state_machine_as_test(machine, settings=_settings(max(STEPS - world.steps, RUNS_PER_SEED * STEPS_PER_RUN)))
        number += 1
    print(f"{world.steps:,} steps in {time.monotonic() - began:.0f} s")
    for what, times in sorted(world.seen.items()):
        print(f"{times:8,} {what}")
    assert not _missed(world), f"the schedules no longer reach {_missed(world)}"


def _missed(world: World) -> set[str]:
    return {what for what in REACHED if not world.seen[what]}


def _settings(steps: int) -> settings:
    return settings(
        max_examples=min(RUNS_PER_SEED, -(-steps // STEPS_PER_RUN)),
        stateful_step_count=STEPS_PER_RUN,
        deadline=None,
        database=None,
        print_blob=True,
        report_multiple_bugs=False,
        verbosity=Verbosity.normal,
        phases=(Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
    )
