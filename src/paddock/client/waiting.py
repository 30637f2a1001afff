"""Asking again: until something has come, and when a server says that it may be asked again."""

import random
import time
from collections.abc import Callable
from typing import Any, TypeVar

from paddock.client.errors import NotFinished, PaddockError

T = TypeVar("T")
Found = dict[str, Any]

# How long a server may hold one question that waits.
WAIT_SECONDS = 30.0
RECONNECT_SECONDS = 1.0
# A server that restarts, or whose database does, is away this long at most before one who waits is told so.
PATIENCE_SECONDS = 120.0


def repeated(ask: Callable[[], T], patience: float) -> T:
    """Asks again when the server says that it may be, and as late as it says, for `patience` seconds in all."""
    deadline = time.monotonic() + patience
    while True:
        try:
            return ask()
        except PaddockError as refused:
            pause = refused.repeat_after
            if pause is None or time.monotonic() + pause >= deadline:
                raise
        time.sleep(pause)


def until(
    ask: Callable[[float], Found],
    ended: Callable[[Found], bool],
    *,
    noun: str = "job",
    timeout: float | None = None,
    look_every: float = WAIT_SECONDS,
    pause: float = 0.0,
    tell: Callable[[Found], None] | None = None,
) -> Found:
    """What `ask` finds once it has `ended`, each find told on the way; `NotFinished` after `timeout` seconds.

    `ask` is given how many seconds it may wait for the end itself, `look_every` at most; where it cannot wait there is a
    `pause` between two of them.
    """
    deadline = None if timeout is None else time.monotonic() + timeout
    patience = time.monotonic() + PATIENCE_SECONDS
    while True:
        left = look_every if deadline is None else max(0.0, min(look_every, deadline - time.monotonic()))
        try:
            found = ask(left)
        except PaddockError as error:
            if not error.passes or time.monotonic() >= min(patience, deadline or patience):
                raise
            time.sleep(RECONNECT_SECONDS * random.uniform(0.5, 1.5))
            continue
        patience = time.monotonic() + PATIENCE_SECONDS
        if tell is not None:
            tell(found)
        if ended(found):
            return found
        if deadline is not None and time.monotonic() >= deadline:
            raise NotFinished(found, noun)
        time.sleep(pause)
