"""The check on a real node, for scripts/cluster: `image ARCHIVE` builds our image, `run ARCHIVE` does the rest in a network
namespace of its own."""

import asyncio
import signal
import sys
import time
from pathlib import Path

from tests.cluster.real.image import build_paddock
from tests.cluster.real.overlay import IMAGE, ROOT
from tests.cluster.real.scene import Scene, scene
from tests.cluster.real.steps import STEPS


async def run(archive: Path) -> int:
    began = time.monotonic()
    # Whoever is told to end takes down what it started.
    here = asyncio.current_task()
    assert here is not None
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, here.cancel)
    async with scene(archive) as opened:
        _say(f"The cluster is there after {time.monotonic() - began:.0f} s.")
        failed = [step.__name__ for step in STEPS if not await _passes(step, opened)]
    _say(f"{len(STEPS) - len(failed)} of {len(STEPS)} steps in {time.monotonic() - began:.0f} s")
    return 1 if failed else 0


async def _passes(step: "object", opened: Scene) -> bool:
    began = time.monotonic()
    sentence = str(step.__doc__)
    try:
        told = await step(opened)  # type: ignore[operator]
    except Exception as problem:
        _say(f"FAILED {time.monotonic() - began:5.0f} s  {sentence}\n    {type(problem).__name__}: {problem}")
        return False
    _say(f"ok     {time.monotonic() - began:5.0f} s  {sentence}")
    for line in told.strip().splitlines():
        _say(f"    {line}")
    return True


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    what, file = sys.argv[1], Path(sys.argv[2])
    if what == "image":
        build_paddock(ROOT, [IMAGE], file)
    else:
        sys.exit(asyncio.run(run(file)))
