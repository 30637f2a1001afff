"""A child of an execution: `python -m paddock.graphs.algorithms.child PARENT FD`, told in one line which step it is.

It says what part of its step is done, then the step's result, or a failure that the person who asked should read.
"""

import importlib
import sys

from paddock.engines.children import sandbox
from paddock.graphs.algorithms.reporting import failure
from paddock.graphs.children import talking

STEPS = {"reading": "read", "computing": "compute", "writing": "write"}


def main() -> int:
    sandbox.begin(int(sys.argv[1]))
    request, fd = talking.hear(), int(sys.argv[2])
    step = request["step"]
    work = getattr(importlib.import_module(f"paddock.graphs.algorithms.{step}"), STEPS[step])
    sandbox.forget_environment()
    try:
        result = work(request, lambda done: talking.say(fd, talking.PROGRESS, {"done": done}))
    except Exception as problem:
        talking.say(fd, talking.ERROR, failure(problem).facts)
        return 0
    talking.say(fd, talking.DONE, result)
    return 0


if __name__ == "__main__":
    sys.exit(main())
