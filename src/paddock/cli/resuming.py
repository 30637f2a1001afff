"""The bytes of a file from the server, over as many connections as it takes: each goes on where the one before broke."""

import time
from collections.abc import Callable, Iterator
from typing import BinaryIO

from paddock.cli.connection import Refusal
from paddock.cli.errors import CommandFailed

# In a row, without a byte in between.
TRIES = 5
FIRST_PAUSE = 0.5


class _Longer(CommandFailed):
    pass


def write_all(
    download: Callable[[int], Iterator[bytes]],
    name: str,
    size: int,
    sink: BinaryIO,
    start: int,
    progress: Callable[[int], None] = lambda _: None,
) -> None:
    """`download(n)` gives the file from its byte n on; `progress` is told how many bytes are here."""
    tries = 0
    while start < size:
        before = start
        try:
            for chunk in download(start):
                start += len(chunk)
                if start > size:
                    raise _Longer(f"{name} is longer than the server said.", hint="Download it again.")
                sink.write(chunk)
                progress(start)
        except CommandFailed as problem:
            refused = isinstance(problem, _Longer) or (isinstance(problem, Refusal) and problem.status < 429)
            if refused or (start == before and tries == TRIES - 1):
                raise
        tries = 0 if start > before else tries + 1
        if tries == TRIES:
            raise CommandFailed(f"{name} ended early.", hint="Download it again: it resumes where it stopped.")
        if start < size:
            time.sleep(FIRST_PAUSE * 2**tries)
