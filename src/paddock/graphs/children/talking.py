"""What the children of an instance say to the server, in frames; what they are told is lines of JSON.

loader, reader, writer: PROGRESS as often as they like, then DONE or ERROR.
engine: READY or ERROR on its first pipe, once. Then on the pipe of each slot, for each query: HEAD (media type, rows found), DATA
as often as needed, END; or at any point ERROR, after which that query is over.
"""

import json
import os
import sys
from typing import Any

from paddock.child_processes.frames import write_frame

READY, PROGRESS, DONE, ERROR = b"R", b"P", b"D", b"E"
HEAD, DATA, END = b"H", b"B", b"Z"

# A frame is cut to about this many bytes; the server reads none that is larger than the limit.
DATA_BYTES = 256 * 1024
MOST_FRAME_BYTES = 80 << 20


def say(fd: int, kind: bytes, facts: Any) -> None:
    write_frame(fd, kind, [json.dumps(facts).encode()])


def hear() -> Any:
    """The first line on standard input, without reading beyond it."""
    line = bytearray()
    while not line.endswith(b"\n"):
        some = os.read(0, 1)
        if not some:
            sys.exit(0)  # the server is gone
        line += some
    return json.loads(line)
