"""Whatever happens to a run in whatever order: what must be true holds after every step, and every run can be ended.

Hypothesis makes the schedules; a failure prints the shortest one that it finds. `scripts/test --long` tries more of them.
"""

import logging
from collections.abc import Iterator

import pytest
import structlog
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.conftest import Server
from tests.examples import LONG, examples
from tests.ingest.any_order import AnyOrder, World

# A test that no longer gets anywhere must not pass.
REACHED = {
    "started", "killed", "cancelled", "committed", "run completed", "run failed", "run cancelled",
    *(f"{kind} done: accepted" for kind in ("run_ingester", "run_hooks", "publish_batch")),
}  # fmt: skip

# Too rare to be sure of in a short run.
REACHED_IN_TIME = {
    "run_active", "held", "bulk", "deleted", "redelivered: nothing", "skipped", "job retried", "retried, run live", "retried, run ended",
    *(f"{kind} done: stale_attempt" for kind in ("run_ingester", "run_hooks", "publish_batch")),
}  # fmt: skip


@pytest.fixture(scope="module")
def world(postgres: Server) -> Iterator[World]:
    configured = structlog.get_config()
    # Hooks fail by the hundred here, as they are told to.
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    with World(postgres) as opened:
        yield opened
    structlog.configure(**configured)


@pytest.mark.examples
@pytest.mark.slow
@pytest.mark.timeout(600)  # all examples, on a machine that has other work too
def test_what_must_be_true_of_runs_holds_after_every_step(world: World) -> None:
    machine = type("AnyOrder", (AnyOrder,), {"world": world})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples(80),
            stateful_step_count=30,
            deadline=None,
            database=None,
            derandomize=True,
            report_multiple_bugs=False,
            phases=(Phase.generate, Phase.shrink),
            suppress_health_check=list(HealthCheck),
        ),
    )
    for what, times in sorted(world.seen.items()):
        print(f"{times:8,} {what}")
    wanted = REACHED | REACHED_IN_TIME if LONG else REACHED
    assert {what for what, times in world.seen.items() if times} >= wanted
