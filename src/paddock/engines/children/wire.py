"""What a child and its parent say to each other.

To the child, on standard input: lines of JSON. From the child, on a pipe of its own (standard output is not used: a
library may print there): frames, each a kind, a length and so many bytes. A result is one COLUMNS, then BATCH after
BATCH, with a PROGRESS (percent) between them or before the first, then DONE with the number of rows; or at any point
ERROR. Before COLUMNS there may be a WANTED, the paths that the parent is to fetch by what is needed of their files, and
another one when it needs more of them; the parent answers when they are there. An answer that is no table is one VALUE.
"""

import json
import struct
import threading
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from paddock.child_processes.frames import write_frame

COLUMNS, BATCH, PROGRESS, DONE, ERROR, VALUE, WANTED = b"C", b"B", b"P", b"D", b"E", b"V", b"W"

# A batch is cut to about this many bytes, so that the parent holds little of each stream.
BATCH_BYTES = 8 << 20
# One row may be larger than that, but not without end: the parent has to hold it.
MAX_FRAME = 256 << 20

# On a field of text inside of another type: the engine calls its values uuids.
UUID_MARK = {b"native": b"uuid"}


class Failure(Exception):
    """What the child has to say instead of an answer. `refused`: the text is at fault, not the run. `mistake`: the run
    failed by the text or its values. `transient`: it may go well later."""

    def __init__(
        self,
        code: str,
        message: str,
        *,
        hint: str | None = None,
        refused: bool = False,
        mistake: bool = False,
        transient: bool = False,
        line: int | None = None,
        column: int | None = None,
    ) -> None:
        super().__init__(message)
        self.facts = {
            "code": code,
            "message": message,
            "hint": hint,
            "refused": refused,
            "mistake": mistake,
            "transient": transient,
            "line": line,
            "column": column,
        }


class FrameWriter:
    """The child's end. A full pipe blocks: this is all the back-pressure there is, and all that is needed."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._sink = _Sink()
        self._writer: Any = None
        # Progress is told from a thread of its own: frames come whole.
        self._speaking = threading.Lock()
        self.rows = 0

    def say(self, kind: bytes, facts: object) -> None:
        self._frame(kind, [json.dumps(facts).encode()])

    def columns(self, schema: pa.Schema, natives: Sequence[str]) -> None:
        self._frame(COLUMNS, [pack_columns(schema, natives)])

    def batch(self, batch: pa.RecordBatch) -> None:
        if self._writer is None:
            self._writer = pa.ipc.new_stream(pa.PythonFile(self._sink, mode="w"), batch.schema)
            # A stream begins with its schema, which the other side has: only what follows is sent.
            self._writer.write_batch(batch.slice(0, 0))
        for piece in pieces(batch):
            self._sink.parts.clear()
            self._writer.write_batch(piece)
            self._frame(BATCH, self._sink.parts)
            self.rows += piece.num_rows
        self._sink.parts.clear()

    def _frame(self, kind: bytes, parts: Sequence[Any]) -> None:
        length = sum(memoryview(part).nbytes for part in parts)
        if length > MAX_FRAME:
            raise row_too_large(length)
        with self._speaking:
            write_frame(self._fd, kind, parts)


class _Sink:
    """Keeps what Arrow writes as the buffers they are, without a copy."""

    def __init__(self) -> None:
        self.parts: list[Any] = []
        self.closed = False

    def write(self, data: Any) -> int:
        self.parts.append(data)
        return memoryview(data).nbytes

    def flush(self) -> None: ...

    def close(self) -> None:
        self.closed = True


def pieces(batch: pa.RecordBatch) -> list[pa.RecordBatch]:
    rows, size = batch.num_rows, batch.nbytes
    if size <= BATCH_BYTES or rows <= 1:
        return [batch] if rows else []
    half = rows // 2
    return pieces(batch.slice(0, half)) + pieces(batch.slice(half))


def row_too_large(size: int) -> Failure:
    return Failure(
        "row_too_large",
        f"A row of the result takes {size:,} bytes; at most {MAX_FRAME:,} can be exported.",
        hint="Leave out the largest column, or cut its values in the query.",
    )


def is_marked_uuid(field: pa.Field) -> bool:
    return bool(field.metadata and field.metadata.get(b"native") == UUID_MARK[b"native"])


def pack_columns(schema: pa.Schema, natives: Sequence[str]) -> bytes:
    text = json.dumps(list(natives)).encode()
    return struct.pack("<Q", len(text)) + text + bytes(schema.serialize())


def unpack_columns(data: Any) -> tuple[pa.Schema, list[str]]:
    view = memoryview(data)
    (length,) = struct.unpack_from("<Q", view)
    natives = json.loads(bytes(view[8 : 8 + length]))
    return pa.ipc.read_schema(pa.py_buffer(view[8 + length :])), natives
