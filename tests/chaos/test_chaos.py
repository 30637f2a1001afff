"""Real processes, killed at random moments under load. The long run: `scripts/chaos --long`."""

import os
import random

import pytest

from tests.chaos.running import Options, run


@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_every_job_ends_once_whatever_is_killed() -> None:
    seed = int(os.environ.get("PADDOCK_SEED", random.randrange(1 << 31)))
    print(f"scripts/chaos --seed {seed} --kills 12 --jobs 600")
    found = await run(Options(kills=12, jobs=600, seed=seed))
    assert not found.wrong, (seed, found.wrong, found.figures)
    assert found.figures["jobs"] >= 600
