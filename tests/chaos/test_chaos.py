"""Real processes, killed at random moments under load. The long run: `scripts/chaos --long`."""

import os
import random

import pytest

from tests.chaos.running import Options, run


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(("kills", "jobs"), [(6, 300), pytest.param(12, 600, marks=pytest.mark.long)])
async def test_every_job_ends_once_whatever_is_killed(kills: int, jobs: int) -> None:
    seed = int(os.environ.get("PADDOCK_SEED", random.randrange(1 << 31)))
    print(f"scripts/chaos --seed {seed} --kills {kills} --jobs {jobs}")
    found = await run(Options(kills=kills, jobs=jobs, seed=seed))
    assert not found.wrong, (seed, found.wrong, found.figures)
    assert found.figures["jobs"] >= jobs
