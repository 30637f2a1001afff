"""The child of an execution that stops itself (SIGSTOP) at a point which the test wrote into `hold` beside the scratch
folder. There it can be looked at, killed, or let go on (SIGCONT)."""

import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from paddock.graphs.algorithms import arrays, child, reading, writing
from paddock.graphs.children import talking

POINTS = ("reading", "computing", "writing", "written")


def stop() -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


def stopping_before(function: Callable[..., Any]) -> Callable[..., Any]:
    def stopped(*given: Any) -> Any:
        stop()
        return function(*given)

    return stopped


def stopping_after_first(function: Callable[..., Iterator[int]]) -> Callable[..., Iterator[int]]:
    def stopped(*given: Any) -> Iterator[int]:
        for done in function(*given):
            stop()
            yield done

    return stopped


def hear() -> Any:
    request = original_hear()
    hold = Path(request["scratch"]).with_name("hold")
    point = hold.read_text() if hold.exists() else None
    if point == "reading":
        reading._read_edges = stopping_before(reading._read_edges)
    if point == "computing":
        arrays.write_answer = stopping_before(arrays.write_answer)
    if point == "writing":  # the property is there, and filled for some of the nodes
        writing._fill = stopping_after_first(writing._fill)
        writing.BATCH_ROWS = 2
    if point == "written":
        writing._figures = stopping_before(writing._figures)
    return request


original_hear = talking.hear
talking.hear = hear

if __name__ == "__main__":
    sys.exit(child.main())
