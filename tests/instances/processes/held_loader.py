"""The child that loads, stopping itself (SIGSTOP) where the test wrote `between tables` or `checking` into `hold` beside the
folders of the instances. There it can be killed, or let go on (SIGCONT)."""

import os
import signal
import sys
from pathlib import Path
from typing import Any

from paddock.graphs.children import loader, talking

PHASES = {"between tables": "edges", "checking": "checking"}
hear, say = talking.hear, talking.say


def hear_and_hold() -> Any:
    request = hear()
    hold = Path(request["files"]).parent.with_name("hold")
    # Read before it is confined.
    held = PHASES.get(hold.read_text()) if hold.exists() else None

    def say_or_stop(fd: int, kind: bytes, facts: Any) -> None:
        if held is not None and facts.get("phase") == held:
            os.kill(os.getpid(), signal.SIGSTOP)
        say(fd, kind, facts)

    talking.say = say_or_stop
    return request


talking.hear = hear_and_hold

if __name__ == "__main__":
    sys.exit(loader.main())
