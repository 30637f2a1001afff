"""Kills what can be killed while jobs run, then checks the invariants.

scripts/chaos                     20 kills under 1,500 jobs
scripts/chaos --long              1,000 kills under 20,000 jobs
scripts/chaos --seed 7            other moments and other jobs
"""

import argparse
import asyncio
import logging
import random
import sys

import structlog

from tests.chaos.running import Options, run


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/chaos", description="Kills what can be killed while jobs run.")
    parser.add_argument("--kills", type=int, help="how many processes to kill (20, or 1,000 with --long)")
    parser.add_argument("--jobs", type=int, help="how many jobs to submit (1,500, or 20,000 with --long)")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 31), help="of what is killed and submitted")
    parser.add_argument("--long", action="store_true", help="the long run")
    parser.add_argument("--keep", action="store_true", help="keep logs and data")
    given = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    options = Options(
        kills=given.kills or (1_000 if given.long else 20),
        jobs=given.jobs or (20_000 if given.long else 1_500),
        seed=given.seed,
        groups=200 if given.long else 20,
        keep=given.keep,
    )
    print(f"seed {options.seed}: {options.kills:,} kills under {options.jobs:,} jobs", flush=True)
    found = asyncio.run(run(options, lambda line: print(line, flush=True)))
    for name, figure in found.figures.items():
        print(f"{name:32} {figure:>8,}")
    for sentence in found.wrong:
        print(f"WRONG: {sentence}")
    print("Every job ended exactly once." if not found.wrong else f"{len(found.wrong)} things are wrong.")
    return 1 if found.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
