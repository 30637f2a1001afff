"""Python's cycle collector, off while many objects are made at once.

A page is hundreds of thousands of lists and strings without a cycle among them; looking for one costs as much as
making them. It is one switch for the whole process and decoders run in several threads: the last one out turns it on.
"""

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_lock = threading.Lock()
_inside = 0
_was_on = False


@contextmanager
def collection_off() -> Iterator[None]:
    global _inside, _was_on  # noqa: PLW0603  # the switch is the process's, so is the count
    with _lock:
        if _inside == 0:
            _was_on = gc.isenabled()
            gc.disable()
        _inside += 1
    try:
        yield
    finally:
        with _lock:
            _inside -= 1
            if _inside == 0 and _was_on:
                gc.enable()
